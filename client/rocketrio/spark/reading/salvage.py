"""Decodes what is still readable of messages that cannot be decoded together because some are damaged.

Records that cannot be decoded are halved until each damaged message is alone. If a size does not lead to another
record, the next position where a message can begin is searched.

Invariant: every message that decodes alone is returned, in order.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa

from rocketrio_protocol.columns.decode import COLUMN_TYPES, columns_of, decode_columns
from rocketrio_protocol.errors import ProtocolError
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.record.compression import InflateBudget, TooMuchToInflateError
from rocketrio_protocol.record.decode import RecordStatus, possible_records, scan_record
from rocketrio_protocol.record.layout import (
    MAGICS,
    RECORD_OVERHEAD,
    SIZE_AND_MAGIC,
    head_struct,
)

_QUEUE_OFFSET: Final = head_struct("queue_offset")


@attrs.frozen
class Problem:
    """A damaged message."""

    row: int
    """Its row; if damaged messages are omitted, the row of the next message."""
    error: ProtocolError
    queue_offset: int | None
    """None if not even the offset can be read."""


@attrs.frozen
class Salvaged:
    """The rows of a chunk."""

    columns: dict[str, Any]
    row_count: int
    problems: list[Problem]


def salvage(
    chunk: bytes | bytearray | memoryview,
    wanted: Sequence[str],
    *,
    inflate: bool,
    check_crc: bool,
    keeps_damaged: bool,
    budget: InflateBudget | None = None,
) -> Salvaged:
    """Return the columns of all readable messages; with `keeps_damaged` also the others, with null for unreadable
    columns.

    Raises TooMuchToInflateError if compressed bodies together exceed the budget.
    """
    budget = InflateBudget() if budget is None else budget
    return _Salvage(bytes(chunk), tuple(wanted), inflate, check_crc, keeps_damaged, budget).run()


def stretches(chunk: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each record, and of each damaged stretch between records."""
    for start, end, _ in _stretches(chunk):
        yield start, end


def records_below(chunk: bytes, end: int) -> bytes:
    """Return the records with queue offsets below `end`, and all damage, which the decoder handles."""
    return b"".join(
        chunk[start:stop]
        for start, stop, is_record in _stretches(chunk)
        if not is_record or _QUEUE_OFFSET.unpack_from(chunk, start)[0] < end
    )


@attrs.define
class _Salvage:
    chunk: bytes
    wanted: tuple[str, ...]
    inflate: bool
    check_crc: bool
    keeps_damaged: bool
    budget: InflateBudget
    _parts: list[dict[str, Any]] = attrs.Factory(list)
    _row_count: int = 0
    _problems: list[Problem] = attrs.Factory(list)

    def run(self) -> Salvaged:
        spans: list[tuple[int, int]] = []
        for start, end, is_record in _stretches(self.chunk):
            if is_record:
                spans.append((start, end))
                continue
            self._decode(spans)
            spans = []
            error = ProtocolError(f"no stored message at byte {start}, nor before byte {end}")
            self._damaged(None, error)
        self._decode(spans)
        columns = {
            name: pa.concat_arrays([part[name] for part in self._parts])
            if self._parts
            else pa.nulls(0, COLUMN_TYPES[name])
            for name in self.wanted
        }
        return Salvaged(columns, self._row_count, self._problems)

    def _decode(self, spans: Sequence[tuple[int, int]]) -> None:
        if not spans:
            return
        records = self.chunk[spans[0][0] : spans[-1][1]]
        try:
            used = self.budget.used
            part = decode_columns(
                records,
                self.wanted,
                inflate=self.inflate,
                check_crc=self.check_crc,
                budget=self.budget,
            )
        except TooMuchToInflateError:
            raise
        except ProtocolError as error:
            self.budget.used = used
            if len(spans) == 1:
                self._damaged(records, error)
                return
            half = len(spans) // 2
            self._decode(spans[:half])
            self._decode(spans[half:])
        else:
            self._parts.append(part)
            self._row_count += len(spans)

    def _damaged(self, record: bytes | None, error: ProtocolError) -> None:
        message = None if record is None else decode_messages(record)[0]
        offset = None if message is None else message.queue_offset
        self._problems.append(Problem(self._row_count, error, offset))
        if self.keeps_damaged:
            self._parts.append({name: self._readable(message, name) for name in self.wanted})
            self._row_count += 1

    def _readable(self, message: MessageExt | None, name: str) -> Any:
        """Return one column of a damaged message, null if it cannot be read."""
        try:
            if message is not None and not (name == "body" and self._is_altered(message)):
                return columns_of([message], [name], inflate=self.inflate)[name]
        except ProtocolError:
            pass
        return pa.nulls(1, COLUMN_TYPES[name])

    def _is_altered(self, message: MessageExt) -> bool:
        return self.check_crc and not message.check_crc()


def _stretches(chunk: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield start and end of each record and of each damaged stretch, and whether it is a record."""
    at = 0
    while at < len(chunk):
        size = _size_at(chunk, at)
        leads_on = size and (at + size == len(chunk) or _size_at(chunk, at + size))
        if leads_on or _is_whole(chunk, at):
            yield at, at + size, True
            at += size
            continue
        following = _next_record(chunk, at + 1)
        yield at, following, False
        at = following


def _size_at(chunk: bytes, at: int) -> int:
    """Return the size of the record that begins here, or 0 if none can."""
    if at + RECORD_OVERHEAD > len(chunk):
        return 0
    size: int
    size, magic = SIZE_AND_MAGIC.unpack_from(chunk, at)
    return size if magic in MAGICS and RECORD_OVERHEAD <= size <= len(chunk) - at else 0


def _is_whole(chunk: bytes, at: int) -> bool:
    """Return True if all lengths in the record that begins here agree."""
    return scan_record(chunk, at, len(chunk), check_crc=False).status is RecordStatus.RECORD


def _next_record(chunk: bytes, start: int) -> int:
    """Return the first position from `start` with a record whose lengths agree, or the end."""
    places = possible_records(chunk, start, len(chunk))
    return next((at for at in places if _is_whole(chunk, at)), len(chunk))
