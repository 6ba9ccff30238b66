"""Targets that are one function of the protocol each: all that they may raise is an `Error`."""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

import rocketrio.admin.admin_calls  # noqa: F401  # So that every header and body class is defined.
from rocketrio.spark.reading.decoding import BlockDecoder
from rocketrio.spark.reading.fetch import Block
from rocketrio.spark.reading.offsets import QueueRange
from rocketrio.spark.reading.options import parse_read_options
from rocketrio.spark.reading.salvage import records_below
from rocketrio.spark.reading.schema import arrow_schema, table_schema
from rocketrio_broker.delay.delayed_puts import released
from rocketrio_broker.offsets.table import OffsetTable
from rocketrio_broker.offsets.version import Generation
from rocketrio_broker.processors.stored_properties import (
    UNIQUE_KEY_LABEL,
    property_map,
    stored_properties,
)
from rocketrio_broker.processors.tag_expression import tags_codes
from rocketrio_broker.transaction.records import committed, copied, half_offsets_of
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.bodies.json_tables import loads_table
from rocketrio_protocol.bodies.offsets import VersionedConsumerOffsets
from rocketrio_protocol.bodies.queues import by_queue
from rocketrio_protocol.bodies.registration import VERSION_3_0_11, decode_register_body
from rocketrio_protocol.columns.decode import COLUMN_TYPES, decode_columns
from rocketrio_protocol.connection import RemotingConnection
from rocketrio_protocol.errors import Error
from rocketrio_protocol.filter.sql92 import compile_sql92
from rocketrio_protocol.ha.exchange import (
    EXCHANGE_HEAD_SIZE,
    Greeting,
    Welcome,
    decode_exchange,
    exchange_size,
)
from rocketrio_protocol.ha.link import (
    FRAME_OVERHEAD,
    LINK_HEAD_SIZE,
    FrameOpener,
    FrameSealer,
    LinkHello,
    decode_hello,
    encode_hello,
    hello_size,
)
from rocketrio_protocol.ha.stream import ReportDecoder, TransferDecoder
from rocketrio_protocol.headers import Header
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.names import topic_name_problem
from rocketrio_protocol.record import compression
from rocketrio_protocol.record.batch import decode_batch
from rocketrio_protocol.record.decode import possible_records, scan_record
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.record.properties import (
    DECODED_SIZE_LIMIT,
    can_be_properties,
    decode_properties,
    property_value,
    stored_value,
)
from tests.fuzz import seeds
from tests.fuzz.seeds import FRAME_WORDS, JSON_WORDS, RECORD_WORDS, SQL_WORDS
from tests.fuzz.target import Target, named, split_name
from tests.support.records import plain_records

_KEY: Final = bytes(32)
_SPLIT: Final = b"\xff"


def _classes(base: type) -> Iterator[type]:
    """Every class of the protocol that is derived from another."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("rocketrio_protocol"):
            for kind in vars(module).values():
                if isinstance(kind, type) and issubclass(kind, base) and kind.__module__ == name:
                    yield kind


@functools.cache
def _headers() -> list[type[Header]]:
    return list(_classes(Header))


@functools.cache
def _readers() -> dict[str, Callable[[bytes], Any]]:
    """Every way to read a body in JSON: into each class, and by what classes do themselves."""
    readers: dict[str, Callable[[bytes], Any]] = {
        "dict": functools.partial(fastjson.loads, kind=dict),
        "offsets": _read_offsets,
        "queues": _read_queues,
    }
    for kind in _classes(object):
        if hasattr(kind, "from_json"):
            readers[kind.__name__] = kind.from_json
        elif issubclass(kind, msgspec.Struct) and _can_be_json(kind):
            readers[kind.__name__] = _reader(kind)
    return readers


def _reader(kind: type) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        with suppress(Error):
            loads_table(data, kind)
        return fastjson.loads(data, kind)

    return read


def _read_offsets(data: bytes) -> None:
    """Read the table that slaves copy, and the file of offsets."""
    table, _ = loads_table(data, VersionedConsumerOffsets)
    for _ in OffsetTable.from_body(table).written(is_file=True):
        pass


def _read_queues(data: bytes) -> None:
    """Read the table that clients keep of broadcasting offsets, whose keys are JSON themselves."""
    by_queue(fastjson.loads(data, dict[str, int]))


def _can_be_json(kind: type) -> bool:
    try:
        msgspec.json.Decoder(kind)
    except TypeError:
        return False
    return True


def take_frames(data: bytes) -> None:
    """Take a chunk of a connection: its frames, their headers, and what the headers say."""
    connection: RemotingConnection[int] = RemotingConnection()
    connection.response_table.update({number: number for number in range(-1, 8)})
    requests, finished = connection.receive(data)
    for command in (*requests, *(answer for _, answer in finished)):
        for kind in _headers():
            with suppress(Error):
                command.header(kind)
        command.ext_fields  # noqa: B018
        command.response(remark=command.remark).encode()
    connection.receive_eof()


def take_json(data: bytes) -> None:
    """Take a body; its first line says how it is read."""
    name, body = split_name(data)
    if name in _readers():
        value = _readers()[name](body)
        if hasattr(value, "to_json"):
            value.to_json()


def take_properties(data: bytes) -> None:
    """Take a message's properties, as stored and as sent."""
    can_be_properties(data)
    property_value(data, "TAGS")
    decode_properties(data)
    text = data.decode(errors="replace")
    for is_batch in (False, True):
        stored_properties(text, "lab", is_batch=is_batch)
    stored_value(text.encode(), UNIQUE_KEY_LABEL)
    property_map(text, "lab")


