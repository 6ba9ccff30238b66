"""Messages: `Message` is what a producer sends, `MessageExt` one stored record, decoded lazily.

Invariant: creating a MessageExt decodes nothing; every property is decoded when it is read.
Invariant: no length inside a record is trusted beyond the record's own size.
Answers to: Message, MessageExt, MessageQueue, MessageSysFlag.
Unlike Java: a MessageExt is a view that keeps its whole chunk in memory; `copy()` detaches it.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from struct import Struct
from typing import Any, ClassVar, Final, TypeVar, overload

import attrs
import msgspec

from rocketrio_protocol.errors import (
    BodyUnreadableError,
    ConfigError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
from rocketrio_protocol.names import tag_problem
from rocketrio_protocol.nesting import MESSAGE_DEPTH_LIMIT, NestedTooDeeplyError, check_depth
from rocketrio_protocol.record.compression import decompress
from rocketrio_protocol.record.layout import (
    BODY_STARTS,
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_TYPE_SHIFT,
    HEAD_SIZE,
    HOSTS_IPV6_MASK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_SIZE_V1,
    MIN_TAIL_SIZE,
    RECORD_OVERHEAD,
    SIZE_AND_MAGIC,
    SYS_FLAG_END,
    head_struct,
    head_structs,
    unpack_host,
)
from rocketrio_protocol.record.message_id import offset_message_id
from rocketrio_protocol.record.properties import (
    FIELD_PROPERTIES,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    decode_properties,
    encode_properties,
    joined_keys,
    property_value,
)
from rocketrio_protocol.times import nearest_time

_I16: Final = Struct(">h")
_SIZE_MAGIC_AND_SYS_FLAG: Final = head_struct("size", "magic", "sys_flag")
_MAGIC: Final = head_struct("magic")
_BODY_CRC: Final = head_struct("body_crc")
_QUEUE_ID: Final = head_struct("queue_id")
_FLAG: Final = head_struct("flag")
_QUEUE_OFFSET: Final = head_struct("queue_offset")
_PHYSICAL_OFFSET: Final = head_struct("physical_offset")
_SYS_FLAG: Final = head_struct("sys_flag")
_BORN_TIME: Final = head_struct("born_time")
_BORN_HOST: Final = head_structs("born_host")
_STORE_TIME: Final = head_structs("store_time")
_STORE_HOST: Final = head_structs("store_host")
_RECONSUME_TIMES: Final = head_structs("reconsume_times")
_PREPARED_TRANSACTION_OFFSET: Final = head_structs("prepared_transaction_offset")
_BODY_SIZE: Final = head_structs("body_size")
_SHAPE: Final = head_struct("magic", "sys_flag", "body_size")
_UNUSUAL_BODY: Final = COMPRESSED | HOSTS_IPV6_MASK

T = TypeVar("T")


@attrs.frozen(order=True)
class MessageQueue:
    """One queue of one topic on one broker; `broker_name` is the name that a master and its slaves share."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


