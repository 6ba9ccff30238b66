"""The body of REGISTER_BROKER (103): JSON, or compressed.

    zlib( i32 n, DataVersion JSON   i32 topic count
          per topic  i32 n, `name readQueueNums writeQueueNums perm filterType`
          i32 n, JSON list of filter servers )

The compressed form loses `order`, `topicSysFlag` and attributes: 5.x adds the attributes to the line, but a name
server of 4.x cannot read such a line, and none uses them. A broker older than 3.0.11 sends the table of topics alone.

Invariant: nothing exceeds INFLATED_SIZE_LIMIT or TOPICS_LIMIT, whatever the bytes claim.
Invariant: each step of `read_register_body` takes at most some 30 ms, even for the largest body of a frame.
Answers to: RegisterBrokerBody; RocketMQ reference, section 2.12.
"""

import struct
import zlib
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Final

import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    with_mappings,
)
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.record.compression import CompressionType, decompress
from rocketrio_protocol.steps import all_at_once

VERSION_3_0_11: Final = 37

INFLATED_SIZE_LIMIT: Final = 16 << 20
"""Bytes of a decompressed registration: the limit of a frame without compression."""

INFLATION_LIMIT: Final = 64
"""The limit of the ratio of decompression; lines of topics grow some twenty times."""

TOPICS_LIMIT: Final = 100_000
"""Topics of one registration."""

TOPIC_SIZE_LIMIT: Final = 16 << 10
"""Bytes of one topic; without attributes it has some 150."""

_SLICE: Final = 2_000
"""Topics that one step decodes."""
_LEVEL: Final = 9
_SIZE: Final = struct.Struct(">i")


