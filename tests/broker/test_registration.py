from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from tests.broker.parts import SettableClock, config_file, live_config

from rocketrio_broker.config import LiveConfig
from rocketrio_broker.name_server import NameServer
from rocketrio_broker.registration import BrokerRegistration, MasterAddrs
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_broker.topics import TopicConfigManager
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import cluster
from rocketrio_protocol.errors import NotReachable
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


async def test_compressed_registrations_say_the_same(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with laboratory() as lab:
        server, _ = await lab.name_server(FIRST)
        broker = await lab.broker(compressed_register=True)
        registered = set(server.routes.topic_queue_table)
        assert registered == set(broker.topics.topic_config_table)


async def test_a_broker_says_what_a_name_server_has_no_room_for(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("rocketrio_broker.route_info_manager.CONNECTION_ROUTES_LIMIT", 3)
    async with laboratory() as world:
        server, _ = await world.name_server(FIRST)
        broker = await world.broker()
        await trio.sleep(100)
        assert len(server.routes.topic_queue_table) == 3
        assert caplog.text.count("topics found no room") == 1
        assert broker.registration.listings.value > 3


@pytest.mark.parametrize("addr", ["nowhere", "10.0.0.1:0", "a b:1"])
async def test_a_master_at_no_address_is_not_believed(
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
        registration._lost(FIRST, NotReachable("away"))
        registration._learn(SECOND, 0, new)
        assert registration.master == new
