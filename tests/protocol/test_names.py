import pytest

from rocketrio_protocol.names import (
    dead_letter_topic,
    group_name_problem,
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


def test_topics_of_a_group() -> None:
    assert retry_topic("g") == "%RETRY%g"
    assert dead_letter_topic("g") == "%DLQ%g"
