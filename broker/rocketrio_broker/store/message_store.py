"""The message store: composes log, queues and index; the rest of the broker uses only this class.

A put runs without an await: check, claim an address, encode, copy into the mapping, add the entry, move the positions.

Invariant: on a master an append's queue entry exists when `append` returns, so a pull right after it sees the message.
Invariant: an open store has its `abort` file; only a close that synced everything removes it.
Invariant: a message is what an entry of its queue points to, whatever bytes are at a requested address.
Invariant: queries find nothing beyond the read gate, unless unconfirmed messages are requested too.
Answers to: DefaultMessageStore.
"""

import logging
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from rocketrio_broker.store.acknowledged import Acknowledged
from rocketrio_broker.store.allocate import AllocateService
from rocketrio_broker.store.append import Appender
from rocketrio_broker.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rocketrio_broker.store.clock_watch import ClockWatch
from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.consume_queue import ENTRY, ConsumeQueue
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.data_directory import DataDirectory
from rocketrio_broker.store.disk import Buffer, Disk
from rocketrio_broker.store.dispatch import DelayLevels, QueueDispatcher
from rocketrio_broker.store.epochs import Epochs
from rocketrio_broker.store.errors import LogDamagedError, NotClosedError, NotOpenedError
from rocketrio_broker.store.flush import CheckpointService, FlushService
from rocketrio_broker.store.health import StoreHealth, StoreService
from rocketrio_broker.store.key_index import KeyIndex
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_broker.store.put_batch import MixedEntries, UniformEntries
from rocketrio_broker.store.put_message import AppendResult, PutMessage
from rocketrio_broker.store.query import Boundary, QueryResult, offset_by_time, query_message
from rocketrio_broker.store.queue_bounds import read_bounds
from rocketrio_broker.store.read import QueueReader
from rocketrio_broker.store.read_gate import EVERYTHING, ReadGate
from rocketrio_broker.store.record_filter import Entry, PropertiesFilter, with_verdicts
from rocketrio_broker.store.recovery import recover
from rocketrio_broker.store.refusals import Refusals, Refuser
from rocketrio_broker.store.replicated_log import ReplicatedLog, keep_bytes, keep_tail, tail_name
from rocketrio_broker.store.reput import ReputMessageService
from rocketrio_broker.store.retention import CountUnread, RetentionService
from rocketrio_broker.store.statistics import StoreStatistics, StoreStatisticsService
from rocketrio_broker.waiting.watermark import LogPosition, Watermark
from rocketrio_protocol.record.decode import RecordStatus, scan_record
from rocketrio_protocol.remoting.ports import WallClock
from rocketrio_protocol.remoting.tasks import background_nursery

_LOG: Final = logging.getLogger("rocketrio_broker.store")


@asynccontextmanager
async def open_message_store(
    config: StoreConfig, root: Path, *, disk: Disk, wall_clock: WallClock
) -> AsyncGenerator["MessageStore"]:
    """Open a data directory: recover it before the body begins, sync it and mark it clean after the body.

    Raises `StoreLockedError` if another broker uses it, `StoreDamagedError` if no crash explains its state, and
    `NotOpenedError`, or at the end `NotClosedError`, if the disk takes no writes; neither of these two loses data.
    A cancel during the body also closes it cleanly.
    """
    store = MessageStore(config, root, disk=disk, wall_clock=wall_clock)
    # Before recovery, which changes files: a second broker must not repair what the first one is writing.
    store.directory.take()
    try:
        await store.open()
        try:
            async with background_nursery() as nursery:
                for service in store.services():
                    await nursery.start(store.health.guard, service)
                yield store
        finally:
            with trio.CancelScope(shield=True):
                await store.finish()
    finally:
        store.release()


