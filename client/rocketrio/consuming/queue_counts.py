"""What was counted of one queue while a consumer owns it: by pulls and by failures, never by single messages.

How many messages were worked on follows from it: those that were pulled, less those that are still here.
"""

import attrs


@attrs.define(eq=False)
class QueueCounts:
    """Since the queue was taken over."""

    pulls: int = 0
    """Those that brought messages."""
    pull_seconds: float = 0.0
    """What they took together; a broker holds one until there is a message."""
    pulled: int = 0
    """Messages that were wanted."""
    forgotten: int = 0
    """Messages of these that were not handed out: the queue went elsewhere, or was paused."""
    failed: int = 0
    """Times that a message could not be handled."""
    handed_back: int = 0
    """Messages that went back to the group, or to the dead letters."""
    log_cuts: int = 0
    """Times that the log had become shorter than what was read of it."""
    last_pull: float | None = None
    """When the last pull began, by the clock of deadlines."""

    def brought(self, now: float) -> None:
        """The last pull has brought messages."""
        if self.last_pull is not None:
            self.pulls += 1
            self.pull_seconds += now - self.last_pull
