"""One JSON file under `config/`, and its `.bak`.

    topics.json.tmp  written first
    topics.json.bak  the newest content known to be on the disk itself
    topics.json      the content of the last `write`, at least in the page cache

Invariant: at any moment, also after kill -9, one of `topics.json` and `.bak` can be read.
Invariant: what a power cut can still take is never moved to `.bak`.
Answers to: ConfigManager, MixAll.string2File.
Unlike Java: the file is renamed into place, where Java writes the backup anew and deletes before it renames.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from rocketrio_broker.store.disk import Disk
from rocketrio_protocol import fastjson
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.remoting.tasks import every

logger = logging.getLogger("rocketrio_broker.config_file")

T = TypeVar("T")

SYNC_INTERVAL: Final = 5.0
"""Seconds for which a power cut may take a change back, as for consumerOffset.json."""


class ConfigFile:
    """Reads and writes one file of `config/`."""

    def __init__(self, path: Path, *, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._backup = path.with_name(path.name + ".bak")
        self._temporary = path.with_name(path.name + ".tmp")
        self._writes = 0
        self._synced_write = -1
        """The write that has reached the disk; unknown after a start."""

    def __repr__(self) -> str:
        return f"<ConfigFile {self.path}>"

    def load(self, kind: type[T]) -> T | None:
        """The content, or the backup's where the file is missing, empty or torn; None when there is neither."""
        for path in (self.path, self._backup):
            data = self._read(path)
            if not data:
                continue
            try:
                return fastjson.loads(data, kind, what=path.name)
            except RemoteProtocolError as error:
                logger.warning("config file unreadable file=%s error=%s", path, error)
        return None

    def write(self, value: Any) -> None:
        """Replace the content. Returns once a kill -9 cannot take it any more."""
        self.write_bytes(fastjson.dumps_pretty(value))

    def write_bytes(self, data: bytes) -> None:
        """Replace the content with bytes as they are."""
        disk = self._disk
        disk.make_directory(self.path.parent)
        file = disk.open(self._temporary, create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
        finally:
            file.close()
        is_synced = self._synced_write == self._writes
        if disk.exists(self.path) and (is_synced or not disk.exists(self._backup)):
            disk.rename(self.path, self._backup)
        disk.rename(self._temporary, self.path)
        self._writes += 1

    def sync(self) -> None:
        """Block until the content is safe from a power cut too."""
        if self._synced_write == self._writes or not self._disk.exists(self.path):
            return
        # A `write` may come while this runs in a worker thread: only what was there before it is synced then.
        writes = self._writes
        file = self._disk.open(self.path)
        try:
            file.fdatasync()
        finally:
            file.close()
        self._disk.sync_directory(self.path.parent)
        self._synced_write = writes

    def _read(self, path: Path) -> bytes:
        if not self._disk.exists(path):
            return b""
        file = self._disk.open(path)
        try:
            return file.pread(file.size, 0)
        finally:
            file.close()


class ConfigSyncService:
    """Brings changed files to the disk itself, on a period and at the end."""

    def __init__(
        self, files: Sequence[ConfigFile], *, disk: Disk, interval: float = SYNC_INTERVAL
    ) -> None:
        self._files = files
        self._disk = disk
        self._interval = interval

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sync until cancelled."""
        task_status.started()
        try:
            async for _ in every(self._interval, first_after=self._interval):
                for file in self._files:
                    await self._disk.run(file.sync)
        finally:
            for file in self._files:
                file.sync()
