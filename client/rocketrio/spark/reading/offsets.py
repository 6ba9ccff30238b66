"""The positions where a query starts and ends: parsing, their JSON form, and conversion to ranges. Pure.

    {"version":1,"queues":{"orders":{"broker-a":{"0":1234,"1":99}}}}      or the inner map alone
    {"version":1,"queues":{...},"incarnations":{"orders":{"broker-a":{"0":2,"1":2}}},"retired":{...}}

The second form is that of checkpoints: it says which of several topics of one name the offsets count, and which queues
were let go because their brokers are out of service.

An offset is the next one to read; an end is exclusive; -2 means earliest, -1 latest.
Invariant: the JSON of one table is always the same text (topics and brokers sorted, queue ids by number), because
Spark compares offsets as text.
Answers to: the offset options of Spark's Kafka source; rocketmq-spark's offset JSON.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from rocketrio.queue_positions import check_time_ms
from rocketrio.spark.errors import OffsetOutOfRangeError, OptionError
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue

logger = logging.getLogger("rocketrio.spark.offsets")

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
MAX_OFFSET: Final = 2**63 - 1
_QUEUE_ID: Final = re.compile("0|[1-9][0-9]{0,9}")  # ten digits, as many as 2^31 - 1 has
FORMAT_VERSION: Final = 1

OffsetTable: TypeAlias = Mapping[MessageQueue, int]


WhenNone: TypeAlias = Literal["error", "latest"]


@attrs.frozen
class AtTimestamp:
    """The first message stored at this time (epoch ms) or later."""

    timestamp_ms: int
    when_none: WhenNone = "error"


@attrs.frozen
class AtTimestamps:
    """The first message stored at a time or later, with one time for each queue."""

    table: dict[MessageQueue, int]
    when_none: WhenNone = "error"


@attrs.frozen
class GroupOffsets:
    """The offset that the consumer group committed; the fallback for a queue without a commit."""

    fallback: Literal["earliest", "latest"] = "earliest"


@attrs.frozen
class ExplicitOffsets:
    """One offset for each queue."""

    table: dict[MessageQueue, int]


Position: TypeAlias = (
    Literal["earliest", "latest"] | AtTimestamp | AtTimestamps | ExplicitOffsets | GroupOffsets
)


@attrs.frozen
class Bounds:
    """What a queue holds: the offset of its oldest message, and the offset that its next message will get."""

    min_offset: int
    max_offset: int
    incarnation: int | None = attrs.field(default=None, eq=False)
    """Which of several topics of that name it is, as a rocketrio master reported it (docs/decisions/0068)."""


@attrs.frozen(order=True, cache_hash=True)  # Each pull uses it as a key.
class QueueRange:
    """Messages of one queue from `start` to before `end`."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    @classmethod
    def of(cls, queue: MessageQueue, start: int, end: int) -> "QueueRange":
        """Return the range of a queue from `start` to before `end`."""
        return cls(queue.topic, queue.broker_name, queue.queue_id, start, end)

    @property
    def queue(self) -> MessageQueue:
        """The queue of the range."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def rows(self) -> int:
        """The number of offsets in the range; with gaps there are fewer messages."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id} [{self.start}, {self.end})"


def format_offsets(table: OffsetTable, **more: OffsetTable) -> str:
    """Encode a table as JSON, and more tables, unless they are empty; the same tables always give the same text."""
    value: dict[str, Any] = {"version": FORMAT_VERSION, "queues": _by_topic(table)}
    value |= {name: _by_topic(other) for name, other in more.items() if other}
    return msgspec.json.encode(value).decode()


def _by_topic(table: OffsetTable) -> dict[str, dict[str, dict[str, int]]]:
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(table):
        brokers = topics.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = table[queue]
    return topics


def parse_more(value: Mapping[str, Any], name: str, *, option: str) -> dict[MessageQueue, int]:
    """Return a further table of an offset, empty if it has none. Raises OptionError."""
    return _parse_table(
        msgspec.json.encode(value.get(name, {})).decode(),
        option=option,
        example='{"orders":{"broker-a":{"0":1}}}',
        least=0,
        wanted="it must be a queue id and a number that is not negative",
    )


def parse_offset_table(text: str, *, option: str) -> dict[MessageQueue, int]:
    """Parse the JSON of an option. Raises OptionError that says what is wrong and where."""
    return _parse_table(
        text,
        option=option,
        example='{"orders":{"broker-a":{"0":1234,"1":-2}}}',
        least=EARLIEST_OFFSET,
        wanted="it must be a queue id and an offset, -2 for earliest, -1 for latest",
    )


def parse_timestamp_table(text: str, *, option: str) -> dict[MessageQueue, int]:
    """Parse a table with times (epoch ms) in place of offsets. Raises OptionError."""
    table = _parse_table(
        text,
        option=option,
        example='{"orders":{"broker-a":{"0":1700000000000}}}',
        least=0,
        wanted="it must be a queue id and epoch milliseconds",
    )
    for queue, time_ms in table.items():
        try:
            check_time_ms(f"{option} of {queue}", time_ms)
        except ConfigError as error:
            raise OptionError(str(error)) from error
    return table


