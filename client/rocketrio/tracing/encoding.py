r"""Encodes what happened to a message as text that Apache's consoles read.

    Pub 1 time 1 region 1 group 1 topic 1 id 1 tags 1 keys 1 broker 1 body size 1 cost 1 kind 1 offset id 1 success 2
    SubBefore 1 time 1 region 1 group 1 request id 1 id 1 redeliveries 1 keys 2
    SubAfter 1 request id 1 id 1 cost 1 success 1 keys 1 return code 1 time 1 group 2
    EndTransaction 1 time 1 region 1 group 1 topic 1 id 1 tags 1 keys 1 broker 1 kind 1 transaction id
                   1 state 1 by check 2

where 1 and 2 are the bytes \x01 and \x02; times and costs are milliseconds.

Invariant: no field is empty: Java's reader drops empty fields at the end of a line, and then fails because they are
missing. `null` stands for an unknown value, as in Java's own text.
Answers to: TraceDataEncoder, TraceContext, TraceBean, TraceType.
"""

from enum import IntEnum
from typing import Final

import attrs

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
UNKNOWN: Final = "null"
DEFAULT_REGION: Final = "DefaultRegion"


class MessageKind(IntEnum):
    """The kind of message that was sent (MessageType's order)."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3


class ConsumeReturn(IntEnum):
    """How a consumer's handling of a message ended (ConsumeReturnType's order)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


@attrs.frozen
class Traced:
    """The message that a record is about."""

    topic: str
    message_id: str
    tags: str | None = None
    keys: str = ""

    @property
    def search_keys(self) -> list[str]:
        """The keys by which the record can be found."""
        return [*self.message_id.split(","), *self.keys.split()]


@attrs.frozen
class Published:
    """A message was sent and stored."""

    message: Traced
    time_ms: int
    region: str
    group: str
    broker_addr: str
    body_size: int
    cost_ms: int
    kind: MessageKind
    offset_message_id: str
    is_success: bool

    @property
    def text(self) -> str:
        message = self.message
        return _record(
            "Pub", self.time_ms, self.region, self.group, message.topic, message.message_id,
            message.tags, message.keys, self.broker_addr, self.body_size, self.cost_ms,
            int(self.kind), self.offset_message_id, self.is_success,
        )  # fmt: skip


@attrs.frozen
class ConsumeBegun:
    """A message was passed to a consumer."""

    message: Traced
    time_ms: int
    region: str
    group: str
    request_id: str
    reconsume_times: int

    @property
    def text(self) -> str:
        return _record(
            "SubBefore", self.time_ms, self.region, self.group, self.request_id,
            self.message.message_id, self.reconsume_times, self.message.keys,
        )  # fmt: skip


@attrs.frozen
class ConsumeEnded:
    """A consumer has handled a message, successfully or not."""

    message: Traced
    time_ms: int
    group: str
    request_id: str
    cost_ms: int
    result: ConsumeReturn

    @property
    def text(self) -> str:
        return _record(
            "SubAfter", self.request_id, self.message.message_id, self.cost_ms,
            self.result is ConsumeReturn.SUCCESS, self.message.keys, int(self.result),
            self.time_ms, self.group,
        )  # fmt: skip


@attrs.frozen
class TransactionEnded:
    """A producer committed or rolled back a transaction."""

    message: Traced
    time_ms: int
    region: str
    group: str
    broker_addr: str
    transaction_id: str
    state: str
    """COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW, in Java's words."""
    is_from_check: bool

    @property
    def text(self) -> str:
        message = self.message
        return _record(
            "EndTransaction", self.time_ms, self.region, self.group, message.topic,
            message.message_id, message.tags, message.keys, self.broker_addr,
            int(MessageKind.TRANSACTION_COMMIT), self.transaction_id, self.state,
            self.is_from_check,
        )  # fmt: skip


TraceRecord = Published | ConsumeBegun | ConsumeEnded | TransactionEnded


def _record(*fields: str | int | bool | None) -> str:
    return FIELD_END.join(map(_field, fields)) + RECORD_END


def _field(value: str | int | bool | None) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value is not None and value != "" else UNKNOWN
