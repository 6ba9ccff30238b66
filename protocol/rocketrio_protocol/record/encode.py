"""Encodes stored records, one or many at a time; `layout` describes a record.

Invariant: the lengths of the hosts determine the IPv6 bits of sysFlag, not the caller's flag.
Answers to: CommitLog's appender.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final
from zlib import crc32

import attrs

from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.record.layout import (
    BEFORE_BODY,
    BORN_HOST_IPV6,
    HEAD_FORMATS,
    HEAD_OFFSETS,
    HOSTS_IPV6_MASK,
    IPV4_HOST_SIZE,
    IPV6_HOST_SIZE,
    MAGIC_PADDING,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_SIZE_V1,
    MAX_TOPIC_SIZE_V2,
    PADDING_HEAD_SIZE,
    RECORD_OVERHEAD,
    SIZE_AND_MAGIC,
    STORE_HOST_IPV6,
    head_structs,
)
from rocketrio_protocol.record.properties import MAX_PROPERTIES_SIZE

_HEADS: Final = head_structs(*HEAD_FORMATS)
# Records of a batch share the bytes from sysFlag to the body's length: they are packed once, and are one field here.
_SHARED_START: Final = HEAD_OFFSETS["sys_flag"]
_BODY_SIZE_SIZE: Final = BEFORE_BODY["body_size"]
_BEFORE_SHARED: Final = "".join(
    field for name, field in HEAD_FORMATS.items() if HEAD_OFFSETS[name] < _SHARED_START
)
_NOTHING_BEFORE_SHARED: Final = (0,) * len(_BEFORE_SHARED)
_BATCH_HEADS: Final = {
    hosts: Struct(
        f">{_BEFORE_SHARED}{head.size - _SHARED_START - BEFORE_BODY['body_size']}s{HEAD_FORMATS['body_size']}"
    )
    for hosts, head in _HEADS.items()
}
_SHAPE_CACHE_SIZE: Final = 1024  # Topics in use at once; a topic that is not cached costs 2 us.
_TWO_BYTES: Final = Struct(">h")
_pack_size: Final = _TWO_BYTES.pack
_ONE_BYTE: Final = tuple(bytes((number,)) for number in range(MAX_TOPIC_SIZE_V1 + 1))


def record_size(
    body_size: int,
    topic_size: int,
    properties_size: int,
    born_host_size: int = IPV4_HOST_SIZE,
    store_host_size: int = IPV4_HOST_SIZE,
) -> int:
    """Return the size of the record that `encode_record` makes."""
    hosts = born_host_size + store_host_size - 2 * IPV4_HOST_SIZE
    version = 0 if topic_size <= MAX_TOPIC_SIZE_V1 else 1
    return RECORD_OVERHEAD + version + hosts + body_size + topic_size + properties_size


@attrs.frozen
class RecordShape:
    """The parts that all records of one topic share, for hosts of given lengths; `record_shape` creates it."""

    magic: int
    topic: bytes
    """The encoded topic, after its length."""
    overhead: int
    """Bytes of a record beyond its body and properties."""
    host_bits: int
    """The bits of sysFlag that the hosts determine."""
    _pack_head: Callable[..., bytes]
    _pack_batch_head: Callable[..., bytes]

    def record(
        self,
        queue_id: int,
        flag: int,
        queue_offset: int,
        physical_offset: int,
        sys_flag: int,
        born_time_ms: int,
        born_host: bytes,
        store_time_ms: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes | memoryview,
        properties: bytes | memoryview,
        body_crc: int | None = None,
    ) -> bytes:
        """Encode one record. The caller has checked the length of the properties."""
        body_size, properties_size = len(body), len(properties)
        head = self._pack_head(
            self.overhead + body_size + properties_size,
            self.magic,
            crc32(body) & 0x7FFFFFFF if body_crc is None else body_crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            # By the lengths that are written: readers find all later fields by these bits.
            sys_flag & ~HOSTS_IPV6_MASK | self.host_bits,
            born_time_ms,
            born_host,
            store_time_ms,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body_size,
        )
        return b"".join((head, body, self.topic, _pack_size(properties_size), properties))

    def records(
        self,
        entries: Sequence[tuple[int, bytes, bytes]],
        *,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        sys_flag: int,
        born_time_ms: int,
        born_host: bytes,
        store_time_ms: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
    ) -> bytes:
        """Encode (flag, body, properties) entries as consecutive records, the first of them at these two offsets.

        The result is that of `record` for each entry, in half the time. The caller has checked the properties' lengths.
        """
        sys_flag = sys_flag & ~HOSTS_IPV6_MASK | self.host_bits
        shared = self._pack_head(
            *_NOTHING_BEFORE_SHARED,
            sys_flag,
            born_time_ms,
            born_host,
            store_time_ms,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            0,
        )[_SHARED_START:-_BODY_SIZE_SIZE]
        overhead, magic, topic, pack = self.overhead, self.magic, self.topic, self._pack_batch_head
        parts: list[bytes] = []
        middles: dict[int, bytes] = {}  # What stands between body and properties, by their length.
        for flag, body, properties in entries:
            body_size, properties_size = len(body), len(properties)
            size = overhead + body_size + properties_size
            crc = crc32(body) & 0x7FFFFFFF
            middle = middles.get(properties_size)
            if middle is None:
                middle = middles[properties_size] = topic + _pack_size(properties_size)
            parts += (
                pack(
                    size,
                    magic,
                    crc,
                    queue_id,
                    flag,
                    queue_offset,
                    physical_offset,
                    shared,
                    body_size,
                ),
                body,
                middle,
                properties,
            )
            queue_offset += 1
            physical_offset += size
        return b"".join(parts)


@lru_cache(_SHAPE_CACHE_SIZE)
def record_shape(
    topic: bytes, born_host_size: int = IPV4_HOST_SIZE, store_host_size: int = IPV4_HOST_SIZE
) -> RecordShape:
    """Return the shape of a topic's records. Raises LocalProtocolError for an invalid length of topic or host."""
    host_bits = _host_bits(born_host_size, store_host_size)
    magic, topic_length = _version(len(topic))
    return RecordShape(
        magic,
        topic_length + topic,
        record_size(0, len(topic), 0, born_host_size, store_host_size),
        host_bits,
        _HEADS[host_bits].pack,
        _BATCH_HEADS[host_bits].pack,
    )


