"""Settings by name, of topics or groups, under one version: in memory, in their file, and in the journal beside it.

A change is appended to the journal, so that its cost does not depend on the size of the table. The file is written
whole if it has no valid journal, the journal is long, or some seconds have passed (`fold`): an Apache broker that takes
over the directory of a killed one reads the file alone.

    topics.json       W1        W1                      W2 (on the disk before it has its name)    W2
    its journal       -         what W1 lacks           the same, not valid any more               -

Invariant: a change is in file or journal before it is in the table. A change that cannot be written is not made, and
raises ConfigFileError.
Invariant: a journal is removed, or begun again, once the file that has its changes is on the disk itself.
Invariant: a file that cannot be read stays as it is until the table changes, also if it has a journal.
Invariant: after `close` the file has everything, as Apache's broker expects it.
Answers to: ConfigManager, the base of TopicConfigManager and SubscriptionGroupManager.
"""

import logging
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import attrs
import msgspec

from rocketrio_broker.tables.config_file import (
    ConfigFile,
    ConfigFileError,
    TableFullError,
    read_table,
)
from rocketrio_broker.tables.journal import TableJournal
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.topics import DataVersion
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import FRAME_SIZE_LIMIT
from rocketrio_protocol.remoting.ports import WallClock

logger = logging.getLogger("rocketrio_broker.config_file")

Settings = TypeVar("Settings")

TABLE_SIZE_LIMIT: Final = FRAME_SIZE_LIMIT - (1 << 20)
"""The most bytes of a file that requests fill: a slave copies it, without blanks, in one answer."""
JOURNAL_LIMIT: Final = 256 << 10
"""Bytes of the journal after which the file is written whole: some 1,200 topics. 10,000 of them take 20 ms of CPU."""
LINE_GROWTH: Final = 2
"""The factor by which a change may be larger in the file, which has blanks, than in the journal."""
RECENT_CHANGES: Final = 1_000
"""Changes whose names are remembered, for the followers of the table."""

_encode: Final = msgspec.json.Encoder().encode


class _Change(msgspec.Struct, array_like=True):
    """A line of the journal: a table of the new entries under its version, and the names of removed ones."""

    content: msgspec.Raw
    removed: list[str]


@attrs.frozen
class _Stored:
    content: Any
    checksum: int
    size: int
    is_backup: bool


