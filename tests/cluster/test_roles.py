"""Roles: one master of a name at a time, and brokers that change theirs while traffic flows."""

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import attrs
import pytest
import trio
from tests.cluster.members import RIVAL, listed, rival_of
from tests.support.caller import Caller, accepted, bodies, caller_of
from tests.support.replication import log_bytes

from rocketrio_broker.embedded import NAME_SERVER_HOST, EmbeddedCluster, Member
from rocketrio_broker.namesrv.routes import RouteInfoManager
from rocketrio_broker.role.file import FILE_NAME as ROLE_FILE
from rocketrio_broker.role.service import OTHER_MASTER_CHECK_INTERVAL
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    CreateTopicRequestHeader,
    DeleteTopicInBrokerRequestHeader,
)


async def store_with_keys(call: Caller, addr: str) -> None:
    """Store two messages with properties so long that a torn end lies in them."""
    for body in (b"first", b"second"):
        answer = await call.send(addr, body, properties="KEYS\x01" + 40 * "k")
        assert answer.code == ResponseCode.SUCCESS


def tear_end(member: Member, end: int) -> None:
    """Overwrite the last bytes of the log of a broker that is down."""
    log = member.disk.open(member.config.data / "commitlog" / f"{0:020d}")
    log.pwrite(bytes(17), end - 17)


async def test_second_master_takes_no_writes_and_reports_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        first = cluster.master.broker.address
        rival = rival_of(cluster)
        await rival.start()
        answer = await call.send(rival.broker.address, b"to nobody")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert f"another live master, at {first}" in (answer.remark or "")
        assert "no writes are taken" in caplog.text
        assert rival.broker.store.max_physical_offset == 0
        assert await listed(cluster) == {0: first}
        assert (await call.send(first, b"as ever")).code == ResponseCode.SUCCESS


async def test_second_master_stands_aside_where_the_name_server_would_list_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Apache's name server lists the one that registered last.
    monkeypatch.setattr(RouteInfoManager, "_check_only_master", lambda *_: None)
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        first = cluster.master.broker.address
        rival = rival_of(cluster)
        await rival.start()
        answer = await call.send(rival.broker.address, b"to nobody")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        await trio.sleep(60)
        assert await listed(cluster) == {0: first}


async def test_dead_master_that_is_still_listed_does_not_delay_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RouteInfoManager, "_check_only_master", lambda *_: None)
    monkeypatch.setattr(RouteInfoManager, "channel_closed", lambda *_: None)
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        await cluster.kill_master()
        rival = rival_of(cluster)
        started = trio.current_time()
        await rival.start()
        assert trio.current_time() - started < 4
        assert (await call.send(rival.broker.address, b"mine")).code == ResponseCode.SUCCESS


async def test_second_master_takes_over_when_the_first_is_gone() -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        rival = rival_of(cluster)
        await rival.start()
        await cluster.kill_master()
        await trio.sleep(2 * OTHER_MASTER_CHECK_INTERVAL)
        assert (await call.send(rival.broker.address, b"now it is mine")).code == 0
        assert await listed(cluster) == {0: rival.broker.address}


@pytest.mark.parametrize("outage", [0.5, 3.0, 6.0, 21.0, 70.0])
async def test_second_master_stands_aside_through_an_outage_of_the_name_server(
    outage: float,
) -> None:
    """It lists no broker when it comes back, and the first registers again a little later."""
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        first, rival = cluster.master, rival_of(cluster)
        await rival.start()
        await cluster.kill_name_server()
        await trio.sleep(outage)
        await cluster.restart_name_server()
        for _ in range(600):
            await trio.sleep(0.1)
            assert first.broker.store.writable
            assert not rival.broker.store.writable
        assert await listed(cluster) == {0: first.broker.address}
        await first.kill()
        await trio.sleep(2 * OTHER_MASTER_CHECK_INTERVAL)
        assert (await call.send(rival.broker.address, b"now it is mine")).code == 0


async def test_slave_asks_the_master_it_followed_before_it_takes_over() -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        slave = cluster.slaves[0].broker
        await trio.sleep(1)
        await cluster.kill_name_server()
        await call.change_role(slave.address, "async-master", 0)
        assert not slave.store.writable
        assert cluster.master.broker.store.writable


async def test_slave_asks_the_master_that_a_new_name_server_does_not_list_yet() -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        slave = cluster.slaves[0].broker
        await trio.sleep(1)
        cluster.memory_network.partition(cluster.master.host, NAME_SERVER_HOST)
        await cluster.kill_name_server()
        await trio.sleep(0.1)
        await cluster.restart_name_server()
        await trio.sleep(5)
        assert slave.state.registration.master.addr is None
        await call.change_role(slave.address, "async-master", 0)
        assert not slave.store.writable
        assert cluster.master.broker.store.writable


