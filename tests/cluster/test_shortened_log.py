"""A log that became shorter under running members: each message that is acknowledged afterwards is delivered.

    both brokers hold SHARED messages of the queue | the slave is cut off | LOST more are stored, handled and committed
    the master dies, the slave is promoted | NEW messages get the offsets of the lost ones, and perhaps more

With fewer new messages than lost ones the members' position lies beyond the queue's end, with more it is legal again.
"""

from pathlib import Path
from typing import Any

import pytest
import trio
from tests.cluster.group_at_work import (
    GROUP,
    SHARED,
    TOPIC,
    Handled,
    asynchronous_pair,
    members,
    promote,
    send_named,
)
from tests.support.caller import COMMIT, SUBSCRIPTION, Caller, caller_of, messages
from tests.support.faulty_disk import FaultyDisk
from tests.support.standings import force

from rocketrio import (
    CommitRefusedError,
    MessageQueue,
)
from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import MASTER_HOST, EmbeddedCluster
from rocketrio_broker.ha.slave_synchronize import SlaveSynchronize
from rocketrio_broker.offsets.reader_epochs import ReaderEpochs
from rocketrio_broker.processors.pull import PullMessageProcessor
from rocketrio_broker.role.standing import LEADING, PREPARING
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.offset import UpdateConsumerOffsetRequestHeader
from rocketrio_protocol.names import retry_topic

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
FEW, MANY = 10, 45
LOST = 30


async def lose_the_end(
    cluster: EmbeddedCluster, caller: Caller, handled: "Handled", new: int
) -> set[str]:
    """The story above; the new messages, which are all acknowledged."""
    slave = cluster.slaves[0]
    await handled.wait({f"shared-{number}" for number in range(SHARED)})
    await trio.sleep(12)  # Committed, and known to the slave.
    cluster.memory_network.partition(MASTER_HOST, slave.host)
    lost = await send_named(caller, cluster.master.broker, "lost", LOST)
    await handled.wait(lost)
    await trio.sleep(6)  # Committed too.
    await cluster.kill_master()
    cluster.memory_network.heal()
    await promote(slave.broker)
    return await send_named(caller, slave.broker, "new", new)


@pytest.mark.parametrize("new", [FEW, MANY], ids=["beyond the end", "legal again"])
@pytest.mark.parametrize(
    "mode",
    [
        "alone",
        "several",
        "orderly",
        "assigned",
        "broadcasting",
    ],
)
async def test_what_is_acknowledged_after_the_cut_is_delivered_to_running_members(
    new: int, mode: str, tmp_path: Path
) -> None:
    options: dict[str, dict[str, Any]] = {
        "several": {"count": 3},
        "orderly": {"orderly": True},
        "broadcasting": {"mode": "broadcasting", "offsets_path": tmp_path / "offsets.json"},
        "assigned": {"queues": [QUEUE]},
    }
    handled = Handled()
    async with (
        asynchronous_pair() as (cluster, caller),
        members(cluster, handled, **options.get(mode, {})) as consumers,
    ):
        stored = await lose_the_end(cluster, caller, handled, new)
        await handled.wait(stored)
        seen = [consumer.statistics().queues for consumer in consumers]
        assert [queues[QUEUE].log_cuts for queues in seen if QUEUE in queues] == [1]


@pytest.mark.parametrize("new", [FEW, MANY], ids=["beyond the end", "legal again"])
async def test_broadcasting_member_that_was_away_goes_back_by_its_file(
    new: int, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"mode": "broadcasting", "offsets_path": tmp_path / "offsets.json"}
    before, after = Handled(), Handled()
    async with asynchronous_pair() as (cluster, caller):
        slave = cluster.slaves[0]
        async with members(cluster, before, **options):
            await before.wait({f"shared-{number}" for number in range(SHARED)})
            await trio.sleep(3)
            cluster.memory_network.partition(MASTER_HOST, slave.host)
            await before.wait(await send_named(caller, cluster.master.broker, "lost", LOST))
        await cluster.kill_master()
        cluster.memory_network.heal()
        await promote(slave.broker)
        stored = await send_named(caller, slave.broker, "new", new)
        async with members(cluster, after, **options):
            await after.wait(stored)
        assert set(after.bodies) == stored


