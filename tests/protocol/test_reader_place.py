"""The name of the place that a reader's position comes from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.reader_place import (
    epoch_of,
    incarnation_of,
    is_earlier_topic,
    is_same_topic,
    place_text,
)

EPOCH = "14.9778.5f0c9e6ab1d24c87.77e0b6a1c4d2f035"


@given(st.integers(0, 10**15))
def test_a_place_has_its_epoch_and_incarnation(number: int) -> None:
    place = place_text(EPOCH, number)
    assert (epoch_of(place), incarnation_of(place)) == (EPOCH, number)


@pytest.mark.parametrize(
    "text", [None, "", EPOCH, f"{EPOCH}~", f"{EPOCH}~x", f"{EPOCH}~-1", f"{EPOCH}~²"]
)
def test_incarnation_of_other_texts_is_unknown(text: str | None) -> None:
    assert incarnation_of(text) is None
    assert not is_earlier_topic(text, place_text(EPOCH, 1))
    assert not is_same_topic(text, text)


def test_a_number_that_no_broker_names_is_unknown_and_not_parsed() -> None:
    assert incarnation_of(f"{EPOCH}~{'9' * 10_000}") is None


def test_topics_are_compared_by_their_incarnations_alone() -> None:
    first, second = place_text(EPOCH, 0), place_text("1.0.other.", 1)
    assert is_earlier_topic(first, second)
    assert not is_earlier_topic(second, first)
    assert is_same_topic(first, place_text("1.0.other.", 0))
    assert not is_same_topic(first, second)
