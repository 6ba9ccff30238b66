"""Pairs that heal: a member that comes back knows by the epochs which of its messages were never acknowledged."""

import attrs
import pytest
import trio
from tests.cluster.members import cut_files
from tests.cluster.power_cuts import cluster_of, problem, settle, state, unheard
from tests.support.faulty_disk import FaultyDisk
from tests.support.replication import log_bytes

from rocketrio_broker.embedded import Member
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.torn_end import PeerLog, read_log
from rocketrio_broker.store.epochs import ANONYMOUS, EPOCH_FILE
from rocketrio_protocol.commands.admin import GetBrokerHAStatusRequestHeader
from rocketrio_protocol.ha.status import HARuntimeInfo


async def back_as_slave(member: Member, broker_id: int = 7) -> None:
    member.config = attrs.evolve(member.config, role="slave", broker_id=broker_id)
    await member.start()


async def test_former_master_cuts_what_no_slave_had_and_follows() -> None:
    async with cluster_of(1, role="sync-master") as pair:
        old, (new,) = pair.cluster.master, pair.cluster.slaves
        sent = await settle(pair, old, new)
        pair.cluster.memory_network.partition(old.host, new.host)
        await unheard(pair, old.broker)
        await old.kill()
        pair.cluster.memory_network.heal()
        await pair.change(new.broker, "sync-master", 0)
        await back_as_slave(old)
        await trio.sleep(2)
        sent += await pair.send(30, broker=new.broker, first=1000)
        await pair.level(new, old)
        assert state(old.broker) is HAClientState.FOLLOWING
        assert await pair.caller.read(old.broker.address) == sent
        assert len(cut_files(old)) == 1
        assert [line.key for line in old.broker.store.epochs.lines] == [
            line.key for line in new.broker.store.epochs.lines
        ]


async def test_asynchronous_master_that_returns_waits_and_counts() -> None:
    async with cluster_of(1) as pair:
        old, (new,) = pair.cluster.master, pair.cluster.slaves
        await settle(pair, old, new)
        pair.cluster.memory_network.partition(old.host, new.host)
        await pair.send(20, first=500)
        await old.kill()
        pair.cluster.memory_network.heal()
        await pair.change(new.broker, "async-master", 0)
        await pair.send(30, broker=new.broker, first=1000)
        await back_as_slave(old)
        await trio.sleep(10)
        assert state(old.broker) is HAClientState.BEYOND
        assert "20 messages" in problem(old.broker)
        assert "orders 20" in problem(old.broker)
        answer = await pair.caller.pool.call(old.broker.address, GetBrokerHAStatusRequestHeader())
        told = HARuntimeInfo.from_json(answer.body).rocketrio
        assert told is not None
        assert told.beyond is not None
        assert (told.beyond.messages, told.beyond.topics) == (20, {"orders": 20})
        assert "before any slave" in (told.beyond.why_kept or "")
        assert (told.epoch, told.epoch_id) == (1, old.broker.store.epochs.lines[0].id)
        assert not cut_files(old)
        await pair.configure(old.broker, b"haDivergentTail=cut\n")
        await pair.level(new, old)
        assert len(cut_files(old)) == 1


async def test_answer_that_did_not_wait_for_slaves_keeps_the_end() -> None:
    async with cluster_of(1, role="sync-master") as pair:
        old, (new,) = pair.cluster.master, pair.cluster.slaves
        await settle(pair, old, new)
        pair.cluster.memory_network.partition(old.host, new.host)
        await unheard(pair, old.broker, 3, properties="WAIT\1false\2")
        assert old.broker.store.epochs.lines[-1].answered_early
        await old.kill()
        pair.cluster.memory_network.heal()
        await pair.change(new.broker, "sync-master", 0)
        await back_as_slave(old)
        await trio.sleep(10)
        assert state(old.broker) is HAClientState.BEYOND
        assert "answered before slaves had it" in problem(old.broker)


