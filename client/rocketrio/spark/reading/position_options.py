"""The options that say where a read starts and ends. Pure.

    startingTimestamp  wins over  startingOffsetsByTimestamp  wins over  startingOffsets; the ending ones alike

Every given option must be valid, also if another one wins over it.
Answers to: KafkaSourceProvider.getKafkaOffsetRangeLimit.
"""

from collections.abc import Mapping
from typing import Final, Literal

from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import choice, whole_number
from rocketrio.spark.reading.offsets import (
    AtTimestamp,
    AtTimestamps,
    GroupOffsets,
    Position,
    WhenNone,
    parse_position,
    parse_timestamp_table,
)

_FALLBACK: Final = "startingOffsetsFallback"
_STRATEGY: Final = "startingOffsetsByTimestampStrategy"
_EPOCH_MS: Final = ", of milliseconds since 1970 UTC: 1704067200000 is 2024-01-01"


def parse_start(
    texts: Mapping[str, str], *, default: Literal["earliest", "latest"], has_group: bool
) -> Position:
    """Return the position where a read starts. Raises OptionError."""
    strategy: WhenNone = "error"
    if _STRATEGY in texts:
        word = choice(texts[_STRATEGY], option=_STRATEGY, words=("error", "latest"))
        strategy = "latest" if word == "latest" else "error"
        if not {"startingTimestamp", "startingOffsetsByTimestamp"} & set(texts):
            raise OptionError(
                f"{_STRATEGY} means nothing without startingTimestamp or startingOffsetsByTimestamp"
            )
    position = _position(texts, "starting", default=default, strategy=strategy)
    if _FALLBACK in texts:
        word = choice(texts[_FALLBACK], option=_FALLBACK, words=("earliest", "latest"))
        if not isinstance(position, GroupOffsets):
            raise OptionError(f"{_FALLBACK} means nothing without startingOffsets=group")
        position = GroupOffsets("latest" if word == "latest" else "earliest")
    if isinstance(position, GroupOffsets) and not has_group:
        raise OptionError(
            "startingOffsets=group wants consumerGroup, the group whose commits it means"
        )
    return position


def parse_end(texts: Mapping[str, str], *, start: Position) -> Position:
    """Return the position where a read ends. Raises OptionError, also if the end is a time before the start's."""
    end = _position(texts, "ending", default="latest", strategy="latest")
    if (
        isinstance(start, AtTimestamp)
        and isinstance(end, AtTimestamp)
        and start.timestamp_ms > end.timestamp_ms
    ):
        raise OptionError(
            f"startingTimestamp={start.timestamp_ms} is later than endingTimestamp={end.timestamp_ms}"
        )
    return end


def _position(
    texts: Mapping[str, str],
    word: Literal["starting", "ending"],
    *,
    default: Literal["earliest", "latest"],
    strategy: WhenNone,
) -> Position:
    given: list[Position] = []
    if (option := f"{word}Timestamp") in texts:
        time = whole_number(texts[option], option=option, least=0, hint=_EPOCH_MS)
        given.append(AtTimestamp(time, strategy))
    if (option := f"{word}OffsetsByTimestamp") in texts:
        given.append(AtTimestamps(parse_timestamp_table(texts[option], option=option), strategy))
    if (option := f"{word}Offsets") in texts:
        given.append(parse_position(texts[option], option=option, is_end=word == "ending"))
    return given[0] if given else default
