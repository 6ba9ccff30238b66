"""Parses the options of a read: from the texts that Spark passes on to values.

Invariant: `parse_read_options` is pure and fast, because Spark calls it several times for one query.
Answers to: KafkaSourceProvider.getKafkaOffsetRangeLimit, for the start and the end.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from rocketrio.consuming.subscription import (
    ALL,
    SQL92_EXPRESSION_TYPE,
    TAG_EXPRESSION_TYPE,
    Subscription,
    odd_tag,
    parse_subscription,
    parse_where,
)
from rocketrio.places import TIME_FORMS, time_ms_of
from rocketrio.routing.read_policy import StalenessBound
from rocketrio.spark.access import OF_THE_ENVIRONMENT, ClusterAccess, access_of
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import (
    choice,
    distinct,
    duration_fields,
    group_of,
    name_servers_of,
    number_fields,
    shown,
    staleness_bound,
    truth_fields,
    words_of,
)
from rocketrio.spark.reading.offsets import (
    MAX_OFFSET,
    AtTimestamp,
    AtTimestamps,
    GroupOffsets,
    Position,
    WhenNone,
    parse_position,
    parse_timestamp_table,
)
from rocketrio.spark.reading.option_names import BATCH_READ, DEFAULT_GROUP, OPTION_HELP, known_texts
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.ports import SystemWallClock

_MAX_INT: Final = 2**31 - 1
"""The largest queue id and the largest number of Spark partitions."""

OnCorruptMessage: TypeAlias = Literal["fail", "skip", "null"]


@attrs.frozen
class ReadOptions:
    """The options of a read. Times are seconds, sizes bytes."""

    name_servers: tuple[str, ...]
    access: ClusterAccess = OF_THE_ENVIRONMENT
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assigned: tuple[MessageQueue, ...] = ()
    subscription: Subscription = ALL
    starting: Position = "earliest"
    ending: Position = "latest"
    fail_on_data_loss: bool = True
    schema_mode: Literal["rocketmq", "kafka"] = "rocketmq"
    include_headers: bool = False
    columns: tuple[str, ...] | None = None
    properties: Literal["map", "string", "none"] = "map"
    inflate: bool = True
    check_crc: bool = False
    on_corrupt_message: OnCorruptMessage = "fail"
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    min_records_per_partition: int = 20_000
    max_partitions: int | None = None
    offset_retries: int = 3
    offset_retry_interval: float = 0.2
    pull_batch_size: int = 1024
    pull_pipeline_depth: int = 8
    pull_timeout: float = 10.0
    connect_timeout: float = 3.0
    read_retries: int = 5
    batch_size: int = 2 * 1024 * 1024
    batch_rows: int = 8192
    read_from: Literal["auto", "master", "slave"] = "auto"
    max_staleness: StalenessBound | None = None
    consumer_group: str = DEFAULT_GROUP
    filter_pushdown: bool = False


def parse_read_options(
    given: Mapping[str, str],
    *,
    default_start: Literal["earliest", "latest"] = "earliest",
    other_options: Mapping[str, str] | None = None,
) -> ReadOptions:
    """Parse the options of a read, in any letter case. Raises OptionError that names the wrong option.

    `other_options` maps options to the use to which they belong (`option_names.WRITE`): the error for such an option
    names that use instead of calling the option unknown. A stream removes its own options first, and passes
    `BATCH_ONLY_OPTIONS` here.
    """
    texts = known_texts(given, known=OPTION_HELP, what=BATCH_READ, other_options=other_options)
    fields: dict[str, Any] = {
        "name_servers": name_servers_of(texts),
        "access": access_of(texts),
        **_topics(texts),
    }
    has_group = "consumerGroup" in texts
    if has_group:
        fields["consumer_group"] = group_of(texts["consumerGroup"], option="consumerGroup")
    fields["subscription"] = _filter(texts)
    start = _start(texts, default=default_start, has_group=has_group)
    fields["starting"], fields["ending"] = start, _end(texts, start=start)
    fields |= _simple_fields(texts)
    if "columns" in texts:
        names = words_of(texts["columns"], option="columns")
        fields["columns"] = distinct(names, option="columns")
    options = ReadOptions(**fields)
    _check_together(options, texts)
    return options


# Fields that are plain numbers: field, option, smallest value, largest value.
_NUMBERS: Final = (
    ("min_partitions", "minPartitions", 1, _MAX_INT),
    ("max_records_per_partition", "maxRecordsPerPartition", 1, MAX_OFFSET),
    ("min_records_per_partition", "minRecordsPerPartition", 1, MAX_OFFSET),
    ("max_partitions", "maxPartitions", 1, _MAX_INT),
    ("offset_retries", "fetchOffset.numRetries", 0, 1000),
    ("pull_batch_size", "pullBatchSize", 1, 65_535),
    ("pull_pipeline_depth", "pullPipelineDepth", 1, 256),
    ("read_retries", "readRetries", 0, 1000),
    ("batch_size", "batchBytes", 1, 256 * 1024 * 1024),  # Arrow allows 2 GiB a column, inflated.
    ("batch_rows", "batchRows", 1, 1_000_000),
)
# Fields in seconds: field, option, smallest value in milliseconds.
_DURATIONS: Final = (
    ("offset_retry_interval", "fetchOffset.retryIntervalMs", 0),
    ("pull_timeout", "pullTimeoutMs", 1),
    ("connect_timeout", "connectTimeoutMs", 1),
)
_TRUTHS: Final = (
    ("fail_on_data_loss", "failOnDataLoss"),
    ("include_headers", "includeHeaders"),
    ("inflate", "decompress"),
    ("check_crc", "verifyCrc"),
    ("filter_pushdown", "filterPushdown"),
)
_CHOICES: Final = (
    ("schema_mode", "schemaMode", ("rocketmq", "kafka")),
    ("properties", "properties", ("map", "string", "none")),
    ("on_corrupt_message", "onCorruptMessage", ("fail", "skip", "null")),
    ("read_from", "readFrom", ("auto", "master", "slave")),
)


def _simple_fields(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of given options that each set one field."""
    fields: dict[str, Any] = {
        **number_fields(texts, _NUMBERS),
        **duration_fields(texts, _DURATIONS),
        **truth_fields(texts, _TRUTHS),
    }
    for field, option, words in _CHOICES:
        if option in texts:
            fields[field] = choice(texts[option], option=option, words=words)
    if "maxStaleness" in texts:
        fields["max_staleness"] = staleness_bound(texts["maxStaleness"], option="maxStaleness")
    return fields


