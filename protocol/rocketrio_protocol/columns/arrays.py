"""Creates Arrow arrays of numbers, strings and maps from buffers.

`pa.array` and `pa.scalar` are not used: their first call imports pandas if it is installed, which costs a third of a
second and 40 MiB in each process, such as every worker of a Spark cluster.

Invariant: an array equals the one that `pa.array` creates from the same values and type.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketrio_protocol.errors import LocalProtocolError

MAX_BYTES: Final = 2**31 - 1
"""The largest offset of an array of strings."""

_TYPES: Final = {
    np.dtype(np.int32): pa.int32(),
    np.dtype(np.int64): pa.int64(),
}


def number_array(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None) -> Any:
    """Create an array of 32-bit or 64-bit integers; null where `missing` is true."""
    validity = None if missing is None else _validity(missing)
    kind = _TYPES[values.dtype]
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def text_array(values: Sequence[str | bytes | None], kind: Any) -> Any:
    """Create an array of strings or binaries; None is null. Raises LocalProtocolError above 2 GiB."""
    pieces = [value.encode() if isinstance(value, str) else value or b"" for value in values]
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    # Arrow's offsets have 32 bits: more bytes would wrap around to wrong places.
    if offsets[-1] > MAX_BYTES:
        raise LocalProtocolError(
            f"{offsets[-1]} bytes are too many for one column; decode smaller chunks"
        )
    missing = np.fromiter((value is None for value in values), bool, len(pieces))
    buffers = [
        _validity(missing) if missing.any() else None,
        pa.py_buffer(offsets.astype(np.int32)),
        pa.py_buffer(b"".join(pieces)),
    ]
    return pa.Array.from_buffers(kind, len(pieces), buffers)


def map_array(rows: Sequence[Sequence[tuple[str, str]]]) -> Any:
    """Create an array of maps from strings to strings, one for the pairs of each row."""
    pairs = list(chain.from_iterable(rows))
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return pa.MapArray.from_arrays(
        number_array(offsets),
        text_array([name for name, _ in pairs], pa.string()),
        text_array([value for _, value in pairs], pa.string()),
    )


def repeated(texts: Sequence[str], times: int) -> Any:
    """Create an array that repeats the whole sequence of strings `times` times."""
    words = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, words)], dtype=np.int32)
    offsets = np.empty(len(words) * times + 1, np.int32)
    rows = np.arange(times, dtype=np.int32) * ends[-1]
    offsets[:-1] = (rows[:, None] + ends[:-1]).ravel()
    offsets[-1] = ends[-1] * times
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(words) * times)]
    return pa.Array.from_buffers(pa.string(), len(words) * times, buffers)


def runs(texts: Sequence[str], counts: Sequence[int]) -> Any:
    """Create an array that repeats each string as often as its count says."""
    if len(set(texts)) == 1:
        return repeated(texts[:1], sum(counts))
    return text_array(texts, pa.string()).take(
        number_array(np.repeat(np.arange(len(texts)), counts))
    )


def _validity(missing: npt.NDArray[np.bool_]) -> Any:
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))
