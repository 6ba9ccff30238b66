"""Deletes old files of the log, and refuses messages while the disk is nearly full.

    used <= 75 %   old files are deleted in the hours of `delete_when`
    used  > 75 %   old files are deleted at once
    used  > 85 %   the oldest files are deleted whatever their age, if allowed (`clean_file_forcibly_enable`)
    used  > 90 %   messages are refused too, until less is used

If the disk cannot be checked, or a file not deleted, the next round tries again.

Invariant: the last file stays; queue and index files are deleted when all messages that they refer to are gone.
Answers to: CleanCommitLogService, CleanConsumeQueueService.
Unlike Java: a file's age is the store time of what comes after it, not the time of its last change; and a clock that
jumps ahead deletes nothing until it has been right for a day (`clock_watch.py`).
"""

import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import trio

from rocketrio_broker.requests.steps import in_steps
from rocketrio_broker.store.clock_watch import ClockWatch
from rocketrio_broker.store.commit_log import CommitLog, store_timestamp
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.consume_queue import ConsumeQueue
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.data_directory import DataDirectory
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.flush import CheckpointService
from rocketrio_broker.store.key_index import KeyIndex
from rocketrio_broker.store.mapped_file import MappedFile
from rocketrio_broker.store.refusals import Refusals, Refuser
from rocketrio_protocol.record.decode import RecordStatus, scan_record
from rocketrio_protocol.remoting.ports import WallClock
from rocketrio_protocol.remoting.tasks import every
from rocketrio_protocol.times import nearest_time

_LOG: Final = logging.getLogger("rocketrio_broker.store")

DELETE_FILES_BATCH_MAX: Final = 10
"""The most files deleted in one pass, as deleteFilesBatchMax."""

DELETE_FILES_INTERVAL: Final = 0.1
"""Seconds between two deletions, as deleteCommitLogFilesInterval: deleting 1 GiB keeps the disk busy."""


CountUnread: TypeAlias = Callable[
    [Mapping[tuple[str, int], tuple[int, int]]], Generator[None, None, tuple[int, int]]
]
"""Takes parts of queues (from, to); returns how many of their messages groups had not read, and how many groups."""


def _count_nothing(
    gone: Mapping[tuple[str, int], tuple[int, int]],
) -> Generator[None, None, tuple[int, int]]:
    yield from ()
    return 0, 0


def count_deletable(
    newest_ms: Sequence[int],
    *,
    now_ms: int,
    hour: int,
    used_percent: float,
    config: StoreConfig,
    at_any_hour: bool = False,
) -> int:
    """Return how many of the oldest files to delete now.

    `newest_ms` has for each file but the last a time after which none of its messages was stored.
    """
    by_force = config.clean_file_forcibly_enable and (
        used_percent > config.disk_space_clean_forcibly_ratio
    )
    hours = {int(part) for part in config.delete_when.split(";")}
    due = at_any_hour or hour in hours or used_percent > config.disk_max_used_space_ratio
    oldest_kept_ms = now_ms - config.file_reserved_ms
    count = 0
    for file_ms in newest_ms[:DELETE_FILES_BATCH_MAX]:
        if not by_force and not (due and file_ms <= oldest_kept_ms):
            break
        count += 1
    return count


