"""The result of a send.

Answers to: SendResult, SendStatus; RocketMQ reference, section 2.2.
"""

from enum import Enum
from typing import Final

import attrs

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.send import SendMessageResponseHeader
from rocketrio_protocol.errors import (
    AccessRefusedError,
    Error,
    NotReachableError,
    RouteNotFoundError,
    TlsError,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.record.message_id import split_message_ids

RETRY_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""Answers after which another broker is tried (retryResponseCodes)."""


class SendStatus(Enum):
    """How safe a stored message is: each status means that the master has it."""

    SEND_OK = "SEND_OK"
    """Flushed and replicated as the broker's modes require."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """In memory; it was not flushed to disk in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """At the master; no slave had it in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """At the master; no slave is close enough to wait for."""


_STATUS_BY_CODE = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


@attrs.define
class SendResult:
    """Where one message, or one batch of messages, is stored."""

    status: SendStatus
    queue: MessageQueue
    queue_offset: int
    """The offset of the message, or of the first one of a batch; the others follow it."""
    message_ids: tuple[str, ...]
    """The producer's ids, one per message."""
    offset_message_ids: tuple[str, ...]
    """The ids that contain each message's broker and position."""
    transaction_id: str | None = None

    @property
    def message_id(self) -> str:
        """The id of the only message, or of the first one of a batch."""
        return self.message_ids[0]

    @property
    def offset_message_id(self) -> str:
        """The offset id of the only message, or of the first one of a batch."""
        return self.offset_message_ids[0]


def read_send_result(
    answer: RemotingCommand, queue: MessageQueue, message_ids: tuple[str, ...], *, addr: str
) -> SendResult:
    """Return the result that an answer carries. Raises BrokerError if nothing was stored."""
    status = _STATUS_BY_CODE.get(answer.code)
    if status is None:
        raise answer.error(f"message not stored in {queue}", broker_addr=addr, topic=queue.topic)
    header = answer.header(SendMessageResponseHeader)
    if header.queue_id != queue.queue_id:  # A negative id lets the broker choose.
        queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
    return SendResult(
        status,
        queue,
        header.queue_offset,
        message_ids,
        tuple(split_message_ids(header.msg_id)),
        header.transaction_id,
    )


def is_worth_another_broker(error: Error) -> bool:
    """Return whether a failed send is tried elsewhere: not if every broker would answer the same."""
    if isinstance(error, AccessRefusedError | TlsError):
        return False
    return isinstance(error, NotReachableError | RouteNotFoundError) or error.code in RETRY_CODES