async def test_slave_gets_what_it_lacks_from_the_former_master_that_no_name_server_lists() -> None:
    """The operator looked at nothing: neither how far the slave was, nor whether there is a name server."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        former, slave = cluster.master.broker, cluster.slaves[0].broker
        await call.send(former.address, b"first")
        await trio.sleep(1)
        await cluster.kill_name_server()
        cluster.memory_network.cut(cluster.master.host, cluster.slaves[0].host)
        await call.send(former.address, b"second")
        await call.change_role(former.address, "slave", 1)
        assert slave.store.max_physical_offset < former.store.max_physical_offset
        assert (
            await call.change_role(slave.address, "async-master", 0)
        ).code == ResponseCode.SUCCESS
        assert bodies(await call.pull(slave.address, 0)) == [b"first", b"second"]


async def test_promoted_slave_that_loses_its_end_asks_the_former_master_that_no_name_server_lists() -> (
    None
):
    async with (
        EmbeddedCluster(slaves=1, role="sync-master", ha_return_wait=1.0) as cluster,
        caller_of(cluster) as call,
    ):
        former, member = cluster.master.broker, cluster.slaves[0]
        await trio.sleep(2)
        cluster.memory_network.silence(NAME_SERVER_HOST)
        await store_with_keys(call, former.address)
        await call.change_role(former.address, "slave", 1)
        role_file = member.config.data / "config" / "rocketrioRole.json"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.change_role, member.broker.address, "sync-master", 0)
            while not member.disk.exists(role_file):  # noqa: ASYNC110
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        end = member.broker.store.max_physical_offset
        await member.kill()
        tear_end(member, end)
        await member.start()
        assert member.disk.list_directory(member.config.data / "cut")
        assert log_bytes(member.broker.store) == log_bytes(former.store)


async def test_promoted_slave_that_loses_its_end_asks_a_former_master_that_comes_back() -> None:
    """It is not waited for; but while a name server is, it is asked too."""
    async with (
        EmbeddedCluster(slaves=1, role="sync-master", ha_return_wait=20.0) as cluster,
        caller_of(cluster) as call,
    ):
        former, member = cluster.master.broker, cluster.slaves[0]
        await trio.sleep(2)
        await store_with_keys(call, former.address)
        await cluster.kill_name_server()
        await call.change_role(former.address, "slave", 1)
        assert (await call.change_role(member.broker.address, "sync-master", 0)).code == 0
        end = former.store.max_physical_offset
        await member.kill()
        tear_end(member, end)
        hosts = cluster.master.host, member.host
        cluster.memory_network.partition(*hosts)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.start)
            await trio.sleep(10)
            cluster.memory_network.reconnect(*hosts)
        assert log_bytes(member.broker.store)[:end] == log_bytes(former.store)[:end]


async def test_new_master_has_the_topics_of_the_former_one_that_no_name_server_lists() -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        former, slave = cluster.master.broker, cluster.slaves[0].broker
        await trio.sleep(3)
        header = CreateTopicRequestHeader("new", "TBW102", 3, 3, 6, "SINGLE_TAG", order=False)
        await call.pool.call(former.address, header)
        await cluster.kill_name_server()
        await call.change_role(former.address, "slave", 1)
        assert slave.state.topics.topic_config("new") is None
        assert (await call.change_role(slave.address, "async-master", 0)).code == 0
        found = slave.state.topics.topic_config("new")
        assert found is not None
        assert found.read_queue_nums == 3


@asynccontextmanager
async def successor_that_will_wait(
    ha_return_wait: float,
) -> AsyncIterator[tuple[EmbeddedCluster, Member, Callable[[], Awaitable[RemotingCommand]]]]:
    """A cluster without a master; the slave that is to be master, which cannot ask the other one; the order to it."""
    async with (
        EmbeddedCluster(slaves=2, ha_return="wait", ha_return_wait=ha_return_wait) as cluster,
        caller_of(cluster) as call,
    ):
        former, (successor, other) = cluster.master.broker, cluster.slaves
        await trio.sleep(3)
        header = CreateTopicRequestHeader("new", "TBW102", 3, 3, 6, "SINGLE_TAG", order=False)
        await call.pool.call(former.address, header)
        await call.change_role(former.address, "slave", 3)
        cluster.partition(successor, other)
        order = partial(call.change_role, successor.broker.address, "async-master", 0)
        yield cluster, successor, order


async def test_topic_stays_at_a_slave_whose_new_master_has_not_taken_over_yet() -> None:
    """It is listed while it waits for another slave, and lacks the topic until it asks for it."""
    async with (
        successor_that_will_wait(1.0) as (cluster, successor, order),
        trio.open_nursery() as nursery,
    ):
        former = cluster.master.broker
        nursery.start_soon(order)
        await trio.sleep(10)
        assert (await listed(cluster))[0] == successor.broker.address
        copies = former.state.slave_statistics()
        assert copies is not None
        assert copies.tables.master_addr == successor.broker.address
        assert "does not lead" in (copies.tables.last_problem or "")
        assert former.state.topics.topic_config("new") is not None
        cluster.heal()
        await trio.sleep(20)
        for member in cluster.members:
            assert member.broker.state.topics.topic_config("new") is not None


async def test_role_that_was_answered_survives_a_crash_although_the_new_master_still_waits() -> (
    None
):
    """It waits for a slave that may have more, and takes no writes yet."""
    async with successor_that_will_wait(1.0) as (_, successor, order):
        answer = await order()
        assert answer.code == 0, answer.remark
        assert not successor.broker.store.writable
        await successor.kill()
        await successor.start()
        assert successor.broker.role == "async-master"


async def test_no_name_server_lists_a_slave_as_master_from_the_moment_of_the_order() -> None:
    """It registers for another reason at that moment, and waits for a slave that may have more of the log."""
    async with (
        successor_that_will_wait(5.0) as (cluster, successor, order),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(order)
        for number in range(100):
            successor.broker.state.topics.update(TopicConfig(f"orders-{number}"))
            await trio.lowlevel.checkpoint()
        await trio.sleep(1)
        assert 0 not in await listed(cluster)


async def test_masters_that_start_together_do_not_both_take_writes() -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        rival = rival_of(cluster)
        await cluster.master.stop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.master.start)
            nursery.start_soon(rival.start)
        await trio.sleep(2)
        codes = [
            (await call.send(member.broker.address, b"mine?")).code
            for member in (cluster.master, rival)
        ]
        assert sorted(codes) == [ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE]
        winner = (cluster.master, rival)[codes.index(ResponseCode.SUCCESS)]
        assert await listed(cluster) == {0: winner.broker.address}


async def test_masters_that_start_together_without_a_name_server_do_not_both_take_writes() -> None:
    """Neither answers the other's first search. The one that claims later finds the other by its second."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = cluster.master, cluster.slaves[0]
        await trio.sleep(2)
        await first.stop()
        accepted(await call.change_role(second.broker.address, "async-master", 0))
        await first.start()
        await trio.sleep(5)
        assert first.broker.state.config.broker.is_slave
        await first.stop()
        await second.stop()
        first.disk.unlink(first.config.config_directory / ROLE_FILE)
        await cluster.kill_name_server()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.start)
            nursery.start_soon(second.start)
        await trio.sleep(30)
        assert sum(member.broker.store.writable for member in (first, second)) == 1


