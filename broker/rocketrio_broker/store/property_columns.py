r"""The properties of many records at once: finds the places of single values and computes Java's hashes of them.

    text: zeros 0x02 properties 0x02 properties ... zeros     a value ends at the next 0x02, stored or inserted

Hashes of short pieces are computed from a matrix of their bytes, those of long ones from one running sum over the text:
31 has an inverse modulo 2^32, so with c[i] = sum of text[k] 31^-k for k < i the hash of text[a:b] is
(c[b] - c[a]) 31^(b-1). Java hashes UTF-16 units: text beyond ASCII is summed in those, where a value begins and ends
beside the same ASCII characters as in the bytes.

Invariant: a value found here is that of `stored_value`: if there are several, the last one that is not empty.
Invariant: a hash is that of `java_string_hash` of the text, in which U+FFFD stands for bytes that are not UTF-8.
"""

from typing import Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from rocketrio_protocol.record.properties import PAIR_SEPARATOR
from rocketrio_protocol.record.vectors import Int64s, items_at_every_byte

UInt32s: TypeAlias = npt.NDArray[np.uint32]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_SEPARATOR: Final = ord(PAIR_SEPARATOR)
_SPACE: Final = 32
_BEYOND_ASCII: Final = 0x80

_SHORT: Final = 48
"""Bytes up to which pieces are hashed by matrix: tags and unique ids; for longer ones the running sum is cheaper."""

_PAD: Final = bytes(_SHORT)
"""Zeros at both ends, so that 48 bytes can be read before the end of every piece, and eight from every name on."""

# Powers of 31 and of its inverse, 31^n = low[n % 1024] high[n // 1024]: small tables for texts of any length.
_ROW: Final = 1024
_ROWS: Final = 4096
_INVERSE: Final = pow(31, -1, 1 << 32)


