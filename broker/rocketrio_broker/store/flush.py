"""Syncs what was written: the log in groups, queues and index periodically, then a checkpoint.

The flusher takes the end of the log, syncs in a worker thread, moves `flushed` to that end, and starts again. Messages
that were appended meanwhile share the next sync: this is group commit without a timer or a queue of requests.

Invariant: `flushed` moves only after the sync that covers it has returned.
Invariant: a checkpoint is written only after everything that it covers was synced.
What cannot be written waits in memory for the next round. A failed sync ends the store: the system may have dropped the
pages, and a second sync would report success for bytes that are not on the disk.
Answers to: GroupCommitService, FlushRealTimeService, FlushConsumeQueueService.
"""

import logging
from collections.abc import Callable
from typing import Final

import trio

from rocketrio_broker.requests.steps import in_steps
from rocketrio_broker.store.checkpoint import (
    Checkpoint,
    Positions,
    read_checkpoint,
    write_checkpoint,
)
from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.data_directory import DataDirectory
from rocketrio_broker.store.disk import Arguments, Disk
from rocketrio_broker.store.errors import SyncFailedError
from rocketrio_broker.store.key_index import KeyIndex
from rocketrio_broker.store.mapped_file import MappedFile
from rocketrio_broker.store.mapped_file_queue import MappedFileQueue
from rocketrio_broker.store.queue_bounds import remove_bounds, write_bounds
from rocketrio_broker.store.read_gate import EVERYTHING, ReadGate
from rocketrio_broker.waiting.watermark import LogPosition, Watermark
from rocketrio_protocol.remoting.tasks import background_nursery, every

_LOG: Final = logging.getLogger("rocketrio_broker.store")

MAPPED_TAIL: Final = 32 << 20
"""Bytes at the end of the log that stay mapped: those that consumers without a backlog read."""

FORGET_STEP: Final = 64 << 20
"""The most bytes unmapped after one sync; that takes 1 ms and holds the interpreter lock."""

UNWRITTEN_LIMIT: Final = 32 << 20
"""Bytes of queue entries that may wait in memory for a checkpoint: 20 for each message."""
_QUEUES_A_LOOK: Final = 10_000
_QUEUES_A_TURN: Final = 64  # queue files written before other tasks get a turn: about 1 ms


async def _run_to_the_end(
    disk: Disk, work: Callable[[*Arguments], None], *arguments: *Arguments
) -> None:
    """Run a sync that a cancel must not prevent: the files to sync have been removed from the list of unsynced ones."""
    with trio.CancelScope(shield=True):
        try:
            await disk.run(work, *arguments)
        except OSError as error:
            raise SyncFailedError(f"a sync failed: {error}") from error


class FlushService:
    """Moves the log's `flushed` towards `appended`: at once in synchronous mode, else in groups of an interval."""

    def __init__(self, log: CommitLog, config: StoreConfig, *, disk: Disk) -> None:
        self._log = log
        self._disk = disk
        self._forgotten = 0
        # One at a time: a second sync must not overtake the first, which may still have to sync a new file's name.
        self._turn = trio.Lock()
        is_sync = config.flush_disk_type == "sync"
        self._interval = None if is_sync else config.flush_interval_commit_log
        self._wanted = log.appended if is_sync else Watermark()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with background_nursery() as nursery:
            if self._interval is not None:
                nursery.start_soon(self._flush_in_groups, self._interval)
            task_status.started()
            await self._flush_wanted()

    async def _flush_in_groups(self, interval: float) -> None:
        while True:
            # Not by the clock: a broker without messages has nothing to wake for.
            await self._log.appended.wait_past(self._log.flushed.value)
            await trio.sleep(interval)
            await self.flush()

    async def _flush_wanted(self) -> None:
        log, wanted = self._log, self._wanted
        while True:
            await wanted.wait_past(log.flushed.value)
            await self.flush()
            if wanted.value > log.max_offset:
                wanted.reset(log.max_offset)  # The log was cut meanwhile.

    def flush_soon(self) -> None:
        """Start to flush what is appended now, in asynchronous mode too."""
        # `reset`, because it also goes down: the log may have been cut since the last call.
        self._wanted.reset(self._log.max_offset)

    async def flush(self) -> None:
        """Return when all that is appended now is on the disk."""
        async with self._turn:
            await self._flush()

    async def _flush(self) -> None:
        log = self._log
        # Read before the sync: what is appended during it may not be covered.
        end, truncations = log.max_offset, log.truncations
        if end > log.flushed.value:
            with_names, log.files.has_unsynced_names = log.files.has_unsynced_names, False
            files = log.files.files_between(log.flushed.value, end)
            await _run_to_the_end(
                self._disk, _flush_files, log.files if with_names else None, files
            )
            # Otherwise the log was cut meanwhile: at some of these addresses there
            # are other bytes now, which no sync has covered.
            if truncations == log.truncations:
                log.flushed.advance(end)
                self._forget_old_pages()

    def _forget_old_pages(self) -> None:
        """Unmap all but the log's end; otherwise the process seems to use as much memory as the log is long."""
        log = self._log
        start = max(self._forgotten, log.min_offset)
        end = min(log.flushed.value - MAPPED_TAIL, start + FORGET_STEP)
        if end <= start:
            return
        for file in log.files.files_between(start, end):
            file.forget_pages(start - file.start_offset, end - file.start_offset)
        self._forgotten = end


def _flush_files(names: MappedFileQueue | None, files: list[MappedFile]) -> None:
    for file in files:
        file.flush()
    if names is not None:
        names.sync_names()


