"""The message that a caller gives the store to keep, and the store's result.

These are msgspec structs: one of each is made for every put, in a third of the time that an attrs class needs.

Answers to: MessageExtBrokerInner, PutMessageResult, AppendMessageResult and their statuses.
"""

from enum import Enum
from typing import Final, Literal

import msgspec

UNKNOWN_TAGS: Literal["\0unknown"] = "\0unknown"
"""The value of `PutMessage.tags` if the caller has not read them: the store finds them in the properties."""


class PutStatus(Enum):
    """The outcome of a put; the names are RocketMQ's."""

    PUT_OK = 0
    SERVICE_NOT_AVAILABLE = 3
    CREATE_MAPPED_FILE_FAILED = 4
    MESSAGE_ILLEGAL = 5
    PROPERTIES_SIZE_EXCEEDED = 6


REFUSED_FOR_NOW: Final = frozenset(
    (PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPPED_FILE_FAILED)
)
"""The refusals that end by themselves or by an operator, such as a full disk; the others are the message's own."""


class PutMessage(msgspec.Struct, kw_only=True, gc=False):
    """One message to store, or for `append_batch` the fields that all messages of the batch share."""

    topic: str
    queue_id: int
    body: bytes | memoryview = b""
    """The body as it is stored: already compressed if `sys_flag` says so."""
    properties: bytes = b""
    """Encoded properties; with a batch they are added to those of every message."""
    flag: int = 0
    sys_flag: int = 0
    born_time_ms: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    tags: str | None = UNKNOWN_TAGS
    is_accepted: bool = False
    """Whether its body was stored before, so that a lower `max_message_size` of today does not refuse it."""


class AppendResult(msgspec.Struct, gc=False):
    """The place of the stored message, or of the first of a batch; of a refusal only `status` and `remark` count."""

    status: PutStatus
    physical_offset: int = 0
    size: int = 0
    """Bytes in the log, of all messages of a batch together."""
    queue_offset: int = 0
    store_time_ms: int = 0
    message_count: int = 0
    end_offset: int = 0
    """The address after the message or batch, which a flush or a slave must reach."""
    physical_offsets: list[int] | None = None
    """The address of every message of a batch."""
    remark: str = ""
    """Why the put was refused."""
