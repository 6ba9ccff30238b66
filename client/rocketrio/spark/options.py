"""The options of a batch read: what they are called, what they take, what they mean when left out.

Names are Kafka's where the meaning is the same; letter case does not matter. An option that is not known
is refused with the ones that are, since Spark would never say that a typo was ignored.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

import attrs
import msgspec

from rocketrio.name_servers import name_server_addresses
from rocketrio.spark.errors import OptionError
from rocketrio.spark.offsets import MAX_OFFSET, AtTimestamp, Position, parse_position
from rocketrio.spark.option_values import (
    choice,
    distinct,
    shown,
    suggestion,
    truth,
    whole_number,
    words_of,
)
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue

MAX_INT: Final = 2**31 - 1
"""What queue ids and Spark's numbers of partitions fit."""

DEFAULT_GROUP: Final = "rocketrio-spark"
"""Brokers want a group's name with every pull; nothing is committed for it."""

OPTION_HELP: Final = {
    "nameServer": "host:port, several separated by semicolons; by default the environment's NAMESRV_ADDR",
    "subscribe": "topics, separated by commas",
    "topic": "the same as subscribe",
    "subscribePattern": "a Python regular expression that whole topic names match",
    "assign": 'queues as JSON: {"orders":{"broker-a":[0,1]}}',
    "startingOffsets": "earliest (default), latest, or JSON: topic, broker, queue, offset (-2 earliest, -1 latest)",
    "startingTimestamp": "epoch ms; in place of startingOffsets: from the first message stored then or later",
    "endingOffsets": "latest (default), or JSON; ends are exclusive",
    "endingTimestamp": "epoch ms; in place of endingOffsets: before the first message stored then or later",
    "failOnDataLoss": "true (default): messages that should be read and are gone fail the query",
    "columns": "names of columns, separated by commas: only these are decoded and sent to Spark",
    "properties": "map (default), string (as stored) or none: how the column properties looks",
    "minPartitions": "large ranges are split until there are so many partitions",
    "maxRecordsPerPartition": "ranges longer than this are split",
    "minRecordsPerPartition": "ranges shorter than this (20000) share a partition",
    "maxPartitions": "no more partitions than this",
    "pullBatchSize": "messages asked for at once (1024); Apache brokers give 32 at most by default",
    "pullPipelineDepth": "pulls under way at once for a range (8)",
    "pullTimeoutMs": "how long a pull may take (10000)",
    "readRetries": "how often a failed pull is tried again (5)",
    "batchBytes": "stored bytes from which on a record batch goes to Spark (2097152)",
    "batchRows": "rows from which on a record batch goes to Spark (8192)",
    "readFrom": "auto (default: the master, then where brokers send readers), master or slave",
    "decompress": "true (default): bodies as they were sent; false: as they are stored",
    "verifyCrc": "false (default); true: every body is compared with its checksum",
    "consumerGroup": f"the group named in pulls ({DEFAULT_GROUP}); nothing is committed",
}
"""Every option of a batch read, for messages and documentation."""

_BY_LOWER: Final = {name.lower(): name for name in OPTION_HELP}


@attrs.frozen
class ReadOptions:
    """A batch read, as asked for. Times are seconds, sizes bytes."""

    name_servers: tuple[str, ...]
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assigned: tuple[MessageQueue, ...] = ()
    starting: Position = "earliest"
    ending: Position = "latest"
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] | None = None
    properties: Literal["map", "string", "none"] = "map"
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    min_records_per_partition: int = 20_000
    max_partitions: int | None = None
    pull_batch_size: int = 1024
    pull_pipeline_depth: int = 8
    pull_timeout: float = 10.0
    read_retries: int = 5
    batch_size: int = 2 * 1024 * 1024
    batch_rows: int = 8192
    read_from: Literal["auto", "master", "slave"] = "auto"
    inflate: bool = True
    check_crc: bool = False
    consumer_group: str = DEFAULT_GROUP


