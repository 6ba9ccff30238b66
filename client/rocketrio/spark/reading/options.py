"""The options of a read, and their parser: from the texts that Spark passes on to values.

Invariant: `parse_read_options` is pure and fast, because Spark calls it several times for one query.
Answers to: KafkaSourceProvider.getKafkaOffsetRangeLimit, for the start and the end.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from rocketrio.consuming.subscription import (
    ALL,
    SQL92_EXPRESSION_TYPE,
    Subscription,
    odd_tag,
    parse_subscription,
    parse_where,
)
from rocketrio.queue_positions import TIME_FORMS, time_ms_of
from rocketrio.routing.read_policy import StalenessBound
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
    COLUMNS,
    GROUP,
    INSTANT,
    MAX_INT,
    PATTERN,
    QUEUES,
    STALENESS,
    TEXT,
    TIMES_BY_QUEUE,
    TRUTH,
    WORDS,
    choice,
    duration,
    offsets_by_queue,
    shown,
    whole,
)
from rocketrio.spark.options import (
    BATCH_READ,
    DEFAULT_GROUP,
    Option,
    declared,
    fields_of,
    from_options,
    known_texts,
    option,
)
from rocketrio.spark.reading.offsets import (
    AtTimestamp,
    AtTimestamps,
    GroupOffsets,
    Position,
    WhenNone,
    parse_position,
    parse_timestamp_table,
)
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.ports import SystemWallClock

OnCorruptMessage: TypeAlias = Literal["fail", "skip", "null"]
SchemaMode: TypeAlias = Literal["rocketmq", "kafka"]
PropertiesAs: TypeAlias = Literal["map", "string", "none"]
ReadFrom: TypeAlias = Literal["auto", "master", "slave"]

_TIMES: Final = "JSON: topic, broker, queue, epoch ms, for every queue"


@attrs.frozen
class ReadOptions:
    """The options of a read. Times are seconds, sizes bytes."""

    name_servers: tuple[str, ...] = from_options(attrs.NOTHING, NAME_SERVER)
    topics: tuple[str, ...] = from_options(
        (),
        Option("subscribe", WORDS, "topics, separated by commas", argument="topics"),
        Option("topic", WORDS, "the same as `subscribe`", argument=""),
    )
    topic_pattern: str | None = option(
        "subscribePattern",
        PATTERN,
        None,
        "a regular expression of Python (not Java) that whole topic names match; system topics never do",
    )
    assigned: tuple[MessageQueue, ...] = option(
        "assign", QUEUES, (), 'queues as JSON: `{"orders":{"broker-a":[0,1]}}`'
    )
    subscription: Subscription = from_options(
        ALL,
        Option(
            "subExpression",
            TEXT,
            r"filtered on the broker: tags as `a \|\| b`, or SQL92; tags are compared exactly once more here,"
            " because brokers compare hashes",
            "`*`",
        ),
        Option("subExpressionType", choice(Literal["TAG", "SQL92"]), "`TAG` or `SQL92`", "`TAG`"),
    )
    starting: Position = from_options(
        "earliest",
        Option(
            "startingOffsets",
            offsets_by_queue(Literal["earliest", "latest", "group"]),
            "`earliest`, `latest`, `group` (what `consumerGroup` has committed), or JSON for every queue:"
            ' `{"orders":{"broker-a":{"0":17,"1":-2}}}` (-2 earliest, -1 latest)',
            "`earliest`; of a stream `latest`",
        ),
        Option(
            "startingOffsetsFallback",
            choice(Literal["earliest", "latest"]),
            "with `startingOffsets=group`, for queues without a commit: `earliest` or `latest`",
            "`earliest`",
        ),
        Option(
            "startingTimestamp",
            INSTANT,
            "a time: epoch ms, ISO 8601 (without a zone, local time of the driver) or a time back as `-1h30m`; "
            "from the first message stored then or later; wins over the next two",
        ),
        Option(
            "startingOffsetsByTimestamp", TIMES_BY_QUEUE, f"{_TIMES}; wins over `startingOffsets`"
        ),
        Option(
            "startingOffsetsByTimestampStrategy",
            choice(Literal["error", "latest"]),
            "for a queue without a message that new: `error`, or `latest` to begin at its end",
            "`error`",
        ),
    )
    ending: Position = from_options(
        "latest",
        Option(
            "endingOffsets",
            offsets_by_queue(Literal["latest"]),
            "`latest` or JSON as above, without -2; an end is exclusive",
            "`latest`",
            batch_only=True,
        ),
        Option(
            "endingTimestamp",
            INSTANT,
            "a time as above: up to the first message stored then or later, or to the end if there is none;"
            " wins over the next two",
            batch_only=True,
        ),
        Option(
            "endingOffsetsByTimestamp",
            TIMES_BY_QUEUE,
            f"{_TIMES}; wins over `endingOffsets`",
            batch_only=True,
        ),
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        TRUTH,
        True,
        "`false`: lost messages (retention, a truncated or recreated queue) are logged and skipped",
    )
    schema_mode: SchemaMode = option(
        "schemaMode",
        choice(SchemaMode),
        "rocketmq",
        "`rocketmq`, or `kafka` for the columns of Spark's Kafka source",
    )
    include_headers: bool = option(
        "includeHeaders",
        TRUTH,
        False,
        "with `schemaMode=kafka`: the properties as column `headers`",
    )
    columns: tuple[str, ...] | None = option(
        "columns",
        COLUMNS,
        None,
        "names separated by commas: only these are decoded and sent to Spark",
    )
    properties: PropertiesAs = option(
        "properties",
        choice(PropertiesAs),
        "map",
        "column `properties` as `map`, as `string` (the stored text), or `none`",
    )
    inflate: bool = option("decompress", TRUTH, True, "`false`: bodies as they are stored")
    check_crc: bool = option(
        "verifyCrc", TRUTH, False, "`true`: every body is compared with its checksum"
    )
    on_corrupt_message: OnCorruptMessage = option(
        "onCorruptMessage",
        choice(OnCorruptMessage),
        "fail",
        "a message that cannot be read: `fail` the query, `skip` it, or `null` in the columns that cannot be read",
    )
    min_partitions: int | None = option(
        "minPartitions",
        whole(1, MAX_INT),
        None,
        "large ranges are split until there are at least this many partitions",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition", whole(1), None, "longer ranges are split"
    )
    min_records_per_partition: int = option(
        "minRecordsPerPartition",
        whole(1),
        20_000,
        "shorter ranges share a task, because each task costs about 30 ms",
    )
    max_partitions: int | None = option(
        "maxPartitions", whole(1, MAX_INT), None, "the largest number of partitions"
    )
    offset_retries: int = option(
        "fetchOffset.numRetries",
        whole(0, 1000),
        3,
        "how often a failed request for offsets is repeated",
    )
    offset_retry_interval: float = option(
        "fetchOffset.retryIntervalMs", duration(0), 0.2, "the pause before each repetition"
    )
    pull_batch_size: int = option(
        "pullBatchSize",
        whole(1, 65_535),
        1024,
        "messages per pull; brokers have a limit of their own, see below",
    )
    pull_pipeline_depth: int = option(
        "pullPipelineDepth",
        whole(1, 256),
        8,
        "pulls of one range that are under way at the same time",
    )
    pull_timeout: float = option("pullTimeoutMs", duration(1), 10.0, "how long a pull may take")
    connect_timeout: float = option(
        "connectTimeoutMs", duration(1), 3.0, "how long a connection may take"
    )
    read_retries: int = option(
        "readRetries", whole(0, 1000), 5, "how often a failed pull is repeated"
    )
    batch_size: int = option(
        "batchBytes",
        whole(1, 256 * 1024 * 1024),  # Arrow allows 2 GiB a column, inflated.
        2 * 1024 * 1024,
        "a record batch goes to Spark when it has this many stored bytes",
    )
    batch_rows: int = option("batchRows", whole(1, 1_000_000), 8192, "or this many rows")
    read_from: ReadFrom = option(
        "readFrom",
        choice(ReadFrom),
        "auto",
        "`auto`: the replica that the broker suggests, which is a slave for messages that are no longer in the"
        " master's memory; `slave`: a slave, and the master for what slaves lack; `master`: only the master",
    )
    max_staleness: StalenessBound | None = option(
        "maxStaleness",
        STALENESS,
        None,
        "how far behind its master a slave that is read may be: `10000 messages`, or a duration with a unit (`5s`),"
        " which Apache's slaves do not report; other slaves are not read, even while the master is away",
    )
    consumer_group: str = option(
        "consumerGroup",
        GROUP,
        DEFAULT_GROUP,
        "the group that pulls name, and whose commits `startingOffsets=group` reads",
    )
    access: ClusterAccess = from_options(OF_THE_ENVIRONMENT, *ACCESS_OPTIONS.values())
    filter_pushdown: bool = option(
        "filterPushdown",
        TRUTH,
        False,
        "`true`: conditions of the query limit what is read; needs `spark.sql.python.filterPushdown.enabled`",
        batch_only=True,
    )


READ_OPTIONS: Final = declared(ReadOptions)
"""Every option of a batch read; a stream knows them too, except those in `BATCH_ONLY_OPTIONS`."""

BATCH_ONLY_OPTIONS: Final = tuple(name for name, one in READ_OPTIONS.items() if one.batch_only)


def parse_read_options(
    given: Mapping[str, str],
    *,
    default_start: Literal["earliest", "latest"] = "earliest",
    other_options: Mapping[str, str] | None = None,
) -> ReadOptions:
    """Parse the options of a read, in any letter case. Raises OptionError that names the wrong option.

    `other_options` maps options to the use to which they belong (`options.WRITE`): the error for such an option
    names that use instead of calling the option unknown. A stream removes its own options first, and passes
    `BATCH_ONLY_OPTIONS` here.
    """
    texts = known_texts(given, known=READ_OPTIONS, what=BATCH_READ, other_options=other_options)
    fields: dict[str, Any] = {
        "name_servers": name_servers_of(texts),
        "access": access_of(texts),
        "topics": _topics(texts),
        **fields_of(ReadOptions, texts),
        "subscription": _filter(texts),
        "starting": (start := _start(texts, default=default_start)),
        "ending": _end(texts, start=start),
    }
    options = ReadOptions(**fields)
    _check_together(options, texts)
    return options


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


def _topics(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the topics that are named. Raises OptionError unless exactly one option says what is read."""
    ways = [name for name in ("subscribe", "topic", "subscribePattern", "assign") if name in texts]
    if len(ways) != 1:
        said = f"{' and '.join(ways)} are given" if ways else "none is given"
        raise OptionError(f"give one of subscribe, subscribePattern and assign; {said}")
    return _parsed("subscribe", texts) or _parsed("topic", texts) or ()


