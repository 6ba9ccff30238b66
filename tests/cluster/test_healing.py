"""A master that finds another one of its name follows it, and stays its slave until an operator changes that."""

import attrs
import pytest
import trio
from tests.cluster.members import failed_over, level, listed, rival_of, role_of, store
from tests.support.caller import bodies, caller_of

from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.namesrv.routes import RouteInfoManager
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_broker.processors.role import RoleProcessor
from rocketrio_broker.role.file import FILE_NAME
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import (
    GetBrokerConfigRequestHeader,
    GetBrokerHAStatusRequestHeader,
)
from rocketrio_protocol.ha.status import HARuntimeInfo


async def test_returning_master_follows_its_successor_and_starts_as_its_slave_again() -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = await failed_over(cluster, call)
        await first.start()
        # 1 is the id in the settings of the second.
        assert role_of(first) == ("slave", 2)
        await level(first, second)
        assert await listed(cluster) == {0: second.broker.address, 2: first.broker.address}
        assert bodies(await call.pull(first.broker.address, 0)) == [b"one", b"two"]
        # The settings say master still.
        assert first.config.role == "async-master"
        await second.stop()
        for _ in range(2):
            await first.stop()
            await first.start()
            assert role_of(first) == ("slave", 2)
            assert not first.broker.store.writable
        await second.start()
        assert role_of(second) == ("async-master", 0)
        await store(call, second, b"three")
        await level(first, second)


async def test_status_and_settings_name_the_held_and_the_configured_role() -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, _ = await failed_over(cluster, call)
        address = (await first.start()).address
        answer = await call.pool.call(address, GetBrokerHAStatusRequestHeader())
        own = HARuntimeInfo.from_json(answer.body).rocketrio
        assert own is not None
        assert (own.role, own.broker_id) == ("slave", 2)
        assert (own.configured_role, own.configured_broker_id) == ("async-master", 0)
        answer = await call.pool.call(address, GetBrokerConfigRequestHeader())
        settings = parse_properties(answer.body)
        assert (settings["brokerRole"], settings["brokerId"]) == ("SLAVE", "2")
        assert settings["configuredBrokerRole"] == "ASYNC_MASTER"
        assert settings["configuredBrokerId"] == "0"


async def test_pair_that_fails_over_there_and_back_needs_one_order_each_time() -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = await failed_over(cluster, call)
        await first.start()
        await level(first, second)
        await second.kill()
        assert (
            await call.change_role(first.broker.address, "async-master", 0)
        ).code == ResponseCode.SUCCESS
        await store(call, first, b"three")
        await second.start()
        assert role_of(second) == ("slave", 1)
        await level(first, second)
        # What an operator ordered is kept too.
        await first.kill()
        await first.start()
        assert role_of(first) == ("async-master", 0)
        await store(call, first, b"four")
        await level(first, second)
        assert await listed(cluster) == {0: first.broker.address, 1: second.broker.address}


async def test_two_masters_that_start_together_agree_on_the_one_with_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Apache's name server would list the one that registers last.
    monkeypatch.setattr(RouteInfoManager, "_check_only_master", lambda *_: None)
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = await failed_over(cluster, call)
        await second.kill()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.start)
            nursery.start_soon(second.start)
        await trio.sleep(10)
        assert role_of(second) == ("async-master", 0)
        assert role_of(first) == ("slave", 2)
        await store(call, second, b"three")
        await level(first, second)


async def test_of_two_slaves_promoted_at_once_one_becomes_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RouteInfoManager, "_check_only_master", lambda *_: None)
    async with EmbeddedCluster(slaves=2) as cluster, caller_of(cluster) as call:
        await trio.sleep(2)
        await cluster.kill_master()
        codes: list[int] = []

        async def promote(member: Member) -> None:
            codes.append((await call.change_role(member.broker.address, "async-master", 0)).code)

        async with trio.open_nursery() as nursery:
            for slave in cluster.slaves:
                nursery.start_soon(promote, slave)
        assert sorted(role_of(slave)[0] for slave in cluster.slaves) == ["async-master", "slave"]
        assert sorted(codes) == [ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE]
        master, slave = sorted(cluster.slaves, key=lambda one: role_of(one)[0])
        await store(call, master, b"hello")
        await level(master, slave)


async def test_two_that_come_to_follow_at_once_get_two_ids() -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = await failed_over(cluster, call)
        rival = rival_of(cluster)
        rival.config = attrs.evolve(rival.config, ha_return_role="follow")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.start)
            nursery.start_soon(rival.start)
        await level(first, second, rival)
        assert sorted([role_of(first), role_of(rival)]) == [("slave", 2), ("slave", 3)]
        assert set(await listed(cluster)) == {0, 2, 3}


async def test_master_that_a_name_server_refuses_takes_no_write() -> None:
    """The live master is out of its sight: only the name server knows."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = cluster.master, cluster.slaves[0]
        await trio.sleep(2)
        cluster.memory_network.partition(first.host, second.host)
        writable = []

        async def watch() -> None:
            while True:
                writable.append(second.broker.store.writable)
                await trio.lowlevel.checkpoint()
                await trio.sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            answer = await call.change_role(second.broker.address, "async-master", 0)
            nursery.cancel_scope.cancel()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert f"lists {first.broker.address} as master" in (answer.remark or "")
        assert not any(writable)
        assert role_of(second) == ("slave", 1)
        assert await listed(cluster) == {0: first.broker.address, 1: second.broker.address}
        cluster.memory_network.heal()
        await trio.sleep(30)
        await store(call, first, b"on")
        await level(first, second)


async def test_master_beside_one_of_apache_stands_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(RoleProcessor, "claim_slave_id")
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        rival = rival_of(cluster)
        rival.config = attrs.evolve(rival.config, ha_return_role="follow")
        await rival.start()
        assert role_of(rival) == ("async-master", 0)
        answer = await call.send(rival.broker.address, b"to nobody")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "another live master" in (answer.remark or "")


async def test_changed_settings_decide_the_role_again() -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, _ = await failed_over(cluster, call)
        await first.start()
        assert first.disk.exists(first.config.config_directory / FILE_NAME)
        await first.stop()
        first.config = attrs.evolve(first.config, role="slave", broker_id=7)
        await first.start()
        assert role_of(first) == ("slave", 7)


async def test_master_that_only_one_of_two_name_servers_takes_leaves_the_list() -> None:
    """The other one knows the live master, which is out of this one's sight, as the first name server is of that."""
    async with EmbeddedCluster() as cluster:
        network, rival = cluster.memory_network, rival_of(cluster)
        second_name_server = NameServer([await network.host("10.0.0.8").listen("10.0.0.8:9876")])
        await cluster.nursery.start(second_name_server.run)
        network.partition(cluster.master.host, rival.host)
        rival.config = attrs.evolve(
            rival.config, namesrv=f"{rival.config.namesrv};{second_name_server.addr}"
        )
        await rival.start()
        times_listed = 0
        for _ in range(600):
            await trio.sleep(0.1)
            assert not rival.broker.store.writable
            times_listed += "broker-a" in second_name_server.routes.broker_addr_table
        assert times_listed < 6  # It tries again now and then.
