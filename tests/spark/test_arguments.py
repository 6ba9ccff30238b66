"""Arguments of Python become the texts of options, and what cannot is refused by its name."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_type_hints

import pytest

from rocketrio.spark.arguments import (
    ARGUMENTS,
    BatchArguments,
    ReadArguments,
    StreamArguments,
    option_texts,
)
from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.options import BATCH_ONLY_OPTIONS, READ_OPTIONS
from rocketrio.spark.streaming.options import STREAM_OPTIONS

FIRST_ANSWER = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("argument", "value", "option", "text"),
    [
        ("topics", "orders", "subscribe", "orders"),
        ("topics", ["orders", "returns"], "subscribe", "orders,returns"),
        ("name_servers", ("a:1", "b:2"), "nameServer", "a:1;b:2"),
        ("columns", ["body", "tags"], "columns", "body,tags"),
        ("retired_brokers", ["broker-b", "broker-c"], "retiredBrokers", "broker-b,broker-c"),
        ("assign", {"orders": {"broker-a": range(2)}}, "assign", '{"orders":{"broker-a":[0,1]}}'),
        ("starting_offsets", "latest", "startingOffsets", "latest"),
        (
            "starting_offsets",
            {"orders": {"broker-a": {0: 17, 1: -2}}},
            "startingOffsets",
            '{"orders":{"broker-a":{"0":17,"1":-2}}}',
        ),
        ("starting_timestamp", 1_700_000_000_000, "startingTimestamp", "1700000000000"),
        ("ending_timestamp", FIRST_ANSWER, "endingTimestamp", "1767315845678"),
        (
            "starting_offsets_by_timestamp",
            {"orders": {"broker-a": {3: datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)}}},
            "startingOffsetsByTimestamp",
            '{"orders":{"broker-a":{"3":1000000000000}}}',
        ),
        ("fail_on_data_loss", False, "failOnDataLoss", "false"),
        ("min_partitions", 7, "minPartitions", "7"),
        ("pull_timeout", 2.5, "pullTimeoutMs", "2500"),
        ("fetch_offset_retry_interval", 0.2, "fetchOffset.retryIntervalMs", "200"),
        ("max_trigger_delay", 90, "maxTriggerDelay", "90000ms"),
        ("max_staleness", "10000 messages", "maxStaleness", "10000 messages"),
    ],
)
def test_values_become_texts(argument: str, value: Any, option: str, text: str) -> None:
    assert option_texts({argument: value}) == {option: text}


def test_none_is_left_out() -> None:
    assert option_texts({"topics": "orders", "columns": None, "min_partitions": None}) == {
        "subscribe": "orders"
    }


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("topics", 5, "topics=5 must be a list of str"),
        ("topics", ["a,b"], "topics='a,b' must be one entry of a list: ',' separates entries"),
        ("name_servers", ["a:1", 2], "holds 2, and each must be a str"),
        ("min_partitions", "7", "min_partitions='7' must be a whole number"),
        ("min_partitions", True, "min_partitions=True must be a whole number"),
        ("fail_on_data_loss", "false", "fail_on_data_loss='false' must be True or False"),
        ("pull_timeout", "3s", "pull_timeout='3s' must be a number of seconds"),
        ("pull_timeout", float("inf"), "pull_timeout=inf must be less than 1e+12 seconds"),
        ("pull_timeout", float("nan"), "pull_timeout=nan must be a number of seconds"),
        ("starting_timestamp", "2026-01-02", "must be a datetime or epoch milliseconds"),
        ("starting_timestamp", datetime(2026, 1, 2), "must be a datetime with a time zone"),
        ("starting_offsets", {"orders": 3}, "starting_offsets=3 must be a mapping by broker"),
        ("starting_offsets", {"orders": {"a": {"0": 3}}}, "starting_offsets='0' must be a whole"),
        ("starting_offsets", {"orders": {"a": {0: 1.5}}}, "starting_offsets=1.5 must be a whole"),
        ("assign", {"orders": {"a": "01"}}, "assign='01' must be a list of queue ids"),
        ("read_from", 1, "read_from=1 must be text"),
    ],
)
def test_wrong_values_are_refused_by_their_argument(argument: str, value: Any, said: str) -> None:
    with pytest.raises(OptionError, match=r"\[ROCKETMQ_OPTION\] " + argument) as caught:
        option_texts({argument: value})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("starting_offset", "starting_offsets"), ("max_offsets", "max_offsets_per_trigger")],
)
def test_an_unknown_argument_is_refused_with_the_one_that_was_meant(given: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"unknown argument '{given}'; did you mean {meant}\?"):
        option_texts({given: "latest"})


def test_types_name_every_argument_once() -> None:
    hints = [get_type_hints(typed) for typed in (ReadArguments, BatchArguments, StreamArguments)]
    common, batch, stream = (set(names) for names in hints)
    assert common < batch
    assert common < stream
    assert batch & stream == common
    assert batch | stream | {"topics"} == set(ARGUMENTS)


def test_types_are_those_of_the_options() -> None:
    for typed in (BatchArguments, StreamArguments):
        for name, hint in get_type_hints(typed).items():
            assert hint == ARGUMENTS[name].kind.hint | None, name


def test_every_option_of_a_read_is_an_argument() -> None:
    batch, stream = (
        {ARGUMENTS[name].name for name in get_type_hints(typed)} | {"subscribe", "topic"}
        for typed in (BatchArguments, StreamArguments)
    )
    assert batch == {*READ_OPTIONS, "topic"}
    assert stream == {*READ_OPTIONS, *STREAM_OPTIONS} - set(BATCH_ONLY_OPTIONS)