def take_records(data: bytes) -> None:
    """Take a pull answer's body, and ask everything that readers ask of a message."""
    scan_record(data, 0, len(data))
    list(possible_records(data, 0, len(data)))
    try:
        for message in decode_messages(data):
            _look_at(message)
    finally:
        decode_columns(data, list(COLUMN_TYPES))


def _look_at(message: MessageExt) -> None:
    for name, member in vars(MessageExt).items():
        if isinstance(member, property):
            with suppress(Error):
                getattr(message, name)


def take_columns(data: bytes) -> None:
    """Take what a task of Spark has pulled, in Kafka's columns, with what is damaged left out or null."""
    for decoder in _decoders():
        block = Block([(QueueRange("orders", "a", 0, 0, 1000), 1, data)])
        for batch in decoder.batches(block):
            batch.validate(full=True)
        records_below(data, 5)


@functools.cache
def _decoders() -> list[BlockDecoder]:
    found = []
    for policy in ("skip", "null"):
        options = parse_read_options(
            {
                "nameServer": "h:1",
                "subscribe": "orders",
                "schemaMode": "kafka",
                "includeHeaders": "true",
                "subExpression": "t || red",
                "onCorruptMessage": policy,
            }
        )
        schema = arrow_schema(table_schema(options))
        found.append(BlockDecoder(options, schema, {"orders": {"a": 0}}))
    return found


def take_parked(data: bytes) -> None:
    """Take a record of the log that waits for its time or its transaction, and make of it what consumers get."""
    for message in decode_messages(data):
        message.stored_properties  # noqa: B018 - reads every length inside the record
        for use in (released, committed, half_offsets_of, copied):
            with suppress(Error):
                use(message)


def take_batch(data: bytes) -> None:
    """Take the body of a batch."""
    decode_batch(data)


def take_registration(data: bytes) -> None:
    """Take a broker's registration; the first byte says of which version, and whether it is compressed."""
    if not data:
        return
    version = (VERSION_3_0_11 - 1, VERSION_3_0_11)[data[0] >> 1 & 1]
    body = data[1:]
    if data[0] & 4:  # Otherwise few inputs would be more than a damaged stream.
        body = compression.compress(body)
    decode_register_body(body, compressed=bool(data[0] & 5), version=version)


def take_java_properties(data: bytes) -> None:
    """Take settings in Java's form."""
    parse_properties(data)


def take_sql92(data: bytes) -> None:
    """Take an expression, and behind a byte 255 the properties of a message that it judges."""
    text, _, stored = data.partition(_SPLIT)
    compile_sql92(text.decode(errors="replace"))(stored or b"a\x011\x02b\x01two\x02")


def take_tags(data: bytes) -> None:
    """Take a tag expression, or a name."""
    text = data.decode(errors="replace")
    topic_name_problem(text)
    with suppress(Error):
        Generation.parse(text)
    tags_codes(text)


def take_replication(data: bytes) -> None:
    """Take both directions of a replication connection, and the exchange before them."""
    for decoder in (TransferDecoder(), TransferDecoder(confirms=True), ReportDecoder()):
        with suppress(Error):
            decoder.feed(data)
    for kind in (Greeting, Welcome):
        with suppress(Error):
            decode_exchange(data, kind)
    with suppress(Error):
        exchange_size(data[:EXCHANGE_HEAD_SIZE].ljust(EXCHANGE_HEAD_SIZE))


