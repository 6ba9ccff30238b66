"""Whatever a stranger sends, reading it takes time in proportion to its size: one slow text would stop everybody."""

import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from rocketrio_broker.processors.stored_properties import stored_properties
from rocketrio_broker.processors.tag_expression import tags_codes
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import HeartbeatData
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.bodies.registration import decode_register_body
from rocketrio_protocol.codes import SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import Error
from rocketrio_protocol.filter.sql92 import compile_sql92
from rocketrio_protocol.frame import Frame, FrameDecoder
from rocketrio_protocol.header_codec import decode_header
from rocketrio_protocol.message import decode_messages
from rocketrio_protocol.names import topic_name_problem
from rocketrio_protocol.record.batch import decode_batch
from rocketrio_protocol.record.decode import possible_records
from rocketrio_protocol.record.properties import (
    can_be_properties,
    decode_properties,
    property_value,
)

FEW, MANY = 1 << 13, 1 << 17
"""Bytes of a text, and of one sixteen times as long."""
RATIO_LIMIT = 64
"""Quadratic time would be 256 times as long; sixteen times the input may take sixteen times, and noise."""
FLOOR = 0.00003
"""Seconds: shorter times say more about the machine than about the parser."""
LONGEST = 0.125
"""Seconds that no text of MANY bytes may take; the slowest took 0.04 on a busy machine."""

Parse = Callable[[bytes], Any]


def as_text(parse: Callable[[str], Any]) -> Parse:
    return lambda data: parse(data.decode(errors="replace"))


def json_in(frame: bytes) -> Parse:
    return lambda data: fastjson.loads(frame % data, HeartbeatData)


def in_chunks(size: int, head: bytes = b"") -> Parse:
    """A stream that arrives in chunks of this size."""

    def parse(data: bytes) -> None:
        decoder = FrameDecoder()
        decoder.feed(head)
        for at in range(0, len(data), size):
            decoder.feed(data[at : at + size])

    return parse


def rocketmq_header(data: bytes) -> None:
    fixed = struct.pack(">hbhiii", 1, 0, 1, 1, 0, 0)
    decode_header(SerializeType.ROCKETMQ, fixed + struct.pack(">i", len(data)) + data)


def msgpack_header(data: bytes) -> None:
    head = b"\x97\x01\x00\x00\x01\x00\xc0\xdf" + struct.pack(">I", len(data) // 4)
    decode_header(SerializeType.MSGPACK, head + data)


def json_header(frame: bytes) -> Parse:
    return lambda data: RemotingCommand.decode(Frame(SerializeType.JSON, frame % data, b""))


def registration(data: bytes) -> None:
    version = b'{"counter":1}'
    topics = struct.pack(">i", len(version)) + version + struct.pack(">i", 1 << 20) + data
    decode_register_body(zlib.compress(topics, 1), compressed=True, version=400)


PARSERS: dict[str, Parse] = {
    "JSON body": json_in(b"%b"),
    "JSON value": json_in(b'{"x":%by}'),
    "JSON text": json_in(b'{"x":"%b'),
    "JSON after quotes": json_in(b'{"x":\\"\\"%by}'),
    "properties": decode_properties,
    "properties of a damaged record": can_be_properties,
    "one property": lambda data: property_value(data, "WAIT"),
    "stored properties": as_text(lambda text: stored_properties(text, "c", is_batch=False)),
    "Java properties": parse_properties,
    "topic name": as_text(topic_name_problem),
    "SQL92": as_text(compile_sql92),
    "tags": as_text(tags_codes),
    "compressed registration": registration,
    "ROCKETMQ header": rocketmq_header,
    "MSGPACK header": msgpack_header,
    "JSON header": json_header(b'{"code":34,"extFields":{"a":%b}}'),
    "JSON fields": json_header(b'{"code":34,"extFields":{%b}}'),
    "header of a send": json_header(b'{"code":310,"extFields":{"i":"%b"}}'),
    "small frames in smaller chunks": in_chunks(7),
    "small frames": in_chunks(1 << 14),
    "a large frame in small chunks": in_chunks(64, struct.pack(">iI", 15 << 20, 0)),
    "batch": decode_batch,
    "messages": decode_messages,
    "records in a log": lambda data: list(possible_records(data, 0, len(data))),
}

TEXTS = (
    b"1", b"-", b" ", b"1 ", b"1-", b'"', b'\\"', b'"\\', b"{", b'{"a', b'{"\\"', b'\\"{}', b"{} ", b'{"a":1}:', b"[",
    b"null,", b"1:1,", b'"a":"b",', b"\\", b"\\\\", b"\\u", b"\n", b"\r\n", b"\\\n", b"a\\\n", b"# \\\n", b"=", b"a ",
    b"\0", b"\xff", b"\x01", b"\x02", b"a\x01", b"a\x01\x02", b"a\x01b\x02", b"xWAIT\x01\x02", b"\x02WAIT\x01",
    b"--", b"--\n", b"/*", b"'", b"''", b"||", b"a||", b"(", b"NOT ", b"a OR ",
    b"\0\0\0\x04\0\0\0\0",  # the smallest frame
    b"\0\0\0\x16" + bytes(18),  # the smallest message of a batch
    b"\0\0\0\x09t 4 4 6 S",  # a topic in a registration
    b"\0\x01a\0\0\0\x01b", b"\xa1a\xa1b",  # fields of a ROCKETMQ and a MSGPACK header
    b"\xda\xa3\x20\xa7",  # the magic of a record
)  # fmt: skip


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("parse", PARSERS.values(), ids=list(PARSERS))
def test_parse_of_a_hostile_text_takes_time_in_proportion_to_its_size(parse: Parse) -> None:
    for text in TEXTS:
        few, many = cpu_seconds(parse, text, FEW), cpu_seconds(parse, text, MANY)
        if many >= RATIO_LIMIT * max(few, FLOOR) or many >= LONGEST:  # Was that the machine?
            few = max(cpu_seconds(parse, text, FEW) for _ in range(3))
            many = min(cpu_seconds(parse, text, MANY) for _ in range(3))
        assert many < RATIO_LIMIT * max(few, FLOOR), text
        assert many < LONGEST, text


def cpu_seconds(parse: Parse, piece: bytes, size: int) -> float:
    data = piece * (size // len(piece))
    began = time.process_time()
    with suppress(Error, RefusedError):
        parse(data)
    return time.process_time() - began
