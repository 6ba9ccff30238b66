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
from rocketrio.routing.read_policy import StalenessBound
from rocketrio.spark.access import (
    OF_THE_ENVIRONMENT,
    ClusterAccess,
    Servers,
    access_of,
    name_servers_of,
)
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_kinds import (
    COLUMNS,
    ENDS,
    GROUP,
    INSTANT,
    MAX_INT,
    PATTERN,
    QUEUES,
    STALENESS,
    STARTS,
    TEXT,
    TIMES_BY_QUEUE,
    WORDS,
    duration,
    shown,
    whole,
)
from rocketrio.spark.options import (
    BATCH_READ,
    DEFAULT_GROUP,
    declared,
    known_texts,
    made_of,
    option,
    values_of,
)
from rocketrio.spark.reading.offsets import (
    AtTimestamp,
    AtTimestamps,
    GroupOffsets,
    Position,
    WhenNone,
)
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue

OnCorruptMessage: TypeAlias = Literal["fail", "skip", "null"]
SchemaMode: TypeAlias = Literal["rocketmq", "kafka"]
PropertiesAs: TypeAlias = Literal["map", "string", "none"]
ReadFrom: TypeAlias = Literal["auto", "master", "slave"]


@attrs.frozen
class _Topics:
    """The topics that are named, by one of two options."""

    subscribe: tuple[str, ...] = option("subscribe", (), WORDS, argument="topics")
    """topics, separated by commas"""
    topic: tuple[str, ...] = option("topic", (), WORDS, argument="")
    """the same as `subscribe`"""


@attrs.frozen
class _Filter:
    """Which messages brokers select."""

    expression: str | None = option("subExpression", None, TEXT, shown="`*`")
    r"""filtered on the broker: tags as `a \|\| b`, or SQL92; tags are compared exactly once more here, because
    brokers compare hashes"""
    expression_type: Literal["TAG", "SQL92"] | None = option(
        "subExpressionType", None, shown="`TAG`"
    )
    """`TAG` or `SQL92`"""


@attrs.frozen
class _Start:
    """Where a read starts. Every given option must be valid, also if another one wins over it."""

    offsets: Position | None = option(
        "startingOffsets", None, STARTS, shown="`earliest`; of a stream `latest`"
    )
    """`earliest`, `latest`, `group` (what `consumerGroup` has committed), or JSON for every queue:
    `{"orders":{"broker-a":{"0":17,"1":-2}}}` (-2 earliest, -1 latest)"""
    fallback: Literal["earliest", "latest"] | None = option(
        "startingOffsetsFallback", None, shown="`earliest`"
    )
    """with `startingOffsets=group`, for queues without a commit: `earliest` or `latest`"""
    time_ms: int | None = option("startingTimestamp", None, INSTANT)
    """a time: epoch ms, ISO 8601 (without a zone, local time of the driver) or a time back as `-1h30m`; from the
    first message stored then or later; wins over the next two"""
    times: dict[MessageQueue, int] | None = option(
        "startingOffsetsByTimestamp", None, TIMES_BY_QUEUE
    )
    """JSON: topic, broker, queue, epoch ms, for every queue; wins over `startingOffsets`"""
    strategy: WhenNone | None = option("startingOffsetsByTimestampStrategy", None, shown="`error`")
    """for a queue without a message that new: `error`, or `latest` to begin at its end"""


@attrs.frozen
class _End:
    """Where a read ends."""

    offsets: Position | None = option(
        "endingOffsets", None, ENDS, shown="`latest`", batch_only=True
    )
    """`latest` or JSON as above, without -2; an end is exclusive"""
    time_ms: int | None = option("endingTimestamp", None, INSTANT, batch_only=True)
    """a time as above: up to the first message stored then or later, or to the end if there is none; wins over the
    next two"""
    times: dict[MessageQueue, int] | None = option(
        "endingOffsetsByTimestamp", None, TIMES_BY_QUEUE, batch_only=True
    )
    """JSON: topic, broker, queue, epoch ms, for every queue; wins over `endingOffsets`"""


