"""The name server as a whole: what Apache's answered to recorded requests, and its life over connections."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from tests.broker.builders import RecordingChannel
from tests.broker.namesrv.registrations import ADDR, registered, registration
from tests.golden.exchanges import RecordedExchange, recorded_exchanges
from tests.golden.golden import as_4_9_wrote

from rocketrio_broker.namesrv.kv import VALUE_SIZE_LIMIT, KVConfigManager
from rocketrio_broker.namesrv.processor import NameServerProcessor, NameServerSettings
from rocketrio_broker.namesrv.routes import RouteInfoManager
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_broker.requests.declaration import handlers_of
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.topics import DataVersion, TopicConfig
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import cluster
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool

ONLY_IN_5_X = {"enableActingMaster"}


async def replay(run: str) -> list[tuple[RecordedExchange, RemotingCommand | None]]:
    """Our answers to every request that Apache's name server got in the run."""
    processor = NameServerProcessor(
        routes=RouteInfoManager(), kv_config=KVConfigManager(), settings=NameServerSettings()
    )
    table = handlers_of(processor)
    channels: dict[int, RecordingChannel] = {}
    answered = []
    for exchange in recorded_exchanges(run, "namesrv"):
        channel = channels.setdefault(exchange.frame.connection, RecordingChannel())
        answer = table[exchange.request.code].process(channel, exchange.request)  # type: ignore[arg-type]
        assert answer is None or isinstance(answer, RemotingCommand)
        answered.append((exchange, answer))
    return answered


def without(value: object, names: set[str]) -> object:
    if isinstance(value, dict):
        return {key: without(each, names) for key, each in value.items() if key not in names}
    if isinstance(value, list):
        return [without(each, names) for each in value]
    return value


@pytest.mark.parametrize("run", ["4.9.7", "5.3.3"])
async def test_recorded_requests_get_the_answers_apache_gave(run: str) -> None:
    codes = set()
    for exchange, answer in await replay(run):
        if exchange.answer is None:
            assert exchange.request.is_oneway
            continue
        assert answer is not None
        codes.add(exchange.request.code)
        assert answer.code == exchange.answer.code
        assert answer.ext_fields == exchange.answer.ext_fields
        if exchange.answer.remark:
            assert answer.remark == exchange.answer.remark.partition("\n")[0]
        ours, theirs = (
            fastjson.loads(each.body, object) if each.body else None
            for each in (answer, exchange.answer)
        )
        if exchange.request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            assert isinstance(ours, dict)
            assert isinstance(theirs, dict)
            assert sorted(ours["topicList"]) == sorted(theirs["topicList"])
        else:
            assert (ours if run == "5.3.3" else without(ours, ONLY_IN_5_X)) == theirs
    assert codes >= {103, 105, 106, 206}


async def test_routes_are_written_as_4_9_7_writes_them_to_the_byte() -> None:
    compared = 0
    for exchange, answer in await replay("4.9.7"):
        if exchange.request.code in (105, 106) and exchange.answer and exchange.answer.body:
            assert answer is not None
            assert as_4_9_wrote(bytes(answer.body)) == bytes(exchange.answer.body)
            compared += 1
    assert compared > 10


@asynccontextmanager
async def served() -> AsyncGenerator[tuple[NameServer, ChannelPool, ChannelPool]]:
    """A name server, and two hosts that talk to it."""
    network = MemoryNetwork()
    name_server = NameServer([await network.host("10.0.0.9").listen(ADDR)])
    async with (
        trio.open_nursery() as nursery,
        open_channel_pool(network.host("10.0.0.1").dial) as broker,
        open_channel_pool(network.host("10.0.0.7").dial) as client,
    ):
        await nursery.start(name_server.run)
        yield name_server, broker, client
        nursery.cancel_scope.cancel()


