"""Where the fields of many stored messages lie, found for all rows at once; `columns` reads them.

How: all fixed fields by one gather of whole heads; places of bodies, topics and properties by adding
up lengths, checked as they are found. IPv6 hosts and long topics shift the fields of their rows.

Invariant: no length is used before it is known to stay inside its record.
"""

from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from rocketrio_protocol.columns.properties import (
    Int64s,
    OddProperties,
    PropertyBlock,
    split_properties,
)
from rocketrio_protocol.columns.starts import refused
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.record.compression import InflateBudget
from rocketrio_protocol.record.layout import HOSTS_IPV6_MASK, MAGIC_V1, MAGIC_V2, SysFlag

_BORN_HOST_IPV6: Final = int(SysFlag.BORN_HOST_IPV6)
_STORE_HOST_IPV6: Final = int(SysFlag.STORE_HOST_IPV6)

# A record with IPv4 hosts up to its body. Taken as one opaque item a row and re-viewed: as a structured
# item numpy would copy it field by field, fourteen times slower.
_HEAD: Final = np.dtype(
    [
        ("store_size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_time", ">i8"),
        ("born_host", "V8"),
        ("store_time", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_size", ">i4"),
    ]
)


@attrs.define
class RecordBlock:
    """Where everything lies in the records of one chunk."""

    chunk: bytes | bytearray | memoryview
    inflate: bool
    budget: InflateBudget
    starts: Int64s
    heads: Any
    sys_flag: npt.NDArray[np.int32]
    shifted: bool
    """Some row has an IPv6 host, so the fields behind hosts must be read where they are."""
    after_born_host: Int64s
    body_starts: Int64s
    body_sizes: Int64s
    topic_starts: Int64s
    topic_sizes: Int64s
    properties_starts: Int64s
    properties_sizes: Int64s
    _properties: PropertyBlock | None = None
    _odd_properties: bool = False

    def read(self, kind: str, positions: Int64s) -> Any:
        return _read(self.chunk, kind, positions)

    def properties(self) -> PropertyBlock | None:
        """The split properties, or None where this block has to be decoded message by message."""
        if self._properties is None and not self._odd_properties:
            try:
                self._properties = split_properties(
                    self.chunk, self.properties_starts, self.properties_sizes
                )
            except OddProperties:
                self._odd_properties = True
        return self._properties

    def messages(self) -> list[MessageExt]:
        return decode_messages(self.chunk)


def _read(chunk: Any, kind: str, positions: Int64s) -> Any:
    dtype = np.dtype(kind)
    everywhere = np.ndarray((len(chunk) - dtype.itemsize + 1,), dtype, chunk, strides=(1,))
    return everywhere[positions].astype(np.int64)


def open_block(chunk: Any, starts: Int64s, *, inflate: bool, budget: InflateBudget) -> RecordBlock:
    opaque = np.ndarray(
        (len(chunk) - _HEAD.itemsize + 1,), f"V{_HEAD.itemsize}", chunk, strides=(1,)
    )
    heads = opaque[starts].view(_HEAD)
    magic = heads["magic"].astype(np.int32)
    version_2 = magic == MAGIC_V2
    _require((magic == MAGIC_V1) | version_2, starts, "its magic is that of no message")
    ends = starts + heads["store_size"]
    sys_flag = heads["sys_flag"].astype(np.int32)
    shifted = bool((sys_flag & HOSTS_IPV6_MASK).any())
    after_born_host = starts + 56
    body_sizes: Int64s = heads["body_size"].astype(np.int64)
    body_starts = starts + 88
    if shifted:
        after_born_host = after_born_host + 12 * ((sys_flag & _BORN_HOST_IPV6) != 0)
        body_starts = after_born_host + 32 + 12 * ((sys_flag & _STORE_HOST_IPV6) != 0)
        _require(body_starts + 3 <= ends, starts, "its hosts do not fit")
        body_sizes = _read(chunk, ">i4", body_starts - 4)
    long_topics = bool(version_2.any())
    topic_starts = body_starts + body_sizes + (version_2 + 1 if long_topics else 1)
    _require((body_sizes >= 0) & (topic_starts + 2 <= ends), starts, "its body does not fit")
    topic_sizes = _read(chunk, "i1", topic_starts - 1)
    if long_topics:
        topic_sizes = np.where(version_2, _read(chunk, ">i2", topic_starts - 2), topic_sizes)
    properties_starts = topic_starts + topic_sizes + 2
    _require((topic_sizes >= 0) & (properties_starts <= ends), starts, "its topic does not fit")
    properties_sizes = _read(chunk, ">i2", properties_starts - 2)
    fits = (properties_sizes >= 0) & (properties_starts + properties_sizes <= ends)
    _require(fits, starts, "its properties do not fit")
    return RecordBlock(
        chunk=chunk,
        inflate=inflate,
        budget=budget,
        starts=starts,
        heads=heads,
        sys_flag=sys_flag,
        shifted=shifted,
        after_born_host=after_born_host,
        body_starts=body_starts,
        body_sizes=body_sizes,
        topic_starts=topic_starts,
        topic_sizes=topic_sizes,
        properties_starts=properties_starts,
        properties_sizes=properties_sizes,
    )


def _require(holds: Any, starts: Int64s, why: str) -> None:
    if not holds.all():
        raise refused(int(starts[np.argmin(holds)]), why)
