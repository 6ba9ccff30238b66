"""The log of all messages: one growing address space of bytes, stored in mapped files.

    file: record | record | ... | padding: i32 rest of the file, i32 magic, then bytes that stay as they were

Invariant: `appended` is the address after the last byte; bytes below it never change.
Invariant: a record never spans two files; where it does not fit, padding ends the file (8 bytes are always left).
Invariant: `flushed` <= `appended`; everything below `flushed` survives a power cut.
Answers to: CommitLog, MappedFileQueue.appendMessage, DefaultMessageStore.appendToCommitLog.
Unlike Java: store timestamps never fall, even when the clock does; searching by time relies on it.
"""

from pathlib import Path
from typing import Final

from rocketrio_broker.store.disk import Buffer, Disk
from rocketrio_broker.store.errors import StoreDamagedError
from rocketrio_broker.store.mapped_file import RESERVE_SIZE, MappedFile
from rocketrio_broker.store.mapped_file_queue import MappedFileQueue
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.record.encode import encode_padding
from rocketrio_protocol.record.layout import (
    HOSTS_IPV6_MASK,
    MAGICS,
    PADDING_HEAD_SIZE,
    RECORD_OVERHEAD,
    SIZE_AND_MAGIC,
    head_struct,
    head_structs,
)

_PHYSICAL_OFFSET: Final = head_struct("physical_offset")
_SYS_FLAG: Final = head_struct("sys_flag")
_STORE_TIME: Final = head_structs("store_time")


