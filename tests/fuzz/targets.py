"""What a peer's bytes, or a file's, reach: each target takes any bytes and may raise nothing that is not documented.

    parsers     one function of the protocol each; all that they may raise is an `Error`
    broker      a chunk for a whole broker, which must go on answering others
    namesrv     the same for a name server
    files       a file of a broker's `config/`, which never prevents a start

Inputs begin with the recorded traffic of Apache peers (tests/golden) and what `corpora/` has: what fuzzing has found
so far, and what once broke something.
"""

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio
from trio.testing import MockClock

import rocketrio.administration.admin  # noqa: F401  # So that every header and body class is defined.
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.filter.sql92 import compile_sql92
from rocketrio_broker.processor.tag_expression import tags_codes
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.bodies.registration import VERSION_3_0_11, decode_register_body
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.columns.decode import COLUMN_TYPES, decode_columns
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import Error
from rocketrio_protocol.frame import FrameDecoder
from rocketrio_protocol.ha.exchange import Greeting, Welcome, decode_exchange, exchange_size
from rocketrio_protocol.ha.stream import ReportDecoder, TransferDecoder
from rocketrio_protocol.headers import Header
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.record import compression
from rocketrio_protocol.record.batch import decode_batch
from rocketrio_protocol.record.decode import possible_records, scan_record
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.record.properties import (
    can_be_properties,
    decode_properties,
    property_value,
)
from tests.broker.raw_client import raw_client, request
from tests.golden.golden import recorded_frames
from tests.golden.mutations import is_whole

CORPORA: Final = Path(__file__).parent / "corpora"
_RECORDING: Final = "5.3.3"
_SEED_LIMIT: Final = 16 << 10
_PROBE_OPAQUE: Final = 1_234_567


@attrs.frozen
class Target:
    """One thing that takes bytes."""

    name: str
    take: Callable[[bytes], None]
    """Raises what a user would see as a defect."""
    words: tuple[bytes, ...] = ()
    """The dictionary: what the format is made of."""
    seeds: Callable[[], Sequence[bytes]] = tuple
    """Good inputs."""
    is_framed: bool = False
    """Whether changed inputs mostly get the lengths of a frame again, to pass the framing."""
    is_server: bool = False
    """Whether one input costs a hundred times as much as that of a parser."""

    def corpus(self) -> list[bytes]:
        """All inputs to begin with."""
        folder = CORPORA / self.name
        kept = [path.read_bytes() for path in sorted(folder.iterdir())] if folder.is_dir() else []
        return [*kept, *(seed for seed in self.seeds() if len(seed) <= _SEED_LIMIT)]


# ------------------------------------------------------------------------------------------------- parsers