def take_link(data: bytes) -> None:
    """Take what comes before and on an authenticated link: hellos, and frames whose tags are checked."""
    for end in ("master", "slave"):
        with suppress(Error):
            decode_hello(data, end)
    with suppress(Error):
        hello_size(data[:LINK_HEAD_SIZE].ljust(LINK_HEAD_SIZE))
    opener, rest = FrameOpener(_KEY), memoryview(data)
    while (body := opener.open(rest)) is not None:
        rest = rest[len(body) + FRAME_OVERHEAD :]


def take_compressed(data: bytes) -> None:
    """Take a compressed body; the first byte says how."""
    if data:
        compression.decompress(data[1:], data[0] % 5, max_size=1 << 20)


def take_message_id(data: bytes) -> None:
    """Take an id that names a place in a log."""
    parse_offset_message_id(data.decode(errors="replace"))


# --- good inputs -----------------------------------------------------------------------------


def _json_seeds() -> Sequence[bytes]:
    recorded = seeds.json_bodies()[:40]
    return [named(name, body) for name in _readers() for body in recorded]


def _registration_seeds() -> Sequence[bytes]:
    inner = b'\0\0\0\x0d{"counter":1}\0\0\0\x01\0\0\0\x0fa 4 4 6 SINGLE_TAG'[:-1] + b"G\0\0\0\x02[]"
    return [b"\6" + inner, *(b"\2" + body for body in seeds.bodies(103))]


def _parked_seeds() -> Sequence[bytes]:
    texts = (
        b"REAL_TOPIC\x01orders\x02REAL_QID\x010\x02DELAY\x013\x02",
        b"TAGS\x01d\x02",
        b"REAL_TOPIC\x01orders\x02REAL_QID\x011\x02PGROUP\x01p\x02TRAN_MSG\x01true\x02",
    )
    return [plain_records(1, properties=text, body=b"17,18") for text in texts]


def _link_seeds() -> Sequence[bytes]:
    hellos = [
        encode_hello(LinkHello(end=end, broker_name="a", address="h:1", nonce=bytes(32)))
        for end in ("master", "slave")
    ]
    sealer = FrameSealer(_KEY)
    return [
        *hellos,
        *(hello[LINK_HEAD_SIZE:] for hello in hellos),
        sealer.seal(b"12") + sealer.seal(b"3" * 99),
    ]


PARSERS: Final = (
    Target("frames", take_frames, FRAME_WORDS, seeds.frames, is_framed=True),
    Target("json", take_json, JSON_WORDS, _json_seeds, is_named=True),
    Target(
        "properties",
        take_properties,
        RECORD_WORDS,
        seeds.properties,
        size_limit=DECODED_SIZE_LIMIT,
    ),
    Target("records", take_records, RECORD_WORDS, seeds.records),
    Target("columns", take_columns, RECORD_WORDS, seeds.records),
    Target("parked", take_parked, RECORD_WORDS, _parked_seeds),
    Target("batch", take_batch, (b"\0\0\0\x20", b"\x7f\xff\xff\xff"), lambda: seeds.bodies(320)),
    Target("registration", take_registration, JSON_WORDS, _registration_seeds),
    Target(
        "java_properties",
        take_java_properties,
        (b"\\\n", b"\\u00", b"=", b":", b"#", b"!", b"\r\n", b"\\"),
        lambda: [b"a=b\n"],
    ),
    Target(
        "sql92",
        take_sql92,
        (*SQL_WORDS, _SPLIT, b"a\x01", b"\x02"),
        lambda: [b"a > 1 AND b = 'two'", b"a BETWEEN 1 AND 2 OR NOT b IS NULL\xffa\x011.5\x02"],
    ),
    Target("tags", take_tags, (b"||", b" ", b"*", b"%RETRY%"), lambda: [b"a || b", b"1.2"]),
    Target(
        "replication",
        take_replication,
        (b"\0" * 8, b"\xff" * 8, b'{"version":1', b'"epochs":[', b'"covers":{'),
        lambda: [*seeds.replication(), b'{"member":"a","begin":0,"end":0,"highest":0,"epochs":[]}'],
    ),
    Target("link", take_link, (b"\x8arktrio\x02", b'"end":"master"', b'"nonce":"'), _link_seeds),
    Target(
        "compressed",
        take_compressed,
        (b"x\x9c", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd"),
        seeds.compressed,
    ),
    Target(
        "message_id",
        take_message_id,
        (b"7F000001", b"0" * 16),
        lambda: [b"7F00000100002A9F00000000000000FF", b"0" * 56],
    ),
)
