"""Headers of pulls: PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361) share one.

Answers to: PullMessageRequestHeader, PullMessageResponseHeader, PullSysFlag; RocketMQ reference, section 2.3.
"""

from enum import IntFlag
from typing import ClassVar

import msgspec

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import Header, RequestHeader


class PullSysFlag(IntFlag):
    """Flags that say which fields of a pull are used."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class PullMessageResponseHeader(Header):
    """Where to read next, from which broker id, and the bounds of the queue.

    A rocketrio slave adds how long ago it had all messages of its master.
    """

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    level_millis: int | None = msgspec.field(name="rocketrioLevelMillis", default=None)
    epoch: str | None = msgspec.field(name="rocketrioEpoch", default=None)
    """The epoch of the log that `next_begin_offset` is from; only for rocketrio clients."""


class PullMessageRequestHeader(RequestHeader):
    """Read at most `max_msg_nums` messages of one queue from `queue_offset` on.

    `limited_by_bytes` is a rocketrio extension, which Apache ignores. It asks for as many messages as the broker's
    limits in bytes allow, instead of its limits of 32 messages from memory and 8 from disk (decision 0011). It also
    identifies a rocketrio client: the answer names the epoch of the log, and the client's next pulls repeat it as
    `epoch` (decision 0036).
    """

    code: ClassVar = RequestCode.PULL_MESSAGE
    answers: ClassVar = PullMessageResponseHeader
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
    limited_by_bytes: bool | None = msgspec.field(name="rocketrioLimitedByBytes", default=None)
    epoch: str | None = msgspec.field(name="rocketrioEpoch", default=None)
    """The epoch of the log that `queue_offset` is from."""
    generation: str | None = msgspec.field(name="rocketrioGeneration", default=None)
    """The generation of `commit_offset`, as a broker reported it."""
    ownership: str | None = msgspec.field(name="rocketrioOwnership", default=None)
    """The claim that `commit_offset` belongs to; without it the last commit wins, as in Apache."""
    broker_name: str | None = msgspec.field(name="bname", default=None)


class LitePullMessageRequestHeader(PullMessageRequestHeader):
    """The same header with the code that 5.x lite pull consumers use."""

    code: ClassVar = RequestCode.LITE_PULL_MESSAGE
    answers: ClassVar = PullMessageResponseHeader
