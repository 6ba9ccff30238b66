import json
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.exchanges import exchanges_of
from tests.golden.golden import VERSIONS, as_4_9_wrote

from rocketrio_protocol.bodies.fastjson import LENIENT_SIZE_LIMIT
from rocketrio_protocol.bodies.registration import (
    INFLATED_SIZE_LIMIT,
    TOPIC_SIZE_LIMIT,
    TOPICS_LIMIT,
    RegisterBrokerBody,
    all_at_once,
    body_crc32,
    decode_register_body,
    encode_register_body,
    read_register_body,
)
from rocketrio_protocol.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.commands.cluster import RegisterBrokerRequestHeader
from rocketrio_protocol.errors import RemoteProtocolError

names = st.text("abcXYZ%_-|", min_size=1, max_size=20)
counts = st.integers(0, 2**31 - 1)
topics = st.builds(TopicConfig, names, counts, counts, st.integers(0, 15))
bodies = st.builds(
    lambda version, table, servers: RegisterBrokerBody(
        TopicConfigSerializeWrapper(version, {topic.topic_name: topic for topic in table}), servers
    ),
    st.builds(DataVersion, counts, counts),
    st.lists(topics, max_size=5),
    st.lists(st.text(max_size=10), max_size=2),
)


@pytest.mark.parametrize("run", VERSIONS)
def test_recorded_registrations_are_read_and_their_checksum_agrees(run: str) -> None:
    exchanges = exchanges_of(run, "namesrv", RequestCode.REGISTER_BROKER)
    assert len(exchanges) > 10
    for exchange in exchanges:
        request = exchange.request
        header = request.header(RegisterBrokerRequestHeader)
        assert header.body_crc32 == body_crc32(request.body)
        body = decode_register_body(request.body, version=request.version)
        assert body.topic_config_serialize_wrapper.topic_config_table
        if run == "4.9.7":
            assert as_4_9_wrote(encode_register_body(body)) == bytes(request.body)


@given(bodies, st.booleans())
def test_what_is_registered_is_read_again(body: RegisterBrokerBody, compressed: bool) -> None:
    data = encode_register_body(body, compressed=compressed)
    assert decode_register_body(data, compressed=compressed, version=407) == body


def test_the_compressed_form_is_the_one_drawn() -> None:
    wrapper = TopicConfigSerializeWrapper(DataVersion(1, 2), {"T": TopicConfig("T", 4, 8, 6)})
    data = encode_register_body(RegisterBrokerBody(wrapper), compressed=True)
    version, line, servers = (
        b'{"counter":1,"stateVersion":0,"timestamp":2}',
        b"T 4 8 6 SINGLE_TAG",
        b"[]",
    )
    sizes = [len(each).to_bytes(4, "big") for each in (version, line, servers)]
    count = (1).to_bytes(4, "big")
    expected = sizes[0] + version + count + sizes[1] + line + sizes[2] + servers
    assert zlib.decompress(data) == expected


def test_registration_names_every_member_that_the_rust_name_server_demands() -> None:
    wrapper = TopicConfigSerializeWrapper(DataVersion(1, 2), {"T": TopicConfig("T")})
    version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
    told = json.loads(encode_register_body(RegisterBrokerBody(wrapper)))[
        "topicConfigSerializeWrapper"
    ]
    assert told["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": 2}
    assert told["topicConfigTable"]["T"]["attributes"] == {}
    assert told["mappingDataVersion"] == version
    assert told["topicQueueMappingDetailMap"] == told["topicQueueMappingInfoMap"] == {}


def test_a_compressed_topic_of_5_x_is_read_past_its_attributes() -> None:
    parts = [b"{}", b'T 4 8 6 SINGLE_TAG {"message.type":"FIFO"}', b"[]"]
    sized = [number(len(part)) + part for part in parts]
    data = zlib.compress(sized[0] + number(1) + sized[1] + sized[2])
    body = decode_register_body(data, compressed=True, version=479)
    assert body.topic_config_serialize_wrapper.topic_config_table == {
        "T": TopicConfig("T", 4, 8, 6)
    }


def test_a_broker_before_3_0_11_sends_the_table_alone() -> None:
    wrapper = TopicConfigSerializeWrapper(DataVersion(1, 2), {"T": TopicConfig("T")})
    from rocketrio_protocol.bodies import fastjson

    body = decode_register_body(fastjson.dumps(wrapper), version=36)
    assert body.topic_config_serialize_wrapper == wrapper


def test_missing_body_means_no_topics() -> None:
    body = decode_register_body(b"", version=407)
    assert body.topic_config_serialize_wrapper.topic_config_table == {}


