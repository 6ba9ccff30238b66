"""Encodes the properties of many messages as the bytes of the wire, column by column.

    UNIQ_KEY 1 id 2 [KEYS 1 ... 2] [TAGS 1 ... 2] [name 1 value 2]... [stamp of the row] [DELAY 1 level 2] WAIT 1 true 2

Arrow joins whole columns; no Python code runs for a single message, except to find one that is wrong.

Invariant: a value that contains a separator, or is not UTF-8, is refused with its row.
Invariant: names with a meaning in RocketMQ, and stamps, are never taken from a map, because there they belong to the
message that was read. KEYS and TAGS are, if no column gives them.
Answers to: MessageDecoder.messageProperties2String.
Unlike Java: a null or empty value is omitted, as readers would omit it.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketrio.spark.writing.stamps import STAMP_NAMES
from rocketrio_protocol.names import tag_problem
from rocketrio_protocol.record import properties
from rocketrio_protocol.record.properties import PROPERTY_KEYS, PROPERTY_TAGS

BINARY: Final = pa.binary()
_TEXT: Final = pa.string()
_NOTHING: Final = pa.scalar(b"", BINARY)
_NAME_END: Final = pa.scalar(b"\x01", BINARY)
_VALUE_END: Final = pa.scalar(b"\x02", BINARY)
_LARGEST_SEPARATOR: Final = 2

_SYSTEM_NAMES: Final = frozenset(
    value for name, value in vars(properties).items() if name.startswith("PROPERTY_")
)

Binaries = Any
"""An Arrow array of binaries; pyarrow has no type annotations."""


class WrongRowError(Exception):
    """Row `row` of the record batch cannot become a message, because of `why`."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row = row
        self.why = why


def joined(*parts: Any) -> Binaries:
    """Concatenate the parts of each row, which are arrays or scalars; null if one of them is null."""
    return pc.binary_join_element_wise(*parts, _NOTHING)


def scalar(value: bytes) -> Any:
    """Return a scalar with the same bytes for every row."""
    return pa.scalar(value, BINARY)


def as_utf8(column: Any, what: str) -> Binaries:
    """Convert a column of strings or binaries to binaries. Raises WrongRowError for a value that is not UTF-8.

    Spark's strings may be invalid too: CAST(key AS STRING) leaves the bytes as they are.
    """
    binaries = column.cast(BINARY)
    try:
        binaries.cast(_TEXT)
    except pa.ArrowInvalid:
        for row, value in enumerate(binaries.to_pylist()):
            _check_utf8(value, row, what)
        raise
    return binaries


def _check_utf8(value: bytes | None, row: int, what: str) -> None:
    try:
        if value is not None:
            value.decode()
    except UnicodeDecodeError as error:
        raise WrongRowError(row, f"{what} is {value!r}, which is not UTF-8") from error


def named(name: str, column: Binaries) -> Binaries:
    """Encode one property of each row; nothing if the column is null or empty. Raises WrongRowError."""
    check_separators(column, name)
    lengths = pc.binary_length(column)
    there = pc.fill_null(pc.greater(lengths, 0), fill_value=False)
    return pc.if_else(there, joined(scalar(name.encode() + b"\x01"), column, _VALUE_END), _NOTHING)


def check_tags(column: Binaries) -> None:
    """Raise WrongRowError for a tag that no subscription by tags could select."""
    is_odd = pc.or_(pc.match_substring(column, b"||"), pc.equal(column, b"*"))
    row = pc.index(is_odd, value=True).as_py()
    if row >= 0:
        raise WrongRowError(row, str(tag_problem(column[row].as_py().decode())))


def check_separators(column: Binaries, what: str) -> None:
    """Raise WrongRowError for a value that contains \\x01 or \\x02."""
    if (_bytes_of(column) <= _LARGEST_SEPARATOR).any():
        for row, value in enumerate(column.to_pylist()):
            if value is not None and (b"\x01" in value or b"\x02" in value):
                raise WrongRowError(
                    row, f"{what} is {value!r}; \\x01 and \\x02 cannot be part of a property"
                )


def _bytes_of(column: Binaries) -> Any:
    offsets, start = _offsets(column), column.offset
    _, _, data = column.buffers()
    if data is None:
        return np.empty(0, np.uint8)
    return np.frombuffer(data, np.uint8)[offsets[start] : offsets[start + len(column)]]


