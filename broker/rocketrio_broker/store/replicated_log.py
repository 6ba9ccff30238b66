"""Writes a store for replication: appends bytes exactly at the log's end, moves the end back, and saves what it cuts.

The bytes that are cut off are saved in a file of their own, named after their address:

    cut/<address, 20 digits>-<time in ms>.log

Invariant: nothing is appended after damage.
Invariant: no queue, index or checkpoint refers to bytes that were cut off the log; a topic whose deletion is cut off
gets its queues back, and its offsets are valid again.
Invariant: when `keep_tail` or `keep_bytes` returns, the bytes and the name of their file survive a power cut.
Answers to: DefaultMessageStore.appendToCommitLog, truncateDirtyFiles.
Unlike Java: Apache's brokers in controller mode truncate without saving anything.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.deletion import Deletion, deletion_in
from rocketrio_broker.store.disk import Buffer, Disk
from rocketrio_broker.store.dispatch import QueueDispatcher, has_queue_entry
from rocketrio_broker.store.errors import LogDamagedError
from rocketrio_broker.store.flush import CheckpointService
from rocketrio_broker.store.health import StoreHealth
from rocketrio_broker.store.key_index import KeyIndex
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_broker.store.read_gate import ReadGate
from rocketrio_broker.store.reput import ReputMessageService
from rocketrio_broker.waiting.watermark import LogPosition

_SAVE_STEP: Final = 4 << 20
"""Bytes written at once, in a worker thread: a tail may be long, and other tasks must run in between."""


class ReplicatedLog:
    """The log of a slave, with the queues and index that are built from it."""

    def __init__(
        self,
        log: CommitLog,
        table: ConsumeQueueTable,
        index: KeyIndex,
        dispatched: LogPosition,
        dispatcher: QueueDispatcher,
        gate: ReadGate,
        reput: ReputMessageService,
        checkpoints: CheckpointService,
        health: StoreHealth,
    ) -> None:
        self._log = log
        self._table = table
        self._index = index
        self._dispatched = dispatched
        self._dispatcher = dispatcher
        self._gate = gate
        self._reput = reput
        self._checkpoints = checkpoints
        self._health = health

    def append_raw(self, physical_offset: int, data: Buffer) -> None:
        """Store bytes exactly at the end, or anywhere in an empty log; they are dispatched soon after."""
        self._health.check()
        log = self._log
        if log.is_empty and physical_offset != log.max_offset:
            # Before the first bytes: what is left of queues and index names addresses of the log before.
            self._table.clear()
            self._index.truncate(0)
            self._dispatched.reset(physical_offset)
            self._index.position.reset(physical_offset)
            self._checkpoints.begin_at(physical_offset)
        log.append_raw(physical_offset, data)
        self._reput.replicated.reset(log.max_offset)

    def truncate_to(self, physical_offset: int, rebuilt: Collection[tuple[str, int]] = ()) -> None:
        """Remove the log from this record boundary on, with its queue entries and index; blocks."""
        # If a deletion is undone all is dispatched again; the queues that have their messages skip them.
        undone = self._deletions_from(physical_offset)
        position = self._log.min_offset if rebuilt or undone else physical_offset
        self._gate.log_was_cut(physical_offset)
        # First of all, because a recovery would begin at a checkpoint beyond the end.
        self._checkpoints.lower(position)
        for queue in [queue for queue in self._table if queue.key in rebuilt]:
            self._table.delete_queue(queue)
        for queue in self._table:
            if queue.last_physical_end > physical_offset:
                queue.truncate(queue.first_at_or_after(physical_offset))
        self._index.truncate(physical_offset)
        # After queues and index: at no step do these name bytes that are gone.
        self._log.truncate(physical_offset)
        self._dispatched.reset(min(self._dispatched.value, position))
        self._reput.replicated.reset(physical_offset)
        self._dispatcher.undo(undone)
        self._health.log_was_cut(physical_offset)

    def _deletions_from(self, physical_offset: int) -> list[Deletion]:
        """Return the deletions of topics that were dispatched from `physical_offset` on."""
        size = self._dispatched.value - physical_offset
        if size <= 0:
            return []
        walk = LogWalk(self._log, physical_offset, stop_at_damage=True)
        return [
            deletion
            for _, _, topic, _, _, sys_flag, _, properties in walk.records(size)
            if not has_queue_entry(sys_flag)
            and (deletion := deletion_in(topic, properties)) is not None
        ]

    def start_over(self) -> None:
        """Remove everything: the next bytes may begin at any address; blocks."""
        self._gate.log_was_cut(0)
        self._checkpoints.lower(0)
        self._table.clear()
        self._index.truncate(0)
        self._log.truncate(0)
        self._dispatched.reset(0)
        self._reput.replicated.reset(0)
        self._health.log_was_cut(0)

    def end_replication(self) -> None:
        """Dispatch all whole records to the queues, and cut off damage or a partial record after them."""
        try:
            self._reput.dispatch_all()
        except LogDamagedError as damage:
            self._health.found(damage)
        # The master that would have sent the rest of the last record is gone.
        if self._dispatched.value < self._log.max_offset:
            self.truncate_to(self._dispatched.value)


def tail_name(physical_offset: int, now_ms: int) -> str:
    """Return the name of the file for bytes that were cut at this address."""
    return f"{physical_offset:020}-{now_ms}.log"


async def keep_tail(log: CommitLog, start: int, path: Path, *, disk: Disk) -> int:
    """Write everything from `start` on to `path`; return the number of bytes.

    Raises OSError if the disk has no room; a part of the file is then left. A cancel leaves the same.
    """
    disk.make_directory(path.parent)
    file = disk.open(path, create=True)
    position = start
    try:
        while (block := log.read(position, _SAVE_STEP)) is not None:
            await disk.run(file.pwrite, block, position - start)
            position += len(block)
        await disk.run(file.fdatasync)
    finally:
        file.close()
    # Without its name a power cut leaves bytes that no operator can find.
    await disk.run(_sync_names, path, disk)
    return position - start


def keep_bytes(data: Buffer, path: Path, *, disk: Disk) -> None:
    """Write `data` to `path`; blocks. Raises OSError, with a part of the file left, if the disk has no room."""
    disk.make_directory(path.parent)
    file = disk.open(path, create=True)
    try:
        file.pwrite(data, 0)
        file.fdatasync()
    finally:
        file.close()
    _sync_names(path, disk)


def _sync_names(path: Path, disk: Disk) -> None:
    disk.sync_directory(path.parent)
    disk.sync_directory(path.parent.parent)
