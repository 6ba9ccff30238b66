"""A name server lists another host as master of a name whose master is in service: a stranger, or its successor."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from tests.cluster.members import RIVAL, role_of
from tests.support.caller import accepted
from tests.support.pair import Pair, pair_of

from rocketrio_broker.embedded import NAME_SERVER_HOST
from rocketrio_broker.ha.exchange import REPLICATION_KEY, ask_welcome, greeting_of
from rocketrio_broker.ha.known_slaves import REFRESH_PERIOD
from rocketrio_protocol.bodies.java_properties import format_properties
from rocketrio_protocol.bodies.registration import RegisterBrokerBody, encode_register_body
from rocketrio_protocol.bodies.topics import TopicConfigSerializeWrapper
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import GetIdentityResponseHeader
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


async def register(pool: ChannelPool, pair: Pair, broker_id: int = 0) -> RemotingCommand:
    """As a broker of the same name at the stranger's address."""
    header = RegisterBrokerRequestHeader(
        broker_name="broker-a",
        broker_addr=STRANGER_ADDR,
        cluster_name="DefaultCluster",
        ha_server_addr=f"{STRANGER}:10912",
        broker_id=broker_id,
    )
    body = encode_register_body(RegisterBrokerBody(TopicConfigSerializeWrapper()))
    return await pool.call(pair.cluster.name_server.addr, header, body)


@asynccontextmanager
async def stranger_of(
    pair: Pair, *, settings: Mapping[str, str] = OURS
) -> AsyncGenerator[ChannelPool]:
    """A host that answers what brokers ask each other as a master with the greatest of all epochs would."""
    network = pair.network
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


async def take_the_name(pair: Pair, pool: ChannelPool) -> None:
    """The stranger registers in the moment in which the true master's connection is broken."""
    network = pair.network
    network.refuse(pair.cluster.name_server.addr)
    network.cut(pair.first.host, NAME_SERVER_HOST)
    await trio.sleep(0.1)
    accepted(await register(pool, pair))
    network.heal()


@pytest.mark.slow
@pytest.mark.parametrize("secured", [False, True])
async def test_master_in_service_does_not_give_way_to_a_stranger_with_its_name(
    secret: dict[str, Any], secured: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        pair_of(**secret if secured else {}) as pair,
        stranger_of(pair) as stranger,
    ):
        master = pair.master
        await trio.sleep(5)
        leave = UnregisterBrokerRequestHeader("broker-a", master.address, "DefaultCluster", 0)
        answer = await stranger.call(pair.cluster.name_server.addr, leave)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (await register(stranger, pair)).code == ResponseCode.SYSTEM_ERROR
        await take_the_name(pair, stranger)
        end = trio.current_time() + LONG
        while trio.current_time() < end:
            await trio.sleep(0.5)
            assert master.store.writable
            assert master.state.standing.leads
            if trio.current_time() < end - 20:  # It is not heard of for two minutes in the end.
                await register(stranger, pair)
        assert (await pair.listed())[0] == STRANGER_ADDR
        assert len(await alarms(pair)) == 1
        assert caplog.text.count("the name is taken at a name server") == 1
        stranger.drop(pair.cluster.name_server.addr)
        await trio.sleep(40)
        assert (await pair.listed())[0] == master.address
        assert not await alarms(pair)


async def alarms(pair: Pair) -> list[str]:
    """Return what the master's status says of the stranger."""
    own = await pair.caller.own_status(pair.master.address)
    return [each for each in (*own.problems, own.last_problem or "") if STRANGER_ADDR in each]


async def cut_off(pair: Pair) -> None:
    """None but clients reaches the master, and the name server knows that."""
    network = pair.network
    hosts = (NAME_SERVER_HOST, *(slave.host for slave in pair.cluster.slaves))
    network.refuse(pair.cluster.name_server.addr)
    for host in hosts:
        network.cut(pair.first.host, host)
    await trio.sleep(0.1)
    pair.part(pair.first, *hosts)


@pytest.mark.slow
@pytest.mark.parametrize(("slaves", "outage", "secured"), [(1, 100.0, False), (2, 5.0, True)])
async def test_master_that_was_cut_off_gives_way_to_the_slave_that_was_promoted(
    secret: dict[str, Any], secured: bool, slaves: int, outage: float
) -> None:
    async with pair_of(slaves, **secret if secured else {}) as pair:
        first, second = pair.first, pair.second
        await trio.sleep(3)
        await pair.send("one")
        await pair.level()
        await cut_off(pair)
        await pair.promote(second)
        await pair.send("two", at=second)
        await trio.sleep(outage)
        assert first.broker.store.writable
        pair.network.heal()
        await trio.sleep(45)
        assert role_of(first)[0] == "slave"
        assert not first.broker.store.writable
        await pair.level(*pair.cluster.slaves, first)
        assert (await pair.listed())[0] == second.broker.address


@pytest.mark.slow
async def test_proven_slave_reports_which_one_was_promoted(secret: dict[str, Any]) -> None:
    """The successor itself is out of the former master's sight for longer."""
    async with pair_of(2, **secret) as pair:
        first, second, third = pair.members
        await trio.sleep(5)
        await cut_off(pair)
        await pair.promote(second)
        await pair.send("two", at=second)
        await pair.level(second, third)
        pair.network.heal()
        pair.network.partition(first.host, second.host)
        await trio.sleep(45)
        assert not first.broker.store.writable
        assert first.broker.state.standing.other == second.broker.address


async def test_promoted_slave_of_apache_is_trusted_without_a_secret() -> None:
    """It knows no epochs; it says that it is master, where a slave was known."""
    async with (
        pair_of(0) as pair,
        stranger_of(pair, settings={"brokerName": "broker-a", "brokerId": "0"}) as apache,
    ):
        master = pair.master
        await register(apache, pair, broker_id=1)
        await trio.sleep(REFRESH_PERIOD + 1)
        await take_the_name(pair, apache)
        await trio.sleep(10)
        assert not master.store.writable
        assert STRANGER_ADDR in await pair.refused()


async def test_master_that_no_name_server_has_listed_goes_by_their_word() -> None:
    """It has started while none could be reached: no client was sent to it."""
    async with pair_of(0) as pair, stranger_of(pair) as stranger:
        master = pair.first
        await master.stop()
        pair.network.partition(master.host, NAME_SERVER_HOST)
        await master.start()
        await pair.send("alone")
        accepted(await register(stranger, pair))
        pair.network.heal()
        await trio.sleep(40)
        assert not master.broker.store.writable


async def test_request_for_a_successor_leaves_no_state_at_the_receiver() -> None:
    async with pair_of(role="sync-master") as pair:
        await trio.sleep(3)
        master, slave = pair.master, pair.slave
        before = master.store.epochs.lines, slave.store.epochs.lines, slave.store.epochs.highest
        connections = {each.addr for each in master.ha_service.connections}
        greeting = greeting_of(master.store, asks_only=True)
        for asked in (master, slave):
            transport = await pair.cluster.dial_from(RIVAL)(asked.ha_address)
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
