"""Tables and decisions of the router, and queues from routes: plain values in, plain values out."""

import pytest
from tests.client.routes import route

from rocketrio.routing import (
    FindBrokerResult,
    Router,
    ordered_publish_queues,
    publish_queues,
    subscribe_queues,
)
from rocketrio_protocol.bodies.route import QueueData
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.message import MessageQueue

MASTER, SLAVE_1, SLAVE_2 = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
QUEUE = MessageQueue("orders", "a", 0)


def router(addrs: dict[int, str], *, failed: tuple[str, ...] = ()) -> Router:
    made = Router(is_avoided=lambda addr: addr in failed)
    made.update_topic_route("orders", route({"a": addrs}))
    return made


@pytest.mark.parametrize(
    ("addrs", "asked", "found"),
    [
        ({0: MASTER, 1: SLAVE_1}, 1, FindBrokerResult(SLAVE_1, 1)),
        ({0: MASTER, 1: SLAVE_1}, 0, FindBrokerResult(MASTER, 0)),
        ({2: SLAVE_2, 1: SLAVE_1}, 0, FindBrokerResult(SLAVE_1, 1)),  # the smallest, not the first
        ({2: SLAVE_2, 0: MASTER}, 1, FindBrokerResult(MASTER, 0)),  # the master, not id + 1
        ({}, 0, None),
    ],
)
def test_missing_id_is_replaced_by_the_master_then_the_smallest_id(
    addrs: dict[int, str], asked: int, found: FindBrokerResult | None
) -> None:
    assert router(addrs).find_broker_address_in_subscribe("a", asked) == found


def test_only_this_broker_means_only_this_broker() -> None:
    made = router({0: MASTER, 1: SLAVE_1}, failed=(SLAVE_1,))
    assert made.find_broker_address_in_subscribe("a", 2, only_this_broker=True) is None
    found = made.find_broker_address_in_subscribe("a", 1, only_this_broker=True)
    assert found == FindBrokerResult(SLAVE_1, 1)


@pytest.mark.parametrize(
    ("failed", "asked", "expected"),
    [
        ((MASTER,), 0, SLAVE_1),
        ((SLAVE_1,), 1, MASTER),
        ((MASTER, SLAVE_1), 0, SLAVE_2),
        ((MASTER, SLAVE_1, SLAVE_2), 1, SLAVE_1),  # all failed: what was asked for
    ],
)
def test_address_that_just_failed_is_passed_over(
    failed: tuple[str, ...], asked: int, expected: str
) -> None:
    made = router({0: MASTER, 1: SLAVE_1, 2: SLAVE_2}, failed=failed)
    found = made.find_broker_address_in_subscribe("a", asked)
    assert found is not None
    assert found.addr == expected


def test_candidates_start_with_the_master_and_end_with_failures() -> None:
    made = router({2: SLAVE_2, 1: SLAVE_1, 0: MASTER}, failed=(SLAVE_1,))
    assert [found.broker_id for found in made.candidates("a")] == [0, 2, 1]
    assert made.candidates("unknown") == []
    assert [found.broker_id for found in made.live("a")] == [0, 2]


def test_node_is_the_users_choice_or_the_last_suggestion_or_the_master() -> None:
    made = router({0: MASTER, 1: SLAVE_1})
    assert made.recalculate_pull_from_which_node(QUEUE, "g") == 0
    made.update_pull_from_which_node(QUEUE, 1, "g")
    assert made.recalculate_pull_from_which_node(QUEUE, "g") == 1
    made.connect_broker_by_user, made.default_broker_id = True, 2
    assert made.recalculate_pull_from_which_node(QUEUE, "g") == 2


def test_suggestion_to_one_group_moves_no_other() -> None:
    made = router({0: MASTER, 1: SLAVE_1})
    made.update_pull_from_which_node(QUEUE, 1, "lagging")
    assert made.recalculate_pull_from_which_node(QUEUE, "lagging") == 1
    assert made.recalculate_pull_from_which_node(QUEUE, "caught-up") == 0
    other = MessageQueue("orders", "a", 1)
    made.update_pull_from_which_node(other, 2, "caught-up")
    assert made.pull_from_which_node_table == {QUEUE: 1, other: 2}


def test_newest_answer_of_any_topic_rules_the_addresses() -> None:
    made = router({0: MASTER, 1: SLAVE_1})
    made.update_topic_route("other", route({"a": {1: SLAVE_1}}))
    assert made.broker_addr_table == {"a": {1: SLAVE_1}}
    # The route of `orders` is the same as before; its addresses count all the same.
    assert made.update_topic_route("orders", route({"a": {0: MASTER, 1: SLAVE_1}})) is False
    assert made.broker_addr_table == {"a": {0: MASTER, 1: SLAVE_1}}


