"""A master that comes back, or a slave that is promoted, gets what another broker has of its log before it serves."""

from pathlib import Path

import attrs
import pytest
import trio
from tests.cluster.histories.disk import ScheduledDisk
from tests.cluster.power_cuts import NumberedPair, cluster_of
from tests.support.faulty_disk import FaultyDisk
from tests.support.replication import log_bytes, secret_file

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.exchange import ask_welcome
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.ha.exchange import Greeting


async def split(pair: NumberedPair, unheard: int) -> list[bytes]:
    """The slave is promoted without its master's last messages; that one comes back as a slave. What is sent then."""
    old, (new,) = pair.cluster.master, pair.cluster.slaves
    await pair.send(100)
    await pair.level(old, new)
    pair.cluster.memory_network.partition(old.host, new.host)
    await pair.send(unheard, first=5000)
    await old.kill()
    await pair.change(new.broker, "async-master", 0)
    pair.cluster.memory_network.heal()
    sent = await pair.send(30, broker=new.broker, first=1000)
    old.config = attrs.evolve(old.config, role="slave", broker_id=2)
    await old.start()
    return sent


@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0], ids="kept {}".format)
@pytest.mark.parametrize("count", [1, 40, 400])
async def test_power_cut_of_an_asynchronous_master_loses_nothing_that_a_slave_has(
    count: int, kept: float
) -> None:
    async with cluster_of(1) as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        sent = await pair.send(count)
        await pair.level(master, slave)
        before = log_bytes(slave.broker.store)
        await pair.cut_power(master, kept=kept)
        await master.start()
        assert await pair.caller.read(master.broker.address) == sent
        assert log_bytes(master.broker.store) == before
        # And the slave follows on without anybody's help.
        sent += await pair.send(30, first=count)
        await pair.level(master, slave)
        assert await pair.caller.read(slave.broker.address) == sent
        slave_side = slave.broker.slave
        assert slave_side is not None
        assert slave_side.client.state is HAClientState.FOLLOWING


async def test_master_whose_disk_is_new_gets_everything() -> None:
    async with cluster_of(1) as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        sent = await pair.send(500)
        await pair.level(master, slave)
        await master.kill()
        master.disk = FaultyDisk()
        await master.start()
        assert await pair.caller.read(master.broker.address) == sent
        await pair.level(master, slave)


async def test_longest_of_two_slaves_is_followed() -> None:
    async with cluster_of(2) as pair:
        master, (short, long) = pair.cluster.master, pair.cluster.slaves
        sent = await pair.send(100)
        await pair.level(master, short, long)
        pair.cluster.memory_network.partition(short.host, master.host)
        sent += await pair.send(50, first=100)
        await pair.level(master, long)
        await pair.cut_power(master)
        pair.cluster.memory_network.reconnect(short.host, master.host)
        await master.start()
        assert await pair.caller.read(master.broker.address) == sent
        await pair.level(master, short, long)


async def test_promoted_slave_gets_what_the_other_slave_has_more() -> None:
    async with cluster_of(2) as pair:
        master, (short, long) = pair.cluster.master, pair.cluster.slaves
        sent = await pair.send(100)
        await pair.level(master, short, long)
        await trio.sleep(15)  # Topics are copied every 10 s.
        pair.cluster.memory_network.partition(short.host, master.host)
        sent += await pair.send(50, first=100)
        await pair.level(master, long)
        await master.kill()
        await pair.change(short.broker, "async-master", 0)
        assert await pair.caller.read(short.broker.address) == sent
        sent += await pair.send(20, broker=short.broker, first=150)
        await pair.level(short, long)
        assert await pair.caller.read(long.broker.address) == sent


async def test_former_master_that_lost_a_race_logs_it_and_is_cut_by_rule() -> None:
    """It took messages that no slave got, and comes back as a slave of the one that was promoted."""
    async with cluster_of(1) as pair:
        old, (new,) = pair.cluster.master, pair.cluster.slaves
        sent = await split(pair, unheard=50)
        await trio.sleep(30)
        side = old.broker.slave
        assert side is not None
        assert side.client.state is HAClientState.BEYOND
        assert "50 messages" in (side.statistics().log.last_problem or "")
        await pair.configure(old.broker, b"haDivergentTail=cut\n")
        await pair.level(new, old)
        assert (await pair.caller.read(old.broker.address))[-30:] == sent
        names = old.disk.list_directory(old.config.data / "cut")
        assert len(names) == 1


