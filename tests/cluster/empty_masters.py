"""A pair whose master has lost its disk, and the second history that it may begin."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio
from tests.cluster.torn_logs import MONEY, KeyedPair, pair_of

from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.codes import ResponseCode

NAMES = [f"{number:06d}" for number in range(40)]


@asynccontextmanager
async def filled(**settings: Any) -> AsyncGenerator[KeyedPair]:
    """A pair whose two logs are level."""
    async with pair_of(**MONEY, **settings) as pair:
        await pair.send(*NAMES)
        await pair.level()
        yield pair


@asynccontextmanager
async def emptied(**settings: Any) -> AsyncGenerator[KeyedPair]:
    """A pair whose master is down with its disk lost, and whose name server was lost with it."""
    async with filled(**settings) as pair:
        await pair.cluster.kill_name_server()
        await pair.first.kill()
        pair.first.disk = MemoryDisk()
        await trio.sleep(5)
        # The slave registers again in a moment.
        await pair.cluster.restart_name_server()
        yield pair


async def code_of_a_send(pair: KeyedPair) -> int:
    return (await pair.caller.send(pair.master.address, b"new")).code


async def problems(pair: KeyedPair) -> list[str]:
    return await pair.caller.problems(pair.master.address)


async def begin_again(pair: KeyedPair) -> None:
    """No slave can be reached for as long as its empty master waits."""
    for slave in pair.cluster.slaves:
        for host in (pair.first.host, "10.0.0.9"):
            pair.cluster.memory_network.partition(slave.host, host)
    broker = await pair.first.start()
    await trio.sleep(20)
    assert broker.store.writable
    assert await code_of_a_send(pair) == ResponseCode.SLAVE_NOT_AVAILABLE
    pair.cluster.memory_network.heal()
    await trio.sleep(60)
