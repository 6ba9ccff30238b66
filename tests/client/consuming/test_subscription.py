"""Tag expressions."""

import pytest

from rocketrio.consuming.subscription import ALL, parse_subscription
from rocketrio_protocol.errors import ConfigError


@pytest.mark.parametrize("given", [None, "*", "", " * "])
def test_everything_is_wanted_without_tags(given: str | None) -> None:
    assert parse_subscription(given) == ALL


@pytest.mark.parametrize("given", ["a || b", "a||b", ["a", "b"], (" a", "b ")])
def test_tags_are_read_from_text_and_lists(given: str | list[str]) -> None:
    subscription = parse_subscription(given)
    assert subscription.tags == {"a", "b"}
    assert subscription.expression == "a || b"


@pytest.mark.parametrize("given", ["a ||", [], [""], ["a", "*"], ["a || b"]])
def test_unreadable_tags_are_refused(given: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        parse_subscription(given)


def test_heartbeat_form_carries_tags_and_their_hashes() -> None:
    data = parse_subscription("TagA || TagB").data("T", sub_version=7)
    assert (data.sub_string, data.sub_version) == ("TagA || TagB", 7)
    assert data.tags_set == ["TagA", "TagB"]
    assert data.code_set == [2598919, 2598920]  # "TagA".hashCode() in Java