def _subclasses(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from _subclasses(kind)


@functools.cache
def _headers() -> list[type[Header]]:
    return sorted(_subclasses(Header), key=lambda kind: kind.__qualname__)


@functools.cache
def _bodies() -> list[Any]:
    """Every class that is read from JSON."""
    found = {
        kind
        for kind in _subclasses(msgspec.Struct)
        if kind.__module__.startswith("rocketrio_protocol") and not kind.__name__.startswith("_")
    }
    ordered = sorted(found, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
    return [dict, *filter(_can_be_json, ordered)]


def _can_be_json(kind: type) -> bool:
    try:
        msgspec.json.Decoder(kind)
    except TypeError:
        return False
    return True


def take_frames(data: bytes) -> None:
    """A chunk of a connection: its frames, their headers, and what the headers say."""
    decoder = FrameDecoder()
    for frame in decoder.feed(data):
        command = RemotingCommand.decode(frame)
        for kind in _headers():
            with suppress(Error):
                command.header(kind)
        command.encode()
    decoder.feed_eof()


def take_json(data: bytes) -> None:
    """A body; the first byte chooses what is to be read from it."""
    kinds = _bodies()
    kind = kinds[data[0] % len(kinds)] if data else dict
    value = fastjson.loads(data[1:], kind)
    if hasattr(value, "to_json"):
        value.to_json()


def take_properties(data: bytes) -> None:
    """A message's properties."""
    can_be_properties(data)
    property_value(data, "TAGS")
    decode_properties(data)


def take_records(data: bytes) -> None:
    """A pull answer's body, and everything that a reader asks of a message."""
    scan_record(data, 0, len(data))
    list(possible_records(data, 0, len(data)))
    try:
        messages = decode_messages(data)
        for message in messages:
            _look_at(message)
    finally:
        decode_columns(data, list(COLUMN_TYPES))


def _look_at(message: MessageExt) -> None:
    for name, member in vars(MessageExt).items():
        if isinstance(member, property):
            with suppress(Error):
                getattr(message, name)


def take_batch(data: bytes) -> None:
    """The body of a batch."""
    decode_batch(data)


def take_registration(data: bytes) -> None:
    """A broker's registration; the first byte says of which version, and whether it is compressed."""
    if data:
        version = (VERSION_3_0_11 - 1, VERSION_3_0_11)[data[0] >> 1 & 1]
        decode_register_body(data[1:], compressed=bool(data[0] & 1), version=version)


def take_java_properties(data: bytes) -> None:
    """Settings in Java's form."""
    parse_properties(data)


def take_sql92(data: bytes) -> None:
    """An expression, and a message that it judges."""
    matches = compile_sql92(data.decode(errors="replace"))
    matches(b"a\x011\x02b\x01two\x02")


def take_tags(data: bytes) -> None:
    """A tag expression."""
    tags_codes(data.decode(errors="replace"))


def take_replication(data: bytes) -> None:
    """Both directions of a replication connection, and the exchange before them."""
    for decoder in (TransferDecoder(), TransferDecoder(confirms=True), ReportDecoder()):
        with suppress(Error):
            decoder.feed(data)
    exchange_size(data[:16])
    for kind in (Greeting, Welcome):
        decode_exchange(data, kind)


def take_compressed(data: bytes) -> None:
    """A compressed body; the first byte says how."""
    if data:
        compression.decompress(data[1:], data[0] % 5, max_size=1 << 20)


def take_message_id(data: bytes) -> None:
    """An id that names a place in a log."""
    parse_offset_message_id(data.decode(errors="replace"))


# ------------------------------------------------------------------------------------------------- servers


class DefectError(AssertionError):
    """A server told of a defect of its own."""


async def _ask(server: str, data: bytes) -> None:
    probe = (
        request(30, {"topic": "none", "queueId": 0}, opaque=_PROBE_OPAQUE)
        if server == "broker"
        else request(206, opaque=_PROBE_OPAQUE)
    )
    async with EmbeddedCluster(cluster_name="lab") as cluster:
        address = cluster.master.broker.address if server == "broker" else cluster.name_server.addr
        async with (
            raw_client(cluster.dial, address) as healthy,
            raw_client(cluster.dial, address) as hostile,
        ):
            await hostile.send(data + (probe if is_whole(data) else b""))
            with trio.move_on_after(1.0):
                while (told := await hostile.told()) is not None:
                    if told.is_answer and told.opaque == _PROBE_OPAQUE:
                        break
            told = await healthy.asked(probe)
            if told.code != 0:
                raise DefectError(f"A good question was answered with {told.code} {told.remark}")


class _Defects(logging.Handler):
    """Keeps what servers log of their own defects."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(record)


def _serve(server: str, data: bytes) -> None:
    defects = _Defects()
    root = logging.getLogger()
    root.addHandler(defects)
    try:
        trio.run(_ask, server, data, clock=MockClock(autojump_threshold=0))
    finally:
        root.removeHandler(defects)
    for record in defects.found:
        assert record.exc_info is not None
        raise DefectError(record.getMessage()) from record.exc_info[1]


def take_broker(data: bytes) -> None:
    """A chunk for a broker; its neighbour's question is answered all the same."""
    _serve("broker", data)


def take_namesrv(data: bytes) -> None:
    """A chunk for a name server; its neighbour's question is answered all the same."""
    _serve("namesrv", data)


# --------------------------------------------------------------------------------------------------- seeds


@functools.cache
def _recorded(server: str) -> tuple[bytes, ...]:
    """The longest frame of each kind and direction."""
    found: dict[object, bytes] = {}
    for frame in recorded_frames(_RECORDING):
        key = frame.from_dialer, frame.data[8:24]
        if frame.server == server and len(found.get(key, b"")) < len(frame.data) <= _SEED_LIMIT:
            found[key] = frame.data
    return tuple(found.values())


def _frame_seeds() -> Sequence[bytes]:
    return (*_recorded("broker"), *_recorded("namesrv"))


def _questions(server: str) -> Sequence[bytes]:
    return tuple(
        {
            frame.data[8:24]: frame.data
            for frame in recorded_frames(_RECORDING)
            if frame.server == server and frame.from_dialer
        }.values()
    )


def _bodies_of(code: int | None = None) -> Sequence[bytes]:
    found = []
    for data in _frame_seeds():
        for frame in FrameDecoder().feed(data):
            command = RemotingCommand.decode(frame)
            if command.body and code in (None, command.code):
                found.append(bytes(command.body))
    return found


def _json_seeds() -> Sequence[bytes]:
    bodies = [body for body in _bodies_of() if body[:1] in b"{["]
    return [bytes([number]) + body for number in range(len(_bodies())) for body in bodies[:40]]


def _record_seeds() -> Sequence[bytes]:
    found = []
    for body in _bodies_of():
        try:
            if decode_messages(body):
                found.append(body)
        except Error:
            continue
    return found


def _property_seeds() -> Sequence[bytes]:
    return [
        message.stored_properties for body in _record_seeds() for message in decode_messages(body)
    ][:20]


def _replication_seeds() -> Sequence[bytes]:
    return [frame.data for frame in recorded_frames(_RECORDING) if frame.server == "ha"][:40]


def _compressed_seeds() -> Sequence[bytes]:
    return [
        bytes([kind]) + compression.compress(b"some text" * 9, kind)
        for kind in compression.CompressionType
    ]


_JSON_WORDS: Final = (
    b'{"', b'":', b'",', b"{", b"}", b"[", b"]", b"null", b"true", b"-1", b"0.5", b"1e999", b"9223372036854775808",
    b'"\\ud800"', b"{1:", b"{{", b'\\"', b'\\"{}', b'"extFields":{', b'"code":', b'"flag":1', b'"opaque":',
    b'"serializeTypeCurrentRPC":"ROCKETMQ"', b'"topic":"', b'"queueId":"', b'"%RETRY%"', b'"%DLQ%"', b"\xff",
)  # fmt: skip
_FRAME_WORDS: Final = (
    *_JSON_WORDS,
    b"\0\0\0\x04",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x01\0\0\0",
    b"\x02\0\0\0",
    b"\x80",
    b"\xde\xff\xff",
    b"\xdf",
    *(b'"code":%d' % code for code in sorted(RequestCode)),
)
_SQL_WORDS: Final = (
    b" AND ",
    b" OR ",
    b"NOT ",
    b" BETWEEN ",
    b" IN (",
    b" IS NULL",
    b"TRUE",
    b"'",
    b"''",
    b"--",
    b"\n",
    b"/*",
    b"*/",
    b"(",
    b")",
    b"1.5",
    b"1e9",
    b"-",
    b"<>",
    b">=",
    b"a",
    b"a = 1",
    b" CONTAINS ",
    b" STARTSWITH ",
)

TARGETS: Final = (
    Target("frames", take_frames, _FRAME_WORDS, _frame_seeds, is_framed=True),
    Target("json", take_json, _JSON_WORDS, _json_seeds),
    Target(
        "properties", take_properties, (b"\x01", b"\x02", b"TAGS\x01", b"KEYS\x01"), _property_seeds
    ),
    Target(
        "records",
        take_records,
        (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xcb\xd4\x31\x94", b"\0\0\0\x5b"),
        _record_seeds,
    ),
    Target("batch", take_batch, (b"\0\0\0\x20", b"\x7f\xff\xff\xff"), lambda: _bodies_of(320)),
    Target(
        "registration",
        take_registration,
        _JSON_WORDS,
        lambda: [b"\2" + body for body in _bodies_of(103)],
    ),
    Target(
        "java_properties",
        take_java_properties,
        (b"\\\n", b"\\u00", b"=", b":", b"#", b"!", b"\r\n", b"\\"),
        lambda: [b"a=b\n"],
    ),
    Target(
        "sql92",
        take_sql92,
        _SQL_WORDS,
        lambda: [b"a > 1 AND b = 'two'", b"a BETWEEN 1 AND 2 OR NOT b IS NULL"],
    ),
    Target("tags", take_tags, (b"||", b" ", b"*"), lambda: [b"a || b"]),
    Target(
        "replication",
        take_replication,
        (b"\0" * 8, b"\xff" * 8, b'{"version":1'),
        _replication_seeds,
    ),
    Target(
        "compressed",
        take_compressed,
        (b"x\x9c", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd"),
        _compressed_seeds,
    ),
    Target(
        "message_id",
        take_message_id,
        (b"7F000001", b"0" * 16),
        lambda: [b"7F00000100002A9F00000000000000FF"],
    ),
    Target(
        "broker",
        take_broker,
        _FRAME_WORDS,
        lambda: _questions("broker"),
        is_framed=True,
        is_server=True,
    ),
    Target(
        "namesrv",
        take_namesrv,
        _FRAME_WORDS,
        lambda: _questions("namesrv"),
        is_framed=True,
        is_server=True,
    ),
)
BY_NAME: Final = {target.name: target for target in TARGETS}


def judged(target: Target, data: bytes) -> None:
    """Feed one input, and pass over what is documented."""
    with suppress(Error):
        target.take(data)
