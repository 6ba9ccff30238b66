"""A power cut under a broker with synchronous flush: what was acknowledged is there, whatever else was lost."""

from typing import Literal

import attrs
import pytest
import trio
import trio.lowlevel
from tests.cluster.members import cut_power
from tests.support.caller import Caller, bodies
from tests.support.faulty_disk import FaultyDisk
from tests.support.further import every_other
from tests.support.pair import pair_of

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
@pytest.mark.parametrize("count", every_other([1, 30, 120]))
async def test_acknowledged_messages_survive_a_power_cut(kept: float, count: int) -> None:
    acknowledged: list[bytes] = []
    async with pair_of(0, store=STORE, make_disk=FaultyDisk) as pair:
        addr, caller = pair.master.address, pair.caller
        async with trio.open_nursery() as nursery:
            for number in range(SENDERS):
                nursery.start_soon(send_until_cut, caller, addr, number, acknowledged)
            while len(acknowledged) < count:
                await trio.lowlevel.checkpoint()
            await cut_power(pair.first, kept=kept)
        await pair.first.start()
        queues = [await caller.read(addr, queue_id=number) for number in range(SENDERS)]
        found = [body for queue in queues for body in queue]
        assert set(acknowledged) <= set(found)
        assert len(found) == len(set(found))


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("made_by", ["administrator", "sender"])
async def test_new_topic_outlives_a_power_cut(
    flush: Literal["sync", "async"], made_by: str
) -> None:
    """Or what was stored in it could not be read by its name."""
    store = attrs.evolve(STORE, flush_disk_type=flush)
    async with pair_of(0, store=store, make_disk=FaultyDisk) as pair:
        addr, caller = pair.master.address, pair.caller
        if made_by == "administrator":
            await caller.create_topic(addr, "bills", 1)
        assert (await caller.send(addr, b"durable", topic="bills")).code == ResponseCode.SUCCESS
        await trio.sleep(2 * STORE.flush_interval_commit_log)
        await cut_power(pair.first)
        await pair.first.start()
        assert bodies(await caller.pull(addr, 0, topic="bills")) == [b"durable"]


async def test_power_cut_restores_no_offset_of_a_deleted_topic() -> None:
    """Its next life would be read from the middle."""
    async with pair_of(0, store=STORE, make_disk=FaultyDisk) as pair:
        addr, caller = pair.master.address, pair.caller
        await caller.send(addr, b"of the first life")
        # Without any queue all of the log is read again.
        await caller.send(addr, b"stays", topic="bills")
        await caller.commit(addr, 1)
        await trio.sleep(2 * FLUSH_CONSUMER_OFFSET_INTERVAL)
        await caller.pool.call(addr, DeleteTopicInBrokerRequestHeader("orders"))
        await cut_power(pair.first)
        broker = await pair.first.start()
        assert broker.state.consumer_offsets.query_offset("billing", "orders", 0) == -1
