from contextlib import nullcontext
from typing import Any

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketrio_broker.route_info_manager import (
    BROKER_CHANNEL_EXPIRED_TIME,
    AnotherMasterError,
    BrokerAddr,
    RegisterBrokerResult,
    Registration,
    RouteInfoManager,
)
from rocketrio_protocol.topic_config import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)

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
    options = {"channel": registration.broker_addr, "now": 0.0} | changes
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


def test_only_a_slave_is_told_where_the_master_is(routes: RouteInfoManager) -> None:
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


def test_a_sign_of_life_puts_the_drop_off(routes: RouteInfoManager) -> None:
    register(routes, MASTER, now=0)
    routes.refresh(BrokerAddr("lab", MASTER.broker_addr), now=100)
    routes.refresh(BrokerAddr("lab", "unknown:1"), now=100)
    assert routes.scan_not_active_broker(BROKER_CHANNEL_EXPIRED_TIME + 1) == []


def test_a_late_stop_does_not_take_its_successor_along(routes: RouteInfoManager) -> None:
    register(routes, MASTER)
    register(routes, SLAVE)
    register(routes, attrs.evolve(SLAVE, broker_addr="10.0.0.9:10911"))
    routes.unregister_broker(
        cluster_name="lab", broker_addr=SLAVE.broker_addr, broker_name="broker-a", broker_id=1
    )
    assert addrs(routes) == {0: MASTER.broker_addr, 1: "10.0.0.9:10911"}


def test_write_permission_is_taken_and_given_back(routes: RouteInfoManager) -> None:
    register(routes, with_topics(MASTER, 1, "T", "U"))
    assert routes.change_write_permission("broker-a", writable=False) == 2
    route = routes.pickup_topic_route_data("T")
    assert route is not None
    assert not route.queue_datas[0].is_writable
    assert routes.change_write_permission("broker-a", writable=True) == 2
    assert route.queue_datas[0].perm == 6
    assert routes.change_write_permission("unknown", writable=True) == 0


def test_lists_by_cluster_and_of_system_topics(routes: RouteInfoManager) -> None:
    register(routes, MASTER)
    other = attrs.evolve(with_topics(MASTER, 1, "O"), cluster_name="other", broker_name="b")
    register(routes, attrs.evolve(other, broker_addr="10.0.0.5:1"))
    assert routes.topics_of_cluster("lab") == ["T"]
    assert routes.topics_of_cluster("none") == []
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
    assert routes.unit_topics(unit=True, unit_sub=None) == ["b", "d"]
    assert routes.unit_topics(unit=None, unit_sub=True) == ["c", "d"]
    assert routes.unit_topics(unit=False, unit_sub=True) == ["c"]


def test_filter_servers_follow_their_broker(routes: RouteInfoManager) -> None:
    register(routes, attrs.evolve(MASTER, filter_servers=["10.0.0.1:7"]))
    route = routes.pickup_topic_route_data("T")
    assert route is not None
    assert route.filter_server_table == {"10.0.0.1:10911": ["10.0.0.1:7"]}
    register(routes, MASTER)
    route = routes.pickup_topic_route_data("T")
    assert route is not None
    assert route.filter_server_table == {}


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
                with_topics(registration, version, *topics), channel=addr, now=self.now
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
    def names_are_in_their_cluster(self) -> None:
        listed = {name for names in self.routes.cluster_addr_table.values() for name in names}
        assert listed == set(self.routes.broker_addr_table)


RouteMachine.TestCase.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
TestRouteMachine = RouteMachine.TestCase