async def test_former_slave_that_is_longer_and_diverged_is_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster_of(1) as pair:
        (new,) = pair.cluster.slaves
        sent = await split(pair, unheard=200)
        await trio.sleep(10)
        await new.stop()
        new.config = attrs.evolve(new.config, role="async-master", broker_id=0)
        await new.start()
        assert "longer than this log and was not followed" in caplog.text
        assert (await pair.caller.read(new.broker.address))[100:] == sent
        assert (await pair.caller.send(new.broker.address, b"on")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("silent", ["slave", "name server"])
async def test_master_serves_after_the_limit_where_a_peer_cannot_be_asked(
    caplog: pytest.LogCaptureFixture, silent: str
) -> None:
    async with cluster_of(1) as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        await pair.send(50)
        await pair.level(master, slave)
        await pair.cut_power(master)
        host = slave.host if silent == "slave" else "10.0.0.9"
        pair.cluster.memory_network.partition(master.host, host)
        began = trio.current_time()
        await master.start()
        assert 10 <= trio.current_time() - began < 30
        assert "serving without asking a peer that cannot be reached" in caplog.text
        assert (await pair.caller.send(master.broker.address, b"on")).code == ResponseCode.SUCCESS


async def test_master_without_room_for_what_it_lacks_waits_for_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It could take no write anyway; and once it has room it would take them beside a slave that has more."""
    async with cluster_of(1, make_disk=ScheduledDisk) as pair, trio.open_nursery() as nursery:
        first, (second,) = pair.cluster.master, pair.cluster.slaves
        sent = await pair.send(50)
        await pair.level(first, second)
        assert isinstance(first.disk, ScheduledDisk)
        first.disk.fill(True)
        await pair.change(first.broker, "slave", 2)
        await pair.change(second.broker, "async-master", 0)
        sent += await pair.send(30, broker=second.broker, first=50)
        await pair.change(second.broker, "slave", 1)
        nursery.start_soon(pair.change, first.broker, "async-master", 0)
        await trio.sleep(30)
        assert not first.broker.store.writable
        assert caplog.text.count("no writes are taken until there is room") == 1
        first.disk.fill(False)
        await trio.sleep(15)
        assert first.broker.store.writable
        assert await pair.caller.read(first.broker.address) == sent
        await pair.level(first, second)


async def test_master_gets_its_end_from_a_slave_that_connects_although_nothing_lists_that(
    tmp_path: Path,
) -> None:
    """The name server is down, and the master could not store who its slave is."""
    async with cluster_of(1, ha_secret_file=secret_file(tmp_path / "secret")) as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        sent = await pair.send(50)
        await pair.level(master, slave)
        await pair.cluster.kill_name_server()
        await pair.cut_power(master)
        master.disk.unlink(Path("/master/config/slaves.json"))
        await master.start()
        assert await pair.caller.read(master.broker.address) == sent
        await pair.level(master, slave)


async def test_master_waits_for_a_slave_if_configured() -> None:
    async with cluster_of(1, ha_return="wait", ha_return_wait=5.0) as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        sent = await pair.send(50)
        await pair.level(master, slave)
        await pair.cut_power(master)
        pair.cluster.memory_network.partition(master.host, slave.host)
        await master.start()
        for _ in range(3):
            answer = await pair.caller.send(master.broker.address, b"too early")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert slave.host in (answer.remark or "")
            assert "ha_return" in (answer.remark or "")
            await trio.sleep(15)
        pair.cluster.memory_network.heal()
        await trio.sleep(5)
        assert await pair.caller.read(master.broker.address) == sent
        assert (await pair.caller.send(master.broker.address, b"now")).code == ResponseCode.SUCCESS
        await pair.level(master, slave)


async def test_choice_may_change_while_it_waits() -> None:
    async with cluster_of(1, ha_return="wait", ha_return_wait=5.0) as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        await pair.send(50)
        await pair.level(master, slave)
        await pair.cut_power(master)
        pair.cluster.memory_network.partition(master.host, slave.host)
        await master.start()
        await pair.configure(master.broker, b"haReturn=serve\n")
        # Asking once more takes 3 s, asking for offsets 5, and looking for another master 1.
        await trio.sleep(10)
        assert (await pair.caller.send(master.broker.address, b"now")).code == ResponseCode.SUCCESS


async def test_slave_that_goes_away_in_the_middle_does_not_hold_the_master_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster_of(1) as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        await pair.send(50)
        await pair.level(master, slave)
        await pair.cut_power(master)
        # Its requests are answered, its log is not.
        slave.broker.ha_service._listener.close()
        await master.start()
        assert "Nothing came from the slave" in caplog.text
        assert (await pair.caller.send(master.broker.address, b"on")).code == ResponseCode.SUCCESS


async def test_lone_master_starts_at_once() -> None:
    async with cluster_of(0) as pair:
        await pair.send(5)
        await pair.cut_power(pair.cluster.master)
        began = trio.current_time()
        await pair.cluster.master.start()
        assert trio.current_time() - began < 0.1


@pytest.mark.parametrize("outage", [0.2, 3.0, 20.0, 90.0])
async def test_master_whose_name_server_was_lost_with_it_still_asks_its_slaves(
    outage: float,
) -> None:
    """They often share a machine. The name server lists no broker at first: the slave has yet to register again."""
    async with cluster_of(1, role="sync-master") as pair:
        cluster = pair.cluster
        await trio.sleep(2)
        sent = await pair.send(50)
        await cluster.kill_name_server()
        await pair.cut_power(cluster.master)
        await trio.sleep(outage)
        await cluster.restart_name_server()
        broker = await cluster.master.start()
        assert broker.store.max_physical_offset > 0
        # Readers see what was fetched once a slave has said that it has it.
        with trio.fail_after(10):
            await broker.store.read_gate.end.wait_reached(broker.store.max_physical_offset)
        assert await pair.caller.read(broker.address) == sent
        await pair.level(cluster.master, cluster.slaves[0])


async def test_former_master_that_lost_its_name_server_finds_its_successor() -> None:
    async with cluster_of(1) as pair:
        cluster = pair.cluster
        old, (new,) = cluster.master, cluster.slaves
        await trio.sleep(2)
        await cluster.kill_name_server()
        await pair.cut_power(old)
        await pair.change(new.broker, "async-master", 0)
        await trio.sleep(60)
        await cluster.restart_name_server()
        broker = await old.start()
        assert (broker.role, broker.config.broker_id) == ("slave", 2)
        assert new.broker.store.writable
        await pair.level(new, old)
        await trio.sleep(60)
        assert broker.role == "slave"
        assert new.broker.store.writable


async def test_former_master_that_follows_no_longer_takes_its_successor_for_a_slave() -> None:
    """Or it would wait for that one, should it die and this one take over again."""
    async with cluster_of(1) as pair:
        cluster = pair.cluster
        old, (new,) = cluster.master, cluster.slaves
        await trio.sleep(2)
        await old.kill()
        await pair.change(new.broker, "async-master", 0)
        old.config = attrs.evolve(old.config, role="slave", broker_id=2)
        await old.start()
        await trio.sleep(5)
        await new.kill()
        started = trio.current_time()
        await pair.change(old.broker, "async-master", 0)
        assert old.broker.store.writable
        assert trio.current_time() - started < 4


async def test_stranger_on_an_open_link_is_not_asked_for_messages() -> None:
    async with cluster_of(0) as pair:
        broker, stranger = pair.cluster.master.broker, "10.0.0.66"
        link = await pair.cluster.memory_network.host(stranger).dial(broker.ha_address)
        greeting = Greeting(
            member="m", broker_id=1, begin=0, end=9, highest=0, address=f"{stranger}:10911"
        )
        await ask_welcome(link, greeting)
        assert broker.state.peers.connecting() == []
