"""Makes the records and queue entries of one batch together, before they go into the log.

    MixedBatch     any entries, one after the other                      2.5 us a message of 128 bytes
    UniformBatch   entries of one layout, as a table of bytes            0.8 us: only the checksums are a loop

A producer that fills its batches sends entries of one layout: bodies of one size, ids of one length, the same tags.

Invariant: both make the same bytes; `entries_of` uses the table only if all entries have the same tags code.
Answers to: MessageExtBatchEncoder, the batch side of DefaultAppendMessageCallback.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import accumulate
from operator import add
from struct import Struct
from typing import Any, Final, Protocol
from zlib import crc32

import attrs
import numpy as np
import numpy.typing as npt

from rocketrio_broker.store.consume_queue import ENTRY, ENTRY_TYPE
from rocketrio_broker.store.disk import Buffer
from rocketrio_broker.store.dispatch import TAGS_LABEL, stored_tags_code, tags_code_column
from rocketrio_broker.store.property_columns import PropertyColumns
from rocketrio_broker.store.put_message import PutMessage
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.record.batch import (
    ENTRY_BODY_AT,
    ENTRY_FLAG_AT,
    ENTRY_OVERHEAD,
    decode_batch,
)
from rocketrio_protocol.record.encode import RecordShape
from rocketrio_protocol.record.properties import (
    PAIR_SEPARATOR,
    PROPERTY_DELAY_TIME_LEVEL,
    property_label,
    stored_value,
)
from rocketrio_protocol.record.vectors import HEAD_TYPE, Int64s
from rocketrio_protocol.steps import all_at_once

UNIFORM_LEAST: Final = 16
"""The least number of entries for which the table is faster: the table itself costs some 40 us."""

BATCH_MESSAGES_LIMIT: Final = 16_384
"""The most messages of one batch, which is stored without a pause: some 20 ms."""

HASHED_AT_ONCE: Final = 256 << 10
"""Bytes of properties whose tags are hashed in one step, some 3 ms."""

COLUMNS_LEAST: Final = 256
"""The least number of entries whose tags are hashed together; fewer ones are hashed one by one."""

_SEPARATOR: Final = PAIR_SEPARATOR.encode()
_DELAY: Final = property_label(PROPERTY_DELAY_TIME_LEVEL)
_HEAD: Final = Struct(">i12xi")  # size and body length of an entry
_SIZE: Final = Struct(">h")


@attrs.frozen
class MixedEntries:
    """Entries of any layout."""

    entries: Sequence[tuple[int, bytes, bytes]]
    """(flag, body, properties) of each message."""
    tags_codes: list[int]


@attrs.frozen
class UniformEntries:
    """The entries of a batch body that differ only in flag, body, and properties other than the tags."""

    data: bytes
    rows: npt.NDArray[np.uint8]
    """One entry per row."""
    body_size: int
    properties: bytes
    """The properties of the first entry."""
    tags_code: int


class Batch(Protocol):
    """A batch as the appender needs it."""

    count: int
    body_size: int
    """The size of all bodies together, in bytes."""
    properties_size: int
    """The size of the longest properties, in bytes."""

    @property
    def is_delayed(self) -> bool:
        """Whether one of the messages is to be delivered later."""
        ...

    def size(self, shape: RecordShape) -> int:
        """Return the size of all records together, in bytes."""
        ...

    def records(
        self, shape: RecordShape, put: PutMessage, queue_offset: int, start: int, store_ms: int
    ) -> tuple[Buffer, list[int], bytes]:
        """Return the records, their addresses and their queue entries; `start` is the first record's address."""
        ...


def entries_of(body: bytes | memoryview) -> UniformEntries | MixedEntries:
    """Parse the entries of a batch body. Raises RemoteProtocolError if it is malformed or has too many."""
    return all_at_once(entries_in_steps(body))


def entries_in_steps(
    body: bytes | memoryview,
) -> Generator[None, None, UniformEntries | MixedEntries]:
    """Parse as `entries_of`, with pauses: what 16,384 messages have for tags takes longer than to store them."""
    entries = _uniform_entries(body)
    if entries is None:
        decoded = decode_batch(body, limit=BATCH_MESSAGES_LIMIT)
        return (yield from _with_tags_codes(decoded))
    if len(entries.rows) > BATCH_MESSAGES_LIMIT:
        raise RemoteProtocolError(
            f"A batch has {BATCH_MESSAGES_LIMIT} messages at most, not {len(entries.rows)}"
        )
    return entries


def mixed_entries(entries: Sequence[tuple[int, bytes, bytes]]) -> MixedEntries:
    """Return (flag, body, properties) entries as `append_batch` takes them."""
    return all_at_once(_with_tags_codes(entries))


