"""A name server that has users."""

from pathlib import Path

import pytest
import trio
from tests.support.caller import accepted
from tests.support.secured_broker import (
    INNER,
    SECRET,
    name_server_access,
    refused,
    secured,
)
from trio.testing import MockClock

from rocketrio_broker.access.control import AccessControl
from rocketrio_broker.namesrv.probes import PROBE_LIMIT
from rocketrio_protocol.commands import cluster
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.signature import Signer


def users(folder: Path) -> AccessControl:
    """The inner account, a reader without rights, and an operator of the cluster lab."""
    return name_server_access(
        folder,
        f'{{"users":[{{"username":"reader","secretKeys":["{SECRET}"]}},'
        f'{{"username":"operator","secretKeys":["{SECRET}"]}}],'
        '"acls":[{"subject":"User:operator","policies":[{"policyType":"Custom","entries":['
        '{"resource":"Cluster:lab","actions":["Update"],"sourceIps":[],"decision":"Allow"}]}]}]}',
    )


async def test_client_needs_a_user_and_an_operator_the_cluster(tmp_path: Path) -> None:
    async with secured(tmp_path, name_server_access=users(tmp_path)) as here:
        addr = here.cluster.name_server.addr
        route = cluster.GetRouteInfoRequestHeader("TBW102")
        register = cluster.RegisterBrokerRequestHeader("b", "10.0.0.7:1", "lab", "10.0.0.7:2", 0)
        other = cluster.RegisterBrokerRequestHeader("b", "10.0.0.7:1", "other", "10.0.0.7:2", 0)
        wipe = cluster.WipeWritePermRequestHeader("broker-a")
        async with (
            here.client() as stranger,
            here.client("reader") as reader,
            here.client("operator") as operator,
        ):
            refused(await stranger.ask(route, addr=addr))
            accepted(await reader.ask(route, addr=addr))
            assert "Cluster:lab" in refused(await reader.ask(register, addr=addr))
            accepted(await operator.ask(register, addr=addr))
            assert "Cluster:other" in refused(await operator.ask(other, addr=addr))
            assert "Cluster:*" in refused(await operator.ask(wipe, addr=addr))
        async with here.operator() as inner:
            accepted(await inner.ask(wipe, addr=addr))


async def test_listed_master_is_not_asked_for_a_client_that_may_not_register(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with secured(tmp_path, name_server_access=users(tmp_path)) as here:
        name_server = here.cluster.name_server
        second = cluster.RegisterBrokerRequestHeader(
            "broker-a", "10.0.0.7:1", "DefaultCluster", "10.0.0.7:2", 0
        )
        before = name_server.routes.broker_addr_table["broker-a"].broker_addrs
        here.cluster.memory_network.silence(here.cluster.master.host)
        async with here.client() as stranger, here.client("reader") as reader:
            start = trio.current_time()
            for client in (stranger, reader):
                refused(await client.ask(second, addr=name_server.addr))
            assert trio.current_time() == start
            await trio.sleep(2 * PROBE_LIMIT)
        assert name_server.routes.broker_addr_table["broker-a"].broker_addrs == before


async def test_broker_without_the_inner_account_is_not_in_the_routes(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with secured(
        tmp_path, name_server_access=users(tmp_path), acl_enable=False, inner_credentials_file=None
    ) as here:
        await trio.sleep(60)
        assert not here.cluster.name_server.routes.broker_live_table


async def test_slave_registers_and_finds_its_master(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with secured(tmp_path, slaves=1, name_server_access=users(tmp_path)) as here:
        await trio.sleep(15)
        slave = here.cluster.slaves[0].broker.statistics().slave
        assert slave is not None
        assert slave.tables.last_problem is None
        assert slave.tables.rounds
        async with open_channel_pool(here.cluster.dial, signer=Signer(INNER)) as pool:
            answer = await pool.call(
                here.cluster.name_server.addr, cluster.GetBrokerClusterInfoRequestHeader()
            )
            assert b"10.0.0.11" in bytes(answer.body)


OPEN = "takes registrations of anybody"


async def test_broker_with_access_control_warns_of_an_open_name_server_at_each_start(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path) as here:
        await trio.sleep(1)
        await here.cluster.master.stop()
        await here.cluster.kill_name_server()
        here.cluster.nursery.start_soon(here.cluster.master.start)
        await trio.sleep(60)
        await here.cluster.restart_name_server()
        await trio.sleep(30)
        lines = [line for line in caplog.messages if OPEN in line]
        assert len(lines) == 2
        assert here.cluster.name_servers[0] in lines[0]
        assert "--acl-file" in lines[0]


async def test_no_warning_of_a_closed_name_server_or_without_access_control(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path, name_server_access=users(tmp_path)):
        await trio.sleep(30)
    async with secured(tmp_path, acl_enable=False):
        await trio.sleep(30)
    assert not [line for line in caplog.messages if OPEN in line]