def _parse_table(
    text: str, *, option: str, example: str, least: int, wanted: str
) -> dict[MessageQueue, int]:
    try:
        parsed: Any = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise OptionError(f"{option} is not JSON ({error}); write it like {example}") from error
    if isinstance(parsed, dict) and isinstance(parsed.get("version"), int):
        if parsed["version"] != FORMAT_VERSION:
            raise OptionError(
                f"{option} has format version {parsed['version']}, known is {FORMAT_VERSION}"
            )
        parsed = parsed.get("queues")
    table: dict[MessageQueue, int] = {}
    for topic, brokers in _entries(parsed, option, example):
        for broker_name, queues in _entries(brokers, option, example):
            for queue_id, number in _entries(queues, option, example):
                is_number = isinstance(number, int) and not isinstance(number, bool)
                if (
                    not _QUEUE_ID.fullmatch(queue_id)
                    or not is_number
                    or not least <= number <= MAX_OFFSET
                ):
                    raise OptionError(
                        f"{option} has {queue_id!r}: {number!r} for {topic} on {broker_name}; {wanted}"
                    )
                table[MessageQueue(topic, broker_name, int(queue_id))] = number
    return table


def _entries(value: Any, option: str, example: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise OptionError(f"{option} must be objects of topic, broker and queue, like {example}")
    return list(value.items())


def parse_position(text: str, *, option: str, is_end: bool) -> Position:
    """Parse `latest`, `earliest` or `group` (not for an end), or the JSON of a table."""
    word = text.strip().lower()
    if word == "latest":
        return "latest"
    if word == "earliest" and not is_end:
        return "earliest"
    if word == "group" and not is_end:
        return GroupOffsets()
    if not word.startswith("{"):
        words = "latest" if is_end else "earliest, latest, group"
        raise OptionError(
            f"{option}={text!r} must be one of: {words}, or JSON by topic, broker and queue"
        )
    table = parse_offset_table(text, option=option)
    if is_end and EARLIEST_OFFSET in table.values():
        raise OptionError(f"{option} must not say -2: a query cannot end at the earliest message")
    return ExplicitOffsets(table)


@attrs.frozen
class Loss:
    """Offsets that should be read and do not exist."""

    queue: MessageQueue
    start: int
    end: int
    bounds: Bounds | None
    """What the queue holds; None if the queue does not exist any more."""

    def error(self) -> OffsetOutOfRangeError:
        """Return the error for this loss."""
        held = "the queue does not exist any more"
        if self.bounds is not None:
            held = f"the queue holds {self.bounds.min_offset} to {self.bounds.max_offset}"
        return OffsetOutOfRangeError(
            f"{self.queue}: offsets {self.start} to {self.end} ({self.end - self.start} messages)"
            f" were to be read, but {held}"
        )


def check_covers(
    position: Position,
    queues: Mapping[MessageQueue, Any],
    *,
    option: str,
    fail_on_data_loss: bool = True,
) -> None:
    """Raise OptionError unless a table of offsets or times names exactly the queues that are read.

    Without `fail_on_data_loss` it may name more queues: they may have existed earlier.
    """
    if not isinstance(position, ExplicitOffsets | AtTimestamps):
        return
    if isinstance(position, AtTimestamps):
        option += "ByTimestamp"
    if missing := sorted(set(queues) - set(position.table)):
        words = " (-2 for earliest, -1 for latest)" if isinstance(position, ExplicitOffsets) else ""
        raise OptionError(
            f"{option} lacks {_listed(missing)}: name every queue{words}, or read fewer by `assign`"
        )
    if unknown := sorted(set(position.table) - set(queues)):
        text = f"{option} names {_listed(unknown)}, which this query does not read"
        if fail_on_data_loss:
            raise OptionError(f"{text}; failOnDataLoss=false reads without queues that are gone")
        logger.warning("queues that do not exist are skipped error=%s", text)


def _listed(queues: list[MessageQueue]) -> str:
    more = f" and {len(queues) - 5} more" if len(queues) > 5 else ""
    return ", ".join(map(str, queues[:5])) + more


def resolve_ranges(
    bounds: Mapping[MessageQueue, Bounds],
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
) -> tuple[list[QueueRange], list[Loss]]:
    """Return the ranges to read, limited to what the queues hold, and the losses outside of that."""
    ranges: list[QueueRange] = []
    losses: list[Loss] = []
    for queue in sorted(bounds):
        held = bounds[queue]
        start = _resolved(starts[queue], held)
        end = _resolved(ends[queue], held)
        if start > end and ends[queue] == LATEST_OFFSET:
            # The queue was truncated or recreated since this start was recorded: a loss, not a contradiction of
            # options.
            losses.append(Loss(queue, end, start, held))
            start = end
        if start > end and starts[queue] == EARLIEST_OFFSET:
            # Retention has moved the beginning past this end: what was there is lost.
            if end:
                losses.append(Loss(queue, 0, end, held))
            start = end
        if start > end:
            raise OptionError(
                f"{queue} would be read from {start} to {end}: what the starting... options say lies behind"
                " what the ending... options do"
            )
        if start < held.min_offset and start < end:
            losses.append(Loss(queue, start, min(end, held.min_offset), held))
            start = min(end, held.min_offset)
        if end > held.max_offset:
            losses.append(Loss(queue, max(start, held.max_offset), end, held))
            end = held.max_offset
            start = min(start, end)
        ranges.append(QueueRange.of(queue, start, end))
    return ranges, losses


def starts_before_ends(
    bounds: Mapping[MessageQueue, Bounds], starts: OffsetTable, ends: OffsetTable
) -> dict[MessageQueue, int]:
    """Limit the starts to their ends: a group that is beyond an end has nothing to read, which is not an error."""
    return {
        queue: start
        if ends[queue] == LATEST_OFFSET or start == EARLIEST_OFFSET
        else min(_resolved(start, bounds[queue]), ends[queue])
        for queue, start in starts.items()
    }


def _resolved(offset: int, held: Bounds) -> int:
    if offset == EARLIEST_OFFSET:
        return held.min_offset
    return held.max_offset if offset == LATEST_OFFSET else offset
