"""Filters records by property when the consume queue entry alone cannot decide.

Only the usual form of a record (version 1, IPv4 hosts) is parsed here, in a third of the time that MessageExt needs.

Answers to: MessageFilter.isMatchedByCommitLog, MessageDecoder.decodeProperties.
"""

from collections.abc import Callable, Iterable, Iterator
from time import thread_time
from typing import Final, TypeAlias

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.layout import (
    HEAD_SIZE,
    HOSTS_IPV6_MASK,
    MAGIC_V1,
    RECORD_OVERHEAD,
    head_struct,
)

PropertiesFilter: TypeAlias = Callable[[bytes], bool]
"""Returns whether a message is wanted, from its properties as they are stored."""
Entry: TypeAlias = tuple[int, int, int]
"""(physical offset, size, tags code) of a queue entry."""

CHOSEN: Final = frozenset({1})
"""Replaces the tags codes of the records that were selected."""
_REJECTED: Final = 0
_CHOSEN: Final = 1

_SHAPE: Final = head_struct("magic", "sys_flag", "body_size")


FILTER_TIME: Final = 0.01
"""Seconds of CPU for filtering the messages of one request; the next request goes on from there."""
FILTERED_AT_LEAST: Final = 16
"""The number of messages between two checks of the time: the slowest take half a millisecond each."""


def with_verdicts(
    log: CommitLog, entries: Iterable[Entry], matches: PropertiesFilter
) -> Iterator[Entry]:
    """Yield the entries with the verdict of `matches` in place of the tags code, until the time is used up."""
    end = thread_time() + FILTER_TIME
    for number, (physical_offset, size, _) in enumerate(entries):
        if number and number % FILTERED_AT_LEAST == 0 and thread_time() > end:
            return
        record = log.record(physical_offset, size) if size >= RECORD_OVERHEAD else None
        is_chosen = record is not None and matches(stored_properties_of(record))
        yield physical_offset, size, _CHOSEN if is_chosen else _REJECTED


def stored_properties_of(record: memoryview) -> bytes:
    """Return the stored properties of a record; empty if they cannot be found."""
    magic, sys_flag, body_size = _SHAPE.unpack_from(record)
    if magic == MAGIC_V1 and not sys_flag & HOSTS_IPV6_MASK and body_size >= 0:
        topic_at = HEAD_SIZE + body_size + 1
        if topic_at < len(record):
            return bytes(record[topic_at + record[topic_at - 1] + 2 :])
    try:
        return MessageExt(record, 0, len(record)).stored_properties
    except RemoteProtocolError:
        return b""
