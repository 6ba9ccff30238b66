"""Options: defaults, letter case, typos and contradictions."""

import pytest

from rocketrio.spark.errors import OptionError
from rocketrio.spark.offsets import AtTimestamp, ExplicitOffsets
from rocketrio.spark.options import OPTION_HELP, ReadOptions, parse_read_options
from rocketrio_protocol.message import MessageQueue

BASE = {"nameServer": "h:1", "subscribe": "t"}


def test_defaults() -> None:
    assert parse_read_options(BASE) == ReadOptions(name_servers=("h:1",), topics=("t",))


def test_every_option_is_read_in_any_letter_case() -> None:
    given = {
        "NAMESERVER": "h:1;h:2", "Subscribe": "a, b,a", "startingoffsets": "latest", "endingTimeStamp": "5",
        "failondataloss": "false", "COLUMNS": "body,tags", "properties": "String", "minpartitions": "2",
        "maxRecordsPerPartition": "10", "minrecordsperpartition": "3", "maxpartitions": "4",
        "pullBatchSize": "32", "pullPipelineDepth": "2", "pulltimeoutms": "1500", "readRetries": "0",
        "batchbytes": "100", "batchRows": "7", "readfrom": "SLAVE", "decompress": "no", "verifycrc": "1",
        "consumerGroup": " g ",
    }  # fmt: skip
    assert parse_read_options(given) == ReadOptions(
        name_servers=("h:1", "h:2"), topics=("a", "b"), starting="latest", ending=AtTimestamp(5),
        fail_on_data_loss=False, columns=("body", "tags"), properties="string", min_partitions=2,
        max_records_per_partition=10, min_records_per_partition=3, max_partitions=4, pull_batch_size=32,
        pull_pipeline_depth=2, pull_timeout=1.5, read_retries=0, batch_size=100, batch_rows=7,
        read_from="slave", inflate=False, check_crc=True, consumer_group="g",
    )  # fmt: skip


def test_ways_to_name_queues() -> None:
    server = {"nameServer": "h:1"}
    assert parse_read_options({**server, "topic": "t"}).topics == ("t",)
    assert parse_read_options({**server, "subscribePattern": "t.*"}).topic_pattern == "t.*"
    assigned = parse_read_options({**server, "assign": '{"t":{"b":[1,0]},"s":{"b":[3]}}'}).assigned
    assert assigned == (
        MessageQueue("s", "b", 3),
        MessageQueue("t", "b", 0),
        MessageQueue("t", "b", 1),
    )


def test_positions() -> None:
    options = parse_read_options(
        {**BASE, "startingTimestamp": "7", "endingOffsets": '{"t":{"b":{"0":9}}}'}
    )
    assert options.starting == AtTimestamp(7)
    assert options.ending == ExplicitOffsets({MessageQueue("t", "b", 0): 9})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({"maxoffsetspertrigger": "5"}, "unknown option 'maxoffsetspertrigger'"),
        ({"path": "/x"}, "A batch read knows: nameServer, subscribe"),
        ({"topic": "t"}, "subscribe and topic are given"),
        ({"assign": '{"t":{"b":[0]}}'}, "give one of subscribe, subscribePattern and assign"),
        ({"minPartitions": "0"}, "minPartitions='0' is not a whole number from 1"),
        ({"pullPipelineDepth": "1000"}, "from 1 to 256"),
        ({"batchRows": "many"}, "batchRows='many'"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"readFrom": "leader"}, "none of: auto, master, slave"),
        ({"properties": "json"}, "none of: map, string, none"),
        ({"columns": " , "}, "columns is empty"),
        ({"nameServer": "nowhere"}, "nameServer='nowhere' is not host:port"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "not both"),
        ({"endingOffsets": "earliest"}, "none of: latest"),
        ({"minPartitions": "5", "maxPartitions": "4"}, "more than maxPartitions=4"),
        ({"endingTimestamp": "-1"}, "endingTimestamp='-1'"),
        ({"columns": "body,BODY"}, "columns names body and BODY, which are the same to Spark"),
        ({"pullBatchSize": "1_0"}, "pullBatchSize='1_0' is not a whole number"),
        ({"startingTimestamp": "9" * 19}, "to 9223372036854775807"),
        ({"startingTimestamp": "9" * 5000}, "9'... is not a whole number from 0"),
        ({"minPartitions": "9" * 19}, "from 1 to 2147483647"),
        ({"maxRecordsPerPartition": "9" * 5000}, "9'... is not a whole number from 1"),
        ({"startingOffsets": '{"t":{"b":{"' + "9" * 5000 + '":1}}}'}, "a queue id and an offset"),
        ({"startingOffsets": '{"t":{"b":{"0":' + "9" * 5000 + "}}}"}, "startingOffsets"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_read_options(BASE | given)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "none is given"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"assign": "{}"}, "names no queue"),
        ({"assign": '{"t":{"b":[-1]}}'}, "or one below 0"),
        ({"assign": '{"t":{"b":[2147483648]}}'}, "above 2147483647"),
        ({"assign": '{"t":{"b":[' + "9" * 5000 + "]}}"}, "assign="),
        ({"assign": '{"t":{"b":0}}'}, "is not JSON like"),
        ({"subscribe": ""}, "subscribe is empty"),
    ],
)
def test_topics_must_be_named(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        parse_read_options({"nameServer": "h:1", **given})


def test_every_option_is_explained() -> None:
    assert all(text for text in OPTION_HELP.values())