def _check_together(options: ReadOptions, texts: Mapping[str, str]) -> None:
    """Raise OptionError for options that contradict each other."""
    fewest, most = options.min_partitions, options.max_partitions
    if fewest is not None and most is not None and fewest > most:
        raise OptionError(f"minPartitions={fewest} is more than maxPartitions={most}")
    if options.max_staleness is not None and options.read_from == "master":
        raise OptionError("maxStaleness is about slaves; readFrom=master reads none")
    longest = options.max_records_per_partition
    if (
        longest is not None
        and "minRecordsPerPartition" in texts
        and options.min_records_per_partition > longest
    ):
        raise OptionError(
            f"minRecordsPerPartition={options.min_records_per_partition}"
            f" is more than maxRecordsPerPartition={longest}"
        )
    if options.include_headers and options.schema_mode != "kafka":
        raise OptionError(
            "includeHeaders=true needs schemaMode=kafka; otherwise the column is called properties"
        )


def _topics(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the field of ReadOptions that names what is read. Raises OptionError unless exactly one option does."""
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
                f"subscribePattern={text!r} is not a valid regular expression: {error}"
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
    if not queues or not all(0 <= queue.queue_id <= _MAX_INT for queue in queues):
        raise OptionError(
            f"assign={shown(text)} names no queue, or one below 0 or above {_MAX_INT}"
        )
    return tuple(sorted(queues))


def _filter(texts: Mapping[str, str]) -> Subscription:
    """Return the filter for messages; only brokers can check an SQL92 expression. Raises OptionError."""
    text = texts.get("subExpression")
    kind = TAG_EXPRESSION_TYPE
    if "subExpressionType" in texts:
        words = (TAG_EXPRESSION_TYPE.lower(), SQL92_EXPRESSION_TYPE.lower())
        kind = choice(texts["subExpressionType"], option="subExpressionType", words=words).upper()
    if text is None:
        if kind == SQL92_EXPRESSION_TYPE:
            raise OptionError("subExpressionType=SQL92 needs subExpression, the expression")
        return Subscription()
    if not text.strip():
        raise OptionError("subExpression is blank; omit it to read every message")
    if kind == SQL92_EXPRESSION_TYPE:
        return parse_where(text)
    try:
        subscription = parse_subscription(text)
    except ConfigError as error:
        raise OptionError(
            f"subExpression={shown(text)} is neither a list of tags such as `a || b` nor `*`"
        ) from error
    odd = odd_tag(subscription)
    if odd is not None and "subExpressionType" not in texts:
        raise OptionError(
            f"subExpression={shown(text)} would look for the tag {shown(odd)}; several tags are separated by ||,"
            " an expression needs subExpressionType=SQL92, and a tag like this one needs subExpressionType=TAG"
        )
    return subscription


# Where a read starts and ends. Every given option must be valid, also if another one wins over it:
# startingTimestamp wins over startingOffsetsByTimestamp, which wins over startingOffsets; the ending ones alike.
_FALLBACK: Final = "startingOffsetsFallback"
_STRATEGY: Final = "startingOffsetsByTimestampStrategy"


def _start(
    texts: Mapping[str, str], *, default: Literal["earliest", "latest"], has_group: bool
) -> Position:
    """Return the position where a read starts. Raises OptionError."""
    strategy: WhenNone = "error"
    if _STRATEGY in texts:
        word = choice(texts[_STRATEGY], option=_STRATEGY, words=("error", "latest"))
        strategy = "latest" if word == "latest" else "error"
        if not {"startingTimestamp", "startingOffsetsByTimestamp"} & set(texts):
            raise OptionError(
                f"{_STRATEGY} has no effect without startingTimestamp or startingOffsetsByTimestamp"
            )
    position = _position(texts, "starting", default=default, strategy=strategy)
    if _FALLBACK in texts:
        word = choice(texts[_FALLBACK], option=_FALLBACK, words=("earliest", "latest"))
        if not isinstance(position, GroupOffsets):
            raise OptionError(f"{_FALLBACK} has no effect without startingOffsets=group")
        position = GroupOffsets("latest" if word == "latest" else "earliest")
    if isinstance(position, GroupOffsets) and not has_group:
        raise OptionError(
            "startingOffsets=group needs consumerGroup, the group whose commits it means"
        )
    return position


def _end(texts: Mapping[str, str], *, start: Position) -> Position:
    """Return the position where a read ends. Raises OptionError, also if the end is a time before the start's."""
    end = _position(texts, "ending", default="latest", strategy="latest")
    if (
        isinstance(start, AtTimestamp)
        and isinstance(end, AtTimestamp)
        and start.timestamp_ms > end.timestamp_ms
    ):
        raise OptionError(
            f"startingTimestamp={start.timestamp_ms} is later than endingTimestamp={end.timestamp_ms}"
        )
    return end


def _time_ms(text: str, option: str) -> int:
    """Return a time as commands write it too. Raises OptionError."""
    try:
        return time_ms_of(text, SystemWallClock().now_ms())
    except ConfigError as error:
        raise OptionError(f"{option}={shown(text)} is not a time: {TIME_FORMS}") from error


def _position(
    texts: Mapping[str, str],
    word: Literal["starting", "ending"],
    *,
    default: Literal["earliest", "latest"],
    strategy: WhenNone,
) -> Position:
    given: list[Position] = []
    if (option := f"{word}Timestamp") in texts:
        given.append(AtTimestamp(_time_ms(texts[option], option), strategy))
    if (option := f"{word}OffsetsByTimestamp") in texts:
        given.append(AtTimestamps(parse_timestamp_table(texts[option], option=option), strategy))
    if (option := f"{word}Offsets") in texts:
        given.append(parse_position(texts[option], option=option, is_end=word == "ending"))
    return given[0] if given else default