class MessageStore:
    """One broker's messages, opened by `open_message_store`."""

    def __init__(
        self, config: StoreConfig, root: Path, *, disk: Disk, wall_clock: WallClock
    ) -> None:
        self.config = config
        self.directory = DataDirectory(root, disk=disk)
        self._disk = disk
        self._wall_clock = wall_clock
        self.commit_log = CommitLog(
            self.directory.commit_log, config.mapped_file_size_commit_log, disk=disk
        )
        self.epochs = Epochs(root, self.commit_log, disk=disk)
        """Which broker wrote which part of the log."""
        self.acknowledged = Acknowledged(root, disk=disk)
        """How far slaves have acknowledged the log."""
        self.appended: Watermark = self.commit_log.appended
        self.flushed: Watermark = self.commit_log.flushed
        self.dispatched = LogPosition()
        self.read_gate = ReadGate()
        self.refusals = Refusals()
        """Why appends are refused, and by which parts of the broker."""
        self.clock_watch = ClockWatch(self.dispatched, wall_clock=wall_clock)
        self.queue_table = ConsumeQueueTable(
            self.directory.consume_queue, config.mapped_file_size_consume_queue, disk=disk
        )
        levels = DelayLevels(config.message_delay_level)
        self.dispatcher = QueueDispatcher(self.queue_table, levels)
        self.key_index = KeyIndex(
            self.directory.index, config, self.commit_log, disk=disk, wall_clock=wall_clock
        )
        self._appender = Appender(
            config,
            self.commit_log,
            self.queue_table,
            self.dispatched,
            levels,
            self.refusals,
            wall_clock=wall_clock,
        )
        # The appender's own methods: every send goes through them.
        self.append: Callable[[PutMessage], AppendResult] = self._appender.append
        """Store one message; `status` of the result says whether it was stored."""
        self.append_batch: Callable[[PutMessage, UniformEntries | MixedEntries], AppendResult]
        self.append_batch = self._appender.append_batch
        """Store the entries of a batch next to each other, or none of them."""
        self.never_takes: Callable[[PutMessage], AppendResult | None] = self._appender.never_takes
        """Return why a message can never be stored; None if it can be."""
        self.health = StoreHealth(self.refusals, root)
        self._reput = ReputMessageService(self.commit_log, self.dispatcher, self.dispatched)
        self._flush = FlushService(self.commit_log, config, disk=disk)
        self._checkpoint = CheckpointService(
            self.commit_log,
            self.queue_table,
            self.key_index,
            self.dispatched,
            self.read_gate,
            self._flush,
            self.directory,
            config,
            disk=disk,
        )
        self._replicated = ReplicatedLog(
            self.commit_log,
            self.queue_table,
            self.key_index,
            self.dispatched,
            self.dispatcher,
            self.read_gate,
            self._reput,
            self._checkpoint,
            self.health,
        )
        self._retention = RetentionService(
            config,
            self.directory,
            self.commit_log,
            self.queue_table,
            self.key_index,
            self._checkpoint,
            self.clock_watch,
            self.refusals,
            disk=disk,
            wall_clock=wall_clock,
        )
        self._statistics = StoreStatisticsService(
            self._appender, self.commit_log, self.dispatched, self._retention, wall_clock=wall_clock
        )
        self.put_times = self._statistics.put_times
        self._memory_size = config.memory_size(disk.physical_memory())
        self._reader = QueueReader(
            config,
            self.commit_log,
            self.queue_table,
            self.read_gate,
            self._statistics,
            self._memory_size,
        )
        # The reader's own method: every pull goes through it.
        self.get_message = self._reader.get_message
        self._is_slave = False
        self.doubtful_end = 0
        """Records before this address were there at a crash; of each, the checksum covers only the body."""

    def __repr__(self) -> str:
        return f"<MessageStore {self.directory.root} {self.min_physical_offset}..{self.max_physical_offset}>"

    # --- opening and closing -----------------------------------------------------------------

    async def open(self) -> None:
        """Recover, and sync the result before it is used. Raises `NotOpenedError` if the disk fails."""
        try:
            # Recovery read pages that may not be on the disk: what it found is synced before a client can see it.
            await self._disk.run(self.recover)
            await self.checkpoint()
        except OSError as error:
            raise NotOpenedError(f"{self.directory.root} was not opened: {error}") from error

    def recover(self) -> None:
        """Bring the directory into a consistent state; blocks."""
        directory, log = self.directory, self.commit_log
        directory.check()
        clean = not directory.crashed
        checkpoint = read_checkpoint(self._disk, directory.checkpoint)
        positions = None if clean else checkpoint.positions
        log.files.load(None if positions is None else positions.queue_position)
        # Without our part of the checkpoint another program may have written to the queues since.
        file_size = self.config.mapped_file_size_consume_queue
        is_rocketrio = checkpoint.positions is not None
        bounds = read_bounds(self._disk, directory.root, file_size) if is_rocketrio else None
        self.queue_table.load(bounds)
        self.epochs.load()
        self.acknowledged.load()
        # Before recovery changes anything: a crash in the middle of it must be followed by another recovery.
        directory.mark_running()
        found = recover(
            log,
            self.queue_table,
            self.dispatcher,
            checkpoint,
            clean=clean,
            check_crc=self.config.check_crc_on_recover,
            has_bounds=bounds is not None,
            keep=self._keep_bytes,
            lower=partial(self._lower_checkpoint, checkpoint),
        )
        self.doubtful_end = 0 if clean else found.end
        last_ms = max(found.last_store_time_ms, checkpoint.physical_timestamp_ms)
        self.dispatched.store_time_ms = last_ms
        self.dispatched.reset(found.end)
        self._reput.replicated.reset(found.end)
        self.key_index.recover(checkpoint, log_end=found.end, clean=clean)
        self.queue_table.take_grown()
        if checkpoint.positions is not None:
            self.read_gate.set_reported(checkpoint.positions.read_gate)
            # A crash may have taken the end: addresses beyond it will hold messages that no reader has seen.
            self.read_gate.log_was_cut(found.end)
            self.acknowledged.shown = self.read_gate.end.value if self.read_gate.is_gating else 0
        _LOG.info(
            "recovered clean=%s queues=%d read_again_from=%d end=%d messages=%d",
            clean,
            len(self.queue_table),
            found.start,
            found.end,
            found.message_count,
        )

    def _keep_bytes(self, physical_offset: int, data: bytes) -> Path:
        path = self.directory.cut / tail_name(physical_offset, self._wall_clock.now_ms())
        keep_bytes(data, path, disk=self._disk)
        return path

    def _lower_checkpoint(self, checkpoint: Checkpoint, position: int) -> None:
        """Withdraw what a checkpoint says about queue entries for addresses from `position` on; blocks."""
        if checkpoint.positions is not None:
            lowered = attrs.evolve(checkpoint.positions, queue_position=position)
            write_checkpoint(self._disk, self.directory.checkpoint, Checkpoint(positions=lowered))

    def services(self) -> Sequence[StoreService]:
        """Return the services that run while the store is open."""
        return (
            AllocateService(self.commit_log, disk=self._disk),
            self._flush,
            self._reput,
            self.key_index,
            self._checkpoint,
            self.acknowledged,
            self.clock_watch,
            self._retention,
            self._statistics,
        )

    async def finish(self) -> None:
        """Sync everything and mark the directory clean; after a fault or damage leave it marked as crashed."""
        # First: a message that came during the syncs below would be answered,
        # and the directory be marked as if it were synced.
        self.refusals.refuse(Refuser.CLOSING, "the store is closing")
        # What the disk has is not known: the directory stays marked as crashed, and the next start recovers.
        if self.health.has_fault:
            return
        try:
            self.key_index.build_all()
        except LogDamagedError as damage:
            self.health.found(damage)
        try:
            await self.checkpoint()
            await self.acknowledged.sync()
            self.commit_log.files.drop_prepared()
            if self.health.is_good:
                # Last: the next start believes this mark, and checks nothing.
                await self.epochs.close()
                self.directory.mark_clean()
        except OSError as error:
            raise NotClosedError(f"{self.directory.root} was not closed: {error}") from error

    async def checkpoint(self) -> None:
        """Sync log, queues and index, and record their positions, so that a later crash costs only what follows."""
        await self._checkpoint.checkpoint()

    def release(self) -> None:
        """Close all files and unlock the directory."""
        self.commit_log.files.close()
        self.queue_table.close()
        self.key_index.close()
        self.acknowledged.close()
        self.directory.release()

    # --- role and health ---------------------------------------------------------------------

    @property
    def is_slave(self) -> bool:
        """Whether the log is written by replication; a slave refuses appends."""
        return self._is_slave

    def begin_replication(self) -> None:
        """Let replication write the log, and refuse appends."""
        self._is_slave = self._reader.is_slave = True
        self.refusals.refuse(Refuser.REPLICATION, "this broker is a slave")

    def end_replication(self) -> None:
        """Complete the queues, cut off a record that is incomplete, and let appends write the log again."""
        if self._is_slave:
            self._replicated.end_replication()
        self._is_slave = self._reader.is_slave = False
        # Not before a partial record is cut off: the first message would be appended in the middle of it.
        self.refusals.lift(Refuser.REPLICATION)

    @property
    def writable(self) -> bool:
        """Whether `append` takes messages now; `refusal` has the reason if not."""
        return not self.refusal

    @property
    def refusal(self) -> str:
        """Why appends are refused, by the first of the parts that refuse them; empty if they are not."""
        return self.refusals.reason

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other limits for reading and deleting; file sizes and periods stay as they were at opening."""
        self.config = config
        self._memory_size = config.memory_size(self._disk.physical_memory())
        self._reader.reconfigure(config, self._memory_size)
        self._retention.config = config

    def watch_unread(self, count: CountUnread) -> None:
        """Use `count` to report messages that groups had not read when they were deleted early."""
        self._retention.count_unread = count

    async def delete_old_files(self) -> int:
        """Delete expired files now, at any hour; return how many log files were deleted."""
        return await self._retention.delete_old_files(at_any_hour=True)

    def statistics(self) -> StoreStatistics:
        return self._statistics.snapshot()

    def runtime_info(self) -> dict[str, str]:
        """Return the store's part of the broker's runtime info."""
        info = self._statistics.runtime_info(self.earliest_message_time())
        if self.health.damage is not None:
            info["commitLogDamage"] = str(self.health.damage)
        if self.clock_watch.problem:
            info["clockProblem"] = self.clock_watch.problem
        return info

    @property
    def disk_capacity(self) -> tuple[int, int]:
        """The total and the free bytes of the file system, as last checked."""
        return self._retention.capacity

    @property
    def disk_used_ratio(self) -> float:
        """The used part of the file system, from 0 to 1, as last checked."""
        return self._retention.used_ratio

    def problems(self) -> list[str]:
        """Return the problems that an operator should know of, except a refusal of messages."""
        problems = (
            self.clock_watch.problem,
            self._retention.problem,
            self._appender.room.problem,
            self.key_index.problem,
        )
        return [problem for problem in problems if problem]

    # --- writing -----------------------------------------------------------------------------

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next message will get."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        return 0 if queue is None else queue.max_offset

    # --- replication -------------------------------------------------------------------------

    def read_log(self, physical_offset: int, max_bytes: int) -> memoryview | None:
        """Return raw bytes of the log from one file; None below the minimum, at the end and at damage."""
        damage = self.health.damage
        if damage is not None and physical_offset <= damage.physical_offset:
            max_bytes = min(max_bytes, damage.physical_offset - physical_offset)
            if not max_bytes:
                return None
        return self.commit_log.read(physical_offset, max_bytes)

    def whole_end(self) -> int:
        """Return the end of the last whole record; a slave's log may continue with a part of the next one."""
        log = self.commit_log
        walk = LogWalk(log, max(self.dispatched.value, log.min_offset), stop_at_damage=True)
        for _ in walk.records(log.max_offset - walk.position):
            pass
        return walk.position

    def append_raw(self, physical_offset: int, data: Buffer) -> None:
        """Store replicated bytes exactly at the end, or anywhere in an empty log; they are dispatched soon after.

        Raises LogDamagedError if the log is damaged, so that nothing may follow it.
        """
        self._replicated.append_raw(physical_offset, data)

    def truncate_to(
        self, physical_offset: int, *, rebuilt: Collection[tuple[str, int]] = ()
    ) -> None:
        """Remove the log from this record boundary on, with its queue entries and index; blocks.

        The queues `rebuilt` are built again from the whole log, because damaged records made them wrong.
        """
        self._replicated.truncate_to(physical_offset, rebuilt)
        self.doubtful_end = min(self.doubtful_end, physical_offset)

    async def cut_tail(
        self,
        physical_offset: int,
        *,
        now_ms: int,
        rebuilt: Collection[tuple[str, int]] = (),
    ) -> Path:
        """Save the log from this record boundary on in a file and remove it like `truncate_to`; return the file's path.

        Raises OSError, and removes nothing, if the disk has no room for the file. A cancel removes nothing either.
        """
        path = self.directory.cut / tail_name(physical_offset, now_ms)
        await keep_tail(self.commit_log, physical_offset, path, disk=self._disk)
        self.truncate_to(physical_offset, rebuilt=rebuilt)
        return path

    def start_over(self) -> None:
        """Remove everything, in order to copy another log from its first byte; blocks."""
        self._replicated.start_over()
        self.doubtful_end = 0

    # --- waiting -----------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Start to flush what is appended now, whatever flush_disk_type says; `flushed` passes it afterwards."""
        self._flush.flush_soon()

    async def flush(self) -> None:
        """Return when all that is appended now survives a power cut. Raises SyncFailedError."""
        await self._flush.flush()

    async def wait_flushed(self, end_offset: int) -> None:
        """Return when everything before `end_offset` survives a power cut."""
        await self.flushed.wait_reached(end_offset)

    async def wait_arrivals(self) -> None:
        """Return when readers may see more than at the call."""
        # What readers see ends at the lower of the two; while that one does not move nothing arrives.
        dispatched, seen_end = self.dispatched, self.read_gate.end
        lesser = dispatched if dispatched.value < seen_end.value else seen_end
        await lesser.wait_past(lesser.value)

    def take_arrivals(self) -> set[tuple[str, int]]:
        """Return the queues in which readers may see more than at the last call."""
        return self.queue_table.take_grown(seen_before=self.read_gate.end.value)

    # --- reading -----------------------------------------------------------------------------

    @property
    def min_physical_offset(self) -> int:
        return self.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        return self.commit_log.max_offset

    def queues(self) -> Mapping[str, Mapping[int, ConsumeQueue]]:
        """Return the queues of each topic that has messages, by queue id."""
        return self.queue_table.topics()

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Return (first, next) queue offset that readers see; None for an unknown queue."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        return None if queue is None else (queue.min_offset, self._seen_end(queue))

    def seen_queue_end(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after the last one that readers see; 0 for an unknown queue."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        return 0 if queue is None else self._seen_end(queue)

    def _seen_end(self, queue: ConsumeQueue) -> int:
        return queue.first_ending_beyond(self.read_gate.end.value)

    def queue_offset_at(self, topic: str, queue_id: int, physical_offset: int) -> int:
        """Return the queue offset of the first message at or after an address, or the next one; 0 without a queue."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        return 0 if queue is None else queue.first_at_or_after(physical_offset)

    def queue_entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[Entry]:
        """Return at most `count` entries of a queue; fewer at its end and where one of its files ends."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        if queue is None:
            return []
        count = min(count, self._seen_end(queue) - offset)
        return list(ENTRY.iter_unpack(queue.entries(offset, count)))

    def with_verdicts(self, entries: Iterable[Entry], matches: PropertiesFilter) -> Iterator[Entry]:
        """Yield the entries with the verdict of `matches` on their records in place of the tags code."""
        return with_verdicts(self.commit_log, entries, matches)

    def address_at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return the address of the message at a queue offset; None if it is not there."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        entry = None if queue is None else queue.entry(offset)
        return None if entry is None else entry[0]

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return when the message at a queue offset was stored, in ms; None if it is not there."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        if queue is None or not queue.min_offset <= offset < self._seen_end(queue):
            return None
        entry = queue.entry(offset)
        return None if entry is None else self.commit_log.store_timestamp_at(entry[0])

    def earliest_store_time(self, topic: str, queue_id: int) -> int | None:
        """Return when the oldest message of a queue was stored, in ms; None if it is not there."""
        bounds = self.queue_bounds(topic, queue_id)
        return None if bounds is None else self.store_time_at(topic, queue_id, bounds[0])

    def earliest_message_time(self) -> int | None:
        """Return when the oldest message of the log was stored, in ms; None if it is not there."""
        return self.commit_log.store_timestamp_at(self.min_physical_offset)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = "4.x"
    ) -> int:
        """Return the queue offset of the message stored at a time or next to it; 0 for an unknown queue."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        if queue is None:
            return 0
        end = self._seen_end(queue)
        return offset_by_time(self.commit_log, queue, end, timestamp_ms, boundary)

    def message_at(self, physical_offset: int, *, unconfirmed: bool = False) -> memoryview | None:
        """Return the stored message at an address of the log, or None if its queue has no message there.

        The caller's address may be wrong: bytes inside a message's body can look like another message.
        """
        record = self.commit_log.record_at(physical_offset)
        if record is None or physical_offset + len(record) > self._end(unconfirmed):
            return None
        header = scan_record(record, 0, len(record), check_crc=False)
        queue = self.queue_table.by_key.get((header.topic, header.queue_id))
        if header.status is not RecordStatus.RECORD or queue is None:
            return None
        entry = queue.entry(header.queue_offset)
        is_entered = entry is not None and entry[:2] == (physical_offset, len(record))
        # The entry decides, as only the broker writes it: a body may contain
        # a whole record with the address where it lies.
        return record if is_entered else None

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int,
        begin_ms: int,
        end_ms: int,
        *,
        unconfirmed: bool = False,
    ) -> QueryResult:
        """Find the newest messages with this key, stored within these times."""
        return query_message(
            self.commit_log,
            self.key_index,
            topic,
            key,
            min(max_num, self.config.max_msgs_num_batch),
            begin_ms,
            end_ms,
            end=self._end(unconfirmed),
        )

    def _end(self, unconfirmed: bool) -> int:
        return EVERYTHING if unconfirmed else self.read_gate.end.value

    def delete_topic(self, topic: str) -> bool:
        """Remove a topic's queues; its messages stay in the log until they expire."""
        return self.queue_table.delete_topic(topic)

    def is_in_memory(self, physical_offset: int) -> bool:
        """Return whether the message at `physical_offset` is near enough to the end to count as cached."""
        return self.max_physical_offset - physical_offset <= self._memory_size
