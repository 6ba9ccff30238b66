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
    SENT,
    SHARED,
    TOPIC,
    Handled,
    asynchronous_pair,
    members,
    replace_master,
    send_named,
)
from tests.cluster.members import cut_power
from tests.support.caller import COMMIT, SUBSCRIPTION, messages
from tests.support.faulty_disk import FaultyDisk
from tests.support.pair import Pair, pair_of
from tests.support.standings import force

from rocketrio import CommitRefusedError, MessageQueue
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


either = pytest.mark.parametrize("new", [FEW, MANY], ids=["beyond the end", "legal again"])


async def lose_the_end(pair: Pair, handled: Handled, new: int) -> set[str]:
    """Play the story above; return the new messages, which are all acknowledged."""
    await handled.wait(SENT)
    await trio.sleep(12)  # Committed, and known to the slave.
    pair.part(pair.first, pair.second.host)
    await handled.wait(await send_named(pair, "lost", LOST))
    await trio.sleep(6)  # Committed too.
    await replace_master(pair)
    return await send_named(pair, "new", new, at=pair.second)


@pytest.mark.slow
@either
@pytest.mark.parametrize(
    "mode", ["alone", "several", "orderly", "assigned", "broadcasting", "never commits"]
)
async def test_what_is_acknowledged_after_the_cut_is_delivered_to_running_members(
    new: int, mode: str, tmp_path: Path
) -> None:
    options: dict[str, dict[str, Any]] = {
        "several": {"count": 3},
        "orderly": {"orderly": True},
        "broadcasting": {"mode": "broadcasting", "offsets_path": tmp_path / "offsets.json"},
        "assigned": {"queues": [QUEUE]},
        "never commits": {"auto_commit": False},
    }
    handled = Handled()
    async with (
        asynchronous_pair() as pair,
        members(pair.cluster, handled, **options.get(mode, {})) as consumers,
    ):
        stored = await lose_the_end(pair, handled, new)
        await handled.wait(stored)
        seen = [consumer.statistics().queues for consumer in consumers]
        assert [queues[QUEUE].log_cuts for queues in seen if QUEUE in queues] == [1]


@pytest.mark.slow
async def test_member_with_an_old_route_goes_back_without_waiting_for_its_next_one() -> None:
    """By its route the new master is a slave still, and a slave moves no reader."""
    handled = Handled()
    async with asynchronous_pair() as pair, members(pair.cluster, handled):
        stored = await lose_the_end(pair, handled, FEW)
        await handled.wait(stored, within=5.0)


@either
async def test_broadcasting_member_that_was_away_goes_back_by_its_file(
    new: int, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"mode": "broadcasting", "offsets_path": tmp_path / "offsets.json"}
    before, after = Handled(), Handled()
    async with asynchronous_pair() as pair:
        async with members(pair.cluster, before, **options):
            await before.wait(SENT)
            await trio.sleep(3)
            pair.part(pair.first, pair.second.host)
            await before.wait(await send_named(pair, "lost", LOST))
        await replace_master(pair)
        stored = await send_named(pair, "new", new, at=pair.second)
        async with members(pair.cluster, after, **options):
            await after.wait(stored)
        assert set(after.bodies) == stored


@pytest.mark.slow
@either
async def test_committed_offsets_beyond_the_cut_do_not_hide_new_messages(new: int) -> None:
    """The slave got progress that its log never had: a member that starts later reads the new messages too."""
    handled = Handled()
    async with asynchronous_pair() as pair:
        async with members(pair.cluster, handled):
            await handled.wait({"shared-0"})
            await pair.caller.commit(pair.slave.address, SHARED + LOST)
            stored = await lose_the_end(pair, handled, new)
            await handled.wait(stored)
            await trio.sleep(6)
        assert await pair.caller.committed(pair.slave.address) == SHARED + new


@pytest.mark.slow
@pytest.mark.parametrize(
    ("orderly", "auto_commit", "new"),
    [(False, True, FEW), (False, False, MANY), (True, True, MANY), (True, False, FEW)],
)
async def test_what_a_member_had_pulled_and_not_handled_is_delivered(
    orderly: bool, auto_commit: bool, new: int
) -> None:
    """It holds messages from both sides of the cut: none of the shared ones goes missing with the lost ones."""
    handled = Handled(seconds=2.0)
    async with (
        asynchronous_pair() as pair,
        members(pair.cluster, handled, orderly=orderly, auto_commit=auto_commit, concurrency=2),
    ):
        await handled.wait({"shared-0"})
        pair.part(pair.first, pair.second.host)
        await send_named(pair, "lost", LOST)
        await trio.sleep(6)
        await replace_master(pair)
        stored = await send_named(pair, "new", new, at=pair.second)
        await handled.wait(stored | SENT, within=600.0)


