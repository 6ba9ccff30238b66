"""One consume queue: the places of the messages of one (topic, queue id) in the commit log.

    entry: i64 physical offset | i32 record size | i64 tags code       20 bytes; all files have the same entry count
    filler: 0 | 0x7FFFFFFF | 0                  before the first entry of the first file
            address before it | 0x7FFFFFFF | 0  where messages are missing in the middle

New entries wait in memory (`_tail`). They are written together, when there are many or a checkpoint is due: writing
each one by itself would cost as much as the rest of its send.

Invariant: entry `n` is at byte 20 n of the queue; `max_offset` is the number of the next one.
Invariant: files have their full length, with zeros after the last entry, as an Apache broker expects them.
Answers to: ConsumeQueue.
Unlike Java: files are not mapped; a gap is filled with fillers instead of moving all later entries.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np

from rocketrio_broker.store.config import QUEUE_ENTRY_SIZE
from rocketrio_broker.store.disk import DiskFile
from rocketrio_broker.store.mapped_file import FILE_NAME_DIGITS, file_name, is_number
from rocketrio_broker.store.open_files import OpenFiles

ENTRY: Final = Struct(">qiq")
ENTRY_TYPE: Final = np.dtype([("address", ">i8"), ("size", ">i4"), ("code", ">i8")])
"""The layout of `ENTRY` as a numpy type, for many entries at once."""
FILLER_SIZE: Final = 0x7FFFFFFF
_PHYSICAL_AND_SIZE: Final = Struct(">qi")

TAIL_LIMIT: Final = 3200 * QUEUE_ENTRY_SIZE
"""Bytes of unwritten entries at which an append writes them: 10 us for 3,200 messages."""

Bounds = tuple[int, int, int]
"""The number of the first entry, the number of the next entry, and the address after the newest message."""

SAMPLES: Final = 16
SAMPLE_ENTRIES: Final = 200
"""A start reads this many pieces of 4 KB of each queue file, evenly spread; of a file with fewer entries, all."""

GAP_LIMIT: Final = 1_000_000
"""Entries; a larger gap is not filled, and the queue begins again after it (20 MB of fillers are of no use)."""


class ConsumeQueue:
    """The entries of one queue."""

    __slots__ = (
        "_file_size",
        "_files",
        "_has_new_names",
        "_last_path",
        "_last_start",
        "_root",
        "_tail",
        "_tail_start",
        "_unsynced_start",
        "_unwritten",
        "_written_end",
        "has_unsynced",
        "is_trusted",
        "key",
        "last_physical_end",
        "max_offset",
        "min_offset",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        root: Path,
        file_size: int,
        files: OpenFiles,
        unwritten: "set[ConsumeQueue]",
    ) -> None:
        """Use the files in `<root>/<topic>/<queue id>`; the queue adds itself to `unwritten` for entries in memory."""
        self.key = (topic, queue_id)
        self.min_offset = 0
        self.max_offset = 0
        self.last_physical_end = 0
        """The address after the newest message of this queue."""
        self.has_unsynced = False
        """Whether entries were written since the last sync."""
        self.is_trusted = False
        """Whether the bounds come from `trust`, and the files have not been written to since."""
        self._root = root
        self._file_size = file_size
        self._files = files
        self._tail = bytearray()
        self._tail_start = 0
        self._last_start, self._last_path = -1, root
        self._unsynced_start = 0  # the first file that was written to since the last sync
        self._has_new_names = False  # whether files were made or deleted since the last sync
        self._written_end = 0  # `last_physical_end` of the written entries
        self._unwritten = unwritten

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.key[0]}-{self.key[1]} {self.min_offset}..{self.max_offset}>"

    @property
    def directory(self) -> Path:
        """The folder of the files. The path is made on each use: there may be 80,000 queues."""
        topic, queue_id = self.key
        return self._root / topic / str(queue_id)

    # --- writing -----------------------------------------------------------------------------

    def append(self, physical_offset: int, size: int, tags_code: int) -> None:
        """Add the entry of one message."""
        if not self._tail:
            self._unwritten.add(self)
        self._tail += ENTRY.pack(physical_offset, size, tags_code)
        self.max_offset += 1
        self.last_physical_end = physical_offset + size
        if len(self._tail) >= TAIL_LIMIT:
            self._write_long_tail()

    def append_many(self, entries: bytes, count: int, last_physical_end: int) -> None:
        """Add the packed entries of a batch."""
        if not self._tail:
            self._unwritten.add(self)
        self._tail += entries
        self.max_offset += count
        self.last_physical_end = last_physical_end
        if len(self._tail) >= TAIL_LIMIT:
            self._write_long_tail()

    def fill_to(self, queue_offset: int) -> None:
        """Move the end up to `queue_offset`; the entries in between are unknown, their messages deleted or damaged."""
        physical_offset = self.last_physical_end
        if self.max_offset == self.min_offset or queue_offset - self.max_offset > GAP_LIMIT:
            # Nothing to keep: begin in the file of that entry, and count from there.
            self.clear()
            physical_offset = 0
            file_start = queue_offset * QUEUE_ENTRY_SIZE // self._file_size * self._file_size
            self.max_offset = self._tail_start = file_start // QUEUE_ENTRY_SIZE
            self.min_offset = queue_offset
        filler = ENTRY.pack(physical_offset, FILLER_SIZE, 0)
        self._unwritten.add(self)
        self._tail += filler * (queue_offset - self.max_offset)
        self.max_offset = queue_offset

    def write_tail(self) -> None:
        """Write the entries that wait in memory to the files (into the page cache)."""
        # Entries beyond the bounds are from after the checkpoint: the messages
        # that they name may not be in the log any more.
        if self.is_trusted:
            self._settle()
        while self._tail:
            start = self._tail_start * QUEUE_ENTRY_SIZE
            position = start % self._file_size
            part = self._tail[: self._file_size - position]
            file = self._file(start - position)
            file.pwrite(part, position)
            # After each write: if the disk is full the rest stays in memory,
            # and the next attempt begins at the right byte.
            self._tail_start += len(part) // QUEUE_ENTRY_SIZE
            del self._tail[: len(part)]
            self._written_end = _end_in(part, len(part) - QUEUE_ENTRY_SIZE)
            self._note_unsynced(start - position)
        self._unwritten.discard(self)

    def _file(self, start: int) -> DiskFile:
        """Return the file that begins at `start`; make it if it does not exist."""
        path = self._path(start)
        file = self._files.existing(path)
        if file is None:
            # Of full length at once, as Apache's brokers expect it; the zeros mark entries that were never written.
            file = self._files.make(path, self._file_size)
            self._has_new_names = True
        return file

    def _write_long_tail(self) -> None:
        # The message is in the log already, so its send must not fail here. If the disk is full, the periodic
        # write fails too and reports it.
        with contextlib.suppress(OSError):
            self.write_tail()

    @property
    def unwritten_size(self) -> int:
        """The number of bytes of entries that wait in memory."""
        return len(self._tail)

    def truncate(self, queue_offset: int) -> None:
        """Remove the entries from `queue_offset` on; their bytes in the file become zeros."""
        # So that one cut in the files removes all entries.
        self.write_tail()
        self.is_trusted = False
        end = queue_offset * QUEUE_ENTRY_SIZE
        self._cut_files(end)
        self._has_new_names = True
        self.max_offset = self._tail_start = queue_offset
        self.min_offset = min(self.min_offset, queue_offset)
        self.last_physical_end = self._written_end = self.end_of_entry(queue_offset - 1)
        self._note_unsynced(end - end % self._file_size)

    def clear(self) -> None:
        """Remove all entries and files; the queue begins at 0 again."""
        for start in self._file_starts():
            self._files.unlink(self._path(start))
        self._has_new_names, self.is_trusted = True, False
        self._unwritten.discard(self)
        self._tail = bytearray()
        self._tail_start = self.min_offset = self.max_offset = 0
        self.last_physical_end = self._written_end = 0

    # --- reading -----------------------------------------------------------------------------

    def entries(self, queue_offset: int, count: int) -> bytes:
        """Return at most `count` packed entries from `queue_offset` on; fewer or none at the queue's end."""
        count = min(count, self.max_offset - queue_offset)
        if count <= 0 or queue_offset < 0:
            return b""
        in_tail = queue_offset - self._tail_start
        if in_tail >= 0:
            start = in_tail * QUEUE_ENTRY_SIZE
            return bytes(self._tail[start : start + count * QUEUE_ENTRY_SIZE])
        written = min(count, -in_tail)
        data = self._read(queue_offset * QUEUE_ENTRY_SIZE, written * QUEUE_ENTRY_SIZE)
        if written < count and len(data) == written * QUEUE_ENTRY_SIZE:
            data += self._tail[: (count - written) * QUEUE_ENTRY_SIZE]
        return data

    def entry(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return (physical offset, record size, tags code) of one entry, or None if there is none."""
        data = self.entries(queue_offset, 1)
        return ENTRY.unpack(data) if len(data) == QUEUE_ENTRY_SIZE else None

    @property
    def is_empty(self) -> bool:
        return self.min_offset == self.max_offset

    @property
    def file_bytes(self) -> int:
        """The size of the files that hold entries."""
        size = self._file_size
        first = self.min_offset * QUEUE_ENTRY_SIZE // size
        return (-(-self.max_offset * QUEUE_ENTRY_SIZE // size) - first) * size

    def first_at_or_after(self, physical_offset: int) -> int:
        """Return the first entry whose message is at or after `physical_offset`, or `max_offset` if there is none."""
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            # An entry of size 0 was never written: a crash can leave such holes after the last good entry.
            if (
                entry is not None
                and entry[1] > 0
                and (entry[0] < physical_offset or entry[:2] == (0, FILLER_SIZE))
            ):
                low = middle + 1
            else:
                high = middle
        return low

    def first_ending_beyond(self, address: int) -> int:
        """Return the first entry whose message ends after `address`, or `max_offset` if there is none.

        Searches backwards from the newest entry, as usually few entries match.
        """
        if self.last_physical_end <= address:
            return self.max_offset
        low, high, step = self.min_offset, self.max_offset, 1
        while high - step >= low:
            probe = high - step
            if self.end_of_entry(probe) <= address:
                low = probe + 1
                break
            high, step = probe, step * 2
        while low < high:
            middle = (low + high) // 2
            if self.end_of_entry(middle) <= address:
                low = middle + 1
            else:
                high = middle
        return low

    def next_file_offset(self, queue_offset: int) -> int:
        """Return the first entry of the file after the one that holds `queue_offset`."""
        per_file = self._file_size // QUEUE_ENTRY_SIZE
        return queue_offset - queue_offset % per_file + per_file

    def _read(self, position: int, size: int) -> bytes:
        data = b""
        while size:
            start = position - position % self._file_size
            file = self._files.existing(self._path(start))
            part = min(size, start + self._file_size - position)
            piece = b"" if file is None else file.pread(part, position - start)
            data += piece
            if len(piece) < part:
                break
            position += part
            size -= part
        return data

    def end_of_entry(self, queue_offset: int) -> int:
        """Return the address after the message of an entry; 0 without the entry."""
        data = self.entries(queue_offset, 1)
        return _end_in(data, 0) if len(data) == QUEUE_ENTRY_SIZE else 0

    # --- files -------------------------------------------------------------------------------

    def load(self) -> None:
        """Find the bounds in the files: entries end before the first that was never written."""
        starts = self._file_starts()
        if not starts:
            return
        for start in starts:
            self._files.extend(self._path(start), self._file_size)
        while starts and not self._is_written(starts[-1] // QUEUE_ENTRY_SIZE):
            if len(starts) == 1:
                break
            starts.pop()
        low = starts[-1] // QUEUE_ENTRY_SIZE
        high = low + self._file_size // QUEUE_ENTRY_SIZE
        while low < high:
            middle = (low + high) // 2
            if self._is_written(middle):
                low = middle + 1
            else:
                high = middle
        self.min_offset = starts[0] // QUEUE_ENTRY_SIZE
        self.max_offset = self._tail_start = low
        self.last_physical_end = self.end_of_entry(low - 1) if low > self.min_offset else 0
        self._written_end = self.last_physical_end

    def trust(self, bounds: Bounds) -> None:
        """Take `bounds` as true; `first_lost` compares the files with them, and so does the first write."""
        self.min_offset, self.max_offset, self.last_physical_end = bounds
        self._tail_start, self._written_end = self.max_offset, self.last_physical_end
        self.is_trusted = True

    def first_lost(self, end: int) -> int:
        """Return where a rebuild of the trusted entries must begin: the first entry of the first file that lacks some.

        Returns `end` if the files have the entries before it, as far as samples show.
        """
        number, before = self.min_offset, 0
        while number < end:
            start = number * QUEUE_ENTRY_SIZE // self._file_size * self._file_size
            stop = min(end, (start + self._file_size) // QUEUE_ENTRY_SIZE)
            file = self._files.existing(self._path(start))
            if file is None or file.size != self._file_size:
                return number
            for first, count in _samples(number, stop):
                data = file.pread(count * QUEUE_ENTRY_SIZE, first * QUEUE_ENTRY_SIZE - start)
                entries = np.frombuffer(data, ENTRY_TYPE)
                addresses = entries["address"]
                is_written = (entries["size"] > 0).all() and addresses[0] >= before
                if not is_written or (addresses[1:] < addresses[:-1]).any():
                    return number
                before = addresses[-1]
            if (
                stop == self.max_offset
                and _end_in(data, len(data) - QUEUE_ENTRY_SIZE) != self.last_physical_end
            ):
                return number
            number = stop
        return end

    @property
    def written_bounds(self) -> Bounds:
        """The bounds of the entries in the files."""
        return min(self.min_offset, self._tail_start), self._tail_start, self._written_end

    def _settle(self) -> None:
        """Remove what the files contain after the bounds: it was written after the bounds were recorded."""
        self.is_trusted = False
        self._cut_files(self._tail_start * QUEUE_ENTRY_SIZE)

    def _cut_files(self, end: int) -> None:
        """Remove the files from byte `end` of the queue on, and clear the rest of the file that contains `end`."""
        for start in self._file_starts():
            path = self._path(start)
            if start >= end:
                self._files.unlink(path)
                self._has_new_names = True
            elif start + self._file_size > end:
                self._files.extend(path, self._file_size)
                self._file(start).clear_from(end - start)
                self._note_unsynced(start)

    def _is_written(self, queue_offset: int) -> bool:
        data = self._read(queue_offset * QUEUE_ENTRY_SIZE, QUEUE_ENTRY_SIZE)
        if len(data) < QUEUE_ENTRY_SIZE:
            return False
        physical_offset, size = _PHYSICAL_AND_SIZE.unpack_from(data)
        return bool(physical_offset >= 0 and size > 0)

    def raise_min(self, physical_offset: int) -> bool:
        """Move the lower bound to the first message at or after this address; return whether the bound changed."""
        before = self.min_offset
        # Most queues are idle, and this avoids reading their files.
        if self.last_physical_end <= physical_offset:
            self.min_offset = self.max_offset
        else:
            self.min_offset = self.first_at_or_after(physical_offset)
        return self.min_offset != before

    def delete_before_min(self) -> int:
        """Delete files without an entry at or above `min_offset`, except the last file. Return how many."""
        starts = self._file_starts()
        deleted = 0
        for start in starts[:-1]:
            if start + self._file_size > self.min_offset * QUEUE_ENTRY_SIZE:
                break
            self._files.unlink(self._path(start))
            self._has_new_names = True
            deleted += 1
        return deleted

    def delete(self) -> None:
        """Remove all entries, files and the folder."""
        self.clear()
        self._files.disk.remove_directory(self.directory)

    def take_unsynced(self) -> list[Path]:
        """Return the files and folders that a sync must cover; only later writes count as unsynced from now on."""
        self.has_unsynced = False
        if not self._has_new_names:
            # Since the last sync entries went only to files from the first unsynced one on, usually to one.
            last = max(self._tail_start - 1, 0) * QUEUE_ENTRY_SIZE
            starts = range(self._unsynced_start, last + 1, self._file_size)
            return [self._path(start) for start in starts]
        self._has_new_names = False
        files = [
            self._path(start) for start in self._file_starts() if start >= self._unsynced_start
        ]
        return [*files, self.directory, self.directory.parent]

    def note_synced(self) -> None:
        """Count only later writes as unsynced from now on."""
        self.has_unsynced = self._has_new_names = False

    def _note_unsynced(self, file_start: int) -> None:
        if not self.has_unsynced or file_start < self._unsynced_start:
            self._unsynced_start = file_start
        self.has_unsynced = True

    def _file_starts(self) -> list[int]:
        return [
            int(name)
            for name in self._files.disk.list_directory(self.directory)
            if len(name) == FILE_NAME_DIGITS and is_number(name)
        ]

    def _path(self, start: int) -> Path:
        # The last path is kept: readers and the writer use it repeatedly, and making one costs 3 us.
        if start != self._last_start:
            topic, queue_id = self.key
            path = self._root.joinpath(topic, str(queue_id), file_name(start))
            self._last_start, self._last_path = start, path
        return self._last_path


def _samples(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield pieces of these entries (first, count): all of them, or the first, the last and some in between."""
    spare = stop - start - SAMPLES * SAMPLE_ENTRIES
    if spare <= 0:
        yield start, stop - start
        return
    for number in range(SAMPLES):
        yield (
            start + number * SAMPLE_ENTRIES + spare * number // (SAMPLES - 1),
            SAMPLE_ENTRIES,
        )


def _end_in(entries: bytes | bytearray, at: int) -> int:
    """Return the address after the message of an entry; for a filler, the address that it holds."""
    address, size = _PHYSICAL_AND_SIZE.unpack_from(entries, at)
    return int(address if size == FILLER_SIZE else address + size)
