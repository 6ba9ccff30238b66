"""Options: defaults, letter case, typos and contradictions."""

import pytest

from rocketrio.consuming.subscription import Subscription
from rocketrio.spark.errors import OptionError
from rocketrio.spark.options import BATCH_READ, WRITE
from rocketrio.spark.reading.offsets import (
    AtTimestamp,
    AtTimestamps,
    ExplicitOffsets,
    GroupOffsets,
    Position,
)
from rocketrio.spark.reading.options import (
    BATCH_ONLY_OPTIONS,
    READ_OPTIONS,
    ReadOptions,
    parse_read_options,
)
from rocketrio_protocol.message import MessageQueue

BASE = {"nameServer": "h:1", "subscribe": "t"}


def test_options_without_values_are_the_defaults() -> None:
    assert parse_read_options(BASE) == ReadOptions(name_servers=("h:1",), topics=("t",))


def test_every_option_is_read_in_any_letter_case() -> None:
    given = {
        "NAMESERVER": "h:1;h:2", "Subscribe": "a, b,a", "startingoffsets": "latest", "endingTimeStamp": "1700000000005",
        "failondataloss": "false", "COLUMNS": "body,tags", "properties": "String", "minpartitions": "2",
        "maxRecordsPerPartition": "10", "minrecordsperpartition": "3", "maxpartitions": "4",
        "pullBatchSize": "32", "pullPipelineDepth": "2", "pulltimeoutms": "1500", "readRetries": "0",
        "batchbytes": "100", "batchRows": "7", "readfrom": "SLAVE", "decompress": "no", "verifycrc": "1",
        "consumerGroup": " g ", "subexpression": "a||b", "SubExpressionType": "tag", "schemamode": "KAFKA",
        "includeheaders": "true", "oncorruptmessage": "Null", "fetchoffset.numretries": "0",
        "FETCHOFFSET.RETRYINTERVALMS": "50", "connecttimeoutms": "700", "filterpushdown": "true",
    }  # fmt: skip
    assert parse_read_options(given) == ReadOptions(
        name_servers=("h:1", "h:2"), topics=("a", "b"), starting="latest",
        ending=AtTimestamp(1_700_000_000_005, "latest"),
        fail_on_data_loss=False, columns=("body", "tags"), properties="string", min_partitions=2,
        max_records_per_partition=10, min_records_per_partition=3, max_partitions=4, pull_batch_size=32,
        pull_pipeline_depth=2, pull_timeout=1.5, read_retries=0, batch_size=100, batch_rows=7,
        read_from="slave", inflate=False, check_crc=True, consumer_group="g",
        subscription=Subscription("a || b", frozenset(("a", "b"))), schema_mode="kafka", include_headers=True,
        on_corrupt_message="null", offset_retries=0, offset_retry_interval=0.05, connect_timeout=0.7,
        filter_pushdown=True,
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


def test_a_stream_may_start_elsewhere_by_default() -> None:
    assert parse_read_options(BASE, default_start="latest").starting == "latest"
    given = BASE | {"startingOffsets": "earliest"}
    assert parse_read_options(given, default_start="latest").starting == "earliest"


def test_options_of_another_use_are_refused_as_such() -> None:
    others = dict.fromkeys(BATCH_ONLY_OPTIONS, BATCH_READ) | {"sendTimeoutMs": WRITE}
    for name, whose in [("ENDINGOFFSETS", "spark.read"), ("sendtimeoutms", "df.write")]:
        with pytest.raises(OptionError, match=f"{name} is an option of a .*{whose}"):
            parse_read_options({**BASE, name: "x"}, other_options=others)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({"maxoffsetspertrigger": "5"}, "unknown option 'maxoffsetspertrigger'"),
        ({"broker": "/x"}, "A batch read (spark.read) knows: nameServer, subscribe"),
        (
            {"path": "orders"},
            "path='orders': RocketMQ topics are not paths; call load() or save() without a path",
        ),
        (
            {"option.subscribe": "t"},
            "CREATE TEMPORARY VIEW ... USING rocketmq OPTIONS (...) keeps them",
        ),
        ({"columns": "['body', 'tags']"}, "is a list; give one text, columns=a,b"),
        ({"consumerGroup": " "}, "consumerGroup=' ': The specified group is blank"),
        (
            {"consumerGroup": "a b"},
            "consumerGroup='a b': The specified group 'a b' contains illegal",
        ),
        (
            {"startingTimestamp": "2024-13-01"},
            "startingTimestamp='2024-13-01' is not a time: ISO 8601, milliseconds since 1970",
        ),
        ({"accessKey": "id"}, "accessKey needs secretKey too"),
        ({"secretKey": "hush"}, "secretKey needs accessKey too"),
        ({"securityToken": "hush"}, "securityToken needs accessKey and secretKey too"),
        ({"accessKey": "id", "secretKey": " "}, "secretKey is blank"),
        ({"accessKey": "id", "secretKey": "hush\x01"}, "secret_key has"),
        ({"credentialsFile": "f", "secretKey": "hush"}, "leave out secretKey"),
        ({"credentials": "hush"}, "did you mean credentialsFile"),
        ({"tls.enable": "true"}, "unknown option 'tls.enable'"),
        ({"tls": "on"}, "tls='on' is neither true nor false"),
        ({"tls": "false", "tls.caFile": "f"}, "tls.caFile has no effect with tls=false"),
        ({"tls.keyFile": "f"}, "tls.keyFile is given without tls.certFile"),
        ({"tls.checkHostName": "?"}, "tls.checkHostName='?' is neither"),
        (
            {"deliverTimestamp": "5"},
            "delivertimestamp: not supported yet: delays other than by level",
        ),
        ({"delayTimeMs": "5"}, "delaytimems: not supported yet: delays other than by level"),
        ({"kafka.bootstrap.servers": "h:1"}, "for Kafka; here it is nameServer"),
        ({"kafka.group.id": "g"}, "for Kafka; here it is consumerGroup"),
        ({"kafka.security.protocol": "SSL"}, "for Kafka's client; leave it out here"),
        ({"schemaMode": "pulsar"}, "one of: rocketmq, kafka"),
        ({"includeHeaders": "true"}, "includeHeaders=true needs schemaMode=kafka"),
        ({"includeHeaders": "ja"}, "includeHeaders='ja' is neither true nor false"),
        ({"onCorruptMessage": "ignore"}, "one of: fail, skip, null"),
        ({"decompress": "zip"}, "decompress='zip' is neither"),
        ({"verifyCrc": ""}, "verifyCrc='' is neither"),
        ({"filterPushdown": "on"}, "filterPushdown='on' is neither"),
        (
            {"fetchOffset.numRetries": "-1"},
            "fetchOffset.numRetries='-1' is not a whole number from 0",
        ),
        (
            {"fetchOffset.retryIntervalMs": "-1"},
            "fetchOffset.retryIntervalMs='-1' is not a duration",
        ),
        ({"fetchOffset.retries": "1"}, "did you mean fetchOffset.numRetries?"),
        ({"connectTimeoutMs": "0"}, "connectTimeoutMs='0' is not a duration of at least 1 ms"),
        ({"pullTimeoutMs": "0"}, "pullTimeoutMs='0' is not a duration of at least 1 ms"),
        ({"readRetries": "-2"}, "readRetries='-2' is not a whole number from 0"),
        ({"batchBytes": "-5"}, "batchBytes='-5' is not a whole number from 1"),
        ({"pullBatchSize": "0"}, "pullBatchSize='0' is not a whole number from 1"),
        ({"maxPartitions": "0"}, "maxPartitions='0' is not a whole number from 1"),
        ({"minRecordsPerPartition": "0"}, "minRecordsPerPartition='0'"),
        (
            {"minRecordsPerPartition": "11", "maxRecordsPerPartition": "10"},
            "minRecordsPerPartition=11 is more than maxRecordsPerPartition=10",
        ),
        ({"topic": "t"}, "subscribe and topic are given"),
        ({"assign": '{"t":{"b":[0]}}'}, "give one of subscribe, subscribePattern and assign"),
        ({"minPartitions": "0"}, "minPartitions='0' is not a whole number from 1"),
        ({"pullPipelineDepth": "1000"}, "from 1 to 256"),
        ({"batchRows": "many"}, "batchRows='many'"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"readFrom": "leader"}, "one of: auto, master, slave"),
        ({"properties": "json"}, "one of: map, string, none"),
        ({"columns": " , "}, "columns is empty"),
        ({"nameServer": "nowhere"}, "nameServer='nowhere' is not host:port"),
        ({"endingOffsets": "earliest"}, "one of: latest"),
        ({"minPartitions": "5", "maxPartitions": "4"}, "more than maxPartitions=4"),
        ({"endingTimestamp": "-1"}, "endingTimestamp='-1'"),
        ({"columns": "body,BODY"}, "columns names body and BODY, which are the same to Spark"),
        ({"pullBatchSize": "1_0"}, "pullBatchSize='1_0' is not a whole number"),
        ({"startingTimestamp": "9" * 19}, "is not a time"),
        ({"startingTimestamp": "9" * 5000}, "9'... is not a time"),
        ({"minPartitions": "9" * 19}, "from 1 to 2147483647"),
        ({"maxRecordsPerPartition": "9" * 5000}, "9'... is not a whole number from 1"),
        ({"startingOffsets": '{"t":{"b":{"' + "9" * 5000 + '":1}}}'}, "a queue id and an offset"),
        ({"startingOffsets": '{"t":{"b":{"0":' + "9" * 5000 + "}}}"}, "startingOffsets"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError) as caught:
        # As Spark passes them on: names in lower case.
        parse_read_options(BASE | {name.lower(): text for name, text in given.items()})
    assert why.lower() in str(caught.value).lower()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "none is given"),
        ({"subscribePattern": "("}, "not a valid regular expression"),
        ({"assign": "{}"}, "names no queue"),
        ({"assign": '{"t":{"b":[-1]}}'}, "or one below 0"),
        ({"assign": '{"t":{"b":[2147483648]}}'}, "above 2147483647"),
        ({"assign": '{"t":{"b":[' + "9" * 5000 + "]}}"}, "assign="),
        ({"assign": '{"t":{"b":0}}'}, "is not JSON like"),
        ({"subscribe": ""}, "subscribe is empty"),
    ],
)
def test_options_without_topics_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        parse_read_options({"nameServer": "h:1", **given})