async def test_master_that_was_refused_later_stands_aside_until_it_is_listed() -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        rival = rival_of(cluster)
        # The rival cannot reach the name server at first, so it serves.
        cluster.memory_network.partition(RIVAL, "10.0.0.9")
        await rival.start()
        assert (await call.send(rival.broker.address, b"alone?")).code == ResponseCode.SUCCESS
        cluster.memory_network.heal()
        await trio.sleep(40)
        answer = await call.send(rival.broker.address, b"not any more")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await call.send(cluster.master.broker.address, b"it is")).code == 0


@pytest.mark.parametrize("master_role", ["async-master", "sync-master"])
async def test_master_and_slave_change_places_under_load(master_role: str) -> None:
    async with EmbeddedCluster(slaves=1, slave_read_enable=True) as cluster:
        old, new = cluster.master.broker, cluster.slaves[0].broker
        acknowledged: list[bytes] = []
        async with caller_of(cluster) as call:
            await trio.sleep(1)

            async def produce() -> None:
                for number in range(400):
                    body = b"%d" % number
                    for broker in (old, new):
                        if (await call.send(broker.address, body)).code == ResponseCode.SUCCESS:
                            acknowledged.append(body)
                            break
                    await trio.sleep(0.05)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                await trio.sleep(5)
                assert (
                    await call.change_role(old.address, "slave", 2)
                ).code == ResponseCode.SUCCESS
                # Everything the old master took reaches the new one before that takes over.
                await new.store.appended.wait_reached(old.store.max_physical_offset)
                assert (
                    await call.change_role(new.address, master_role, 0)
                ).code == ResponseCode.SUCCESS
            await trio.sleep(5)
            assert await listed(cluster) == {0: new.address, 2: old.address}
            assert old.store.max_physical_offset == new.store.max_physical_offset
            for broker in (new, old):
                read = await call.read(broker.address)
                assert set(read) >= set(acknowledged)
                assert len(acknowledged) > 350
                assert read == sorted(read, key=int)


