"""A synchronous master whose answers are timed to the virtual millisecond."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from tests.support.caller import caller_of
from tests.support.pair import Pair
from tests.support.waiting import eventually

from rocketrio_broker.embedded import MASTER_HOST, SMALL_STORE, EmbeddedCluster

SLAVE_HOST, OTHER_HOST = "10.0.0.11", "10.0.0.12"
SYNC_FLUSH = attrs.evolve(SMALL_STORE, flush_disk_type="sync")
WAIT_LIMIT = 60.0


@attrs.define
class TimedPair(Pair):
    """A synchronous master with slaves that follow, and a sender."""

    @property
    def addr(self) -> str:
        return self.master.address

    @property
    def network(self) -> Any:
        return self.cluster.memory_network

    def part(self, host: str = SLAVE_HOST) -> None:
        """Nothing passes between the master and this slave from now on."""
        self.network.partition(MASTER_HOST, host)

    async def send(self, body: bytes = b"x", **fields: Any) -> tuple[int, float]:
        """The code of the answer, and how long it took."""
        start = trio.current_time()
        answer = await self.caller.send(self.addr, body, **fields)
        return answer.code, round(trio.current_time() - start, 6)

    async def wait_level(self) -> None:
        """Until every slave that runs has all, and has said so."""
        broker = self.master
        with trio.fail_after(WAIT_LIMIT):
            while True:
                now = broker.statistics().ha
                if now.connections and all(not each.bytes_behind for each in now.connections):
                    return
                await trio.sleep(0.01)


@asynccontextmanager
async def synchronous(slaves: int = 1, **settings: Any) -> AsyncGenerator[TimedPair]:
    """A cluster that has taken one message, and whose slaves are level."""
    settings = {"role": "sync-master", **settings}
    async with (
        EmbeddedCluster(slaves=slaves, **settings) as members,
        caller_of(members) as caller,
    ):
        pair = TimedPair(members, caller)
        transfer = members.master.broker.ha_service.group_transfer
        await eventually(
            lambda: transfer.statistics().live_slaves >= slaves, WAIT_LIMIT, interval=0.01
        )
        await pair.caller.send(pair.addr, b"first")
        if slaves:
            await pair.wait_level()
        yield pair


async def after(seconds: float, act: Any, *arguments: Any) -> None:
    await trio.sleep(seconds)
    done = act(*arguments)
    if done is not None:
        await done
