"""The least remoting client that can ask an Apache or a rocketrio server something.

On purpose none of the code under test: the harness looks at both with the same eyes.
Answers to: RemotingCommand in its JSON form.
"""

import json
import re
import socket
import ssl
import struct
from contextlib import ExitStack
from typing import Any

import attrs

PULL_MESSAGE = 11
QUERY_MESSAGE = 12
QUERY_CONSUMER_OFFSET = 14
GET_BROKER_RUNTIME_INFO = 28
GET_MAX_OFFSET = 30
GET_ALL_TOPIC_CONFIG = 21
GET_ALL_CONSUMER_OFFSET = 43
GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
DELETE_TOPIC_IN_BROKER = 215
GET_BROKER_CLUSTER_INFO = 106
GET_ROUTEINFO_BY_TOPIC = 105
NO_PERMISSION = 16
"""The code of an answer."""

_UNQUOTED_KEY = re.compile(r"([{,])\s*(-?\d+)\s*:")


@attrs.frozen
class Answer:
    """One response: its code, remark, ext fields and body."""

    code: int
    remark: str
    ext_fields: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON, integer keys without quotes allowed."""
        return json.loads(_UNQUOTED_KEY.sub(r'\1"\2":', self.body.decode()))


def ask(
    address: str,
    code: int,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    timeout: float = 5.0,
    context: ssl.SSLContext | None = None,
) -> Answer:
    """Send one request on a connection of its own and return the answer, or raise OSError; over TLS with a context."""
    host, port = address.rsplit(":", 1)
    header = json.dumps(
        {
            "code": code,
            "extFields": ext_fields or {},
            "flag": 0,
            "language": "JAVA",
            "opaque": 1,
            "serializeTypeCurrentRPC": "JSON",
            "version": 407,
        }
    ).encode()
    with ExitStack() as stack:
        connection = stack.enter_context(
            socket.create_connection((host, int(port)), timeout=timeout)
        )
        if context is not None:
            connection = stack.enter_context(context.wrap_socket(connection, server_hostname=host))
        frame = struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body
        connection.sendall(frame)
        (length,) = struct.unpack(">i", read_exactly(connection, 4))
        frame = read_exactly(connection, length)
    (word,) = struct.unpack_from(">i", frame)
    kind, header_length = word >> 24, word & 0xFFFFFF
    if kind != 0:
        return _binary_answer(frame[4 : 4 + header_length], frame[4 + header_length :])
    answer = json.loads(frame[4 : 4 + header_length])
    return Answer(
        code=answer["code"],
        remark=answer.get("remark") or "",
        ext_fields=answer.get("extFields") or {},
        body=frame[4 + header_length :],
    )


def _binary_answer(header: bytes, body: bytes) -> Answer:
    """A header of serialize type ROCKETMQ: what a server with that default answers even to JSON."""
    code, _language, _version, _opaque, _flag, size = struct.unpack_from(">hbhiii", header)
    remark = header[17 : 17 + size].decode()
    at = 17 + size + 4
    ext_fields = {}
    while at < len(header):
        (size,) = struct.unpack_from(">h", header, at)
        key, at = header[at + 2 : at + 2 + size].decode(), at + 2 + size
        (size,) = struct.unpack_from(">i", header, at)
        ext_fields[key], at = header[at + 4 : at + 4 + size].decode(), at + 4 + size
    return Answer(code, remark, ext_fields, body)


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Read `size` bytes. Raises ConnectionError if the peer closes before."""
    got = bytearray()
    while len(got) < size:
        chunk = connection.recv(size - len(got))
        if not chunk:
            raise ConnectionError(f"peer closed after {len(got)} of {size} bytes")
        got += chunk
    return bytes(got)


def answers(address: str, context: ssl.SSLContext | None = None) -> bool:
    """Return whether a name server answers; that it does not know who asks is an answer too."""
    return _replies(address, GET_BROKER_CLUSTER_INFO, timeout=2.0, context=context)


def is_registered(
    name_server: str, broker_addr: str, context: ssl.SSLContext | None = None
) -> bool:
    """Whether the name server lists `broker_addr`."""
    try:
        body = ask(name_server, GET_BROKER_CLUSTER_INFO, context=context).body
    except OSError:
        return False
    return f'"{broker_addr}"'.encode() in body


def serves(broker_addr: str, context: ssl.SSLContext | None = None) -> bool:
    """Return whether a broker answers; that it does not know who asks is an answer too."""
    return _replies(broker_addr, GET_BROKER_RUNTIME_INFO, context=context)


def _replies(address: str, code: int, **options: Any) -> bool:
    try:
        return ask(address, code, **options).code in (0, NO_PERMISSION)
    except OSError:
        return False


def runtime_info(broker_addr: str) -> dict[str, str]:
    """A broker's runtime table."""
    answer = ask(broker_addr, GET_BROKER_RUNTIME_INFO)
    if answer.code != 0:
        raise ConnectionError(f"{broker_addr} answers {answer.code} {answer.remark}")
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


def max_physical_offset(broker_addr: str) -> int:
    """Where a broker's commit log ends."""
    return int(runtime_info(broker_addr)["commitLogMaxOffset"])


def max_offset(broker_addr: str, topic: str, queue_id: int = 0) -> int | None:
    """Return where a queue ends; None while the broker does not know it."""
    asked = {"topic": topic, "queueId": str(queue_id)}
    return _offset(ask(broker_addr, GET_MAX_OFFSET, asked))


def committed(broker_addr: str, group: str, topic: str, queue_id: int = 0) -> int | None:
    """Return the offset that a group has committed in a queue; None if the broker has none."""
    asked = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
    return _offset(ask(broker_addr, QUERY_CONSUMER_OFFSET, asked))


def _offset(answer: Answer) -> int | None:
    offset = answer.ext_fields.get("offset")
    return None if offset is None else int(offset)


def has_topic(broker_addr: str, topic: str, context: ssl.SSLContext | None = None) -> bool:
    """Return whether a broker has a topic."""
    answer = ask(broker_addr, GET_ALL_TOPIC_CONFIG, context=context)
    return f'"{topic}"'.encode() in answer.body


def topics(broker_addr: str) -> dict[str, dict[str, Any]]:
    """The settings of all topics of a broker, by name."""
    found: dict[str, dict[str, Any]] = ask(broker_addr, GET_ALL_TOPIC_CONFIG).json()[
        "topicConfigTable"
    ]
    return found
