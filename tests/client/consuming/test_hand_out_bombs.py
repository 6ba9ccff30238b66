"""Small messages that grow a thousandfold: however they are received, few are in memory as what they grow to."""

import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from tests.support.orders import TOPIC, make_topic, total_committed
from tests.support.records import plain_record
from tests.support.waiting import eventually

from rocketrio import ClientInstance, Consumer, MessageExt, open_consumer
from rocketrio.consuming import frames, hand_out, process_queue, running
from rocketrio.consuming.frames import table_of
from rocketrio.consuming.hand_out import fitting
from rocketrio.consuming.redelivered import redelivered
from rocketrio_protocol.commands.send import AUTO_CREATE_TOPIC_KEY, SendMessageRequestHeaderV2
from rocketrio_protocol.message import decode_messages
from rocketrio_protocol.record.compression import INFLATE_LIMIT, MAX_BODY_SIZE, InflateBudget
from rocketrio_protocol.record.layout import SysFlag

LIMIT = INFLATE_LIMIT // 16
"""The limit in these tests, so that they inflate a sixteenth."""
SIZE = 2 * LIMIT // 5
BOMB = zlib.compress(bytes(SIZE))
AT_ONCE = LIMIT // SIZE
COUNT = 3 * AT_ONCE + 1
COMPRESSED = int(SysFlag.COMPRESSED)
PATIENCE = 1000.0
"""Virtual seconds: while a busy machine works on something in a thread, the clock jumps."""


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (hand_out, process_queue, running):
        monkeypatch.setattr(module, "INFLATE_LIMIT", LIMIT)
    monkeypatch.setattr(frames, "InflateBudget", partial(InflateBudget, LIMIT))


async def send_bombs(client: ClientInstance) -> None:
    """As any producer can."""
    await make_topic(client, TOPIC, queues=1)
    await client.refresh_topic_route(TOPIC)
    addr = client.routing.find_broker_address_in_publish("broker-a")
    assert addr is not None
    for _ in range(COUNT):
        header = SendMessageRequestHeaderV2(
            "p", TOPIC, AUTO_CREATE_TOPIC_KEY, 1, 0, COMPRESSED, 0, 0
        )
        await client.api.call(addr, header, BOMB, what="sending")


async def one_by_one(consumer: Consumer) -> list[int]:
    return [len((await consumer.receive()).body) for _ in range(COUNT)]


async def in_lists(consumer: Consumer) -> list[int]:
    sizes: list[int] = []
    while len(sizes) < COUNT:
        messages = await consumer.receive_batch(1000)
        assert len(messages) <= AT_ONCE
        sizes += [len(message.body) for message in messages]
    return sizes


async def in_tables(consumer: Consumer) -> list[int]:
    sizes: list[int] = []
    while len(sizes) < COUNT:
        table = await consumer.read_arrow(columns=("body",))
        assert table.num_rows <= AT_ONCE
        sizes += [len(body.as_buffer()) for body in table["body"]]
    return sizes


async def by_handlers(consumer: Consumer) -> list[int]:
    sizes: list[int] = []

    async def handle(message: MessageExt) -> None:
        size = len(message.body)
        await trio.sleep(1)  # Meanwhile the others would begin.
        sizes.append(size)
        if len(sizes) == COUNT:
            consumer._hand_out.close()

    await consumer.run(handle)
    return sizes


async def by_handlers_of_lists(consumer: Consumer) -> list[int]:
    sizes: list[int] = []

    async def handle(messages: list[MessageExt]) -> None:
        bodies = [message.body for message in messages]
        await trio.sleep(1)
        sizes.extend(map(len, bodies))
        if len(sizes) == COUNT:
            consumer._hand_out.close()

    await consumer.run_batches(handle)
    return sizes


WAYS: dict[Callable[[Consumer], Awaitable[list[int]]], int] = {
    one_by_one: SIZE,
    in_lists: LIMIT,
    in_tables: 2 * LIMIT,  # The bodies, and the column made of them.
    by_handlers: LIMIT + SIZE,
    by_handlers_of_lists: LIMIT + SIZE,
}
INFLATING = 2 * SIZE + SIZE // 2
"""What inflating one takes for a moment: zlib's buffer, which grows, beside the bytes made of it."""


@pytest.mark.parametrize(
    ("way", "orderly"),
    [*((way, False) for way in WAYS), (by_handlers, True), (by_handlers_of_lists, True)],
)
async def test_bombs_are_handed_out_piece_by_piece(
    client: ClientInstance, way: Callable[[Consumer], Awaitable[list[int]]], orderly: bool
) -> None:
    await send_bombs(client)
    async with open_consumer(TOPIC, group="g", client=client, orderly=orderly) as consumer:
        table_of([messages_of(b"plain")], ("body",))  # What this imports takes memory of its own.
        tracemalloc.start(1)
        try:
            with trio.fail_after(PATIENCE):
                sizes = await way(consumer)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert sizes == [SIZE] * COUNT
        assert peak < WAYS[way] + INFLATING
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await eventually(lambda: consumer.assignment, PATIENCE)
        assert await total_committed(consumer) >= COUNT - AT_ONCE


def messages_of(*bodies: bytes) -> list[MessageExt]:
    records = [
        plain_record(queue_offset=number, body=body, sys_flag=COMPRESSED * (body != b"plain"))
        for number, body in enumerate(bodies)
    ]
    return decode_messages(b"".join(records))


@pytest.mark.slow
def test_at_least_one_message_fits_and_what_cannot_be_read_takes_nothing() -> None:
    beyond = zlib.compress(bytes(MAX_BODY_SIZE + 1))
    assert fitting(messages_of(beyond)) == 1
    assert fitting(messages_of(beyond, b"no zlib", b"plain", zlib.compress(b"small"))) == 4
    assert fitting(messages_of(*[BOMB] * 5)) == AT_ONCE
    assert fitting(messages_of(b"plain", *[BOMB] * 5, b"plain")) == AT_ONCE + 1


@pytest.mark.parametrize("before", [0, 1, 30])
def test_a_table_ends_before_what_has_no_room(before: int) -> None:
    plain = messages_of(*[b"plain"] * before)
    bombs = messages_of(*[BOMB] * 20)
    for lists in ([plain, bombs], [plain, [redelivered(bomb) for bomb in bombs]], [bombs, plain]):
        table = table_of([some for some in lists if some], ("queue_offset", "broker_name", "body"))
        has_plain_first = lists[0] is plain
        assert table.num_rows == AT_ONCE + before * has_plain_first
        expected = [*range(before * has_plain_first), *range(AT_ONCE)]
        assert table["queue_offset"].to_pylist() == expected
    only_offsets = table_of([bombs], ("queue_offset",))
    assert only_offsets.num_rows == 20