def _with_tags_codes(
    entries: Sequence[tuple[int, bytes, bytes]],
) -> Generator[None, None, MixedEntries]:
    codes: list[int] = []
    for part in _parts([properties for _, _, properties in entries]):
        if codes:
            yield
        codes += _tags_codes(part)
    return MixedEntries(entries, codes)


def _parts(every: list[bytes]) -> Iterator[list[bytes]]:
    """Cut the properties into parts that are hashed in one step."""
    start = size = 0
    for number, properties in enumerate(every):
        size += len(properties) + 1
        if size > HASHED_AT_ONCE:
            yield every[start:number]
            start, size = number, len(properties) + 1
    yield every[start:]


def _tags_codes(every: list[bytes]) -> list[int]:
    gathered = _SEPARATOR + _SEPARATOR.join(every)
    if TAGS_LABEL not in gathered:
        return [0] * len(every)
    if len(every) < COLUMNS_LEAST:
        code_of = {each: stored_tags_code(each) for each in set(every)}
        return [code_of[each] for each in every]
    sizes = np.fromiter(map(len, every), np.int64, len(every)) + 1
    codes: list[int] = tags_code_column(PropertyColumns(gathered, sizes)).tolist()
    return codes


def batch_of(entries: UniformEntries | MixedEntries, common: bytes) -> Batch:
    """Return the batch of these entries, with the common properties after those of each entry."""
    if isinstance(entries, UniformEntries):
        # Tags or a delay that are added to all are not in the table's rows:
        # the other way reads them message by message.
        if TAGS_LABEL not in common and _DELAY not in common:
            return UniformBatch(entries, common)
        entries = mixed_entries(decode_batch(entries.data))
    return MixedBatch(entries, common)


def _uniform_entries(body: bytes | memoryview) -> UniformEntries | None:
    if len(body) < UNIFORM_LEAST * ENTRY_OVERHEAD:
        return None
    size, body_size = _HEAD.unpack_from(body)
    properties_at = ENTRY_BODY_AT + body_size + _SIZE.size
    if (
        body_size < 0
        or properties_at > size
        or size * UNIFORM_LEAST > len(body)
        or len(body) % size
    ):
        return None
    (properties_size,) = _SIZE.unpack_from(body, properties_at - _SIZE.size)
    if properties_at + properties_size != size:
        return None
    data = bytes(body)
    rows = np.frombuffer(data, np.uint8).reshape(-1, size)
    for start, end in ((0, 4), (16, ENTRY_BODY_AT), (properties_at - _SIZE.size, properties_at)):
        if not _is_one(rows[:, start:end]):
            return None
    properties = data[properties_at:size]
    if properties and not _is_one(rows[:, -1:] == _SEPARATOR[0]):
        return None
    # A name can appear across two joined rows that is in neither of them; then the entries are read one by one.
    together = rows[:, properties_at:].tobytes()
    if _DELAY in together:
        return None
    tagged = together.count(TAGS_LABEL)
    if tagged:
        start = properties.find(TAGS_LABEL)
        end = properties.find(_SEPARATOR, start) + 1 or len(properties)
        at = properties_at + max(start - 1, 0)
        if tagged != len(rows) or start < 0 or not _is_one(rows[:, at : properties_at + end]):
            return None
    return UniformEntries(data, rows, body_size, properties, stored_tags_code(properties))


def _is_one(columns: npt.NDArray[np.uint8]) -> bool:
    """Return whether all rows equal the first."""
    first: bytes = columns[0].tobytes()
    return columns.tobytes() == first * len(columns)  # half the time that numpy needs