def encode_record(
    *,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_time_ms: int,
    born_host: bytes,
    store_time_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes | memoryview,
    topic: bytes,
    properties: bytes | memoryview,
    body_crc: int | None = None,
) -> bytes:
    """Encode one record. Hosts are packed by `pack_host`; their lengths determine the IPv6 bits of `sys_flag`."""
    if len(properties) > MAX_PROPERTIES_SIZE:
        raise LocalProtocolError(
            f"the properties have {len(properties)} bytes; {MAX_PROPERTIES_SIZE} is the limit"
        )
    return record_shape(topic, len(born_host), len(store_host)).record(
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_time_ms,
        born_host,
        store_time_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body,
        properties,
        body_crc,
    )


def _version(topic_size: int) -> tuple[int, bytes]:
    """Return the magic and the encoded length of the topic."""
    if topic_size <= MAX_TOPIC_SIZE_V1:
        return MAGIC_V1, _ONE_BYTE[topic_size]
    if topic_size <= MAX_TOPIC_SIZE_V2:
        return MAGIC_V2, _TWO_BYTES.pack(topic_size)
    raise LocalProtocolError(f"the topic has {topic_size} bytes; {MAX_TOPIC_SIZE_V2} is the limit")


def _host_bits(born_host_size: int, store_host_size: int) -> int:
    for size in (born_host_size, store_host_size):
        if size not in (IPV4_HOST_SIZE, IPV6_HOST_SIZE):
            raise LocalProtocolError(f"a packed host has 8 or 20 bytes, not {size}: use pack_host")
    return (BORN_HOST_IPV6 if born_host_size == IPV6_HOST_SIZE else 0) | (
        STORE_HOST_IPV6 if store_host_size == IPV6_HOST_SIZE else 0
    )


def encode_padding(size: int) -> bytes:
    """Encode the head of the padding for the last `size` bytes of a file; the bytes after it do not matter."""
    if size < PADDING_HEAD_SIZE:
        raise LocalProtocolError(
            f"padding needs {PADDING_HEAD_SIZE} bytes, but only {size} are left"
        )
    return SIZE_AND_MAGIC.pack(size, MAGIC_PADDING)
