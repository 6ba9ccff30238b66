"""Finds the fields of many stored messages for all rows at once, as vectors; `decode` makes columns of them.

The heads are copied as a whole, in one operation. The positions of bodies, topics and properties come from adding up
lengths, which are checked on the way. IPv6 hosts and long topics shift the fields of their rows.

Invariant: no length is used before it is known to fit in its record.
"""

from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from rocketrio_protocol.columns.properties import (
    PropertyBlock,
    UnusualPropertiesError,
    split_properties,
)
from rocketrio_protocol.columns.starts import refused
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.record.compression import InflateBudget
from rocketrio_protocol.record.layout import (
    BEFORE_BODY,
    BORN_HOST_IPV6,
    HEAD_OFFSETS,
    HEAD_SIZE,
    HOSTS_IPV6_MASK,
    IPV6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    MIN_TAIL_SIZE,
    STORE_HOST_IPV6,
)
from rocketrio_protocol.record.vectors import Int64s, heads_at, items_at_every_byte

_STORE_TIME_AT: Final = HEAD_OFFSETS["store_time"]


@attrs.define
class RecordBlock:
    """The positions of all fields in the records of one chunk."""

    chunk: bytes | bytearray | memoryview
    inflate: bool
    budget: InflateBudget
    starts: Int64s
    heads: Any
    sys_flag: npt.NDArray[np.int32]
    shifted: bool
    """True if some row has an IPv6 host, so that fields after the hosts have no fixed position."""
    after_born_host: Int64s
    body_starts: Int64s
    body_sizes: Int64s
    topic_starts: Int64s
    topic_sizes: Int64s
    properties_starts: Int64s
    properties_sizes: Int64s
    _properties: PropertyBlock | None = None
    _odd_properties: bool = False

    def read(self, kind: Any, positions: Int64s) -> Any:
        return _numbers(self.chunk, kind, positions)

    def properties(self) -> PropertyBlock | None:
        """Return the split properties, or None if this block must be decoded message by message."""
        if self._properties is None and not self._odd_properties:
            try:
                self._properties = split_properties(
                    self.chunk, self.properties_starts, self.properties_sizes
                )
            except UnusualPropertiesError:
                self._odd_properties = True
        return self._properties

    def messages(self) -> list[MessageExt]:
        return decode_messages(self.chunk)


def _numbers(chunk: Any, kind: Any, positions: Int64s) -> Any:
    return items_at_every_byte(chunk, kind)[positions].astype(np.int64)


def open_block(chunk: Any, starts: Int64s, *, inflate: bool, budget: InflateBudget) -> RecordBlock:
    heads = heads_at(chunk, starts)
    magic = heads["magic"].astype(np.int32)
    version_2 = magic == MAGIC_V2
    _require((magic == MAGIC_V1) | version_2, starts, "its magic number is not that of a message")
    ends = starts + heads["size"]
    sys_flag = heads["sys_flag"].astype(np.int32)
    shifted = bool((sys_flag & HOSTS_IPV6_MASK).any())
    after_born_host = starts + _STORE_TIME_AT
    body_sizes: Int64s = heads["body_size"].astype(np.int64)
    body_starts = starts + HEAD_SIZE
    if shifted:
        born_extra = IPV6_EXTRA * ((sys_flag & BORN_HOST_IPV6) != 0)
        store_extra = IPV6_EXTRA * ((sys_flag & STORE_HOST_IPV6) != 0)
        after_born_host = after_born_host + born_extra
        body_starts = body_starts + born_extra + store_extra
        # Each length is checked before the next one is read with it: a wrong one
        # would read another record, or beyond the chunk.
        _require(body_starts + MIN_TAIL_SIZE <= ends, starts, "its hosts do not fit")
        body_sizes = _numbers(chunk, ">i4", body_starts - BEFORE_BODY["body_size"])
    long_topics = bool(version_2.any())
    topic_starts = body_starts + body_sizes + (version_2 + 1 if long_topics else 1)
    _require((body_sizes >= 0) & (topic_starts + 2 <= ends), starts, "its body does not fit")
    topic_sizes = _numbers(chunk, "i1", topic_starts - 1)
    if long_topics:
        topic_sizes = np.where(version_2, _numbers(chunk, ">i2", topic_starts - 2), topic_sizes)
    properties_starts = topic_starts + topic_sizes + 2
    _require((topic_sizes >= 0) & (properties_starts <= ends), starts, "its topic does not fit")
    properties_sizes = _numbers(chunk, ">i2", properties_starts - 2)
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