def test_a_wrong_environment_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "nowhere")
    with pytest.raises(OptionError, match="NAMESRV_ADDR in the environment: name server 'nowhere'"):
        parse_read_options({"subscribe": "t"})


def test_every_option_is_explained() -> None:
    assert all(text for text in READ_OPTIONS.values())


@pytest.mark.parametrize(
    ("given", "subscription"),
    [
        ({}, Subscription()),
        ({"subExpression": "*"}, Subscription()),
        (
            {"subExpression": "b || a", "subExpressionType": "TAG"},
            Subscription("b || a", frozenset(("a", "b"))),
        ),
        (
            {"subExpression": "a tag, 'odd'", "subExpressionType": "TAG"},
            Subscription("a tag, 'odd'", frozenset(("a tag, 'odd'",))),
        ),
        (
            {"subExpression": "amount > 3", "subExpressionType": "sql92"},
            Subscription("amount > 3", None, "SQL92"),
        ),
    ],
)
def test_tags_and_expressions_become_a_subscription(
    given: dict[str, str], subscription: Subscription
) -> None:
    assert parse_read_options(BASE | given).subscription == subscription


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"subExpression": "a ||"}, "subExpression='a ||' is neither a list of tags"),
        ({"subExpression": "* || a"}, "is neither a list of tags"),
        ({"subExpression": "amount > 3"}, "an expression needs subExpressionType=SQL92"),
        ({"subExpression": "TAGS='a'"}, "would look for the tag \"TAGS='a'\""),
        (
            {"subExpression": "c || a,b"},
            "would look for the tag 'a,b'; several tags are separated by ||",
        ),
        ({"subExpression": " "}, "subExpression is blank"),
        ({"subExpression": " ", "subExpressionType": "SQL92"}, "subExpression is blank"),
        ({"subExpressionType": "SQL92"}, "subExpressionType=SQL92 needs subExpression"),
        ({"subExpression": "a", "subExpressionType": "SQL"}, "one of: tag, sql92"),
    ],
)
def test_filters_that_cannot_be(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_read_options(BASE | given)
    assert why in str(caught.value)


_Q = MessageQueue("t", "b", 0)
_TIMES = '{"t":{"b":{"0":1700000000007}}}'


def _positions(**given: str) -> tuple[Position, Position]:
    options = parse_read_options(BASE | given)
    return options.starting, options.ending


def test_by_default_everything_is_read() -> None:
    assert _positions() == ("earliest", "latest")


@pytest.mark.parametrize(
    ("given", "start", "end"),
    [
        ({"startingOffsets": "latest"}, "latest", "latest"),
        ({"startingOffsets": "group", "consumerGroup": "g"}, GroupOffsets("earliest"), "latest"),
        (
            {"startingOffsets": "Group", "consumerGroup": "g", "startingOffsetsFallback": "LATEST"},
            GroupOffsets("latest"),
            "latest",
        ),
        (
            {"startingOffsets": '{"t":{"b":{"0":-2}}}', "endingOffsets": '{"t":{"b":{"0":9}}}'},
            ExplicitOffsets({_Q: -2}),
            ExplicitOffsets({_Q: 9}),
        ),
        (
            {"startingTimestamp": "2001-09-09T01:46:40.007Z", "endingTimestamp": "1700000000007"},
            AtTimestamp(1_000_000_000_007, "error"),
            AtTimestamp(1_700_000_000_007, "latest"),
        ),
        (
            {"startingTimestamp": "1700000000007", "endingTimestamp": "1700000000007"},
            AtTimestamp(1_700_000_000_007, "error"),
            AtTimestamp(1_700_000_000_007, "latest"),
        ),
        (
            {"startingOffsetsByTimestamp": _TIMES, "endingOffsetsByTimestamp": _TIMES},
            AtTimestamps({_Q: 1_700_000_000_007}, "error"),
            AtTimestamps({_Q: 1_700_000_000_007}, "latest"),
        ),
        (
            {
                "startingOffsetsByTimestamp": _TIMES,
                "startingOffsetsByTimestampStrategy": "latest",
            },
            AtTimestamps({_Q: 1_700_000_000_007}, "latest"),
            "latest",
        ),
    ],
)
def test_forms_of_positions_are_accepted(
    given: dict[str, str], start: Position, end: Position
) -> None:
    assert _positions(**given) == (start, end)


@pytest.mark.parametrize("word", ["starting", "ending"])
def test_one_time_wins_over_times_and_times_over_offsets_as_in_kafka(word: str) -> None:
    given = {f"{word}Offsets": "latest"}
    which = 0 if word == "starting" else 1
    assert _positions(**given)[which] == "latest"
    given[f"{word}OffsetsByTimestamp"] = _TIMES
    assert isinstance(_positions(**given)[which], AtTimestamps)
    given[f"{word}Timestamp"] = "1700000000005"
    assert isinstance(_positions(**given)[which], AtTimestamp)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"startingOffsets": "group"}, "startingOffsets=group needs consumerGroup"),
        (
            {"startingOffsets": "group", "consumerGroup": " "},
            "consumerGroup=' ': The specified group is blank",
        ),
        ({"startingOffsets": "newest"}, "one of: earliest, latest, group"),
        ({"startingOffsetsFallback": "latest"}, "has no effect without startingOffsets=group"),
        (
            {
                "startingOffsets": "group",
                "consumerGroup": "g",
                "startingOffsetsFallback": "error",
            },
            "startingOffsetsFallback='error' must be one of: earliest, latest",
        ),
        (
            {
                "startingOffsets": "group",
                "consumerGroup": "g",
                "startingOffsetsFallback": "latest",
                "startingTimestamp": "1700000000005",
            },
            "has no effect without startingOffsets=group",
        ),
        ({"endingOffsets": "group"}, "endingOffsets='group' must be one of: latest"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "has no effect without"),
        (
            {
                "startingTimestamp": "1700000000001",
                "startingOffsetsByTimestampStrategy": "earliest",
            },
            "startingOffsetsByTimestampStrategy='earliest' must be one of: error, latest",
        ),
        ({"startingOffsetsByTimestamp": "7"}, "startingOffsetsByTimestamp must be objects"),
        ({"startingOffsetsByTimestamp": "{"}, "startingOffsetsByTimestamp is not JSON"),
        (
            {"startingOffsetsByTimestamp": '{"t":{"b":{"0":-1}}}'},
            "has '0': -1 for t on b; it must be a queue id and epoch milliseconds",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"b":{"0":1700000000}}}'},
            "startingOffsetsByTimestamp of t@b:0=1700000000 is not a time: a time in digits is in milliseconds "
            "since 1970, 12 to 14 digits; write these seconds as 1700000000000",
        ),
        ({"endingOffsetsByTimestamp": '{"t":{"b":{"0":"x"}}}'}, "endingOffsetsByTimestamp has"),
        (
            {"startingTimestamp": "1700000000005", "startingOffsets": "soon"},
            "startingOffsets='soon'",
        ),
        (
            {"startingTimestamp": "1700000000009", "endingTimestamp": "1700000000008"},
            "is later than endingTimestamp=1700000000008",
        ),
        ({"startingTimestamp": "-1"}, "startingTimestamp='-1' is not a time"),
        ({"startingTimestamp": "1700000000"}, "milliseconds since 1970 (12 to 14 digits)"),
    ],
)
def test_start_or_end_that_cannot_be_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError) as caught:
        _positions(**given)
    assert why in str(caught.value)
