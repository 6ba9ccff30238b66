import time
from contextlib import nullcontext
from typing import Any

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketrio_broker.namesrv.routes import (
    BROKER_CHANNEL_EXPIRED_TIME,
    BROKERS_LIMIT,
    CONNECTION_BROKERS_LIMIT,
    SLICE,
    TOPIC_NAMES_LIMIT,
    AnotherMasterError,
    BrokerAddr,
    RegisterBrokerResult,
    Registration,
    RegistrationRefusedError,
    RouteInfoManager,
)
from rocketrio_protocol.bodies.route import TopicList
from rocketrio_protocol.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketrio_protocol.frame import FRAME_SIZE_LIMIT
from rocketrio_protocol.steps import all_at_once

MASTER = Registration(
    cluster_name="lab",
    broker_name="broker-a",
    broker_id=0,
    broker_addr="10.0.0.1:10911",
    ha_server_addr="10.0.0.1:10912",
    topics=TopicConfigSerializeWrapper(DataVersion(1, 1), {"T": TopicConfig("T", 4, 4, 6)}),
)
SLAVE = attrs.evolve(
    MASTER, broker_id=1, broker_addr="10.0.0.2:10911", ha_server_addr="10.0.0.2:10912"
)


def with_topics(registration: Registration, version: int, *topics: str) -> Registration:
    table = {topic: TopicConfig(topic, 4, 4, 6) for topic in topics}
    wrapper = TopicConfigSerializeWrapper(DataVersion(version, 1), table)
    return attrs.evolve(registration, topics=wrapper)


@pytest.fixture
def routes() -> RouteInfoManager:
    return RouteInfoManager()


def register(
    routes: RouteInfoManager, registration: Registration, **changes: Any
) -> RegisterBrokerResult:
    host = registration.broker_addr.partition(":")[0]
    options = {"channel": registration.broker_addr, "host": host, "now": 0.0} | changes
    return routes.register_broker(registration, **options)


def addrs(routes: RouteInfoManager, topic: str = "T") -> dict[int, str] | None:
    route = routes.pickup_topic_route_data(topic)
    return None if route is None else route.broker_datas[0].broker_addrs


