"""The options of a write: their names, values and defaults.

They are the same for `df.write` and `df.writeStream`. Letter case does not matter; an unknown name is refused.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from rocketrio.limits import MAX_MESSAGE_SIZE
from rocketrio.producing.outgoing import check_topic
from rocketrio.spark.access import (
    ACCESS_OPTION_NAMES,
    OF_THE_ENVIRONMENT,
    ClusterAccess,
    access_of,
)
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import (
    duration_fields,
    group_of,
    name_servers_of,
    number_fields,
    truth,
    truth_fields,
)
from rocketrio.spark.reading.option_names import (
    DEFAULT_GROUP,
    READ_OPTION_TABLE,
    WRITE,
    OptionHelp,
    known_texts,
)
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
_MOST_IN_FLIGHT: Final = 1024

WRITE_OPTION_TABLE: Final[Mapping[str, OptionHelp]] = {
    "nameServer": READ_OPTION_TABLE["nameServer"],
    "topic": OptionHelp("", "where all rows go; wins over the column `topic`"),
    "producerGroup": OptionHelp(f"`{DEFAULT_GROUP}`", "the group under which brokers know the sender"),
    "autoCreateTopic": OptionHelp(
        "`true`", "`false`: a topic that no name server knows is an error, instead of being made"
    ),
    "sendBatchBytes": OptionHelp(str(SEND_BATCH_BYTES), "bytes of messages that are sent as one request"),
    "maxInFlight": OptionHelp(str(MAX_IN_FLIGHT), "requests of a task that are not answered yet"),
    "sendTimeoutMs": OptionHelp("10000", "how long a request may take, before it is sent again"),
    "sendRetries": OptionHelp(
        str(SEND_RETRIES),
        "how often a request is sent again after no answer, a refusal that may pass, or a store that is not safe",
    ),
    "requireSafeStore": OptionHelp(
        "`true`",
        "`false`: a message that only the master has, in memory or without the slaves that its mode asks for,"
        " counts as written once the retries are used up, instead of failing the task",
    ),
    "compressBodyOver": OptionHelp(
        str(COMPRESS_BODY_OVER), "bodies of more bytes are sent as zlib, if that makes them smaller"
    ),
    "maxMessageBytes": OptionHelp(
        str(MAX_MESSAGE_SIZE), "a larger body is an error before it is sent; brokers have the same limit"
    ),
    "dedupProperties": OptionHelp(
        "`false`", "`true`: each message says which row it is, so that repeats can be dropped"
    ),
    "dedupId": OptionHelp(
        "", "with `dedupProperties` in a batch: the job's name in them, the same when it is run again"
    ),
    **{name: READ_OPTION_TABLE[name] for name in ACCESS_OPTION_NAMES},
}  # fmt: skip
"""Every option of a write."""

_OF_SPARK: Final = ("checkpointlocation", "queryname")
"""Options that Spark itself adds to those of a streaming write."""
_READ_WORDS: Final = {
    name: "a read (spark.read, spark.readStream)"
    for name in READ_OPTION_TABLE
    if name not in WRITE_OPTION_TABLE
}


@attrs.frozen
class WriteOptions:
    """The options of a write. Times are seconds, sizes bytes."""

    name_servers: tuple[str, ...]
    access: ClusterAccess = OF_THE_ENVIRONMENT
    topic: str | None = None
    producer_group: str = DEFAULT_GROUP
    auto_create_topic: bool = True
    send_batch_size: int = SEND_BATCH_BYTES
    max_in_flight: int = MAX_IN_FLIGHT
    send_timeout: float = SEND_TIMEOUT
    send_retries: int = SEND_RETRIES
    require_safe_store: bool = True
    compress_over: int = COMPRESS_BODY_OVER
    max_message_size: int = MAX_MESSAGE_SIZE
    stamps_rows: bool = False
    stamp_id: str | None = None


def parse_write_options(given: Mapping[str, str], *, is_streaming: bool) -> WriteOptions:
    """Parse the options of a write, in any letter case. Raises OptionError that names the wrong option."""
    if is_streaming:
        given = {key: text for key, text in given.items() if key.lower() not in _OF_SPARK}
    texts = known_texts(given, known=WRITE_OPTION_TABLE, what=WRITE, other_options=_READ_WORDS)
    fields: dict[str, object] = {
        "name_servers": name_servers_of(texts),
        "access": access_of(texts),
        **number_fields(texts, _NUMBERS),
        **duration_fields(texts, _DURATIONS),
        **truth_fields(texts, _TRUTHS),
    }
    if "topic" in texts:
        fields["topic"] = _topic(texts["topic"])
    if "producerGroup" in texts:
        fields["producer_group"] = group_of(texts["producerGroup"], option="producerGroup")
    if "dedupId" in texts:
        fields["stamp_id"] = _stamp_id(texts, is_streaming=is_streaming)
    return WriteOptions(**fields)  # type: ignore[arg-type]  # each field was made by its own reader above


# Fields that are plain numbers: field, option, smallest value, largest value.
_NUMBERS: Final = (
    ("send_batch_size", "sendBatchBytes", 1, _LARGEST_BATCH),
    ("max_in_flight", "maxInFlight", 1, _MOST_IN_FLIGHT),
    ("send_retries", "sendRetries", 0, 1000),
    ("compress_over", "compressBodyOver", 0, 2**31 - 1),
    ("max_message_size", "maxMessageBytes", 1, _LARGEST_MESSAGE),
)
# Fields in seconds: field, option, smallest value in milliseconds.
_DURATIONS: Final = (("send_timeout", "sendTimeoutMs", 1),)
_TRUTHS: Final = (
    ("auto_create_topic", "autoCreateTopic"),
    ("require_safe_store", "requireSafeStore"),
    ("stamps_rows", "dedupProperties"),
)


def _topic(text: str) -> str:
    topic = text.strip()
    try:
        check_topic(topic)
    except LocalProtocolError as error:
        raise OptionError(f"topic={text!r} cannot be sent to: {error.what}") from error
    return topic


def _stamp_id(texts: Mapping[str, str], *, is_streaming: bool) -> str:
    text = texts["dedupId"].strip()
    if is_streaming:
        raise OptionError("dedupId names a batch; a stream has the id of its checkpoint")
    if not truth(texts.get("dedupProperties", "false"), option="dedupProperties"):
        raise OptionError("dedupId is given without dedupProperties=true")
    if not text or not text.isprintable():
        raise OptionError(f"dedupId={texts['dedupId']!r} must be some printable text")
    return text
