"""A name server lists another host as master of a name whose master is in service: a stranger, or its successor."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from tests.cluster.members import RIVAL, level, listed, role_of, store
from tests.support.caller import Caller, caller_of
from tests.support.replication import secret_file

from rocketrio_broker.embedded import NAME_SERVER_HOST, EmbeddedCluster
from rocketrio_broker.ha.exchange import REPLICATION_KEY, ask_welcome, greeting_of
from rocketrio_broker.ha.known_slaves import REFRESH_PERIOD
from rocketrio_protocol.bodies.java_properties import format_properties
from rocketrio_protocol.bodies.registration import RegisterBrokerBody, encode_register_body
from rocketrio_protocol.bodies.topics import TopicConfigSerializeWrapper
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    GetBrokerHAStatusRequestHeader,
    GetIdentityResponseHeader,
)
from rocketrio_protocol.commands.cluster import (
    RegisterBrokerRequestHeader,
    UnregisterBrokerRequestHeader,
)
from rocketrio_protocol.ha.exchange import Epoch, Welcome, encode_exchange
from rocketrio_protocol.ha.status import HARuntimeInfo, OwnStatus
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool
from rocketrio_protocol.remoting.server import serve_remoting

STRANGER = "10.6.6.6"
STRANGER_ADDR = f"{STRANGER}:10911"
OURS = {
    "brokerName": "broker-a",
    "brokerId": "0",
    "haListenPort": "10912",
    "rocketrioReplication": "1",
}
"""Settings that a rocketrio master shows."""
GREATEST = 1000
"""The number of its epoch: brokers believe none that is much further ahead."""
LONG = 90.0
"""Seconds, as several registrations."""


async def problems(call: Caller, addr: str) -> list[str]:
    answer = await call.pool.call(addr, GetBrokerHAStatusRequestHeader())
    own = HARuntimeInfo.from_json(answer.body).rocketrio
    assert own is not None
    return [*own.problems, own.last_problem or ""]


async def register(pool: ChannelPool, name_server: str, broker_id: int = 0) -> RemotingCommand:
    """As a broker of the same name at the stranger's address."""
    header = RegisterBrokerRequestHeader(
        broker_name="broker-a",
        broker_addr=STRANGER_ADDR,
        cluster_name="DefaultCluster",
        ha_server_addr=f"{STRANGER}:10912",
        broker_id=broker_id,
    )
    body = encode_register_body(RegisterBrokerBody(TopicConfigSerializeWrapper()))
    return await pool.call(name_server, header, body)