class RetentionService:
    """Checks the disk and the age of files periodically."""

    def __init__(
        self,
        config: StoreConfig,
        directory: DataDirectory,
        log: CommitLog,
        table: ConsumeQueueTable,
        index: KeyIndex,
        checkpoints: CheckpointService,
        clock_watch: ClockWatch,
        refusals: Refusals,
        *,
        disk: Disk,
        wall_clock: WallClock,
    ) -> None:
        self.problem = ""
        """What happens to files early because the disk fills; empty if nothing does."""
        self.count_unread: CountUnread = _count_nothing
        self.used_ratio = 0.0
        self.capacity = (0, 0)
        self.config = config
        self._directory = directory
        self._log = log
        self._table = table
        self._index = index
        self._checkpoints = checkpoints
        self._clock_watch = clock_watch
        self._refusals = refusals
        # When a file whose messages have store times in the future was first found full, by the file's end.
        self._found_full_ms: dict[int, int] = {}
        self._disk = disk
        self._wall_clock = wall_clock

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self.check_disk()
        task_status.started()
        async for _ in every(self.config.clean_resource_interval):
            try:
                await self.check_disk()
                await self.delete_old_files()
            except OSError as error:
                _LOG.error("retention failed error=%s", error)

    async def check_disk(self) -> None:
        """Check how full the disk is, and refuse or accept messages accordingly."""
        path = self._directory.commit_log
        self.used_ratio = await self._disk.run(self._disk.used_ratio, path)
        self.capacity = await self._disk.run(self._disk.capacity, path)
        percent, limit = self.used_ratio * 100, self.config.disk_space_warning_level_ratio
        if percent > limit:
            if not self._refusals.of(Refuser.DISK):
                _LOG.error("disk nearly full path=%s used_percent=%.1f", path, percent)
            self._refusals.refuse(
                Refuser.DISK,
                f"the disk of {path} is {percent:.1f} % full, messages are refused above {limit:g} %:"
                " make room, or lower file_reserved_time",
            )
        elif self._refusals.of(Refuser.DISK):
            _LOG.warning("disk has room again path=%s used_percent=%.1f", path, percent)
            self._refusals.lift(Refuser.DISK)
        self._check_forced_deletion(percent)

    def _check_forced_deletion(self, percent: float) -> None:
        """Log once, and show while it lasts, what happens to files before their time."""
        before, self.problem = self.problem, ""
        if percent <= self.config.disk_space_clean_forcibly_ratio:
            return
        self.problem = (
            f"the disk is more than {self.config.disk_space_clean_forcibly_ratio:g} % full:"
            f" the oldest files are deleted before their time, read or not"
            if self.config.clean_file_forcibly_enable
            else f"the disk is more than {self.config.disk_space_clean_forcibly_ratio:g} % full:"
            f" nothing is deleted before its time, messages are refused above"
            f" {self.config.disk_space_warning_level_ratio:g} %"
        )
        if self.problem != before:
            _LOG.warning("disk fills used_percent=%.1f problem=%s", percent, self.problem)

    async def delete_old_files(self, *, at_any_hour: bool = False) -> int:
        """Delete the files that may go now; return how many files of the log were deleted."""
        settled_ms, now_ms = self._clock_watch.settled_ms(), self._wall_clock.now_ms()
        # An operator who requests the deletion has checked the clock, unless the clock is known to be wrong.
        goes_by_clock = at_any_hour and not self._clock_watch.problem
        times = self._newest_times(settled_ms)
        counted = partial(
            count_deletable,
            times,
            now_ms=now_ms if goes_by_clock else settled_ms,
            hour=nearest_time(now_ms).astimezone().hour,
            config=self.config,
        )
        count = counted(used_percent=self.used_ratio * 100, at_any_hour=at_any_hour)
        in_time = counted(used_percent=0.0, at_any_hour=True)
        if count <= in_time:
            return await self.delete_files(count)
        before = {queue.key: queue.min_offset for queue in self._table}
        deleted = await self.delete_files(count)
        if deleted > in_time:
            gone = {
                queue.key: (before[queue.key], queue.min_offset)
                for queue in self._table
                if queue.min_offset > before.get(queue.key, queue.min_offset)
            }
            messages, groups = await in_steps(self.count_unread(gone))
            _LOG.warning(
                "deleted before time files=%d used_percent=%.1f messages=%d unread=%d groups=%d",
                deleted, self.used_ratio * 100, sum(end - start for start, end in gone.values()),
                messages, groups,
            )  # fmt: skip
        return deleted

    async def delete_files(self, count: int) -> int:
        """Delete the oldest files, but never the last, and then what referred only to them; return how many."""
        files = self._log.files
        deleted = 0
        moved: set[ConsumeQueue] = set()
        # The limit is an address, not a count: while this pass sleeps another one may delete the same files.
        last = files.files[:count]
        limit = last[-1].end_offset if last else 0
        try:
            while (first := self._oldest_below(limit)) is not None:
                # The bounds move before the file goes: the steps take seconds, and readers must not look for gone
                # messages.
                moved.update(await in_steps(self._table.raise_min(first.end_offset)))
                if self._oldest_below(limit) is not first:
                    continue
                _LOG.info("log file deleted file=%s", first.path.name)
                deleted += 1
                files.remove_first()
                if self._oldest_below(limit) is not None:
                    await trio.sleep(DELETE_FILES_INTERVAL)
        finally:
            # A file that could not be deleted is gone from the log even if its name still exists.
            if deleted:
                await self._forget_gone(moved)
        return deleted

    def _oldest_below(self, limit: int) -> MappedFile | None:
        """Return the oldest file if it may be deleted now and ends at or before `limit`."""
        files = self._log.files.files
        may_go = len(files) > 1 and files[0].end_offset <= min(limit, self._synced())
        return files[0] if may_go else None

    def _synced(self) -> int:
        """Return the address up to which files are not needed for a sync, the index, or a recovery."""
        return min(self._checkpoints.synced_position, self._index.position.value)

    async def _forget_gone(self, queues: Collection[ConsumeQueue]) -> None:
        """Delete the files of the index and of these queues that refer only to deleted files of the log."""
        index_files = self._index.delete_before(self._log.min_offset)
        # A start after a crash would miss queue files that the bounds on the disk still cover.
        await self._checkpoints.checkpoint()
        queue_files = await in_steps(self._table.delete_before_min(queues))
        if queue_files or index_files:
            _LOG.info("queue files deleted queue=%d index=%d", queue_files, index_files)

    def _newest_times(self, now_ms: int) -> list[int]:
        """Return for each file but the last an upper bound of its store times: when the next file began.

        If that is in the future, because the clock was ahead, it is instead the time when this was first seen.
        """
        times: list[int] = []
        found_full_ms, self._found_full_ms = self._found_full_ms, {}
        for file in self._log.files.files[1:]:
            if file.start_offset >= self._log.max_offset:
                break
            if (
                scan_record(file.view, 0, file.size, check_crc=False).status
                is not RecordStatus.RECORD
            ):
                break
            time_ms, start = store_timestamp(file.view), file.start_offset
            if time_ms > now_ms:
                time_ms = self._found_full_ms[start] = found_full_ms.get(start, now_ms)
            times.append(time_ms)
        return times
