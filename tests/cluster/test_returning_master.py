"""A master that comes back, or a slave that is promoted, gets what another broker has of its log before it serves."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from tests.cluster.members import configure_as, cut_files, cut_power, problem, state
from tests.cluster.stores import unflushed_pair
from tests.support.caller import accepted
from tests.support.faulty_disk import FaultyDisk
from tests.support.pair import Pair
from tests.support.replication import log_bytes

from rocketrio_broker.embedded import NAME_SERVER_HOST
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.exchange import ask_welcome
from rocketrio_broker.ha.known_slaves import REFRESH_PERIOD
from rocketrio_broker.ha.missing_tail import FetchedTail, MissingTail
from rocketrio_broker.ha.open_epoch import EpochOpener
from rocketrio_broker.ha.survey import Survey
from rocketrio_protocol.ha.exchange import Greeting


async def split(pair: Pair, unheard: int) -> list[str]:
    """The slave is promoted without its master's last messages; that one comes back as a slave. What is sent then."""
    old, new = pair.members
    await pair.send_many(100)
    await pair.level(old, new)
    pair.part(old, new.host)
    await pair.send_many(unheard, first=5000)
    await old.kill()
    await pair.promote(new)
    pair.network.heal()
    sent = await pair.send_many(30, at=new, first=1000)
    configure_as(old, "slave", 2)
    await old.start()
    return sent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "kept"), [(1, 0.0), (1, 1.0), (40, 0.5), (400, 0.0), (400, 0.5)], ids=str
)
async def test_power_cut_of_an_asynchronous_master_loses_nothing_that_a_slave_has(
    count: int, kept: float
) -> None:
    async with unflushed_pair() as pair:
        master, slave = pair.members
        sent = await pair.send_many(count)
        await pair.level(master, slave)
        before = log_bytes(slave.broker.store)
        await cut_power(master, kept=kept)
        await master.start()
        assert await pair.read(master) == sent
        assert log_bytes(master.broker.store) == before
        # And the slave follows on without anybody's help.
        sent += await pair.send_many(30, first=count)
        await pair.level()
        assert await pair.read(slave) == sent


@pytest.mark.slow
async def test_master_whose_disk_is_new_gets_everything() -> None:
    async with unflushed_pair() as pair:
        master, slave = pair.members
        sent = await pair.send_many(500)
        await pair.level(master, slave)
        await master.kill()
        master.disk = FaultyDisk()
        await master.start()
        assert await pair.read(master) == sent
        await pair.level(master, slave)


@pytest.mark.slow
async def test_longest_of_two_slaves_is_followed() -> None:
    async with unflushed_pair(2) as pair:
        master, short, long = pair.members
        sent = await pair.send_many(100)
        await pair.level(master, short, long)
        pair.part(short, master.host)
        sent += await pair.send_many(50, first=100)
        await pair.level(master, long)
        await cut_power(master)
        pair.network.reconnect(short.host, master.host)
        await master.start()
        assert await pair.read(master) == sent
        await pair.level(master, short, long)


@pytest.mark.slow
async def test_promoted_slave_gets_what_the_other_slave_has_more() -> None:
    async with unflushed_pair(2) as pair:
        master, short, long = pair.members
        sent = await pair.send_many(100)
        await pair.level(master, short, long)
        await trio.sleep(15)  # Topics are copied every 10 s.
        pair.part(short, master.host)
        sent += await pair.send_many(50, first=100)
        await pair.level(master, long)
        await master.kill()
        await pair.promote(short)
        assert await pair.read(short) == sent
        sent += await pair.send_many(20, at=short, first=150)
        await pair.level(short, long)
        assert await pair.read(long) == sent


