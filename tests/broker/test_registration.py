import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from tests.broker.builders import config_file, live_config
from tests.support.clocks import SettableClock

from rocketrio_broker.namesrv.server import NameServer
from rocketrio_broker.registration import BrokerRegistration, MasterAddrs
from rocketrio_broker.settings.config import LiveConfig
from rocketrio_broker.tables.topics import TopicConfigManager
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.bodies.registration import decode_register_body
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.codes import PROTOCOL_VERSION, VERSION_5, RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import cluster
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.server import serve_remoting

FIRST, SECOND = "10.0.0.9:9876", "10.0.0.8:9876"


@attrs.define
class Registering:
    """A broker that registers, without the rest of a broker."""

    config: LiveConfig
    topics: TopicConfigManager
    registration: BrokerRegistration
    scope: trio.CancelScope


class Lab:
    """Name servers and brokers in memory."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.nursery: trio.Nursery

    async def name_server(self, addr: str) -> tuple[NameServer, trio.CancelScope]:
        listener = await self.network.host(addr.partition(":")[0]).listen(addr)
        server = NameServer([listener])
        scope = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await server.run(task_status=task_status)

        await self.nursery.start(run)
        return server, scope

    async def broker(self, *, host: str = "10.0.0.1", **settings: Any) -> Registering:
        config = live_config(**({"namesrv": FIRST} | settings))
        topics = TopicConfigManager(
            config=config, file=config_file("topics.json"), wall_clock=SettableClock()
        )
        broker: Registering | None = None

        async def run(*, task_status: trio.TaskStatus[Registering]) -> None:
            async with open_channel_pool(self.network.host(host).dial) as pool:
                registration = BrokerRegistration(
                    config=config,
                    topics=topics,
                    pool=pool,
                    broker_addr=f"{host}:10911",
                    ha_server_addr=f"{host}:10912",
                )
                scope = trio.CancelScope()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_within, scope, registration, task_status, config, topics)

        broker = await self.nursery.start(run)
        assert broker is not None
        return broker


async def _within(
    scope: trio.CancelScope,
    registration: BrokerRegistration,
    task_status: trio.TaskStatus[Registering],
    config: LiveConfig,
    topics: TopicConfigManager,
) -> None:
    with scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(registration.run)
            task_status.started(Registering(config, topics, registration, scope))


@asynccontextmanager
async def laboratory() -> AsyncGenerator[Lab]:
    lab = Lab()
    async with trio.open_nursery() as nursery:
        lab.nursery = nursery
        yield lab
        nursery.cancel_scope.cancel()


async def test_a_broker_that_has_started_is_registered_everywhere(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        servers = [(await lab.name_server(addr))[0] for addr in (FIRST, SECOND)]
        broker = await lab.broker(namesrv=f"{FIRST};{SECOND}")
        for server in servers:
            (addrs,) = server.routes.broker_addr_table.values()
            assert addrs.broker_addrs == {0: "10.0.0.1:10911"}
            assert set(server.routes.topic_queue_table) == set(broker.topics.topic_config_table)


async def test_a_new_topic_is_known_when_the_wait_returns(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        server, _ = await lab.name_server(FIRST)
        broker = await lab.broker()
        broker.topics.update(TopicConfig("T"))
        started = trio.current_time()
        await broker.registration.wait_registered()
        assert trio.current_time() == started
        assert "T" in server.routes.topic_queue_table


@pytest.mark.slow
async def test_registration_is_repeated_on_the_period(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        server, _ = await lab.name_server(FIRST)
        await lab.broker()
        await trio.sleep(1000)
        (live,) = server.routes.broker_live_table.values()
        assert trio.current_time() - live.last_update <= 30


async def test_a_lost_connection_costs_the_routes_little_more_than_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        server, _ = await lab.name_server(FIRST)
        await lab.broker()
        lab.network.cut("10.0.0.1")
        await trio.testing.wait_all_tasks_blocked()
        assert not server.routes.broker_addr_table
        await trio.sleep(1.1)
        assert server.routes.broker_addr_table


async def test_name_server_that_loses_each_connection_is_asked_once_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        await lab.name_server(FIRST)
        broker = await lab.broker()
        before = broker.registration.listings.value
        for _ in range(100):
            lab.network.cut("10.0.0.1")
            await trio.sleep(0.1)
        assert 9 <= broker.registration.listings.value - before <= 10


async def test_a_dead_name_server_holds_up_neither_start_nor_topics(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        server, _ = await lab.name_server(FIRST)
        broker = await lab.broker(namesrv=f"{SECOND};{FIRST}")
        broker.topics.update(TopicConfig("T"))
        started = trio.current_time()
        await broker.registration.wait_registered()
        assert trio.current_time() == started
        assert "T" in server.routes.topic_queue_table


async def test_a_name_server_that_does_not_answer_is_waited_for_a_limited_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        await lab.name_server(FIRST)
        broker = await lab.broker()
        lab.network.silence("10.0.0.9")
        broker.topics.update(TopicConfig("T"))
        started = trio.current_time()
        await broker.registration.wait_registered()
        assert trio.current_time() - started <= 6


async def test_without_name_servers_nothing_waits(autojump_clock: trio.testing.MockClock) -> None:
    async with laboratory() as lab:
        broker = await lab.broker(namesrv="")
        broker.topics.update(TopicConfig("T"))
        await broker.registration.wait_registered()


async def test_a_name_server_that_comes_later_gets_the_broker(
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with laboratory() as lab:
        await lab.broker()
        await trio.sleep(40)
        server, _ = await lab.name_server(FIRST)
        await trio.sleep(31)
        assert server.routes.broker_addr_table
    warnings = [each for each in caplog.messages if each.startswith("cannot register")]
    assert len(warnings) == 1


async def test_a_slave_learns_where_its_master_is_and_when_that_changes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        await lab.name_server(FIRST)
        slave = await lab.broker(host="10.0.0.2", role="slave", broker_id=1)
        assert slave.registration.master == MasterAddrs()
        master = await lab.broker()
        seen = slave.registration.master_changes.value
        with trio.fail_after(31):
            await slave.registration.master_changes.wait_past(seen)
        assert slave.registration.master == MasterAddrs("10.0.0.1:10911", "10.0.0.1:10912")
        seen = slave.registration.master_changes.value
        master.scope.cancel()
        with trio.fail_after(31):
            await slave.registration.master_changes.wait_past(seen)
        assert slave.registration.master == MasterAddrs()


async def test_an_unreachable_name_server_does_not_take_the_master_away(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        _, name_server_scope = await lab.name_server(FIRST)
        await lab.broker()
        slave = await lab.broker(host="10.0.0.2", role="slave", broker_id=1)
        name_server_scope.cancel()
        await trio.sleep(100)
        assert slave.registration.master.addr == "10.0.0.1:10911"


async def test_a_stopped_broker_has_taken_leave(autojump_clock: trio.testing.MockClock) -> None:
    async with laboratory() as lab:
        server, _ = await lab.name_server(FIRST)
        broker = await lab.broker()
        broker.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert not server.routes.broker_addr_table


async def test_compressed_registration_decodes_to_the_same(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        server, _ = await lab.name_server(FIRST)
        broker = await lab.broker(compressed_register=True)
        registered = set(server.routes.topic_queue_table)
        assert registered == set(broker.topics.topic_config_table)


async def test_broker_logs_topics_that_a_name_server_has_no_room_for(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("rocketrio_broker.namesrv.routes.CONNECTION_ROUTES_LIMIT", 3)
    async with laboratory() as world:
        server, _ = await world.name_server(FIRST)
        broker = await world.broker()
        await trio.sleep(100)
        assert len(server.routes.topic_queue_table) == 3
        assert caplog.text.count("topics found no room") == 1
        assert broker.registration.listings.value > 3


class Recorder:
    """A name server that keeps what brokers report, and speaks this version of the protocol."""

    def __init__(self, version: int = PROTOCOL_VERSION) -> None:
        self.version = version
        self.requests: list[RemotingCommand] = []
        self.codes: list[int] = []
        """What the next requests are answered with, before all others get success."""

    async def run(self, *, lab: Lab) -> None:
        listener = await lab.network.host("10.0.0.9").listen(FIRST)
        serve = partial(serve_remoting, [listener], {}, default=self._answer)
        await lab.nursery.start(serve)

    def _answer(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        self.requests.append(request)
        code = self.codes.pop(0) if self.codes else 0
        return attrs.evolve(request.response(code=code), version=self.version)

    def take(self) -> list[tuple[int, set[str]]]:
        """The codes and topics of what came since the last call."""
        requests, self.requests = self.requests, []
        return [(each.code, _topics_in(each)) for each in requests]


def _topics_in(request: RemotingCommand) -> set[str]:
    if request.code == RequestCode.REGISTER_BROKER:
        body = decode_register_body(request.body, version=request.version)
        return set(body.topic_config_serialize_wrapper.topic_config_table)
    return {request.header(cluster.RegisterTopicRequestHeader).topic}


async def test_a_new_topic_is_registered_alone(autojump_clock: trio.testing.MockClock) -> None:
    async with laboratory() as lab:
        recorder = Recorder()
        await recorder.run(lab=lab)
        broker = await lab.broker()
        whole = set(broker.topics.topic_config_table)
        assert recorder.take() == [(103, whole)]
        started = trio.current_time()
        for name in ("T", "U"):
            broker.topics.update(TopicConfig(name))
            await broker.registration.wait_registered()
            (request,) = recorder.requests
            body = decode_register_body(request.body, version=request.version)
            assert body.topic_config_serialize_wrapper.data_version == broker.topics.data_version
            assert recorder.take() == [(103, {name})]
        for name in ("T", "V", "W"):
            broker.topics.update(TopicConfig(name, 2, 2))
        await broker.registration.wait_registered()
        assert recorder.take() == [(103, {"T", "V", "W"})]
        assert trio.current_time() == started
        await trio.sleep(30.5)
        assert recorder.take() == [(103, whole | {"T", "U", "V", "W"})]


async def test_name_servers_of_5_x_get_each_topic_separately(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """There a registration may be set to take away the topics that it does not name."""
    async with laboratory() as lab:
        recorder = Recorder(VERSION_5)
        await recorder.run(lab=lab)
        broker = await lab.broker(broker_permission=4)
        assert [code for code, _ in recorder.take()] == [103]
        broker.topics.update(TopicConfig("T", 3, 5, topic_sys_flag=1))
        broker.topics.update(TopicConfig("U"))
        await broker.registration.wait_registered()
        routes = {
            request.header(cluster.RegisterTopicRequestHeader).topic: json.loads(request.body)
            for request in recorder.requests
        }
        assert routes["T"]["queueDatas"] == [
            {
                "brokerName": "broker-a",
                "readQueueNums": 3,
                "writeQueueNums": 5,
                "perm": 4,
                "topicSysFlag": 0,
            }
        ]
        assert sorted((code, *topics) for code, topics in recorder.take()) == [
            (217, "T"),
            (217, "U"),
        ]


@pytest.mark.slow
async def test_a_thousand_topics_do_not_send_a_thousand_tables(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        recorder = Recorder()
        await recorder.run(lab=lab)
        broker = await lab.broker()
        recorder.take()
        for number in range(1000):
            broker.topics.update(TopicConfig(f"T{number}"))
            if number % 2:
                await broker.registration.wait_registered()
        assert sum(len(request.body) for request in recorder.requests) < 1000 * 1000
        told = [topics for _, topics in recorder.take()]
        assert set().union(*told) == {f"T{number}" for number in range(1000)}


async def test_deletion_registers_nothing_and_delays_no_registration(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A topic stays in the routes until it is deleted there, because a registration takes none away."""
    async with laboratory() as lab:
        recorder = Recorder()
        await recorder.run(lab=lab)
        broker = await lab.broker()
        broker.topics.update(TopicConfig("T"))
        await broker.registration.wait_registered()
        recorder.take()
        started = trio.current_time()
        broker.topics.delete("T")
        await broker.registration.wait_registered()
        assert recorder.take() == []
        broker.topics.update(TopicConfig("U"))
        broker.topics.delete("U")
        broker.topics.update(TopicConfig("V"))
        await broker.registration.wait_registered()
        assert recorder.take() == [(103, {"V"})]
        assert trio.current_time() == started