class VersionedTable(Generic[Settings]):
    """One table; `entries` is always the same dict."""

    def __init__(
        self,
        kind: type[msgspec.Struct],
        entries: dict[str, Settings],
        *,
        file: ConfigFile,
        possible: Callable[[dict[str, Settings]], dict[str, Settings]],
        wall_clock: WallClock,
    ) -> None:
        """Create a table; `kind` is the class of the file's content: a version and the settings by name.

        `entries` are those that the table has without a file. `possible` returns the valid ones among the entries of a
        file or of another broker.
        """
        self.entries = entries
        self.data_version = DataVersion(timestamp=wall_clock.now_ms())
        self.changes = Watermark()
        """Counts the changes since the start."""
        self.sync_wanted = Watermark()
        """Counts the requests for a sync in the background: see `sync_soon`."""
        self._kind = kind
        self._member = kind.__struct_fields__[1]
        self._names = kind.__struct_encode_fields__
        self._file = file
        self._journal = TableJournal(
            file.path.with_name(f"{file.path.name}.journal"), disk=file.disk
        )
        self._possible = possible
        self._wall_clock = wall_clock
        self._text = fastjson.KeptText(is_pretty=True)
        self._base: int | None = None
        """The checksum of the file; None if it is damaged or missing."""
        self._has_old_journal = False
        """Whether an earlier run left a journal, which is not appended to."""
        self._file_size = 0
        self._recent: deque[frozenset[str] | None] = deque(maxlen=RECENT_CHANGES)
        """The names in the last changes; None for a change of the whole table."""

    def __repr__(self) -> str:
        return f"<VersionedTable of {len(self.entries)} in {self._file.path}>"

    @property
    def unreadable(self) -> str:
        """Why the file could not be read, until a change, or another broker's table, is written."""
        return self._file.unreadable

    def load(self) -> None:
        """Load the entries of file and journal; other entries of the table stay."""
        stored = self._file.load_with(self._read)
        if stored is None:
            return
        table: dict[str, Settings] = getattr(stored.content, self._member)
        version: DataVersion = stored.content.data_version
        lines = self._journal.load(stored.checksum)
        for line in lines:
            try:
                change = msgspec.json.decode(line, type=_Change)
                content: Any = read_table(
                    bytes(change.content), self._kind, what="journal", lenient=False
                )
            except (msgspec.DecodeError, RemoteProtocolError) as error:
                logger.warning("journal line skipped file=%s error=%s", self._file.path, error)
                continue
            version = content.data_version
            table.update(getattr(content, self._member))
            for name in change.removed:
                table.pop(name, None)
        self.entries.update(self._possible(table))
        self.data_version = version
        self._file_size = stored.size
        self._has_old_journal = self._journal.exists
        if not stored.is_backup:
            self._base = stored.checksum
        # Done here, because otherwise the first request that writes the file would have to encode all entries.
        self._text.of(self.entries)

    def _read(self, data: bytes, name: str) -> _Stored:
        content = read_table(data, self._kind, what=name, lenient=False)
        return _Stored(content, zlib.crc32(data), len(data), name != self._file.path.name)

    # --------------------------------------------------------------------------------------- changes

    def check_room(self, names: Iterable[str], *, limit: int, setting: str) -> None:
        """Raise TableFullError if entries of these names would make the table larger than allowed."""
        count = len(self.entries) + sum(name not in self.entries for name in names)
        if count > max(limit, len(self.entries)):
            raise TableFullError(
                f"There are {len(self.entries)} entries already; {setting} is {limit}"
            )

    def put(self, entries: Mapping[str, Settings]) -> None:
        """Add or replace the settings of these names. Raises ConfigFileError, also for too large a file."""
        self._change(dict(entries), [])

    def remove(self, name: str) -> bool:
        """Remove an entry; return False if there was none. Raises ConfigFileError."""
        if name not in self.entries:
            return False
        self._change({}, [name])
        return True

    def touch(self) -> None:
        """Give the same table a new version. Raises ConfigFileError."""
        self._replace(self.data_version.next_version(self._wall_clock.now_ms()), self.entries)

    def replace(self, version: DataVersion, entries: dict[str, Settings]) -> bool:
        """Replace the table by another broker's with its version; return False if it is the one already here.

        The version alone does not show this: two brokers that change theirs in one millisecond give both the same
        version.
        """
        table = self._possible(entries)
        if version == self.data_version and table == self.entries:
            return False
        self._replace(version, table)
        return True

    def join(self, version: DataVersion, entries: dict[str, Settings]) -> int | None:
        """Add what only a slave knows, unless its table is the older one; return how many more entries there are.

        Returns None if nothing changed. Equal tables are joined too if the slave's has seen more changes: otherwise the
        next change here would get a version that is older than the slave's, which lacks that change.
        """
        before = len(self.entries)
        table = _joined_table(self.entries, self.data_version, self._possible(entries), version)
        if table == self.entries and version.counter <= self.data_version.counter:
            return None
        newest = _newer_version(self.data_version, version)
        self._replace(newest.next_version(self._wall_clock.now_ms()), table)
        return len(table) - before

    def changed_since(self, change: int) -> set[str] | None:
        """Return the names that were put or removed since that change, or None if that is not known."""
        count = self.changes.value - change
        if count > len(self._recent):
            return None
        names: set[str] = set()
        for some in islice(reversed(self._recent), count):
            if some is None:
                return None
            names |= some
        return names

    def _change(self, entries: dict[str, Settings], removed: list[str]) -> None:
        version = self.data_version.next_version(self._wall_clock.now_ms())
        # In journal or file first: if the disk takes neither, this raises, and the table in memory is as before.
        if not self._append(version, entries, removed):
            gone = set(removed)
            table = {name: each for name, each in self.entries.items() if name not in gone}
            self._write({**table, **entries}, version, is_limited=bool(entries))
        for name in removed:
            del self.entries[name]
        self.entries.update(entries)
        self.data_version = version
        self._note(frozenset((*entries, *removed)))

    def _replace(self, version: DataVersion, table: dict[str, Settings]) -> None:
        table = dict(table)
        self._write(table, version)
        self.entries.clear()
        self.entries.update(table)
        self.data_version = version
        self._note(None)

    def _note(self, names: frozenset[str] | None) -> None:
        self._recent.append(names)
        self.changes.advance(self.changes.value + 1)

    # ----------------------------------------------------------------------------------------- files

    def _append(
        self, version: DataVersion, entries: dict[str, Settings], removed: list[str]
    ) -> bool:
        """Append a change to the journal; return False if the file must be written whole."""
        base = self._base
        if base is None or self._has_old_journal:
            return False
        if self._journal.sync_failed or self._file.sync_failed:
            return False
        content = msgspec.Raw(_encode(self._kind(version, entries)))
        line = _encode(_Change(content, removed))
        size = self._journal.size(base)
        could_be = self._file_size + LINE_GROWTH * (size + len(line))
        if size > JOURNAL_LIMIT or (entries and could_be > TABLE_SIZE_LIMIT):
            return False
        try:
            self._file.sync()  # It is, unless `fold` has just written it.
            self._journal.append(line, base)
        except (ConfigFileError, OSError):
            return False  # If writing the file fails too, that reports the error.
        self._file.note_success()
        return True

    def _write(
        self, table: dict[str, Settings], version: DataVersion, *, is_limited: bool = False
    ) -> None:
        """Write and sync the file, and remove the journal. Raises ConfigFileError."""
        data = self._content(table, version)
        if is_limited and len(data) > max(TABLE_SIZE_LIMIT, self._file_size):
            raise TableFullError(
                f"{self._file.path.name} would have {len(data)} bytes; {TABLE_SIZE_LIMIT} is the limit"
            )
        # The file first, synced: the journal that is removed below is all that has the changes until then.
        self._file.write_bytes(data, safely=True)
        self._note_file(data)
        if not self._file.sync_failed:
            with suppress(OSError):  # If it remains, it is not valid.
                self._journal.remove()

    def _content(self, table: dict[str, Settings], version: DataVersion) -> bytes:
        members = (version, self._text.of(table))
        return fastjson.dumps_pretty(dict(zip(self._names, members, strict=True)))

    def _note_file(self, data: bytes) -> None:
        self._base, self._file_size = zlib.crc32(data), len(data)
        self._has_old_journal = False

    async def fold(self) -> None:
        """Write the file whole and remove the journal, unless the table changes in the meantime.

        The disk is written in a worker thread, so that requests do not wait. Raises ConfigFileError. After a cancel or
        a change the journal remains.
        """
        if not self._journal.exists or self.unreadable:
            return
        disk, change = self._file.disk, self.changes.value
        data = self._content(self.entries, self.data_version)
        await disk.run(self._file.prepare, data)
        # A change came while it was written, and is in the journal of the former file.
        if self.changes.value != change:
            self._file.drop_prepared()
            return
        self._file.put_prepared()
        self._note_file(data)
        # Before the journal goes: after a power cut the former file may be there, and needs it.
        await disk.run(self._file.sync)
        if self.changes.value == change:
            with suppress(OSError):
                self._journal.remove()

    def sync(self) -> None:
        """Block until the table is safe from a power cut too. Raises ConfigFileError."""
        self._file.sync()
        try:
            self._journal.sync()
        except OSError as error:
            raise self._file.failed("synced", error) from error

    def sync_soon(self) -> None:
        """Request a sync in the background, where `TableSyncService` joins many changes."""
        self.sync_wanted.advance(self.sync_wanted.value + 1)

    def renew(self) -> None:
        """Write the file again if a sync has failed: the next sync could succeed without the dropped pages."""
        if self._file.sync_failed or self._journal.sync_failed:
            self._write(self.entries, self.data_version)

    def close(self) -> None:
        """Write the whole table to its file, on the disk, and remove the journal. Raises ConfigFileError."""
        if self.unreadable:
            return
        if self._journal.exists:
            self._write(self.entries, self.data_version)
        self.sync()


def _joined_table(
    ours: dict[str, Settings],
    version: DataVersion,
    theirs: dict[str, Settings],
    their_version: DataVersion,
) -> dict[str, Settings]:
    """Return our table with the entries that theirs has in addition or in a newer version."""
    if their_version.counter < version.counter:
        return ours
    if _newer_version(version, their_version) is their_version:
        return {**ours, **theirs}
    return {**theirs, **ours}


def _newer_version(version: DataVersion, other: DataVersion) -> DataVersion:
    """Return the newer version: the one with more changes, or of two with as many the later one."""
    return max(version, other, key=lambda one: (one.counter, one.timestamp))
