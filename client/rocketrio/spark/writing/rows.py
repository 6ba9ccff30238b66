"""Encodes a record batch by columns: each row becomes an entry of a batch send, or a send of its own.

    i32 entry size | i32 0 | i32 0 | i32 flag | i32 n | body | i16 m | properties      one row of `entries`

Invariant: a row that brokers would refuse is refused here by name, before any row of its record batch is sent.
Answers to: MessageDecoder.encodeMessages; Validators.checkMessage.
Unlike Java: compressed bodies share batches with each other, because a batch's sysFlag applies to all its messages.
"""

from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketrio.producing.delays import DELAY_LEVELS
from rocketrio.producing.outgoing import Outgoing, check_topic
from rocketrio.spark.errors import RowError
from rocketrio.spark.writing.options import WriteOptions
from rocketrio.spark.writing.properties import (
    BINARY,
    Binaries,
    WrongRowError,
    as_utf8,
    check_tags,
    fixed_size_column,
    joined,
    named,
    names_left_out,
    of_maps,
    scalar,
    unique_id_column,
)
from rocketrio.spark.writing.schema import WriteColumns
from rocketrio.spark.writing.stamps import TaskStamp
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.record.batch import ENTRY_OVERHEAD, decode_batch
from rocketrio_protocol.record.compression import compress
from rocketrio_protocol.record.layout import SysFlag
from rocketrio_protocol.record.message_id import UniqueIdGenerator
from rocketrio_protocol.record.properties import (
    MAX_PROPERTIES_SIZE,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    decode_properties,
)

MOST_ROWS: Final = 32_768
"""The largest number of rows encoded together: half of the ids of one millisecond."""
PROPERTIES_ROOM: Final = 256
"""Bytes of properties reserved for brokers, which add their own (CLUSTER, MSG_REGION, TRACE_ON)."""

COMPRESSED: Final = 1
ALONE: Final = 2

_HEAD_SIZE: Final = 20
_KEYS_SHOWN: Final = 60
_WAIT: Final = scalar(b"WAIT\x01true\x02")
_ID_DIGITS: Final = 4
_ID_END: Final = 1 << 16
_I32: Final = range(-(2**31), 2**31)
_DELAYS: Final = range(len(DELAY_LEVELS) + 1)


@attrs.frozen
class Rows:
    """Encoded rows, and where each should go. Arrays have one element for each row."""

    topics: tuple[str, ...]
    topic_places: Any
    """Each row's index in `topics`; None if there is only one topic."""
    entries: Binaries
    kinds: Any
    """The bits COMPRESSED and ALONE; None if no row has either."""
    singles: dict[int, Outgoing]
    """The rows that are ALONE, by index."""
    keys: Binaries | None = None
    """Sharding keys; null for a row without one."""
    partitions: Any = None
    """Positions in the sorted list of the topic's queues; -1 for any."""
    queue_ids: Any = None
    broker_names: list[str | None] | None = None
    task_id: int = 0
    first_row: int = 0
    """The number in its task of the first of these rows."""

    def __len__(self) -> int:
        return len(self.entries)

    def name_of(self, row: int) -> str:
        """Return the name of a row for errors."""
        ((_, _, properties),) = decode_batch(self.entries[row].as_py())
        return _row_name(self.first_row + row, self.task_id, stored_key(properties))


def stored_key(properties: bytes) -> str | None:
    """Return the KEYS of encoded properties, or None."""
    return decode_properties(properties).get(PROPERTY_KEYS)


def key_shown(key: str) -> str:
    """Return a key as errors show it."""
    return f"key {key[:_KEYS_SHOWN]!r}"


def _row_name(number: int, task_id: int, key: str | None) -> str:
    name = f"row {number} of task {task_id}"
    return f"{name}, {key_shown(key)}" if key else name


