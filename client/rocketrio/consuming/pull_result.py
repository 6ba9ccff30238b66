"""What a pull brought: the status, where to go on, and the stored messages, still as bytes.

Answers to: PullStatus, PullResult, PullResultExt; RocketMQ reference, section 2.3.
"""

from collections.abc import Sequence
from enum import Enum

import attrs

from rocketrio.consuming.pulled_messages import PulledMessages
from rocketrio.namespace import Namespace
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.frame import Body
from rocketrio_protocol.message import MessageExt, decode_pulled


class PullStatus(Enum):
    """What became of a pull."""

    FOUND = "found"
    """`body` holds messages, of which a tag filter may still leave none."""
    NO_NEW_MSG = "no new message"
    """The queue ended there, and nothing came while the broker held the request."""
    NO_MATCHED_MSG = "no matched message"
    """Nothing there passed the filter, or the messages were being deleted; go on at `next_begin_offset`."""
    OFFSET_ILLEGAL = "offset illegal"
    """The offset lies outside what the broker holds; `next_begin_offset` lies inside."""


@attrs.define
class PullResult:
    """The answer to one pull."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int
    body: Body
    """Stored records one after the other, whatever their tags: the broker filters by a hash of them."""
    addr: str
    """Who answered."""
    broker_id: int = MASTER_ID
    broker_name: str = ""
    level_age: float | None = None
    """Seconds since the slave that answered had everything its master had; None if it did not say so."""
    epoch: str | None = None
    """Of the log that `next_begin_offset` belongs to; None from a broker that does not say."""
    tags: frozenset[str] | None = None
    """Only these are wanted; None means all."""
    namespace: Namespace | None = None
    """Whose short names the messages shall have."""
    has_compressed: bool = False
    """Whether any body is compressed; known once the messages were read."""

    @property
    def is_from_slave(self) -> bool:
        """A slave may be behind: its bounds do not move a consumer."""
        return self.broker_id != MASTER_ID

    def messages(self) -> list[MessageExt]:
        """The wanted messages, as views that keep `body` alive."""
        messages, self.has_compressed = decode_pulled(self.body, self.broker_name)
        if self.namespace is not None:
            messages = [self.namespace.message(message) for message in messages]
        if self.tags is None:
            return messages
        # Two tags may share a hash; the exact comparison is ours.
        return [message for message in messages if message.tags in self.tags]

    def undecoded(self) -> Sequence[MessageExt]:
        """The wanted messages, made one by one only where something has to be compared or renamed."""
        if self.tags is None and self.namespace is None:
            pulled = PulledMessages.of(self.body, self.broker_name)
            self.has_compressed = pulled.has_compressed
            return pulled
        return self.messages()