def _powers(base: int, count: int) -> UInt32s:
    factors = np.full(count, base, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


_LOW: Final = _powers(31, _ROW)
_HIGH: Final = _powers(pow(31, _ROW, 1 << 32), _ROWS)
_INVERSE_LOW: Final = _powers(_INVERSE, _ROW)
_INVERSE_HIGH: Final = _powers(pow(_INVERSE, _ROW, 1 << 32), _ROWS)[:, None]
_FALLING: Final = _LOW[:_SHORT][::-1].copy()

MAX_TEXT_SIZE: Final = _ROW * _ROWS - 2 * len(_PAD)
"""Bytes of properties that one block can hold: 4 MiB, much more than a stretch of the log has."""


def power_of_31(exponents: Int64s) -> UInt32s:
    """Return 31 to these powers, modulo 2^32."""
    power: UInt32s = _LOW[exponents % _ROW] * _HIGH[exponents // _ROW]
    return power


@attrs.define
class ValuePlaces:
    """The places of one property's values in the text."""

    owners: Int64s
    """The record of each value, in rising order."""
    starts: Int64s
    ends: Int64s


class PropertyColumns:
    """The properties of one stretch of records."""

    def __init__(self, gathered: bytes, sizes: Int64s) -> None:
        """Use `gathered`, the properties of each record after one arbitrary byte each; `sizes` count that byte too."""
        assert len(gathered) <= MAX_TEXT_SIZE
        self._sizes = sizes
        self.ends: Int64s = np.cumsum(sizes) + len(_PAD)
        self.offsets: Int64s = self.ends - sizes
        """Where the byte before each record's properties is in the text."""
        self._text = bytearray(b"").join((_PAD, gathered, _PAD))
        self._numbers: Bytes = np.frombuffer(self._text, np.uint8)
        # A value ends at the next separator: without these the last value
        # of a record would run on into the next record.
        self._numbers[self.offsets] = _SEPARATOR
        openings = np.flatnonzero(self._numbers == _SEPARATOR)
        self._closings = np.empty_like(openings)
        self._closings[:-1] = openings[1:]
        self._closings[-1] = len(_PAD) + len(gathered)
        self._names: Int64s = openings + 1
        self._heads: UInt64s = items_at_every_byte(self._text, "<u8")[self._names]
        self._is_ascii = self._text.isascii()
        self._sums: UInt32s | None = None
        self._ascii_at: tuple[Int64s, Int64s] | None = None

    def first(self, count: int) -> "PropertyColumns":
        """Return the properties of the first `count` records, at least one."""
        end = int(self.ends[count - 1])
        return PropertyColumns(self.piece(len(_PAD), end), self._sizes[:count])

    def stored(self, row: int) -> bytes:
        """Return the properties of one record as they are stored."""
        return bytes(self._text[int(self.offsets[row]) + 1 : int(self.ends[row])])

    def piece(self, start: int, end: int) -> bytes:
        """Return a piece of the text."""
        return bytes(self._text[start:end])

    def rows_with_zeros(self) -> list[int]:
        """Return the records with a zero byte in their properties."""
        start, end = len(_PAD), len(self._text) - len(_PAD)
        if self._text.find(0, start, end) < 0:
            return []
        zeros = np.flatnonzero(self._numbers[start:end] == 0) + start
        rows: list[int] = np.unique(self._owners(zeros)).tolist()
        return rows

    def values(self, label: bytes) -> ValuePlaces:
        """Find the value of a property in the records that have it; `label` ends with its 0x01."""
        bits = 8 * min(len(label), 8)
        head = int.from_bytes(label[:8], "little")
        found = np.flatnonzero(self._heads << np.uint64(64 - bits) == head << 64 - bits)
        names = self._names[found]
        for at in range(8, len(label)):
            is_name = self._numbers[names + at] == label[at]
            found, names = found[is_name], names[is_name]
        starts, ends = names + len(label), self._closings[found]
        filled = ends > starts
        if not filled.all():
            starts, ends = starts[filled], ends[filled]
        owners = self._owners(starts)
        # Of several with one name the last counts, as for `stored_value`.
        repeated = owners[1:] == owners[:-1]
        if repeated.any():
            last = np.append(~repeated, True)
            owners, starts, ends = owners[last], starts[last], ends[last]
        return ValuePlaces(owners, starts, ends)

    def words(self, values: ValuePlaces) -> ValuePlaces:
        """Split the values at spaces; drop empty pieces."""
        if self._text.find(b" ") >= 0 and len(values.starts):
            spaces = np.flatnonzero(self._numbers == _SPACE)
            around = np.searchsorted(values.starts, spaces, side="right") - 1
            spaces = spaces[(around >= 0) & (spaces < values.ends[around])]
            starts = np.sort(np.concatenate((values.starts, spaces + 1)))
            ends = np.sort(np.concatenate((values.ends, spaces)))
            filled = ends > starts
            starts, ends = starts[filled], ends[filled]
            return ValuePlaces(self._owners(starts), starts, ends)
        return values

    def hashes(self, values: ValuePlaces) -> UInt32s:
        """Return Java's hash of each value, modulo 2^32."""
        starts, ends = self._in_units(values)
        sizes = ends - starts
        if not len(sizes):
            return np.empty(0, np.uint32)
        longest = int(sizes.max())
        if longest <= _SHORT and self._is_ascii:
            return self._short_hashes(ends, sizes, longest)
        sums = self._running_sums()
        return (sums[ends] - sums[starts]) * power_of_31(ends - 1)

    def lengths(self, values: ValuePlaces) -> Int64s:
        """Return the length of each value in Java, in UTF-16 units."""
        starts, ends = self._in_units(values)
        return ends - starts

    def _in_units(self, values: ValuePlaces) -> tuple[Int64s, Int64s]:
        """Return where the values start and end among the UTF-16 units of the text."""
        if self._is_ascii:
            return values.starts, values.ends
        if self._ascii_at is None:
            self._ascii_at = (
                np.flatnonzero(self._numbers < _BEYOND_ASCII),
                np.flatnonzero(self._units() < _BEYOND_ASCII),
            )
        # The byte before each value, and the one behind it, are a separator, a space or a zero. Whatever stands between
        # two ASCII characters, and however broken, there are as many of them in the bytes as in the units.
        of_bytes, of_units = self._ascii_at
        before, behind = (np.searchsorted(of_bytes, at) for at in (values.starts - 1, values.ends))
        return of_units[before] + 1, of_units[behind]

    def _units(self) -> npt.NDArray[np.uint16]:
        return np.frombuffer(self._text.decode("utf-8", "replace").encode("utf-16-le"), "<u2")

    def _short_hashes(self, ends: Int64s, sizes: Int64s, longest: int) -> UInt32s:
        # One row per piece, right-aligned; bytes before a shorter piece count as zero.
        rows = items_at_every_byte(self._text, f"V{longest}")[ends - longest].view(np.uint8)
        matrix = rows.reshape(-1, longest)
        if not (sizes == longest).all():
            matrix = matrix * (np.arange(longest) >= longest - sizes[:, None])
        powers = _FALLING[_SHORT - longest :]
        hashes: UInt32s = np.einsum("ij,j->i", matrix.astype(np.uint32), powers)
        return hashes

    def _running_sums(self) -> UInt32s:
        """Return c of the formula above, computed on the first call."""
        if self._sums is None:
            units = self._numbers if self._is_ascii else self._units()
            rows = -(-len(units) // _ROW)
            terms = np.zeros((rows, _ROW), np.uint32)
            terms.reshape(-1)[: len(units)] = units
            terms *= _INVERSE_LOW
            terms *= _INVERSE_HIGH[:rows]
            self._sums = np.empty(rows * _ROW + 1, np.uint32)
            self._sums[0] = 0
            np.cumsum(terms.reshape(-1), dtype=np.uint32, out=self._sums[1:])
        return self._sums

    def _owners(self, positions: Int64s) -> Int64s:
        owners: Int64s = np.searchsorted(self.offsets, positions, side="right") - 1
        return owners
