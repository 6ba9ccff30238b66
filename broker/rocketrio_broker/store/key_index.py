"""Finds messages by key: index files in order of time, filled from the log in the background.

Invariant: every keyed record below `position` has its entries; later ones get theirs soon, also after a restart.
Invariant: only the newest file grows; older ones are full and synced.
Invariant: a full disk stops the index, not the store; `position` stays, and moves again once there is room.
Answers to: IndexService, CommitLogDispatcherBuildIndex.
Unlike Java: the index follows the log at its own pace, so neither a send nor a start waits for it.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import trio

from rocketrio_broker.store.checkpoint import Checkpoint
from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.dispatch import TRANSACTION_MASK
from rocketrio_broker.store.errors import LogDamagedError, StoreDamagedError
from rocketrio_broker.store.index_file import IndexFile
from rocketrio_broker.store.key_hashes import key_hash_columns, key_hashes
from rocketrio_broker.store.log_walk import LogRecord, LogWalk
from rocketrio_broker.store.mapped_file import is_number
from rocketrio_broker.store.record_columns import RecordColumns, stretches
from rocketrio_broker.waiting.watermark import LogPosition
from rocketrio_protocol.record.java_hash import index_key_hash
from rocketrio_protocol.record.vectors import Int64s
from rocketrio_protocol.remoting.ports import WallClock
from rocketrio_protocol.times import nearest_time

_LOG: Final = logging.getLogger("rocketrio_broker.store")

INDEX_STEP: Final = 256 << 10
"""Bytes of log indexed before other tasks get a turn: 1 ms of small messages, 10 ms if each is unusual."""

RETRY_INTERVAL: Final = 10.0
"""Seconds between checks whether a full disk has room for the index again; Apache's cleaning has the same period."""

INDEX_PAUSE: Final = 0.05
"""Seconds between rounds, so that messages are indexed in batches and not one by one; queries do not wait for it."""

CATCH_UP_LIMIT: Final = 4 << 20
"""Bytes of log that a query may index first, so that it finds what was sent just before."""

_ROLLED_BACK: Final = 0xC
_NAME_DIGITS: Final = 17  # yyyyMMddHHmmssSSS


