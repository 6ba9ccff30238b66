"""The body of REGISTER_BROKER (103): JSON, or compressed.

    zlib( i32 n, DataVersion JSON   i32 topic count
          per topic  i32 n, `name readQueueNums writeQueueNums perm filterType`
          i32 n, JSON list of filter servers )

The compressed form loses `order`, `topicSysFlag` and attributes: 5.x adds the attributes to the line, but a name
server of 4.x cannot read such a line, and none uses them. A broker older than 3.0.11 sends the table of topics alone.

Answers to: RegisterBrokerBody; RocketMQ reference, section 2.12.
"""

import struct
import zlib
from typing import Final

from rocketrio_protocol import fastjson
from rocketrio_protocol.compression import CompressionType, decompress
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.topic_config import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    with_mappings,
)

VERSION_3_0_11: Final = 37
_LEVEL: Final = 9
_SIZE: Final = struct.Struct(">i")


def body_crc32(body: Body) -> int:
    """The checksum in the header; 0 there means that nothing was checked."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode_register_body(body: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """The bytes to send."""
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
    """Read the body of a broker of protocol version `version`. Raises RemoteProtocolError."""
    if not data:
        return RegisterBrokerBody(TopicConfigSerializeWrapper())
    if version < VERSION_3_0_11:
        wrapper = fastjson.loads(data, TopicConfigSerializeWrapper, what="table of topics")
        return RegisterBrokerBody(wrapper)
    if not compressed:
        return fastjson.loads(data, RegisterBrokerBody, what="registration")
    return _Reader(decompress(bytes(data), CompressionType.ZLIB)).read()


def _topic_line(topic: TopicConfig) -> bytes:
    queues = f"{topic.read_queue_nums} {topic.write_queue_nums}"
    return f"{topic.topic_name} {queues} {topic.perm} {topic.topic_filter_type}".encode()


class _Reader:
    """Reads the inflated form from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self) -> RegisterBrokerBody:
        version = fastjson.loads(self._part(), DataVersion, what="DataVersion")
        count = self._number()
        table = {}
        for _ in range(count):
            topic = self._topic()
            table[topic.topic_name] = topic
        filter_servers = fastjson.loads(self._part(), list[str], what="list of filter servers")
        return RegisterBrokerBody(TopicConfigSerializeWrapper(version, table), filter_servers)

    def _topic(self) -> TopicConfig:
        words = self._part().decode(errors="replace").split(" ", 5)
        try:
            name, read_queues, write_queues, perm, filter_type = words[:5]
            return TopicConfig(name, int(read_queues), int(write_queues), int(perm), filter_type)
        except ValueError:
            raise RemoteProtocolError(
                f"A topic of a compressed registration reads {' '.join(words)!r}"
            ) from None

    def _number(self) -> int:
        if self._at + _SIZE.size > len(self._data):
            raise RemoteProtocolError("A compressed registration is cut off")
        (number,) = _SIZE.unpack_from(self._data, self._at)
        self._at += _SIZE.size
        return int(number)

    def _part(self) -> bytes:
        size = self._number()
        if size < 0 or self._at + size > len(self._data):
            raise RemoteProtocolError(
                f"A compressed registration claims a part of {size} bytes and is cut off"
            )
        part = self._data[self._at : self._at + size]
        self._at += size
        return part
