"""Finds messages by key: index files in order of time, filled from the log in the background.

Invariant: below `position` every keyed record has its entries; the rest follows, also after a restart.
Invariant: only the newest file grows; older ones are full and synced.
Answers to: IndexService, CommitLogDispatcherBuildIndex.
Unlike Java: the index follows the log at its own pace, so neither a send nor a start waits for it.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import trio

from rocketrio_broker.store.checkpoint import Checkpoint
from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.dispatch import TRANSACTION_MASK
from rocketrio_broker.store.errors import LogDamagedError, StoreDamagedError
from rocketrio_broker.store.index_file import IndexFile
from rocketrio_broker.store.key_hashes import key_hashes
from rocketrio_broker.store.log_position import LogPosition
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_protocol.properties import index_key_hash
from rocketrio_protocol.remoting.ports import WallClock

_LOG: Final = logging.getLogger("rocketrio_broker.store")

INDEX_STEP: Final = 128 << 10
"""Bytes of log indexed before other tasks get a turn: about 2 ms of small messages."""

INDEX_PAUSE: Final = 0.02
"""Seconds between rounds, so that messages are indexed in batches and not one by one."""

CATCH_UP_LIMIT: Final = 4 << 20
"""Bytes of log that a query indexes first, so that it finds what was sent just before."""

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

    def __repr__(self) -> str:
        return f"<KeyIndex of {len(self._files)} files up to {self.position.value}>"

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the last keyed message; 0 without any."""
        return self._files[-1].end_timestamp_ms if self._files else 0

    @property
    def end_physical_offset(self) -> int:
        """Address of the last keyed message; 0 without any."""
        return self._files[-1].end_physical_offset if self._files else 0

    # --- opening -----------------------------------------------------------------------------

    def recover(self, checkpoint: Checkpoint, *, log_end: int, clean: bool) -> None:
        """Open the files and decide from where the log must be indexed; blocks."""
        if not self._config.message_index_enable:
            self.position.reset(log_end)
            return
        positions = checkpoint.positions
        self._load(None if clean or positions is None else positions.index_position, clean=clean)
        if positions is not None:
            start = positions.index_position
        elif clean and self._files:
            start = log_end  # Apache indexes with its dispatch, and stops when that is done.
        else:
            start = self._last_written()
        if not self._files:
            start = 0
        start = min(start, log_end)
        if not clean or self.end_physical_offset >= start:
            self._cut(start, is_synced=positions is not None)
        self.position.reset(max(start, self._log.min_offset))
        self.position.store_timestamp_ms = self.end_timestamp_ms

    def _load(self, synced_position: int | None, *, clean: bool) -> None:
        """Open the files; after a crash of ours, those that were begun after the last sync are worth nothing."""
        names = [
            name
            for name in self._disk.list_directory(self._directory)
            if len(name) == _NAME_DIGITS and name.isdigit()
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
        """The last address that a crashed Apache broker indexed; that message may lack keys and is indexed again."""
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
            await self._log.appended.wait_past(seen)
            await trio.sleep(INDEX_PAUSE)

    def build_some(self, max_bytes: int = INDEX_STEP) -> bool:
        """Index the next records; whether there were any."""
        if not self._config.message_index_enable:
            self.position.advance(self._log.max_offset)
            return False
        start = max(self.position.value, self._log.min_offset)
        walk = LogWalk(self._log, start)
        entries: list[tuple[int, int, int]] = []
        store_ms = self.position.store_timestamp_ms
        try:
            for address, _, topic, _, _, sys_flag, store_ms, properties in walk.records(max_bytes):
                if sys_flag & TRANSACTION_MASK != _ROLLED_BACK:
                    for key_hash in key_hashes(topic, properties):
                        entries.append((key_hash, address, store_ms))
        except LogDamagedError:
            if walk.position == start:
                raise
            # First what lies before the damage; the next call meets it again.
            return self.build_some(walk.position - start)
        if walk.position == start:
            return False
        self._put(entries)
        self.position.store_timestamp_ms = store_ms
        if self._files:
            self._files[-1].write_header()
        self.position.advance(walk.position)
        return True

    def build_all(self) -> None:
        while self.build_some():
            pass

    def _put(self, entries: list[tuple[int, int, int]]) -> None:
        done = 0
        while done < len(entries):
            if not self._files or not self._files[-1].room:
                self._roll()
            file = self._files[-1]
            part = entries[done : done + file.room]
            file.put_many(part)
            self._unsynced.add(file)
            done += len(part)

    def _roll(self) -> None:
        if self._files:
            self._files[-1].write_header()
        now_ms = self._wall_clock.now_ms()
        name = _file_name(now_ms)
        # Two files of one millisecond, or a clock set back: names must rise.
        while self._files and name <= self._files[-1].path.name:
            now_ms += 1
            name = _file_name(now_ms)
        self._disk.make_directory(self._directory)
        self._files.append(self._open(name, create=True))

    # --- asking ------------------------------------------------------------------------------

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Addresses of messages that may have this key, newest first; other keys can have the same hash."""
        if self._log.max_offset - self.position.value <= CATCH_UP_LIMIT:
            with suppress(LogDamagedError):  # What lies before it can be found; `run` reports it.
                self.build_all()
        key_hash = index_key_hash(topic, key)
        for file in reversed(self._files):
            if file.begin_timestamp_ms <= end_ms:
                yield from file.find(key_hash, begin_ms, end_ms)
            if file.begin_timestamp_ms < begin_ms:
                return

    # --- keeping -----------------------------------------------------------------------------

    def truncate(self, end: int) -> None:
        """Forget entries for addresses from `end` on."""
        if self.end_physical_offset >= end:
            self._cut(end, is_synced=True)
        self.position.reset(min(self.position.value, end))

    def _cut(self, end: int, *, is_synced: bool) -> None:
        while self._files and self._files[-1].begin_physical_offset >= end:
            self._remove(self._files.pop())
        if self._files:
            newest = self._files[-1]
            (newest.cut if is_synced else newest.rebuild)(end)
            self._unsynced.add(self._files[-1])

    def delete_before(self, physical_offset: int) -> int:
        """Delete files of which every message is gone from the log; the newest stays. Returns how many went."""
        deleted = 0
        while len(self._files) > 1 and self._files[0].end_physical_offset < physical_offset:
            self._remove(self._files.pop(0))
            deleted += 1
        return deleted

    def take_unsynced(self) -> list[IndexFile]:
        """The files that a sync must cover."""
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


def _file_name(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms / 1000)  # local time, as Apache names them
    return f"{moment:%Y%m%d%H%M%S}{now_ms % 1000:03d}"