class KeyIndex:
    """The index files of a store."""

    def __init__(
        self,
        directory: Path,
        config: StoreConfig,
        log: CommitLog,
        *,
        disk: Disk,
        wall_clock: WallClock,
    ) -> None:
        self.position = LogPosition()
        self._directory = directory
        self._config = config
        self._log = log
        self._disk = disk
        self._wall_clock = wall_clock
        self._files: list[IndexFile] = []
        self._unsynced: set[IndexFile] = set()
        self.is_stopped = False
        """Whether a full disk stopped the index."""

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.file_bytes for file in self._files)

    def __repr__(self) -> str:
        return f"<KeyIndex of {len(self._files)} files up to {self.position.value}>"

    @property
    def end_timestamp_ms(self) -> int:
        """The store time of the last keyed message; 0 if there is none."""
        return self._files[-1].end_timestamp_ms if self._files else 0

    @property
    def end_physical_offset(self) -> int:
        """The address of the last keyed message; 0 if there is none."""
        return self._files[-1].end_physical_offset if self._files else 0

    # --- opening -----------------------------------------------------------------------------

    def recover(self, checkpoint: Checkpoint, *, log_end: int, clean: bool) -> None:
        """Open the files and determine the address from which the log must be indexed; blocks."""
        if not self._config.message_index_enable:
            self.position.reset(log_end)
            return
        positions = checkpoint.positions
        self._load(None if clean or positions is None else positions.index_position, clean=clean)
        if positions is not None:
            start = positions.index_position
        elif clean and self._files:
            start = log_end  # Apache indexes as it dispatches, and stops after that.
        else:
            start = self._last_written()
        if not self._files:
            start = 0
        start = min(start, log_end)
        if not clean or self.end_physical_offset >= start:
            start = self._cut(start, is_synced=positions is not None)
        self.position.reset(max(start, self._log.min_offset))
        self.position.store_time_ms = self.end_timestamp_ms

    def _load(self, synced_position: int | None, *, clean: bool) -> None:
        """Open the files; after a crash of a rocketrio broker, delete those that were begun after the last sync."""
        names = [
            name
            for name in self._disk.list_directory(self._directory)
            if len(name) == _NAME_DIGITS and is_number(name)
        ]
        for number, name in enumerate(names):
            try:
                file = self._open(name, create=False)
            except StoreDamagedError:
                if clean or (synced_position is None and name != names[-1]):
                    raise
                self._unlink(names[number:])
                return
            self._files.append(file)
            if synced_position is not None and not (
                file.next_number > 1 and file.begin_physical_offset < synced_position
            ):
                self._files.pop().close()
                self._unlink(names[number:])
                return

    def _unlink(self, names: list[str]) -> None:
        for name in names:
            self._disk.unlink(self._directory / name)

    def _last_written(self) -> int:
        """Return the last address that a crashed Apache broker indexed; that message may lack keys: index it again."""
        while self._files:
            last = -1
            for _, physical_offset, _, _ in self._files[-1].written_entries():
                last = physical_offset
            if last >= 0:
                return last
            self._remove(self._files.pop())
        return 0

    def _open(self, name: str, *, create: bool) -> IndexFile:
        config = self._config
        return IndexFile(
            self._disk,
            self._directory / name,
            config.max_hash_slot_num,
            config.max_index_num,
            create=create,
        )

    # --- building ----------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        if not self._config.message_index_enable:
            return
        while True:
            seen = self._log.max_offset
            while self.build_some():
                await trio.lowlevel.checkpoint()
            if self.is_stopped:
                await trio.sleep(RETRY_INTERVAL)
                continue
            await self._log.appended.wait_past(seen)
            await trio.sleep(INDEX_PAUSE)

    def build_some(self, max_bytes: int = INDEX_STEP) -> bool:
        """Index the next records; return whether there were any, and room for them."""
        if not self._config.message_index_enable:
            self.position.advance(self._log.max_offset)
            return False
        start = max(self.position.value, self._log.min_offset)
        walk = LogWalk(self._log, start)
        parts: list[_Entries] = []
        store_ms = self.position.store_time_ms
        try:
            for stretch in stretches(walk, max_bytes):
                if isinstance(stretch, RecordColumns):
                    parts.append(_column_entries(stretch))
                    store_ms = int(stretch.store_ms[-1])
                else:
                    entries: list[tuple[int, int, int]] = []
                    parts.append(entries)
                    for record in stretch:
                        store_ms = _add_entries(entries, record)
        except LogDamagedError:
            # Index what lies before the damage first; the next call meets the damage again.
            if walk.position == start:
                raise
        if walk.position == start or not self._put(parts):
            return False
        self.position.store_time_ms = store_ms
        # After the entries, and only if all had room: records below are never read again.
        self.position.advance(walk.position)
        return True

    @property
    def problem(self) -> str:
        """The problem for an operator; empty while every key is found."""
        if not self.is_stopped:
            return ""
        return (
            "the key index has no room on the disk: look-ups by key miss new messages until it has"
        )

    def build_all(self) -> None:
        while self.build_some():
            pass

    def _put(self, parts: list["_Entries"]) -> bool:
        """Put all of these entries; if the disk has no room put none, and return False."""
        try:
            files = self._with_room(sum(map(len, parts)))
        except OSError as error:
            if not self.is_stopped:
                _LOG.error("index stopped at=%d error=%s", self.position.value, error)
            self.is_stopped = True
            return False
        if self.is_stopped:
            _LOG.warning("index resumed at=%d", self.position.value)
            self.is_stopped = False
        filling = iter(files)
        file = next(filling, None)
        for part in parts:
            done = 0
            while done < len(part):
                assert file is not None
                if not file.room:
                    file = next(filling)
                some = part[done : done + file.room]
                if isinstance(some, list):
                    file.put_many(some)
                else:
                    file.put_columns(some)
                done += len(some)
        # After all entries: a header that counts entries which are not there would make a search read zeros.
        for written in files:
            written.write_header()
        self._unsynced.update(files)
        return True

    def _with_room(self, count: int) -> list[IndexFile]:
        """Return the files for `count` more entries, with disk blocks; on `OSError` nothing has changed."""
        if not count:
            return []
        files = self._files[-1:]
        made: list[IndexFile] = []
        try:
            room = 0
            for file in files:
                room = file.room
                file.reserve(min(count, room))
            while room < count:
                file = self._made([*files, *made])
                made.append(file)
                file.reserve(min(count - room, file.room))
                room += file.room
        except OSError:
            for file in made:
                self._remove(file)
            raise
        self._files += made
        return [*files, *made]

    def _made(self, files: list[IndexFile]) -> IndexFile:
        """Make a new file after these."""
        name = _file_name(self._wall_clock.now_ms())
        if files and name <= (last := files[-1].path.name):
            # Two in one millisecond, or a clock that was set back: names rise nevertheless.
            name = f"{int(last) + 1:0{_NAME_DIGITS}d}"
        self._disk.make_directory(self._directory)
        try:
            return self._open(name, create=True)
        except OSError:
            self._unlink([name])
            raise

    # --- asking ------------------------------------------------------------------------------

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield addresses of messages that may have this key, newest first; other keys can have the same hash."""
        if not self.is_stopped and self._log.max_offset - self.position.value <= CATCH_UP_LIMIT:
            with suppress(LogDamagedError):  # What lies before it is found; `run` reports it.
                self.build_all()
        key_hash = index_key_hash(topic, key)
        for file in reversed(self._files):
            if file.begin_timestamp_ms <= end_ms:
                yield from file.find(key_hash, begin_ms, end_ms)
            if file.begin_timestamp_ms < begin_ms:
                return

    # --- keeping -----------------------------------------------------------------------------

    def truncate(self, end: int) -> None:
        """Remove the entries for addresses from `end` on."""
        if self.end_physical_offset >= end:
            end = self._cut(end, is_synced=True)
        self.position.reset(min(self.position.value, end))

    def _cut(self, end: int, *, is_synced: bool) -> int:
        """Remove the entries from `end` on; return the address up to which the log is then indexed."""
        while self._files and self._files[-1].begin_physical_offset >= end:
            self._remove(self._files.pop())
        if self._files:
            newest = self._files[-1]
            try:
                (newest.cut if is_synced else newest.rebuild)(end)
            except OSError as error:
                # The disk is too full to repair the file: its messages are indexed again once there is room.
                _LOG.error("index file dropped file=%s error=%s", newest.path.name, error)
                self._remove(self._files.pop())
                return newest.begin_physical_offset
            self._unsynced.add(newest)
        return end

    def delete_before(self, physical_offset: int) -> int:
        """Delete files whose messages are all gone from the log, except the newest file. Return how many."""
        deleted = 0
        while len(self._files) > 1 and self._files[0].end_physical_offset < physical_offset:
            self._remove(self._files.pop(0))
            deleted += 1
        return deleted

    def take_unsynced(self) -> list[IndexFile]:
        """Return the files that a sync must cover; only later writes count as unsynced from now on."""
        unsynced, self._unsynced = self._unsynced, set()
        return list(unsynced)

    def sync(self, files: list[IndexFile]) -> None:
        """Block until these files are on the disk."""
        for file in files:
            file.sync()
        if files:
            self._disk.sync_directory(self._directory)

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files.clear()

    def _remove(self, file: IndexFile) -> None:
        self._unsynced.discard(file)
        file.close()
        self._disk.unlink(file.path)


_Entries: TypeAlias = list[tuple[int, int, int]] | Int64s
"""(key hash, address, store time in ms), in a list or as the rows of an array."""


def _add_entries(entries: list[tuple[int, int, int]], record: LogRecord) -> int:
    """Add the index entries of a record; return its store time."""
    address, _, topic, _, _, sys_flag, store_ms, properties = record
    if sys_flag & TRANSACTION_MASK != _ROLLED_BACK:
        entries += [(key_hash, address, store_ms) for key_hash in key_hashes(topic, properties)]
    return store_ms


def _column_entries(columns: RecordColumns) -> Int64s:
    hashes, rows = key_hash_columns(columns.topics, columns.properties)
    is_kept = columns.sys_flags[rows] & TRANSACTION_MASK != _ROLLED_BACK
    if not is_kept.all():
        hashes, rows = hashes[is_kept], rows[is_kept]
    return np.column_stack((hashes, columns.addresses[rows], columns.store_ms[rows]))


def _file_name(now_ms: int) -> str:
    moment = nearest_time(now_ms).astimezone()  # local time, as in Apache's file names
    return f"{moment:%Y%m%d%H%M%S}{now_ms % 1000:03d}"
