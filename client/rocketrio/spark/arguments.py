"""The options of a read as Python arguments: their types for checkers, and their conversion to the texts of options.

An argument is named like its option, in snake_case. It takes Python values: lists, mappings, datetimes and booleans.
Durations are seconds: `pull_timeout=2.5` is `pullTimeoutMs=2500`.

Invariant: every option of a read is an argument here, and every argument is an option. A test compares names and types.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypedDict

from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_kinds import OffsetsByQueue, QueueIds, Time, TimesByQueue, suggestion
from rocketrio.spark.options import Option
from rocketrio.spark.reading.options import READ_OPTIONS
from rocketrio.spark.streaming.options import STREAM_OPTIONS
from rocketrio_protocol.errors import ConfigError


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


ARGUMENTS: Final[Mapping[str, Option]] = {
    one.argument: one for one in (*READ_OPTIONS.values(), *STREAM_OPTIONS.values()) if one.argument
}


def option_texts(given: Mapping[str, object]) -> dict[str, str]:
    """Convert arguments to the options of `DataFrameReader.options`; None is omitted.

    Raises OptionError that names the argument for a value that is not valid, and TypeError for an unknown argument.
    """
    texts: dict[str, str] = {}
    for name, value in given.items():
        if name not in ARGUMENTS:
            raise TypeError(f"unknown argument {name!r}{suggestion(name, tuple(ARGUMENTS))}")
        if value is not None:
            option = ARGUMENTS[name]
            try:
                texts[option.name] = option.kind.text_of(name, value)
            except ConfigError as error:
                raise OptionError(error.what) from None
    return texts


def with_arguments(text: str) -> str:
    """Return an error's text with the names of arguments in place of the names of options."""
    return _OPTION_NAME.sub(lambda found: _ARGUMENT_OF[found[0]], text)


_ARGUMENT_OF: Final = {option.name: argument for argument, option in ARGUMENTS.items()}
_OPTION_NAME: Final = re.compile(
    r"(?<![\w.])(?:"
    + "|".join(map(re.escape, sorted(_ARGUMENT_OF, key=len, reverse=True)))
    + r")(?!\w)"
)
