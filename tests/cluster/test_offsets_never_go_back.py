"""Committed offsets through outages, resets, seeks and deletions: what the group gets never goes back by itself.

The first story is the recorded one of Apache 5.3.3 (`golden/5.3.3-split`): 32 committed to the master, 120 to the
slave while the master is down, and after the master's return Apache's group reads 0.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.caller import Caller, caller_of
from tests.support.clients import client_of

from rocketrio import (
    ClientInstance,
    CommitRefusedError,
    Consumer,
    Message,
    MessageQueue,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.commands.admin import (
    CloneGroupOffsetRequestHeader,
    DeleteTopicInBrokerRequestHeader,
)

TOPIC, GROUP = "orders", "billing"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
COPIED = 12.0
"""Seconds after which a slave has copied the tables once more."""
REGISTERED = 30.0
"""Seconds after which a slave that was started without a master has heard of one."""


@asynccontextmanager
async def story() -> AsyncIterator[tuple[EmbeddedCluster, ClientInstance, Caller]]:
    """A master and a slave, one queue with 200 messages that both have."""
    async with (
        EmbeddedCluster(slaves=1, slave_read_enable=True) as cluster,
        client_of(cluster) as client,
        caller_of(cluster) as caller,
    ):
        await fill(client)
        await trio.sleep(COPIED)
        yield cluster, client, caller


async def fill(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        await admin.create_topic(TOPIC, queues=1)
    await client.refresh_topic_route(TOPIC)
    async with open_producer(client=client) as producer:
        await producer.send_batch([Message(TOPIC, b"%d" % number) for number in range(200)])


@asynccontextmanager
async def reader(client: ClientInstance) -> AsyncIterator[Consumer]:
    async with open_consumer(TOPIC, group=GROUP, client=client, auto_commit=False) as consumer:
        yield consumer


async def read_to(consumer: Consumer, offset: int) -> None:
    """Receive up to the message before an offset, and commit."""
    while (await consumer.receive()).queue_offset != offset - 1:
        pass
    await consumer.commit()


async def member_reads_to(client: ClientInstance, offset: int) -> None:
    """A member comes, reads and commits so far, and goes."""
    async with reader(client) as consumer:
        await read_to(consumer, offset)


async def commits_that_the_slave_alone_hears_of(
    cluster: EmbeddedCluster, client: ClientInstance
) -> None:
    """32 goes to the master, 120 to the slave while the master is down; then both are."""
    async with reader(client) as consumer:
        await read_to(consumer, 32)
        await cluster.kill_master()
        await read_to(consumer, 120)
    await cluster.slaves[0].kill()


async def stays(cluster: EmbeddedCluster, caller: Caller, offset: int) -> None:
    """Master and slave tell this, now or after the next copy, and go on telling it."""
    await trio.sleep(COPIED)
    for _ in range(2):
        for member in (cluster.master, *cluster.slaves):
            assert await caller.committed(member.broker.address) == offset, member
        await trio.sleep(10)


@pytest.mark.slow
async def test_story_of_the_split_that_apache_ends_at_0() -> None:
    async with story() as (cluster, client, caller):
        async with reader(client) as consumer:
            await read_to(consumer, 32)
            assert await consumer.committed_offset(QUEUE) == 32
            await cluster.kill_master()
            await read_to(consumer, 120)
            assert await consumer.committed_offset(QUEUE) == 120
            assert await caller.committed(cluster.slaves[0].broker.address) == 120
            master = await cluster.restart_master()
            # The broker's first word, before any rocketrio client has reported anything again.
            assert await caller.committed(master.address) == 120
            for _ in range(3):
                assert await consumer.committed_offset(QUEUE) == 120
                await trio.sleep(3)
        await stays(cluster, caller, 120)


@pytest.mark.slow
async def test_offsets_of_a_slave_that_was_down_count_when_it_returns() -> None:
    async with story() as (cluster, client, caller):
        await commits_that_the_slave_alone_hears_of(cluster, client)
        master = await cluster.restart_master()
        assert await caller.committed(master.address) == 32
        await cluster.slaves[0].start()
        await stays(cluster, caller, 120)


@pytest.mark.slow
async def test_a_commit_that_was_answered_survives_kill_9_of_its_only_broker() -> None:
    async with story() as (cluster, client, caller):
        async with reader(client) as consumer:
            for offset in (10, 20, 30):
                await read_to(consumer, offset)
                await trio.sleep(3)
            await read_to(consumer, 40)
            await cluster.kill_master()
            await cluster.slaves[0].kill()
        master = await cluster.restart_master()
        assert await caller.committed(master.address) == 40


@pytest.mark.slow
async def test_a_seek_back_during_the_outage_is_not_undone() -> None:
    async with story() as (cluster, client, caller):
        async with reader(client) as consumer:
            await read_to(consumer, 100)
            await trio.sleep(COPIED)
            await cluster.kill_master()
            consumer.seek(QUEUE, 50)
            await read_to(consumer, 60)
            master = await cluster.restart_master()
            assert await caller.committed(master.address) == 60
        await stays(cluster, caller, 60)


@pytest.mark.slow
async def test_reset_by_an_operator_wins_over_commits_unknown_to_the_master() -> None:
    async with story() as (cluster, client, caller):
        await commits_that_the_slave_alone_hears_of(cluster, client)
        await cluster.restart_master()
        async with open_admin(client=client) as admin:
            await admin.reset_offsets(GROUP, {QUEUE: 10})
        await cluster.slaves[0].start()
        await stays(cluster, caller, 10)
        await member_reads_to(client, 15)
        await stays(cluster, caller, 15)


@pytest.mark.slow
async def test_a_reset_during_the_outage_wins_over_what_the_master_had() -> None:
    async with story() as (cluster, client, caller):
        async with reader(client) as consumer:
            await read_to(consumer, 100)
            await trio.sleep(COPIED)
            await read_to(consumer, 110)
            await cluster.kill_master()
            async with open_admin(client=client) as admin:
                await admin.reset_offsets(GROUP, {QUEUE: 10})
            master = await cluster.restart_master()
            assert await caller.committed(master.address) == 10
            with pytest.raises(CommitRefusedError):
                await read_to(consumer, 120)
        await stays(cluster, caller, 10)


@pytest.mark.slow
async def test_a_reset_by_an_apache_tool_reaches_the_slave() -> None:
    """A plain commit that is lower, of a group without members."""
    async with story() as (cluster, client, caller):
        await member_reads_to(client, 100)
        await stays(cluster, caller, 100)
        await caller.commit(cluster.master.broker.address, 10)
        await stays(cluster, caller, 10)
        await cluster.kill_master()
        await cluster.restart_master()
        await stays(cluster, caller, 10)


@pytest.mark.slow
async def test_a_consumer_that_starts_at_a_stale_slave_lowers_nothing() -> None:
    async with story() as (cluster, client, caller):
        async with reader(client) as consumer:
            await read_to(consumer, 30)
            await trio.sleep(COPIED)
            await read_to(consumer, 100)
            await cluster.kill_master()
        async with client_of(cluster) as another, reader(another) as consumer:
            await read_to(consumer, 40)
            assert await caller.committed(cluster.slaves[0].broker.address) == 40
            master = await cluster.restart_master()
            assert await caller.committed(master.address) == 100
            await read_to(consumer, 50)
            await stays(cluster, caller, 100)
            await read_to(consumer, 101)
        await stays(cluster, caller, 101)


@pytest.mark.slow
async def test_a_plain_commit_of_java_during_the_outage_counts_too() -> None:
    async with story() as (cluster, _, caller):
        await caller.commit(cluster.master.broker.address, 32)
        await trio.sleep(COPIED)
        await cluster.kill_master()
        await caller.commit(cluster.slaves[0].broker.address, 120)
        # It sought back: the last one wins.
        await caller.commit(cluster.slaves[0].broker.address, 90)
        master = await cluster.restart_master()
        assert await caller.committed(master.address) == 90
        await stays(cluster, caller, 90)


@pytest.mark.slow
async def test_deleted_topic_created_again_gets_no_old_offsets_from_a_slave() -> None:
    async with story() as (cluster, client, caller):
        slave = cluster.slaves[0]
        await member_reads_to(client, 120)
        await trio.sleep(COPIED)
        await slave.kill()
        master = cluster.master.broker.address
        await caller.pool.call(master, DeleteTopicInBrokerRequestHeader(TOPIC))
        await fill(client)
        await cluster.kill_master()
        await slave.start()  # It has the old offset, and as many new messages as the old topic had.
        await cluster.restart_master()
        assert await caller.committed(cluster.master.broker.address) == 0
        async with reader(client) as consumer:
            assert (await consumer.receive()).queue_offset == 0
            await read_to(consumer, 3)
        await trio.sleep(REGISTERED)
        await stays(cluster, caller, 3)


@pytest.mark.slow
async def test_a_clone_reaches_the_slave_and_stays() -> None:
    async with story() as (cluster, client, caller):
        await member_reads_to(client, 100)
        async with open_consumer(TOPIC, group="source", client=client) as source:
            await source.receive()
            await source.commit({QUEUE: 20})
        clone = CloneGroupOffsetRequestHeader("source", GROUP)
        await caller.pool.call(cluster.master.broker.address, clone)
        await stays(cluster, caller, 20)
