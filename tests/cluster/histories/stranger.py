"""A stranger who asks every broker for its log, and proves nothing: where replication is closed it gets nothing."""

from typing import Final

import trio
from tests.cluster.histories.events import StrangerAnswered, now
from tests.cluster.histories.world import World
from tests.support.replication import HEADER, RawPeer

from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.tasks import every

HOST: Final = "10.0.3.9"
KNOCK_PERIOD: Final = 6.0
PATIENCE: Final = 6.0
"""Seconds it waits for an answer: longer than a heartbeat is away, and than a handshake may take."""
FAR: Final = 1 << 20
"""What it says to have: more than any log here, so that a master that believes it would release every send."""


async def knock(world: World) -> None:
    """Try it at every broker, again and again."""
    if world.schedule.mode.link == "open":
        return
    async with trio.open_nursery() as nursery:
        for number, member in enumerate(world.cluster.members):
            nursery.start_soon(_knock, world, number, f"{member.host}:10912")


async def _knock(world: World, number: int, addr: str) -> None:
    dial = world.cluster.dial_from(HOST)
    async for _ in every(KNOCK_PERIOD):
        answer = b""
        try:
            peer = RawPeer(await dial(addr))
            with trio.move_on_after(PATIENCE):
                # As a slave that has nothing, and as one that has everything.
                await peer.report(0)
                await peer.report(FAR)
                answer = await peer.read(HEADER.size)
            await peer.transport.aclose()
        except Error:
            continue
        if answer:
            world.history.add(StrangerAnswered(at=now(), broker=number, size=len(answer)))
