"""A consumer's counts and positions, as values."""

import attrs

from rocketrio.routing import PullReason
from rocketrio_protocol.message import MessageQueue


@attrs.frozen
class QueueStatistics:
    """The counts and positions of one queue."""

    position: int | None
    """The offset of the next message to be handed out; None until the start is known."""
    done_offset: int | None
    """The offset that may be committed."""
    cached_messages: int
    cached_bytes: int
    max_offset: int | None
    """The end of the queue at the broker, as the last pull reported it."""
    pull_from_which_node: int
    """The broker id that the next pull goes to."""
    pulled_from: str | None
    """The address that the last pull went to; None before the first pull."""
    pull_reason: PullReason | None
    """Why the last pull went there."""
    pulls: dict[PullReason, int]
    """The number of pulls for each reason of choosing their broker."""
    log_cuts: int
    """How often the log had become shorter than what was read, so that the queue went back."""


@attrs.frozen
class ConsumerStatistics:
    """A consumer's counts and positions."""

    handed_out: int
    queues: dict[MessageQueue, QueueStatistics]
