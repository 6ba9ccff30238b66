"""Decodes many stored messages at once as Arrow columns, for Spark and other bulk readers.

Only the wanted columns are decoded, for all rows at once. A column is decoded message by message if there are few
messages (a block costs about 0.4 ms, however small), and for compressed bodies, IPv6 hosts as text, and properties that
break the usual pattern.

Invariant: a column contains the values of the same property of `MessageExt`, and null if a message has none. A time
outside the range of datetime is null too, where `born_time` and `store_time` are clamped.
Unlike Java: Java has no such decoder.
"""

import zlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketrio_protocol.columns.arrays import map_array, number_array, repeated, text_array
from rocketrio_protocol.columns.block import RecordBlock, open_block
from rocketrio_protocol.columns.properties import MAP_TYPE, UnusualPropertiesError, gather
from rocketrio_protocol.columns.starts import record_starts
from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.record.compression import InflateBudget
from rocketrio_protocol.record.layout import BEFORE_BODY, COMPRESSED
from rocketrio_protocol.record.properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQUE_KEY,
)
from rocketrio_protocol.record.vectors import HEAD_TYPE, Int64s, items_at_every_byte
from rocketrio_protocol.times import FIRST_TIME_MS, LAST_TIME_MS

TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")

_FEW_MESSAGES: Final = 16
"""Up to this many messages objects are faster than vectors (benchmarks/bench_columns.py)."""
_TIME_DIGITS: Final = 18  # Fits 64 bits; LAST_TIME_MS has 15 digits.


def decode_columns(
    chunk: bytes | bytearray | memoryview,
    wanted: Collection[str],
    *,
    inflate: bool = True,
    check_crc: bool = False,
    budget: InflateBudget | None = None,
) -> dict[str, Any]:
    """Return the wanted columns (names of `COLUMN_TYPES`) of all messages in `chunk`, as Arrow arrays.

    With `inflate=False` compressed bodies stay as they are stored. `check_crc` compares every stored body with the
    broker's checksum. Raises RemoteProtocolError that names the place of a malformed message, and TooMuchToInflateError
    if decompressed bodies exceed `budget`, by default INFLATE_LIMIT; that error says how many messages fit.
    """
    budget = InflateBudget() if budget is None else budget
    if unknown := [name for name in wanted if name not in COLUMN_TYPES]:
        raise LocalProtocolError(
            f"unknown column {', '.join(unknown)}; available: {', '.join(COLUMN_TYPES)}"
        )
    starts = record_starts(chunk)
    if len(starts) <= _FEW_MESSAGES:
        messages = decode_messages(chunk)
        if check_crc:
            _check_crcs(messages)
        return columns_of(messages, wanted, inflate=inflate, budget=budget)
    block = open_block(chunk, starts, inflate=inflate, budget=budget)
    if check_crc:
        _check_crcs(block.messages())
    return {name: _BUILDERS[name](block) for name in wanted}


def columns_of(
    messages: Sequence[MessageExt],
    wanted: Collection[str],
    *,
    inflate: bool = True,
    budget: InflateBudget | None = None,
) -> dict[str, Any]:
    """Return the wanted columns of these messages, decoded one by one. Raises TooMuchToInflateError."""
    given = (inflate, InflateBudget() if budget is None else budget)
    return {name: _from_messages(name, messages, *given) for name in wanted}


def _check_crcs(messages: list[MessageExt]) -> None:
    for message in messages:
        if message.body_crc != zlib.crc32(message.stored_body) & 0x7FFFFFFF:
            raise RemoteProtocolError(
                f"the body of {message.topic} queue {message.queue_id} offset {message.queue_offset}"
                " does not match its checksum"
            )


def _from_messages(
    name: str, messages: Sequence[MessageExt], inflate: bool, budget: InflateBudget
) -> Any:
    """Decode one column message by message; the tests compare the fast ways with this one."""
    values: Any
    if name == "deliver_time":
        return _times([_delivery_text(message) for message in messages])
    if name.endswith("_time"):
        return _timestamps(np.array([getattr(m, f"{name}_ms") for m in messages], np.int64))
    if name == "body":
        values = _bodies(messages, budget) if inflate else [m.stored_body for m in messages]
    elif name.endswith("_host"):
        values = [_host_text(getattr(message, name)) for message in messages]
    elif name == "keys":
        values = [message.keys or None for message in messages]
    elif name == "unique_key":
        values = [message.property_value(PROPERTY_UNIQUE_KEY) for message in messages]
    elif name == "properties":
        return map_array([list(message.properties.items()) for message in messages])
    elif name == "properties_text":
        values = [message.stored_properties.decode("utf-8", "replace") for message in messages]
    elif name == "store_size":
        values = [message.size for message in messages]
    else:
        values = [getattr(message, name) for message in messages]
    kind = COLUMN_TYPES[name]
    if pa.types.is_integer(kind):
        return number_array(np.array(values, kind.to_pandas_dtype()))
    return text_array(values, kind)


