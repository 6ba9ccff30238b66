"""Pulling: PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), one header for both.

Answers to: PullMessageRequestHeader, PullMessageResponseHeader, PullSysFlag; RocketMQ reference, section 2.3.
"""

from enum import IntFlag
from typing import ClassVar

import attrs

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import Header, RequestHeader, wire


class PullSysFlag(IntFlag):
    """What the other fields of a pull mean."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


@attrs.define
class PullMessageRequestHeader(RequestHeader):
    """Read at most `max_msg_nums` messages of one queue from `queue_offset` on.

    `limited_by_bytes` is ours, and read past by Apache: the reader takes as many messages as the broker's limits by
    bytes allow, where 32 from memory and 8 from disk are the limits by count (decision 0011). It marks a rocketrio
    client, which is answered with the epoch of the log; its next pulls name that as `epoch` (decision 0036).
    """

    code: ClassVar = RequestCode.PULL_MESSAGE
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_millis: int
    sub_version: int
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    limited_by_bytes: bool | None = wire("rocketrioLimitedByBytes", default=None)
    epoch: str | None = wire("rocketrioEpoch", default=None)
    """The epoch of the log that `queue_offset` comes from."""
    generation: str | None = wire("rocketrioGeneration", default=None)
    """Of the offset that `commit_offset` is progress of, as a broker told it."""
    ownership: str | None = wire("rocketrioOwnership", default=None)
    """Of the claim that `commit_offset` belongs to: without it the last commit wins, as at Apache's brokers."""
    broker_name: str | None = wire("bname", default=None)


@attrs.define
class LitePullMessageRequestHeader(PullMessageRequestHeader):
    """The same under the code that 5.x lite pull consumers use."""

    code: ClassVar = RequestCode.LITE_PULL_MESSAGE


@attrs.define
class PullMessageResponseHeader(Header):
    """Where to read next, from which broker id, and the queue's bounds.

    Slaves of ours add how long ago they had everything that their master had.
    """

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    level_millis: int | None = wire("rocketrioLevelMillis", default=None)
    epoch: str | None = wire("rocketrioEpoch", default=None)
    """The epoch of the log that `next_begin_offset` belongs to; for rocketrio clients."""