class RegisterBrokerBody(msgspec.Struct, rename="camel"):
    """The body of a registration."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper
    filter_server_list: list[str] = []


class _Wrapper(msgspec.Struct, rename="camel"):
    """Like TopicConfigSerializeWrapper, but its topics are decoded later, in steps."""

    data_version: DataVersion | None = None
    topic_config_table: dict[str, msgspec.Raw] | None = None


class _Body(msgspec.Struct, rename="camel"):
    topic_config_serialize_wrapper: _Wrapper
    filter_server_list: list[str] | None = None


def body_crc32(body: Body) -> int:
    """Return the checksum for the header, where 0 means that there is none."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode_register_body(body: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """Encode a registration."""
    wrapper = body.topic_config_serialize_wrapper
    if not compressed:
        return fastjson.dumps(RegisterBrokerBody(with_mappings(wrapper), body.filter_server_list))
    parts = [
        fastjson.dumps(wrapper.data_version),
        *(_topic_line(topic) for topic in wrapper.topic_config_table.values()),
        fastjson.dumps(body.filter_server_list),
    ]
    pieces = [_SIZE.pack(len(part)) + part for part in parts]
    pieces.insert(1, _SIZE.pack(len(parts) - 2))
    return zlib.compress(b"".join(pieces), _LEVEL)


def decode_register_body(
    data: Body, *, compressed: bool = False, version: int
) -> RegisterBrokerBody:
    """Decode the body of a broker of protocol version `version`. Raises RemoteProtocolError."""
    return all_at_once(read_register_body(data, compressed=compressed, version=version))


def read_register_body(
    data: Body,
    *,
    compressed: bool = False,
    version: int,
    is_wanted: Callable[[DataVersion], bool] = lambda _: True,
) -> Generator[None, None, RegisterBrokerBody]:
    """Decode a body in steps, one each time the generator continues.

    The topics are omitted if their version is not wanted.
    """
    if not data:
        return RegisterBrokerBody(TopicConfigSerializeWrapper())
    if compressed and version >= VERSION_3_0_11:
        limit = min(INFLATED_SIZE_LIMIT, len(data) * INFLATION_LIMIT)
        inflated = decompress(bytes(data), CompressionType.ZLIB, max_size=limit)
        yield
        return (yield from _Reader(inflated).read(is_wanted))
    if version < VERSION_3_0_11:
        what = "table of topics"
        wrapper = fastjson.loads_bounded(data, _Wrapper, what=what, size_limit=None)
        servers = None
    else:
        body = fastjson.loads_bounded(data, _Body, what="registration", size_limit=None)
        wrapper, servers = body.topic_config_serialize_wrapper, body.filter_server_list
    data_version = wrapper.data_version or DataVersion()
    raw = wrapper.topic_config_table or {}
    _check_count(len(raw))
    topics: dict[str, TopicConfig] = {}
    if is_wanted(data_version):
        entries = iter(raw.items())
        while some := [(name, _topic(each)) for name, each in islice(entries, _SLICE)]:
            topics.update(some)
            yield
    return RegisterBrokerBody(TopicConfigSerializeWrapper(data_version, topics), servers or [])


def _topic(raw: msgspec.Raw) -> TopicConfig:
    data = bytes(raw)
    if len(data) > TOPIC_SIZE_LIMIT:
        raise RemoteProtocolError(
            f"A topic of a registration takes {len(data)} bytes, more than {TOPIC_SIZE_LIMIT}"
        )
    return fastjson.loads(data, TopicConfig, what="topic of a registration")


def _check_count(count: int) -> None:
    if count > TOPICS_LIMIT:
        raise RemoteProtocolError(f"A registration has {count} topics, more than {TOPICS_LIMIT}")


def _topic_line(topic: TopicConfig) -> bytes:
    queues = f"{topic.read_queue_nums} {topic.write_queue_nums}"
    return f"{topic.topic_name} {queues} {topic.perm} {topic.topic_filter_type}".encode()


class _Reader:
    """Reads the decompressed form from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(
        self, is_wanted: Callable[[DataVersion], bool]
    ) -> Generator[None, None, RegisterBrokerBody]:
        version = fastjson.loads(self._small_part(), DataVersion, what="DataVersion")
        count = self._number()
        _check_count(count)
        wanted = is_wanted(version)
        table: dict[str, TopicConfig] = {}
        for start in range(0, count, _SLICE):
            lines = [self._small_part() for _ in range(min(_SLICE, count - start))]
            if wanted:
                table.update(_by_name(map(_topic_of_line, lines)))
            yield
        filter_servers = fastjson.loads(
            self._small_part(), list[str], what="list of filter servers"
        )
        return RegisterBrokerBody(TopicConfigSerializeWrapper(version, table), filter_servers)

    def _number(self) -> int:
        if self._at + _SIZE.size > len(self._data):
            raise RemoteProtocolError("A compressed registration is truncated")
        (number,) = _SIZE.unpack_from(self._data, self._at)
        self._at += _SIZE.size
        return int(number)

    def _small_part(self) -> bytes:
        size = self._number()
        if not 0 <= size <= TOPIC_SIZE_LIMIT or self._at + size > len(self._data):
            raise RemoteProtocolError(
                f"A compressed registration claims a part of {size} bytes, and is truncated or has too large a part "
                f"(more than {TOPIC_SIZE_LIMIT} bytes)"
            )
        part = self._data[self._at : self._at + size]
        self._at += size
        return part


def _by_name(topics: Iterable[TopicConfig]) -> Iterable[tuple[str, TopicConfig]]:
    return ((topic.topic_name, topic) for topic in topics)


def _topic_of_line(line: bytes) -> TopicConfig:
    words = line.decode(errors="replace").split(" ", 5)
    try:
        name, read_queues, write_queues, perm, filter_type = words[:5]
        return TopicConfig(name, int(read_queues), int(write_queues), int(perm), filter_type)
    except ValueError:
        raise RemoteProtocolError(
            f"A topic of a compressed registration has the invalid line {' '.join(words)[:200]!r}"
        ) from None
