"""Offsets: a group's progress (14, 15), a queue's bounds (30, 31), times (29, 32).

Answers to: RocketMQ reference, section 2.4.
"""

from typing import ClassVar

import attrs

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.header_fields import Header, RequestHeader


@attrs.define
class QueryConsumerOffsetRequestHeader(RequestHeader):
    """A group's committed offset; with `set_zero_if_not_found=False` a 5.x broker answers 22 rather than 0."""

    code: ClassVar = RequestCode.QUERY_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None


@attrs.define
class UpdateConsumerOffsetRequestHeader(RequestHeader):
    """Commit a group's offset for a queue."""

    code: ClassVar = RequestCode.UPDATE_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int


@attrs.define
class GetMaxOffsetRequestHeader(RequestHeader):
    """The offset the queue's next message will get."""

    code: ClassVar = RequestCode.GET_MAX_OFFSET
    topic: str
    queue_id: int
    committed: bool | None = None


@attrs.define
class GetMinOffsetRequestHeader(RequestHeader):
    """The offset of the queue's oldest message."""

    code: ClassVar = RequestCode.GET_MIN_OFFSET
    topic: str
    queue_id: int


@attrs.define
class SearchOffsetRequestHeader(RequestHeader):
    """The offset that belongs to a store time in epoch ms."""

    code: ClassVar = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str | None = None


@attrs.define
class GetEarliestMsgStoretimeRequestHeader(RequestHeader):
    """Store time in epoch ms of the queue's oldest message."""

    code: ClassVar = RequestCode.GET_EARLIEST_MSG_STORETIME
    topic: str
    queue_id: int


@attrs.define
class OffsetResponseHeader(Header):
    """The answer to 14, 29, 30 and 31."""

    offset: int


@attrs.define
class TimestampResponseHeader(Header):
    """The answer to 32: epoch ms, -1 if there is none."""

    timestamp: int
