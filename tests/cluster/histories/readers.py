"""What clients are answered when they pull, noted with the broker that answered; and a reader that looks at all.

The auditor reads every broker from below by itself, so that slaves are held to their word though no consumer is
sent to them.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio
from tests.cluster.histories.events import Pulled, now
from tests.cluster.histories.schedule import QUEUES
from tests.cluster.histories.world import BODY_AT, FILL, TOPIC, World
from tests.support.caller import SUBSCRIPTION
from tests.support.clients import open_client

from rocketrio import ClientInstance, Error
from rocketrio.cluster.api import ClientAPI
from rocketrio.consuming.pull_result import PullResult
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.frame import Body
from rocketrio_protocol.message import decode_messages
from rocketrio_protocol.remoting.tasks import every

AUDIT_PERIOD: Final = 5.0
AUDIT_TIMEOUT: Final = 3.0


@asynccontextmanager
async def client_at(
    world: World,
    host: str,
    who: str,
    *,
    client_id: str | None = None,
    static_grace: int | None = None,
) -> AsyncGenerator[ClientInstance]:
    """A client on a host of its own."""
    async with open_client(
        name_servers=world.cluster.name_servers,
        client_id=client_id or f"{host}@1#{who}",
        static_grace=static_grace,
        dial=world.cluster.dial_from(host),
        wall_clock=world.cluster.wall_clock,
        rng=world.rng(f"client {host} {who}"),
    ) as client:
        yield client


@attrs.define
class RecordingAPI(ClientAPI):
    """Notes which broker answered which messages."""

    world: World
    reader: str

    async def pull_message(
        self, addr: str, header: PullMessageRequestHeader, *, timeout: float
    ) -> PullResult:
        asked = now()
        result = await ClientAPI.pull_message(self, addr, header, timeout=timeout)
        if result.body:
            note_pulled(self.world, self.reader, addr, header.queue_id, result.body, asked=asked)
        return result


def note_pulled(
    world: World, reader: str, addr: str, queue_id: int, body: Body, *, asked: float
) -> None:
    """What a broker answered to a pull."""
    messages = decode_messages(body)
    last = messages[-1]
    broker = world.number(addr.rpartition(":")[0])
    member = world.cluster.members[broker]
    world.history.add(
        Pulled(
            at=now(),
            reader=reader,
            broker=broker,
            role=member.broker.role if member.is_running else "",
            queue_id=queue_id,
            messages=tuple(
                (message.queue_offset, message.body.rstrip(FILL)) for message in messages
            ),
            end_offset=last.physical_offset + BODY_AT + len(last.body),
            held_by=world.held_by(),
            asked=asked,
        )
    )


async def audit(world: World) -> None:
    """Read every broker as far as it goes, slaves above all, again and again."""
    async with client_at(world, "10.0.3.1", "auditor") as client, trio.open_nursery() as nursery:
        api = RecordingAPI(client.api.pool, world, "auditor")
        for member in world.cluster.members:
            nursery.start_soon(_audit, api, f"{member.host}:10911")


async def _audit(api: RecordingAPI, addr: str) -> None:
    positions = [0] * QUEUES
    async for _ in every(AUDIT_PERIOD):
        for queue_id, offset in enumerate(positions):
            header = PullMessageRequestHeader(
                "audit", TOPIC, queue_id, offset, 32, SUBSCRIPTION, 0, 0, 0, "*"
            )
            try:
                result = await api.pull_message(addr, header, timeout=AUDIT_TIMEOUT)
            except Error:
                break
            positions[queue_id] = result.next_begin_offset
