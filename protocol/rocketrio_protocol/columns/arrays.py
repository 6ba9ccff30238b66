"""Arrow arrays from numbers, texts and maps, put together from buffers.

Why not `pa.array` and `pa.scalar`: the first call of either imports pandas wherever it is installed, a third of a
second and 40 MiB in each process that only wanted a column, and every worker of a Spark cluster is one.

Invariant: an array here equals what `pa.array` makes of the same values and type.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketrio_protocol.errors import LocalProtocolError

MAX_BYTES: Final = 2**31 - 1
"""What the offsets of one array of strings can reach."""

_TYPES: Final = {
    np.dtype(np.int32): pa.int32(),
    np.dtype(np.int64): pa.int64(),
}


def number_array(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None) -> Any:
    """Whole numbers of 32 or 64 bits; null where `missing` is true."""
    validity = None if missing is None else _validity(missing)
    kind = _TYPES[values.dtype]
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def text_array(values: Sequence[str | bytes | None], kind: Any) -> Any:
    """Texts as an array of strings, or bytes as one of binary; None is null. LocalProtocolError beyond 2 GiB."""
    pieces = [value.encode() if isinstance(value, str) else value or b"" for value in values]
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    if offsets[-1] > MAX_BYTES:
        raise LocalProtocolError(
            f"{offsets[-1]} bytes are too many for one column; give smaller chunks"
        )
    missing = np.fromiter((value is None for value in values), bool, len(pieces))
    buffers = [
        _validity(missing) if missing.any() else None,
        pa.py_buffer(offsets.astype(np.int32)),
        pa.py_buffer(b"".join(pieces)),
    ]
    return pa.Array.from_buffers(kind, len(pieces), buffers)


def map_array(rows: Sequence[Sequence[tuple[str, str]]]) -> Any:
    """One map of strings for each row's pairs."""
    pairs = list(chain.from_iterable(rows))
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return pa.MapArray.from_arrays(
        number_array(offsets),
        text_array([name for name, _ in pairs], pa.string()),
        text_array([value for _, value in pairs], pa.string()),
    )


def repeated(texts: Sequence[str], times: int) -> Any:
    """These texts as strings, `times` times one after the other."""
    words = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, words)], dtype=np.int32)
    offsets = np.empty(len(words) * times + 1, np.int32)
    rows = np.arange(times, dtype=np.int32) * ends[-1]
    offsets[:-1] = (rows[:, None] + ends[:-1]).ravel()
    offsets[-1] = ends[-1] * times
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(words) * times)]
    return pa.Array.from_buffers(pa.string(), len(words) * times, buffers)


def runs(texts: Sequence[str], counts: Sequence[int]) -> Any:
    """Each of these texts as often as its count says, one after the other."""
    if len(set(texts)) == 1:
        return repeated(texts[:1], sum(counts))
    return text_array(texts, pa.string()).take(
        number_array(np.repeat(np.arange(len(texts)), counts))
    )


def _validity(missing: npt.NDArray[np.bool_]) -> Any:
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))
