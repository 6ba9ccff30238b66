"""Parses the options of a read: from the texts that Spark passes on to values.

Invariant: `parse_read_options` is pure and fast, because Spark calls it several times for one query.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from rocketrio.consuming.subscription import ALL, Subscription
from rocketrio.routing.read_policy import StalenessBound
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import (
    choice,
    distinct,
    duration_fields,
    group_of,
    name_servers_of,
    number_fields,
    staleness_bound,
    truth_fields,
    words_of,
)
from rocketrio.spark.reading.offsets import MAX_OFFSET, Position
from rocketrio.spark.reading.option_names import BATCH_READ, DEFAULT_GROUP, OPTION_HELP, known_texts
from rocketrio.spark.reading.position_options import parse_end, parse_start
from rocketrio.spark.reading.topic_options import MAX_INT, parse_filter, parse_topics
from rocketrio_protocol.message import MessageQueue

__all__ = ["DEFAULT_GROUP", "OPTION_HELP", "ReadOptions", "parse_read_options"]

OnCorruptMessage: TypeAlias = Literal["fail", "skip", "null"]


@attrs.frozen
class ReadOptions:
    """The options of a read. Times are seconds, sizes bytes."""

    name_servers: tuple[str, ...]
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
    fields: dict[str, Any] = {"name_servers": name_servers_of(texts), **parse_topics(texts)}
    has_group = "consumerGroup" in texts
    if has_group:
        fields["consumer_group"] = group_of(texts["consumerGroup"], option="consumerGroup")
    fields["subscription"] = parse_filter(texts)
    start = parse_start(texts, default=default_start, has_group=has_group)
    fields["starting"], fields["ending"] = start, parse_end(texts, start=start)
    fields |= _simple_fields(texts)
    if "columns" in texts:
        names = words_of(texts["columns"], option="columns")
        fields["columns"] = distinct(names, option="columns")
    options = ReadOptions(**fields)
    _check_together(options, texts)
    return options


# Fields that are plain numbers: field, option, smallest value, largest value.
_NUMBERS: Final = (
    ("min_partitions", "minPartitions", 1, MAX_INT),
    ("max_records_per_partition", "maxRecordsPerPartition", 1, MAX_OFFSET),
    ("min_records_per_partition", "minRecordsPerPartition", 1, MAX_OFFSET),
    ("max_partitions", "maxPartitions", 1, MAX_INT),
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
            "includeHeaders=true wants schemaMode=kafka; otherwise the column is called properties"
        )
