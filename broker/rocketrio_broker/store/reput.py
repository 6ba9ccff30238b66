"""Builds the consume queues from the log: on a slave as bytes arrive, after a start for what the queues lack.

On a master an append makes its own entry, so this service finds nothing to do.

Invariant: `dispatched` <= `appended`; below it every record has its entry.
Invariant: a record of which a part is missing waits, it is neither skipped nor an error.
Answers to: ReputMessageService.
"""

from typing import Final

import trio

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.dispatch import QueueDispatcher
from rocketrio_broker.store.errors import LogDamagedError
from rocketrio_broker.store.log_position import LogPosition
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_broker.watermark import Watermark

DISPATCH_STEP: Final = 256 << 10
"""Bytes of log dispatched before other tasks get a turn: about 2 ms."""


class ReputMessageService:
    """Moves `dispatched` towards `appended`."""

    def __init__(
        self, log: CommitLog, dispatcher: QueueDispatcher, dispatched: LogPosition
    ) -> None:
        self.replicated = Watermark()
        """The end of the log as replication wrote it; appends of a master do not move it."""
        self._log = log
        self._dispatcher = dispatcher
        self._dispatched = dispatched

    def dispatch_some(self, max_bytes: int = DISPATCH_STEP) -> bool:
        """Dispatch the next records; whether there were any."""
        start = self._dispatched.value
        walk = LogWalk(self._log, start)
        try:
            count, last_ms = self._dispatcher.dispatch_from(walk, max_bytes)
        except LogDamagedError:
            if walk.position == start:
                raise
            # First what lies before the damage, to be read in spite of it; the next call meets it again.
            return self.dispatch_some(walk.position - start)
        if count:
            self._dispatched.store_time_ms = last_ms
        self._dispatched.advance(walk.position)
        return walk.position > start

    def dispatch_all(self) -> None:
        """Dispatch whatever is complete."""
        while self.dispatch_some():
            pass

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            # Waits past what was there already: an unfinished record needs more bytes, not another look.
            seen = self.replicated.value
            if not self.dispatch_some() and seen == self.replicated.value:
                await self.replicated.wait_past(seen)
            else:
                await trio.lowlevel.checkpoint()