def test_a_registered_topic_has_a_route(routes: RouteInfoManager) -> None:
    register(routes, MASTER)
    register(routes, SLAVE)
    route = routes.pickup_topic_route_data("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
    (queues,) = route.queue_datas
    assert (queues.broker_name, queues.read_queue_nums, queues.perm) == ("broker-a", 4, 6)
    assert routes.pickup_topic_route_data("U") is None


def test_only_a_slave_gets_the_address_of_the_master(routes: RouteInfoManager) -> None:
    assert register(routes, SLAVE) == RegisterBrokerResult()
    assert register(routes, MASTER) == RegisterBrokerResult()
    assert register(routes, SLAVE) == RegisterBrokerResult("10.0.0.1:10911", "10.0.0.1:10912")


def test_a_slaves_topics_are_ignored(routes: RouteInfoManager) -> None:
    register(routes, with_topics(SLAVE, 1, "S"))
    assert routes.pickup_topic_route_data("S") is None


def test_topics_are_read_only_under_another_version(routes: RouteInfoManager) -> None:
    register(routes, MASTER)
    register(routes, with_topics(MASTER, 1, "T", "U"))
    assert routes.pickup_topic_route_data("U") is None
    register(routes, with_topics(MASTER, 2, "T", "U"))
    assert routes.pickup_topic_route_data("U") is not None


def test_a_topic_that_is_registered_no_more_keeps_its_route(routes: RouteInfoManager) -> None:
    register(routes, with_topics(MASTER, 1, "T", "U"))
    register(routes, with_topics(MASTER, 2, "T"))
    assert routes.pickup_topic_route_data("U") is not None


def test_routes_stay_while_a_slave_lives_and_go_with_the_last_address(
    routes: RouteInfoManager,
) -> None:
    register(routes, MASTER)
    register(routes, SLAVE)
    routes.channel_closed(MASTER.broker_addr)
    assert addrs(routes) == {1: "10.0.0.2:10911"}
    routes.channel_closed(SLAVE.broker_addr)
    assert addrs(routes) is None
    info = routes.cluster_info()
    assert (info.broker_addr_table, info.cluster_addr_table) == ({}, {})
    assert not routes.topic_queue_table


def test_a_slave_that_becomes_master_on_its_address_leaves_its_id(routes: RouteInfoManager) -> None:
    register(routes, SLAVE)
    register(routes, attrs.evolve(SLAVE, broker_id=0))
    assert addrs(routes) == {0: "10.0.0.2:10911"}


def test_a_slave_that_comes_back_elsewhere_takes_its_id(routes: RouteInfoManager) -> None:
    register(routes, MASTER)
    register(routes, SLAVE)
    register(routes, attrs.evolve(SLAVE, broker_addr="10.0.0.9:10911"))
    routes.channel_closed(SLAVE.broker_addr)
    assert addrs(routes) == {0: MASTER.broker_addr, 1: "10.0.0.9:10911"}


def test_a_second_master_is_refused_while_the_first_is_listed(routes: RouteInfoManager) -> None:
    register(routes, MASTER)
    second = with_topics(attrs.evolve(MASTER, broker_addr="10.0.0.9:10911"), 9, "stolen")
    with pytest.raises(AnotherMasterError, match=MASTER.broker_addr) as refusal:
        register(routes, second)
    assert refusal.value.master_addr == MASTER.broker_addr
    assert addrs(routes) == {0: MASTER.broker_addr}
    assert routes.pickup_topic_route_data("stolen") is None
    assert BrokerAddr("lab", second.broker_addr) not in routes.broker_live_table
    routes.channel_closed(MASTER.broker_addr)
    register(routes, second)
    assert addrs(routes, "stolen") == {0: second.broker_addr}


def test_master_and_slave_change_their_roles(routes: RouteInfoManager) -> None:
    register(routes, MASTER)
    register(routes, SLAVE)
    register(routes, attrs.evolve(MASTER, broker_id=1))
    register(routes, attrs.evolve(SLAVE, broker_id=0))
    assert addrs(routes) == {0: SLAVE.broker_addr, 1: MASTER.broker_addr}


def test_a_broker_is_dropped_after_more_than_120_s_of_silence(routes: RouteInfoManager) -> None:
    register(routes, MASTER, now=0)
    register(routes, SLAVE, now=100)
    assert routes.scan_not_active_broker(BROKER_CHANNEL_EXPIRED_TIME) == []
    gone = routes.scan_not_active_broker(BROKER_CHANNEL_EXPIRED_TIME + 1)
    assert gone == [BrokerAddr("lab", MASTER.broker_addr)]
    assert addrs(routes) == {1: "10.0.0.2:10911"}


def test_broker_that_sends_a_heartbeat_is_dropped_later(routes: RouteInfoManager) -> None:
    register(routes, MASTER, now=0)
    for addr in (MASTER.broker_addr, "unknown:1"):
        routes.refresh(BrokerAddr("lab", addr), channel=MASTER.broker_addr, now=100)
    assert routes.scan_not_active_broker(BROKER_CHANNEL_EXPIRED_TIME + 1) == []


def test_a_late_stop_does_not_take_its_successor_along(routes: RouteInfoManager) -> None:
    register(routes, MASTER)
    register(routes, SLAVE)
    register(routes, attrs.evolve(SLAVE, broker_addr="10.0.0.9:10911"))
    routes.unregister_broker(
        cluster_name="lab",
        broker_addr=SLAVE.broker_addr,
        broker_name="broker-a",
        broker_id=1,
        channel=SLAVE.broker_addr,
    )
    assert addrs(routes) == {0: MASTER.broker_addr, 1: "10.0.0.9:10911"}


def test_write_permission_is_taken_and_given_back(routes: RouteInfoManager) -> None:
    register(routes, with_topics(MASTER, 1, "T", "U"))
    assert all_at_once(routes.change_write_permission("broker-a", writable=False)) == 2
    route = routes.pickup_topic_route_data("T")
    assert route is not None
    assert not route.queue_datas[0].is_writable
    assert all_at_once(routes.change_write_permission("broker-a", writable=True)) == 2
    assert route.queue_datas[0].perm == 6
    assert all_at_once(routes.change_write_permission("unknown", writable=True)) == 0


def test_lists_by_cluster_and_of_system_topics(routes: RouteInfoManager) -> None:
    register(routes, MASTER)
    other = attrs.evolve(with_topics(MASTER, 1, "O"), cluster_name="other", broker_name="b")
    register(routes, attrs.evolve(other, broker_addr="10.0.0.5:1"))
    assert all_at_once(routes.topics_of_cluster("lab")) == ["T"]
    assert all_at_once(routes.topics_of_cluster("none")) == []
    assert routes.system_topics() == (["lab", "other", "broker-a", "b"], "10.0.0.1:10911")


def test_a_topic_is_forgotten_everywhere_or_in_one_cluster(routes: RouteInfoManager) -> None:
    register(routes, MASTER)
    register(routes, attrs.evolve(MASTER, cluster_name="other", broker_name="b", broker_addr="x:1"))
    routes.delete_topic("T", "other")
    assert list(routes.topic_queue_table["T"]) == ["broker-a"]
    routes.delete_topic("T")
    routes.delete_topic("T")
    assert "T" not in routes.topic_queue_table


def test_unit_topics_go_by_their_flags(routes: RouteInfoManager) -> None:
    table = {name: TopicConfig(name, topic_sys_flag=flag) for flag, name in enumerate("abcd")}
    register(
        routes, attrs.evolve(MASTER, topics=TopicConfigSerializeWrapper(DataVersion(1), table))
    )
    assert all_at_once(routes.unit_topics(unit=True, unit_sub=None)) == ["b", "d"]
    assert all_at_once(routes.unit_topics(unit=None, unit_sub=True)) == ["c", "d"]
    assert all_at_once(routes.unit_topics(unit=False, unit_sub=True)) == ["c"]


def test_filter_servers_follow_their_broker(routes: RouteInfoManager) -> None:
    register(routes, attrs.evolve(MASTER, filter_servers=["10.0.0.1:7"]))
    route = routes.pickup_topic_route_data("T")
    assert route is not None
    assert route.filter_server_table == {"10.0.0.1:10911": ["10.0.0.1:7"]}
    register(routes, MASTER)
    route = routes.pickup_topic_route_data("T")
    assert route is not None
    assert route.filter_server_table == {}


def test_a_broker_comes_back_over_another_connection_and_the_old_one_ends_later(
    routes: RouteInfoManager,
) -> None:
    register(routes, MASTER)
    register(routes, MASTER, channel="again")
    routes.channel_closed(MASTER.broker_addr)
    assert addrs(routes) == {0: MASTER.broker_addr}
    routes.channel_closed("again")
    assert addrs(routes) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"ha_server_addr": "10.6.6.6:10912"},
        {"broker_id": 5},
        {"broker_name": "broker-b"},
    ],
)
def test_address_belongs_to_its_connection_while_that_is_open(
    routes: RouteInfoManager, changes: dict[str, Any]
) -> None:
    register(routes, MASTER)
    stolen = attrs.evolve(with_topics(MASTER, 9, "stolen"), **changes)
    with pytest.raises(RegistrationRefusedError, match=r"from 10\.0\.0\.1, which is still open"):
        register(routes, stolen, channel="stranger", host="10.6.6.6")
    routes.channel_closed("stranger")
    assert addrs(routes) == {0: MASTER.broker_addr}
    assert routes.broker_live_table[MASTER.key].ha_server_addr == MASTER.ha_server_addr
    assert routes.pickup_topic_route_data("stolen") is None
    routes.channel_closed(MASTER.broker_addr)
    register(routes, stolen, channel="stranger", host="10.6.6.6")


