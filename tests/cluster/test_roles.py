"""Roles: one master of a name at a time, and brokers that change theirs while traffic flows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
import trio
from tests.cluster.load import Load
from tests.cluster.members import RIVAL, configure_as, cut_files, damage, forget_role, rival_of
from tests.cluster.stores import keyed_pair
from tests.support.pair import Pair, pair_of
from tests.support.replication import log_bytes
from tests.support.waiting import eventually

from rocketrio_broker.embedded import NAME_SERVER_HOST
from rocketrio_broker.namesrv.routes import RouteInfoManager
from rocketrio_broker.role.file import FILE_NAME
from rocketrio_broker.role.service import OTHER_MASTER_CHECK_INTERVAL
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import DeleteTopicInBrokerRequestHeader


@pytest.mark.slow
@pytest.mark.parametrize("outage", [0.0, 0.5, 3.0, 6.0, 21.0, 70.0])
async def test_second_master_stands_aside_until_the_first_is_gone(
    caplog: pytest.LogCaptureFixture, outage: float
) -> None:
    """After an outage the name server lists no broker, and the first registers again a little later."""
    async with pair_of(0) as pair:
        first, rival = pair.first, rival_of(pair.cluster)
        await rival.start()
        assert f"another live master, at {first.broker.address}" in await pair.refused(at=rival)
        assert "no writes are taken" in caplog.text
        if outage:
            await pair.cluster.kill_name_server()
            await trio.sleep(outage)
            await pair.cluster.restart_name_server()
        for _ in range(600):
            await trio.sleep(0.1)
            assert first.broker.store.writable
            assert not rival.broker.store.writable
        assert await pair.listed() == {0: first.broker.address}
        await pair.send("as ever")
        await first.kill()
        await trio.sleep(2 * OTHER_MASTER_CHECK_INTERVAL)
        await pair.send("now it is mine", at=rival)
        assert await pair.listed() == {0: rival.broker.address}


@pytest.mark.usefixtures("lists_the_latest")
async def test_second_master_stands_aside_where_the_name_server_would_list_it() -> None:
    async with pair_of(0) as pair:
        rival = rival_of(pair.cluster)
        await rival.start()
        await pair.refused(at=rival)
        await trio.sleep(60)
        assert await pair.listed() == {0: pair.master.address}


@pytest.mark.usefixtures("lists_the_latest")
async def test_dead_master_that_is_still_listed_does_not_delay_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RouteInfoManager, "channel_closed", lambda *_: None)
    async with pair_of(0) as pair:
        await pair.first.kill()
        rival = rival_of(pair.cluster)
        started = trio.current_time()
        await rival.start()
        assert trio.current_time() - started < 4
        await pair.send("mine", at=rival)


@pytest.mark.parametrize("name_server", ["down", "new"])
async def test_slave_asks_the_master_that_no_name_server_lists(name_server: str) -> None:
    """It followed it until a moment ago."""
    async with pair_of() as pair:
        first, second = pair.members
        pair.network.partition(first.host, NAME_SERVER_HOST)
        await pair.cluster.kill_name_server()
        if name_server == "new":
            await trio.sleep(0.1)
            await pair.cluster.restart_name_server()
            await trio.sleep(5)
            assert second.broker.state.registration.master.addr is None
        await pair.refused_promotion(second)
        assert not second.broker.store.writable
        assert first.broker.store.writable


async def test_promoted_slave_gets_all_of_the_former_master_that_no_name_server_lists() -> None:
    """The operator looked at nothing: neither how far the slave was, nor whether there is a name server."""
    async with pair_of() as pair:
        former, slave = pair.members
        await pair.send("first")
        await trio.sleep(1)
        await pair.caller.create_topic(former.broker.address, "new", 3)
        await pair.cluster.kill_name_server()
        pair.network.cut(former.host, slave.host)
        await pair.send("second")
        await pair.change(former, "slave", 1)
        ends = [member.broker.store.max_physical_offset for member in (slave, former)]
        assert ends[0] < ends[1]
        assert slave.broker.state.topics.topic_config("new") is None
        await pair.promote(slave)
        assert await pair.read(slave) == ["first", "second"]
        found = slave.broker.state.topics.topic_config("new")
        assert found is not None
        assert found.read_queue_nums == 3


async def test_promoted_slave_that_loses_its_end_asks_the_unlisted_former_master() -> None:
    async with keyed_pair(role="sync-master", ha_return_wait=1.0) as pair:
        former, member = pair.members
        pair.network.silence(NAME_SERVER_HOST)
        await pair.send("first", "second")
        await pair.change(former, "slave", 1)
        role_file = member.config.config_directory / FILE_NAME
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.promote, member)
            await eventually(lambda: member.disk.exists(role_file))
            nursery.cancel_scope.cancel()
        end = member.broker.store.max_physical_offset
        await member.kill()
        damage(member, end - 17, bytes(17))
        await member.start()
        assert cut_files(member)
        assert log_bytes(member.broker.store) == log_bytes(former.broker.store)


@pytest.mark.slow
async def test_promoted_slave_that_loses_its_end_asks_a_former_master_that_comes_back() -> None:
    """It is not waited for; but while a name server is, it is asked too."""
    async with keyed_pair(role="sync-master", ha_return_wait=20.0) as pair:
        former, member = pair.members
        await pair.send("first", "second")
        await pair.cluster.kill_name_server()
        await pair.change(former, "slave", 1)
        await pair.promote(member)
        end = former.broker.store.max_physical_offset
        await member.kill()
        damage(member, end - 17, bytes(17))
        pair.network.partition(former.host, member.host)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.start)
            await trio.sleep(10)
            pair.network.reconnect(former.host, member.host)
        assert log_bytes(member.broker.store)[:end] == log_bytes(former.broker.store)[:end]


@asynccontextmanager
async def successor_will_wait(seconds: float) -> AsyncIterator[Pair]:
    """The first broker is a slave with a topic of its own, and the second, which is to lead, cannot ask the third."""
    async with pair_of(2, ha_return="wait", ha_return_wait=seconds) as pair:
        await trio.sleep(1)
        await pair.caller.create_topic(pair.master.address, "new", 3)
        await pair.change(pair.first, "slave", 3)
        pair.cluster.partition(*pair.cluster.slaves)
        yield pair


@pytest.mark.slow
async def test_topic_stays_at_a_slave_whose_new_master_has_not_taken_over_yet() -> None:
    """It is listed while it waits for another slave, and lacks the topic until it asks for it."""
    async with successor_will_wait(1.0) as pair, trio.open_nursery() as nursery:
        former = pair.master.state
        nursery.start_soon(pair.promote, pair.second)
        await trio.sleep(10)
        assert (await pair.listed())[0] == pair.slave.address
        copies = former.slave_statistics()
        assert copies is not None
        assert copies.tables.master_addr == pair.slave.address
        assert "does not lead" in (copies.tables.last_problem or "")
        assert former.topics.topic_config("new") is not None
        pair.network.heal()
        await trio.sleep(20)
        for member in pair.members:
            assert member.broker.state.topics.topic_config("new") is not None


@pytest.mark.slow
async def test_role_that_was_answered_survives_a_crash_of_a_master_that_still_waits() -> None:
    async with successor_will_wait(1.0) as pair:
        await pair.promote(pair.second)
        assert not pair.slave.store.writable
        await pair.second.kill()
        assert (await pair.second.start()).role == "async-master"


async def test_no_name_server_lists_a_slave_as_master_from_the_moment_of_the_order() -> None:
    """It registers for another reason at that moment, and waits for a slave that may have more of the log."""
    async with successor_will_wait(5.0) as pair, trio.open_nursery() as nursery:
        nursery.start_soon(pair.promote, pair.second)
        for number in range(100):
            pair.slave.state.topics.update(TopicConfig(f"orders-{number}"))
            await trio.lowlevel.checkpoint()
        await trio.sleep(1)
        assert 0 not in await pair.listed()


@pytest.mark.slow
async def test_masters_that_start_together_without_a_name_server_do_not_both_take_writes() -> None:
    """Neither answers the other's first search. The one that claims later finds the other by its second."""
    async with pair_of() as pair:
        first, second = pair.members
        await first.stop()
        await pair.promote(second)
        await first.start()
        await trio.sleep(5)
        assert first.broker.state.config.broker.is_slave
        await first.stop()
        await second.stop()
        forget_role(first)
        await pair.cluster.kill_name_server()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.start)
            nursery.start_soon(second.start)
        await trio.sleep(30)
        assert sum(member.broker.store.writable for member in pair.members) == 1