class CheckpointService:
    """Writes new queue entries to their files, and syncs them with the index before each checkpoint."""

    def __init__(
        self,
        log: CommitLog,
        table: ConsumeQueueTable,
        index: KeyIndex,
        dispatched: LogPosition,
        gate: ReadGate,
        flush_service: FlushService,
        directory: DataDirectory,
        config: StoreConfig,
        *,
        disk: Disk,
    ) -> None:
        self.synced_position = 0
        """The address up to which the checkpoint on the disk is valid."""
        self._log = log
        self._table = table
        self._index = index
        self._dispatched = dispatched
        self._gate = gate
        self._flush_service = flush_service
        self._directory = directory
        self._disk = disk
        self._write_interval = config.flush_interval_consume_queue
        self._sync_interval = config.flush_consume_queue_thorough_interval
        self._problem = ""
        self._turn = trio.Lock()
        self._noted_gating = False
        # The removals of queues and the log's begin when the bounds were last written; None: write them again.
        self._noted_removals_and_begin: tuple[int, int] | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        next_sync = trio.current_time() + self._sync_interval
        async for _ in every(self._write_interval, first_after=self._write_interval):
            try:
                # Whether readers see everything must be known after a crash, so a change is not kept for later.
                gate_changed = self._gate.is_gating != self._noted_gating
                if gate_changed or trio.current_time() >= next_sync:
                    await self.checkpoint()
                    next_sync = trio.current_time() + self._sync_interval
                else:
                    await self._write_if_many()
            except OSError as error:
                # The entries stay in memory and in the log; sends are refused elsewhere if the disk is full.
                self._note(error)
            else:
                self._note(None)

    def _note(self, error: OSError | None) -> None:
        """Log the first of several equal problems, and their end."""
        problem = "" if error is None else str(error)
        if problem != self._problem:
            _LOG.warning("consume queue write error=%s", problem or "none any more")
        self._problem = problem

    async def write_queues(self) -> None:
        """Write new entries of all queues to their files; raise the first error after all queues were tried."""
        failure: OSError | None = None
        for number, queue in enumerate(list(self._table.unwritten), 1):
            try:
                queue.write_tail()
            except OSError as error:
                failure = failure or error
            if number % _QUEUES_A_TURN == 0:
                await trio.lowlevel.checkpoint()
        if failure is not None:
            raise failure

    async def _write_if_many(self) -> None:
        """Write new entries of all queues if those in memory have reached `UNWRITTEN_LIMIT`.

        Each file costs an opening and a write, however few its entries are, so entries of many queues wait until each
        queue has enough of them. The files are not needed earlier; after a crash the entries are made from the log.
        """
        size = 0
        for number, queue in enumerate(list(self._table.unwritten), 1):
            size += queue.unwritten_size
            if number % _QUEUES_A_LOOK == 0:
                await trio.lowlevel.checkpoint()
        if size >= UNWRITTEN_LIMIT:
            await self.write_queues()

    def lower(self, end: int) -> None:
        """Withdraw what the checkpoint on the disk says about addresses from `end` on; blocks."""
        path = self._directory.checkpoint
        positions = read_checkpoint(self._disk, path).positions or Positions(0, 0, 0)
        lowered = Positions(
            min(positions.queue_position, end),
            min(positions.index_position, end),
            min(self._log.min_offset, end),
            self._gate.end.value,
        )
        write_checkpoint(self._disk, path, Checkpoint(positions=lowered))
        self.synced_position = lowered.queue_position
        if lowered.queue_position <= self._log.min_offset:
            # All is made again, maybe from another log.
            remove_bounds(self._disk, self._directory.root)

    def begin_at(self, offset: int) -> None:
        """Record that an empty log begins at `offset`, which recovery cannot find out; blocks."""
        remove_bounds(self._disk, self._directory.root)
        positions = Positions(offset, offset, offset, self._gate.end.value)
        write_checkpoint(self._disk, self._directory.checkpoint, Checkpoint(positions=positions))
        self.synced_position = offset

    async def checkpoint(self) -> None:
        """Sync log, queues and index, then record the positions that they have reached.

        Raises OSError for what could not be written and may be tried again, and SyncFailedError, which is final.
        """
        # One at a time: a second checkpoint must not record what the first one has not synced yet.
        async with self._turn:
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        log, index = self._log, self._index
        truncations = log.truncations
        seen_before = self._gate.end.value
        # Read first: all that lies below is flushed, written and synced by the steps that follow.
        position, time_ms = self._dispatched.value, self._dispatched.store_time_ms
        await self._flush_service.flush()
        await self.write_queues()
        removals_and_begin = (self._table.generation, log.min_offset)
        if self._table.has_unsynced or removals_and_begin != self._noted_removals_and_begin:
            self._noted_removals_and_begin = None
            # The bounds come first, because the sync must cover all entries that they include.
            bounds = await in_steps(self._table.bounds(log.min_offset))
            with trio.CancelScope(shield=True):
                paths = await in_steps(self._table.unsynced_paths())
                await _run_to_the_end(self._disk, self._table.sync_files, paths)
            await self._disk.run(write_bounds, self._disk, self._directory.root, bounds)
            self._noted_removals_and_begin = removals_and_begin
        index_position, index_time_ms = index.position.value, index.position.store_time_ms
        await _run_to_the_end(self._disk, index.sync, index.take_unsynced())
        if truncations != log.truncations:
            return
        positions = Positions(position, index_position, log.min_offset, seen_before)
        checkpoint = Checkpoint(time_ms, time_ms, index_time_ms, positions)
        await self._disk.run(write_checkpoint, self._disk, self._directory.checkpoint, checkpoint)
        self.synced_position = position
        self._noted_gating = seen_before != EVERYTHING
        if truncations != log.truncations:
            # The log was cut while this was being written.
            self.lower(min(log.max_offset, self._dispatched.value))