@pytest.mark.parametrize("restarted_as", [None, "slave", "async-master"])
async def test_what_was_acknowledged_can_be_read_at_the_successor_however_new_its_topic(
    restarted_as: Literal["slave", "async-master"] | None,
) -> None:
    """A slave copies the topics every ten seconds; the message that created one is there at once."""
    async with (
        EmbeddedCluster(slaves=1, role="sync-master") as cluster,
        caller_of(cluster) as call,
    ):
        member = cluster.slaves[0]
        await trio.sleep(3)
        sent = await call.send(cluster.master.broker.address, b"first of all", topic="new")
        assert sent.code == ResponseCode.SUCCESS
        await cluster.kill_master()
        assert member.broker.state.topics.topic_config("new") is None
        if restarted_as is not None:
            await member.kill()
            broker_id = 1 if restarted_as == "slave" else 0
            member.config = attrs.evolve(member.config, role=restarted_as, broker_id=broker_id)
            await member.start()
        successor = member.broker
        if restarted_as != "async-master":
            await call.change_role(successor.address, "async-master", 0)
        assert bodies(await call.pull(successor.address, 0, topic="new")) == [b"first of all"]
        assert await listed(cluster) == {0: successor.address}


async def test_topic_that_was_deleted_stays_so_at_the_successor() -> None:
    """Its messages are in the log as before."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        master, successor = cluster.master.broker, cluster.slaves[0].broker
        await call.send(master.address, b"rubbish", topic="gone")
        await trio.sleep(11)
        assert successor.state.topics.topic_config("gone") is not None
        await call.pool.call(master.address, DeleteTopicInBrokerRequestHeader("gone"))
        await trio.sleep(11)
        await cluster.kill_master()
        await call.change_role(successor.address, "async-master", 0)
        assert successor.state.topics.topic_config("gone") is None


async def test_role_that_cannot_be_is_refused_and_nothing_changes() -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        master = cluster.master.broker
        for role, broker_id in (("slave", 0), ("slave", -1), ("async-master", 1), ("emperor", 0)):
            answer = await call.change_role(master.address, role, broker_id)
            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert answer.remark
        assert master.config.role == "async-master"
        assert master.config.broker_id == 0
        assert (await call.send(master.address, b"still here")).code == ResponseCode.SUCCESS


class FullDisk(MemoryDisk):
    """A disk that may have no room for the role."""

    is_full = False

    def rename(self, old: Path, new: Path) -> None:
        if self.is_full and new.name == "rocketrioRole.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        super().rename(old, new)


async def test_slave_whose_disk_cannot_keep_the_role_refuses_to_be_master() -> None:
    """Taken all the same it would be gone with the next restart, and there would be no master then."""
    async with (
        EmbeddedCluster(slaves=1, make_disk=FullDisk) as cluster,
        caller_of(cluster) as call,
    ):
        slave = cluster.slaves[0]
        disk = slave.disk
        assert isinstance(disk, FullDisk)
        await trio.sleep(2)
        offsets = slave.broker.state.consumer_offsets
        offsets.commit_offset("g", "orders", 0, 5)  # As copied faster than the messages.
        await cluster.kill_master()
        disk.is_full = True
        answer = await call.change_role(slave.broker.address, "async-master", 0)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "remains a slave" in answer.remark
        assert "No space left" in answer.remark
        assert slave.broker.role == "slave"
        assert (offsets.query_offset("g", "orders", 0), offsets.messages_cut) == (5, 0)
        disk.is_full = False
        assert (
            await call.change_role(slave.broker.address, "async-master", 0)
        ).code == ResponseCode.SUCCESS
        assert (offsets.query_offset("g", "orders", 0), offsets.messages_cut) == (0, 5)
        await slave.kill()
        assert (await slave.start()).role == "async-master"


async def test_slave_follows_a_master_that_came_later_within_seconds() -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        slave = cluster.slaves[0]
        await slave.stop()
        await cluster.master.stop()
        await slave.start()
        await trio.sleep(20)
        master = await cluster.master.start()
        started = trio.current_time()
        await call.send(master.address, b"hello")
        await slave.broker.store.appended.wait_reached(master.store.max_physical_offset)
        assert trio.current_time() - started < 4
