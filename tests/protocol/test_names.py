from collections.abc import Callable

import pytest

from rocketrio_protocol.names import (
    SYSTEM_TOPICS,
    consumer_group_problem,
    dead_letter_topic,
    group_name_problem,
    is_system_topic,
    kept_topic_problem,
    retry_topic,
    topic_name_problem,
)


@pytest.mark.parametrize("name", ["T", "%RETRY%g", "a|b-c_D9", "x" * 127])
def test_names_that_may_be(name: str) -> None:
    assert topic_name_problem(name) is None
    assert group_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "illegal"),
        ("a@b", "illegal"),
        ("ä", "illegal"),
        ("a\n", "illegal"),
        ("x" * 128, "longer than 127"),
    ],
)
def test_names_that_may_not_be(name: str, told: str) -> None:
    assert told in (topic_name_problem(name) or "")


def test_groups_may_be_longer_than_topics() -> None:
    assert group_name_problem("x" * 255) is None
    assert group_name_problem("x" * 256) is not None


@pytest.mark.parametrize("length", [1, 120, 121, 248, 255, 256])
def test_consumer_group_is_accepted_if_its_topics_can_be_stored(length: int) -> None:
    group = f"shop%{'g' * (length - 5)}" if length > 5 else "g" * length
    topics = retry_topic(group), dead_letter_topic(group)
    is_storable = all(topic_name_problem(topic) is None for topic in topics)
    assert (consumer_group_problem(group) is None) == is_storable == (length <= 120)


@pytest.mark.parametrize("topic_of", [retry_topic, dead_letter_topic])
def test_table_keeps_the_topics_of_every_group(topic_of: Callable[[str], str]) -> None:
    assert kept_topic_problem(topic_of("g" * 255)) is None
    assert kept_topic_problem(topic_of("g" * 256)) is not None
    assert kept_topic_problem(topic_of("a b")) is not None
    assert kept_topic_problem("t" * 128) is not None


def test_topics_of_a_group() -> None:
    assert retry_topic("g") == "%RETRY%g"
    assert dead_letter_topic("g") == "%DLQ%g"


@pytest.mark.parametrize(
    "name",
    [
        *sorted(SYSTEM_TOPICS),
        "%RETRY%g",
        "%DLQ%g",
        "%SYS%t",
        "rmq_sys_t",
        "RMQ_SYS_T",
    ],
)
def test_is_system_topic_is_true_for_topics_of_rocketmq_and_of_retries(name: str) -> None:
    assert is_system_topic(name)


def test_is_system_topic_is_true_for_topics_of_the_given_owners_alone() -> None:
    for name in ("lab", "broker-a", "lab_REPLY_TOPIC"):
        assert is_system_topic(name, {"lab", "broker-a"})
        assert not is_system_topic(name)
    assert not is_system_topic("shop_REPLY_TOPIC", {"lab", "broker-a"})


@pytest.mark.parametrize(
    "name", ["orders", "my_rmq_sys_t", "REPLY_TOPIC_orders", "shop_REPLY_TOPIC", "tbw102"]
)
def test_is_system_topic_is_false_for_topics_of_users(name: str) -> None:
    assert not is_system_topic(name)