async def test_a_change_of_all_topics_registers_all(autojump_clock: trio.testing.MockClock) -> None:
    async with laboratory() as lab:
        recorder = Recorder()
        await recorder.run(lab=lab)
        broker = await lab.broker()
        recorder.take()
        broker.topics.register_again()
        broker.topics.update(TopicConfig("T"))
        await broker.registration.wait_registered()
        assert recorder.take() == [(103, set(broker.topics.topic_config_table))]


async def test_a_slave_registers_all_its_topics(autojump_clock: trio.testing.MockClock) -> None:
    async with laboratory() as lab:
        recorder = Recorder(VERSION_5)
        await recorder.run(lab=lab)
        slave = await lab.broker(role="slave", broker_id=1)
        recorder.take()
        slave.topics.update(TopicConfig("T"))
        await slave.registration.wait_registered()
        assert recorder.take() == [(103, set(slave.topics.topic_config_table))]


@pytest.mark.parametrize("version", [PROTOCOL_VERSION, VERSION_5])
async def test_a_topic_that_is_refused_is_registered_with_all_others(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with laboratory() as lab:
        recorder = Recorder(version)
        await recorder.run(lab=lab)
        broker = await lab.broker()
        recorder.take()
        recorder.codes = [1]
        broker.topics.update(TopicConfig("T"))
        broker.topics.update(TopicConfig("U"))
        await trio.sleep(1)
        (_, refused), *others = recorder.take()
        assert refused <= {"T", "U"}
        assert others == [(103, set(broker.topics.topic_config_table))]


async def test_while_it_is_held_no_topic_is_registered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        recorder = Recorder()
        await recorder.run(lab=lab)
        broker = await lab.broker()
        recorder.take()
        broker.registration.hold()
        broker.topics.update(TopicConfig("T"))
        await trio.sleep(100)
        assert recorder.take() == []
        broker.registration.register_now()
        await broker.registration.wait_registered()
        assert recorder.take() == [(103, set(broker.topics.topic_config_table))]


async def test_nothing_is_registered_that_is_held_while_it_connects(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A slave that becomes master in this second is not listed as one before it takes writes."""
    async with laboratory() as lab:
        recorder = Recorder()
        await recorder.run(lab=lab)
        broker = await lab.broker()
        recorder.take()
        hosts = "10.0.0.1", FIRST.partition(":")[0]
        lab.network.delay(*hosts, 1.0)
        lab.network.cut(*hosts)
        await trio.sleep(2)
        broker.registration.hold()
        await trio.sleep(100)
        assert recorder.take() == []
        broker.registration.register_now()
        await trio.sleep(5)
        assert len(recorder.take()) == 1


async def test_topics_are_in_routes_after_each_form_of_registration(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        server, _ = await lab.name_server(FIRST)
        broker = await lab.broker()
        for queues in (1, 2):
            for name in ("T", "U"):
                broker.topics.update(TopicConfig(name, queues, queues))
                await broker.registration.wait_registered()
                route = server.routes.pickup_topic_route_data(name)
                assert route is not None
                assert route.queue_datas[0].write_queue_nums == queues
        lab.network.cut("10.0.0.1")
        await trio.testing.wait_all_tasks_blocked()
        broker.topics.update(TopicConfig("V"))
        await trio.sleep(1.1)
        assert set(server.routes.topic_queue_table) == set(broker.topics.topic_config_table)
        await trio.sleep(100)
        assert set(server.routes.topic_queue_table) == set(broker.topics.topic_config_table)


@pytest.mark.parametrize("addr", ["nowhere", "10.0.0.1:0", "a b:1"])
async def test_master_without_a_valid_address_is_not_followed(
    autojump_clock: trio.testing.MockClock, addr: str
) -> None:
    def answer(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(cluster.RegisterBrokerResponseHeader("10.0.0.7:10912", addr))

    async with laboratory() as world:
        listener = await world.network.host("10.0.0.9").listen(FIRST)
        await world.nursery.start(
            lambda task_status: serve_remoting(
                [listener], {}, default=answer, task_status=task_status
            )
        )
        broker = await world.broker(broker_id=1, role="slave")
        await trio.sleep(10)
        assert broker.registration.listings.value
        assert broker.registration.master == MasterAddrs()


async def test_a_name_server_that_is_away_does_not_hide_where_the_master_moved() -> None:
    config = live_config(namesrv=f"{FIRST};{SECOND}", role="slave", broker_id=1)
    topics = TopicConfigManager(
        config=config, file=config_file("topics.json"), wall_clock=SettableClock()
    )
    async with open_channel_pool(MemoryNetwork().host("10.0.0.2").dial) as pool:
        registration = BrokerRegistration(
            config=config, topics=topics, pool=pool, broker_addr="b:1", ha_server_addr="b:2"
        )
        old, new = MasterAddrs("10.0.0.1:1", "10.0.0.1:2"), MasterAddrs("10.0.0.7:1", "10.0.0.7:2")
        registration._learn(FIRST, 0, old)
        registration._learn(SECOND, 0, old)
        registration._lost(FIRST, NotReachableError("away"))
        registration._learn(SECOND, 0, new)
        assert registration.master == new
