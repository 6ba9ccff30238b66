"""Positions: what options may say, the one JSON form, and ranges inside what queues hold."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.offsets import (
    AtTimestamp,
    AtTimestamps,
    Bounds,
    ExplicitOffsets,
    GroupOffsets,
    QueueRange,
    check_covers,
    format_offsets,
    parse_more,
    parse_offset_table,
    parse_position,
    resolve_ranges,
    starts_before_ends,
)
from rocketrio_protocol.message import MessageQueue

_queues = st.builds(
    MessageQueue,
    st.sampled_from(["t", "a b", "\u00e9"]),
    st.sampled_from(["x", "y"]),
    st.integers(0, 20),
)
_tables = st.dictionaries(_queues, st.integers(-2, 2**63 - 1), max_size=8)


@given(_tables, st.randoms())
def test_tables_round_trip_as_the_same_text_whatever_their_order(
    table: dict[MessageQueue, int], rng: random.Random
) -> None:
    text = format_offsets(table)
    shuffled = list(table.items())
    rng.shuffle(shuffled)
    assert format_offsets(dict(shuffled)) == text
    assert parse_offset_table(text, option="o") == table
    assert parse_offset_table(json.dumps(json.loads(text)["queues"]), option="o") == table


def test_offsets_may_say_which_topics_of_their_names_they_count() -> None:
    queue = MessageQueue("t", "b", 10)
    text = format_offsets({queue: 7}, incarnations={queue: 2}, retired={})
    assert text == (
        '{"version":1,"queues":{"t":{"b":{"10":7}}},"incarnations":{"t":{"b":{"10":2}}}}'
    )
    assert parse_offset_table(text, option="o") == {queue: 7}
    assert parse_more(json.loads(text), "incarnations", option="o") == {queue: 2}
    assert parse_more(json.loads(text), "retired", option="o") == {}
    assert parse_more(json.loads(format_offsets({queue: 7})), "incarnations", option="o") == {}


def test_queue_ids_are_sorted_by_number() -> None:
    table = {
        MessageQueue("t", "b", 10): 1,
        MessageQueue("t", "b", 9): 2,
        MessageQueue("s", "b", 0): 3,
    }
    assert format_offsets(table) == (
        '{"version":1,"queues":{"s":{"b":{"0":3}},"t":{"b":{"9":2,"10":1}}}}'
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("[1]", "must be objects"),
        ('{"t":{"b":5}}', "must be objects"),
        ('{"t":{"b":{"x":5}}}', "'x': 5"),
        ('{"t":{"b":{"00":5}}}', "'00': 5"),
        ('{"t":{"b":{"\u0663":5}}}', "'\u0663': 5"),
        ('{"t":{"b":{"0":-3}}}', "-3"),
        ('{"t":{"b":{"0":true}}}', "True"),
        ('{"t":{"b":{"0":1.5}}}', "1.5"),
        ('{"t":{"b":{"0":9223372036854775808}}}', "9223372036854775808"),
        ('{"version":2,"queues":{}}', "format version 2"),
        ('{"version":1}', "must be objects"),
    ],
)
def test_wrong_json_is_refused_naming_the_option(text: str, why: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets") as caught:
        parse_offset_table(text, option="startingOffsets")
    assert why in str(caught.value)
    assert str(caught.value).startswith("[ROCKETMQ_OPTION] ")


def test_earliest_latest_and_json_are_positions() -> None:
    assert parse_position(" Earliest ", option="o", is_end=False) == "earliest"
    assert parse_position("latest", option="o", is_end=True) == "latest"
    assert parse_position("GROUP", option="o", is_end=False) == GroupOffsets()
    position = parse_position('{"t":{"b":{"0":-1}}}', option="o", is_end=True)
    assert position == ExplicitOffsets({MessageQueue("t", "b", 0): -1})
    for wrong in ("earliest", "group", "soon", '{"t":{"b":{"0":-2}}}'):
        with pytest.raises(OptionError):
            parse_position(wrong, option="endingOffsets", is_end=True)


def test_explicit_offsets_must_name_every_queue_and_no_other() -> None:
    here, other = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)
    check_covers("earliest", {here: 1}, option="o")
    check_covers(AtTimestamp(5), {here: 1}, option="o")
    check_covers(ExplicitOffsets({here: 1}), {here: 1}, option="o")
    check_covers(GroupOffsets(), {here: 1}, option="o")
    with pytest.raises(OptionError, match="oByTimestamp lacks t@b:1: name every queue, or"):
        check_covers(AtTimestamps({here: 1}), {here: 1, other: 1}, option="o")
    with pytest.raises(OptionError, match="lacks t@b:1"):
        check_covers(ExplicitOffsets({here: 1}), {here: 1, other: 1}, option="o")
    with pytest.raises(OptionError, match="names t@b:1, which this query does not read"):
        check_covers(ExplicitOffsets({here: 1, other: 1}), {here: 1}, option="o")


_Q = MessageQueue("t", "b", 0)


@pytest.mark.parametrize(
    ("start", "end", "expected", "lost"),
    [
        (-2, -1, (10, 20), None),
        (-1, -1, (20, 20), None),
        (12, 15, (12, 15), None),
        (5, 15, (10, 15), (5, 10)),
        (5, 8, (8, 8), (5, 8)),
        (12, 25, (12, 20), (20, 25)),
        (22, 25, (20, 20), (22, 25)),
        (22, -1, (20, 20), (20, 22)),
        (-2, 4, (4, 4), (0, 4)),
        (-2, 0, (0, 0), None),
        (10, 20, (10, 20), None),
        (3, 3, (3, 3), None),
    ],
)
def test_ranges_stay_inside_what_the_queue_holds(
    start: int, end: int, expected: tuple[int, int], lost: tuple[int, int] | None
) -> None:
    ranges, losses = resolve_ranges({_Q: Bounds(10, 20)}, {_Q: start}, {_Q: end})
    assert ranges == [QueueRange("t", "b", 0, *expected)]
    assert [(loss.start, loss.end) for loss in losses] == ([] if lost is None else [lost])


def test_a_start_behind_its_end_is_refused() -> None:
    with pytest.raises(OptionError, match=r"t@b:0 would be read from 15 to 12: what the starting"):
        resolve_ranges({_Q: Bounds(10, 20)}, {_Q: 15}, {_Q: 12})


def test_group_without_commits_whose_beginning_was_lost_keeps_its_start() -> None:
    """Otherwise nothing would show that what it should read is gone."""
    bounds = {_Q: Bounds(10, 20)}
    assert starts_before_ends(bounds, {_Q: -2}, {_Q: 4}) == {_Q: -2}
    assert starts_before_ends(bounds, {_Q: 15}, {_Q: 12}) == {_Q: 12}
    assert starts_before_ends(bounds, {_Q: 15}, {_Q: -1}) == {_Q: 15}


def test_loss_names_its_cause_place_and_remedy() -> None:
    _, losses = resolve_ranges({_Q: Bounds(10, 20)}, {_Q: 5}, {_Q: -1})
    text = str(losses[0].error())
    assert text.startswith("[ROCKETMQ_OFFSET_OUT_OF_RANGE] t@b:0: offsets 5 to 10 (5 messages)")
    assert "holds 10 to 20" in text
    assert "failOnDataLoss=false" in text
