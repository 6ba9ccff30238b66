"""Every option of a write, what it means, and what is said of a wrong one."""

from pathlib import Path
from typing import Any

import pytest
from tests.spark.option_rows import option_rows

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.options import READ_OPTIONS
from rocketrio.spark.writing.options import WRITE_OPTIONS, WriteOptions, parse_write_options

SERVER = {"nameserver": "h:1"}


def parse(**given: str) -> WriteOptions:
    return parse_write_options({**SERVER, **given}, is_streaming=False)


def parse_stream(**given: str) -> WriteOptions:
    return parse_write_options({**SERVER, **given}, is_streaming=True)


def test_defaults_are_those_of_the_table() -> None:
    options = parse()
    assert options == WriteOptions(("h:1",))
    said = {name: row.default.strip("`") for name, row in WRITE_OPTIONS.items()}
    assert {name: default for name, default in said.items() if default} == {
        "nameServer": "NAMESRV_ADDR`, else `127.0.0.1:9876",
        "accessKey": "ROCKETRIO_ACCESS_KEY",
        "secretKey": "ROCKETRIO_SECRET_KEY",
        "credentialsFile": "ROCKETRIO_CREDENTIALS_FILE",
        "tls": "ROCKETRIO_TLS`, else `false",
        "tls.caFile": "ROCKETRIO_TLS_CA_FILE`, else this machine's",
        "tls.checkHostName": "true",
        "producerGroup": options.producer_group,
        "autoCreateTopic": str(options.auto_create_topic).lower(),
        "sendBatchBytes": str(options.send_batch_size),
        "maxInFlight": str(options.max_in_flight),
        "sendTimeoutMs": str(round(options.send_timeout * 1000)),
        "sendRetries": str(options.send_retries),
        "requireSafeStore": str(options.require_safe_store).lower(),
        "compressBodyOver": str(options.compress_over),
        "maxMessageBytes": str(options.max_message_size),
        "dedupProperties": str(options.stamps_rows).lower(),
    }


RIGHT: list[tuple[str, str, str, Any]] = [
    ("nameServer", "a:1;b:2", "name_servers", ("a:1", "b:2")),
    ("topic", " orders ", "topic", "orders"),
    ("producerGroup", "shop", "producer_group", "shop"),
    ("autoCreateTopic", "false", "auto_create_topic", False),
    ("sendBatchBytes", "1000", "send_batch_size", 1000),
    ("maxInFlight", "3", "max_in_flight", 3),
    ("sendTimeoutMs", "2500", "send_timeout", 2.5),
    ("sendRetries", "0", "send_retries", 0),
    ("requireSafeStore", "no", "require_safe_store", False),
    ("compressBodyOver", "0", "compress_over", 0),
    ("maxMessageBytes", "10", "max_message_size", 10),
    ("dedupProperties", "TRUE", "stamps_rows", True),
]


@pytest.mark.parametrize(("option", "text", "field", "value"), RIGHT, ids=lambda v: str(v)[:20])
def test_each_option_is_read_in_any_letter_case(
    option: str, text: str, field: str, value: object
) -> None:
    for name in (option, option.lower(), option.upper()):
        options = parse_write_options({"nameServer": "h:1"} | {name: text}, is_streaming=False)
        assert getattr(options, field) == value


def test_a_batch_can_have_a_name_in_its_stamps() -> None:
    assert parse(dedupproperties="true", dedupid="nightly-2026-11-22").stamp_id == (
        "nightly-2026-11-22"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nameServer": "nonsense"}, "nameServer='nonsense' is not host:port;host:port"),
        ({"topic": "a b"}, "topic='a b' cannot be sent to: "),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "cannot be sent to: clients may not send"),
        ({"producerGroup": "a b"}, "producerGroup='a b': "),
        ({"autoCreateTopic": "maybe"}, "autoCreateTopic='maybe' is neither true nor false"),
        ({"sendBatchBytes": "0"}, "sendBatchBytes='0' is not a whole number from 1"),
        ({"maxInFlight": "2000"}, "maxInFlight='2000' is not a whole number from 1 to 1024"),
        ({"sendTimeoutMs": "soon"}, "sendTimeoutMs='soon' is not a duration of at least 1 ms"),
        ({"sendRetries": "-1"}, "sendRetries='-1' is not a whole number from 0"),
        ({"requireSafeStore": ""}, "requireSafeStore='' is neither true nor false"),
        ({"compressBodyOver": "x"}, "compressBodyOver='x' is not a whole number from 0"),
        ({"maxMessageBytes": "1e6"}, "maxMessageBytes='1e6' is not a whole number from 1"),
        ({"dedupProperties": "si"}, "dedupProperties='si' is neither true nor false"),
        ({"dedupId": "job"}, "dedupId is given without dedupProperties=true"),
        ({"dedupId": "a\x01b", "dedupProperties": "true"}, "must be some printable text"),
        ({"dedupId": " ", "dedupProperties": "true"}, "must be some printable text"),
        ({"path": "orders"}, "RocketMQ topics are not paths; call load() or save() without a path"),
    ],
)  # fmt: skip
def test_each_wrong_value_is_refused_with_what_is_wanted(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_write_options({"nameServer": "h:1"} | given, is_streaming=False)
    assert said in str(caught.value)
    assert str(caught.value).startswith("[ROCKETMQ_OPTION]")


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OptionError) as caught:
        parse(sendbatchbyte="1")
    assert "unknown option 'sendbatchbyte'; did you mean sendBatchBytes?" in str(caught.value)
    assert all(name in str(caught.value) for name in WRITE_OPTIONS)


@pytest.mark.parametrize("name", sorted(set(READ_OPTIONS) - set(WRITE_OPTIONS)))
def test_the_options_of_reads_are_known_as_such(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is an option of a read .*, not of a write"):
        parse(**{name: "1"})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("delayTimeMs", "delays other than by level"),
        ("deliverTimestamp", "delays other than by level"),
    ],
)
def test_what_is_still_missing_is_refused_by_name_without_its_value(name: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(**{name: "hunter2"})
    assert f"{name}: not supported yet: {said}" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_what_spark_adds_to_a_stream_is_no_option() -> None:
    given = {"checkpointLocation": "/tmp/c", "queryName": "q"}
    assert parse_stream(**given) == WriteOptions(("h:1",))
    with pytest.raises(OptionError, match="unknown option 'checkpointLocation'"):
        parse(**given)


def test_a_stream_has_its_id_from_its_checkpoint() -> None:
    with pytest.raises(OptionError, match="dedupId names a batch"):
        parse_stream(dedupid="x", dedupproperties="true")


def test_the_documentation_has_every_option() -> None:
    text = (Path(__file__).parents[3] / "docs" / "spark-writing.md").read_text()
    for name, row in option_rows(WRITE_OPTIONS, "writing").items():
        assert row in text, name
