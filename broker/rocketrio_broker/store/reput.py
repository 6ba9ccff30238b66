"""Builds the consume queues from the log: on a slave as bytes arrive, after a start for entries that are missing.

On a master an append makes its own entry, so this service has nothing to do.

Invariant: `dispatched` <= `appended`; every record below `dispatched` has its entry.
Invariant: a record of which a part is missing waits; it is neither skipped nor an error.
Answers to: ReputMessageService.
"""

from typing import Final

import trio

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.dispatch import QueueDispatcher
from rocketrio_broker.store.errors import LogDamagedError
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_broker.waiting.watermark import LogPosition, Watermark

DISPATCH_STEP: Final = 256 << 10
"""Bytes of log dispatched before other tasks get a turn: about 2 ms."""


class ReputMessageService:
    """Moves `dispatched` towards `appended`."""

    def __init__(
        self, log: CommitLog, dispatcher: QueueDispatcher, dispatched: LogPosition
    ) -> None:
        self.replicated = Watermark()
        """The end of the log as replication wrote it; a master's appends do not move it."""
        self._log = log
        self._dispatcher = dispatcher
        self._dispatched = dispatched

    def dispatch_some(self, max_bytes: int = DISPATCH_STEP) -> bool:
        """Dispatch the next records; return whether there were any."""
        start = self._dispatched.value
        walk = LogWalk(self._log, start)
        try:
            count, last_ms = self._dispatcher.dispatch_from(walk, max_bytes)
        except LogDamagedError:
            if walk.position == start:
                raise
            # Dispatch what lies before the damage first, so that it can be read; the next call meets the damage again.
            return self.dispatch_some(walk.position - start)
        if count:
            self._dispatched.store_time_ms = last_ms
        # After the entries: readers and the checkpoint rely on it.
        self._dispatched.advance(walk.position)
        return walk.position > start

    def dispatch_all(self) -> None:
        """Dispatch all complete records."""
        while self.dispatch_some():
            pass

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            # `seen` is read before the dispatch: an unfinished record needs more bytes, not another attempt.
            seen = self.replicated.value
            if not self.dispatch_some() and seen == self.replicated.value:
                await self.replicated.wait_past(seen)
            else:
                await trio.lowlevel.checkpoint()
