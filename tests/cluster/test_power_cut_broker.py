"""A power cut under a broker with synchronous flush: what was acknowledged is there, whatever else was lost."""

from typing import Literal

import attrs
import pytest
import trio
import trio.lowlevel
from tests.support.caller import Caller, bodies, caller_of
from tests.support.faulty_disk import FaultyDisk

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.offsets.manager import FLUSH_CONSUMER_OFFSET_INTERVAL
from rocketrio_broker.store.config import StoreConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import (
    DeleteTopicInBrokerRequestHeader,
)
from rocketrio_protocol.errors import Error

STORE = StoreConfig(
    flush_disk_type="sync",
    mapped_file_size_commit_log=16_384,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=20,
    max_index_num=100,
)
SENDERS = 4


async def send_until_cut(caller: Caller, addr: str, number: int, acknowledged: list[bytes]) -> None:
    for count in range(1000):
        body = b"%d-%d" % (number, count)
        try:
            answer = await caller.send(addr, body, queue_id=number)
        except Error:
            return
        if answer.code == ResponseCode.SUCCESS:
            acknowledged.append(body)


@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0], ids="kept {}".format)
@pytest.mark.parametrize("count", [1, 30, 120])
async def test_acknowledged_messages_survive_a_power_cut(kept: float, count: int) -> None:
    acknowledged: list[bytes] = []
    async with (
        EmbeddedCluster(store=STORE, make_disk=FaultyDisk) as cluster,
        caller_of(cluster) as caller,
    ):
        addr = cluster.master.broker.address
        async with trio.open_nursery() as nursery:
            for number in range(SENDERS):
                nursery.start_soon(send_until_cut, caller, addr, number, acknowledged)
            while len(acknowledged) < count:
                await trio.lowlevel.checkpoint()
            await cluster.kill_master()
        disk = cluster.master.disk
        assert isinstance(disk, FaultyDisk)
        cluster.master.disk = disk.after_cut(seed=7, kept=kept)
        await cluster.restart_master()
        found: list[bytes] = []
        for number in range(SENDERS):
            offset = 0
            while (answer := await caller.pull(addr, offset, queue_id=number)).code == 0:
                found += bodies(answer)
                offset = int(answer.ext_fields["nextBeginOffset"])
        assert set(acknowledged) <= set(found)
        assert len(found) == len(set(found))


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("made_by", ["administrator", "sender"])
async def test_new_topic_outlives_a_power_cut(
    flush: Literal["sync", "async"], made_by: str
) -> None:
    """Or what was stored in it could not be read by its name."""
    store = attrs.evolve(STORE, flush_disk_type=flush)
    async with (
        EmbeddedCluster(store=store, make_disk=FaultyDisk) as cluster,
        caller_of(cluster) as caller,
    ):
        addr = cluster.master.broker.address
        if made_by == "administrator":
            await caller.create_topic(addr, "bills", 1)
        assert (await caller.send(addr, b"durable", topic="bills")).code == ResponseCode.SUCCESS
        await trio.sleep(2 * STORE.flush_interval_commit_log)
        await cluster.kill_master()
        disk = cluster.master.disk
        assert isinstance(disk, FaultyDisk)
        cluster.master.disk = disk.after_cut(seed=7, kept=0.0)
        await cluster.restart_master()
        assert bodies(await caller.pull(addr, 0, topic="bills")) == [b"durable"]


async def test_power_cut_restores_no_offset_of_a_deleted_topic() -> None:
    """Its next life would be read from the middle."""
    async with (
        EmbeddedCluster(store=STORE, make_disk=FaultyDisk) as cluster,
        caller_of(cluster) as caller,
    ):
        addr = cluster.master.broker.address
        await caller.send(addr, b"of the first life")
        await caller.send(
            addr, b"stays", topic="bills"
        )  # Without any queue all of the log is read again.
        await caller.commit(addr, 1)
        await trio.sleep(2 * FLUSH_CONSUMER_OFFSET_INTERVAL)
        await caller.pool.call(addr, DeleteTopicInBrokerRequestHeader("orders"))
        await cluster.kill_master()
        disk = cluster.master.disk
        assert isinstance(disk, FaultyDisk)
        cluster.master.disk = disk.after_cut(seed=7, kept=0.0)
        broker = await cluster.restart_master()
        assert broker.state.consumer_offsets.query_offset("billing", "orders", 0) == -1
