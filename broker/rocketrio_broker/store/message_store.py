"""The message store: composes log, queues and index; the rest of the broker uses only this class.

A put runs without an await: check, claim an address, encode, copy into the mapping, add the entry, move the positions.

Invariant: on a master an append's queue entry exists when `append` returns, so a pull right after it sees the message.
Invariant: an open store has its `abort` file; only a close that synced everything removes it.
Answers to: DefaultMessageStore.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from rocketrio_broker.store.allocate import AllocateService
from rocketrio_broker.store.append import Appender
from rocketrio_broker.store.checkpoint import read_checkpoint
from rocketrio_broker.store.clock_watch import ClockWatch
from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.data_directory import DataDirectory
from rocketrio_broker.store.disk import Buffer, Disk
from rocketrio_broker.store.dispatch import DelayLevels, QueueDispatcher
from rocketrio_broker.store.epochs import Epochs
from rocketrio_broker.store.errors import LogDamagedError, NotClosedError, NotOpenedError
from rocketrio_broker.store.flush import CheckpointService, FlushService
from rocketrio_broker.store.health import Service, StoreHealth
from rocketrio_broker.store.kept_tail import keep_bytes, keep_tail, tail_name
from rocketrio_broker.store.key_index import KeyIndex
from rocketrio_broker.store.log_position import LogPosition
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_broker.store.lookups import StoreLookups
from rocketrio_broker.store.put_batch import MixedEntries, UniformEntries
from rocketrio_broker.store.put_message import AppendResult, PutMessage
from rocketrio_broker.store.queue_bounds import read_bounds
from rocketrio_broker.store.queue_reader import QueueReader
from rocketrio_broker.store.read import GetResult
from rocketrio_broker.store.read_gate import ReadGate
from rocketrio_broker.store.record_filter import PropertiesFilter
from rocketrio_broker.store.recovery import recover
from rocketrio_broker.store.replicated_log import ReplicatedLog
from rocketrio_broker.store.reput import ReputMessageService
from rocketrio_broker.store.retention import CountUnread, RetentionService
from rocketrio_broker.store.statistics import StoreStatistics, StoreStatisticsService
from rocketrio_broker.watermark import Watermark
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


class MessageStore(StoreLookups):
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
        self.appended: Watermark = self.commit_log.appended
        self.flushed: Watermark = self.commit_log.flushed
        self.dispatched = LogPosition()
        self.read_gate = ReadGate()
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
            wall_clock=wall_clock,
        )
        # The appender's own methods: every send goes through them.
        self.append: Callable[[PutMessage], AppendResult] = self._appender.append
        """Store one message; `status` of the result says whether it was stored."""
        self.append_batch: Callable[[PutMessage, UniformEntries | MixedEntries], AppendResult]
        self.append_batch = self._appender.append_batch
        """Store the entries of a batch next to each other, or none of them."""
        self.health = StoreHealth(self._appender, root)
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
            self._appender,
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
        self._is_slave = False
        self.doubtful_end = 0
        """Records before this address were there at a crash; of each, the checksum covers only the body."""

    def __repr__(self) -> str:
        return f"<MessageStore {self.directory.root} {self.min_physical_offset}..{self.max_physical_offset}>"

    # --- opening and closing -----------------------------------------------------------------

    async def open(self) -> None:
        """Recover, and sync the result before it is used. Raises `NotOpenedError` if the disk fails."""
        try:
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
        is_ours = checkpoint.positions is not None
        bounds = read_bounds(self._disk, directory.root, file_size) if is_ours else None
        self.queue_table.load(bounds)
        self.epochs.load()
        directory.mark_running()
        found = recover(
            log,
            self.queue_table,
            self.dispatcher,
            checkpoint,
            clean=clean,
            check_crc=self.config.check_crc_on_recover,
            keep=self._keep_bytes,
        )
        self.doubtful_end = 0 if clean else found.end
        last_ms = max(found.last_store_time_ms, checkpoint.physical_timestamp_ms)
        self.dispatched.store_time_ms = last_ms
        self.dispatched.reset(found.end)
        self._reput.replicated.reset(found.end)
        self.key_index.recover(checkpoint, log_end=found.end, clean=clean)
        self.queue_table.take_grown()
        if checkpoint.positions is not None:
            self.read_gate.told(checkpoint.positions.read_gate)
            self.read_gate.log_was_cut(found.end)
        _LOG.info(
            "event=recovered clean=%s queues=%d found=%s", clean, len(self.queue_table), found
        )

    def _keep_bytes(self, physical_offset: int, data: bytes) -> Path:
        path = self.directory.cut / tail_name(physical_offset, self._wall_clock.now_ms())
        keep_bytes(data, path, disk=self._disk)
        return path

    def services(self) -> Sequence[Service]:
        """Return the services that run while the store is open."""
        return (
            AllocateService(self.commit_log, disk=self._disk),
            self._flush,
            self._reput,
            self.key_index,
            self._checkpoint,
            self.clock_watch,
            self._retention,
            self._statistics,
        )

    async def finish(self) -> None:
        """Sync everything and mark the directory clean; after a fault or damage leave it marked as crashed."""
        self._appender.refusal = self._appender.refusal or "the store is closing"
        if self.health.has_fault:
            return
        try:
            self.key_index.build_all()
        except LogDamagedError as damage:
            self.health.found(damage)
        try:
            await self.checkpoint()
            self.commit_log.files.drop_prepared()
            if self.health.is_good:
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
        self.directory.release()

    # --- role and health ---------------------------------------------------------------------

    @property
    def is_slave(self) -> bool:
        """Whether the log is written by replication; a slave refuses appends."""
        return self._is_slave

    @is_slave.setter
    def is_slave(self, is_slave: bool) -> None:
        if self._is_slave and not is_slave:
            self._replicated.end_replication()
        self._is_slave = is_slave
        self._appender.role_refusal = "this broker is a slave" if is_slave else ""
        self._reader.is_slave = is_slave

    def take_writes(self) -> None:
        """Lift the refusal of `refuse_writes` or of the role; appends may still be refused for other reasons."""
        self._appender.role_refusal = ""

    def refuse_writes(self, why: str) -> None:
        """Refuse appends until `take_writes`, and give `why` as the reason."""
        self._appender.role_refusal = why

    @property
    def writable(self) -> bool:
        """Whether `append` takes messages now; `refusal` has the reason if not."""
        return not self.refusal

    @property
    def refusal(self) -> str:
        """Why appends are refused; empty if they are not."""
        appender = self._appender
        return appender.role_refusal or appender.refusal or appender.disk_refusal

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
        self, physical_offset: int, *, built_anew: Collection[tuple[str, int]] = ()
    ) -> None:
        """Remove the log from this record boundary on, with its queue entries and index; blocks.

        The queues `built_anew` are built again from the whole log, because damaged records made them wrong.
        """
        self._replicated.truncate_to(physical_offset, built_anew)
        self.doubtful_end = min(self.doubtful_end, physical_offset)

    async def cut_tail(
        self,
        physical_offset: int,
        *,
        now_ms: int,
        built_anew: Collection[tuple[str, int]] = (),
    ) -> Path:
        """Save the log from this record boundary on in a file and remove it like `truncate_to`; return the file's path.

        Raises OSError, and removes nothing, if the disk has no room for the file. A cancel removes nothing either.
        """
        path = self.directory.cut / tail_name(physical_offset, now_ms)
        await keep_tail(self.commit_log, physical_offset, path, disk=self._disk)
        self.truncate_to(physical_offset, built_anew=built_anew)
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

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        tags_codes: frozenset[int] | None = None,
        matches: PropertiesFilter | None = None,
        max_bytes: int | None = None,
        limited_by_bytes: bool = False,
    ) -> GetResult:
        """Return messages of a queue that have one of the tags codes, or properties that `matches` selects.

        `limited_by_bytes` lifts the limits on the number of messages.
        """
        return self._reader.get_message(
            topic, queue_id, offset, max_messages, tags_codes, max_bytes, limited_by_bytes, matches
        )

    def delete_topic(self, topic: str) -> bool:
        """Remove a topic's queues; its messages stay in the log until they expire."""
        return self.queue_table.delete_topic(topic)

    def is_in_memory(self, physical_offset: int) -> bool:
        """Return whether the message at `physical_offset` is near enough to the end to count as cached."""
        return self.max_physical_offset - physical_offset <= self._memory_size
