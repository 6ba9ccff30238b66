"""A client of another make: it writes its own bytes and reads the answers' by itself, without a line of our codec."""

import json
import struct
import zlib
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from tests.support.raw_frames import json_framed, unframed

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.ports import Dial, Transport

LANGUAGES = ("JAVA", "CPP", "DOTNET", "PYTHON", "OTHER", "HTTP", "GO")
"""Names that clients of every version know."""
MEMBERS = {"code", "extFields", "flag", "language", "opaque", "version"}
"""What C++ clients need of every answer."""
ANSWER_TIMEOUT = 5.0
"""Virtual seconds until an answer counts as missing."""

BORN_MS = 1_700_000_000_000
# As librocketmq sends it: numbers as numbers, booleans as "0" and "1", keys of an access list that no broker asked for.
CPP = {
    "AccessKey": "", "OnsChannelKey": "", "Signature": "",
    "a": "p", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": str(BORN_MS), "h": 0,
    "i": "KEYS\x01k\x02TAGS\x01t\x02WAIT\x01true\x02", "j": 0, "k": "0", "l": 16, "m": "0",
}  # fmt: skip
"""The fields of a send to queue 0 of `orders`, which it makes."""
PULL: dict[str, Any] = {
    "consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
    "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*",
}  # fmt: skip
"""Those of a pull of all that is there."""
WIDE: dict[str, Any] = {
    "topic": "wide", "defaultTopic": "TBW102", "readQueueNums": 65_536, "writeQueueNums": 65_536, "perm": 6,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
}  # fmt: skip
"""Those of the creation of a topic with as many queues as may be."""


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
    return json_framed(header, body)


def subscription(topic: str, expression: str = "*", **members: Any) -> dict[str, Any]:
    """Return one subscription of a heartbeat, as Java writes it."""
    return {
        "topic": topic, "subString": expression, "expressionType": "TAG", "tagsSet": [], "codeSet": [],
        "subVersion": 1, **members,
    }  # fmt: skip


def heartbeat(
    client_id: str,
    *,
    producers: Iterable[str] = (),
    consumers: Iterable[str] = (),
    topics: Iterable[str] = ("orders",),
    **members: Any,
) -> bytes:
    """Return the body of code 34: a client with these groups; each consumer reads these topics."""
    subscriptions = [subscription(topic, **members) for topic in topics]
    consumer = {
        "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": subscriptions,
    }  # fmt: skip
    return json.dumps(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": group} for group in producers],
            "consumerDataSet": [{"groupName": group, **consumer} for group in consumers],
        }
    ).encode()


def registering(name: str, address: str, body: bytes = b"", **fields: Any) -> dict[str, Any]:
    """Return the fields of code 103, with which a master registers; 104 and 322 have some of them."""
    host, _, port = address.rpartition(":")
    return {
        "brokerName": name, "brokerAddr": address, "clusterName": "lab", "brokerId": 0, "compressed": False,
        "haServerAddr": f"{host}:{int(port) + 1}", "bodyCrc32": zlib.crc32(body), **fields,
    }  # fmt: skip


def without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    """The fields but for these."""
    return {name: value for name, value in fields.items() if name not in names}


@attrs.frozen
class Record:
    """One stored message with IPv4 hosts, read by the table of section 4.1."""

    flag: int
    sys_flag: int
    born_ms: int
    body: bytes
    topic: str
    properties: bytes


def records(stored: bytes) -> list[Record]:
    """The messages of a pull's answer."""
    found, at = [], 0
    while at < len(stored):
        size, flag, sys_flag, born_ms = struct.unpack_from(">i12xi16xiq", stored, at)
        body_at = at + 88
        (body_size,) = struct.unpack_from(">i", stored, at + 84)
        topic_at = body_at + body_size + 1
        properties_at = topic_at + stored[topic_at - 1] + 2
        found.append(
            Record(
                flag,
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
        serialize_type, header, body = unframed(length + rest)
        if serialize_type:
            return Told({}, body, serialize_type, header)
        return Told(json.loads(header), body, 0)

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
                assert told.header.keys() >= MEMBERS
                assert told.header["version"] >= 232  # below, Java's clients use no SQL92
                assert told.header["language"] in LANGUAGES
                return told

    async def is_closed(self) -> bool:
        """Whether the server ends the connection without a further word."""
        return await self.told() is None

    async def _take(self, size: int) -> bytes | None:
        while len(self._received) < size:
            try:
                count = await self.transport.receive_into(self._buffer)
            except NotReachableError:
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