def parse_read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of `spark.read`, in any letter case. Raises OptionError naming what is wrong."""
    texts = _known_texts(given)
    try:
        name_servers = name_server_addresses(texts.get("nameServer"))
    except ConfigError as error:
        raise OptionError(
            f"nameServer={texts.get('nameServer')!r} is not host:port;host:port"
        ) from error
    fields: dict[str, object] = {"name_servers": name_servers}
    fields |= _subscription(texts)
    fields["starting"] = _position(texts, "starting", default="earliest", is_end=False)
    fields["ending"] = _position(texts, "ending", default="latest", is_end=True)
    for name, option, least, most in _NUMBERS:
        if option in texts:
            fields[name] = whole_number(texts[option], option=option, least=least, most=most)
    for name, option in _TRUTHS:
        if option in texts:
            fields[name] = truth(texts[option], option=option)
    if "pullTimeoutMs" in texts:
        fields["pull_timeout"] = (
            whole_number(texts["pullTimeoutMs"], option="pullTimeoutMs", least=1) / 1000
        )
    if "columns" in texts:
        names = words_of(texts["columns"], option="columns")
        fields["columns"] = distinct(names, option="columns")
    if "properties" in texts:
        words = ("map", "string", "none")
        fields["properties"] = choice(texts["properties"], option="properties", words=words)
    if "readFrom" in texts:
        words = ("auto", "master", "slave")
        fields["read_from"] = choice(texts["readFrom"], option="readFrom", words=words)
    if texts.get("consumerGroup", "").strip():
        fields["consumer_group"] = texts["consumerGroup"].strip()
    options = ReadOptions(**fields)  # type: ignore[arg-type]  # each field was made by its own reader above
    fewest, most_partitions = options.min_partitions, options.max_partitions
    if fewest is not None and most_partitions is not None and fewest > most_partitions:
        raise OptionError(f"minPartitions={fewest} is more than maxPartitions={most_partitions}")
    return options


# Fields that are plain numbers: field, option, least, most.
_NUMBERS: Final = (
    ("min_partitions", "minPartitions", 1, MAX_INT),
    ("max_records_per_partition", "maxRecordsPerPartition", 1, MAX_OFFSET),
    ("min_records_per_partition", "minRecordsPerPartition", 1, MAX_OFFSET),
    ("max_partitions", "maxPartitions", 1, MAX_INT),
    ("pull_batch_size", "pullBatchSize", 1, 65_535),
    ("pull_pipeline_depth", "pullPipelineDepth", 1, 256),
    ("read_retries", "readRetries", 0, 1000),
    ("batch_size", "batchBytes", 1, 256 * 1024 * 1024),  # Arrow allows 2 GiB a column, inflated
    ("batch_rows", "batchRows", 1, 1_000_000),
)
_TRUTHS: Final = (
    ("fail_on_data_loss", "failOnDataLoss"),
    ("inflate", "decompress"),
    ("check_crc", "verifyCrc"),
)


def _known_texts(given: Mapping[str, str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for key, text in given.items():
        name = _BY_LOWER.get(key.lower())
        if name is None:
            near = suggestion(key, tuple(OPTION_HELP))
            raise OptionError(
                f"unknown option {key!r}{near} A batch read knows: {', '.join(OPTION_HELP)}"
            )
        texts[name] = text
    return texts


def _subscription(texts: dict[str, str]) -> dict[str, object]:
    ways = [name for name in ("subscribe", "topic", "subscribePattern", "assign") if name in texts]
    if len(ways) != 1:
        said = f"{' and '.join(ways)} are given" if ways else "none is given"
        raise OptionError(f"give one of subscribe, subscribePattern and assign; {said}")
    (way,) = ways
    text = texts[way]
    if way == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(
                f"subscribePattern={text!r} is no regular expression: {error}"
            ) from error
        return {"topic_pattern": text}
    if way == "assign":
        return {"assigned": _assigned(text)}
    return {"topics": words_of(text, option=way)}


def _assigned(text: str) -> tuple[MessageQueue, ...]:
    try:
        ids = msgspec.json.decode(text, type=dict[str, dict[str, list[int]]])
    except msgspec.DecodeError as error:
        raise OptionError(
            f'assign={shown(text)} is not JSON like {{"orders":{{"broker-a":[0,1]}}}}: {error}'
        ) from error
    queues = {
        MessageQueue(topic, broker_name, queue_id)
        for topic, brokers in ids.items()
        for broker_name, queue_ids in brokers.items()
        for queue_id in queue_ids
    }
    if not queues or not all(0 <= queue.queue_id <= MAX_INT for queue in queues):
        raise OptionError(f"assign={shown(text)} names no queue, or one below 0 or above {MAX_INT}")
    return tuple(sorted(queues))


def _position(
    texts: dict[str, str], word: str, *, default: Literal["earliest", "latest"], is_end: bool
) -> Position:
    by_time, by_offset = f"{word}Timestamp", f"{word}Offsets"
    if by_time in texts and by_offset in texts:
        raise OptionError(f"give {by_time} or {by_offset}, not both")
    if by_time in texts:
        return AtTimestamp(whole_number(texts[by_time], option=by_time, least=0))
    if by_offset in texts:
        return parse_position(texts[by_offset], option=by_offset, is_end=is_end)
    return default