@pytest.mark.parametrize("new", [FEW, MANY], ids=["beyond the end", "legal again"])
async def test_committed_offsets_beyond_the_cut_do_not_hide_new_messages(new: int) -> None:
    """The slave got progress that its log never had: a member that starts later reads the new messages too."""
    handled = Handled()
    async with asynchronous_pair() as (cluster, caller):
        async with members(cluster, handled):
            await handled.wait({"shared-0"})
            await caller.commit(cluster.slaves[0].broker.address, SHARED + LOST)
            stored = await lose_the_end(cluster, caller, handled, new)
            await handled.wait(stored)
            await trio.sleep(6)
        assert await caller.committed(cluster.slaves[0].broker.address) == SHARED + new


@pytest.mark.parametrize("new", [FEW, MANY], ids=["beyond the end", "legal again"])
async def test_a_member_that_never_commits_goes_back_too(new: int) -> None:
    handled = Handled()
    async with (
        asynchronous_pair() as (cluster, caller),
        members(cluster, handled, auto_commit=False),
    ):
        await handled.wait({"shared-0"})
        await handled.wait(await lose_the_end(cluster, caller, handled, new))


@pytest.mark.parametrize("new", [FEW, MANY], ids=["beyond the end", "legal again"])
@pytest.mark.parametrize("auto_commit", [True, False], ids=["commits", "never commits"])
@pytest.mark.parametrize("orderly", [False, True], ids=["side by side", "orderly"])
async def test_what_a_member_had_pulled_and_not_handled_is_delivered(
    orderly: bool, auto_commit: bool, new: int
) -> None:
    """It holds messages from both sides of the cut: none of the shared ones goes missing with the lost ones."""
    handled = Handled(seconds=5.0)
    async with (
        asynchronous_pair() as (cluster, caller),
        members(cluster, handled, orderly=orderly, auto_commit=auto_commit, concurrency=2),
    ):
        await handled.wait({"shared-0"})
        slave = cluster.slaves[0]
        cluster.memory_network.partition(MASTER_HOST, slave.host)
        await send_named(caller, cluster.master.broker, "lost", LOST)
        await trio.sleep(6)
        await cluster.kill_master()
        cluster.memory_network.heal()
        await promote(slave.broker)
        stored = await send_named(caller, slave.broker, "new", new)
        await handled.wait(stored | {f"shared-{number}" for number in range(SHARED)}, within=600.0)


@pytest.mark.parametrize("new", [FEW, MANY], ids=["beyond the end", "legal again"])
async def test_power_cut_of_a_lone_master(new: int) -> None:
    """What was not synced is gone, the offsets are given again by the same broker."""
    handled = Handled()
    async with EmbeddedCluster(make_disk=FaultyDisk) as cluster, caller_of(cluster) as caller:
        await caller.create_topic(cluster.master.broker.address, TOPIC, 1)
        await send_named(caller, cluster.master.broker, "shared", SHARED)
        async with members(cluster, handled):
            await handled.wait({"shared-0"})
            await trio.sleep(20)
            await send_named(caller, cluster.master.broker, "lost", LOST)
            await trio.sleep(0.1)  # Handled, and not flushed.
            before = len(handled.bodies)
            await cluster.kill_master()
            disk = cluster.master.disk
            assert isinstance(disk, FaultyDisk)
            cluster.master.disk = disk.after_cut(seed=7, kept=0.0)
            master = await cluster.restart_master()
            assert before == SHARED + LOST
            assert master.store.next_queue_offset(TOPIC, 0) < SHARED + LOST
            await handled.wait(await send_named(caller, master, "new", new))


async def test_commit_of_what_is_gone_is_refused_and_moves_no_group() -> None:
    """The member stands still, so that no pull tells it before."""
    handled = Handled()
    async with (
        asynchronous_pair() as (cluster, caller),
        members(cluster, handled, auto_commit=False) as (consumer,),
    ):
        await handled.wait({"shared-0"})
        await consumer.commit({QUEUE: SHARED - 5})
        await trio.sleep(12)
        cluster.memory_network.partition(MASTER_HOST, cluster.slaves[0].host)
        await handled.wait(await send_named(caller, cluster.master.broker, "lost", LOST))
        consumer.pause()
        await cluster.kill_master()
        cluster.memory_network.heal()
        new_master = cluster.slaves[0].broker
        await promote(new_master)
        stored = await send_named(caller, new_master, "new", MANY)
        await trio.sleep(40)  # Its client has heard who the master is.
        with pytest.raises(CommitRefusedError, match="the log became shorter"):
            await consumer.commit({QUEUE: SHARED + LOST})
        assert await caller.committed(new_master.address) == SHARED - 5
        consumer.resume()
        await handled.wait(stored)
        await consumer.commit()
        assert await caller.committed(new_master.address) == SHARED + MANY