async def test_a_broker_is_forgotten_when_its_connection_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served() as (_, broker, client):
        route = cluster.GetRouteInfoRequestHeader("T")
        await broker.call(ADDR, *registration())
        assert (await client.call(ADDR, route)).code == ResponseCode.SUCCESS
        broker.drop(ADDR)
        await trio.testing.wait_all_tasks_blocked()
        assert (await client.call(ADDR, route)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_silent_broker_is_forgotten_at_the_first_scan_after_120_s(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served() as (name_server, broker, _):
        await broker.call(ADDR, *registration())
        # Pings that are no registration keep the connection, not the entry.
        for _ in range(3):
            await trio.sleep(40)
            await broker.call(ADDR, cluster.GetBrokerClusterInfoRequestHeader())
        assert name_server.routes.broker_live_table
        await trio.sleep(11)
        assert not name_server.routes.broker_live_table


async def test_an_unknown_code_is_answered(autojump_clock: trio.testing.MockClock) -> None:
    async with served() as (_, _, client):
        answer = await client.call(ADDR, RemotingCommand(code=9999))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 9999 not supported"


async def test_a_registration_damaged_on_its_way_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served() as (name_server, broker, _):
        answer = await broker.call(ADDR, *registration(crc=1))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
        answer = await broker.call(ADDR, *registration(body=b'{"topicConfigSerializeWrapper":3}'))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert not name_server.routes.broker_live_table


async def test_the_version_of_a_brokers_topics_can_be_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served() as (_, broker, _):

        async def changed(version: DataVersion) -> tuple[bool, bytes]:
            header = cluster.QueryDataVersionRequestHeader("broker-a", "10.0.0.1:10910", "lab", 0)
            answer = await broker.call(ADDR, header, fastjson.dumps(version))
            return answer.header(cluster.QueryDataVersionResponseHeader).changed, bytes(answer.body)

        assert await changed(DataVersion(1, 1)) == (True, b"")
        await broker.call(ADDR, *registration())
        assert await changed(DataVersion(1, 1)) == (
            False,
            b'{"counter":1,"stateVersion":0,"timestamp":1}',
        )
        assert (await changed(DataVersion(2, 1)))[0]


async def test_classic_routes_go_to_old_clients_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served() as (_, broker, client):
        await broker.call(ADDR, *registration())
        ask = RemotingCommand.request(cluster.GetRouteInfoRequestHeader("T"))
        assert b'{"0":' in bytes((await client.call(ADDR, ask)).body)
        ask.version = 400
        assert b"{0:" in bytes((await client.call(ADDR, ask)).body)
        ask.ext_fields["acceptStandardJsonOnly"] = "true"
        assert b'{"0":' in bytes((await client.call(ADDR, ask)).body)


async def test_order_configuration_is_in_the_route_where_switched_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served() as (_, broker, client):
        put = cluster.PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
        await client.call(ADDR, put)
        answer = await broker.call(ADDR, *registration())
        assert bytes(answer.body) == b'{"table":{"T":"broker-a:4"}}'
        route = cluster.GetRouteInfoRequestHeader("T")
        assert b"orderTopicConf" not in bytes((await client.call(ADDR, route)).body)
        update = RemotingCommand(
            code=RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n"
        )
        await client.call(ADDR, update)
        body = bytes((await client.call(ADDR, route)).body)
        assert b'"orderTopicConf":"broker-a:4"' in body
        config = await client.call(ADDR, RemotingCommand(code=RequestCode.GET_NAMESRV_CONFIG))
        assert bytes(config.body) == b"orderMessageEnable=true\n"


async def test_a_setting_that_nothing_follows_is_refused_and_none_applied(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served() as (_, _, client):
        body = b"orderMessageEnable=true\nsupportActingMaster=true\n"
        update = RemotingCommand(code=RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
        answer = await client.call(ADDR, update)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "supportActingMaster" in (answer.remark or "")
        config = await client.call(ADDR, RemotingCommand(code=RequestCode.GET_NAMESRV_CONFIG))
        assert bytes(config.body) == b"orderMessageEnable=false\n"


async def test_name_server_answers_requests_for_key_values(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served() as (_, _, client):
        get = cluster.GetKVConfigRequestHeader("N", "k")
        entries = cluster.GetKVListByNamespaceRequestHeader("N")
        assert (await client.call(ADDR, get)).code == ResponseCode.QUERY_NOT_FOUND
        assert (await client.call(ADDR, entries)).code == ResponseCode.QUERY_NOT_FOUND
        await client.call(ADDR, cluster.PutKVConfigRequestHeader("N", "k", "v"))
        assert (await client.call(ADDR, get)).ext_fields == {"value": "v"}
        assert bytes((await client.call(ADDR, entries)).body) == b'{"table":{"k":"v"}}'
        await client.call(ADDR, cluster.DeleteKVConfigRequestHeader("N", "k"))
        assert (await client.call(ADDR, get)).code == ResponseCode.QUERY_NOT_FOUND


async def test_name_server_answers_operators_requests(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served() as (_, broker, client):
        await broker.call(ADDR, *registration())
        wiped = await client.call(ADDR, cluster.WipeWritePermRequestHeader("broker-a"))
        assert wiped.ext_fields == {"wipeTopicCount": "1"}
        added = await client.call(ADDR, cluster.AddWritePermRequestHeader("broker-a"))
        assert added.ext_fields == {"addTopicCount": "1"}
        topics = await client.call(ADDR, cluster.GetTopicsByClusterRequestHeader("lab"))
        assert bytes(topics.body) == b'{"topicList":["T"]}'
        system = await client.call(ADDR, cluster.GetSystemTopicListFromNsRequestHeader())
        assert bytes(system.body) == (
            b'{"brokerAddr":"10.0.0.1:10910","topicList":["lab","broker-a"]}'
        )
        unit = await client.call(ADDR, RemotingCommand(code=RequestCode.GET_UNIT_TOPIC_LIST))
        assert bytes(unit.body) == b'{"topicList":[]}'
        await client.call(ADDR, cluster.DeleteTopicInNamesrvRequestHeader("T"))
        route = await client.call(ADDR, cluster.GetRouteInfoRequestHeader("T"))
        assert route.code == ResponseCode.TOPIC_NOT_EXIST


async def test_broker_that_unregisters_is_removed(autojump_clock: trio.testing.MockClock) -> None:
    async with served() as (name_server, broker, _):
        await broker.call(ADDR, *registration())
        leave = cluster.UnregisterBrokerRequestHeader("broker-a", "10.0.0.1:10910", "lab", 0)
        assert (await broker.call(ADDR, leave)).code == ResponseCode.SUCCESS
        assert not name_server.routes.broker_addr_table


async def test_second_living_slave_of_an_id_is_logged_and_learns_it(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as (name_server, first, second):
        addrs = "10.0.0.1:10921", "10.0.0.7:10921"
        one = registration(broker_id=1, broker_addr=addrs[0])
        other = registration(broker_id=1, broker_addr=addrs[1])
        assert not (await first.call(ADDR, *one)).remark
        assert not (await first.call(ADDR, *one)).remark, "the same broker again"
        answer = await second.call(ADDR, *other)
        assert answer.code == ResponseCode.SUCCESS
        assert (answer.remark or "").startswith(f"the id 1 of broker-a was that of {addrs[0]}")
        assert answer.header(cluster.RegisterBrokerResponseHeader).displaced_addr == addrs[0]
        assert f"id=1 addr={addrs[1]} instead_of={addrs[0]}" in caplog.text
        answer = await first.call(ADDR, *one)
        assert (answer.remark or "").startswith(f"the id 1 of broker-a was that of {addrs[1]}")
        second.drop(ADDR)
        await trio.testing.wait_all_tasks_blocked()
        assert name_server.routes.broker_addr_table["broker-a"].broker_addrs == {1: addrs[0]}
        assert not (await first.call(ADDR, *one)).remark


async def test_broker_is_unregistered_only_by_its_own_connection(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as (name_server, broker, stranger):
        await broker.call(ADDR, *registration())
        leave = cluster.UnregisterBrokerRequestHeader("broker-a", "10.0.0.1:10910", "lab", 0)
        answer = await stranger.call(ADDR, leave)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "from 10.0.0.1, which is still open" in (answer.remark or "")
        answer = await stranger.call(ADDR, *registration(ha_server_addr="10.0.0.7:10912"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        # Once a minute of each kind.
        for _ in range(10):
            await stranger.call(ADDR, leave)
        assert caplog.text.count("leave refused") == caplog.text.count("registration refused") == 1
        stranger.drop(ADDR)
        await trio.testing.wait_all_tasks_blocked()
        (live,) = name_server.routes.broker_live_table.values()
        assert live.ha_server_addr == "10.0.0.1:10912"


@pytest.mark.parametrize(
    "changes",
    [
        {"broker_name": "broker-a\n2025-01-01 INFO forged"},
        {"broker_name": "../../etc"},
        {"broker_name": ".."},
        {"broker_name": ""},
        {"broker_name": "x" * 1000},
        {"cluster_name": "lab lab"},
        {"cluster_name": "a/b"},
        {"broker_id": -1},
        {"broker_addr": "10.0.0.1"},
        {"broker_addr": "10.0.0.1:0"},
        {"broker_addr": "10.0.0.1:99999"},
        {"broker_addr": "10.0.0.1\n:10911"},
        {"broker_addr": "user@10.0.0.1/x:10911"},
        {"ha_server_addr": "10.0.0.1 :10912"},
        {"ha_server_addr": "x" * 300 + ":1"},
    ],
)
async def test_names_and_addresses_that_are_none_are_refused(
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, Any],
) -> None:
    caplog.set_level("DEBUG")
    async with served() as (name_server, broker, _):
        answer = await broker.call(ADDR, *registration(**changes))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
        assert not name_server.routes.broker_live_table
        assert not any("\n" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "changes",
    [
        {"broker_name": "my-host.example.com", "cluster_name": "DefaultCluster"},
        {"broker_name": "raft_node%00|1@x"},
        {"broker_addr": "broker-0.broker.svc.cluster.local:10911"},
        {"broker_addr": "[fe80::1%eth0]:10911", "ha_server_addr": "[::1]:10912"},
    ],
)
async def test_names_and_addresses_of_apaches_brokers_pass(
    autojump_clock: trio.testing.MockClock, changes: dict[str, Any]
) -> None:
    async with served() as (name_server, broker, _):
        answer = await broker.call(ADDR, *registration(**changes))
        assert answer.code == ResponseCode.SUCCESS
        assert name_server.routes.broker_live_table


async def test_topics_that_cannot_be_routed_are_left_out_and_the_others_are_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bad = [TopicConfig(name) for name in ("a\nb", "../x", "", "x" * 300)]
    bad += [TopicConfig("many", 10**12, 4), TopicConfig("negative", 4, -1)]
    good = [TopicConfig(name) for name in ("T", "%RETRY%" + "g" * 255, "%RETRY%my.group")]
    async with served() as (name_server, broker, _):
        body = registered(*bad, *good, servers=["10.0.0.1:7", "no address"])
        answer = await broker.call(ADDR, *registration(body=body))
        assert answer.code == ResponseCode.SUCCESS
        assert set(name_server.routes.topic_queue_table) == {each.topic_name for each in good}
        assert list(name_server.routes.filter_server_table.values()) == [["10.0.0.1:7"]]


@pytest.mark.parametrize("compressed", [False, True])
async def test_others_are_answered_while_a_large_registration_is_read(
    autojump_clock: trio.testing.MockClock, compressed: bool
) -> None:
    topics = [TopicConfig(f"topic-{number}") for number in range(20_000)]
    body = registered(*topics, compressed=compressed)
    answered = []

    async def ask(pool: ChannelPool, what: str, *request: Any) -> None:
        answered.append((what, (await pool.call(ADDR, *request)).code))

    async with served() as (name_server, broker, client):
        # Connections that stand already: what counts is the order of the answers.
        await client.call(ADDR, RemotingCommand(code=RequestCode.GET_NAMESRV_CONFIG))
        await broker.call(ADDR, RemotingCommand(code=RequestCode.GET_NAMESRV_CONFIG))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                ask, broker, "registration", *registration(body=body, compressed=compressed)
            )
            while not name_server.processor.is_reading:
                await trio.lowlevel.checkpoint()
            nursery.start_soon(
                ask, client, "settings", RemotingCommand(code=RequestCode.GET_NAMESRV_CONFIG)
            )
        assert answered == [("settings", 0), ("registration", 0)]
        assert len(name_server.routes.topic_queue_table) == len(topics)


async def test_a_connection_that_ends_while_its_registration_is_read_leaves_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    body = registered(*(TopicConfig(f"topic-{number}") for number in range(20_000)))
    async with served() as (name_server, broker, _):
        async with trio.open_nursery() as nursery:

            async def fail() -> None:
                with pytest.raises(NotReachableError):
                    await broker.call(ADDR, *registration(body=body))

            nursery.start_soon(fail)
            while not name_server.processor.is_reading:
                await trio.lowlevel.checkpoint()
            broker.drop(ADDR)
        await trio.testing.wait_all_tasks_blocked()
        assert not name_server.processor.is_reading
        assert not name_server.routes.broker_live_table
        assert not name_server.routes.topic_queue_table


async def test_large_registrations_that_wait_have_limited_room(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = registered(*(TopicConfig(f"topic-{number}") for number in range(20_000)))
    large = registered(*(TopicConfig(f"topic-{number}") for number in range(3_000)))
    second = registration(broker_id=1, body=large)
    third = registration(broker_id=2, body=large, broker_addr="10.0.0.7:10911")
    limit = "rocketrio_broker.namesrv.processor.WAITING_BODIES_LIMIT"
    monkeypatch.setattr(limit, 2 * len(body))  # Each host has half of it.
    async with served() as (name_server, broker, other):
        await other.call(ADDR, RemotingCommand(code=RequestCode.GET_NAMESRV_CONFIG))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.call, ADDR, *registration(body=body))
            while not name_server.processor.is_reading:
                await trio.lowlevel.checkpoint()
            assert (await broker.call(ADDR, *second)).code == ResponseCode.SYSTEM_BUSY
            assert name_server.processor.is_reading
            assert (await other.call(ADDR, *third)).code == ResponseCode.SUCCESS
        assert (await broker.call(ADDR, *second)).code == ResponseCode.SUCCESS


async def test_full_key_value_table_is_an_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served() as (_, _, client):
        put = cluster.PutKVConfigRequestHeader("N", "k", "v" * (VALUE_SIZE_LIMIT + 1))
        answer = await client.call(ADDR, put)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert str(VALUE_SIZE_LIMIT) in (answer.remark or "")
