"""Deletes old files of the log, and refuses messages when the disk is nearly full.

    used <= 75 %   old files go in the hours of `delete_when`
    used  > 75 %   old files go at once
    used  > 85 %   the oldest go whatever their age, where that is allowed (`clean_file_forcibly_enable`)
    used  > 90 %   messages are refused as well, until it is less again

A disk that cannot be looked at, or from which a file cannot be deleted, is tried again with the next round.

Invariant: the last file stays; queue and index files go once all they name is gone.
Answers to: CleanCommitLogService, CleanConsumeQueueService.
Unlike Java: a file's age is the store time of what comes after it, not when the file was last changed; and a clock
that jumps ahead deletes nothing until it has been right for a day (`clock_watch.py`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

import trio

from rocketrio_broker.store.clock_watch import ClockWatch
from rocketrio_broker.store.commit_log import CommitLog, store_timestamp
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.data_directory import DataDirectory
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.flush import CheckpointService
from rocketrio_broker.store.key_index import KeyIndex
from rocketrio_protocol.record.decode import RecordStatus, scan_record
from rocketrio_protocol.remoting.ports import WallClock
from rocketrio_protocol.remoting.tasks import every

_LOG: Final = logging.getLogger("rocketrio_broker.store")

DELETE_FILES_BATCH_MAX: Final = 10
"""Files a pass, as deleteFilesBatchMax."""

DELETE_FILES_INTERVAL: Final = 0.1
"""Seconds between two deletions, as deleteCommitLogFilesInterval: deleting 1 GiB keeps the disk busy."""

_MS_PER_HOUR: Final = 3_600_000

CountUnread: TypeAlias = Callable[[Mapping[tuple[str, int], tuple[int, int]]], tuple[int, int]]
"""Parts of queues (from, to) to how many of their messages groups had not read, and how many groups."""


def count_deletable(
    newest_ms: Sequence[int],
    *,
    now_ms: int,
    hour: int,
    used_percent: float,
    config: StoreConfig,
    at_any_hour: bool = False,
) -> int:
    """How many of the oldest files go now; `newest_ms`: no message of the file is younger, for each but the last."""
    by_force = config.clean_file_forcibly_enable and (
        used_percent > config.disk_space_clean_forcibly_ratio
    )
    hours = {int(part) for part in config.delete_when.split(";")}
    due = at_any_hour or hour in hours or used_percent > config.disk_max_used_space_ratio
    oldest_kept_ms = now_ms - config.file_reserved_time * _MS_PER_HOUR
    count = 0
    for file_ms in newest_ms[:DELETE_FILES_BATCH_MAX]:
        if not by_force and not (due and file_ms <= oldest_kept_ms):
            break
        count += 1
    return count


class RetentionService:
    """Looks at the disk and the age of files on a period."""

    def __init__(
        self,
        config: StoreConfig,
        directory: DataDirectory,
        log: CommitLog,
        table: ConsumeQueueTable,
        index: KeyIndex,
        checkpoints: CheckpointService,
        clock_watch: ClockWatch,
        *,
        disk: Disk,
        wall_clock: WallClock,
    ) -> None:
        self.refusal = ""
        """Why messages are refused because of the disk; empty when they are not."""
        self.problem = ""
        """What a filling disk does to files before their time; empty when it does nothing."""
        self.count_unread: CountUnread = lambda _: (0, 0)
        self.used_ratio = 0.0
        self.capacity = (0, 0)
        self.config = config
        self._directory = directory
        self._log = log
        self._table = table
        self._index = index
        self._checkpoints = checkpoints
        self._clock_watch = clock_watch
        # By the end of a file whose messages are stored in the future: when it was first found full.
        self._found_full_ms: dict[int, int] = {}
        self._disk = disk
        self._wall_clock = wall_clock

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self.look_at_disk()
        task_status.started()
        async for _ in every(self.config.clean_resource_interval):
            try:
                await self.look_at_disk()
                await self.delete_old_files()
            except OSError as error:
                _LOG.error("event=retention_failed error=%s", error)

    async def look_at_disk(self) -> None:
        """See how full the disk is and open or close the store for messages."""
        path = self._directory.commit_log
        self.used_ratio = await self._disk.run(self._disk.used_ratio, path)
        self.capacity = await self._disk.run(self._disk.capacity, path)
        percent, limit = self.used_ratio * 100, self.config.disk_space_warning_level_ratio
        if percent > limit:
            if not self.refusal:
                _LOG.error("event=disk_nearly_full path=%s used=%.1f%%", path, percent)
            self.refusal = (
                f"the disk of {path} is {percent:.1f} % full, messages are refused above {limit:g} %:"
                " make room, or lower file_reserved_time"
            )
        elif self.refusal:
            _LOG.warning("event=disk_has_room_again path=%s used=%.1f%%", path, percent)
            self.refusal = ""
        self._look_at_force(percent)

    def _look_at_force(self, percent: float) -> None:
        """Say once, and show for as long as it lasts, what happens to files before their time."""
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
            _LOG.warning("event=disk_fills used=%.1f%%: %s", percent, self.problem)

    async def delete_old_files(self, *, at_any_hour: bool = False) -> int:
        """Delete what may go now; returns how many files of the log went."""
        settled_ms, now_ms = self._clock_watch.settled_ms(), self._wall_clock.now_ms()
        # An operator who asks for it has looked at the clock, unless it is known to be wrong.
        goes_by_clock = at_any_hour and not self._clock_watch.problem
        times = self._newest_times(settled_ms)
        counted = partial(
            count_deletable,
            times,
            now_ms=now_ms if goes_by_clock else settled_ms,
            hour=datetime.fromtimestamp(now_ms / 1000).hour,
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
            messages, groups = self.count_unread(gone)
            _LOG.warning(
                "event=deleted_before_time files=%d used=%.1f%% messages=%d unread=%d groups=%d",
                deleted, self.used_ratio * 100, sum(end - start for start, end in gone.values()),
                messages, groups,
            )  # fmt: skip
        return deleted

    async def delete_files(self, count: int) -> int:
        """Delete the oldest files, never the last; then what only pointed to them."""
        files = self._log.files
        deleted = 0
        # By address: another pass may delete while this one sleeps, and must not make it take younger files.
        last = files.files[:count]
        limit = last[-1].end_offset if last else 0
        while len(files.files) > 1 and files.files[0].end_offset <= min(limit, self._synced()):
            _LOG.info("event=log_file_deleted file=%s", files.files[0].path.name)
            try:
                files.remove_first()
            finally:
                self._forget_gone()  # Gone from the log even if its name is still there.
            deleted += 1
            if files.files[0].end_offset <= limit:
                await trio.sleep(DELETE_FILES_INTERVAL)
        return deleted

    def _synced(self) -> int:
        """What lies above is still needed: to be synced, to be indexed, or by a recovery from the checkpoint."""
        return min(self._checkpoints.synced_position, self._index.position.value)

    def _forget_gone(self) -> None:
        lowest = self._log.min_offset
        self._table.raise_min(lowest)
        queue_files = self._table.delete_before_min()
        index_files = self._index.delete_before(lowest)
        if queue_files or index_files:
            _LOG.info("event=queue_files_deleted queue=%d index=%d", queue_files, index_files)

    def _newest_times(self, now_ms: int) -> list[int]:
        """An upper bound of the store times in each file but the last: when the next one began.

        Where that lies in the future, because the clock was ahead, the file is as old as this broker knows it.
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