def _bodies(messages: Sequence[MessageExt], budget: InflateBudget) -> list[bytes]:
    bodies: list[bytes] = []
    for message in messages:
        body = message.body
        if message.is_compressed:
            budget.take(len(body), len(bodies))
            message.forget_body()
        bodies.append(body)
    return bodies


def _host_text(host: tuple[str, int]) -> str:
    ip, port = host
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _timestamps(milliseconds: Int64s) -> Any:
    out_of_range = (milliseconds > LAST_TIME_MS) | (milliseconds < FIRST_TIME_MS)
    if (
        out_of_range.any()
    ):  # From a broken clock or a hostile producer: Python, pandas and Spark have no such time.
        return number_array(milliseconds * 1000, out_of_range).view(TIMESTAMP_TYPE)
    return number_array(milliseconds * 1000).view(TIMESTAMP_TYPE)


def _delivery_text(message: MessageExt) -> str | None:
    delivery = message.property_value(PROPERTY_TIMER_OUT_MS)
    return message.property_value(PROPERTY_TIMER_DELIVER_MS) if delivery is None else delivery


def _times(texts: Sequence[str | None]) -> Any:
    """Create a column of times from the text of epoch ms; null for None and for text that is not a time."""
    times = [
        int(text)
        if text is not None
        and len(text) <= _TIME_DIGITS
        and text.isascii()
        and text.isdigit()
        and int(text) <= LAST_TIME_MS
        else -1
        for text in texts
    ]
    milliseconds = np.array(times, np.int64)
    return number_array(milliseconds * 1000, milliseconds < 0).view(TIMESTAMP_TYPE)


_Builder = Callable[[RecordBlock], Any]


def _one_by_one(name: str) -> _Builder:
    return lambda block: _from_messages(name, block.messages(), block.inflate, block.budget)


def _number(name: str, kind: type[np.signedinteger[Any]]) -> _Builder:
    return lambda block: number_array(block.heads[name].astype(kind))


def _behind_hosts(name: str) -> _Builder:
    """Return the builder of a column of numbers between the store host and the body."""
    kind = HEAD_TYPE[name]

    def build(block: RecordBlock) -> Any:
        numbers = (
            block.read(kind, block.body_starts - BEFORE_BODY[name])
            if block.shifted
            else block.heads[name]
        )
        return number_array(numbers.astype(kind.newbyteorder("=")))

    return build


def _store_time(block: RecordBlock) -> Any:
    if block.shifted:
        return _timestamps(block.read(">i8", block.after_born_host))
    return _timestamps(block.heads["store_time"].astype(np.int64))


def _host(name: str) -> _Builder:
    def build(block: RecordBlock) -> Any:
        if block.shifted:
            return _one_by_one(name)(block)
        packed = np.ascontiguousarray(block.heads[name]).view(">u8")
        few, places = np.unique(packed, return_inverse=True)  # Hosts repeat.
        texts = [_host_text(_unpacked(int(host))) for host in few]
        return text_array(texts, pa.string()).take(number_array(places))

    return build


def _unpacked(host: int) -> tuple[str, int]:
    address, port = divmod(host, 1 << 32)
    ip = ".".join(str(octet) for octet in address.to_bytes(4))
    return ip, port - (1 << 32) if port >= 1 << 31 else port


def _body(block: RecordBlock) -> Any:
    # Message by message, so that the budget is asked before each body.
    if block.inflate and (block.sys_flag & COMPRESSED).any():
        return _one_by_one("body")(block)
    return gather(block.chunk, block.body_starts, block.body_sizes, pa.binary())


def _topic(block: RecordBlock) -> Any:
    """Decode the topics. All messages of a pull have one topic, so comparing them is faster than gathering them."""
    size = int(block.topic_sizes[0])
    if size and (block.topic_sizes == size).all():
        names = items_at_every_byte(block.chunk, f"V{size}")[block.topic_starts]
        letters = names.view(np.uint8)
        if (letters[size:] == letters[:-size]).all():
            try:
                topic = letters[:size].tobytes().decode()
            except UnicodeDecodeError:
                return _one_by_one("topic")(block)
            return repeated([topic], len(block.starts))
    return _text("topic", block.topic_starts, block.topic_sizes, block)