@attrs.frozen
class ReadOptions:
    """The options of a read. Times are seconds, sizes bytes."""

    name_servers: tuple[str, ...] = made_of(Servers, attrs.NOTHING)
    topics: tuple[str, ...] = made_of(_Topics, ())
    topic_pattern: str | None = option("subscribePattern", None, PATTERN)
    """a regular expression of Python (not Java) that whole topic names match; system topics never do"""
    assigned: tuple[MessageQueue, ...] = option("assign", (), QUEUES)
    """queues as JSON: `{"orders":{"broker-a":[0,1]}}`"""
    subscription: Subscription = made_of(_Filter, ALL)
    starting: Position = made_of(_Start, "earliest")
    ending: Position = made_of(_End, "latest")
    fail_on_data_loss: bool = option("failOnDataLoss", True)
    """`false`: lost messages (retention, a truncated or recreated queue) are logged and skipped"""
    schema_mode: SchemaMode = option("schemaMode", "rocketmq")
    """`rocketmq`, or `kafka` for the columns of Spark's Kafka source"""
    include_headers: bool = option("includeHeaders", False)
    """with `schemaMode=kafka`: the properties as column `headers`"""
    columns: tuple[str, ...] | None = option("columns", None, COLUMNS)
    """names separated by commas: only these are decoded and sent to Spark"""
    properties: PropertiesAs = option("properties", "map")
    """column `properties` as `map`, as `string` (the stored text), or `none`"""
    inflate: bool = option("decompress", True)
    """`false`: bodies as they are stored"""
    check_crc: bool = option("verifyCrc", False)
    """`true`: every body is compared with its checksum"""
    on_corrupt_message: OnCorruptMessage = option("onCorruptMessage", "fail")
    """a message that cannot be read: `fail` the query, `skip` it, or `null` in the columns that cannot be read"""
    min_partitions: int | None = option("minPartitions", None, whole(1, MAX_INT))
    """large ranges are split until there are at least this many partitions"""
    max_records_per_partition: int | None = option("maxRecordsPerPartition", None, whole(1))
    """longer ranges are split"""
    min_records_per_partition: int = option("minRecordsPerPartition", 20_000, whole(1))
    """shorter ranges share a task, because each task costs about 30 ms"""
    max_partitions: int | None = option("maxPartitions", None, whole(1, MAX_INT))
    """the largest number of partitions"""
    offset_retries: int = option("fetchOffset.numRetries", 3, whole(0, 1000))
    """how often a failed request for offsets is repeated"""
    offset_retry_interval: float = option("fetchOffset.retryIntervalMs", 0.2, duration(0))
    """the pause before each repetition"""
    pull_batch_size: int = option("pullBatchSize", 1024, whole(1, 65_535))
    """messages per pull; brokers have a limit of their own, see below"""
    pull_pipeline_depth: int = option("pullPipelineDepth", 8, whole(1, 256))
    """pulls of one range that are under way at the same time"""
    pull_timeout: float = option("pullTimeoutMs", 10.0, duration(1))
    """how long a pull may take"""
    connect_timeout: float = option("connectTimeoutMs", 3.0, duration(1))
    """how long a connection may take"""
    read_retries: int = option("readRetries", 5, whole(0, 1000))
    """how often a failed pull is repeated"""
    # Arrow allows 2 GiB a column, inflated.
    batch_size: int = option("batchBytes", 2 * 1024 * 1024, whole(1, 256 * 1024 * 1024))
    """a record batch goes to Spark when it has this many stored bytes"""
    batch_rows: int = option("batchRows", 8192, whole(1, 1_000_000))
    """or this many rows"""
    read_from: ReadFrom = option("readFrom", "auto")
    """`auto`: the replica that the broker suggests, which is a slave for messages that are no longer in the
    master's memory; `slave`: a slave, and the master for what slaves lack; `master`: only the master"""
    max_staleness: StalenessBound | None = option("maxStaleness", None, STALENESS)
    """how far behind its master a slave that is read may be: `10000 messages`, or a duration with a unit (`5s`),
    which Apache's slaves do not report; other slaves are not read, even while the master is away"""
    consumer_group: str = option("consumerGroup", DEFAULT_GROUP, GROUP)
    """the group that pulls name, and whose commits `startingOffsets=group` reads"""
    access: ClusterAccess = made_of(ClusterAccess, OF_THE_ENVIRONMENT)
    filter_pushdown: bool = option("filterPushdown", False, batch_only=True)
    """`true`: conditions of the query limit what is read; needs `spark.sql.python.filterPushdown.enabled`"""


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
        **values_of(ReadOptions, texts),
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
    given = _Topics(**values_of(_Topics, texts))
    return given.subscribe or given.topic


