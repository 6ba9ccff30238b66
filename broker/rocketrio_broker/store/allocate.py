"""Reserves disk space for the log ahead of the appends, in a worker thread.

Invariant: while this runs an append finds its blocks and the next file ready; otherwise it makes them itself, slower.
Answers to: AllocateMappedFileService.
"""

import logging
from typing import Final

import trio

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.mapped_file import RESERVE_SIZE

_LOG: Final = logging.getLogger("rocketrio_broker.store")

_RETRY_PAUSE: Final = 1.0  # seconds after the disk was full; retention may have made room by then


class AllocateService:
    """The service that keeps between half and one `RESERVE_SIZE` of the log reserved ahead of its end."""

    def __init__(self, log: CommitLog, *, disk: Disk) -> None:
        self._log = log
        self._disk = disk

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        problem = ""
        while True:
            try:
                await self._reserve_ahead()
            except OSError as error:
                if str(error) != problem:
                    problem = str(error)
                    _LOG.warning("preallocation failed error=%s", error)
                await trio.sleep(_RETRY_PAUSE)
                continue
            problem = ""
            await self._log.appended.wait_reached(self._wake_offset())

    async def _reserve_ahead(self) -> None:
        log = self._log
        files = log.files
        ahead = log.max_offset + RESERVE_SIZE
        current = files.files[-1] if files.files else None
        if current is not None and current.reserved < min(
            ahead - current.start_offset, current.size
        ):
            await self._disk.run(current.reserve, ahead - current.start_offset)
        if current is not None and ahead > current.end_offset:
            start = current.end_offset
            if not files.has_prepared(start):
                files.keep_prepared(await self._disk.run(files.prepare, start, RESERVE_SIZE))

    def _wake_offset(self) -> int:
        """Return the end of the log at which to reserve the next space."""
        files = self._log.files
        if not files.files:
            return self._log.max_offset + 1
        last = files.files[-1]
        reserved_end = last.start_offset + last.reserved
        if last.reserved >= last.size:
            # The next file is ready, or must be made when the end of this one comes near.
            reserved_end = last.end_offset + (
                RESERVE_SIZE if files.has_prepared(last.end_offset) else 0
            )
        return max(self._log.max_offset + 1, reserved_end - RESERVE_SIZE // 2)
