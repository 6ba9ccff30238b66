"""Single option values: durations, and the bound `maxStaleness`."""

import pytest

from rocketrio.routing.read_policy import StalenessBound
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_kinds import staleness_bound
from rocketrio.spark.reading.options import parse_read_options
from rocketrio.spark.streaming.options import parse_stream_options
from rocketrio.spark.writing.options import parse_write_options

SERVER = {"nameServer": "h:1"}
READ = {**SERVER, "subscribe": "t"}


def _durations(text: str) -> dict[str, float | None]:
    """What each option that takes a duration makes of the text."""
    read = ("fetchOffset.retryIntervalMs", "pullTimeoutMs", "connectTimeoutMs")
    stream = ("offsetPollIntervalMs", "discoveryIntervalMs", "offsetFailureTimeoutMs", "commitIntervalMs",
              "maxTriggerDelay")  # fmt: skip
    of_read = parse_read_options({**READ, **dict.fromkeys(read, text)})
    streaming = {**READ, "consumerGroup": "g", "minOffsetsPerTrigger": "1"}
    of_stream = parse_stream_options({**streaming, **dict.fromkeys(stream, text)})
    of_write = parse_write_options({**SERVER, "sendTimeoutMs": text}, is_streaming=False)
    found = (
        of_read.offset_retry_interval, of_read.pull_timeout, of_read.connect_timeout, of_stream.poll_interval,
        of_stream.discovery_interval, of_stream.failure_timeout, of_stream.commit_interval,
        of_stream.max_trigger_delay, of_write.send_timeout,
    )  # fmt: skip
    return dict(zip((*read, *stream, "sendTimeoutMs"), found, strict=True))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250", 0.25),
        ("700", 0.7),
        ("500ms", 0.5),
        ("30 S", 30.0),
        (" 1.5s ", 1.5),
        ("15m", 900.0),
        ("2 min", 120.0),
        ("1h", 3600.0),
        ("2d", 172_800.0),
    ],
)
def test_duration_in_any_form_is_the_same_for_every_option(text: str, seconds: float) -> None:
    assert set(_durations(text).values()) == {seconds}
    if not text.isdecimal():
        options = parse_read_options({**READ, "maxStaleness": text})
        assert options.max_staleness == StalenessBound(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1", "5 y", "1s 2s", ".5s", "1e3", "9" * 15 + "d"])
def test_duration_of_another_form_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(OptionError, match=r"pullTimeoutMs=.* is not a duration .*500ms, 1.5s, 15m"):
        parse_read_options({**READ, "pullTimeoutMs": text})


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("10000 messages", StalenessBound(messages=10_000)),
        ("1 message", StalenessBound(messages=1)),
        ("0messages", StalenessBound(messages=0)),
        ("5m", StalenessBound(seconds=300.0)),
        (" 1.5 S ", StalenessBound(seconds=1.5)),
    ],
)
def test_staleness_bound_is_a_number_of_messages_or_a_duration(
    text: str, bound: StalenessBound
) -> None:
    assert staleness_bound(text, "maxStaleness") == bound
    assert staleness_bound(str(bound), "maxStaleness") == bound


@pytest.mark.parametrize(
    "text", ["", "5", "5.", "messages", "-1 messages", "1.5 messages", "0s", "5s 3s", "soon"]
)
def test_staleness_bound_of_another_form_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(OptionError, match=r"maxStaleness=.* is neither a number of messages.*15m"):
        parse_read_options({**READ, "maxStaleness": text})


def test_staleness_bound_is_refused_if_only_the_master_is_read() -> None:
    with pytest.raises(OptionError, match="maxStaleness is about slaves; readFrom=master"):
        parse_read_options({**READ, "maxStaleness": "5s", "readFrom": "master"})
