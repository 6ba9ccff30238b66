"""The options of a write: their names, values and defaults.

They are the same for `df.write` and `df.writeStream`. Letter case does not matter; an unknown name is refused.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from rocketrio.limits import MAX_MESSAGE_SIZE
from rocketrio.producing.outgoing import check_topic
from rocketrio.spark.access import (
    OF_THE_ENVIRONMENT,
    ClusterAccess,
    Servers,
    access_of,
    name_servers_of,
)
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_kinds import GROUP, MAX_INT, TEXT, OptionKind, duration, whole
from rocketrio.spark.options import (
    DEFAULT_GROUP,
    WRITE,
    declared,
    known_texts,
    made_of,
    option,
    values_of,
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

    name_servers: tuple[str, ...] = made_of(Servers, attrs.NOTHING)
    topic: str | None = option("topic", None, OptionKind(str, _topic))
    """where all rows go; wins over the column `topic`"""
    producer_group: str = option("producerGroup", DEFAULT_GROUP, GROUP)
    """the group under which brokers know the sender"""
    auto_create_topic: bool = option("autoCreateTopic", True)
    """`false`: a topic that no name server knows is an error, instead of being made"""
    send_batch_size: int = option("sendBatchBytes", SEND_BATCH_BYTES, whole(1, _LARGEST_BATCH))
    """bytes of messages that are sent as one request"""
    max_in_flight: int = option("maxInFlight", MAX_IN_FLIGHT, whole(1, 1024))
    """requests of a task that are not answered yet"""
    send_timeout: float = option("sendTimeoutMs", SEND_TIMEOUT, duration(1))
    """how long a request may take, before it is sent again"""
    send_retries: int = option("sendRetries", SEND_RETRIES, whole(0, 1000))
    """how often a request is sent again after no answer, a refusal that may pass, or a store that is not safe"""
    require_safe_store: bool = option("requireSafeStore", True)
    """`false`: a message that only the master has, in memory or without the slaves that its mode asks for, counts
    as written once the retries are used up, instead of failing the task"""
    compress_over: int = option("compressBodyOver", COMPRESS_BODY_OVER, whole(0, MAX_INT))
    """bodies of more bytes are sent as zlib, if that makes them smaller"""
    max_message_size: int = option("maxMessageBytes", MAX_MESSAGE_SIZE, whole(1, _LARGEST_MESSAGE))
    """a larger body is an error before it is sent; brokers have the same limit"""
    stamps_rows: bool = option("dedupProperties", False)
    """`true`: each message says which row it is, so that repeats can be dropped"""
    stamp_id: str | None = option("dedupId", None, TEXT)
    """with `dedupProperties` in a batch: the job's name in them, the same when it is run again"""
    access: ClusterAccess = made_of(ClusterAccess, OF_THE_ENVIRONMENT)


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
    options = WriteOptions(
        name_servers_of(texts), access=access_of(texts), **values_of(WriteOptions, texts)
    )
    if options.stamp_id is None:
        return options
    if is_streaming:
        raise OptionError("dedupId names a batch; a stream has the id of its checkpoint")
    if not options.stamps_rows:
        raise OptionError("dedupId is given without dedupProperties=true")
    stamp_id = options.stamp_id.strip()
    if not stamp_id or not stamp_id.isprintable():
        raise OptionError(f"dedupId={options.stamp_id!r} must be some printable text")
    return attrs.evolve(options, stamp_id=stamp_id)
