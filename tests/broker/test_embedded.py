"""The cluster in one process: in memory under a virtual clock, and on loopback ports."""

import shutil
import socket
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio.testing
from tests.support.caller import bodies, caller_of
from tests.support.waiting import HANGS, eventually
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.cluster import (
    GetBrokerClusterInfoRequestHeader,
    GetRouteInfoRequestHeader,
)
from rocketrio_protocol.errors import ClosedError, NotReachableError
from rocketrio_protocol.remoting.ports import split_addr


async def test_members_of_a_cluster_are_registered_with_their_addresses(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster(slaves=2) as cluster, caller_of(cluster) as caller:
        answer = await caller.pool.call(
            cluster.name_servers[0], GetBrokerClusterInfoRequestHeader()
        )
        info = ClusterInfo.from_json(answer.body)
        assert info.broker_addr_table["broker-a"].broker_addrs == {
            0: "10.0.0.10:10911",
            1: "10.0.0.11:10911",
            2: "10.0.0.12:10911",
        }
        assert [member.broker.role for member in cluster.members] == [
            "async-master",
            "slave",
            "slave",
        ]
        assert cluster.master.broker.ha_address == "10.0.0.10:10912"


async def test_the_master_can_be_a_synchronous_one(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(slaves=1, role="sync-master") as cluster:
        assert [member.broker.role for member in cluster.members] == ["sync-master", "slave"]


async def test_killed_master_comes_back_with_what_it_had(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        for number in range(5):
            await caller.send(addr, b"%d" % number)
        await cluster.kill_master()
        with pytest.raises(ClosedError):
            _ = cluster.master.broker
        with pytest.raises(NotReachableError):
            await caller.pull(addr, 0)
        broker = await cluster.restart_master()
        assert broker.address == addr
        assert bodies(await caller.pull(addr, 0)) == [b"0", b"1", b"2", b"3", b"4"]
        assert (await caller.send(addr, b"5")).ext_fields["queueOffset"] == "5"


async def test_kill_leaves_a_crash_and_stop_does_not(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        member = cluster.master
        abort = member.config.data / "abort"
        await caller.send(member.broker.address, b"x")
        await member.kill()
        assert member.disk.exists(abort)
        await member.start()
        await member.stop()
        assert not member.disk.exists(abort)


async def test_stopped_broker_takes_leave_of_the_name_server(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        await caller.send(cluster.master.broker.address, b"x")
        await cluster.master.stop()
        answer = await caller.pool.call(
            cluster.name_servers[0], GetBrokerClusterInfoRequestHeader()
        )
        table = ClusterInfo.from_json(answer.body).broker_addr_table
        assert list(table["broker-a"].broker_addrs) == [1]


@pytest.mark.slow
async def test_offsets_committed_to_the_slave_come_back_to_the_master(
    autojump_clock: MockClock,
) -> None:
    """The recorded story of Apache (tests/golden/5.3.3-split) ends at 0; this one must not."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        master, slave = cluster.master.broker.address, cluster.slaves[0].broker.address
        for _ in range(130):
            await caller.send(master, b"x")
        await caller.commit(master, 32)
        await trio.sleep(15)
        await cluster.kill_master()
        assert await caller.committed(slave) == 32
        await caller.commit(slave, 120)
        await trio.sleep(30)
        await cluster.restart_master()
        assert await caller.committed(master) == 120
        await trio.sleep(60)
        assert await caller.committed(slave) == 120


async def test_topic_is_routed_as_soon_as_its_first_message_is_stored(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        await caller.send(cluster.master.broker.address, b"x", topic="fresh")
        await trio.testing.wait_all_tasks_blocked()
        answer = await caller.pool.call(cluster.name_servers[0], GetRouteInfoRequestHeader("fresh"))
        assert answer.code == ResponseCode.SUCCESS


async def test_error_of_the_body_comes_out_as_it_is(autojump_clock: MockClock) -> None:
    with pytest.raises(ValueError, match="mine"):
        async with EmbeddedCluster(slaves=1):
            raise ValueError("mine")


async def test_two_clusters_do_not_meet(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as one, EmbeddedCluster() as other, caller_of(one) as caller:
        await caller.send(one.master.broker.address, b"x")
        assert other.master.broker.store.max_physical_offset == 0


async def test_restarted_name_server_learns_its_brokers_again(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster(slaves=1, register_name_server_period=10.0) as cluster,
        caller_of(cluster) as caller,
    ):
        await cluster.kill_name_server()
        with pytest.raises(NotReachableError):
            await caller.pool.call(cluster.name_servers[0], GetBrokerClusterInfoRequestHeader())
        await cluster.restart_name_server()
        assert cluster.name_server.routes.broker_live_table == {}
        await trio.sleep(10.5)
        assert len(cluster.name_server.routes.broker_live_table) == 2


@pytest.mark.real
async def test_on_loopback_ports_with_files(tmp_path: Path) -> None:
    async with EmbeddedCluster(slaves=1, root=tmp_path) as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        for number in range(3):
            await caller.send(addr, b"%d" % number)
        slave = cluster.slaves[0].broker
        with trio.fail_after(HANGS):
            await slave.store.dispatched.wait_reached(
                cluster.master.broker.store.max_physical_offset
            )
        await cluster.kill_master()
        await cluster.restart_master()
        assert bodies(await caller.pull(addr, 0)) == [b"0", b"1", b"2"]
    assert names_in(tmp_path) == ["master", "ports.json", "ports.json.bak", "slave-1"]
    assert "abort" not in names_in(tmp_path / "master")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.real
async def test_master_that_returns_with_its_slave_gets_from_it_what_it_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(slaves=1, root=tmp_path) as cluster, caller_of(cluster) as caller:
        addresses = [member.broker.address for member in cluster.members]
        await caller.send(addresses[0], b"kept by the slave")
        end = cluster.master.broker.store.max_physical_offset
        with trio.fail_after(HANGS):
            await cluster.slaves[0].broker.store.appended.wait_reached(end)
            while not (tmp_path / "master/config/slaves.json").exists():  # noqa: ASYNC110
                await trio.sleep(0.1)
    for log in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(tmp_path / "master" / log, ignore_errors=True)
    (tmp_path / "master/checkpoint").unlink()
    async with EmbeddedCluster(slaves=1, root=tmp_path) as cluster, caller_of(cluster) as caller:
        assert [member.broker.address for member in cluster.members] == addresses
        assert bodies(await caller.pull(addresses[0], 0)) == [b"kept by the slave"]
    assert "serving without" not in caplog.text


async def test_port_that_another_program_uses_is_replaced(tmp_path: Path) -> None:
    async with EmbeddedCluster(root=tmp_path) as cluster:
        address = cluster.master.broker.address
    host, port = split_addr(address)
    with socket.create_server((host, port)):
        async with EmbeddedCluster(root=tmp_path) as cluster:
            other = cluster.master.broker.address
    assert other != address
    async with EmbeddedCluster(root=tmp_path) as cluster:
        assert cluster.master.broker.address == other


@pytest.mark.real
async def test_members_return_to_the_roles_that_they_held(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(slaves=1, role="sync-master", root=tmp_path) as cluster:
        with trio.fail_after(HANGS):
            while True:
                with suppress(RefusedError):  # Until the slave follows.
                    await cluster.master.broker.roles.hand_over.run(None)
                    break
                await trio.sleep(0.1)
    caplog.clear()
    async with EmbeddedCluster(slaves=1, role="sync-master", root=tmp_path) as cluster:
        assert [member.broker.role for member in cluster.members] == ["slave", "sync-master"]
        transfer = cluster.slaves[0].broker.ha_service.group_transfer
        # A slave that knows of no master asks every two seconds.
        await eventually(lambda: transfer.statistics().live_slaves, 1.5, interval=0.05)
    assert "serving without" not in caplog.text