@pytest.mark.slow
@either
async def test_power_cut_of_a_lone_master(new: int) -> None:
    """What was not synced is gone, the offsets are given again by the same broker."""
    handled = Handled()
    async with pair_of(0, make_disk=FaultyDisk) as pair:
        await pair.caller.create_topic(pair.master.address, TOPIC, 1)
        await send_named(pair, "shared", SHARED)
        async with members(pair.cluster, handled):
            await handled.wait({"shared-0"})
            await trio.sleep(20)
            await send_named(pair, "lost", LOST)
            await trio.sleep(0.1)  # Handled, and not flushed.
            before = len(handled.bodies)
            await cut_power(pair.first)
            await pair.first.start()
            assert before == SHARED + LOST
            assert pair.master.store.next_queue_offset(TOPIC, 0) < SHARED + LOST
            await handled.wait(await send_named(pair, "new", new))


@pytest.mark.slow
async def test_commit_of_what_is_gone_is_refused_and_moves_no_group() -> None:
    """The member stands still, so that no pull tells it before."""
    handled = Handled()
    async with (
        asynchronous_pair() as pair,
        members(pair.cluster, handled, auto_commit=False) as (consumer,),
    ):
        await handled.wait({"shared-0"})
        await consumer.commit({QUEUE: SHARED - 5})
        await trio.sleep(12)
        pair.part(pair.first, pair.second.host)
        await handled.wait(await send_named(pair, "lost", LOST))
        consumer.pause()
        await replace_master(pair)
        stored = await send_named(pair, "new", MANY, at=pair.second)
        await trio.sleep(40)  # Its client has heard who the master is.
        with pytest.raises(CommitRefusedError, match="the log became shorter"):
            await consumer.commit({QUEUE: SHARED + LOST})
        assert await pair.caller.committed(pair.slave.address) == SHARED - 5
        consumer.resume()
        await handled.wait(stored)
        await consumer.commit()
        assert await pair.caller.committed(pair.slave.address) == SHARED + MANY


@pytest.mark.slow
@either
async def test_slave_that_comes_later_contributes_no_progress_on_lost_messages(new: int) -> None:
    """Both lost power; the master is back first, and the slave's table counts messages that neither has."""
    async with asynchronous_pair() as pair:
        await pair.caller.commit(pair.master.address, SHARED - 5)
        await trio.sleep(12)
        pair.part(pair.first, pair.second.host)
        await pair.caller.commit(pair.slave.address, SHARED + LOST)
        for member in reversed(pair.members):
            await member.kill()
        pair.network.heal()
        await pair.first.start()
        await send_named(pair, "new", new)
        await pair.second.start()
        await trio.sleep(40)
        for member in pair.members:
            assert await pair.caller.committed(member.broker.address) == SHARED


@either
async def test_former_master_reports_no_progress_on_what_it_cut_off(
    monkeypatch: pytest.MonkeyPatch, new: int
) -> None:
    """From the cut on: a member that starts there would pass over messages at places that were used again."""

    async def not_yet(*_: object) -> None:
        await trio.sleep_forever()

    async with asynchronous_pair(ha_divergent_tail="cut") as pair:
        await trio.sleep(12)
        pair.part(pair.first, pair.second.host)
        await send_named(pair, "lost", LOST)
        await pair.caller.commit(pair.master.address, SHARED + LOST)
        await replace_master(pair)
        await send_named(pair, "new", new, at=pair.second)
        monkeypatch.setattr(SlaveSynchronize, "sync_all", not_yet)
        broker = await pair.first.start()
        await trio.sleep(3)
        assert broker.store.next_queue_offset(TOPIC, 0) == SHARED + new
        assert await pair.caller.committed(broker.address) == SHARED


@pytest.mark.slow
async def test_former_master_contributes_progress_that_it_alone_has() -> None:
    """Though something else that it knows is never taken over: an offset of 0 in a queue without messages."""
    async with asynchronous_pair() as pair:
        former, new = pair.members
        await trio.sleep(12)
        former.broker.state.consumer_offsets.commit_offset(GROUP, retry_topic(GROUP), 0, 0)
        await pair.fail_over()
        await former.start()
        await send_named(pair, "new", FEW, at=new)
        await trio.sleep(40)
        pair.part(former, new.host)
        await pair.caller.commit(former.broker.address, SHARED + FEW)
        await trio.sleep(2)
        pair.network.heal()
        await trio.sleep(40)
        assert await pair.caller.committed(new.broker.address) == SHARED + FEW
        assert await pair.caller.committed(former.broker.address) == SHARED + FEW


@pytest.mark.slow
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
        asynchronous_pair() as pair,
        members(pair.cluster, handled, auto_commit=False) as (consumer,),
    ):
        await handled.wait({"shared-0"})
        await consumer.commit({QUEUE: SHARED})
        await handled.wait(await lose_the_end(pair, handled, FEW))


