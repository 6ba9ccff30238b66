"""The options of a stream: those of a read except its end, and those that only a stream has."""

from collections.abc import Mapping
from typing import Final

import attrs

from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_kinds import NAMES, duration, whole
from rocketrio.spark.options import (
    BATCH_READ,
    STREAMING_READ,
    declared,
    known_texts,
    made_of,
    option,
    values_of,
)
from rocketrio.spark.reading.options import (
    BATCH_ONLY_OPTIONS,
    READ_OPTIONS,
    ReadOptions,
    parse_read_options,
)


@attrs.frozen
class _Commit:
    """Whether a stream commits."""

    is_wanted: bool | None = option(
        "commitOffsets", None, shown="`true` if `consumerGroup` is given"
    )
    """commit the group's progress at the brokers"""


@attrs.frozen
class StreamOptions:
    """The options of a streaming read. Times are seconds, sizes bytes."""

    read: ReadOptions
    max_rows: int | None = option("maxOffsetsPerTrigger", None, whole(1))
    """a batch takes at most this number of messages, of each queue in proportion to what is unread, and at least
    one where there is any"""
    max_size: int | None = option("maxBytesPerTrigger", None, whole(1))
    """the same in stored bytes, estimated: up to 32 messages of the queues with the most unread are measured once a
    minute"""
    min_rows: int | None = option("minOffsetsPerTrigger", None, whole(1))
    """a batch waits until this number of messages is unread; not the first batch with messages of a run, and not
    with `availableNow` or `once`"""
    max_trigger_delay: float = option(
        "maxTriggerDelay", 15 * 60.0, duration(0, unit="ms"), shown="`15m`"
    )
    """but not longer than this after the batch before it: `500ms`, `30s`, `15m`, `1h`"""
    poll_interval: float = option("offsetPollIntervalMs", 0.2, duration(1))
    """brokers are asked for new messages at most this often; Spark itself would ask some 80 times a second"""
    discovery_interval: float = option("discoveryIntervalMs", 10.0, duration(1))
    """how often new topics, queues and brokers are discovered"""
    failure_timeout: float = option("offsetFailureTimeoutMs", 300.0, duration(1))
    """brokers that do not answer for this time end the query; until then it waits"""
    retired_brokers: frozenset[str] = option("retiredBrokers", frozenset(), NAMES)
    """names of brokers that were taken out of service for good, separated by commas; see [Topics that
    change](#topics-that-change)"""
    commit_group: str | None = made_of(_Commit, None)
    """The group whose progress is committed at brokers, or None."""
    commit_interval: float = option("commitIntervalMs", 5.0, duration(1))
    """how often, while there is something to read"""

    @property
    def is_limited(self) -> bool:
        """Whether a batch has an upper or a lower limit."""
        return (self.max_rows, self.max_size, self.min_rows) != (None, None, None)


STREAM_OPTIONS: Final = declared(StreamOptions)
"""The options that only a stream has; it also has those of READ_OPTIONS, except BATCH_ONLY_OPTIONS."""

_KNOWN: Final = tuple(
    name for name in (*READ_OPTIONS, *STREAM_OPTIONS) if name not in BATCH_ONLY_OPTIONS
)


def parse_stream_options(
    given: Mapping[str, str], *, other_options: Mapping[str, str] | None = None
) -> StreamOptions:
    """Parse the options of `spark.readStream`, in any letter case. Raises OptionError that names the wrong option."""
    texts = known_texts(
        given,
        known=_KNOWN,
        what=STREAMING_READ,
        other_options={**(other_options or {}), **dict.fromkeys(BATCH_ONLY_OPTIONS, BATCH_READ)},
    )
    own = {name: texts.pop(name) for name in STREAM_OPTIONS if name in texts}
    options = StreamOptions(
        parse_read_options(texts, default_start="latest"),
        **values_of(StreamOptions, own),
        commit_group=_commit_group(own, texts.get("consumerGroup", "").strip()),
    )
    _check_together(options, own)
    return options


def _commit_group(own: Mapping[str, str], group: str) -> str | None:
    is_wanted = values_of(_Commit, own).get("is_wanted", bool(group))
    if is_wanted and not group:
        raise OptionError("commitOffsets=true needs a consumerGroup to commit for")
    if "commitIntervalMs" in own and not is_wanted:
        remedy = "commitOffsets=false forbids it" if group else "give consumerGroup"
        raise OptionError(f"commitIntervalMs is given, but nothing is committed: {remedy}")
    return group if is_wanted else None


def _check_together(options: StreamOptions, own: Mapping[str, str]) -> None:
    most, least = options.max_rows, options.min_rows
    if most is not None and least is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}")
    if "maxTriggerDelay" in own and least is None:
        raise OptionError(
            "maxTriggerDelay is given, but nothing is delayed: give minOffsetsPerTrigger"
        )