def test_address_in_no_route_is_offline() -> None:
    made = router({0: MASTER, 1: SLAVE_1})
    made.broker_addr_table["a"][2] = SLAVE_2
    made.broker_addr_table["gone"] = {0: "10.9.9.9:10911"}
    assert sorted(made.clean_offline_brokers()) == [SLAVE_2, "10.9.9.9:10911"]
    assert made.broker_addr_table == {"a": {0: MASTER, 1: SLAVE_1}}


def test_suggestions_for_queues_that_are_gone_are_forgotten() -> None:
    made = router({0: MASTER})
    kept, gone = MessageQueue("orders", "a", 0), MessageQueue("orders", "a", 1)
    elsewhere = MessageQueue("other", "a", 9)
    for queue in (kept, gone, elsewhere):
        made.update_pull_from_which_node(queue, 1, "g")
    made.update_topic_route("orders", route({"a": {0: MASTER}}, queues=1))
    assert made.pull_from_which_node_tables == {"g": {kept: 1, elsewhere: 1}}


def test_addresses_list_masters_first_and_alone_for_producers() -> None:
    made = Router()
    made.update_topic_route("t", route({"b": {1: SLAVE_1, 0: MASTER}, "c": {1: SLAVE_2}}))
    assert made.addresses() == [MASTER, SLAVE_1, SLAVE_2]
    assert made.addresses(masters_only=True) == [MASTER]


def test_queues_without_a_master_are_read_but_not_written() -> None:
    given = route({"b": {1: SLAVE_1}, "a": {0: MASTER}})
    names = [(queue.broker_name, queue.queue_id) for queue in subscribe_queues("orders", given)]
    assert names == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert {queue.broker_name for queue in publish_queues("orders", given)} == {"a"}


def test_keyed_queues_stay_the_same_while_a_master_is_away() -> None:
    whole = route({"a": {0: MASTER}, "b": {0: SLAVE_1}})
    without = route({"a": {0: MASTER}, "b": {1: SLAVE_2}})
    assert ordered_publish_queues("t", whole) == ordered_publish_queues("t", without)


def test_permission_decides_who_may_read_and_write() -> None:
    readable, writable = route({"a": {0: MASTER}}, perm=4), route({"a": {0: MASTER}}, perm=2)
    assert publish_queues("t", readable) == []
    assert len(subscribe_queues("t", readable)) == 2
    assert len(publish_queues("t", writable)) == 2
    assert subscribe_queues("t", writable) == []


def test_order_configuration_rules_the_queues_to_write() -> None:
    given = route({"a": {0: MASTER}, "b": {1: SLAVE_1}})
    given.order_topic_conf = "a:1;b:3"
    assert publish_queues("t", given) == [MessageQueue("t", "a", 0)]
    assert len(ordered_publish_queues("t", given)) == 4


def test_template_route_is_trimmed_for_topics_to_be_created() -> None:
    given = route({"a": {0: MASTER}}, queues=8)
    assert len(publish_queues("t", given, queue_limit=4)) == 4


@pytest.mark.parametrize("config", ["a", "a:x", ":3", "a:99999999", "a:" + "9" * 5000])
def test_unreadable_order_configuration_is_the_peers_fault(config: str) -> None:
    given = route({"a": {0: MASTER}})
    given.order_topic_conf = config
    with pytest.raises(RemoteProtocolError):
        publish_queues("t", given)


def test_route_with_a_monstrous_number_of_queues_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="65536"):
        subscribe_queues("t", route({"a": {0: MASTER}}, queues=2**31 - 1))


def test_numbers_of_queues_below_nought_hide_no_monstrous_one() -> None:
    given = route({"a": {0: MASTER}}, queues=2**31 - 1)
    given.queue_datas.append(QueueData("b", -(2**31), -(2**31), 6))
    with pytest.raises(RemoteProtocolError, match="65536"):
        subscribe_queues("t", given)


def test_order_configuration_with_a_monstrous_number_of_queues_is_refused() -> None:
    given = route({"a": {0: MASTER}})
    given.order_topic_conf = ";".join(f"b{number}:65536" for number in range(2))
    with pytest.raises(RemoteProtocolError, match="65536"):
        publish_queues("t", given)
