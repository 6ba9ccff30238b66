"""Routes and lists as the name servers of the recorded runs wrote them."""

import pytest
from tests.golden.exchanges import answer_bodies
from tests.golden.golden import as_4_9_wrote

from rocketrio_protocol.bodies.route import (
    BrokerData,
    ClusterInfo,
    KVTable,
    QueueData,
    TopicList,
    TopicRouteData,
)
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.errors import RemoteProtocolError

ROUTE = TopicRouteData(
    broker_datas=[BrokerData("C", "b", {0: "h:1", 1: "h:2"})],
    queue_datas=[QueueData("b", 4, 4, 6)],
)


def test_routes_of_4_9_7_are_written_again_to_the_byte() -> None:
    recorded = answer_bodies("4.9.7", "namesrv", RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert len(recorded) > 10
    for body in recorded:
        assert as_4_9_wrote(TopicRouteData.from_json(body).to_json()) == body


def test_routes_and_cluster_information_of_5_3_3_are_written_again_to_the_byte() -> None:
    """Each broker says `enableActingMaster`: the Rust client cannot read a route without it."""
    recorded = answer_bodies("5.3.3", "namesrv", RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert len(recorded) > 10
    for body in recorded:
        assert b'"enableActingMaster":false' in body
        assert TopicRouteData.from_json(body).to_json() == body
    for body in answer_bodies("5.3.3", "namesrv", RequestCode.GET_BROKER_CLUSTER_INFO):
        assert ClusterInfo.from_json(body).to_classic_json() == body


def test_cluster_information_of_4_9_7_is_written_again_to_the_byte() -> None:
    (body,) = answer_bodies("4.9.7", "namesrv", RequestCode.GET_BROKER_CLUSTER_INFO)
    assert b"{0:" in body
    info = ClusterInfo.from_json(body)
    assert info.broker_addr_table["broker-a"].broker_addrs[1] == "127.0.0.1:38921"
    assert as_4_9_wrote(info.to_classic_json()) == body


def test_bodies_of_5_3_3_are_read() -> None:
    for body in answer_bodies("5.3.3", "namesrv", RequestCode.GET_ROUTEINFO_BY_TOPIC):
        route = TopicRouteData.from_json(body)
        assert set(route.broker_datas[0].broker_addrs) == {0, 1}
    for body in answer_bodies("5.3.3", "namesrv", RequestCode.GET_BROKER_CLUSTER_INFO):
        assert ClusterInfo.from_json(body).cluster_addr_table == {"lab": ["broker-a"]}
    (topics,) = answer_bodies("5.3.3", "namesrv", RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert "orders" in TopicList.from_json(topics).topic_list


IN_A_ZONE = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:29351"},"brokerName":"broker-a","cluster":"lab",'
    b'"enableActingMaster":true,"zoneName":"east"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
    b'"perm":7,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
)
"""5.3.3's name server of a 5.3.3 broker with `enableSlaveActingMaster=true` and `-Drocketmq.zone=east`."""


def test_zones_and_acting_masters_of_5_3_3_are_passed_over() -> None:
    route = TopicRouteData.from_json(IN_A_ZONE)
    assert route.broker_datas == [BrokerData("lab", "broker-a", {0: "127.0.0.1:29351"}, True)]
    assert route.queue_datas == [QueueData("broker-a", 8, 8, 7)]


def test_both_forms_of_a_route_are_equal() -> None:
    assert b'"brokerAddrs":{0:"h:1",1:"h:2"}' in ROUTE.to_classic_json()
    assert b'"brokerAddrs":{"0":"h:1","1":"h:2"}' in ROUTE.to_json()
    assert TopicRouteData.from_json(ROUTE.to_classic_json()) == ROUTE
    assert TopicRouteData.from_json(ROUTE.to_json()) == ROUTE


@pytest.mark.parametrize(
    ("perm", "readable", "writable"), [(6, True, True), (4, True, False), (2, False, True)]
)
def test_permission_decides_whether_queues_are_readable_and_writable(
    perm: int, readable: bool, writable: bool
) -> None:
    queues = QueueData("b", 4, 4, perm)
    assert (queues.is_readable, queues.is_writable) == (readable, writable)


def test_table_of_texts_is_encoded_and_decoded() -> None:
    assert KVTable({"a": "b"}).to_json() == b'{"table":{"a":"b"}}'
    assert KVTable.from_json(b'{"table":{"a":"b"}}').table == {"a": "b"}


@pytest.mark.parametrize("body", [b"", b"{", b'{"brokerDatas":[{"brokerAddrs":{"x":"h"}}]}'])
def test_a_damaged_route_is_the_peers_fault(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="TopicRouteData"):
        TopicRouteData.from_json(body)