def test_connection_from_the_address_itself_replaces_an_earlier_one(
    routes: RouteInfoManager,
) -> None:
    stolen = attrs.evolve(MASTER, ha_server_addr="10.6.6.6:10912")
    register(routes, stolen, channel="stranger", host="10.6.6.6")
    with pytest.raises(RegistrationRefusedError, match=r"from 10\.6\.6\.6"):
        register(routes, MASTER, channel="elsewhere", host="10.0.0.77")
    register(routes, MASTER, channel="itself", host="10.0.0.1")
    assert routes.broker_live_table[MASTER.key].ha_server_addr == MASTER.ha_server_addr
    with pytest.raises(RegistrationRefusedError, match=r"from 10\.0\.0\.1"):
        register(routes, stolen, channel="stranger", host="10.6.6.6")
    routes.channel_closed("stranger")
    assert addrs(routes) == {0: MASTER.broker_addr}


def test_a_route_has_limited_size(routes: RouteInfoManager) -> None:
    """As many brokers as there may be serve one topic, with the longest names."""
    for number in range(BROKERS_LIMIT):
        one = numbered(number, "T")
        host = one.broker_addr.partition(":")[0]
        servers = [f"{'s' * 250}:{port}" for port in range(10_000, 10_016)]
        long_name = attrs.evolve(one, broker_name=f"{number:0262}", filter_servers=servers)
        register(routes, long_name, channel=number, host=host)
    route = routes.pickup_topic_route_data("T")
    assert route is not None
    assert len(route.broker_datas) == BROKERS_LIMIT
    assert len(route.to_json()) < FRAME_SIZE_LIMIT // 2
    assert len(routes.cluster_info().to_classic_json()) < FRAME_SIZE_LIMIT // 2


