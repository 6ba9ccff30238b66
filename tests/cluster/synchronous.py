"""A synchronous master whose answers are timed to the virtual millisecond."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from tests.support.held_disk import HeldDisk
from tests.support.pair import Pair, pair_of

from rocketrio_broker.embedded import SMALL_STORE, Member

SLAVE_HOST, OTHER_HOST = "10.0.0.11", "10.0.0.12"
SYNC_FLUSH = attrs.evolve(SMALL_STORE, flush_disk_type="sync")


@attrs.define
class TimedPair(Pair):
    """A synchronous master with slaves that follow, and a sender."""

    @property
    def addr(self) -> str:
        return self.master.address

    def part_slave(self, host: str = SLAVE_HOST) -> None:
        """Nothing passes between the master and this slave from now on."""
        self.part(self.first, host)

    async def timed(self, body: bytes = b"x", **fields: Any) -> tuple[int, float]:
        """Return the code of the answer to a send, and how long it took."""
        start = trio.current_time()
        answer = await self.caller.send(self.addr, body, **fields)
        return answer.code, round(trio.current_time() - start, 6)


@asynccontextmanager
async def synchronous(slaves: int = 1, **settings: Any) -> AsyncGenerator[TimedPair]:
    """A cluster that has taken one message, and whose slaves are level."""
    async with pair_of(slaves, **{"role": "sync-master", **settings}) as opened:
        pair = TimedPair(opened.cluster, opened.caller, opened.role)
        await pair.code_of_send("first")
        if slaves:
            await pair.reported()
        yield pair


def held(member: Member) -> HeldDisk:
    assert isinstance(member.disk, HeldDisk)
    return member.disk


async def after(seconds: float, act: Any, *arguments: Any) -> None:
    await trio.sleep(seconds)
    done = act(*arguments)
    if done is not None:
        await done
