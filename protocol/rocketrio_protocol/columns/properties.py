r"""Decodes the properties of many messages at once, as Arrow columns: the map, or single values by name.

The property strings are gathered into one run of bytes, each after a 0x02 and without a trailing one (4.9 writes none),
so that the run is `0x02 name 0x01 value 0x02 name 0x01 value ...`. Names and values are then two `take`s over it.

Invariant: the result is that of `decode_properties` for each message.
Invariant: a block that breaks the pattern (an empty name or value, 0x01 inside a value, bytes that are not UTF-8)
raises `UnusualPropertiesError`, and the caller decodes it message by message.
"""

from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketrio_protocol.columns.arrays import number_array, repeated, text_array
from rocketrio_protocol.record.vectors import Int64s, items_at_every_byte

Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

MAP_TYPE: Final = pa.map_(pa.string(), pa.string())

_MASK_CODES: Final = 62
"""Distinct names for which the search for repeated names can use one bit each of a 64-bit number."""


class UnusualPropertiesError(Exception):
    """The block does not follow the pattern that can be decoded by columns."""


def gather(chunk: Any, starts: Int64s, sizes: Int64s, kind: Any) -> Any:
    """Return pieces of `chunk` as an Arrow array of `kind`: binary, or string, which is checked to be UTF-8."""
    count = len(starts)
    if not count:
        return text_array([], kind)
    # An array over the whole chunk whose elements are alternately a wanted piece and the gap after it.
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = starts
    offsets[1::2] = starts + sizes
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(chunk)]
    )
    pieces = whole.take(number_array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    return pieces if kind == pa.binary() else as_text(pieces)


def as_text(pieces: Any) -> Any:
    """Return binaries as strings. Raises UnusualPropertiesError if one is not UTF-8."""
    try:
        return pieces.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise UnusualPropertiesError from error


def _int32s(array: Any) -> Int32s:
    """Return the offsets of a binary array, or the values of a 32-bit array; `to_numpy` would import pandas."""
    offsets: Int32s = np.frombuffer(array.buffers()[1], np.int32)[: len(array) + 1]
    return offsets


@attrs.define
class PropertyBlock:
    """The properties of one block of messages, split into names and values."""

    text: Bytes
    """All property strings, each after one 0x02."""
    tokens: Any
    """Arrow strings over `text`: 4k+1 is name k, 4k+3 is value k, the others are separators."""
    name_starts: Int32s
    name_sizes: Int32s
    first_pairs: Int32s
    """Message i has the pairs from `first_pairs[i]` up to `first_pairs[i + 1]`."""
    _common_names: tuple[bytes, ...] | None = None

    @property
    def message_count(self) -> int:
        return len(self.first_pairs) - 1

    @property
    def common_names(self) -> tuple[bytes, ...]:
        """Return the names of each message if all have the same in the same order, which is usual; otherwise
        nothing.
        """
        if self._common_names is None:
            self._common_names = self._find_common_names()
        return self._common_names

    def _find_common_names(self) -> tuple[bytes, ...]:
        messages = self.message_count
        per_message = len(self.name_sizes) // max(messages, 1)
        if not per_message or len(self.name_sizes) != messages * per_message:
            return ()
        if not (np.diff(self.first_pairs) == per_message).all():
            return ()
        # Compare each row with the row before it: one long comparison instead of many short ones.
        if (self.name_sizes[per_message:] != self.name_sizes[:-per_message]).any():
            return ()
        names = self._names()
        offsets = _int32s(names)
        text = np.frombuffer(names.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        width = len(text) // messages
        if (text[width:] != text[:-width]).any():
            return ()
        return tuple(name.as_py().encode() for name in names[:per_message])

    def _names(self) -> Any:
        return self.tokens.take(number_array(np.arange(1, len(self.tokens), 4, dtype=np.int32)))

    def values(self, name: str) -> Any:
        """Return the value of `name` in each message: the last of several, null if there is none."""
        wanted = name.encode()
        if common := self.common_names:
            if wanted not in common:
                return pa.nulls(self.message_count, pa.string())
            place = len(common) - 1 - common[::-1].index(wanted)
            return self.tokens.take(
                number_array(
                    np.arange(4 * place + 3, len(self.tokens), 4 * len(common), dtype=np.int32)
                )
            )
        found = np.flatnonzero(self.name_sizes == len(wanted))
        found = found[self._named(found, wanted)]
        owners = np.searchsorted(self.first_pairs, found, side="right") - 1
        pairs = np.full(self.message_count, -1, np.int32)
        pairs[owners] = found  # Of a repeated owner numpy keeps the last.
        return self.tokens.take(number_array(pairs * 4 + 3, pairs < 0))

    def _named(self, pairs: Any, wanted: bytes) -> Any:
        """Return which of these pairs have this name; their names must have its length."""
        starts = self.name_starts[pairs]
        holds = np.ones(len(pairs), bool)
        for at, piece in _pieces(wanted):
            holds &= items_at_every_byte(self.text, piece.dtype)[starts + at] == piece
        return holds

    def maps(self) -> Any:
        """Return the properties of each message as maps."""
        if common := self.common_names:
            return self._maps_of(common)
        names = self._names()
        first_pairs = self.first_pairs
        kept = self._last_of_each_name(names)
        if kept is None:
            picked = np.arange(3, len(self.tokens), 4, dtype=np.int32)
        else:
            names = names.take(number_array(kept))
            picked = kept * 4 + 3
            first_pairs = np.searchsorted(kept, first_pairs).astype(np.int32)
        values = self.tokens.take(number_array(picked))
        return pa.MapArray.from_arrays(number_array(first_pairs), names, values)

    def _maps_of(self, common: tuple[bytes, ...]) -> Any:
        """Return the maps of messages that all have these names; of a repeated name the last value counts."""
        messages = self.message_count
        places = sorted({name: place for place, name in enumerate(common)}.values())
        rows = np.arange(0, len(self.name_sizes), len(common), dtype=np.int32)
        picked = (rows[:, None] + np.array(places, np.int32)).ravel() * 4 + 3
        values = self.tokens.take(number_array(picked))
        names = repeated([common[place].decode() for place in places], messages)
        first_pairs = np.arange(0, len(picked) + 1, len(places), dtype=np.int32)
        return pa.MapArray.from_arrays(number_array(first_pairs), names, values)

    def _last_of_each_name(self, names: Any) -> Int32s | None:
        """Return the pairs that count if some message repeats a name; None if none does."""
        count = len(names)
        encoded = names.dictionary_encode()
        codes: Int64s = _int32s(encoded.indices)[:count].astype(np.int64)
        owners = np.repeat(np.arange(self.message_count), np.diff(self.first_pairs))
        if len(encoded.dictionary) <= _MASK_CODES:
            bits = np.int64(1) << codes
            starts = self.first_pairs[:-1][np.diff(self.first_pairs) > 0]
            if (
                not count
                or (np.add.reduceat(bits, starts) == np.bitwise_or.reduceat(bits, starts)).all()
            ):
                return None
        labels = owners * len(encoded.dictionary) + codes
        # The first in reversed order is the last of the pairs.
        _, from_end = np.unique(labels[::-1], return_index=True)
        return None if len(from_end) == count else np.sort(count - 1 - from_end).astype(np.int32)


def _pieces(wanted: bytes) -> list[tuple[int, Any]]:
    """Cut the bytes to find into numbers of 8, 4, 2 and 1 bytes, each with its position."""
    pieces: list[tuple[int, Any]] = []
    at = 0
    for size in (8, 4, 2, 1):
        while len(wanted) - at >= size:
            pieces.append((at, np.frombuffer(wanted, f"u{size}", 1, at)[0]))
            at += size
    return pieces


def split_properties(chunk: Any, starts: Int64s, sizes: Int64s) -> PropertyBlock:
    """Find every name and value of the property strings at these positions of `chunk`."""
    given = sizes > 0
    # The byte before a string, the low byte of its length, makes room for a separator.
    trailing = given & (np.frombuffer(chunk, np.uint8)[starts + sizes - 1] == 2)
    run = gather(chunk, starts - given, sizes + given - trailing, pa.binary())
    offsets = _int32s(run)
    text: Bytes = np.frombuffer(run.buffers()[2] or b"", np.uint8)[: offsets[-1]].copy()
    text[offsets[:-1][given]] = 2
    width = len(text) // max(len(sizes), 1)
    alike = _separators_alike(text, offsets, width)
    separators = np.flatnonzero(text <= 2).astype(np.int32) if alike is None else alike
    if len(separators) % 2:
        raise UnusualPropertiesError
    opening, middle = separators[0::2], separators[1::2]
    # If all strings have the same separators, checking the first is enough.
    checked = slice(None) if alike is None else slice(len(separators) // 2 // len(sizes))
    if (text[opening[checked]] != 2).any() or (text[middle[checked]] != 1).any():
        raise UnusualPropertiesError
    name_sizes = middle - opening - 1
    closing = np.append(opening[1:], np.int32(len(text)))
    if (name_sizes <= 0).any() or (closing - middle <= 1).any():
        raise UnusualPropertiesError
    if alike is None:
        first_pairs = np.searchsorted(opening, offsets).astype(np.int32)
    else:
        first_pairs = np.arange(0, len(opening) + 1, len(opening) // len(sizes), dtype=np.int32)
    return PropertyBlock(
        text=text,
        tokens=_tokens(text, separators),
        name_starts=opening + 1,
        name_sizes=name_sizes,
        first_pairs=first_pairs,
    )


def _separators_alike(text: Bytes, offsets: Int32s, width: int) -> Int32s | None:
    """Return the positions of 0x01 and 0x02 if they are the same in each string, in a third of the time of a search."""
    count = len(offsets) - 1
    if not width or width * count != len(text) or (np.diff(offsets) != width).any():
        return None
    marks = text | -(text > 2).view(np.uint8)  # 255 for other bytes than separators
    if (marks[width:] != marks[:-width]).any():
        return None
    first = np.flatnonzero(marks[:width] <= 2).astype(np.int32)
    if len(first) % 2:
        return None
    rows = np.arange(0, len(text), width, dtype=np.int32)
    separators: Int32s = (rows[:, None] + first).ravel()
    return separators


def _tokens(text: Bytes, separators: Int32s) -> Any:
    offsets = np.empty(2 * len(separators) + 1, np.int32)
    offsets[0:-1:2] = separators
    offsets[1::2] = separators + 1
    offsets[-1] = len(text)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    tokens = pa.Array.from_buffers(pa.binary(), 2 * len(separators), buffers)
    if len(text) and text.max() >= 0x80:
        return as_text(tokens)
    return pa.Array.from_buffers(pa.string(), 2 * len(separators), buffers)