def number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


@pytest.mark.parametrize(
    "inflated",
    [
        b"",
        number(5) + b"{}",
        number(-1),
        number(2) + b"{}" + number(2**31 - 1),
        number(2) + b"{}" + number(1) + number(3) + b"a b",
        number(2) + b"{}" + number(1) + number(9) + b"a b c d e",
        number(2) + b"{}" + number(0) + number(2**31 - 1),
    ],
)
def test_a_damaged_compressed_form_is_the_peers_fault(inflated: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_register_body(zlib.compress(inflated), compressed=True, version=407)


def test_bytes_that_are_not_compressed_are_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_register_body(b"{}", compressed=True, version=407)


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_registration_is_read_a_little_at_a_time(compressed: bool) -> None:
    topics = [f"topic-{number}" for number in range(TOPICS_LIMIT // 4)]
    table = {topic: TopicConfig(topic) for topic in topics}
    body = RegisterBrokerBody(TopicConfigSerializeWrapper(DataVersion(1, 2), table))
    data = encode_register_body(body, compressed=compressed)
    steps = read_register_body(data, compressed=compressed, version=407)
    costs = []
    read = None
    while read is None:
        start = time.process_time()
        try:
            next(steps)
        except StopIteration as end:
            read = end.value
        costs.append(time.process_time() - start)
    assert read == body
    # The first step goes once over all bytes; the others share out what takes longest.
    assert len(costs) > 10
    assert max(costs) < sum(costs) / 2


@pytest.mark.parametrize("compressed", [False, True])
def test_topics_that_are_not_requested_are_not_decoded(compressed: bool) -> None:
    wrapper = TopicConfigSerializeWrapper(DataVersion(1, 2), {"T": TopicConfig("T")})
    body = RegisterBrokerBody(wrapper, ["10.0.0.1:7"])
    data = encode_register_body(body, compressed=compressed)
    seen = []

    def is_wanted(version: DataVersion) -> bool:
        seen.append(version)
        return False

    steps = read_register_body(data, compressed=compressed, version=407, is_wanted=is_wanted)
    read = all_at_once(steps)
    assert seen == [DataVersion(1, 2)]
    assert read.topic_config_serialize_wrapper == TopicConfigSerializeWrapper(DataVersion(1, 2))
    assert read.filter_server_list == ["10.0.0.1:7"]


def test_a_registration_has_a_limited_number_of_topics() -> None:
    count = TOPICS_LIMIT + 1
    line = b"T 1 1 6 S"
    compressed = zlib.compress(number(2) + b"{}" + number(count) + (number(len(line)) + line))
    with pytest.raises(RemoteProtocolError, match=str(count)):
        decode_register_body(compressed, compressed=True, version=407)
    topics = b",".join(b'"%d":{"topicName":"T"}' % each for each in range(count))
    plain = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%s}}}' % topics
    with pytest.raises(RemoteProtocolError, match=str(count)):
        decode_register_body(plain, version=407)


@pytest.mark.parametrize("size", [100_000, INFLATED_SIZE_LIMIT + 1, 4 * INFLATED_SIZE_LIMIT])
def test_a_compressed_registration_does_not_inflate_without_end(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="exceeds"):
        decode_register_body(zlib.compress(bytes(size)), compressed=True, version=407)


def test_what_brokers_of_other_makes_leave_out_or_write_as_null_has_its_default() -> None:
    table = b'{"T":{"topicName":"T","order":null}}'
    data = (
        b'{"filterServerList":null,"topicConfigSerializeWrapper":{"topicConfigTable":%s}}' % table
    )
    body = decode_register_body(data, version=407)
    assert body == RegisterBrokerBody(
        TopicConfigSerializeWrapper(topic_config_table={"T": TopicConfig("T")})
    )


def test_json_that_is_not_strict_is_read_while_it_is_small() -> None:
    loose = b'{"queueMap":{0:1},"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T"}}}%s}'
    body = decode_register_body(loose % b"", version=407)
    assert list(body.topic_config_serialize_wrapper.topic_config_table) == ["T"]
    with pytest.raises(RemoteProtocolError, match="strict"):
        decode_register_body(loose % (b" " * LENIENT_SIZE_LIMIT), version=407)


def test_one_topic_takes_limited_room() -> None:
    large = b'{"topicName":"T","attributes":"%s"}' % (b"x" * TOPIC_SIZE_LIMIT)
    data = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":%s}}}' % large
    with pytest.raises(RemoteProtocolError, match=str(TOPIC_SIZE_LIMIT)):
        decode_register_body(data, version=407)
