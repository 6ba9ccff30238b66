"""What was counted of one queue while a consumer owns it: per pull and per failure, never per message.

The number of messages that are done follows from it: those that were pulled, less those that are still here.
"""

import attrs


@attrs.define(eq=False)
class QueueCounts:
    """Counts since the queue was taken over."""

    pulls: int = 0
    """Pulls that returned messages."""
    pull_seconds: float = 0.0
    """The total time of these pulls; a broker holds a pull until there is a message."""
    pulled: int = 0
    """Pulled messages that were wanted."""
    forgotten: int = 0
    """Pulled messages that were dropped instead of handed out: the queue moved to another offset, or was paused."""
    failed: int = 0
    """The number of times that a message could not be handled."""
    handed_back: int = 0
    """Messages that went back to the group, or to the dead letters."""
    log_cuts: int = 0
    """The number of times that the log had become shorter than what was read."""
    last_pull: float | None = None
    """When the last pull began, by the clock of deadlines."""

    def brought(self, now: float) -> None:
        """Count the last pull: it has returned messages."""
        if self.last_pull is not None:
            self.pulls += 1
            self.pull_seconds += now - self.last_pull
