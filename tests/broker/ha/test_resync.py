"""A slave and a master whose logs do not simply continue each other: told apart, and mended by the rules."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from tests.support.clocks import SettableClock
from tests.support.failing_disk import FailingDisk
from tests.support.further import every_other
from tests.support.replication import (
    FILE_SIZE,
    OTHER_SLAVE,
    RECORD,
    SLAVE,
    Master,
    Slave,
    disk_with,
    fill,
    log_bytes,
    master,
    slave,
)
from tests.support.stores import ROOT, opened, read_all
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.ha import resync
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.history import WINDOWS
from rocketrio_broker.ha.resync import HistoryRules
from rocketrio_broker.ha.service import HAService
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.testing.memory_disk import MemoryDisk

REFUSE = HistoryRules()
CUT = HistoryRules(divergent_tail="cut")
RESTART = HistoryRules(missing_history="restart")


@attrs.define
class Rules:
    """Rules that may change while a slave runs."""

    now: HistoryRules

    def __call__(self) -> HistoryRules:
        return self.now


@asynccontextmanager
async def meeting(
    master_disk: MemoryDisk, slave_disk: MemoryDisk, rules: HistoryRules = REFUSE
) -> AsyncGenerator[tuple[Master, Slave, Rules]]:
    """A master and a slave that have met, with an hour at most."""
    changing = Rules(rules)
    with trio.fail_after(3600):
        async with (
            master(disk=master_disk) as leader,
            slave(leader.network, disk=slave_disk, rules=changing) as follower,
        ):
            await wait_all_tasks_blocked()
            yield leader, follower, changing


async def level(leader: Master, follower: Slave) -> None:
    with trio.fail_after(60):
        while (  # noqa: ASYNC110
            leader.store.max_physical_offset != follower.store.max_physical_offset
            or follower.client.state is not HAClientState.FOLLOWING
        ):
            await trio.sleep(0.01)
        await follower.store.dispatched.wait_reached(leader.store.max_physical_offset)
    await wait_all_tasks_blocked()
    begin = max(leader.store.min_physical_offset, follower.store.min_physical_offset)
    assert log_bytes(follower.store, begin) == log_bytes(leader.store, begin)
    ours, theirs = read_all(follower.store, "orders"), read_all(leader.store, "orders")
    assert ours[-len(theirs) :] == theirs
    assert len(ours) == len(theirs) or begin > follower.store.min_physical_offset


def kept(disk: MemoryDisk) -> dict[str, bytes]:
    folder = ROOT / "cut"
    return {name: bytes(disk.files[folder / name].data) for name in disk.list_directory(folder)}


def common_end(one: MessageStore, other: MessageStore) -> int:
    ours, theirs = log_bytes(one), log_bytes(other)
    return next(at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)


# --- equal ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("messages", [1, 50, 2000])
async def test_same_history_is_followed_at_once(autojump_clock: MockClock, messages: int) -> None:
    async with meeting(await disk_with(messages, 60), await disk_with(messages)) as (
        leader,
        follower,
        _,
    ):
        await level(leader, follower)
        assert trio.current_time() < 0.1
        assert follower.client.state is HAClientState.FOLLOWING
        numbers = follower.client.statistics()
        assert numbers.connection_count == 1
        assert numbers.verified_offset == leader.store.max_physical_offset
        (connection,) = leader.service.connections
        assert connection.slave_ack_offset == leader.store.max_physical_offset
        most = WINDOWS[0] + len(log_bytes(leader.store)) - messages * RECORD
        assert connection.statistics().bytes_sent <= most


async def test_master_without_its_oldest_files_is_followed(autojump_clock: MockClock) -> None:
    """What the slave asks for first is deleted there; the master says where its log begins."""
    async with meeting(await disk_with(900, 60, begin=9 * FILE_SIZE), await disk_with(900)) as (
        leader,
        follower,
        _,
    ):
        await level(leader, follower)
        assert trio.current_time() < 0.1
        assert follower.client.statistics().last_problem is None


# --- diverged ------------------------------------------------------------------------------------


async def test_divergent_slave_refuses_and_names_the_address(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with meeting(await disk_with(100, 60, 60), await disk_with(100, 200)) as (
        leader,
        follower,
        _,
    ):
        before = log_bytes(follower.store)
        await trio.sleep(60)
        assert log_bytes(follower.store) == before
        assert follower.client.state is HAClientState.DIVERGED
        at = common_end(leader.store, follower.store)
        problem = follower.client.statistics().last_problem or ""
        assert f"differs from the master's from {at} on" in problem
        assert f"the record at {leader_tail(leader)} is the first" in problem
        assert "ha_divergent_tail" in problem
        assert caplog.text.count("differs from the master's") == 1
        # It never counts as having what the master appended meanwhile.
        assert all(c.slave_ack_offset <= at for c in leader.service.connections)


def leader_tail(leader: Master) -> int:
    """Where message 100 begins."""
    entry = leader.store.queue_table.by_key["orders", 0].entry(100)
    assert entry
    return entry[0]


@pytest.mark.parametrize("messages", [0, 1, 100, 3000], ids="{} common".format)
async def test_divergent_tail_is_cut_and_kept(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, messages: int
) -> None:
    disk = await disk_with(messages, 200, 300)
    async with meeting(await disk_with(messages, 60, 60), disk, CUT) as (leader, follower, _):
        await level(leader, follower)
        assert trio.current_time() < 1
        ((name, data),) = kept(disk).items()
        assert (
            int(name.split("-")[0])
            == (leader.store.queue_table.by_key["orders", 0].entry(messages) or (0,))[0]
        )
        async with opened(await disk_with(messages, 200, 300)) as store:
            assert data == log_bytes(store, int(name.split("-")[0]) or None)
        assert "divergent tail cut off" in caplog.text
        assert name in caplog.text
        fill(leader.store, 50)
        await level(leader, follower)


async def test_rule_may_be_set_while_the_slave_refuses(autojump_clock: MockClock) -> None:
    disk = await disk_with(100, 200)
    async with meeting(await disk_with(100, 60), disk) as (leader, follower, rules):
        await trio.sleep(30)
        assert follower.client.state is HAClientState.DIVERGED
        assert not kept(disk)
        rules.now = CUT
        await level(leader, follower)
        assert len(kept(disk)) == 1


async def test_common_part_is_searched_further_back(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync, "WINDOWS", (1000, 3000, 9000))
    for messages, tails in ((100, 1), (100, 2), (100, 9), (3, 9), (0, 9)):
        disk = await disk_with(messages, *[200] * tails)
        async with meeting(await disk_with(messages, *[60] * tails), disk, CUT) as (
            leader,
            follower,
            _,
        ):
            await level(leader, follower)
            ((name, _),) = kept(disk).items()
            entry = leader.store.queue_table.by_key["orders", 0].entry(messages)
            assert entry
            assert int(name.split("-")[0]) == entry[0]


async def test_tail_that_finds_no_room_is_not_cut(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk("make_directory", "*cut*")
    disk.files.update((await disk_with(100, 200)).files)
    disk.directories.update((await disk_with(100, 200)).directories)
    async with meeting(await disk_with(100, 60), disk, CUT) as (_, follower, _):
        before = log_bytes(follower.store)
        await trio.sleep(60)
        assert log_bytes(follower.store) == before
        assert "No space left" in caplog.text


async def test_slave_of_a_slave_that_cuts_its_tail_compares_again(
    autojump_clock: MockClock,
) -> None:
    """The one in the middle goes on from an address that lies before what it has sent."""
    # Other messages of the same sizes: bytes that must not be sent would begin with a record.
    leaders = await disk_with(100)
    async with opened(leaders) as store:
        for _ in range(2):
            fill(store, 5, size=200)
    async with meeting(leaders, await disk_with(100, 200)) as (
        leader,
        middle,
        rules,
    ):
        listener = await leader.network.host(SLAVE).listen(f"{SLAVE}:10912")
        async with trio.open_nursery() as nursery:
            await nursery.start(HAService(middle.store, listener, wall_clock=SettableClock()).run)
            async with slave(
                leader.network,
                host=OTHER_SLAVE,
                disk=await disk_with(100, 200),
                master_addr=f"{SLAVE}:10912",
                rules=lambda: CUT,
            ) as last:
                await trio.sleep(3)
                assert last.store.max_physical_offset == middle.store.max_physical_offset
                rules.now = CUT
                # At once further than before the cut: what follows there must not be sent to the last one.
                await level(leader, middle)
                fill(leader.store, 300)
                await level(leader, middle)
                await level(leader, last)
            nursery.cancel_scope.cancel()


# --- ahead ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("messages", every_other([0, 1, 3000, 100]), ids="{} left".format)
async def test_slave_ahead_of_its_master_waits_and_reports_only_what_both_have(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, messages: int
) -> None:
    async with meeting(await disk_with(messages), await disk_with(3500)) as (leader, follower, _):
        before = log_bytes(follower.store)
        await trio.sleep(120)
        assert log_bytes(follower.store) == before
        assert follower.client.state in (HAClientState.AHEAD, HAClientState.CONNECTING)
        assert "The master lost its end" in (follower.client.statistics().last_problem or "")
        for connection in leader.service.connections:
            assert connection.slave_ack_offset <= leader.store.max_physical_offset


async def test_master_that_gets_its_end_back_is_followed(autojump_clock: MockClock) -> None:
    async with meeting(await disk_with(100), await disk_with(200)) as (leader, follower, _):
        await trio.sleep(15)
        assert follower.client.state is HAClientState.AHEAD
        end = leader.store.max_physical_offset
        leader.store.begin_replication()
        leader.store.append_raw(end, log_bytes(follower.store, end))
        leader.store.end_replication()
        fill(leader.store, 10)
        await level(leader, follower)
        assert follower.client.statistics().last_problem is None


async def test_master_with_another_continuation_is_diverged(autojump_clock: MockClock) -> None:
    async with meeting(await disk_with(100), await disk_with(200), CUT) as (leader, follower, _):
        await trio.sleep(15)
        assert follower.client.state is HAClientState.AHEAD
        fill(leader.store, 10, size=60)
        await level(leader, follower)


# --- behind the master's first byte --------------------------------------------------------------


async def test_slave_behind_the_master_s_first_byte_refuses(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with meeting(await disk_with(900, begin=9 * FILE_SIZE), await disk_with(200)) as (
        _,
        follower,
        _,
    ):
        before = log_bytes(follower.store)
        await trio.sleep(60)
        assert log_bytes(follower.store) == before
        assert follower.client.state is HAClientState.MISSING_HISTORY
        assert f"The master's log begins at {9 * FILE_SIZE}" in caplog.text
        assert "ha_missing_history" in caplog.text


async def test_missing_history_is_copied_from_the_first_byte(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = await disk_with(200)
    async with meeting(await disk_with(900, begin=9 * FILE_SIZE), disk, RESTART) as (
        leader,
        follower,
        _,
    ):
        await level(leader, follower)
        assert follower.store.min_physical_offset == 9 * FILE_SIZE
        assert "dropped and copied again" in caplog.text
        assert not kept(disk)
    async with opened(disk) as again:
        assert len(read_all(again, "orders")) == len(read_all(again, "orders"))
        assert again.min_physical_offset == 9 * FILE_SIZE
