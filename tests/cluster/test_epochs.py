"""Pairs that heal: a member that comes back knows by the epochs which of its messages were never acknowledged."""

import pytest
import trio
from tests.cluster.members import configure_as, cut_files, problem, state
from tests.cluster.stores import unflushed_pair
from tests.support.faulty_disk import FaultyDisk
from tests.support.pair import Pair
from tests.support.replication import log_bytes

from rocketrio_broker.embedded import NAME_SERVER_HOST, Member
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.torn_end import PeerLog, read_log
from rocketrio_broker.store.epochs import ANONYMOUS, EPOCH_FILE


async def apart(pair: Pair) -> tuple[Member, Member]:
    """The master and its slave, which have the same messages and do not reach each other any more."""
    await pair.settle()
    pair.part(pair.first, pair.second.host)
    return pair.first, pair.second


async def fail_over(pair: Pair, *, new: int = 0) -> None:
    """The slave is promoted without its master's last messages, and gets new ones; then that one is its slave."""
    await pair.first.kill()
    pair.network.heal()
    await pair.promote(pair.second)
    await pair.send_many(new, at=pair.second, first=1000)
    configure_as(pair.first, "slave", 7)
    await pair.first.start()
    await trio.sleep(10)


@pytest.mark.slow
async def test_former_master_cuts_what_no_slave_had_and_follows() -> None:
    async with unflushed_pair(role="sync-master") as pair:
        old, new = await apart(pair)
        await pair.send_unheard(at=old)
        await fail_over(pair)
        await pair.send_many(30, at=new, first=1000)
        await pair.level(new, old)
        assert state(old) is HAClientState.FOLLOWING
        assert len(await pair.read(old)) == 50 + 30
        assert len(cut_files(old)) == 1
        assert [line.key for line in old.broker.store.epochs.lines] == [
            line.key for line in new.broker.store.epochs.lines
        ]


async def test_asynchronous_master_that_returns_waits_and_counts() -> None:
    async with unflushed_pair() as pair:
        old, new = await apart(pair)
        await pair.send_many(20, first=500)
        await fail_over(pair, new=30)
        assert state(old) is HAClientState.BEYOND
        assert "20 messages" in problem(old)
        assert "orders 20" in problem(old)
        told = await pair.caller.own_status(old.broker.address)
        assert told.beyond is not None
        assert (told.beyond.messages, told.beyond.topics) == (20, {"orders": 20})
        assert "before any slave" in (told.beyond.why_kept or "")
        assert (told.epoch, told.epoch_id) == (1, old.broker.store.epochs.lines[0].id)
        assert not cut_files(old)
        await pair.configure(old, b"haDivergentTail=cut\n")
        await pair.level(new, old)
        assert len(cut_files(old)) == 1


async def test_answer_that_did_not_wait_for_slaves_keeps_the_end() -> None:
    async with unflushed_pair(role="sync-master") as pair:
        old, _ = await apart(pair)
        await pair.send("a", "b", "c", properties="WAIT\1false\2")
        assert old.broker.store.epochs.lines[-1].answered_early
        await fail_over(pair)
        assert state(old) is HAClientState.BEYOND
        assert "answered before slaves had it" in problem(old)


@pytest.mark.slow
async def test_two_promotions_at_once_are_two_histories_of_one_number() -> None:
    async with unflushed_pair(2, role="sync-master") as pair:
        first, one, other = pair.members
        await pair.settle()
        await first.kill()
        pair.part(one, other.host)
        pair.part(other, NAME_SERVER_HOST)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.promote, one)
            nursery.start_soon(pair.promote, other)
        await pair.send_unheard(4, at=one)
        await pair.send_unheard(2, at=other)
        numbers = {member.broker.store.epochs.lines[-1].number for member in (one, other)}
        ids = {member.broker.store.epochs.lines[-1].id for member in (one, other)}
        assert len(numbers) == 1
        assert len(ids) == 2
        pair.network.heal()
        await pair.change(other, "slave", 2)
        await trio.sleep(2)
        await pair.send_many(10, at=one, first=1000)
        await pair.level(one, other)
        assert state(other) is HAClientState.FOLLOWING
        assert len(cut_files(other)) == 1


