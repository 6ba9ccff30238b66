"""Targets that are whole clients: whatever a server answers or asks, calls end in a value or a documented error.

answers   the first line names a call, the rest is the frame that answers it (with the number of its request)
asks      a chunk that a broker sends by itself, to a client with a consumer and a producer
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    Producer,
    TransactionState,
    open_consumer,
    open_producer,
)
from rocketrio_protocol.errors import Error
from tests.fuzz import seeds
from tests.fuzz.lab import GROUP, PRODUCERS, TOPIC
from tests.fuzz.mutations import rebodied
from tests.fuzz.seeds import FRAME_WORDS, RECORD_WORDS
from tests.fuzz.target import Target, live, named, split_name
from tests.support.client_calls import CALLS, QUEUE, SETTLE, Call
from tests.support.raw_client import request
from tests.support.raw_frames import command_of, is_answer
from tests.support.raw_server import (
    ADDRESS,
    ROUTE,
    RawServer,
    answer_of,
    server_and_client,
    told,
)

_PROBE_OPAQUE: Final = 1_234_567
_PATIENCE: Final = 120.0
"""Virtual seconds for one call with all that it tries again."""


def take_answers(data: bytes) -> None:
    """Answer a call with this."""
    name, frame = split_name(data)
    if name in CALLS:
        live(_call, *CALLS[name], frame)


async def _call(code: int, call: Call, frame: bytes) -> None:
    async with server_and_client() as (server, client):
        server.serve_idle(client)
        ordinary = dict(server.answers)
        server.answers[code] = [answer_of(frame)]
        with suppress(Error), trio.fail_after(_PATIENCE):
            await call(client)
        server.answers = ordinary
        with trio.fail_after(_PATIENCE):
            await _wait_well(client)


async def _wait_well(client: ClientInstance) -> None:
    """Ask until there is an answer: what came may have begun a long frame, or have ended the connection."""
    while True:
        with suppress(Error):
            await client.api.min_offset(ADDRESS, QUEUE)
            return
        await trio.sleep(1)


def take_asks(data: bytes) -> None:
    """Be a broker that asks its client this."""
    live(_be_asked, data)


async def _be_asked(data: bytes) -> None:
    async with server_and_client() as (server, client):
        server.serve_idle(client)
        async with (
            open_producer(client=client, group=PRODUCERS, check_transaction=_check) as producer,
            open_consumer(TOPIC, group=GROUP, client=client, start_from="earliest") as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, _handle)
            nursery.start_soon(_request, producer)
            await trio.sleep(SETTLE)
            for transport in list(server.connections):
                nursery.start_soon(server.send, transport, data)
            await trio.sleep(SETTLE)
            with trio.fail_after(_PATIENCE):
                await _wait_answered(server)
            nursery.cancel_scope.cancel()


async def _wait_answered(server: RawServer) -> None:
    """Ask the client how it is doing, over each of its connections, until it has answered."""
    probe = request(307, {"consumerGroup": GROUP, "clientId": "c"}, opaque=_PROBE_OPAQUE)
    while not any(
        header["opaque"] == _PROBE_OPAQUE and header["flag"] & 1 for header, _ in server.asked
    ):
        for transport in list(server.connections):
            await server.send(transport, probe)
        await trio.sleep(1)


async def _request(producer: Producer) -> None:
    """Wait for a reply, which makes the producer's group known as well."""
    with suppress(Error):
        await producer.request(Message(TOPIC, b"x"), queue=QUEUE, timeout=_PATIENCE)


async def _check(message: MessageExt) -> TransactionState:
    return TransactionState.COMMIT


async def _handle(message: MessageExt) -> None:
    message.body  # noqa: B018
    message.properties  # noqa: B018


# --- good inputs -----------------------------------------------------------------------------


def _answer_seeds() -> Sequence[bytes]:
    recorded = [data for data in seeds.frames() if data[4] == 0 and is_answer(command_of(data))]
    bodies = [*seeds.json_bodies()[:12], *seeds.records()[:3], ROUTE, b""]
    fields = {"offset": "1", "nextBeginOffset": "1", "minOffset": "0", "maxOffset": "9", "queueId": "0",
              "suggestWhichBrokerId": "0", "msgId": "7F00000100002A9F00000000000000FF", "queueOffset": "1",
              "timestamp": "1"}  # fmt: skip
    made = [told(fields=fields, body=body)({"opaque": 0}) for body in bodies]
    return [named(name, frame) for name in CALLS for frame in (*made, *recorded[:4])]


CLIENTS: Final = (
    Target(
        "answers",
        take_answers,
        (*FRAME_WORDS, *RECORD_WORDS),
        _answer_seeds,
        is_framed=True,
        is_named=True,
        is_program=True,
    ),
    Target(
        "asks",
        take_asks,
        (*FRAME_WORDS, *RECORD_WORDS),
        lambda: [*seeds.pushes(), *(rebodied(push, 0) for push in seeds.pushes())],
        is_framed=True,
        is_program=True,
    ),
)