class CommitLog:
    """The bytes of all messages, in the order in which they were stored."""

    def __init__(self, directory: Path, file_size: int, *, disk: Disk) -> None:
        self.files = MappedFileQueue(disk, directory, file_size)
        self.file_size = file_size
        self.appended = Watermark()
        self.flushed = Watermark()
        self.begin_offset = 0
        """Where the data of the first file begins: after the file's start if a slave joined in the middle of it."""
        self.truncations = 0
        """How often the end moved back; code that works on a range checks that this stayed the same."""
        self._file: MappedFile | None = None
        self._position = 0

    def __repr__(self) -> str:
        return f"<CommitLog {self.min_offset}..{self.max_offset}>"

    @property
    def min_offset(self) -> int:
        """The lowest address with data; the end if there is none."""
        return max(self.begin_offset, self.files.first_offset)

    @property
    def max_offset(self) -> int:
        return self.appended.value

    @property
    def is_empty(self) -> bool:
        return self.appended.value <= self.min_offset

    # --- writing -----------------------------------------------------------------------------

    def claim(self, size: int) -> int:
        """Return the address of the next record of `size` bytes; end the file with padding if it does not fit.

        Raises `OSError` if the disk has no room; the log is then unchanged.
        """
        file = self._file
        end = self._position + size
        # Room for the head of padding always stays: without that head no reader
        # could see where the records of a file end.
        if file is None or end + PADDING_HEAD_SIZE > file.size:
            file = self._roll(file)
            end = self._position + size
        if end > file.reserved:
            file.reserve(end + RESERVE_SIZE)
        return file.start_offset + self._position

    def append(self, data: Buffer) -> int:
        """Store `data` at the address that `claim` returned for its size; return the new end."""
        file = self._file
        assert file is not None
        end = self._position + len(data)
        file.mapping[self._position : end] = data
        # After the bytes: worker threads read up to this position.
        self._position = end
        offset = file.start_offset + end
        self.appended.advance(offset)
        return offset

    def _roll(self, file: MappedFile | None) -> MappedFile:
        start = file.end_offset if file is not None else self.appended.value
        # Make the new file first: if the disk is full nothing has changed.
        new_file = self.files.add_file(start - start % self.file_size, RESERVE_SIZE)
        if file is not None and self._position < file.size:
            padding = encode_padding(file.size - self._position)
            file.mapping[self._position : self._position + len(padding)] = padding
            self.appended.advance(file.end_offset)
        # The first file of a log can begin in the middle: an emptied slave continues at its old address.
        self._file, self._position = new_file, start - new_file.start_offset
        return new_file

    def append_raw(self, offset: int, data: Buffer) -> None:
        """Store bytes unchanged at exactly the end, or in an empty log at any address."""
        view = memoryview(data)
        if self.is_empty and offset != self.appended.value:
            self._begin_at(offset)
        if offset != self.appended.value:
            raise ValueError(
                f"bytes for {offset} do not continue the log, which ends at {self.max_offset}"
            )
        while view:
            file = self._file
            if file is None or self._position == file.size:
                start = offset - offset % self.file_size
                file = self._file = self.files.add_file(start, RESERVE_SIZE)
                self._position = offset - start
            part = view[: file.size - self._position]
            end = self._position + len(part)
            if end > file.reserved:
                file.reserve(end + RESERVE_SIZE)
            file.mapping[self._position : end] = part
            self._position = end
            offset += len(part)
            view = view[len(part) :]
            self.appended.advance(offset)

    def _begin_at(self, offset: int) -> None:
        self.files.truncate(0)
        self._file, self._position = None, 0
        self.begin_offset = offset
        self.appended.reset(offset)
        self.flushed.reset(offset)

    def set_end(self, end: int) -> None:
        """Continue at `end`: recovery found the end there, or a slave discards what its master does not have."""
        self._file = self.files.file_at(end) if end > self.files.first_offset else None
        last = self.files.files[-1] if self.files.files else None
        if self._file is None and last is not None:
            if end not in (last.end_offset, self.files.first_offset):
                raise StoreDamagedError(f"the log cannot end at {end}: no file holds that address")
            self._file = last
        self._position = end - self._file.start_offset if self._file is not None else 0
        self.appended.reset(end)
        # Other bytes come to these addresses: no send may count as flushed because of those that were there before.
        if self.flushed.value > end:
            self.flushed.reset(end)

    def truncate(self, end: int) -> None:
        """Remove everything from `end` on, on the disk too."""
        self.truncations += 1
        self.files.truncate(end)
        if not self.files.files:
            self.begin_offset = end
        self.set_end(end)

    # --- reading -----------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int) -> memoryview | None:
        """Return up to `max_bytes` from one file, or None if the log has no data at `offset`."""
        end = self.appended.value
        if not self.min_offset <= offset < end:
            return None
        file = self.files.file_at(offset)
        if file is None:
            return None
        position = offset - file.start_offset
        return file.view[position : min(position + max_bytes, end - file.start_offset, file.size)]

    def record(self, offset: int, size: int) -> memoryview | None:
        """Return `size` bytes at an address from a queue or the index; None if they are deleted or not there yet."""
        if offset < self.min_offset or offset + size > self.appended.value:
            return None
        file = self.files.file_at(offset)
        if file is None:
            return None
        position = offset - file.start_offset
        return file.view[position : position + size] if position + size <= file.size else None

    def record_at(self, offset: int) -> memoryview | None:
        """Return the record that begins at this address, or None if none does."""
        head = self.read(offset, RECORD_OVERHEAD)
        if head is None or len(head) < RECORD_OVERHEAD:
            return None
        size, magic = SIZE_AND_MAGIC.unpack_from(head)
        if magic not in MAGICS or size < RECORD_OVERHEAD:
            return None
        # Any bytes could look like a head; the address inside the record decides.
        return (
            self.record(offset, size) if _PHYSICAL_OFFSET.unpack_from(head)[0] == offset else None
        )

    def store_timestamp_at(self, offset: int) -> int | None:
        """Return when the record at this address was stored, in ms; None without a record."""
        record = self.record_at(offset)
        return None if record is None else store_timestamp(record)


def store_timestamp(record: memoryview) -> int:
    """Return the store time inside a record, in ms."""
    (sys_flag,) = _SYS_FLAG.unpack_from(record)
    return int(_STORE_TIME[sys_flag & HOSTS_IPV6_MASK].unpack_from(record)[0])