async def test_master_that_was_refused_later_stands_aside_until_it_is_listed() -> None:
    async with pair_of(0) as pair:
        rival = rival_of(pair.cluster)
        # The rival cannot reach the name server at first, so it serves.
        pair.network.partition(RIVAL, NAME_SERVER_HOST)
        await rival.start()
        await pair.send("alone?", at=rival)
        pair.network.heal()
        await trio.sleep(40)
        await pair.refused(at=rival)
        await pair.send("it is")


@pytest.mark.slow
async def test_master_and_slave_change_places_under_load() -> None:
    async with pair_of(slave_read_enable=True) as pair:
        load = Load(pair)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await trio.sleep(2)
            await pair.change(pair.first, "slave", 2)
            # Everything the old master took reaches the new one before that takes over.
            end = pair.master.store.max_physical_offset
            await pair.slave.store.appended.wait_reached(end)
            await pair.promote(pair.second, "sync-master")
            await trio.sleep(2)
            nursery.cancel_scope.cancel()
        assert await pair.listed() == {0: pair.slave.address, 2: pair.master.address}
        await load.assert_kept()


@pytest.mark.parametrize("restarted_as", [None, "slave", "async-master"])
async def test_what_was_acknowledged_can_be_read_at_the_successor_however_new_its_topic(
    restarted_as: Literal["slave", "async-master"] | None,
) -> None:
    """A slave copies the topics every ten seconds; the message that created one is there at once."""
    async with pair_of(role="sync-master") as pair:
        member = pair.second
        await trio.sleep(1)
        await pair.send("first of all", topic="new")
        await pair.first.kill()
        assert member.broker.state.topics.topic_config("new") is None
        if restarted_as is not None:
            await member.kill()
            configure_as(member, restarted_as, 1 if restarted_as == "slave" else 0)
            await member.start()
        if restarted_as != "async-master":
            await pair.promote(member, "async-master")
        assert await pair.read(member, topic="new") == ["first of all"]
        assert await pair.listed() == {0: member.broker.address}


