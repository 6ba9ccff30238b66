"""A pair whose master has lost its disk, and the second history that it may begin."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio
from tests.cluster.stores import MONEY, keyed_pair
from tests.support.pair import Pair

from rocketrio_broker.embedded import NAME_SERVER_HOST
from rocketrio_protocol.codes import ResponseCode


@asynccontextmanager
async def filled(**settings: Any) -> AsyncGenerator[Pair]:
    """A pair whose two logs are level."""
    async with keyed_pair(**MONEY, **settings) as pair:
        await pair.settle()
        yield pair


@asynccontextmanager
async def emptied(**settings: Any) -> AsyncGenerator[Pair]:
    """A pair whose master is down with its disk lost, and whose name server was lost with it."""
    async with filled(**settings) as pair:
        await pair.cluster.kill_name_server()
        await pair.first.kill()
        pair.first.disk = pair.cluster.make_disk()
        await trio.sleep(5)
        # The slave registers again in a moment.
        await pair.cluster.restart_name_server()
        yield pair


async def begin_alone(pair: Pair) -> None:
    """The empty master starts while no slave can be reached."""
    for slave in pair.cluster.slaves:
        for host in (pair.first.host, NAME_SERVER_HOST):
            pair.network.partition(slave.host, host)
    await pair.first.start()
    await trio.sleep(20)
    assert pair.master.store.writable
    assert await pair.code_of_send() == ResponseCode.SLAVE_NOT_AVAILABLE


async def begin_again(pair: Pair) -> None:
    """No slave can be reached for as long as its empty master waits."""
    await begin_alone(pair)
    pair.network.heal()
    await trio.sleep(60)
