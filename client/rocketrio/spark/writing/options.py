"""The options of a write: their names, values and defaults.

They are the same for `df.write` and `df.writeStream`. Letter case does not matter; an unknown name is refused.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from rocketrio.limits import MAX_MESSAGE_SIZE
from rocketrio.producing.outgoing import check_topic
from rocketrio.spark.access import (
    ACCESS_OPTIONS,
    NAME_SERVER,
    OF_THE_ENVIRONMENT,
    ClusterAccess,
    access_of,
    name_servers_of,
)
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_kinds import (
    GROUP,
    MAX_INT,
    TEXT,
    TRUTH,
    OptionKind,
    duration,
    truth,
    whole,
)
from rocketrio.spark.options import (
    DEFAULT_GROUP,
    WRITE,
    Option,
    declared,
    fields_of,
    from_options,
    known_texts,
    option,
)
from rocketrio.spark.reading.options import READ_OPTIONS
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.record.compression import COMPRESS_BODY_OVER

SEND_BATCH_BYTES: Final = 256 * 1024
"""Bytes of a batch. Larger batches gain nothing at a broker, and a retry repeats no more than this."""
MAX_IN_FLIGHT: Final = 16
"""Unanswered requests of a task; with SEND_BATCH_BYTES, at most 4 MiB of a task wait at brokers."""
SEND_TIMEOUT: Final = 10.0
"""Seconds. Longer than brokers wait for their disk (5 s) or a slave (3 s): their answer tells more than a timeout."""
SEND_RETRIES: Final = 5
"""As readRetries: with the pauses between them the attempts outlast a restart of a broker."""

_LARGEST_BATCH: Final = 16 * 1024 * 1024  # The default limit of a frame (FRAME_SIZE_LIMIT).
_LARGEST_MESSAGE: Final = 64 * 1024 * 1024  # What readers decompress at most (MAX_BODY_SIZE).


def _topic(text: str, option: str) -> str:
    topic = text.strip()
    try:
        check_topic(topic)
    except LocalProtocolError as error:
        raise OptionError(f"{option}={text!r} cannot be sent to: {error.what}") from error
    return topic


@attrs.frozen
class WriteOptions:
    """The options of a write. Times are seconds, sizes bytes."""

    name_servers: tuple[str, ...] = from_options(attrs.NOTHING, NAME_SERVER)
    topic: str | None = option(
        "topic", OptionKind(str, _topic), None, "where all rows go; wins over the column `topic`"
    )
    producer_group: str = option(
        "producerGroup", GROUP, DEFAULT_GROUP, "the group under which brokers know the sender"
    )
    auto_create_topic: bool = option(
        "autoCreateTopic",
        TRUTH,
        True,
        "`false`: a topic that no name server knows is an error, instead of being made",
    )
    send_batch_size: int = option(
        "sendBatchBytes",
        whole(1, _LARGEST_BATCH),
        SEND_BATCH_BYTES,
        "bytes of messages that are sent as one request",
    )
    max_in_flight: int = option(
        "maxInFlight", whole(1, 1024), MAX_IN_FLIGHT, "requests of a task that are not answered yet"
    )
    send_timeout: float = option(
        "sendTimeoutMs",
        duration(1),
        SEND_TIMEOUT,
        "how long a request may take, before it is sent again",
    )
    send_retries: int = option(
        "sendRetries",
        whole(0, 1000),
        SEND_RETRIES,
        "how often a request is sent again after no answer, a refusal that may pass, or a store that is not safe",
    )
    require_safe_store: bool = option(
        "requireSafeStore",
        TRUTH,
        True,
        "`false`: a message that only the master has, in memory or without the slaves that its mode asks for,"
        " counts as written once the retries are used up, instead of failing the task",
    )
    compress_over: int = option(
        "compressBodyOver",
        whole(0, MAX_INT),
        COMPRESS_BODY_OVER,
        "bodies of more bytes are sent as zlib, if that makes them smaller",
    )
    max_message_size: int = option(
        "maxMessageBytes",
        whole(1, _LARGEST_MESSAGE),
        MAX_MESSAGE_SIZE,
        "a larger body is an error before it is sent; brokers have the same limit",
    )
    stamps_rows: bool = option(
        "dedupProperties",
        TRUTH,
        False,
        "`true`: each message says which row it is, so that repeats can be dropped",
    )
    stamp_id: str | None = from_options(
        None,
        Option(
            "dedupId",
            TEXT,
            "with `dedupProperties` in a batch: the job's name in them, the same when it is run again",
        ),
    )
    access: ClusterAccess = from_options(OF_THE_ENVIRONMENT, *ACCESS_OPTIONS.values())


WRITE_OPTIONS: Final = declared(WriteOptions)
"""Every option of a write."""

_OF_SPARK: Final = ("checkpointlocation", "queryname")
"""Options that Spark itself adds to those of a streaming write."""
_OF_READS: Final = {
    name: "a read (spark.read, spark.readStream)"
    for name in READ_OPTIONS
    if name not in WRITE_OPTIONS
}


def parse_write_options(given: Mapping[str, str], *, is_streaming: bool) -> WriteOptions:
    """Parse the options of a write, in any letter case. Raises OptionError that names the wrong option."""
    if is_streaming:
        given = {key: text for key, text in given.items() if key.lower() not in _OF_SPARK}
    texts = known_texts(given, known=WRITE_OPTIONS, what=WRITE, other_options=_OF_READS)
    return WriteOptions(
        name_servers_of(texts),
        access=access_of(texts),
        **fields_of(WriteOptions, texts),
        stamp_id=_stamp_id(texts, is_streaming=is_streaming) if "dedupId" in texts else None,
    )


def _stamp_id(texts: Mapping[str, str], *, is_streaming: bool) -> str:
    text = texts["dedupId"].strip()
    if is_streaming:
        raise OptionError("dedupId names a batch; a stream has the id of its checkpoint")
    if not truth(texts.get("dedupProperties", "false"), "dedupProperties"):
        raise OptionError("dedupId is given without dedupProperties=true")
    if not text or not text.isprintable():
        raise OptionError(f"dedupId={texts['dedupId']!r} must be some printable text")
    return text