@pytest.mark.parametrize("new", [FEW, MANY], ids=["beyond the end", "legal again"])
async def test_slave_that_comes_later_contributes_no_progress_on_lost_messages(new: int) -> None:
    """Both lost power; the master is back first, and the slave's table counts messages that neither has."""
    async with asynchronous_pair() as (cluster, caller):
        await caller.commit(cluster.master.broker.address, SHARED - 5)
        await trio.sleep(12)
        slave = cluster.slaves[0]
        cluster.memory_network.partition(MASTER_HOST, slave.host)
        await caller.commit(slave.broker.address, SHARED + LOST)
        await slave.kill()
        await cluster.master.kill()
        cluster.memory_network.heal()
        master = await cluster.master.start()
        await send_named(caller, master, "new", new)
        await slave.start()
        await trio.sleep(40)
        assert await caller.committed(master.address) == SHARED
        assert await caller.committed(slave.broker.address) == SHARED


@pytest.mark.parametrize("new", [FEW, MANY], ids=["beyond the end", "legal again"])
async def test_former_master_reports_no_progress_on_what_it_cut_off(
    monkeypatch: pytest.MonkeyPatch, new: int
) -> None:
    """From the cut on: a member that starts there would pass over messages at places that were used again."""

    async def not_yet(*_: object) -> None:
        await trio.sleep_forever()

    async with (
        EmbeddedCluster(slaves=1, ha_divergent_tail="cut") as cluster,
        caller_of(cluster) as caller,
    ):
        former, slave = cluster.master, cluster.slaves[0]
        await caller.create_topic(former.broker.address, TOPIC, 1)
        await send_named(caller, former.broker, "shared", SHARED)
        await trio.sleep(12)
        cluster.memory_network.partition(MASTER_HOST, slave.host)
        await send_named(caller, former.broker, "lost", LOST)
        await caller.commit(former.broker.address, SHARED + LOST)
        await cluster.kill_master()
        cluster.memory_network.heal()
        await promote(slave.broker)
        await send_named(caller, slave.broker, "new", new)
        monkeypatch.setattr(SlaveSynchronize, "sync_all", not_yet)
        broker = await former.start()
        await trio.sleep(3)
        assert broker.store.next_queue_offset(TOPIC, 0) == SHARED + new
        assert await caller.committed(broker.address) == SHARED


async def test_former_master_contributes_progress_that_it_alone_has() -> None:
    """Though something else that it knows is never taken over: an offset of 0 in a queue without messages."""
    async with asynchronous_pair() as (cluster, caller):
        former, new = cluster.master, cluster.slaves[0]
        await trio.sleep(12)
        former.broker.state.consumer_offsets.commit_offset(GROUP, retry_topic(GROUP), 0, 0)
        await former.kill()
        await promote(new.broker)
        await former.start()
        await send_named(caller, new.broker, "new", FEW)
        await trio.sleep(40)
        cluster.memory_network.partition(former.host, new.host)
        await caller.commit(former.broker.address, SHARED + FEW)
        await trio.sleep(2)
        cluster.memory_network.heal()
        await trio.sleep(40)
        assert await caller.committed(new.broker.address) == SHARED + FEW
        assert await caller.committed(former.broker.address) == SHARED + FEW


