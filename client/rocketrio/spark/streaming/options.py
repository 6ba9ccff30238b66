"""The options of a stream: those of a read except its end, and those that only a stream has."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import duration_fields, number_fields, truth
from rocketrio.spark.reading.offsets import MAX_OFFSET
from rocketrio.spark.reading.option_names import (
    BATCH_ONLY_OPTIONS,
    BATCH_READ,
    READ_OPTION_TABLE,
    STREAMING_READ,
    OptionHelp,
    known_texts,
)
from rocketrio.spark.reading.options import ReadOptions, parse_read_options

STREAM_OPTION_TABLE: Final[Mapping[str, OptionHelp]] = {
    "maxOffsetsPerTrigger": OptionHelp(
        "",
        "a batch takes no more messages than this, of each queue in proportion to what is unread,"
        " and at least one where there is any",
    ),
    "maxBytesPerTrigger": OptionHelp(
        "", "the same in stored bytes, estimated from a sample of messages"
    ),
    "minOffsetsPerTrigger": OptionHelp(
        "",
        "a batch waits until this many messages are unread; not the first batch of a run,"
        " and not with `availableNow` or `once`",
    ),
    "maxTriggerDelay": OptionHelp(
        "`15m`", "but not longer than this after the batch before it: `500ms`, `30s`, `15m`, `1h`"
    ),
    "offsetPollIntervalMs": OptionHelp(
        "200",
        "brokers are asked for new messages at most this often; Spark itself asks 80 times a second",
    ),
    "discoveryIntervalMs": OptionHelp(
        "10000", "how often new topics, queues and brokers are discovered"
    ),
    "offsetFailureTimeoutMs": OptionHelp(
        "300000", "brokers that do not answer for this time end the query; until then it waits"
    ),
    "retiredBrokers": OptionHelp(
        "",
        "names of brokers that were taken out of service for good, separated by commas: once no name server knows"
        " them, the query goes on without their queues; what may be unread there is lost data",
    ),
    "commitOffsets": OptionHelp(
        "`true` if `consumerGroup` is given",
        "commit the progress of the group at the brokers, so that tools show its lag; the query never reads it",
    ),
    "commitIntervalMs": OptionHelp("5000", "how often, while there is something to read"),
}
"""The options that only a stream has; it also has those of READ_OPTION_TABLE, except BATCH_ONLY_OPTIONS."""

STREAM_OPTIONS: Final = dict.fromkeys(STREAM_OPTION_TABLE, STREAMING_READ)
"""The names of these options, with their use, for the errors of other uses."""

_KNOWN: Final = tuple(
    name for name in (*READ_OPTION_TABLE, *STREAM_OPTION_TABLE) if name not in BATCH_ONLY_OPTIONS
)
_BATCH_OPTIONS: Final = dict.fromkeys(BATCH_ONLY_OPTIONS, BATCH_READ)


@attrs.frozen
class StreamOptions:
    """The options of a streaming read. Times are seconds, sizes bytes."""

    read: ReadOptions
    max_rows: int | None = None
    max_size: int | None = None
    min_rows: int | None = None
    max_trigger_delay: float = 15 * 60.0
    poll_interval: float = 0.2
    discovery_interval: float = 10.0
    failure_timeout: float = 300.0
    retired_brokers: frozenset[str] = frozenset()
    commit_group: str | None = None
    """The group whose progress is committed at brokers, or None."""
    commit_interval: float = 5.0

    @property
    def is_limited(self) -> bool:
        """Whether a batch has an upper or a lower limit."""
        return (self.max_rows, self.max_size, self.min_rows) != (None, None, None)


def parse_stream_options(
    given: Mapping[str, str], *, other_options: Mapping[str, str] | None = None
) -> StreamOptions:
    """Parse the options of `spark.readStream`, in any letter case. Raises OptionError that names the wrong option."""
    texts = known_texts(
        given,
        known=_KNOWN,
        what=STREAMING_READ,
        other_options={**(other_options or {}), **_BATCH_OPTIONS},
    )
    own = {name: texts.pop(name) for name in STREAM_OPTION_TABLE if name in texts}
    fields: dict[str, Any] = {
        "read": parse_read_options(texts, default_start="latest"),
        **number_fields(own, _NUMBERS),
        **duration_fields(own, _DURATIONS),
    }
    names = own.get("retiredBrokers", "").split(",")
    fields["retired_brokers"] = frozenset(name.strip() for name in names if name.strip())
    fields["commit_group"] = _commit_group(own, texts.get("consumerGroup", "").strip())
    options = StreamOptions(**fields)
    _check_together(options, own)
    return options


_NUMBERS: Final = (
    ("max_rows", "maxOffsetsPerTrigger", 1, MAX_OFFSET),
    ("max_size", "maxBytesPerTrigger", 1, MAX_OFFSET),
    ("min_rows", "minOffsetsPerTrigger", 1, MAX_OFFSET),
)
# Fields in seconds: field, option, smallest value in milliseconds.
_DURATIONS: Final = (
    ("max_trigger_delay", "maxTriggerDelay", 0),
    ("poll_interval", "offsetPollIntervalMs", 1),
    ("discovery_interval", "discoveryIntervalMs", 1),
    ("failure_timeout", "offsetFailureTimeoutMs", 1),
    ("commit_interval", "commitIntervalMs", 1),
)


def _commit_group(own: Mapping[str, str], group: str) -> str | None:
    is_wanted = bool(group)
    if "commitOffsets" in own:
        is_wanted = truth(own["commitOffsets"], option="commitOffsets")
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
