"""Turns a message into a request: properties, compression, size checks, and the request's header.

Invariant: a message that a broker would refuse for its size or its topic's name is refused here, before it is sent.
Answers to: Validators.checkMessage, DefaultMQProducerImpl.sendKernelImpl, MessageBatch.generateFromList.
Unlike Java: a batch's header carries no unique id, because 5.3.3 would index every message of the batch by it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import attrs

from rocketrio.limits import DEFAULT_TOPIC_QUEUE_NUMS, MAX_MESSAGE_SIZE
from rocketrio_protocol.commands.send import (
    AUTO_CREATE_TOPIC_KEY,
    SendBatchMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.message import Message, MessageQueue
from rocketrio_protocol.names import (
    NOT_SENDABLE_TOPICS,
    RETRY_PREFIX,
    tag_problem,
    topic_name_problem,
)
from rocketrio_protocol.record.batch import encode_batch
from rocketrio_protocol.record.compression import COMPRESS_BODY_OVER, compress
from rocketrio_protocol.record.layout import SysFlag
from rocketrio_protocol.record.properties import MAX_PROPERTIES_SIZE, PROPERTY_UNIQUE_KEY

_TOPIC_CACHE_SIZE: Final = 1024  # names; a producer sends to few topics
_TAGS_CACHE_SIZE: Final = 1024  # there are few tags
_SURELY_SHORT: Final = MAX_PROPERTIES_SIZE // 4  # a character takes at most four bytes
_I32_MIN: Final = -(2**31)
_I32_MAX: Final = 2**31 - 1
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_ID_FOLLOWS: Final = f"{PROPERTY_UNIQUE_KEY}\x01"
_WAIT: Final = "WAIT\x01true\x02"
_WAIT_NOT: Final = "WAIT\x01false\x02"


Entry: TypeAlias = tuple[int, bytes, bytes]
"""The flag, body and properties of one message of a batch."""


@attrs.define
class Outgoing:
    """The messages of one request, ready for any queue of the topic."""

    topic: str
    body: bytes
    properties: str
    sys_flag: int
    flag: int
    message_ids: tuple[str, ...]
    is_batch: bool = False

    def header(
        self, queue: MessageQueue, *, group: str, born_time_ms: int
    ) -> SendMessageRequestHeaderV2:
        """Return the request header for one queue."""
        header_class = (
            SendBatchMessageRequestHeader if self.is_batch else SendMessageRequestHeaderV2
        )
        return header_class(
            group,
            self.topic,
            AUTO_CREATE_TOPIC_KEY,
            DEFAULT_TOPIC_QUEUE_NUMS,
            queue.queue_id,
            self.sys_flag,
            born_time_ms,
            self.flag,
            self.properties,
            batch=True if self.is_batch else None,
            broker_name=queue.broker_name,
        )


def check_topic(topic: str) -> None:
    """Raise LocalProtocolError if messages cannot be sent to a topic of this name."""
    problem = _topic_problem(topic)
    if problem is not None:
        raise LocalProtocolError(problem, topic=topic if isinstance(topic, str) else None)


@lru_cache(_TOPIC_CACHE_SIZE)
def _topic_problem(topic: str) -> str | None:
    if not isinstance(topic, str):
        return f"topic must be str, not {topic!r}"
    if topic in NOT_SENDABLE_TOPICS:
        return "clients may not send to this system topic"
    return topic_name_problem(topic)


def encode_single(
    message: Message,
    *,
    unique_id: str,
    max_message_size: int = MAX_MESSAGE_SIZE,
    compress_over: int = COMPRESS_BODY_OVER,
) -> Outgoing:
    """Encode one message, compressed if that makes it smaller. Raises LocalProtocolError."""
    properties = wire_properties(message, unique_id)
    body, sys_flag = message.body, 0
    _check_sizes(message, properties, max_message_size)
    if message.flag:
        _check_flag(message)
    if len(body) > compress_over:
        compressed = compress(body)
        # A body that is no smaller would only cost each reader time.
        if len(compressed) < len(body):
            body, sys_flag = compressed, _COMPRESSED
    return Outgoing(message.topic, body, properties, sys_flag, message.flag, (unique_id,))


def encode_entry(
    message: Message, unique_id: str, max_message_size: int = MAX_MESSAGE_SIZE
) -> Entry:
    """Encode one message as an entry of a batch; batches are not compressed. Raises LocalProtocolError."""
    properties = wire_properties(message, unique_id)
    body = message.body
    if type(body) is not bytes or len(body) > max_message_size or len(properties) > _SURELY_SHORT:
        _check_sizes(message, properties, max_message_size)
    if message.flag:
        _check_flag(message)
    try:
        return message.flag, body, properties.encode()
    except UnicodeEncodeError:
        raise _no_unicode(message) from None


def batch_problem(message: Message) -> str | None:
    """Return why a message cannot be part of a batch; None if it can."""
    if message.delay_level:
        return "a delayed message cannot be part of a batch"
    if message.topic.startswith(RETRY_PREFIX):
        return "a retry topic takes no batches"
    return None


def batch_outgoing(
    topic: str,
    entries: Sequence[Entry],
    message_ids: tuple[str, ...],
    *,
    wait_store_ok: bool = True,
) -> Outgoing:
    """Combine entries of `encode_entry` into one request."""
    properties = "" if wait_store_ok else _WAIT_NOT
    return Outgoing(topic, encode_batch(entries), properties, 0, 0, message_ids, is_batch=True)


def encode_messages(
    messages: Sequence[Message],
    *,
    unique_ids: Sequence[str],
    max_message_size: int = MAX_MESSAGE_SIZE,
) -> Outgoing:
    """Encode messages of one topic as one batch. Raises LocalProtocolError if they cannot form one."""
    if not messages:
        raise LocalProtocolError("a batch needs at least one message")
    first = messages[0]
    topic, wait_store_ok = first.topic, first.wait_store_ok
    problem = batch_problem(first)
    if problem is not None:
        raise LocalProtocolError(problem, topic=topic)
    tags = first.tags
    end = _plain_end(tags, wait_store_ok) if isinstance(tags, str | None) else ""
    entries: list[Entry] = []
    for message, unique_id in zip(messages, unique_ids, strict=True):
        if message.topic != topic or message.wait_store_ok != wait_store_ok:
            raise LocalProtocolError(
                "messages of one batch must have one topic and one `wait_store_ok`", topic=topic
            )
        body = message.body
        # Equal to the first message except for the body: most messages are, and this path costs half as much.
        if (
            end
            and message.tags is tags
            and type(body) is bytes
            and len(body) <= max_message_size
            and not message.keys
            and not message.properties
            and not message.flag
            and not message.delay_level
        ):
            entries.append((0, body, f"{_ID_FOLLOWS}{unique_id}{end}".encode()))
            continue
        if message.delay_level and (problem := batch_problem(message)) is not None:
            raise LocalProtocolError(problem, topic=topic)
        entries.append(encode_entry(message, unique_id, max_message_size))
    outgoing = batch_outgoing(
        first.topic, entries, tuple(unique_ids), wait_store_ok=first.wait_store_ok
    )
    # Apache's brokers limit the batch as a whole (MessageExtBatchEncoder), and not only each message.
    if len(outgoing.body) > max_message_size:
        raise LocalProtocolError(
            f"the batch has {len(outgoing.body)} bytes, more than the limit of {max_message_size}",
            topic=first.topic,
            remedy="Send fewer messages in one batch, or use `producer.pipeline()`, which cuts them",
        )
    return outgoing


def wire_properties(message: Message, unique_id: str) -> str:
    """Return the properties string; the common case does not build a map."""
    keys, tags = message.keys, message.tags
    if type(tags) is not str and tags is not None and not isinstance(tags, str):
        raise LocalProtocolError(
            f"tags={tags!r} must be text: a message has one tag", topic=message.topic
        )
    tail = _properties_tail(tags, message.wait_store_ok)
    if (
        message.properties
        or message.delay_level
        or not tail
        or (keys and (type(keys) is not str or _is_torn(keys)))
    ):
        # Raises an error that names the invalid part.
        return message.encoded_properties(unique_key=unique_id)
    if keys:
        return f"{_ID_FOLLOWS}{unique_id}\x02KEYS\x01{keys}\x02{tail}"
    return f"{_ID_FOLLOWS}{unique_id}\x02{tail}"


@lru_cache(_TAGS_CACHE_SIZE)
def _properties_tail(tags: str | None, wait_store_ok: bool) -> str:
    """Return tags and WAIT; an empty string for tags that cannot be stored."""
    wait = _WAIT if wait_store_ok else _WAIT_NOT
    if not tags:
        return wait
    is_plain = isinstance(tags, str) and not _is_torn(tags) and tag_problem(tags) is None
    return f"TAGS\x01{tags}\x02{wait}" if is_plain else ""


@lru_cache(_TAGS_CACHE_SIZE)
def _plain_end(tags: str | None, wait_store_ok: bool) -> str:
    """Return what follows the unique id of a message that only has tags; empty if `encode_entry` must check it."""
    tail = _properties_tail(tags, wait_store_ok)
    return f"\x02{tail}" if len(tail) < _SURELY_SHORT // 2 and tail.isascii() and tail else ""


def _is_torn(text: str) -> bool:
    return "\x01" in text or "\x02" in text


def _check_sizes(message: Message, properties: str, max_message_size: int) -> None:
    if not isinstance(message.body, bytes | bytearray | memoryview):
        raise _body_not_bytes(message)
    if len(message.body) > max_message_size:
        raise LocalProtocolError(
            f"the body has {len(message.body)} bytes, more than the limit of {max_message_size}",
            topic=message.topic,
            remedy="Send a smaller body, or store it elsewhere and send where it is",
        )
    # Shorter ones fit whatever their characters: encoding them to count their bytes would cost each message.
    if len(properties) > _SURELY_SHORT:
        try:
            size = len(properties.encode())
        except UnicodeEncodeError:
            raise _no_unicode(message) from None
        if size > MAX_PROPERTIES_SIZE:
            raise LocalProtocolError(
                f"the properties have {size} bytes, more than the limit of {MAX_PROPERTIES_SIZE}",
                topic=message.topic,
            )


def _check_flag(message: Message) -> None:
    if not isinstance(message.flag, int) or not _I32_MIN <= message.flag <= _I32_MAX:
        raise LocalProtocolError(
            f"flag={message.flag!r} does not fit in 32 bits", topic=message.topic
        )


def _body_not_bytes(message: Message) -> LocalProtocolError:
    if isinstance(message.body, str):
        what, remedy = "str", "Encode it: text.encode()"
    else:
        what, remedy = type(message.body).__name__, None
    return LocalProtocolError(f"body must be bytes, not {what}", topic=message.topic, remedy=remedy)


def _no_unicode(message: Message) -> LocalProtocolError:
    return LocalProtocolError(
        "keys, tags or properties contain half a surrogate pair, which UTF-8 cannot encode",
        topic=message.topic,
    )
