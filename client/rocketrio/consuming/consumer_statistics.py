"""What a consumer says about itself: counts and positions, as values."""

import attrs

from rocketrio.routing import PullReason
from rocketrio_protocol.message import MessageQueue


@attrs.frozen
class QueueStatistics:
    """One queue of a consumer."""

    position: int | None
    """The next message to be handed out; None until the start is known."""
    done_offset: int | None
    """What may be committed."""
    cached_messages: int
    cached_bytes: int
    max_offset: int | None
    """Of the queue at the broker, as the last pull said."""
    pull_from_which_node: int
    """The broker id the next pull goes to."""
    pulled_from: str | None
    """The address that the last pull went to; None before the first."""
    pull_reason: PullReason | None
    """Why it went there."""
    pulls: dict[PullReason, int]
    """How many pulls went where they went for each reason."""
    log_cuts: int
    """Times that the log had become shorter than what was read, so that the queue went back."""


@attrs.frozen
class ConsumerStatistics:
    """What a consumer has done, and where it stands."""

    handed_out: int
    queues: dict[MessageQueue, QueueStatistics]
