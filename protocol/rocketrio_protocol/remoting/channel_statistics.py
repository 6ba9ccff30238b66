"""What a connection says about itself, as a value."""

import attrs

from rocketrio_protocol.codes import SerializeType


@attrs.frozen
class ChannelStatistics:
    """A channel at one moment."""

    pending_count: int
    """Calls that wait for their answers."""
    late_answer_count: int
    """Answers that came after their calls had given up."""
    unsent_size: int
    """Bytes queued that the operating system has not taken."""
    request_type: SerializeType
    """The encoding of our requests."""