@pytest.mark.slow
async def test_slave_that_comes_back_during_the_take_over_is_asked_for_what_it_has_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with unflushed_pair(2) as pair:
        master, short, long = pair.members
        pair.part(short, master.host)
        sent = await pair.send_many(50)
        await pair.level(master, long)
        await master.kill()
        await long.stop()
        await trio.sleep(2 * REFRESH_PERIOD)
        assert short.broker.state.known_slaves.addrs() == []
        ask = EpochOpener.ask

        async def comes_back(opener: EpochOpener, found: Survey | None = None) -> None:
            await ask(opener, found)
            if not long.is_running:
                await long.start()

        monkeypatch.setattr(EpochOpener, "ask", comes_back)
        await pair.promote(short)
        assert await pair.read(short) == sent
        await pair.level(short, long)


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["its own", "the slave's"])
async def test_offsets_are_not_cut_to_a_log_that_gets_longer_while_the_master_takes_over(
    monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """Lowered to the end that this log had at first, they would send readers back by all that came with the rest."""
    async with unflushed_pair(ha_return="serve") as pair:
        master, slave = pair.members
        sent = await pair.send_many(50)
        accepted(await pair.caller.commit(pair.master.address, 50))
        await pair.level(master, slave)
        await trio.sleep(15)  # Both have stored them.
        await slave.stop()
        await cut_power(master)
        if whose != "its own":
            offsets = master.config.config_directory / "consumerOffset.json"
            for name in (offsets, offsets.with_name(f"{offsets.name}.bak")):
                master.disk.unlink(name)
        fetch, fetches = MissingTail.fetch, list[FetchedTail]()

        async def comes_back(
            tail: MissingTail, report: Callable[[str], None], found: Survey
        ) -> FetchedTail:
            fetches.append(await fetch(tail, report, found))
            if not slave.is_running:
                await slave.start()
            return fetches[-1]

        monkeypatch.setattr(MissingTail, "fetch", comes_back)
        await master.start()
        assert [len(fetched.sources) for fetched in fetches] == [0, 1]
        assert await pair.read(master) == sent
        assert await pair.caller.committed(pair.master.address) == 50


@pytest.mark.slow
async def test_former_master_that_lost_a_race_logs_it_and_is_cut_by_rule() -> None:
    """It took messages that no slave got, and comes back as a slave of the one that was promoted."""
    async with unflushed_pair() as pair:
        old, new = pair.members
        sent = await split(pair, unheard=50)
        await trio.sleep(30)
        assert state(old) is HAClientState.BEYOND
        assert "50 messages" in problem(old)
        await pair.configure(old, b"haDivergentTail=cut\n")
        await pair.level(new, old)
        assert (await pair.read(old))[-30:] == sent
        assert len(cut_files(old)) == 1


@pytest.mark.slow
async def test_former_slave_that_is_longer_and_diverged_is_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with unflushed_pair() as pair:
        new = pair.second
        sent = await split(pair, unheard=200)
        await trio.sleep(10)
        await new.stop()
        configure_as(new, "async-master", 0)
        await new.start()
        assert "longer than this log and was not followed" in caplog.text
        assert (await pair.read(new))[100:] == sent
        await pair.send("on", at=new)


@pytest.mark.parametrize("silent", ["slave", "name server"])
async def test_master_serves_after_the_limit_where_a_peer_cannot_be_asked(
    caplog: pytest.LogCaptureFixture, silent: str
) -> None:
    async with unflushed_pair() as pair:
        master, slave = pair.members
        await pair.settle()
        await cut_power(master)
        host = slave.host if silent == "slave" else NAME_SERVER_HOST
        pair.part(master, host)
        began = trio.current_time()
        await master.start()
        assert 10 <= trio.current_time() - began < 30
        assert "serving without asking a peer that cannot be reached" in caplog.text
        await pair.send("on")


@pytest.mark.slow
async def test_master_without_room_for_what_it_lacks_waits_for_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It could take no write anyway; and once it has room it would take them beside a slave that has more."""
    async with unflushed_pair() as pair, trio.open_nursery() as nursery:
        first, second = pair.members
        sent = await pair.settle()
        first.fill_disk()
        await pair.change(first, "slave", 2)
        await pair.promote(second)
        sent += await pair.send_many(30, at=second, first=50)
        await pair.change(second, "slave", 1)
        nursery.start_soon(pair.promote, first)
        await trio.sleep(30)
        assert not first.broker.store.writable
        assert caplog.text.count("no writes are taken until there is room") == 1
        first.free_disk()
        await trio.sleep(15)
        assert first.broker.store.writable
        assert await pair.read(first) == sent
        await pair.level(first, second)


async def test_master_gets_its_end_from_a_slave_that_connects_although_nothing_lists_that(
    secret: dict[str, Any],
) -> None:
    """The name server is down, and the master could not store who its slave is."""
    async with unflushed_pair(**secret) as pair:
        master, slave = pair.members
        sent = await pair.settle()
        await pair.cluster.kill_name_server()
        await cut_power(master)
        master.disk.unlink(master.config.config_directory / "slaves.json")
        await master.start()
        assert await pair.read(master) == sent
        await pair.level(master, slave)


@pytest.mark.slow
@pytest.mark.parametrize("is_changed", [False, True])
async def test_master_waits_for_a_slave_while_that_is_configured(is_changed: bool) -> None:
    async with unflushed_pair(ha_return="wait", ha_return_wait=5.0) as pair:
        master, slave = pair.members
        sent = await pair.settle()
        await cut_power(master)
        pair.part(master, slave.host)
        await master.start()
        for _ in range(3):
            refusal = await pair.refused()
            assert slave.host in refusal
            assert "ha_return" in refusal
            await trio.sleep(15)
        if is_changed:
            await pair.configure(master, b"haReturn=serve\n")
            # Asking once more takes 3 s, asking for offsets 5, and looking for another master 1.
            await trio.sleep(10)
            await pair.send("now")
            return
        pair.network.heal()
        await trio.sleep(5)
        assert await pair.read(master) == sent
        await pair.send("now")
        await pair.level()


async def test_slave_that_goes_away_in_the_middle_does_not_hold_the_master_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with unflushed_pair() as pair:
        master, slave = pair.members
        await pair.settle()
        await cut_power(master)
        # Its requests are answered, its log is not.
        slave.broker.ha_service._listener.close()
        await master.start()
        assert "Nothing came from the slave" in caplog.text
        await pair.send("on")


@pytest.mark.parametrize("after", [8, 9.9])
async def test_slave_whose_log_can_be_read_again_is_followed_within_the_limit(after: float) -> None:
    """Also if the time is up before it has sent anything."""
    async with unflushed_pair() as pair:
        master, slave = pair.members
        sent = await pair.settle()
        await cut_power(master)
        pair.network.refuse(slave.broker.ha_address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(master.start)
            await trio.sleep(after)
            pair.network.heal()
        assert await pair.read(master) == sent


@pytest.mark.slow
async def test_slave_that_answers_again_while_another_is_silent_is_asked_before_the_master_serves() -> (
    None
):
    async with unflushed_pair(2) as pair:
        master, unreadable, other = pair.members
        sent = await pair.settle()
        await cut_power(master)
        pair.network.refuse(unreadable.broker.ha_address)
        pair.part(master, other.host)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(master.start)
            await trio.sleep(6)
            pair.network.reconnect(other.host, master.host)
        assert await pair.read(master) == sent


async def test_lone_master_starts_at_once() -> None:
    async with unflushed_pair(0) as pair:
        await pair.send_many(5)
        await cut_power(pair.first)
        began = trio.current_time()
        await pair.first.start()
        assert trio.current_time() - began < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("outage", [0.2, 3.0, 20.0, 90.0])
async def test_master_whose_name_server_was_lost_with_it_still_asks_its_slaves(
    outage: float,
) -> None:
    """They often share a machine. The name server lists no broker at first: the slave has yet to register again."""
    async with unflushed_pair(role="sync-master") as pair:
        await trio.sleep(2)
        sent = await pair.send_many(50)
        await pair.cluster.kill_name_server()
        await cut_power(pair.first)
        await trio.sleep(outage)
        await pair.cluster.restart_name_server()
        broker = await pair.first.start()
        assert broker.store.max_physical_offset > 0
        # Readers see what was fetched once a slave has said that it has it.
        with trio.fail_after(10):
            await broker.store.read_gate.end.wait_reached(broker.store.max_physical_offset)
        assert await pair.read(pair.first) == sent
        await pair.level()


@pytest.mark.slow
async def test_former_master_that_lost_its_name_server_finds_its_successor() -> None:
    async with unflushed_pair() as pair:
        old, new = pair.members
        await pair.cluster.kill_name_server()
        await cut_power(old)
        await pair.promote(new)
        await trio.sleep(60)
        await pair.cluster.restart_name_server()
        broker = await old.start()
        assert (broker.role, broker.config.broker_id) == ("slave", 2)
        assert new.broker.store.writable
        await pair.level(new, old)
        await trio.sleep(60)
        assert broker.role == "slave"
        assert new.broker.store.writable


async def test_former_master_that_follows_no_longer_takes_its_successor_for_a_slave() -> None:
    """Or it would wait for that one, should it die and this one take over again."""
    async with unflushed_pair() as pair:
        old, new = pair.members
        await old.kill()
        await pair.promote(new)
        configure_as(old, "slave", 2)
        await old.start()
        await trio.sleep(5)
        await new.kill()
        started = trio.current_time()
        await pair.promote(old)
        assert old.broker.store.writable
        assert trio.current_time() - started < 4


async def test_stranger_on_an_open_link_is_not_asked_for_messages() -> None:
    async with unflushed_pair(0) as pair:
        broker, stranger = pair.master, "10.0.0.66"
        link = await pair.network.host(stranger).dial(broker.ha_address)
        greeting = Greeting(
            member="m", broker_id=1, begin=0, end=9, highest=0, address=f"{stranger}:10911"
        )
        await ask_welcome(link, greeting)
        assert broker.state.peers.connecting() == []
