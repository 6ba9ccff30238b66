"""Headers about offsets: a group's progress (14, 15), a queue's bounds (30, 31), times (29, 32).

Fields whose names begin with `rocketrio` are only used between rocketrio clients and brokers (docs/decisions/0014).
Apache's peers ignore them, and a broker sends them only to a client that sent some. `bname` is for a 5.x proxy, which
chooses the broker by it; brokers ignore it.

Answers to: RocketMQ reference, section 2.4.
"""

from enum import StrEnum
from typing import ClassVar

import msgspec

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import Header, RequestHeader


class CommitOutcome(StrEnum):
    """The result of a commit that named its generation."""

    STORED = "stored"
    """The stored offset is this one, or a higher one of the same generation."""
    RESET = "reset"
    """Dropped, because an operator has reset the group's offset since the sender read it."""
    CUT = "cut"
    """Dropped, because the log was cut since the sender read up to there, and other messages have these offsets now."""
    UNCLAIMED = "unclaimed"
    """Dropped, because it would lower the stored offset and the sender is not the last client that claimed the
    queue."""


class QueryConsumerOffsetResponseHeader(Header):
    """The answer to 14; with QUERY_NOT_FOUND it has no offset, and the other fields only if the queue was claimed."""

    offset: int | None = None
    ownership: str | None = msgspec.field(name="rocketrioOwnership", default=None)
    """The proof of the claim, which commits carry."""
    generation: str | None = msgspec.field(name="rocketrioGeneration", default=None)
    epoch: str | None = msgspec.field(name="rocketrioEpoch", default=None)
    """The epoch of the log that the offset belongs to (docs/decisions/0036)."""


class QueryConsumerOffsetRequestHeader(RequestHeader):
    """Get a group's committed offset; with `set_zero_if_not_found=False` a 5.x broker answers 22 instead of 0."""

    code: ClassVar = RequestCode.QUERY_CONSUMER_OFFSET
    answers: ClassVar = QueryConsumerOffsetResponseHeader
    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None
    claim: str | None = msgspec.field(name="rocketrioClaim", default=None)
    """The client that takes over the queue: only its commits may lower the offset after a seek."""
    with_epoch: bool | None = msgspec.field(name="rocketrioWithEpoch", default=None)
    """Asks for the epoch of the log in the answer, which an answer to a claim always has."""
    broker_name: str | None = msgspec.field(name="bname", default=None)


class UpdateConsumerOffsetResponseHeader(Header):
    """The answer to 15, if the commit named a generation: its outcome and the stored offset."""

    outcome: str | None = msgspec.field(name="rocketrioOutcome", default=None)
    generation: str | None = msgspec.field(name="rocketrioGeneration", default=None)
    standing_offset: int | None = msgspec.field(name="rocketrioOffset", default=None)


class UpdateConsumerOffsetRequestHeader(RequestHeader):
    """Commit a group's offset for a queue; without a generation the last commit wins, as in Apache."""

    code: ClassVar = RequestCode.UPDATE_CONSUMER_OFFSET
    answers: ClassVar = UpdateConsumerOffsetResponseHeader
    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int
    generation: str | None = msgspec.field(name="rocketrioGeneration", default=None)
    """The generation that a broker reported: the commit does not overwrite a newer one."""
    ownership: str | None = msgspec.field(name="rocketrioOwnership", default=None)
    seek: bool | None = msgspec.field(name="rocketrioSeek", default=None)
    """True after a seek: the owner's commit counts even if it lowers the offset."""
    reset: bool | None = msgspec.field(name="rocketrioReset", default=None)
    """True for a reset by an operator, which is newer than any commit of a client."""
    epoch: str | None = msgspec.field(name="rocketrioEpoch", default=None)
    """The epoch of the log that the offset is from: a log that was cut since then refuses offsets beyond the cut."""
    broker_name: str | None = msgspec.field(name="bname", default=None)


class OffsetResponseHeader(Header):
    """The answer to 29, 30 and 31; a rocketrio slave adds to 30 how long ago it had all messages of its master."""

    offset: int
    level_millis: int | None = msgspec.field(name="rocketrioLevelMillis", default=None)
    stored_offset: int | None = msgspec.field(name="rocketrioStoredOffset", default=None)
    """With 30, where the queue ends in the log, if its last messages are not to be seen yet."""
    incarnation: int | None = msgspec.field(name="rocketrioIncarnation", default=None)
    """The incarnation of the topic, if 30 asked for it (docs/decisions/0068)."""


class GetMaxOffsetRequestHeader(RequestHeader):
    """Get the offset of the queue's next message."""

    code: ClassVar = RequestCode.GET_MAX_OFFSET
    answers: ClassVar = OffsetResponseHeader
    topic: str
    queue_id: int
    committed: bool | None = None
    with_incarnation: bool | None = msgspec.field(name="rocketrioWithIncarnation", default=None)
    """Asks for the topic's incarnation in the answer."""
    broker_name: str | None = msgspec.field(name="bname", default=None)


class GetMinOffsetRequestHeader(RequestHeader):
    """Get the offset of the queue's oldest message."""

    code: ClassVar = RequestCode.GET_MIN_OFFSET
    answers: ClassVar = OffsetResponseHeader
    topic: str
    queue_id: int
    broker_name: str | None = msgspec.field(name="bname", default=None)


class SearchOffsetRequestHeader(RequestHeader):
    """Get the offset for a store time in epoch ms."""

    code: ClassVar = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    answers: ClassVar = OffsetResponseHeader
    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class TimestampResponseHeader(Header):
    """The answer to 32: epoch ms, -1 if there is none."""

    timestamp: int


class GetEarliestMsgStoretimeRequestHeader(RequestHeader):
    """Get the store time of the queue's oldest message."""

    code: ClassVar = RequestCode.GET_EARLIEST_MSG_STORETIME
    answers: ClassVar = TimestampResponseHeader
    topic: str
    queue_id: int
    broker_name: str | None = msgspec.field(name="bname", default=None)