async def test_member_asks_an_apache_master_where_its_group_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It names no epoch, and the end of that moment as next offset."""
    monkeypatch.setattr(ReaderEpochs, "current", None)
    monkeypatch.setattr(
        PullMessageProcessor,
        "_not_past_the_group",
        lambda _self, _header, result: result.next_begin_offset,
    )
    handled = Handled()
    async with (
        asynchronous_pair() as (cluster, caller),
        members(cluster, handled, auto_commit=False) as (consumer,),
    ):
        await handled.wait({"shared-0"})
        await consumer.commit({QUEUE: SHARED})
        await handled.wait(await lose_the_end(cluster, caller, handled, FEW))


async def test_master_that_has_not_taken_over_confirms_no_position() -> None:
    """Its log may have lost its end, and has no epoch yet that says so."""
    async with asynchronous_pair() as (cluster, caller):
        master = cluster.master.broker
        beyond = UpdateConsumerOffsetRequestHeader(GROUP, TOPIC, 0, SHARED + 1)
        force(master, PREPARING)
        answer = await caller.pull(master.address, SHARED, limited_by_bytes=True)
        assert "rocketrioEpoch" not in answer.ext_fields
        refused = await caller.pool.call(master.address, beyond)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        await caller.commit(master.address, SHARED)
        assert await caller.committed(master.address) == SHARED
        force(master, LEADING)
        answer = await caller.pull(master.address, SHARED, limited_by_bytes=True)
        assert "rocketrioEpoch" in answer.ext_fields
        # What is committed to a master that leads is believed.
        assert (await caller.pool.call(master.address, beyond)).code == ResponseCode.SUCCESS


async def test_slave_that_does_not_know_the_readers_epoch_redirects_to_the_master() -> None:
    """It may still hold what the master has lost."""
    async with asynchronous_pair() as (cluster, caller):
        await trio.sleep(3)
        master, slave = cluster.master, cluster.slaves[0].broker
        cluster.memory_network.partition(MASTER_HOST, cluster.slaves[0].host)
        await master.kill()
        await master.start()
        await send_named(caller, master.broker, "new", 1)
        told = await caller.pull(master.broker.address, SHARED, limited_by_bytes=True)
        epoch = told.ext_fields["rocketrioEpoch"]
        asked = {"limited_by_bytes": True, "epoch": epoch}
        answer = await caller.pull(slave.address, SHARED - 1, **asked)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert answer.ext_fields["suggestWhichBrokerId"] == "0"
        assert answer.ext_fields["nextBeginOffset"] == str(SHARED - 1)
        assert "rocketrioEpoch" not in answer.ext_fields
        cluster.memory_network.heal()
        await trio.sleep(30)
        answer = await caller.pull(slave.address, SHARED - 1, **asked)
        assert answer.ext_fields["rocketrioEpoch"] == epoch
        assert messages(answer)[-1].body == b"new-0"


async def test_slave_that_is_behind_names_no_epoch_for_a_position_beyond_its_end() -> None:
    """A member sought back there: a commit that named the slave's epoch would count only what the slave has."""
    async with asynchronous_pair() as (cluster, caller):
        slave = cluster.slaves[0].broker
        await trio.sleep(3)
        for position, is_named in ((SHARED - 1, True), (SHARED, True), (SHARED + 1, False)):
            answer = await caller.pull(slave.address, position, limited_by_bytes=True)
            assert ("rocketrioEpoch" in answer.ext_fields) is is_named


async def test_java_and_go_members_beyond_the_end_are_sent_to_what_their_group_committed() -> None:
    """As they ask it: no field of rocketrio goes in, none comes out, and their commit on the way hides nothing."""
    async with asynchronous_pair() as (cluster, caller):
        new_master = await fail_over(cluster, caller)
        await caller.commit(new_master.address, SHARED - 5)
        await send_named(caller, new_master, "new", FEW)
        answer = await caller.pull(
            new_master.address,
            SHARED + LOST,
            sys_flag=SUBSCRIPTION | COMMIT,
            commit_offset=SHARED + LOST,
        )
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert answer.ext_fields == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(SHARED - 5),
            "minOffset": "0",
            "maxOffset": str(SHARED + FEW),
        }
        assert await caller.committed(new_master.address) == SHARED - 5


async def test_a_reader_without_commits_beyond_the_end_is_sent_to_the_end() -> None:
    async with asynchronous_pair() as (cluster, caller):
        new_master = await fail_over(cluster, caller)
        answer = await caller.pull(new_master.address, SHARED + LOST, group="nobody")
        assert answer.ext_fields["nextBeginOffset"] == str(SHARED)


async def fail_over(cluster: EmbeddedCluster, caller: Caller) -> Broker:
    """The slave, which lacks the last messages, is the master."""
    slave = cluster.slaves[0]
    await trio.sleep(12)
    cluster.memory_network.partition(MASTER_HOST, slave.host)
    await send_named(caller, cluster.master.broker, "lost", LOST)
    await cluster.kill_master()
    cluster.memory_network.heal()
    await promote(slave.broker)
    return slave.broker