@attrs.define(init=False)
class Message:
    """A message to send: a topic and a body, with keys, tags and properties to find and filter it by."""

    topic: str
    body: bytes
    keys: str = attrs.field(default="", kw_only=True)
    """Keys separated by spaces, or a sequence of them; the broker indexes each key."""
    tags: str | None = attrs.field(default=None, kw_only=True)
    """The tag that subscriptions filter by."""
    properties: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    """The application's own properties, and those of RocketMQ that have no field here."""
    flag: int = attrs.field(default=0, kw_only=True)
    """A number that belongs to the application; RocketMQ stores it and does not use it."""
    delay_level: int = attrs.field(default=0, kw_only=True)
    """An index into the broker's list of delays, 1 to 18 by default; 0 delivers at once."""
    wait_store_ok: bool = attrs.field(default=True, kw_only=True)
    """Whether the broker answers only after the flush and the replication that its modes require."""
    tags_are_checked: ClassVar = True

    # Written by hand: an attrs converter would make every assignment five times slower.
    def __init__(
        self, topic: str, body: bytes, *, keys: str | Sequence[str] = "", tags: str | None = None,
        properties: Mapping[str, str] | None = None, flag: int = 0, delay_level: int = 0,
        wait_store_ok: bool = True,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.body = body
        self.keys = keys if type(keys) is str else joined_keys(keys)
        self.tags = tags
        self.properties = {} if properties is None else properties
        self.flag = flag
        self.delay_level = delay_level
        self.wait_store_ok = wait_store_ok

    def property_map(self, *, unique_key: str = "") -> dict[str, str]:
        """Return all properties as they go on the wire; a unique key in `properties` wins over `unique_key`."""
        for name, field in FIELD_PROPERTIES.items():
            if name in self.properties:
                raise LocalProtocolError(
                    f"give property {name} as `{field}=`, not in `properties`", topic=self.topic
                )
        wire = {PROPERTY_UNIQUE_KEY: unique_key} if unique_key else {}
        wire.update(self.properties)
        if self.keys:
            wire[PROPERTY_KEYS] = joined_keys(self.keys)
        if self.tags:
            problem = tag_problem(self.tags)
            if problem is not None and self.tags_are_checked:
                raise LocalProtocolError(problem, topic=self.topic)
            wire[PROPERTY_TAGS] = self.tags
        if self.delay_level:
            wire[PROPERTY_DELAY_TIME_LEVEL] = str(self.delay_level)
        wire[PROPERTY_WAIT_STORE_MSG_OK] = "true" if self.wait_store_ok else "false"
        return wire

    def encoded_properties(self, *, unique_key: str = "") -> str:
        """Return `property_map` as a properties string."""
        return encode_properties(self.property_map(unique_key=unique_key))


@attrs.define(init=False)
class MessageAgain(Message):
    """A message that was stored before: it keeps the tag that its first sender gave it, whatever that is."""

    tags_are_checked: ClassVar = False


@attrs.define(eq=False, repr=False)
class MessageExt:
    """One stored record inside a chunk of them; `record/layout.py` draws it.

    Reading a property does not change the message, except that a decompressed body is cached.
    """

    buffer: bytes | bytearray | memoryview
    start: int
    size: int
    broker_name: str = ""
    """Set by the client that pulled it, because a record does not contain it."""
    _body: bytes = attrs.field(init=False)  # not set until a compressed body is read

    def __repr__(self) -> str:
        return (
            f"<MessageExt {self.topic}@{self.broker_name or '?'}:{self.queue_id}"
            f" queue_offset={self.queue_offset} message_id={self.message_id}"
            f" body={self._body_span()[1]} B>"
        )

    def _field(self, field: Struct) -> Any:
        return field.unpack_from(self.buffer, self.start)[0]

    def _bytes(self, start: int, size: int) -> bytes:
        return bytes(self.buffer[start : start + size])

    @property
    def body_crc(self) -> int:
        """The checksum of the stored body, as the broker computed it."""
        value: int = self._field(_BODY_CRC)
        return value

    @property
    def queue_id(self) -> int:
        value: int = self._field(_QUEUE_ID)
        return value

    @property
    def flag(self) -> int:
        value: int = self._field(_FLAG)
        return value

    @property
    def queue_offset(self) -> int:
        # Without `_field`, because a consumer reads this of every message.
        value: int = _QUEUE_OFFSET.unpack_from(self.buffer, self.start)[0]
        return value

    @property
    def physical_offset(self) -> int:
        value: int = self._field(_PHYSICAL_OFFSET)
        return value

    @property
    def sys_flag(self) -> int:
        value: int = self._field(_SYS_FLAG)
        return value

    @property
    def born_time_ms(self) -> int:
        value: int = self._field(_BORN_TIME)
        return value

    @property
    def born_time(self) -> datetime:
        """When the producer created it, by the producer's clock; clamped to the range of datetime."""
        return nearest_time(self.born_time_ms)

    @property
    def born_host(self) -> tuple[str, int]:
        """IP and port of the producer."""
        return unpack_host(self.packed_born_host)

    @property
    def packed_born_host(self) -> bytes:
        """The producer's address as it is stored."""
        value: bytes = self._field(_BORN_HOST[self.sys_flag & HOSTS_IPV6_MASK])
        return value

    @property
    def store_time_ms(self) -> int:
        value: int = self._field(_STORE_TIME[self.sys_flag & HOSTS_IPV6_MASK])
        return value

    @property
    def store_time(self) -> datetime:
        """When the master stored it, by the master's clock; clamped to the range of datetime."""
        return nearest_time(self.store_time_ms)

    @property
    def store_host(self) -> tuple[str, int]:
        """IP and port of the broker that stored it first."""
        return unpack_host(self.packed_store_host)

    @property
    def packed_store_host(self) -> bytes:
        """The broker's address as it is stored."""
        value: bytes = self._field(_STORE_HOST[self._hosts()])
        return value

    @property
    def reconsume_times(self) -> int:
        value: int = self._field(_RECONSUME_TIMES[self._hosts()])
        return value

    @property
    def prepared_transaction_offset(self) -> int:
        value: int = self._field(_PREPARED_TRANSACTION_OFFSET[self._hosts()])
        return value

    def _hosts(self) -> int:
        """Return the bits of sysFlag that say which hosts are IPv6. Raises RemoteProtocolError if they do not fit."""
        hosts = self.sys_flag & HOSTS_IPV6_MASK
        if hosts and BODY_STARTS[hosts] + MIN_TAIL_SIZE > self.size:
            raise self._refused("its hosts do not fit")
        return hosts

    def _body_span(self) -> tuple[int, int]:
        _, sys_flag, size = _SHAPE.unpack_from(self.buffer, self.start)
        at = HEAD_SIZE
        if sys_flag & HOSTS_IPV6_MASK:
            hosts = self._hosts()
            at = BODY_STARTS[hosts]
            size = self._field(_BODY_SIZE[hosts])
        if size < 0 or at + MIN_TAIL_SIZE + size > self.size:
            raise self._refused(f"its body length is {size}")
        return self.start + at, size

    def _topic_span(self) -> tuple[int, int]:
        at, size = self._body_span()
        at += size
        end = self.start + self.size
        if self._field(_MAGIC) == MAGIC_V1:
            at += 1
            topic_size = self.buffer[at - 1]
            if topic_size > MAX_TOPIC_SIZE_V1:
                topic_size -= 256
        else:
            at += 2
            topic_size = int.from_bytes(self.buffer[at - 2 : at], signed=True)
        if topic_size < 0 or at + topic_size + 2 > end:
            raise self._refused(f"its topic length is {topic_size}")
        return at, topic_size

    def _properties_span(self) -> tuple[int, int]:
        at, size = self._topic_span()
        at += size + 2
        (properties_size,) = _I16.unpack_from(self.buffer, at - 2)
        if properties_size < 0 or at + properties_size > self.start + self.size:
            raise self._refused(f"its properties length is {properties_size}")
        return at, properties_size

    def _refused(self, why: str) -> RemoteProtocolError:
        where = f" ({self._queue_and_offset()})" if self.broker_name else ""
        return RemoteProtocolError(
            f"the record of {self.size} bytes at byte {self.start}{where} cannot be read: {why}"
        )

    def _queue_and_offset(self) -> str:
        return f"{self.broker_name}:{self.queue_id} offset {self.queue_offset}"

    @property
    def stored_body(self) -> bytes:
        """The body as it is in the log, compressed if the producer compressed it."""
        return self._bytes(*self._body_span())

    @property
    def body(self) -> bytes:
        """The body that the producer sent, decompressed.

        Raises RemoteProtocolError for a damaged one, and ConfigError if the package of its codec is not installed. The
        text names the place: `orders@broker-a:0 offset 17`.
        """
        _, sys_flag, size = _SHAPE.unpack_from(self.buffer, self.start)
        if not sys_flag & _UNUSUAL_BODY and 0 <= size <= self.size - RECORD_OVERHEAD:
            at = self.start + HEAD_SIZE
            return bytes(self.buffer[at : at + size])
        if not sys_flag & COMPRESSED:
            return self.stored_body
        try:
            return self._body
        except AttributeError:
            kind = (sys_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT
            self._body = self._decompressed(kind)
            return self._body

    def _decompressed(self, kind: int) -> bytes:
        stored = self.stored_body
        try:
            return decompress(stored, kind)
        except (ProtocolError, ConfigError) as error:
            if self.broker_name:  # Without it, who decodes knows the place, and says it.
                place = f"{self._stored_topic()}@{self._queue_and_offset()}"
                what = f"the body of {place} cannot be read: {error.what}"
                raise type(error)(what, remedy=error.advice) from error
            raise

    @property
    def body_error(self) -> ProtocolError | ConfigError | None:
        """What reading `body` raises; None if it can be read."""
        try:
            self.body  # noqa: B018
        except (ProtocolError, ConfigError) as error:
            return error
        return None

    @property
    def is_compressed(self) -> bool:
        """Whether the stored body is compressed."""
        return bool(self.buffer[self.start + SYS_FLAG_END] & COMPRESSED)

    @property
    def inflated_size(self) -> int:
        """The size of a compressed body after decompression, which is cached; 0 if not compressed or not readable."""
        return len(self.body) if self.is_compressed and self.body_error is None else 0

    def forget_body(self) -> None:
        """Drop the cached decompressed body; the next read of `body` decompresses again."""
        with suppress(AttributeError):
            del self._body

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, as_type: type[T]) -> T: ...

    def json(self, as_type: Any = Any) -> Any:
        """Decode the body as JSON, and convert it to `as_type` if given (a dataclass, attrs or msgspec class,
        `list[int]`, ...). Raises BodyUnreadableError, which names the place in the body.
        """
        try:
            check_depth(self.body, MESSAGE_DEPTH_LIMIT)
            return msgspec.json.decode(self.body, type=as_type)
        except (msgspec.DecodeError, NestedTooDeeplyError) as error:
            raise BodyUnreadableError(
                f"the body of {self!r} is not the expected JSON: {error}"
            ) from error

    @property
    def topic(self) -> str:
        return self._stored_topic()

    def _stored_topic(self) -> str:
        return self._bytes(*self._topic_span()).decode("utf-8", "replace")

    @property
    def stored_properties(self) -> bytes:
        """The properties string as it is in the log."""
        return self._bytes(*self._properties_span())

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.stored_properties)

    def property_value(self, name: str) -> str | None:
        """Return one property without decoding the others; None if the message does not have it."""
        return property_value(self.stored_properties, name)

    @property
    def keys(self) -> str:
        """The keys separated by spaces; empty if there are none."""
        return self.property_value(PROPERTY_KEYS) or ""

    @property
    def tags(self) -> str | None:
        return self.property_value(PROPERTY_TAGS)

    @property
    def message_id(self) -> str:
        """The unique key that the producer set, or the offset id if it set none."""
        return self.property_value(PROPERTY_UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id that names the broker that stored it and the place in its log."""
        return offset_message_id(self.packed_store_host, self.physical_offset)

    @property
    def record(self) -> bytes:
        """Return a copy of the stored record."""
        return self._bytes(self.start, self.size)

    def check_crc(self) -> bool:
        """Return whether the stored body matches the checksum of the broker."""
        return self.body_crc == zlib.crc32(self.stored_body) & 0x7FFFFFFF

    def copy(self) -> "MessageExt":
        """Return a copy that does not keep the rest of the chunk in memory, for a message that outlives its batch."""
        return MessageExt(self.record, 0, self.size, self.broker_name)

    def __copy__(self) -> "MessageExt":
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> "MessageExt":
        return self.copy()

    def __getstate__(self) -> tuple[bytes, str]:
        # Pickle the record without the rest of its chunk.
        return self.record, self.broker_name

    def __setstate__(self, state: tuple[bytes, str]) -> None:
        self.buffer, self.broker_name = state
        self.start, self.size = 0, len(state[0])


def decode_messages(
    buffer: bytes | bytearray | memoryview, broker_name: str = ""
) -> list[MessageExt]:
    """Return the messages in the body of a pull answer, as views of it; only sizes and magics are checked."""
    return decode_pulled(buffer, broker_name)[0]


def decode_pulled(
    buffer: bytes | bytearray | memoryview, broker_name: str
) -> tuple[list[MessageExt], bool]:
    """Return what `decode_messages` returns, and whether the body of any message is compressed."""
    messages: list[MessageExt] = []
    append, unpack = messages.append, _SIZE_MAGIC_AND_SYS_FLAG.unpack_from
    position, limit = 0, len(buffer)
    sys_flags = sys_flag = 0
    while position < limit:
        try:
            size, magic, sys_flag = unpack(buffer, position)
        except struct.error:
            if position + SIZE_AND_MAGIC.size > limit:
                raise _refused(
                    position, f"only {limit - position} bytes are left, too few for a record"
                ) from None
            size, magic = SIZE_AND_MAGIC.unpack_from(buffer, position)  # It is refused below.
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            raise _refused(position, f"its magic is {magic & 0xFFFFFFFF:#010x}")
        if size < RECORD_OVERHEAD:
            raise _refused(position, f"its size is {size}")
        append(MessageExt(buffer, position, size, broker_name))
        sys_flags |= sys_flag
        position += size
    if position > limit:
        raise _refused(
            messages[-1].start,
            f"its size {messages[-1].size} exceeds the {limit} bytes received",
        )
    return messages, bool(sys_flags & COMPRESSED)


def _refused(position: int, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"no stored message at byte {position}: {why}")