async def test_master_that_has_not_taken_over_confirms_no_position() -> None:
    """Its log may have lost its end, and has no epoch yet that says so."""
    async with asynchronous_pair() as pair:
        master = pair.master
        beyond = UpdateConsumerOffsetRequestHeader(GROUP, TOPIC, 0, SHARED + 1)
        force(master, PREPARING)
        answer = await pair.caller.pull(master.address, SHARED, limited_by_bytes=True)
        assert "rocketrioEpoch" not in answer.ext_fields
        refused = await pair.caller.pool.call(master.address, beyond)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        await pair.caller.commit(master.address, SHARED)
        assert await pair.caller.committed(master.address) == SHARED
        force(master, LEADING)
        answer = await pair.caller.pull(master.address, SHARED, limited_by_bytes=True)
        assert "rocketrioEpoch" in answer.ext_fields
        # What is committed to a master that leads is believed.
        assert (await pair.caller.pool.call(master.address, beyond)).code == ResponseCode.SUCCESS


async def test_messages_of_a_master_that_has_not_taken_over_come_with_the_epoch_in_which_they_count() -> (
    None
):
    """The reader's own epoch ended before them: a commit that named it would count them as lost."""
    async with asynchronous_pair() as pair:
        told = await pair.caller.pull(pair.master.address, SHARED, limited_by_bytes=True)
        before = told.ext_fields["rocketrioEpoch"]
        await pair.level()
        await pair.fail_over()
        await send_named(pair, "new", FEW, at=pair.second)
        addr = pair.slave.address
        asked: dict[str, Any] = {"limited_by_bytes": True, "epoch": before}
        force(pair.slave, PREPARING)
        early = await pair.caller.pull(addr, SHARED, **asked)
        assert len(messages(early)) == FEW
        force(pair.slave, LEADING)
        answer = await pair.caller.pull(addr, SHARED, **asked)
        assert early.ext_fields["rocketrioEpoch"] == answer.ext_fields["rocketrioEpoch"] != before


@pytest.mark.slow
async def test_slave_that_does_not_know_the_readers_epoch_redirects_to_the_master() -> None:
    """It may still hold what the master has lost."""
    async with asynchronous_pair() as pair:
        await trio.sleep(3)
        master, slave = pair.first, pair.slave
        pair.part(pair.first, pair.second.host)
        await master.kill()
        await master.start()
        await send_named(pair, "new", 1)
        told = await pair.caller.pull(master.broker.address, SHARED, limited_by_bytes=True)
        epoch = told.ext_fields["rocketrioEpoch"]
        asked: dict[str, Any] = {"limited_by_bytes": True, "epoch": epoch}
        answer = await pair.caller.pull(slave.address, SHARED - 1, **asked)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert answer.ext_fields["suggestWhichBrokerId"] == "0"
        assert answer.ext_fields["nextBeginOffset"] == str(SHARED - 1)
        assert "rocketrioEpoch" not in answer.ext_fields
        pair.network.heal()
        await trio.sleep(30)
        answer = await pair.caller.pull(slave.address, SHARED - 1, **asked)
        assert answer.ext_fields["rocketrioEpoch"] == epoch
        assert messages(answer)[-1].body == b"new-0"


async def test_slave_that_is_behind_names_no_epoch_for_a_position_beyond_its_end() -> None:
    """A member sought back there: a commit that named the slave's epoch would count only what the slave has."""
    async with asynchronous_pair() as pair:
        slave = pair.slave
        await trio.sleep(3)
        for position, is_named in ((SHARED - 1, True), (SHARED, True), (SHARED + 1, False)):
            answer = await pair.caller.pull(slave.address, position, limited_by_bytes=True)
            assert ("rocketrioEpoch" in answer.ext_fields) is is_named


async def test_java_and_go_members_beyond_the_end_are_sent_to_what_their_group_committed() -> None:
    """As they ask it: no field of rocketrio goes in, none comes out, and their commit on the way hides nothing."""
    async with asynchronous_pair() as pair:
        await trio.sleep(12)
        pair.part(pair.first, pair.second.host)
        await send_named(pair, "lost", LOST)
        await replace_master(pair)
        caller, addr = pair.caller, pair.slave.address
        answer = await caller.pull(addr, SHARED + LOST, group="without-commits")
        assert answer.ext_fields["nextBeginOffset"] == str(SHARED)
        await caller.commit(addr, SHARED - 5)
        await send_named(pair, "new", FEW, at=pair.second)
        flags, beyond = SUBSCRIPTION | COMMIT, SHARED + LOST
        answer = await caller.pull(addr, beyond, sys_flag=flags, commit_offset=beyond)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert answer.ext_fields == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(SHARED - 5),
            "minOffset": "0",
            "maxOffset": str(SHARED + FEW),
        }
        assert await caller.committed(addr) == SHARED - 5