def _offsets(column: Binaries) -> Any:
    return np.frombuffer(column.buffers()[1], np.int32)


# ----------------------------------------------------------------------------------------- maps


def of_maps(column: Any, *, without: frozenset[str]) -> Binaries:
    """Encode all properties of each row's map, or list of headers, except those names. Raises WrongRowError."""
    if pa.types.is_map(column.type):
        names, values, whole, kind = column.keys, column.items, None, "property"
    else:  # A list of structs, as Kafka's headers are.
        structs = column.values
        names, values, kind = structs.field(0), structs.field(1), "header"
        whole = structs.is_valid() if structs.null_count else None
    starts = column.offsets.to_numpy()
    first, last = int(starts[0]), int(starts[-1])
    starts = starts - first
    size = last - first
    names, values = names.slice(first, size), values.slice(first, size)
    try:
        names = pc.fill_null(as_utf8(names, f"the name of a {kind}"), b"")
        values = as_utf8(values, f"the value of a {kind}")
        keep = pc.invert(pc.is_in(names.cast(_TEXT), value_set=pa.array(sorted(without), _TEXT)))
        if whole is not None:
            keep = pc.and_(keep, whole.slice(first, size))
        if column.null_count:
            is_there = np.repeat(column.is_valid().to_numpy(zero_copy_only=False), np.diff(starts))
            keep = pc.and_(keep, pa.array(is_there))
        keep = pc.fill_null(
            pc.and_(keep, pc.greater(pc.binary_length(values), 0)), fill_value=False
        )
        names = pc.if_else(keep, names, None)
        _check_names(names)
        check_separators(pc.if_else(keep, values, None), "the value of a property")
    except WrongRowError as wrong:
        raise WrongRowError(_row_of(starts, wrong.row), wrong.why) from wrong.__cause__
    entries = pc.if_else(keep, joined(names, _NAME_END, values, _VALUE_END), _NOTHING)
    # The entries of a row are adjacent: only the offsets show where a row ends.
    ends = _offsets(entries)[entries.offset : entries.offset + size + 1]
    return pa.Array.from_buffers(
        BINARY, len(column), [None, pa.py_buffer(ends[starts]), entries.buffers()[2]]
    )


def _check_names(names: Binaries) -> None:
    check_separators(names, "the name of a property")
    empty = pc.fill_null(pc.equal(pc.binary_length(names), 0), fill_value=False)
    if pc.any(empty).as_py():
        raise WrongRowError(pc.index(empty, value=True).as_py(), "a property has no name")


def _row_of(starts: Any, entry: int) -> int:
    return int(np.searchsorted(starts, entry, side="right")) - 1


def names_left_out(*, has_keys: bool, has_tags: bool) -> frozenset[str]:
    """Return the names that are not taken from a map, because RocketMQ, a column or a stamp sets them."""
    said_by_map = set()
    if not has_keys:
        said_by_map.add(PROPERTY_KEYS)
    if not has_tags:
        said_by_map.add(PROPERTY_TAGS)
    return (_SYSTEM_NAMES - said_by_map) | STAMP_NAMES


# ------------------------------------------------------------------------------------ unique ids

_DIGITS_END: Final = 1 << 16


def unique_id_column(head: str, first: int, count: int) -> Binaries:
    """Return ids of `head` and four hexadecimal digits that count up from `first`, as UniqueIdGenerator makes them."""
    assert count <= _DIGITS_END, "more rows than ids of one millisecond"
    numbers = np.arange(first, first + count) & (_DIGITS_END - 1)
    digits = (numbers[:, None] >> np.array([12, 8, 4, 0])) & 15
    size = len(head) + 4
    ids = np.empty((count, size), np.uint8)
    ids[:, :-4] = np.frombuffer(head.encode(), np.uint8)
    ids[:, -4:] = np.frombuffer(b"0123456789ABCDEF", np.uint8)[digits]
    return fixed_size_column(ids.tobytes(), size, count)


def fixed_size_column(data: bytes, size: int, count: int) -> Binaries:
    """Return a column of adjacent values that all have `size` bytes."""
    offsets = np.arange(0, size * count + 1, size, dtype=np.int32)
    return pa.Array.from_buffers(BINARY, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
