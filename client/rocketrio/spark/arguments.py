"""The options of a read as Python arguments: their types, and the conversion of each to the text that Spark passes on.

An argument is named like its option, in snake_case. It takes Python values: lists, mappings, datetimes and booleans.
Durations are seconds: `pull_timeout=2.5` is `pullTimeoutMs=2500`.

Invariant: every option of a read is an argument here, and every argument is an option.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from numbers import Integral
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypedDict

import msgspec

from rocketrio import arguments
from rocketrio.places import MILLISECONDS_MIN
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import suggestion
from rocketrio_protocol.errors import ConfigError

QueueIds: TypeAlias = Mapping[str, Mapping[str, Sequence[int]]]
"""Topic to broker to queue ids: `{"orders": {"broker-a": [0, 1]}}`."""

OffsetsByQueue: TypeAlias = Mapping[str, Mapping[str, Mapping[int, int]]]
"""Topic to broker to queue id to offset; -2 is the earliest offset, -1 the latest."""

Time: TypeAlias = datetime | int
"""A date with its time zone, or epoch milliseconds."""

TimesByQueue: TypeAlias = Mapping[str, Mapping[str, Mapping[int, Time]]]
"""Topic to broker to queue id to time."""


class ReadArguments(TypedDict, total=False):
    """The arguments that batches and streams share; docs/spark.md explains each option."""

    name_servers: str | Sequence[str] | None
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    credentials_file: str | None
    tls: bool | None
    tls_ca_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None
    tls_key_password_file: str | None
    tls_check_host_name: bool | None
    subscribe_pattern: str | None
    assign: QueueIds | None
    sub_expression: str | None
    sub_expression_type: Literal["TAG", "SQL92"] | None
    starting_offsets: Literal["earliest", "latest", "group"] | OffsetsByQueue | None
    starting_offsets_fallback: Literal["earliest", "latest"] | None
    starting_timestamp: Time | None
    starting_offsets_by_timestamp: TimesByQueue | None
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] | None
    fail_on_data_loss: bool | None
    schema_mode: Literal["rocketmq", "kafka"] | None
    columns: str | Sequence[str] | None
    properties: Literal["map", "string", "none"] | None
    include_headers: bool | None
    min_partitions: int | None
    max_records_per_partition: int | None
    min_records_per_partition: int | None
    max_partitions: int | None
    pull_batch_size: int | None
    pull_pipeline_depth: int | None
    pull_timeout: float | None
    connect_timeout: float | None
    read_retries: int | None
    fetch_offset_num_retries: int | None
    fetch_offset_retry_interval: float | None
    batch_bytes: int | None
    batch_rows: int | None
    read_from: Literal["auto", "master", "slave"] | None
    max_staleness: str | None
    decompress: bool | None
    verify_crc: bool | None
    on_corrupt_message: Literal["fail", "skip", "null"] | None
    consumer_group: str | None


class BatchArguments(ReadArguments, total=False):
    """The arguments of a batch, which has an end."""

    ending_offsets: Literal["latest"] | OffsetsByQueue | None
    ending_timestamp: Time | None
    ending_offsets_by_timestamp: TimesByQueue | None
    filter_pushdown: bool | None


class StreamArguments(ReadArguments, total=False):
    """The arguments of a stream, which has triggers and can commit what it has read."""

    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: float | None
    offset_poll_interval: float | None
    discovery_interval: float | None
    offset_failure_timeout: float | None
    retired_brokers: str | Sequence[str] | None
    commit_offsets: bool | None
    commit_interval: float | None


def option_texts(given: Mapping[str, object]) -> dict[str, str]:
    """Convert arguments to the options of `DataFrameReader.options`; None is omitted.

    Raises OptionError that names the argument for a value that is not valid, and TypeError for an unknown argument.
    """
    texts: dict[str, str] = {}
    for name, value in given.items():
        if name not in ARGUMENTS:
            raise TypeError(f"unknown argument {name!r}{suggestion(name, tuple(ARGUMENTS))}")
        if value is not None:
            option, text_of = ARGUMENTS[name]
            try:
                texts[option] = text_of(name, value)
            except ConfigError as error:
                raise OptionError(error.what) from None
    return texts


def _wrong(name: str, value: object, wanted: str) -> NoReturn:
    raise ConfigError(f"{name}={value!r} must be {wanted}")


def _word(name: str, value: object) -> str:
    arguments.text(name, value)
    return str(value)


def _secret(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be text")  # Without the value.
    return value


def _path(name: str, value: object) -> str:
    return str(arguments.path(name, value))


def _listed(separator: str) -> "_TextOf":
    def text(name: str, value: object) -> str:
        if isinstance(value, str):
            return value
        entries = arguments.list_of(str, name, value)  # type: ignore[arg-type]  # which it checks
        if split := [one for one in entries if separator in one]:
            _wrong(name, split[0], f"one entry of a list: {separator!r} separates entries")
        return separator.join(entries)

    return text


def _whole(name: str, value: object) -> int:
    arguments.whole_number(name, value)
    return int(value)  # type: ignore[call-overload,no-any-return]  # a whole number


def _number(name: str, value: object) -> str:
    return str(_whole(name, value))


def _truth(name: str, value: object) -> str:
    arguments.flag(name, value)
    return str(value).lower()


def _milliseconds(name: str, value: object) -> str:
    arguments.seconds(name, value, may_be_0=True)
    if value >= _FOREVER:  # type: ignore[operator]  # a number
        _wrong(name, value, f"less than {_FOREVER:g} seconds")
    return str(round(value * 1000))  # type: ignore[operator]


def _delay(name: str, value: object) -> str:
    return f"{_milliseconds(name, value)}ms"


def _epoch_ms(name: str, value: object) -> int:
    if isinstance(value, datetime):
        time_ms = arguments.epoch_ms(name, value)
        return time_ms if time_ms >= MILLISECONDS_MIN else 0  # Before any cluster, and not seconds.
    if not isinstance(value, Integral) or isinstance(value, bool):
        _wrong(name, value, "a datetime or epoch milliseconds")
    return int(value)


def _time(name: str, value: object) -> str:
    return str(_epoch_ms(name, value))


def _queue_ids(name: str, value: object) -> list[int]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        _wrong(name, value, "a list of queue ids")
    return [_whole(name, one) for one in value]


def _by_queue(leaf: Callable[[str, object], object]) -> "_TextOf":
    """Return the function that encodes a mapping by topic, broker and queue id as JSON; `leaf` converts its values."""

    def text(name: str, value: object) -> str:
        def of_broker(queues: Any) -> object:
            return {
                _number(name, queue_id): leaf(name, one)
                for queue_id, one in _entries(name, queues, "queue id")
            }

        return _by_broker(name, value, of_broker)

    return text


def _assigned(name: str, value: object) -> str:
    return _by_broker(name, value, lambda ids: _queue_ids(name, ids))


def _by_broker(name: str, value: object, of_broker: Callable[[object], object]) -> str:
    found = {
        _word(name, topic): {
            _word(name, broker): of_broker(one) for broker, one in _entries(name, brokers, "broker")
        }
        for topic, brokers in _entries(name, value, "topic")
    }
    return msgspec.json.encode(found).decode()


def _entries(name: str, value: object, key: str) -> list[tuple[object, object]]:
    if not isinstance(value, Mapping):
        _wrong(name, value, f"a mapping by {key}, as in {{'orders': {{'broker-a': {{0: 17}}}}}}")
    return list(value.items())


def _word_or(otherwise: "_TextOf") -> "_TextOf":
    def text(name: str, value: object) -> str:
        return value if isinstance(value, str) else otherwise(name, value)

    return text


_TextOf: TypeAlias = Callable[[str, object], str]

_FOREVER: Final = 1e12  # seconds; a larger number would not fit the milliseconds of a JVM's long
_OFFSETS: Final = _word_or(_by_queue(_whole))
_TIMES: Final = _by_queue(_epoch_ms)

ARGUMENTS: Final[Mapping[str, tuple[str, _TextOf]]] = {
    "topics": ("subscribe", _listed(",")),
    "name_servers": ("nameServer", _listed(";")),
    "access_key": ("accessKey", _word),
    "secret_key": ("secretKey", _secret),
    "security_token": ("securityToken", _secret),
    "credentials_file": ("credentialsFile", _path),
    "tls": ("tls", _truth),
    "tls_ca_file": ("tls.caFile", _path),
    "tls_cert_file": ("tls.certFile", _path),
    "tls_key_file": ("tls.keyFile", _path),
    "tls_key_password_file": ("tls.keyPasswordFile", _path),
    "tls_check_host_name": ("tls.checkHostName", _truth),
    "subscribe_pattern": ("subscribePattern", _word),
    "assign": ("assign", _assigned),
    "sub_expression": ("subExpression", _word),
    "sub_expression_type": ("subExpressionType", _word),
    "starting_offsets": ("startingOffsets", _OFFSETS),
    "starting_offsets_fallback": ("startingOffsetsFallback", _word),
    "starting_timestamp": ("startingTimestamp", _time),
    "starting_offsets_by_timestamp": ("startingOffsetsByTimestamp", _TIMES),
    "starting_offsets_by_timestamp_strategy": ("startingOffsetsByTimestampStrategy", _word),
    "ending_offsets": ("endingOffsets", _OFFSETS),
    "ending_timestamp": ("endingTimestamp", _time),
    "ending_offsets_by_timestamp": ("endingOffsetsByTimestamp", _TIMES),
    "fail_on_data_loss": ("failOnDataLoss", _truth),
    "filter_pushdown": ("filterPushdown", _truth),
    "schema_mode": ("schemaMode", _word),
    "columns": ("columns", _listed(",")),
    "properties": ("properties", _word),
    "include_headers": ("includeHeaders", _truth),
    "min_partitions": ("minPartitions", _number),
    "max_records_per_partition": ("maxRecordsPerPartition", _number),
    "min_records_per_partition": ("minRecordsPerPartition", _number),
    "max_partitions": ("maxPartitions", _number),
    "max_offsets_per_trigger": ("maxOffsetsPerTrigger", _number),
    "max_bytes_per_trigger": ("maxBytesPerTrigger", _number),
    "min_offsets_per_trigger": ("minOffsetsPerTrigger", _number),
    "max_trigger_delay": ("maxTriggerDelay", _delay),
    "offset_poll_interval": ("offsetPollIntervalMs", _milliseconds),
    "discovery_interval": ("discoveryIntervalMs", _milliseconds),
    "offset_failure_timeout": ("offsetFailureTimeoutMs", _milliseconds),
    "retired_brokers": ("retiredBrokers", _listed(",")),
    "commit_offsets": ("commitOffsets", _truth),
    "commit_interval": ("commitIntervalMs", _milliseconds),
    "pull_batch_size": ("pullBatchSize", _number),
    "pull_pipeline_depth": ("pullPipelineDepth", _number),
    "pull_timeout": ("pullTimeoutMs", _milliseconds),
    "connect_timeout": ("connectTimeoutMs", _milliseconds),
    "read_retries": ("readRetries", _number),
    "fetch_offset_num_retries": ("fetchOffset.numRetries", _number),
    "fetch_offset_retry_interval": ("fetchOffset.retryIntervalMs", _milliseconds),
    "batch_bytes": ("batchBytes", _number),
    "batch_rows": ("batchRows", _number),
    "read_from": ("readFrom", _word),
    "max_staleness": ("maxStaleness", _word),
    "decompress": ("decompress", _truth),
    "verify_crc": ("verifyCrc", _truth),
    "on_corrupt_message": ("onCorruptMessage", _word),
    "consumer_group": ("consumerGroup", _word),
}
"""Argument to its option, and to the function that makes the option's text."""