async def test_topic_that_was_deleted_stays_so_at_the_successor() -> None:
    """Its messages are in the log as before."""
    async with pair_of() as pair:
        topics = pair.slave.state.topics
        await pair.send("rubbish", topic="gone")
        await trio.sleep(11)
        assert topics.topic_config("gone") is not None
        header = DeleteTopicInBrokerRequestHeader("gone")
        await pair.caller.pool.call(pair.master.address, header)
        await trio.sleep(11)
        await pair.first.kill()
        await pair.promote(pair.second)
        assert topics.topic_config("gone") is None


async def test_role_that_cannot_be_is_refused_and_nothing_changes() -> None:
    async with pair_of() as pair:
        master = pair.master
        for role, broker_id in (("slave", 0), ("slave", -1), ("async-master", 1), ("emperor", 0)):
            answer = await pair.caller.change_role(master.address, role, broker_id)
            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert answer.remark
        assert (master.config.role, master.config.broker_id) == ("async-master", 0)
        await pair.send("still here")


async def test_slave_whose_disk_cannot_keep_the_role_refuses_to_be_master() -> None:
    """Taken all the same it would be gone with the next restart, and there would be no master then."""
    async with pair_of() as pair:
        slave = pair.second
        offsets = slave.broker.state.consumer_offsets
        offsets.commit_offset("g", "orders", 0, 5)  # As copied faster than the messages.
        await pair.first.kill()
        slave.fill_disk()
        refusal = await pair.refused_promotion(slave)
        assert "remains a slave" in refusal
        assert "No space left" in refusal
        assert slave.broker.role == "slave"
        assert (offsets.query_offset("g", "orders", 0), offsets.messages_cut) == (5, 0)
        slave.free_disk()
        await pair.promote(slave)
        assert (offsets.query_offset("g", "orders", 0), offsets.messages_cut) == (0, 5)
        await slave.kill()
        assert (await slave.start()).role == "async-master"


@pytest.mark.slow
async def test_slave_follows_a_master_that_came_later_within_seconds() -> None:
    async with pair_of() as pair:
        first, slave = pair.members
        await slave.stop()
        await first.stop()
        await slave.start()
        await trio.sleep(20)
        await first.start()
        started = trio.current_time()
        await pair.send("hello")
        await slave.broker.store.appended.wait_reached(first.broker.store.max_physical_offset)
        assert trio.current_time() - started < 4
