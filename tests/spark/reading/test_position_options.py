"""Where a read starts and ends: every way to say it, which wins, and what contradicts."""

import pytest

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.offsets import (
    AtTimestamp,
    AtTimestamps,
    ExplicitOffsets,
    GroupOffsets,
    Position,
)
from rocketrio.spark.reading.options import parse_read_options
from rocketrio_protocol.message import MessageQueue

BASE = {"nameServer": "h:1", "subscribe": "t"}
_Q = MessageQueue("t", "b", 0)
_TIMES = '{"t":{"b":{"0":7}}}'


def _positions(**given: str) -> tuple[Position, Position]:
    options = parse_read_options(BASE | given)
    return options.starting, options.ending


def test_by_default_everything_is_read() -> None:
    assert _positions() == ("earliest", "latest")


@pytest.mark.parametrize(
    ("given", "start", "end"),
    [
        ({"startingOffsets": "latest"}, "latest", "latest"),
        ({"startingOffsets": "group", "consumerGroup": "g"}, GroupOffsets("earliest"), "latest"),
        (
            {"startingOffsets": "Group", "consumerGroup": "g", "startingOffsetsFallback": "LATEST"},
            GroupOffsets("latest"),
            "latest",
        ),
        (
            {"startingOffsets": '{"t":{"b":{"0":-2}}}', "endingOffsets": '{"t":{"b":{"0":9}}}'},
            ExplicitOffsets({_Q: -2}),
            ExplicitOffsets({_Q: 9}),
        ),
        (
            {"startingTimestamp": "7", "endingTimestamp": "7"},
            AtTimestamp(7, "error"),
            AtTimestamp(7, "latest"),
        ),
        (
            {"startingOffsetsByTimestamp": _TIMES, "endingOffsetsByTimestamp": _TIMES},
            AtTimestamps({_Q: 7}, "error"),
            AtTimestamps({_Q: 7}, "latest"),
        ),
        (
            {
                "startingOffsetsByTimestamp": _TIMES,
                "startingOffsetsByTimestampStrategy": "latest",
            },
            AtTimestamps({_Q: 7}, "latest"),
            "latest",
        ),
    ],
)
def test_ways_to_say_where(given: dict[str, str], start: Position, end: Position) -> None:
    assert _positions(**given) == (start, end)


@pytest.mark.parametrize("word", ["starting", "ending"])
def test_one_time_wins_over_times_and_times_over_offsets_as_in_kafka(word: str) -> None:
    given = {f"{word}Offsets": "latest"}
    which = 0 if word == "starting" else 1
    assert _positions(**given)[which] == "latest"
    given[f"{word}OffsetsByTimestamp"] = _TIMES
    assert isinstance(_positions(**given)[which], AtTimestamps)
    given[f"{word}Timestamp"] = "5"
    assert isinstance(_positions(**given)[which], AtTimestamp)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"startingOffsets": "group"}, "startingOffsets=group wants consumerGroup"),
        (
            {"startingOffsets": "group", "consumerGroup": " "},
            "consumerGroup=' ': The specified group is blank",
        ),
        ({"startingOffsets": "newest"}, "none of: earliest, latest, group"),
        ({"startingOffsetsFallback": "latest"}, "means nothing without startingOffsets=group"),
        (
            {
                "startingOffsets": "group",
                "consumerGroup": "g",
                "startingOffsetsFallback": "error",
            },
            "startingOffsetsFallback='error' is none of: earliest, latest",
        ),
        (
            {
                "startingOffsets": "group",
                "consumerGroup": "g",
                "startingOffsetsFallback": "latest",
                "startingTimestamp": "5",
            },
            "means nothing without startingOffsets=group",
        ),
        ({"endingOffsets": "group"}, "endingOffsets='group' is none of: latest"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "means nothing without"),
        (
            {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "earliest"},
            "startingOffsetsByTimestampStrategy='earliest' is none of: error, latest",
        ),
        ({"startingOffsetsByTimestamp": "7"}, "startingOffsetsByTimestamp must be objects"),
        ({"startingOffsetsByTimestamp": "{"}, "startingOffsetsByTimestamp is no JSON"),
        (
            {"startingOffsetsByTimestamp": '{"t":{"b":{"0":-1}}}'},
            "has '0': -1 for t on b; a queue id and epoch milliseconds are wanted",
        ),
        ({"endingOffsetsByTimestamp": '{"t":{"b":{"0":"x"}}}'}, "endingOffsetsByTimestamp has"),
        (
            {"startingTimestamp": "5", "startingOffsets": "soon"},
            "startingOffsets='soon'",
        ),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "is later than endingTimestamp=8"),
        ({"startingTimestamp": "-1"}, "startingTimestamp='-1' is not a whole number from 0"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError) as caught:
        _positions(**given)
    assert why in str(caught.value)