async def test_two_promotions_at_once_are_two_histories_of_one_number() -> None:
    async with cluster_of(2, role="sync-master") as pair:
        network = pair.cluster.memory_network
        first, (one, other) = pair.cluster.master, pair.cluster.slaves
        await settle(pair, first, one, other)
        await first.kill()
        network.partition(one.host, other.host)
        network.partition(other.host, "10.0.0.9")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.change, one.broker, "sync-master", 0)
            nursery.start_soon(pair.change, other.broker, "sync-master", 0)
        await unheard(pair, one.broker, 4)
        await unheard(pair, other.broker, 2)
        numbers = {member.broker.store.epochs.lines[-1].number for member in (one, other)}
        ids = {member.broker.store.epochs.lines[-1].id for member in (one, other)}
        assert len(numbers) == 1
        assert len(ids) == 2
        network.heal()
        await pair.change(other.broker, "slave", 2)
        await trio.sleep(2)
        await pair.send(10, broker=one.broker, first=1000)
        await pair.level(one, other)
        assert state(other.broker) is HAClientState.FOLLOWING
        assert len(cut_files(other)) == 1


async def test_slave_that_is_ahead_of_the_promoted_one_gives_nothing_up() -> None:
    """What it has more may have been answered PUT_OK for its sake."""
    async with cluster_of(2, role="sync-master", ha_return_wait=1.0) as pair:
        network = pair.cluster.memory_network
        first, (short, long) = pair.cluster.master, pair.cluster.slaves
        await settle(pair, first, short, long)
        network.partition(first.host, short.host)
        await pair.send(7, first=500)
        await first.kill()
        network.partition(short.host, long.host)
        await pair.change(short.broker, "sync-master", 0)
        network.heal()
        await trio.sleep(40)  # It learns its master's address with its next registration.
        assert state(long.broker) is HAClientState.BEYOND
        assert "7 messages" in problem(long.broker)
        assert "written by another member" in problem(long.broker)


async def test_member_whose_disk_is_new_follows() -> None:
    async with cluster_of(1, role="sync-master") as pair:
        old, (new,) = pair.cluster.master, pair.cluster.slaves
        sent = await settle(pair, old, new)
        before = old.broker.store.epochs.member
        await old.kill()
        await pair.change(new.broker, "sync-master", 0)
        old.disk = FaultyDisk()
        await back_as_slave(old)
        await pair.level(new, old)
        sent += await pair.send(5, broker=new.broker, first=1000)
        await pair.level(new, old)
        assert await pair.caller.read(old.broker.address) == sent
        assert old.broker.store.epochs.member != before


async def test_directory_without_epochs_is_compared_and_learns_them() -> None:
    async with cluster_of(1, role="sync-master") as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        await settle(pair, master, slave)
        await slave.stop()
        slave.disk.unlink(slave.config.data / EPOCH_FILE)
        await slave.start()
        await trio.sleep(2)
        assert state(slave.broker) is HAClientState.FOLLOWING
        assert slave.broker.store.epochs.lines == tuple(master.broker.store.epochs.to_send())
        await pair.send(5, first=1000)


@pytest.mark.parametrize("knows_epochs", [True, False])
async def test_peer_that_only_compares_logs_is_not_a_slave(knows_epochs: bool) -> None:
    """Nothing may have been promised to it. One that says nothing is taken for an Apache slave, and counts."""
    async with cluster_of(1, role="sync-master") as pair:
        await settle(pair, pair.cluster.master, *pair.cluster.slaves)
        master = pair.cluster.master.broker
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
    async with cluster_of(1, role="sync-master") as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        await settle(pair, master, slave)
        service = master.broker.ha_service
        network = pair.cluster.memory_network
        network.partition(master.host, slave.host)
        await trio.sleep(3)
        await slave.kill()
        network.heal()
        await slave.start()
        await trio.sleep(2)
        assert len(service.connections) == 1
        assert service.group_transfer.statistics().live_slaves == 1


@pytest.mark.parametrize(
    ("before", "after"), [("sync-master", "async-master"), ("async-master", "sync-master")]
)
async def test_change_of_mode_is_another_epoch(before: str, after: str) -> None:
    async with cluster_of(1, role=before) as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        await settle(pair, master, slave)
        await pair.change(master.broker, after, 0)
        await trio.sleep(3)
        await pair.send(5, first=1000)
        await pair.level(master, slave)
        modes = [line.mode for line in slave.broker.store.epochs.lines]
        assert modes == [before.removesuffix("-master"), after.removesuffix("-master")]
