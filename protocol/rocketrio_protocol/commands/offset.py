"""Offsets: a group's progress (14, 15), a queue's bounds (30, 31), times (29, 32).

Fields that begin with `rocketrio` pass between our clients and brokers only (docs/decisions/0014): Apache's peers
ignore them, and who does not send them gets none. `bname` is for a 5.x proxy, which chooses the broker by it; brokers
ignore it.

Answers to: RocketMQ reference, section 2.4.
"""

from enum import StrEnum
from typing import ClassVar

import attrs

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import Header, RequestHeader, wire


class CommitOutcome(StrEnum):
    """What became of a commit that named its generation."""

    STORED = "stored"
    """What stands is this offset, or a higher one of the same generation."""
    RESET = "reset"
    """Dropped: an operator has reset the group's offset since its sender asked for it."""
    CUT = "cut"
    """Dropped: the log became shorter since its sender read that far, and other messages have those offsets now."""
    UNCLAIMED = "unclaimed"
    """Dropped: it would lower what stands, and its sender was not the last to claim the queue here."""


@attrs.define
class QueryConsumerOffsetRequestHeader(RequestHeader):
    """A group's committed offset; with `set_zero_if_not_found=False` a 5.x broker answers 22 rather than 0."""

    code: ClassVar = RequestCode.QUERY_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None
    claim: str | None = wire("rocketrioClaim", default=None)
    """The client that takes the queue over: its commits may go back after a seek, those of earlier owners no more."""
    with_epoch: bool | None = wire("rocketrioWithEpoch", default=None)
    """The answer shall name the epoch of the log, as it does where the queue is claimed."""
    broker_name: str | None = wire("bname", default=None)


@attrs.define
class QueryConsumerOffsetResponseHeader(Header):
    """The answer to 14: also to one of QUERY_NOT_FOUND if the queue was claimed, then without an offset."""

    offset: int | None = None
    ownership: str | None = wire("rocketrioOwnership", default=None)
    """What commits are to carry as proof of the claim."""
    generation: str | None = wire("rocketrioGeneration", default=None)
    epoch: str | None = wire("rocketrioEpoch", default=None)
    """The epoch of the log that the offset belongs to (docs/decisions/0036)."""


@attrs.define
class UpdateConsumerOffsetRequestHeader(RequestHeader):
    """Commit a group's offset for a queue; without a generation the last commit wins, as at Apache's brokers."""

    code: ClassVar = RequestCode.UPDATE_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int
    generation: str | None = wire("rocketrioGeneration", default=None)
    """As a broker told it: nothing newer is overwritten."""
    ownership: str | None = wire("rocketrioOwnership", default=None)
    seek: bool | None = wire("rocketrioSeek", default=None)
    """The consumer went there on purpose: the owner's commit counts also if it is lower."""
    reset: bool | None = wire("rocketrioReset", default=None)
    """An operator puts the group there: newer than what any client committed."""
    epoch: str | None = wire("rocketrioEpoch", default=None)
    """The epoch of the log that the position comes from: a log that became shorter since refuses what lies beyond."""
    broker_name: str | None = wire("bname", default=None)


@attrs.define
class UpdateConsumerOffsetResponseHeader(Header):
    """The answer to 15, if the commit named a generation: what became of it, and what stands now."""

    outcome: str | None = wire("rocketrioOutcome", default=None)
    generation: str | None = wire("rocketrioGeneration", default=None)
    standing_offset: int | None = wire("rocketrioOffset", default=None)


@attrs.define
class GetMaxOffsetRequestHeader(RequestHeader):
    """The offset the queue's next message will get."""

    code: ClassVar = RequestCode.GET_MAX_OFFSET
    topic: str
    queue_id: int
    committed: bool | None = None
    broker_name: str | None = wire("bname", default=None)


@attrs.define
class GetMinOffsetRequestHeader(RequestHeader):
    """The offset of the queue's oldest message."""

    code: ClassVar = RequestCode.GET_MIN_OFFSET
    topic: str
    queue_id: int
    broker_name: str | None = wire("bname", default=None)


@attrs.define
class SearchOffsetRequestHeader(RequestHeader):
    """The offset that belongs to a store time in epoch ms."""

    code: ClassVar = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str | None = None
    broker_name: str | None = wire("bname", default=None)


@attrs.define
class GetEarliestMsgStoretimeRequestHeader(RequestHeader):
    """Store time in epoch ms of the queue's oldest message."""

    code: ClassVar = RequestCode.GET_EARLIEST_MSG_STORETIME
    topic: str
    queue_id: int
    broker_name: str | None = wire("bname", default=None)


@attrs.define
class OffsetResponseHeader(Header):
    """The answer to 14, 29, 30 and 31; to 30 slaves of ours add how long ago they were level with their master."""

    offset: int
    level_millis: int | None = wire("rocketrioLevelMillis", default=None)


@attrs.define
class TimestampResponseHeader(Header):
    """The answer to 32: epoch ms, -1 if there is none."""

    timestamp: int
