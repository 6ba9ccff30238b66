"""Reads and writes one JSON file under `config/`, and its `.bak`.

    topics.json.tmp  written first; or .new, in the background
    topics.json.bak  the newest content known to be on the disk itself
    topics.json      the content of the last `write`, at least in the page cache

Invariant: at any moment, also after kill -9 or a power cut, one of `topics.json` and `.bak` can be read.
Invariant: content that a power cut can still remove, or that cannot be read, is never moved to `.bak`.
Invariant: a file that is there and cannot be read, also an empty one, is not taken for one that is missing.
Invariant: a write that fails leaves the content as it was, and raises: the caller must not go on as if it were done.
Answers to: ConfigManager, MixAll.string2File.
Unlike Java: the file is renamed into place; Java rewrites the backup, and deletes the file before it renames.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from rocketrio_broker.store.disk import Disk
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.json_tables import loads_table
from rocketrio_protocol.errors import Error, RemoteProtocolError
from rocketrio_protocol.frame import Body

logger = logging.getLogger("rocketrio_broker.config_file")

T = TypeVar("T")

SKIPPED_SHOWN: Final = 5
"""The largest number of unreadable entries that a log line names; their total is logged too."""


class ConfigFileError(Error):
    """A file of `config/` cannot be written, so the change that needed it was not made."""

    retryable = True
    remedy = "Make room on the broker's disk, or check whether it fails, and send the request again"


def read_table(data: Body, kind: type[T], *, what: str, lenient: bool = True) -> T:
    """Read a table of a file or a peer, and log entries that had to be omitted. Raises RemoteProtocolError."""
    table, skipped = loads_table(data, kind, what=what, lenient=lenient)
    if skipped:
        shown = skipped[:SKIPPED_SHOWN]
        logger.warning(
            "table entries skipped table=%s count=%d examples=%s", what, len(skipped), shown
        )
    return table


class UnreadableTablesError(Error):
    """Files of `config/` exist and cannot be read, and no other broker of this name has what they held."""

    remedy = (
        "Put a copy of them in place, or start the slaves of this broker first: it then takes their tables. To go on "
        "without what they held, start once with --set unreadable_tables=drop"
    )


class TableFullError(ConfigFileError):
    """A table has as many entries as its setting allows, so a new entry was refused."""

    retryable = False
    remedy = "Delete what is not used any more, or raise the setting that is named"


class ConfigFile:
    """Reads and writes one file of `config/`."""

    def __init__(self, path: Path, *, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self._backup = path.with_name(path.name + ".bak")
        self._temporary = path.with_name(path.name + ".tmp")
        self._prepared = path.with_name(path.name + ".new")
        self._writes = 0
        self._synced_write = -1
        """The number of the last write that has reached the disk; unknown after a start."""
        self.sync_failed = False
        """True if the disk may lack the content even if a later sync succeeds: see `renew`."""
        self._problem = ""
        self._is_damaged = False
        """True while the content is the backup's, because the file cannot be read; the next write ends that."""
        self.unreadable = ""
        """Why neither the file nor the backup could be read, though one exists, until it is written again."""

    def __repr__(self) -> str:
        return f"<ConfigFile {self.path}>"

    @property
    def size(self) -> int:
        """The size in bytes of the content, or of the backup if that is larger."""
        sizes = [0]
        for path in (self.path, self._backup):
            if self.disk.exists(path):
                file = self.disk.open(path)
                sizes.append(file.size)
                file.close()
        return max(sizes)

    def content(self) -> bytes | None:
        """Return the bytes of the content, or of the backup if the file is missing; None if there is neither."""
        data = self._read(self.path)
        return self._read(self._backup) if data is None else data

    def load(self, kind: type[T]) -> T | None:
        """Return the content, or the backup's if the file is missing, empty or torn; None if there is neither."""
        return self.load_with(
            lambda data, name: fastjson.loads(data, kind, what=name, lenient=False)
        )

    def load_table(self, kind: type[T]) -> T | None:
        """Load a table: an entry that cannot be read is skipped with a warning, the others are loaded."""
        return self.load_with(lambda data, name: read_table(data, kind, what=name, lenient=False))

    def load_with(self, reader: Callable[[bytes, str], T]) -> T | None:
        """Return what `reader` makes of the content, or of the backup if it raises RemoteProtocolError for the content.

        The reader gets the bytes and the file's name. If there is a file, and it returns None, `unreadable` says why.
        """
        self.unreadable, self._is_damaged = "", False
        for path in (self.path, self._backup):
            data = self._read(path)
            if data is None:
                continue
            try:
                content = reader(data, path.name)
            except RemoteProtocolError as error:
                logger.warning("config file unreadable file=%s error=%s", path, error)
                # Not taken for a file that is missing: a broker that began without its topics would write them away.
                self.unreadable = self.unreadable or f"{error} (in {path.parent})"
            else:
                self._is_damaged = bool(self.unreadable)
                self.unreadable = ""
                return content
        return None

    def write(self, value: Any) -> None:
        """Replace the content. When this returns, a kill -9 cannot undo it."""
        self.write_bytes(fastjson.dumps_pretty(value))

    def write_bytes(self, data: bytes, *, safely: bool = False) -> None:
        """Replace the content with these bytes. Raises `ConfigFileError`, after which the old content remains.

        With `safely` a power cut leaves either the old content or these bytes; that blocks for longer. Without content
        that is known to be on the disk, as for a first write, it is always done so.
        """
        # With neither, a power cut could leave the new name without content, and no backup to read in its place.
        has_kept = self._synced_write == self._writes or self.disk.exists(self._backup)
        safely = safely or not has_kept or bool(self.unreadable)
        try:
            self._write_beside(self._temporary, data, safely=safely)
            self._put_in_place(self._temporary)
        except OSError as error:
            raise self._not_written(self._temporary, error) from error
        if safely:
            with suppress(ConfigFileError):  # It is written; `sync_failed` keeps the rest.
                self.sync()

    def prepare(self, data: bytes) -> None:
        """Write and sync bytes for `put_prepared`. Raises `ConfigFileError`. May run in a worker thread."""
        try:
            self._write_beside(self._prepared, data, safely=True)
        except OSError as error:
            raise self._not_written(self._prepared, error) from error

    def put_prepared(self) -> None:
        """Replace the content with the prepared bytes. Raises `ConfigFileError`; then the old content remains."""
        try:
            self._put_in_place(self._prepared)
        except OSError as error:
            raise self._not_written(self._prepared, error) from error

    def drop_prepared(self) -> None:
        """Remove the prepared bytes, which are not up to date any more."""
        with suppress(OSError):
            self.disk.unlink(self._prepared)

    def _write_beside(self, path: Path, data: bytes, *, safely: bool) -> None:
        self.disk.make_directory(path.parent)
        file = self.disk.open(path, create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
            if safely:
                file.fdatasync()
        finally:
            file.close()

    def _put_in_place(self, path: Path) -> None:
        disk = self.disk
        is_synced = self._synced_write == self._writes
        # Content that is not synced does not become the backup: the power cut that takes it would take both.
        if disk.exists(self.path) and (is_synced or not disk.exists(self._backup)):
            disk.rename(self.path, self._backup)
        disk.rename(path, self.path)
        self._writes += 1
        self.sync_failed = self._is_damaged = False
        self.unreadable = ""
        self.note_success()

    def _not_written(self, path: Path, error: OSError) -> ConfigFileError:
        with suppress(OSError):
            self.disk.unlink(path)  # On a full disk every block counts.
        return self.failed("written", error)

    def sync(self) -> None:
        """Block until the content is safe from a power cut too. Raises `ConfigFileError`."""
        try:
            self._sync()
        except OSError as error:
            self.sync_failed = True
            raise self.failed("synced", error) from error

    def renew(self) -> None:
        """Write the content again if a sync of it has failed: the next sync could succeed without the dropped pages."""
        if self.sync_failed:
            self.write_bytes(self._read(self.path) or b"")

    def _sync(self) -> None:
        if self._synced_write == self._writes or not self.disk.exists(self.path):
            return
        if self._is_damaged:
            return  # The backup is on the disk. A file that is synced becomes the backup with the next write.
        # A `write` may happen while this runs in a worker thread: this sync then covers only the content before it.
        writes = self._writes
        file = self.disk.open(self.path)
        try:
            file.fdatasync()
        finally:
            file.close()
        self.disk.sync_directory(self.path.parent)
        # Of the content at the beginning: a later write is not covered by this sync.
        self._synced_write = writes

    def failed(self, what: str, error: OSError) -> ConfigFileError:
        """Return the error to raise; of several equal errors in a row only the first is logged as an error."""
        # A stranger may be answered with it; the log has the whole path.
        why = OSError(error.errno, error.strerror)
        fault = ConfigFileError(f"{self.path.name} cannot be {what}: {why}")
        level = logging.DEBUG if str(error) == self._problem else logging.ERROR
        logger.log(level, "config file not written file=%s error=%s", self.path, error)
        self._problem = str(error)
        return fault

    def note_success(self) -> None:
        """Log that writing works again after a failure."""
        if self._problem:
            logger.warning("config file can be written again file=%s", self.path)
            self._problem = ""

    def _read(self, path: Path) -> bytes | None:
        if not self.disk.exists(path):
            return None
        file = self.disk.open(path)
        try:
            return file.pread(file.size, 0)
        finally:
            file.close()