def _parsed(name: str, texts: Mapping[str, str]) -> Any:
    """Return the value of an option, or None if it is not given."""
    return READ_OPTIONS[name].kind.parse(texts[name], name) if name in texts else None


def _filter(texts: Mapping[str, str]) -> Subscription:
    """Return the filter for messages; only brokers can check an SQL92 expression. Raises OptionError."""
    text = texts.get("subExpression")
    kind = _parsed("subExpressionType", texts)
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


def _start(texts: Mapping[str, str], *, default: Literal["earliest", "latest"]) -> Position:
    """Return the position where a read starts. Raises OptionError."""
    strategy: WhenNone | None = _parsed(_STRATEGY, texts)
    if strategy and not {"startingTimestamp", "startingOffsetsByTimestamp"} & set(texts):
        raise OptionError(
            f"{_STRATEGY} has no effect without startingTimestamp or startingOffsetsByTimestamp"
        )
    position = _position(texts, "starting", default=default, strategy=strategy or "error")
    fallback = _parsed(_FALLBACK, texts)
    if fallback is not None:
        if not isinstance(position, GroupOffsets):
            raise OptionError(f"{_FALLBACK} has no effect without startingOffsets=group")
        position = GroupOffsets(fallback)
    if isinstance(position, GroupOffsets) and "consumerGroup" not in texts:
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
