"""The options of a stream, what each may be, and what the error of each wrong one says."""

from pathlib import Path

import pytest
from tests.spark.option_rows import option_rows

from rocketrio.spark.errors import OptionError
from rocketrio.spark.options import STREAMING_READ, WRITE
from rocketrio.spark.reading.offsets import GroupOffsets
from rocketrio.spark.reading.options import BATCH_ONLY_OPTIONS, parse_read_options
from rocketrio.spark.streaming.options import (
    STREAM_OPTIONS,
    StreamOptions,
    parse_stream_options,
)

BASE = {"nameServer": "h:1", "subscribe": "orders"}


def _parse(**given: str) -> StreamOptions:
    return parse_stream_options({**BASE, **given})


def test_a_stream_begins_at_the_end_and_has_no_limits() -> None:
    options = _parse()
    assert options.read.starting == "latest"
    assert not options.is_limited
    assert (options.poll_interval, options.failure_timeout, options.discovery_interval) == (
        0.2,
        300.0,
        10.0,
    )
    assert options.commit_group is None


def test_every_option_is_read_whatever_its_case() -> None:
    options = _parse(
        MAXOFFSETSPERTRIGGER="100", maxbytespertrigger="1000", minOffsetsPerTrigger="10",
        maxTriggerDelay="2m", offsetPollIntervalMs="50", discoveryIntervalMs="500",
        offsetFailureTimeoutMs="7000", consumerGroup="lag", commitIntervalMs="100",
    )  # fmt: skip
    assert options == StreamOptions(
        read=options.read,
        max_rows=100,
        max_size=1000,
        min_rows=10,
        max_trigger_delay=120.0,
        poll_interval=0.05,
        discovery_interval=0.5,
        failure_timeout=7.0,
        commit_group="lag",
        commit_interval=0.1,
    )
    assert options.is_limited
    assert options.read.consumer_group == "lag"


def test_options_of_a_read_are_known_too() -> None:
    options = _parse(startingOffsets="group", consumerGroup="lag", failOnDataLoss="false")
    assert options.read.starting == GroupOffsets()
    assert not options.read.fail_on_data_loss


def test_commits_can_be_left_out() -> None:
    assert _parse(consumerGroup="lag", commitOffsets="false").commit_group is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxOffsetPerTrigger": "5"}, "unknown option 'maxOffsetPerTrigger'; did you mean maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0' is not a whole number from 1"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger='many' is not"),
        ({"maxBytesPerTrigger": "-1"}, "maxBytesPerTrigger='-1' is not a whole number from 1"),
        ({"maxBytesPerTrigger": "64m"}, "maxBytesPerTrigger='64m' is not a whole number"),
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger='0' is not"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
         "minOffsetsPerTrigger=9 is more than maxOffsetsPerTrigger=8"),
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay is given, but nothing is delayed"),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "maxTriggerDelay='soon' is not a duration"),
        ({"offsetPollIntervalMs": "0"}, "offsetPollIntervalMs='0' is not a duration of at least 1 ms"),
        ({"discoveryIntervalMs": "x"}, "discoveryIntervalMs='x' is not"),
        ({"offsetFailureTimeoutMs": "-5"}, "offsetFailureTimeoutMs='-5' is not"),
        ({"commitOffsets": "true"}, "commitOffsets=true needs a consumerGroup"),
        ({"consumerGroup": "g", "commitOffsets": "maybe"}, "commitOffsets='maybe' is neither true nor false"),
        ({"commitIntervalMs": "5"}, "commitIntervalMs is given, but nothing is committed: give consumerGroup"),
        ({"consumerGroup": "g", "commitOffsets": "false", "commitIntervalMs": "5"},
         "commitIntervalMs is given, but nothing is committed: commitOffsets=false forbids it"),
        ({"consumerGroup": "g", "commitIntervalMs": "0"}, "commitIntervalMs='0' is not"),
        ({"startingOffsets": "group"}, "consumerGroup"),
        ({"topic": "orders"}, "subscribe and topic are given"),
        ({"accessKey": "hush", "credentialsFile": "y"}, "leave out accessKey"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as error:
        _parse(**given)
    assert said in str(error.value)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("name", BATCH_ONLY_OPTIONS)
def test_options_of_a_batch_are_refused_as_such(name: str) -> None:
    with pytest.raises(
        OptionError, match=rf"{name} is an option of a batch read .*, not of a streaming read"
    ):
        _parse(**{name: "latest"})


@pytest.mark.parametrize("name", STREAM_OPTIONS)
def test_a_batch_refuses_those_of_a_stream_as_such(name: str) -> None:
    with pytest.raises(OptionError, match=rf"{name} is an option of a streaming read"):
        parse_read_options(
            {**BASE, name: "1"}, other_options=dict.fromkeys(STREAM_OPTIONS, STREAMING_READ)
        )


def test_options_of_a_write_are_refused_as_such() -> None:
    with pytest.raises(
        OptionError, match=r"maxInFlight is an option of a write .*, not of a streaming read"
    ):
        parse_stream_options({**BASE, "maxInFlight": "1"}, other_options={"maxInFlight": WRITE})


def test_the_documentation_has_every_option() -> None:
    text = (Path(__file__).parents[3] / "docs" / "spark-streaming.md").read_text()
    for name, row in option_rows(STREAM_OPTIONS, "streaming").items():
        assert row.replace("|  |", "| |") in text, name