@attrs.define
class RowEncoder:
    """Encodes the record batches of one task, and counts its rows."""

    columns: WriteColumns
    options: WriteOptions
    unique_ids: UniqueIdGenerator
    task_id: int
    stamp: TaskStamp | None = None
    _next_row: int = 0
    _next_id: int = 0

    def encode(self, batch: Any) -> list[Rows]:
        """Encode a record batch. Raises RowError that names the first wrong row."""
        encoded: list[Rows] = []
        for start in range(0, batch.num_rows, MOST_ROWS):
            part = batch.slice(start, MOST_ROWS)
            try:
                encoded.append(self._encode(part))
            except WrongRowError as wrong:
                raise RowError(self._described(part, wrong)) from wrong.__cause__
            self._next_row += part.num_rows
        return encoded

    def _encode(self, batch: Any) -> Rows:
        columns = self.columns
        topics, topic_places = self._topics(batch)
        bodies, is_compressed = self._bodies(batch)
        flags = self._numbers(batch, columns.flag, _I32, "flag", missing=0)
        delays = self._numbers(batch, columns.delay_level, _DELAYS, "delay_level", missing=0)
        properties = self._properties(batch, delays)
        entries, sizes = _entries(bodies, properties, flags)
        is_alone = sizes > min(self.options.send_batch_size, self.options.max_message_size)
        if delays is not None:
            is_alone |= delays > 0
        for place, topic in enumerate(topics):
            if topic.startswith(RETRY_PREFIX):  # Brokers accept no batches for these.
                is_alone |= True if topic_places is None else topic_places == place
        kinds = None
        if is_alone.any() or is_compressed is not None:
            kinds = is_alone * ALONE
            if is_compressed is not None:
                kinds += is_compressed * COMPRESSED
        singles = {
            row: Outgoing(
                topics[0 if topic_places is None else topic_places[row]],
                bodies[row].as_py(),
                properties[row].as_py().decode(),
                int(SysFlag.COMPRESSED) if is_compressed is not None and is_compressed[row] else 0,
                0 if flags is None else int(flags[row]),
                (),
            )
            for row in np.flatnonzero(is_alone).tolist()
        }
        targets = self._targets(batch)
        targets |= {"task_id": self.task_id, "first_row": self._next_row}
        return Rows(topics, topic_places, entries, kinds, singles, **targets)

    # ----------------------------------------------------------------------------- columns

    def _topics(self, batch: Any) -> tuple[tuple[str, ...], Any]:
        if self.columns.topic is None:
            assert self.options.topic is not None, "write_columns asks for either"
            return (self.options.topic,), None
        column = batch.column(self.columns.topic)
        _refuse_null(column, "its topic is null; give one, or the option topic")
        coded = as_utf8(column, "its topic").cast(pa.string()).dictionary_encode()
        topics, places = tuple(coded.dictionary.to_pylist()), coded.indices.to_numpy()
        for place, topic in enumerate(topics):
            try:
                check_topic(topic)
            except LocalProtocolError as error:
                row = int(np.argmax(places == place))
                raise WrongRowError(
                    row, f"topic {topic!r} cannot be sent to: {error.what}"
                ) from error
        return topics, None if len(topics) == 1 else places

    def _bodies(self, batch: Any) -> tuple[Binaries, Any]:
        """Return the bodies, and which of them are compressed."""
        column = batch.column(self.columns.body)
        _refuse_null(column, "its body is null; RocketMQ has no messages without a body")
        bodies = column.cast(BINARY)
        sizes = pc.binary_length(bodies).to_numpy()
        limit = self.options.max_message_size
        if sizes.size and sizes.max() > limit:
            row = int(np.argmax(sizes > limit))
            raise WrongRowError(
                row, f"its body has {sizes[row]} bytes; maxMessageBytes={limit} is the limit"
            )
        large = np.flatnonzero(sizes > self.options.compress_over)
        smaller: dict[int, bytes] = {}
        for row in large.tolist():
            body = bodies[row].as_py()
            compressed = compress(body)
            if len(compressed) < len(body):
                smaller[row] = compressed
        if not smaller:
            return bodies, None
        is_compressed = np.zeros(len(bodies), bool)
        is_compressed[list(smaller)] = True
        replaced = pc.replace_with_mask(
            bodies, pa.array(is_compressed), pa.array(list(smaller.values()), BINARY)
        )
        return replaced, is_compressed

    def _properties(self, batch: Any, delays: Any) -> Binaries:
        columns, count = self.columns, batch.num_rows
        parts: list[Any] = [scalar(b"UNIQ_KEY\x01"), self._unique_ids(count), scalar(b"\x02")]
        for place, name, what in (
            (columns.keys, PROPERTY_KEYS, "its key"),
            (columns.tags, PROPERTY_TAGS, "its tags"),
        ):
            if place is not None:
                column = as_utf8(batch.column(place), what)
                if name == PROPERTY_TAGS:
                    check_tags(column)
                parts.append(named(name, column))
        if columns.properties is not None:
            without = names_left_out(
                has_keys=columns.keys is not None, has_tags=columns.tags is not None
            )
            parts.append(of_maps(batch.column(columns.properties), without=without))
        if self.stamp is not None:
            numbers = pa.array(np.arange(self._next_row, self._next_row + count))
            rows = numbers.cast(pa.string()).cast(BINARY)
            parts += [scalar(self.stamp.encoded()), rows, scalar(b"\x02")]
        if delays is not None:
            levels = pa.array(delays, pa.int32(), mask=delays == 0)
            parts.append(named("DELAY", levels.cast(pa.string()).cast(BINARY)))
        properties = joined(*parts, _WAIT)
        sizes = pc.binary_length(properties).to_numpy()
        limit = MAX_PROPERTIES_SIZE - PROPERTIES_ROOM
        if sizes.size and sizes.max() > limit:
            row = int(np.argmax(sizes > limit))
            raise WrongRowError(
                row, f"its properties have {sizes[row]} bytes; {limit} is the limit"
            )
        return properties

    def _unique_ids(self, count: int) -> Binaries:
        head = self.unique_ids.next()[:-_ID_DIGITS]  # with the current millisecond
        first = self._next_id
        self._next_id = (first + count) % _ID_END
        return unique_id_column(head, first, count)

    def _numbers(
        self, batch: Any, place: int | None, allowed: range, what: str, *, missing: int
    ) -> Any:
        """Return a column of integers with `missing` for nulls, or None if no row has another value."""
        if place is None:
            return None
        column = batch.column(place).cast(pa.int64())
        numbers = pc.fill_null(column, missing).to_numpy()
        wrong = (numbers < allowed.start) | (numbers >= allowed.stop)
        if missing not in allowed:
            wrong &= numbers != missing
            wrong |= pc.fill_null(pc.equal(column, missing), fill_value=False).to_numpy(
                zero_copy_only=False
            )
        if wrong.any():
            row = int(np.argmax(wrong))
            raise WrongRowError(
                row, f"its {what} is {numbers[row]}, none of {allowed.start} to {allowed.stop - 1}"
            )
        return numbers if (numbers != missing).any() else None

    def _targets(self, batch: Any) -> dict[str, Any]:
        columns, ids = self.columns, range(2**31)
        if columns.sharding_key is not None:
            column = as_utf8(batch.column(columns.sharding_key), "its sharding_key")
            return {"keys": None if column.null_count == len(column) else column}
        if columns.partition is not None:
            return {
                "partitions": self._numbers(batch, columns.partition, ids, "partition", missing=-1)
            }
        if columns.queue_id is None:
            return {}
        names = None
        if columns.broker_name is not None:
            column = as_utf8(batch.column(columns.broker_name), "its broker_name")
            names = column.cast(pa.string()).to_pylist()
        return {
            "queue_ids": self._numbers(batch, columns.queue_id, ids, "queue_id", missing=-1),
            "broker_names": names,
        }

    def _described(self, batch: Any, wrong: WrongRowError) -> str:
        key = None
        if self.columns.keys is not None:
            stored = batch.column(self.columns.keys).cast(BINARY)[wrong.row].as_py()
            key = None if stored is None else stored.decode(errors="replace")
        name = _row_name(self._next_row + wrong.row, self.task_id, key)
        return f"{name} cannot be a message: {wrong.why}"


def _refuse_null(column: Any, why: str) -> None:
    if column.null_count:
        raise WrongRowError(pc.index(column.is_null(), value=True).as_py(), why)


def _entries(bodies: Binaries, properties: Binaries, flags: Any) -> tuple[Binaries, Any]:
    """Return the rows as entries of a batch, and the size of each in bytes."""
    count = len(bodies)
    body_sizes = pc.binary_length(bodies).to_numpy()
    property_sizes = pc.binary_length(properties).to_numpy()
    sizes = ENTRY_OVERHEAD + body_sizes.astype(np.int64) + property_sizes
    heads = np.zeros((count, 5), ">i4")
    heads[:, 0] = sizes
    if flags is not None:
        heads[:, 3] = flags
    heads[:, 4] = body_sizes
    head_column = fixed_size_column(heads.tobytes(), _HEAD_SIZE, count)
    tail_column = fixed_size_column(property_sizes.astype(">i2").tobytes(), 2, count)
    return joined(head_column, bodies, tail_column, properties), sizes
