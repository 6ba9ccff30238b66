"""A client of another make: it writes its own bytes and reads the answers' by itself, without a line of our codec.

frame   i32 length, u8 0 (JSON), u24 header length, header, body       RocketMQ reference, section 1.1
"""

import json
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import NotReachable
from rocketrio_protocol.remoting.ports import Dial, Transport

LANGUAGES = ("JAVA", "CPP", "DOTNET", "PYTHON", "OTHER", "HTTP", "GO")
"""Names that clients of every version know."""
ANSWER_TIMEOUT = 5.0
"""Virtual seconds until an answer counts as missing."""


def framed(header: bytes, body: bytes = b"", *, serialize_type: int = 0) -> bytes:
    """One frame around a header that is written already."""
    word = serialize_type << 24 | len(header)
    return struct.pack(">iI", 4 + len(header) + len(body), word) + header + body


def request(code: int, fields: object = None, body: bytes = b"", **members: Any) -> bytes:
    """A request with a JSON header; `members` replace or add members of it, one that is None is left out."""
    header = {
        "code": code,
        "extFields": fields,
        "flag": 0,
        "language": "CPP",
        "opaque": 1,
        "version": 333,
        **members,
    }
    written = {name: value for name, value in header.items() if value is not None}
    return framed(json.dumps(written).encode(), body)


@attrs.frozen
class Record:
    """One stored message with IPv4 hosts, read by the table of section 4.1."""

    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_ms: int
    body: bytes
    topic: str
    properties: bytes


def records(stored: bytes) -> list[Record]:
    """The messages of a pull's answer."""
    found, at = [], 0
    while at < len(stored):
        size, _, _, queue_id, flag, queue_offset, _, sys_flag, born_ms = struct.unpack_from(
            ">iIIiiqqiq", stored, at
        )
        body_at = at + 88
        (body_size,) = struct.unpack_from(">i", stored, at + 84)
        topic_at = body_at + body_size + 1
        properties_at = topic_at + stored[topic_at - 1] + 2
        found.append(
            Record(
                queue_id,
                flag,
                queue_offset,
                sys_flag,
                born_ms,
                stored[body_at : body_at + body_size],
                stored[topic_at : properties_at - 2].decode(),
                stored[properties_at : at + size],
            )
        )
        at += size
    return found


def batch_entry(body: bytes, properties: bytes = b"", *, flag: int = 0) -> bytes:
    """One message of a batch, section 4.8."""
    size = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


@attrs.frozen
class Told:
    """One frame from the server, as a client reads it that knows no more than JSON."""

    header: dict[str, Any]
    """Of a JSON header; an empty one of a binary header."""
    body: bytes
    serialize_type: int
    binary_header: bytes = b""

    @property
    def code(self) -> int:
        return int(self.header["code"])

    @property
    def opaque(self) -> int:
        return int(self.header["opaque"])

    @property
    def fields(self) -> dict[str, str]:
        """The ext fields; they have to be there, and texts all of them."""
        fields: dict[str, str] = self.header["extFields"]
        assert all(isinstance(value, str) for value in fields.values()), fields
        return fields

    @property
    def is_answer(self) -> bool:
        return bool(self.header["flag"] & 1)


@attrs.define
class RawClient:
    """One connection."""

    transport: Transport
    _received: bytearray = attrs.Factory(bytearray)
    _buffer: memoryview = attrs.Factory(lambda: memoryview(bytearray(1 << 16)))

    async def send(self, data: bytes) -> None:
        await self.transport.send_all(data)

    async def told(self) -> Told | None:
        """The next frame; None when the server has closed the connection. Fails when neither comes."""
        with trio.fail_after(ANSWER_TIMEOUT):
            length = await self._take(4)
            if length is None:
                return None
            rest = await self._take(*struct.unpack(">i", length))
        if rest is None:
            return None
        (word,) = struct.unpack_from(">I", rest)
        end = 4 + (word & 0xFFFFFF)
        header = rest[4:end]
        if word >> 24:
            return Told({}, rest[end:], word >> 24, header)
        return Told(json.loads(header), rest[end:], 0)

    async def ask(
        self, code: int, fields: object = None, body: bytes = b"", **members: Any
    ) -> Told:
        """Ask, and read the answer."""
        return await self.asked(request(code, fields, body, **members))

    async def asked(self, data: bytes) -> Told:
        """Send whole bytes, and read the answer to them; what the server asks meanwhile is passed over."""
        await self.send(data)
        while True:
            told = await self.told()
            assert told is not None, "the connection was closed"
            if told.serialize_type:
                return told
            if told.is_answer:
                # C++ clients need all of these; below version 232 Java's use no SQL92.
                assert {
                    "code",
                    "extFields",
                    "flag",
                    "language",
                    "opaque",
                    "version",
                } <= told.header.keys()
                assert told.header["version"] >= 232
                assert told.header["language"] in LANGUAGES
                return told

    async def is_closed(self) -> bool:
        """Whether the server ends the connection without a further word."""
        return await self.told() is None

    async def _take(self, size: int) -> bytes | None:
        while len(self._received) < size:
            try:
                count = await self.transport.receive_into(self._buffer)
            except NotReachable:
                return None
            if not count:
                return None
            self._received += self._buffer[:count]
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


@asynccontextmanager
async def raw_client(dial: Dial, address: str) -> AsyncGenerator[RawClient]:
    """A connection of its own."""
    transport = await dial(address)
    try:
        yield RawClient(transport)
    finally:
        await transport.aclose()


@asynccontextmanager
async def broker_and_client(**settings: Any) -> AsyncGenerator[tuple[EmbeddedCluster, RawClient]]:
    """A cluster in memory and a connection to its master."""
    async with (
        EmbeddedCluster(cluster_name="lab", **settings) as cluster,
        raw_client(cluster.dial, cluster.master.broker.address) as client,
    ):
        yield cluster, client
