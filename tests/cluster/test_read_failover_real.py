"""Reads while a master's process is stopped, or a relay before it: the slave is read, without the master's help.

After how many seconds it is read is asserted in virtual time, by `tests/client/cluster/test_probe.py`.
"""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.clients import open_client
from tests.support.commit_logs import wait_caught_up
from tests.support.ours import OurPair, our_pair_fixture
from tests.support.relay import RelayProcess, relay_to
from tests.support.waiting import HANGS, eventually

from rocketrio import (
    ClientInstance,
    Consumer,
    Message,
    MessageQueue,
    Prefetch,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.routing import PullReason
from rocketrio_protocol.remoting.ports import CONNECT_TIMEOUT, Transport
from rocketrio_protocol.remoting.tcp import dial_tcp

pytestmark = [pytest.mark.real, pytest.mark.slow]

QUEUE = MessageQueue("orders", "broker-a", 0)


pair = our_pair_fixture()


@asynccontextmanager
async def reader(
    pair: OurPair, *, group: str, relay: RelayProcess | None = None
) -> AsyncIterator[Consumer]:
    """A consumer that has read all there is, of a queue that the slave has too; its pull is held by the master."""

    async def dial(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
        is_relayed = relay is not None and addr == pair.master.address
        return await dial_tcp(relay.address if is_relayed else addr, timeout=timeout)  # type: ignore[union-attr]

    async with open_client(name_servers=pair.name_server.address, dial=dial) as client:
        await fill(client)
        await trio.to_thread.run_sync(wait_caught_up, pair.master.address, pair.slave.address)
        async with open_consumer(
            "orders",
            group=group,
            start_from="earliest",
            client=client,
            prefetch=Prefetch(batch_size=100),
        ) as consumer:
            await consumer.receive_batch(100)
            await eventually(lambda: pulled_from(consumer) == pair.master.address, HANGS)
            yield consumer


async def fill(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        await admin.create_topic("orders", queues=1)
    await client.refresh_topic_route("orders")
    async with open_producer(client=client) as producer:
        for _ in range(100):
            await producer.send(Message("orders", b"x"))


def pulled_from(consumer: Consumer) -> str | None:
    return consumer.statistics().queues[QUEUE].pulled_from


def pulls(consumer: Consumer) -> int:
    return sum(consumer.statistics().queues[QUEUE].pulls.values())


async def reads_from(consumer: Consumer, addr: str) -> None:
    await eventually(lambda: pulled_from(consumer) == addr, HANGS, interval=0.01)


async def test_stopped_master_is_left_and_returned_to(pair: OurPair) -> None:
    assert pair.master.process is not None
    async with reader(pair, group="stopped") as consumer:
        os.kill(pair.master.process.pid, signal.SIGSTOP)
        try:
            await reads_from(consumer, pair.slave.address)
            assert consumer.statistics().queues[QUEUE].pull_reason is PullReason.SKIPPED
            # What is there is read from the slave, without the master.
            consumer.seek(QUEUE, 0)
            with trio.fail_after(HANGS):
                await consumer.receive()
        finally:
            os.kill(pair.master.process.pid, signal.SIGCONT)
        await reads_from(consumer, pair.master.address)


async def test_relay_that_stops_forwarding_is_left_and_returned_to(pair: OurPair) -> None:
    with relay_to(pair.master.address) as relay:
        async with reader(pair, group="held", relay=relay) as consumer:
            relay.tell("hold")
            await reads_from(consumer, pair.slave.address)
            await trio.sleep(5)  # Long enough for its connection to be given up.
            assert pulled_from(consumer) == pair.slave.address
            relay.tell("go")
            await reads_from(consumer, pair.master.address)


async def test_relay_that_ends_one_direction_is_dialled_again(pair: OurPair) -> None:
    with relay_to(pair.master.address) as relay:
        async with reader(pair, group="half", relay=relay) as consumer:
            before = pulls(consumer)
            relay.tell("half-close")
            await eventually(lambda: pulls(consumer) > before, HANGS)
            await reads_from(consumer, pair.master.address)
