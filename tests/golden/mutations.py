"""Recorded frames with faults in them, for tests that ask what a server or client makes of damage.

A fault may be blind (bytes anywhere, lengths too) or in the header or body alone, whose lengths are then put right, so
that it gets past the framing.
"""

import struct
from typing import Literal

import attrs
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

Where = Literal["anywhere", "header", "body"]

ODD_VALUES = (
    b"null", b"true", b"{}", b"[]", b'""', b"-1", b"0.5", b"9223372036854775808",
    b'"-9223372036854775808"', b'"\\ud800"', b'"%RETRY%"', b'"' + b"x" * 300 + b'"', b"{0:1}", b'{{"a":1}:2}', b"}",
    b"\xff\xfe", b"\0",
)  # fmt: skip


@attrs.frozen
class Fault:
    """One change of some bytes, at a place between 0 and 1."""

    where: Where
    kind: Literal["flip", "cut", "insert", "end", "value"]
    place: float
    size: int
    value: bytes

    def of(self, data: bytes) -> bytes:
        """The changed bytes."""
        at = int(self.place * len(data))
        match self.kind:
            case "flip":
                return (
                    data[:at] + bytes([data[at] ^ (1 << self.size % 8)]) + data[at + 1 :]
                    if data
                    else data
                )
            case "cut":
                return data[:at] + data[at + self.size :]
            case "insert":
                return data[:at] + self.value + data[at:]
            case "end":
                return data[:at]
            case "value":
                return with_value(data, at, self.value)


def with_value(data: bytes, at: int, value: bytes) -> bytes:
    """Another value for the JSON member at or behind `at`."""
    start = data.find(b":", at) + 1
    if not start:
        return data + value
    ends = [end for end in (data.find(b",", start), data.find(b"}", start)) if end >= 0]
    return data[:start] + value + data[min(ends, default=len(data)) :]


def damaged(frame: bytes, faults: list[Fault]) -> bytes:
    """The frame with these faults, one after the other."""
    for fault in faults:
        word = struct.unpack_from(">I", frame, 4)[0] if len(frame) >= 8 else 0
        end = 8 + (word & 0xFFFFFF)
        if fault.where == "anywhere" or end > len(frame):
            frame = fault.of(frame)
            continue
        header, body = frame[8:end], frame[end:]
        if fault.where == "header":
            header = fault.of(header)
        else:
            body = fault.of(body)
        prefix = struct.pack(">iI", 4 + len(header) + len(body), word >> 24 << 24 | len(header))
        frame = prefix + header + body
    return frame


def is_whole(data: bytes) -> bool:
    """Whether these bytes end where a frame ends, as their lengths have it, or before any sense does."""
    at = 0
    while at + 4 <= len(data):
        (length,) = struct.unpack_from(">i", data, at)
        if not 4 <= length <= (16 << 20) - 4:
            return True
        at += 4 + length
    return at == len(data)


faults = st.lists(
    st.builds(
        Fault,
        st.sampled_from(["header", "header", "body", "anywhere"]),
        st.sampled_from(["value", "value", "flip", "cut", "insert", "end"]),
        st.floats(0, 1, exclude_max=True, width=32),
        st.integers(1, 40),
        st.sampled_from(ODD_VALUES) | st.binary(max_size=8),
    ),
    min_size=1,
    max_size=2,
)


def same_faults_each_run(max_examples: int) -> settings:
    """For tests whose examples are whole lives of a server or client."""
    return settings(
        max_examples=max_examples,
        derandomize=True,  # what a run finds by chance is for who looks for it, not for who lands something else
        database=None,
        phases=[Phase.generate],  # a life is too long to be lived again for every smaller fault
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