def test_a_name_keeps_its_cluster_while_it_has_a_broker(routes: RouteInfoManager) -> None:
    register(routes, MASTER)
    with pytest.raises(RegistrationRefusedError, match="cluster lab, and not of evil"):
        register(routes, attrs.evolve(SLAVE, cluster_name="evil"))
    routes.channel_closed(MASTER.broker_addr)
    register(routes, attrs.evolve(SLAVE, cluster_name="evil"))
    assert list(routes.cluster_addr_table) == ["evil"]


@pytest.mark.parametrize("channel", ["another of the same host", "10.6.6.6:1"])
def test_only_the_connection_that_registered_a_broker_may_unregister_it(
    routes: RouteInfoManager, channel: str
) -> None:
    register(routes, MASTER)
    leave = {
        "cluster_name": "lab",
        "broker_addr": MASTER.broker_addr,
        "broker_name": "broker-a",
        "broker_id": 0,
    }
    with pytest.raises(RegistrationRefusedError, match="which is still open"):
        routes.unregister_broker(**leave, channel=channel)  # type: ignore[arg-type]
    assert addrs(routes) == {0: MASTER.broker_addr}
    routes.unregister_broker(**leave, channel=MASTER.broker_addr)  # type: ignore[arg-type]
    assert addrs(routes) is None
    routes.unregister_broker(**leave, channel=channel)  # type: ignore[arg-type]


def test_heartbeat_of_another_connection_does_not_count(routes: RouteInfoManager) -> None:
    register(routes, MASTER, now=0)
    routes.refresh(MASTER.key, channel="stranger", now=100)
    assert routes.scan_not_active_broker(BROKER_CHANNEL_EXPIRED_TIME + 1) == [MASTER.key]


def numbered(number: int, *topics: str) -> Registration:
    name, host = f"b{number}", f"10.1.{number >> 8}.{number & 255}"
    return attrs.evolve(
        with_topics(MASTER, 1, *topics), broker_name=name, broker_addr=f"{host}:10911"
    )


def test_one_connection_registers_some_brokers_and_no_more(routes: RouteInfoManager) -> None:
    for number in range(CONNECTION_BROKERS_LIMIT):
        register(routes, numbered(number), channel="one")
    with pytest.raises(RegistrationRefusedError, match=str(CONNECTION_BROKERS_LIMIT)):
        register(routes, numbered(CONNECTION_BROKERS_LIMIT), channel="one")
    register(routes, numbered(0), channel="one")
    routes.channel_closed("one")
    assert not routes.broker_live_table