class UniformBatch:
    """Records of one size, made as a table."""

    is_delayed: Final = False

    def __init__(self, entries: UniformEntries, common: bytes) -> None:
        self._entries = entries
        self._first_properties = _with_common(entries.properties, common)
        self.count = len(entries.rows)
        self.body_size = self.count * entries.body_size
        self.properties_size = len(self._first_properties)

    def size(self, shape: RecordShape) -> int:
        return self.count * self._record_size(shape)

    def _record_size(self, shape: RecordShape) -> int:
        return shape.overhead + self._entries.body_size + len(self._first_properties)

    def records(
        self, shape: RecordShape, put: PutMessage, queue_offset: int, start: int, store_ms: int
    ) -> tuple[Buffer, list[int], bytes]:
        entries, count, size = self._entries, self.count, self._record_size(shape)
        body_size, properties = entries.body_size, self._first_properties
        body = entries.data[ENTRY_BODY_AT : ENTRY_BODY_AT + body_size]
        first = shape.record(
            put.queue_id,
            0,
            queue_offset,
            start,
            put.sys_flag,
            put.born_time_ms,
            put.born_host,
            store_ms,
            put.store_host,
            put.reconsume_times,
            put.prepared_transaction_offset,
            body,
            properties,
        )
        rows, own_size = entries.rows, len(entries.properties)
        properties_at = size - len(properties)
        body_at = properties_at - _SIZE.size - len(shape.topic) - body_size
        addresses = np.arange(start, start + count * size, size)
        table = np.empty((count, size), np.uint8)
        table[:] = np.frombuffer(first, np.uint8)
        heads = _column(table, HEAD_TYPE, 0)
        heads["body_crc"] = self._checksums()
        heads["flag"] = _column(rows, ">i4", ENTRY_FLAG_AT)
        heads["queue_offset"] = np.arange(queue_offset, queue_offset + count)
        heads["physical_offset"] = addresses
        table[:, body_at : body_at + body_size] = rows[:, ENTRY_BODY_AT : ENTRY_BODY_AT + body_size]
        table[:, properties_at : properties_at + own_size] = rows[:, rows.shape[1] - own_size :]
        queue_entries = np.empty(count, ENTRY_TYPE)
        queue_entries["address"] = addresses
        queue_entries["size"] = size
        queue_entries["code"] = entries.tags_code
        return table.data.cast("B"), addresses.tolist(), queue_entries.tobytes()

    def _checksums(self) -> Int64s:
        entries = self._entries
        if not entries.body_size:
            return np.zeros(self.count, np.int64)  # the checksum of an empty body
        # numpy cuts the bodies: a loop over slices takes as long again as the checksums themselves.
        bodies = _column(entries.rows, f"V{entries.body_size}", ENTRY_BODY_AT).tolist()
        return np.array(list(map(crc32, bodies))) & 0x7FFFFFFF


def _column(table: npt.NDArray[np.uint8], kind: Any, at: int) -> npt.NDArray[Any]:
    """Return a view of the items of this kind that begin at `at` in each row."""
    return np.ndarray((len(table),), kind, table, at, strides=(table.shape[1],))


class MixedBatch:
    """Records of any sizes, made one after the other."""

    def __init__(self, mixed: MixedEntries, common: bytes) -> None:
        entries, self._tags_codes = mixed.entries, mixed.tags_codes
        if stored_value(common, TAGS_LABEL):  # the last tags of a message count
            self._tags_codes = [stored_tags_code(common)] * len(entries)
        if common:
            after = _SEPARATOR + common
            entries = [
                (flag, body, own + common if not own or own[-1:] == _SEPARATOR else own + after)
                for flag, body, own in entries
            ]
        self._entries = entries
        self._properties = [each for _, _, each in entries]
        self.count = len(entries)
        body_sizes = [len(body) for _, body, _ in entries]
        properties_sizes = list(map(len, self._properties))
        self.body_size = sum(body_sizes)
        self.properties_size = max(properties_sizes, default=0)
        self._content_sizes: list[int] = list(map(add, body_sizes, properties_sizes))

    @property
    def is_delayed(self) -> bool:
        every = self._properties
        # Few batches have the name at all: to search all properties at once takes a tenth of searching each.
        return _DELAY in b"".join(every) and any(_is_delayed(each) for each in every)

    def size(self, shape: RecordShape) -> int:
        return self.count * shape.overhead + sum(self._content_sizes)

    def records(
        self, shape: RecordShape, put: PutMessage, queue_offset: int, start: int, store_ms: int
    ) -> tuple[Buffer, list[int], bytes]:
        records = shape.records(
            self._entries,
            queue_id=put.queue_id,
            queue_offset=queue_offset,
            physical_offset=start,
            sys_flag=put.sys_flag,
            born_time_ms=put.born_time_ms,
            born_host=put.born_host,
            store_time_ms=store_ms,
            store_host=put.store_host,
            reconsume_times=put.reconsume_times,
            prepared_transaction_offset=put.prepared_transaction_offset,
        )
        overhead = shape.overhead
        sizes = [overhead + size for size in self._content_sizes]
        addresses = list(accumulate(sizes[:-1], initial=start))
        return records, addresses, b"".join(map(ENTRY.pack, addresses, sizes, self._tags_codes))


def _with_common(own: bytes, common: bytes) -> bytes:
    if not own or not common or own[-1:] == _SEPARATOR:
        return own + common
    return own + _SEPARATOR + common


def _is_delayed(properties: bytes) -> bool:
    level = stored_value(properties, _DELAY)
    return level.isdigit() and level.strip(b"0") != b""