def _filter(texts: Mapping[str, str]) -> Subscription:
    """Return the filter for messages; only brokers can check an SQL92 expression. Raises OptionError."""
    given = _Filter(**values_of(_Filter, texts))
    text, is_sql = given.expression, given.expression_type == SQL92_EXPRESSION_TYPE
    if text is None:
        if is_sql:
            raise OptionError("subExpressionType=SQL92 needs subExpression, the expression")
        return Subscription()
    if not text.strip():
        raise OptionError("subExpression is blank; omit it to read every message")
    if is_sql:
        return parse_where(text)
    try:
        subscription = parse_subscription(text)
    except ConfigError as error:
        raise OptionError(
            f"subExpression={shown(text)} is neither a list of tags such as `a || b` nor `*`"
        ) from error
    odd = odd_tag(subscription)
    if odd is not None and given.expression_type is None:
        raise OptionError(
            f"subExpression={shown(text)} would look for the tag {shown(odd)}; several tags are separated by ||,"
            " an expression needs subExpressionType=SQL92, and a tag like this one needs subExpressionType=TAG"
        )
    return subscription


def _start(texts: Mapping[str, str], *, default: Literal["earliest", "latest"]) -> Position:
    """Return the position where a read starts. Raises OptionError."""
    given = _Start(**values_of(_Start, texts))
    if given.strategy is not None and given.time_ms is None and given.times is None:
        raise OptionError(
            "startingOffsetsByTimestampStrategy has no effect without startingTimestamp or startingOffsetsByTimestamp"
        )
    position = _position(given, given.strategy or "error") or default
    if given.fallback is not None:
        if not isinstance(position, GroupOffsets):
            raise OptionError("startingOffsetsFallback has no effect without startingOffsets=group")
        position = GroupOffsets(given.fallback)
    if isinstance(position, GroupOffsets) and "consumerGroup" not in texts:
        raise OptionError(
            "startingOffsets=group needs consumerGroup, the group whose commits it means"
        )
    return position


def _end(texts: Mapping[str, str], *, start: Position) -> Position:
    """Return the position where a read ends. Raises OptionError, also if the end is a time before the start's."""
    end = _position(_End(**values_of(_End, texts)), "latest") or "latest"
    if (
        isinstance(start, AtTimestamp)
        and isinstance(end, AtTimestamp)
        and start.timestamp_ms > end.timestamp_ms
    ):
        raise OptionError(
            f"startingTimestamp={start.timestamp_ms} is later than endingTimestamp={end.timestamp_ms}"
        )
    return end


def _position(given: _Start | _End, strategy: WhenNone) -> Position | None:
    """Return the position that is given, if any: a time wins over times by queue, and these over offsets."""
    if given.time_ms is not None:
        return AtTimestamp(given.time_ms, strategy)
    if given.times is not None:
        return AtTimestamps(given.times, strategy)
    return given.offsets