@pytest.mark.slow
async def test_slave_that_is_ahead_of_the_promoted_one_gives_nothing_up() -> None:
    """What it has more may have been answered PUT_OK for its sake."""
    async with unflushed_pair(2, role="sync-master", ha_return_wait=1.0) as pair:
        first, short, long = pair.members
        await pair.settle()
        pair.part(first, short.host)
        await pair.send_many(7, first=500)
        await first.kill()
        pair.part(short, long.host)
        await pair.promote(short)
        pair.network.heal()
        await trio.sleep(40)  # It learns its master's address with its next registration.
        assert state(long) is HAClientState.BEYOND
        assert "7 messages" in problem(long)
        assert "written by another member" in problem(long)


async def test_member_whose_disk_is_new_follows() -> None:
    async with unflushed_pair(role="sync-master") as pair:
        old, new = pair.members
        sent = await pair.settle()
        before = old.broker.store.epochs.member
        await old.kill()
        await pair.promote(new)
        old.disk = FaultyDisk()
        configure_as(old, "slave", 7)
        await old.start()
        await pair.level(new, old)
        sent += await pair.send_many(5, at=new, first=1000)
        await pair.level(new, old)
        assert await pair.read(old) == sent
        assert old.broker.store.epochs.member != before


async def test_directory_without_epochs_is_compared_and_learns_them() -> None:
    async with unflushed_pair(role="sync-master") as pair:
        master, slave = pair.members
        await pair.settle()
        await slave.stop()
        slave.disk.unlink(slave.config.data / EPOCH_FILE)
        await slave.start()
        await trio.sleep(2)
        assert state(slave) is HAClientState.FOLLOWING
        assert slave.broker.store.epochs.lines == tuple(master.broker.store.epochs.to_send())
        await pair.send_many(5, first=1000)


@pytest.mark.parametrize("knows_epochs", [True, False])
async def test_peer_that_only_compares_logs_is_not_a_slave(knows_epochs: bool) -> None:
    """Nothing may have been promised to it. One that says nothing is taken for an Apache slave, and counts."""
    async with unflushed_pair(role="sync-master") as pair:
        await pair.settle()
        master = pair.master
        end = master.store.max_physical_offset
        peer = PeerLog(master.ha_address, end, knows_epochs=knows_epochs)
        counted, data = [], b""

        async def count() -> None:
            while not data:
                counted.append(master.ha_service.group_transfer.statistics().live_slaves)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            data = await read_log(pair.cluster.dial_from("10.0.0.77"), peer, 0, end)
        assert max(counted) == (1 if knows_epochs else 2)
        assert data[1:] == log_bytes(master.store)[1:]
        assert (ANONYMOUS in master.store.epochs.lines[-1].joined) is not knows_epochs


async def test_slave_on_another_connection_is_one_slave() -> None:
    """Its old connection ends when it comes back, long before that one is given up."""
    async with unflushed_pair(role="sync-master") as pair:
        master, slave = pair.members
        await pair.settle()
        service = master.broker.ha_service
        pair.part(master, slave.host)
        await trio.sleep(3)
        await slave.kill()
        pair.network.heal()
        await slave.start()
        await trio.sleep(2)
        assert len(service.connections) == 1
        assert service.group_transfer.statistics().live_slaves == 1


@pytest.mark.parametrize(
    ("before", "after"), [("sync-master", "async-master"), ("async-master", "sync-master")]
)
async def test_change_of_mode_is_another_epoch(before: str, after: str) -> None:
    async with unflushed_pair(role=before) as pair:
        master, slave = pair.members
        await pair.settle()
        await pair.change(master, after, 0)
        await trio.sleep(3)
        await pair.send_many(5, first=1000)
        await pair.level(master, slave)
        modes = [line.mode for line in slave.broker.store.epochs.lines]
        assert modes == [before.removesuffix("-master"), after.removesuffix("-master")]