@asynccontextmanager
async def stranger_of(
    cluster: EmbeddedCluster, *, settings: Mapping[str, str] = OURS
) -> AsyncGenerator[ChannelPool]:
    """A host that answers what brokers ask each other as a master with the greatest of all epochs would."""
    network = cluster.memory_network
    asked = {
        RequestCode.GET_BROKER_CONFIG: format_properties(settings),
        RequestCode.GET_BROKER_HA_STATUS: HARuntimeInfo(
            rocketrio=OwnStatus(role="async-master", broker_id=0, claims=True, max_offset=1 << 40)
        ).to_json(),
    }

    identity = GetIdentityResponseHeader(
        "broker-a", 0, f"{STRANGER}:10912", 1, 1 << 40, "async-master", claims=True
    )

    def answer(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.GET_IDENTITY:
            if REPLICATION_KEY in settings:
                return request.response(identity)
            return request.response(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return request.response(body=asked.get(RequestCode(request.code), b""))

    epoch = Epoch(number=GREATEST, id="f" * 16, start=0, member="stranger")
    listener = await network.host(STRANGER).listen(STRANGER_ADDR)
    ha_listener = await network.host(STRANGER).listen(f"{STRANGER}:10912")

    async def boast() -> None:
        while True:
            transport = await ha_listener.accept()
            welcome = Welcome(
                member="stranger", begin=0, end=1 << 40, highest=GREATEST, epochs=[epoch]
            )
            await transport.receive_into(memoryview(bytearray(1 << 16)))
            await transport.send_all(encode_exchange(welcome))

    async with (
        trio.open_nursery() as nursery,
        open_channel_pool(network.host(STRANGER).dial) as pool,
    ):
        await nursery.start(
            lambda task_status: serve_remoting(
                [listener], {}, default=answer, task_status=task_status
            )
        )
        nursery.start_soon(boast)
        yield pool
        nursery.cancel_scope.cancel()


async def take_the_name(cluster: EmbeddedCluster, pool: ChannelPool) -> None:
    """The stranger registers in the moment in which the true master's connection is broken."""
    network = cluster.memory_network
    network.refuse(cluster.name_server.addr)
    network.cut(cluster.master.host, NAME_SERVER_HOST)
    await trio.sleep(0.1)
    assert (await register(pool, cluster.name_server.addr)).code == ResponseCode.SUCCESS
    network.heal()


@pytest.mark.parametrize("secured", [False, True])
async def test_master_in_service_does_not_give_way_to_a_stranger_with_its_name(
    tmp_path: Path, secured: bool, caplog: pytest.LogCaptureFixture
) -> None:
    secret = secret_file(tmp_path / "secret") if secured else None
    async with (
        EmbeddedCluster(slaves=1, ha_secret_file=secret) as cluster,
        caller_of(cluster) as call,
        stranger_of(cluster) as stranger,
    ):
        master = cluster.master.broker
        await trio.sleep(5)
        leave = UnregisterBrokerRequestHeader("broker-a", master.address, "DefaultCluster", 0)
        answer = await stranger.call(cluster.name_server.addr, leave)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (
            await register(stranger, cluster.name_server.addr)
        ).code == ResponseCode.SYSTEM_ERROR
        await take_the_name(cluster, stranger)
        end = trio.current_time() + LONG
        while trio.current_time() < end:
            await trio.sleep(0.5)
            assert master.store.writable
            assert master.state.standing.leads
            if trio.current_time() < end - 20:  # It is not heard of for two minutes in the end.
                await register(stranger, cluster.name_server.addr)
        assert (await listed(cluster))[0] == STRANGER_ADDR
        alarm = [each for each in await problems(call, master.address) if STRANGER_ADDR in each]
        assert len(alarm) == 1
        assert caplog.text.count("the name is taken at a name server") == 1
        stranger.drop(cluster.name_server.addr)
        await trio.sleep(40)
        assert (await listed(cluster))[0] == master.address
        assert not any(STRANGER_ADDR in each for each in await problems(call, master.address))


async def cut_off(cluster: EmbeddedCluster) -> None:
    """None but clients reaches the master, and the name server knows that."""
    network = cluster.memory_network
    hosts = (NAME_SERVER_HOST, *(slave.host for slave in cluster.slaves))
    network.refuse(cluster.name_server.addr)
    for host in hosts:
        network.cut(cluster.master.host, host)
    await trio.sleep(0.1)
    for host in hosts:
        network.partition(cluster.master.host, host)


@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize("slaves", [1, 2])
@pytest.mark.parametrize("outage", [5.0, 100.0])
async def test_master_that_was_cut_off_gives_way_to_the_slave_that_was_promoted(
    tmp_path: Path, secured: bool, slaves: int, outage: float
) -> None:
    secret = secret_file(tmp_path / "secret") if secured else None
    async with (
        EmbeddedCluster(slaves=slaves, ha_secret_file=secret) as cluster,
        caller_of(cluster) as call,
    ):
        first, second = cluster.master, cluster.slaves[0]
        await trio.sleep(5)
        await store(call, first, b"one")
        await level(first, *cluster.slaves)
        await cut_off(cluster)
        assert (
            await call.change_role(second.broker.address, "async-master", 0)
        ).code == ResponseCode.SUCCESS
        await store(call, second, b"two")
        await trio.sleep(outage)
        assert first.broker.store.writable
        cluster.memory_network.heal()
        await trio.sleep(45)
        assert role_of(first)[0] == "slave"
        assert not first.broker.store.writable
        await level(*cluster.slaves, first)
        assert (await listed(cluster))[0] == second.broker.address


async def test_proven_slave_reports_which_one_was_promoted(tmp_path: Path) -> None:
    """The successor itself is out of the former master's sight for longer."""
    secret = secret_file(tmp_path / "secret")
    async with (
        EmbeddedCluster(slaves=2, ha_secret_file=secret) as cluster,
        caller_of(cluster) as call,
    ):
        first, second, third = cluster.master, *cluster.slaves
        await trio.sleep(5)
        await cut_off(cluster)
        assert (
            await call.change_role(second.broker.address, "async-master", 0)
        ).code == ResponseCode.SUCCESS
        await store(call, second, b"two")
        await level(second, third)
        cluster.memory_network.heal()
        cluster.memory_network.partition(first.host, second.host)
        await trio.sleep(45)
        assert not first.broker.store.writable
        assert first.broker.state.standing.other == second.broker.address


async def test_promoted_slave_of_apache_is_trusted_without_a_secret() -> None:
    """It knows no epochs; it says that it is master, where a slave was known."""
    async with (
        EmbeddedCluster() as cluster,
        caller_of(cluster) as call,
        stranger_of(cluster, settings={"brokerName": "broker-a", "brokerId": "0"}) as apache,
    ):
        master = cluster.master.broker
        await register(apache, cluster.name_server.addr, broker_id=1)
        await trio.sleep(REFRESH_PERIOD + 1)
        await take_the_name(cluster, apache)
        await trio.sleep(10)
        assert not master.store.writable
        answer = await call.send(master.address, b"to nobody")
        assert STRANGER_ADDR in (answer.remark or "")


async def test_master_that_no_name_server_has_listed_goes_by_their_word() -> None:
    """It has started while none could be reached: no client was sent to it."""
    async with (
        EmbeddedCluster() as cluster,
        caller_of(cluster) as call,
        stranger_of(cluster) as stranger,
    ):
        master = cluster.master
        await master.stop()
        cluster.memory_network.partition(master.host, NAME_SERVER_HOST)
        await master.start()
        await store(call, master, b"alone")
        assert (await register(stranger, cluster.name_server.addr)).code == ResponseCode.SUCCESS
        cluster.memory_network.heal()
        await trio.sleep(40)
        assert not master.broker.store.writable


async def test_request_for_a_successor_leaves_no_state_at_the_receiver() -> None:
    async with EmbeddedCluster(slaves=1, role="sync-master") as cluster:
        await trio.sleep(5)
        master, slave = cluster.master.broker, cluster.slaves[0].broker
        before = master.store.epochs.lines, slave.store.epochs.lines, slave.store.epochs.highest
        connections = {each.addr for each in master.ha_service.connections}
        greeting = greeting_of(master.store, asks_only=True)
        for asked in (master, slave):
            transport = await cluster.dial_from(RIVAL)(asked.ha_address)
            answer = await ask_welcome(transport, greeting)
            assert answer.epochs[-1].key == master.store.epochs.lines[-1].key
            await trio.sleep(1)
        await trio.sleep(5)
        assert before == (
            master.store.epochs.lines,
            slave.store.epochs.lines,
            slave.store.epochs.highest,
        )
        assert {each.addr for each in master.ha_service.connections} == connections
