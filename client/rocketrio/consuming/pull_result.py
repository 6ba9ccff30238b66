"""The result of a pull: the status, the next offset, and the stored messages, still as bytes.

Answers to: PullStatus, PullResult, PullResultExt; RocketMQ reference, section 2.3.
"""

from collections.abc import Sequence
from enum import Enum

import attrs

from rocketrio.cluster.namespace import Namespace
from rocketrio.consuming.pulled_messages import PulledMessages
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.frame import Body
from rocketrio_protocol.message import MessageExt, decode_pulled


class PullStatus(Enum):
    """The outcome of a pull."""

    FOUND = "found"
    """`body` holds messages; a tag filter may still remove all of them."""
    NO_NEW_MSG = "no new message"
    """The queue ended there, and no message arrived while the broker held the request."""
    NO_MATCHED_MSG = "no matched message"
    """No message there passed the filter, or the messages were being deleted; continue at `next_begin_offset`."""
    OFFSET_ILLEGAL = "offset illegal"
    """The offset is outside of what the broker holds; `next_begin_offset` is inside."""


@attrs.define
class PullResult:
    """The answer to one pull."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int
    body: Body
    """Stored records one after the other. The broker filters by a hash of the tags, so other tags may be included."""
    addr: str
    """The address that answered."""
    broker_id: int = MASTER_ID
    broker_name: str = ""
    level_age: float | None = None
    """Seconds since the answering slave had everything that its master had; None if it did not report it."""
    epoch: str | None = None
    """The epoch of the log that `next_begin_offset` belongs to; None if the broker does not report it."""
    tags: frozenset[str] | None = None
    """The wanted tags; None means all."""
    namespace: Namespace | None = None
    """The namespace whose short names the messages get."""
    has_compressed: bool = False
    """Whether any body is compressed; known after the messages were read."""

    @property
    def is_from_slave(self) -> bool:
        """Whether a slave answered. It may be behind: its bounds do not move a consumer."""
        return self.broker_id != MASTER_ID

    def messages(self) -> list[MessageExt]:
        """Return the wanted messages, as views that keep `body` alive."""
        messages, self.has_compressed = decode_pulled(self.body, self.broker_name)
        if self.namespace is not None:
            messages = [self.namespace.message(message) for message in messages]
        if self.tags is None:
            return messages
        # Two tags may share a hash; the client compares them exactly.
        return [message for message in messages if message.tags in self.tags]

    def undecoded(self) -> Sequence[MessageExt]:
        """Return the wanted messages, undecoded unless tags must be compared or topics renamed."""
        if self.tags is None and self.namespace is None:
            pulled = PulledMessages.of(self.body, self.broker_name)
            self.has_compressed = pulled.has_compressed
            return pulled
        return self.messages()