def test_one_host_leaves_room_for_the_brokers_of_others(routes: RouteInfoManager) -> None:
    for number in range(BROKERS_LIMIT // 2):
        register(routes, numbered(number), channel=number // 16, host="10.6.6.6")
    with pytest.raises(
        RegistrationRefusedError, match=r"no room for another broker of 10\.6\.6\.6"
    ):
        register(routes, numbered(BROKERS_LIMIT), host="10.6.6.6")
    register(routes, MASTER)
    for number in range(BROKERS_LIMIT // 2, BROKERS_LIMIT - 1):
        register(routes, numbered(number))
    with pytest.raises(RegistrationRefusedError, match="no room"):
        register(routes, SLAVE)


def test_topics_without_room_are_left_out_and_come_in_when_there_is_some(
    routes: RouteInfoManager,
) -> None:
    routes._topics.limit = 8
    hostile = numbered(1, *(f"junk-{number}" for number in range(9)))
    assert register(routes, hostile, channel="stranger").left_out == 5
    assert register(routes, with_topics(MASTER, 1, "T", "U", "V", "W")).left_out == 0
    late = numbered(2, "T", "X")
    assert register(routes, late).left_out == 1
    assert routes.data_version(late.key) != late.topics.data_version
    routes.channel_closed("stranger")
    assert register(routes, late).left_out == 0
    assert routes.data_version(late.key) == late.topics.data_version
    assert sorted(routes.topic_queue_table) == ["T", "U", "V", "W", "X"]


def test_the_names_of_all_topics_fit_one_answer(routes: RouteInfoManager) -> None:
    longest = [f"{number:0255}" for number in range(1_000)]
    for number in range(60):
        host = number // 2
        names = [f"{number:06}{name}" for name in longest]
        register(routes, numbered(number, *names), channel=number, host=str(host))
    assert len(TopicList(list(routes.topic_queue_table)).to_json()) < FRAME_SIZE_LIMIT
    assert routes._topic_names.used > TOPIC_NAMES_LIMIT - 1_000_000


def test_what_one_connection_serves_is_limited(
    routes: RouteInfoManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketrio_broker.namesrv.routes.CONNECTION_ROUTES_LIMIT", 10)
    names = [f"T{number}" for number in range(8)]
    assert register(routes, numbered(1, *names), channel="one").left_out == 0
    assert register(routes, numbered(2, *names), channel="one").left_out == 6
    assert register(routes, numbered(3, *names), channel="two").left_out == 0


def test_a_broker_of_very_many_topics_comes_and_goes_a_little_at_a_time(
    routes: RouteInfoManager,
) -> None:
    names = [f"T{number}" for number in range(3 * SLICE)]
    many = with_topics(MASTER, 1, *names)
    steps = routes.registration_steps(many, channel="a", host="10.0.0.1", now=0)
    next(steps)
    assert addrs(routes, "T0") == {0: MASTER.broker_addr}
    assert addrs(routes, names[-1]) is None
    assert routes.data_version(MASTER.key) != DataVersion(1, 1)
    assert all_at_once(steps) == RegisterBrokerResult()
    assert addrs(routes, names[-1]) == {0: MASTER.broker_addr}
    assert routes.data_version(MASTER.key) == DataVersion(1, 1)
    routes.channel_closed("a")
    assert len(routes.topic_queue_table) == 2 * SLICE
    assert not any(map(routes.pickup_topic_route_data, names))
    # It is back before all of that is taken out, with some topics only.
    assert register(routes, with_topics(MASTER, 2, *names[:10])).left_out == 0
    while routes.tidy():
        pass
    assert sorted(routes.topic_queue_table) == sorted(names[:10])
    assert addrs(routes, "T9") == {0: MASTER.broker_addr}
    assert (routes._routes.used, routes._topics.used) == (10, 10)


def test_topics_of_a_broker_that_is_gone_meanwhile_are_not_noted(
    routes: RouteInfoManager,
) -> None:
    many = with_topics(MASTER, 1, *(f"T{number}" for number in range(3 * SLICE)))
    steps = routes.registration_steps(many, channel="a", host="10.0.0.1", now=0)
    next(steps)
    routes.channel_closed("a")
    all_at_once(steps)
    assert not routes.topic_queue_table
    assert not routes.broker_addr_table


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_collection")
def test_the_end_of_a_connection_costs_what_it_registered() -> None:
    """Whatever else is there: a walk through all tables for each broker would make it a hundred times as dear."""

    def cost(others: int) -> float:
        routes = RouteInfoManager()
        for number in range(others):
            topics = [f"T{number}-{each}" for each in range(100)]
            register(routes, numbered(number, *topics))
        for number in range(BROKERS_LIMIT, BROKERS_LIMIT + CONNECTION_BROKERS_LIMIT):
            register(routes, numbered(number, f"T{number}"), channel="one")
        start = time.process_time()
        routes.channel_closed("one")
        return time.process_time() - start

    assert min(cost(300) for _ in range(3)) < 10 * min(cost(3) for _ in range(3)) + 0.001


class RouteMachine(RuleBasedStateMachine):
    """Whatever comes and goes, no topic is routed to a broker name without address."""

    def __init__(self) -> None:
        super().__init__()
        self.routes = RouteInfoManager()
        self.now = 0.0

    @rule(
        name=st.sampled_from(["a", "b"]),
        broker_id=st.integers(0, 2),
        host=st.integers(1, 4),
        version=st.integers(0, 3),
        topics=st.sets(st.sampled_from(["T", "U", "V"])),
    )
    def register(
        self, name: str, broker_id: int, host: int, version: int, topics: set[str]
    ) -> None:
        addr = f"10.0.0.{host}:1"
        registration = attrs.evolve(MASTER, broker_name=name, broker_id=broker_id, broker_addr=addr)
        broker = self.routes.broker_addr_table.get(name)
        master = addr if broker is None else broker.broker_addrs.get(0, addr)
        expected = (
            pytest.raises(AnotherMasterError, match=master)
            if broker_id == 0 and master != addr
            else nullcontext()
        )
        with expected:
            self.routes.register_broker(
                with_topics(registration, version, *topics),
                channel=addr,
                host=f"10.0.0.{host}",
                now=self.now,
            )
        if broker_id == 0 and master != addr:
            return
        assert self.routes.broker_addr_table[name].broker_addrs[broker_id] == addr

    @rule(name=st.sampled_from(["a", "b"]), broker_id=st.integers(0, 2), host=st.integers(1, 4))
    def unregister(self, name: str, broker_id: int, host: int) -> None:
        self.routes.unregister_broker(
            cluster_name="lab",
            broker_addr=f"10.0.0.{host}:1",
            broker_name=name,
            broker_id=broker_id,
            channel=f"10.0.0.{host}:1",
        )

    @rule(host=st.integers(1, 4))
    def close(self, host: int) -> None:
        addr = f"10.0.0.{host}:1"
        self.routes.channel_closed(addr)
        for broker in self.routes.broker_addr_table.values():
            assert addr not in broker.broker_addrs.values()

    @rule(seconds=st.sampled_from([1.0, 70.0, 130.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.routes.scan_not_active_broker(self.now)

    @invariant()
    def every_routed_name_has_an_address(self) -> None:
        for topic, queues in self.routes.topic_queue_table.items():
            assert queues
            route = self.routes.pickup_topic_route_data(topic)
            assert route is not None
            assert all(broker.broker_addrs for broker in route.broker_datas)

    @invariant()
    def every_listed_address_is_alive(self) -> None:
        for broker in self.routes.broker_addr_table.values():
            for addr in broker.broker_addrs.values():
                assert BrokerAddr("lab", addr) in self.routes.broker_live_table

    @invariant()
    def what_is_counted_is_what_is_there(self) -> None:
        routes, table = self.routes, self.routes.topic_queue_table
        assert routes._brokers.used == len(routes.broker_live_table)
        assert routes._topics.used == len(table)
        assert routes._topic_names.used == sum(len(topic) + 3 for topic in table)
        assert routes._routes.used == sum(map(len, table.values()))
        for name, served in routes._served.items():
            assert served.topics == {topic for topic, queues in table.items() if name in queues}
        by_channel = {key for keys in routes._by_channel.values() for key in keys}
        assert by_channel == set(routes.broker_live_table)

    @invariant()
    def names_are_in_their_cluster(self) -> None:
        listed = {name for names in self.routes.cluster_addr_table.values() for name in names}
        assert listed == set(self.routes.broker_addr_table)


RouteMachine.TestCase.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
TestRouteMachine = RouteMachine.TestCase