def _properties_text(block: RecordBlock) -> Any:
    return _text("properties_text", block.properties_starts, block.properties_sizes, block)


def _text(name: str, starts: Int64s, sizes: Int64s, block: RecordBlock) -> Any:
    try:
        return gather(block.chunk, starts, sizes, pa.string())
    except UnusualPropertiesError:
        return _one_by_one(name)(block)


def _property(name: str, property_name: str) -> _Builder:
    def build(block: RecordBlock) -> Any:
        properties = block.properties()
        return _one_by_one(name)(block) if properties is None else properties.values(property_name)

    return build


def _properties(block: RecordBlock) -> Any:
    properties = block.properties()
    return _one_by_one("properties")(block) if properties is None else properties.maps()


def _deliver_time(block: RecordBlock) -> Any:
    properties = block.properties()
    if properties is None:
        return _one_by_one("deliver_time")(block)
    delivery = properties.values(PROPERTY_TIMER_OUT_MS)
    if delivery.null_count:
        delivery = pc.coalesce(delivery, properties.values(PROPERTY_TIMER_DELIVER_MS))
    if delivery.null_count == len(delivery):  # As in most topics.
        nothing = np.zeros(len(delivery), np.int64)
        return number_array(nothing, nothing == 0).view(TIMESTAMP_TYPE)
    return _times(delivery.to_pylist())


def _offset_message_id(block: RecordBlock) -> Any:
    if block.shifted:
        return _one_by_one("offset_message_id")(block)
    packed = np.empty((len(block.starts), 16), np.uint8)
    packed[:, :8] = np.ascontiguousarray(block.heads["store_host"]).view(np.uint8).reshape(-1, 8)
    offsets = np.ascontiguousarray(block.heads["physical_offset"])
    packed[:, 8:] = offsets.view(np.uint8).reshape(-1, 8)
    text = packed.tobytes().hex().upper().encode()
    places = np.arange(0, 32 * (len(block.starts) + 1), 32, dtype=np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(block.starts), buffers)


def _message_id(block: RecordBlock) -> Any:
    return pc.coalesce(_BUILDERS["unique_key"](block), _offset_message_id(block))


_COLUMNS: Final[dict[str, tuple[Any, _Builder]]] = {
    "topic": (pa.string(), _topic),
    "queue_id": (pa.int32(), _number("queue_id", np.int32)),
    "queue_offset": (pa.int64(), _number("queue_offset", np.int64)),
    "keys": (pa.string(), _property("keys", PROPERTY_KEYS)),
    "tags": (pa.string(), _property("tags", PROPERTY_TAGS)),
    "body": (pa.binary(), _body),
    "born_time": (
        TIMESTAMP_TYPE,
        lambda block: _timestamps(block.heads["born_time"].astype(np.int64)),
    ),
    "store_time": (TIMESTAMP_TYPE, _store_time),
    "properties": (MAP_TYPE, _properties),
    "properties_text": (pa.string(), _properties_text),
    "message_id": (pa.string(), _message_id),
    "unique_key": (pa.string(), _property("unique_key", PROPERTY_UNIQUE_KEY)),
    "offset_message_id": (pa.string(), _offset_message_id),
    "flag": (pa.int32(), _number("flag", np.int32)),
    "sys_flag": (pa.int32(), _number("sys_flag", np.int32)),
    "reconsume_times": (pa.int32(), _behind_hosts("reconsume_times")),
    "physical_offset": (pa.int64(), _number("physical_offset", np.int64)),
    "prepared_transaction_offset": (
        pa.int64(),
        _behind_hosts("prepared_transaction_offset"),
    ),
    "born_host": (pa.string(), _host("born_host")),
    "store_host": (pa.string(), _host("store_host")),
    "body_crc": (pa.int32(), _number("body_crc", np.int32)),
    "store_size": (pa.int32(), _number("size", np.int32)),
    "deliver_time": (TIMESTAMP_TYPE, _deliver_time),
}
_BUILDERS: Final = {name: builder for name, (_, builder) in _COLUMNS.items()}

COLUMN_TYPES: Final = {name: kind for name, (kind, _) in _COLUMNS.items()}
"""All columns with their Arrow types."""
