"""One file of the key index: a hash table on disk from (topic, key) to log addresses.

    0 i64 begin ms | i64 end ms | i64 begin address | i64 end address | i32 used slots | i32 next entry number
    40 slots: i32 number of the newest entry of that slot, 0 = none
    40 + 4 slots: entries: i32 key hash | i64 address | i32 seconds since begin | i32 previous entry of the slot

Invariant: entries are numbered from 1 (entry 0 stays zero) and are in order of address.
Invariant: the previous entry has a lower number; 0 ends the chain.
Invariant: an entry's disk blocks are allocated (`reserve`) before it is stored, so a full disk causes no SIGBUS.
Invariant: possible holes are read through the file: on a full tmpfs even reading them through the mapping is SIGBUS.
Answers to: IndexFile, IndexHeader.
"""

import mmap
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np

from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.errors import StoreDamagedError
from rocketrio_protocol.record.vectors import Int64s

HEADER: Final = Struct(">qqqqii")
_SLOT: Final = Struct(">i")
ENTRY: Final = Struct(">iqii")
_INT_MAX: Final = 0x7FFFFFFF
_CHUNK_ENTRIES: Final = 4096
_ENTRY_TYPE: Final = np.dtype(
    [("hash", ">i4"), ("address", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)

RESERVE_SIZE: Final = 4 << 20
"""Bytes of disk blocks allocated ahead at a time: 200,000 entries, and little waste for small brokers."""

_ROW_BITS: Final = 32  # of a sort key: the slot in the upper bits, the row in the lower ones


class IndexFile:
    """The index entries of one range of the log."""

    def __init__(
        self, disk: Disk, path: Path, slot_count: int, entry_limit: int, *, create: bool
    ) -> None:
        self.path = path
        self._slot_count = slot_count
        self._entry_limit = entry_limit
        self._entries_at = HEADER.size + 4 * slot_count
        size = self.file_bytes = self._entries_at + ENTRY.size * entry_limit
        self._reserved = 0
        self._file = disk.open(path, create=create)
        if create:
            try:
                self._file.truncate(size)
            except BaseException:
                self._file.close()
                raise
        elif self._file.size != size:
            found = self._file.size
            self._file.close()
            raise StoreDamagedError(
                f"{path} has {found} bytes instead of {size}",
                remedy="Set max_hash_slot_num and max_index_num as they were, or delete the index folder",
            )
        self._map: mmap.mmap = self._file.map()
        self.begin_timestamp_ms = 0
        self.end_timestamp_ms = 0
        self.begin_physical_offset = 0
        self.end_physical_offset = 0
        self._used_slots = 0
        self.next_number = 1
        self._read_header()

    def __repr__(self) -> str:
        return f"<IndexFile {self.path.name} {self.next_number - 1} entries>"

    @property
    def room(self) -> int:
        """The number of entries that can still be added."""
        return max(0, self._entry_limit - self.next_number)

    def reserve(self, count: int) -> None:
        """Allocate disk blocks for `count` more entries and for the slots; raises `OSError` on a full disk."""
        needed = self._entries_at + ENTRY.size * (self.next_number + count)
        if needed > self._reserved:
            end = min(needed + RESERVE_SIZE, self.file_bytes)
            # A write to the mapping where the disk has no block kills the process (SIGBUS).
            self._file.reserve(self._reserved, end - self._reserved)
            self._reserved = end

    def put_many(self, entries: Sequence[tuple[int, int, int]]) -> None:
        """Add (key hash, address, store time) entries; the file must have room for all of them.

        They count after a restart only once `write_header` was called.
        """
        data, slot_count = self._map, self._slot_count
        unpack_slot, pack_slot, pack_entry = _SLOT.unpack_from, _SLOT.pack_into, ENTRY.pack
        first = number = self.next_number
        if number == 1:
            _, self.begin_physical_offset, self.begin_timestamp_ms = entries[0]
        begin_ms, used = self.begin_timestamp_ms, self._used_slots
        packed: list[bytes] = []
        seconds, seconds_of = 0, begin_ms
        for key_hash, physical_offset, time_ms in entries:
            if time_ms != seconds_of:
                seconds = max(0, min((time_ms - begin_ms) // 1000, _INT_MAX))
                seconds_of = time_ms
            slot_at = HEADER.size + 4 * (key_hash % slot_count)
            (previous,) = unpack_slot(data, slot_at)
            # A slot may name an entry that a crash took: the chain must lead
            # to lower numbers, or a search would not end.
            if not 0 < previous < number:
                previous = 0
                used += 1
            packed.append(pack_entry(key_hash, physical_offset, seconds, previous))
            pack_slot(data, slot_at, number)
            number += 1
        start = self._entries_at + ENTRY.size * first
        data[start : start + ENTRY.size * len(packed)] = b"".join(packed)
        # After the entries: a search, and the header after a restart, see only those below `next_number`.
        self._used_slots = used
        _, self.end_physical_offset, self.end_timestamp_ms = entries[-1]
        self.next_number = number

    def put_columns(self, entries: Int64s) -> None:
        """Add many entries like `put_many`, given as rows of (key hash, address, store time)."""
        count, first = len(entries), self.next_number
        hashes, addresses, times_ms = entries.T
        if first == 1:
            self.begin_physical_offset, self.begin_timestamp_ms = (
                int(addresses[0]),
                int(times_ms[0]),
            )
        # In order of slot, then of number.
        order = np.sort((hashes % self._slot_count << _ROW_BITS) | np.arange(count))
        slots, rows = order >> _ROW_BITS, order & ((1 << _ROW_BITS) - 1)
        numbers = rows + first
        table = np.frombuffer(self._map, ">i4", self._slot_count, HEADER.size)
        previous = table[slots].astype(np.int64)
        previous[(previous <= 0) | (previous >= numbers)] = 0
        is_chained = slots[1:] == slots[:-1]
        previous[1:][is_chained] = numbers[:-1][is_chained]
        is_last = np.append(~is_chained, True)
        table[slots[is_last]] = numbers[is_last]
        packed = np.empty(count, _ENTRY_TYPE)
        packed["hash"], packed["address"] = hashes, addresses
        seconds = (times_ms - self.begin_timestamp_ms) // 1000
        packed["seconds"] = np.clip(seconds, 0, _INT_MAX)
        packed["previous"][rows] = previous
        start = self._entries_at + ENTRY.size * first
        self._map[start : start + ENTRY.size * count] = packed.tobytes()
        self._used_slots += count - int(np.count_nonzero(previous))
        self.end_physical_offset, self.end_timestamp_ms = int(addresses[-1]), int(times_ms[-1])
        self.next_number = first + count

    def write_header(self) -> None:
        """Write the counts and bounds into the file's header."""
        HEADER.pack_into(
            self._map,
            0,
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical_offset,
            self.end_physical_offset,
            self._used_slots,
            self.next_number,
        )

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield the addresses with this hash, newest first; times are compared to within a second."""
        slot_at = HEADER.size + 4 * (key_hash % self._slot_count)
        (number,) = _SLOT.unpack(self._file.pread(_SLOT.size, slot_at))
        limit = self.next_number
        while 0 < number < limit:
            found_hash, physical_offset, seconds, previous = self._entry(number)
            time_ms = self.begin_timestamp_ms + seconds * 1000
            if time_ms + 1000 <= begin_ms:
                return
            if found_hash == key_hash and time_ms <= end_ms:
                yield physical_offset
            # A chain only goes to lower numbers, so that one that a crash damaged cannot be a circle.
            limit, number = number, previous

    def entries(self, first: int, limit: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (hash, address, seconds, previous) of the stored entries from `first` to before `limit`."""
        for start in range(first, limit, _CHUNK_ENTRIES):
            end = min(start + _CHUNK_ENTRIES, limit)
            at = self._entries_at + ENTRY.size * start
            yield from ENTRY.iter_unpack(self._map[at : at + ENTRY.size * (end - start)])

    def written_entries(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the entries before the first impossible one, which a crash left; the header may say otherwise."""
        last_offset = 0
        for entry in self.entries(1, self._entry_limit):
            key_hash, physical_offset, seconds, _ = entry
            if (
                physical_offset < last_offset
                or key_hash < 0
                or seconds < 0
                or entry == (0, 0, 0, 0)
            ):
                return
            last_offset = physical_offset
            yield entry

    def cut(self, below: int) -> None:
        """Keep the entries for addresses below `below`, all of which are known to be on the disk.

        Later entries are undone one by one. If a crash lost some of them, the slots are filled again.
        """
        first = self._first_at_or_after(below)
        later = []
        for number, entry in enumerate(self.entries(first, self._entry_limit), first):
            if not any(entry):
                break
            later.append((number, entry[0], entry[3]))
        for number, key_hash, previous in reversed(later):
            slot_at = HEADER.size + 4 * (key_hash % self._slot_count)
            if _SLOT.unpack_from(self._map, slot_at)[0] == number:
                _SLOT.pack_into(self._map, slot_at, previous)
        slots = array("i", self._map[HEADER.size : self._entries_at])
        if sys.byteorder == "little":
            slots.byteswap()
        if max(slots) >= first:
            self.rebuild(below)
            return
        self._file.clear_from(self._entries_at + ENTRY.size * first)
        self._used_slots = self._slot_count - slots.count(0)
        self.next_number = first
        last = self._entry(first - 1) if first > 1 else (0, 0, 0, 0)
        if self.end_physical_offset != last[1] or first == 1:
            self.end_physical_offset = last[1]
            self.end_timestamp_ms = self.begin_timestamp_ms + last[2] * 1000
        self.write_header()

    def _first_at_or_after(self, physical_offset: int) -> int:
        low, high = 1, self._entry_limit
        while low < high:
            middle = (low + high) // 2
            entry = self._entry(middle)
            if any(entry) and entry[1] < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def rebuild(self, below: int) -> None:
        """Keep the entries for addresses below `below`, and make slots, chains and header again.

        Reads every entry: for files that another broker left, or a crash damaged.
        """
        self.reserve(0)
        count = 0
        for _, physical_offset, _, _ in self.written_entries():
            if physical_offset >= below:
                break
            count += 1
        # Everything after the kept entries becomes zeros, and the slots are filled again.
        self._file.clear_from(self._entries_at + ENTRY.size * (count + 1))
        self._map[HEADER.size : self._entries_at] = bytes(4 * self._slot_count)
        begin_ms = self.begin_timestamp_ms
        self._used_slots, self.next_number = 0, 1
        self.end_timestamp_ms = self.end_physical_offset = 0
        for first in range(1, count + 1, _CHUNK_ENTRIES):
            kept = np.array(list(self.entries(first, min(first + _CHUNK_ENTRIES, count + 1))))
            kept[:, 2] = begin_ms + kept[:, 2] * 1000
            self.put_columns(kept[:, :3])
        self.write_header()

    def sync(self) -> None:
        """Block until the file is on the disk."""
        self._file.fdatasync()

    def close(self) -> None:
        self._file.close()

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        return ENTRY.unpack_from(self._map, self._entries_at + ENTRY.size * number)

    def _read_header(self) -> None:
        (
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical_offset,
            self.end_physical_offset,
            self._used_slots,
            next_number,
        ) = HEADER.unpack(self._file.pread(HEADER.size, 0))
        self.next_number = min(max(next_number, 1), self._entry_limit)
