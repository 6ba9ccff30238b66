"""Bodies from the recorded runs, and the forms that only Java writes."""

from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import VERSIONS, as_4_9_wrote, unpack_store

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import HeartbeatData
from rocketrio_protocol.bodies.topics import (
    DataVersion,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketrio_protocol.errors import RemoteProtocolError


@attrs.frozen(order=True)
class Key:
    queue_id: int
    broker_name: str


class Person(msgspec.Struct, rename="camel"):
    last_name: str | None
    first_name: str | None


def test_integer_keys_are_read_unquoted_and_quoted() -> None:
    for text in (b'{0:"a",1:"b"}', b'{"0":"a","1":"b"}', b'{ 0 : "a" , 1:"b"}'):
        assert fastjson.loads(text, dict[int, str]) == {0: "a", 1: "b"}


def test_object_keys_are_read_as_their_text() -> None:
    text = b'{"offsetTable":{{"brokerName":"b","queueId":0}:{"maxOffset":9}}}'
    assert fastjson.loads(text, dict[str, Any]) == {
        "offsetTable": {'{"brokerName":"b","queueId":0}': {"maxOffset": 9}}
    }


@pytest.mark.parametrize("text", ['a{1:2}"', 'x":1:{', "\\", "{{}:1}", "1:2", '"'])
def test_text_inside_a_string_is_not_taken_for_a_key(text: str) -> None:
    body = b"{1:" + msgspec.json.encode(text) + b"}"
    assert fastjson.loads(body, dict[int, str]) == {1: text}


@pytest.mark.slow
@given(
    st.dictionaries(
        st.integers(-99, 99), st.dictionaries(st.text('ab:{}1\\"\0 ,', max_size=6), st.integers())
    )
)
def test_the_quick_way_and_the_thorough_way_read_the_same(value: dict[int, Any]) -> None:
    written = fastjson.dumps(value)
    thorough = fastjson._LOOSE_KEY.sub(fastjson._quoted, written)
    assert fastjson._with_quoted_keys(written) == thorough
    assert fastjson.loads(written, dict[int, Any]) == value


def test_integer_and_object_keys_are_written_unquoted() -> None:
    assert fastjson.dumps({1: "a"}) == b'{1:"a"}'
    assert fastjson.dumps({Key(0, "b"): 12}) == b'{{"brokerName":"b","queueId":0}:12}'
    assert fastjson.dumps_standard({1: {2: "a"}}) == b'{"1":{"2":"a"}}'


def test_members_are_in_alphabetical_order_and_none_is_left_out() -> None:
    assert fastjson.dumps(Person("L", "F")) == b'{"firstName":"F","lastName":"L"}'
    assert fastjson.dumps(Person("L", None)) == b'{"lastName":"L"}'


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_every_written_value_is_read_again(value: Any) -> None:
    def without_none(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {key: without_none(each) for key, each in inner.items() if each is not None}
        return [without_none(each) for each in inner] if isinstance(inner, list) else inner

    for written in (fastjson.dumps(value), fastjson.dumps_pretty(value)):
        assert fastjson.loads(written, Any) == without_none(value)


@given(st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.text()))
def test_every_integer_key_is_read_again(table: dict[int, str]) -> None:
    assert fastjson.loads(fastjson.dumps(table), dict[int, str]) == table
    assert fastjson.loads(fastjson.dumps_standard(table), dict[int, str]) == table
    assert fastjson.loads(fastjson.dumps_pretty(table), dict[int, str]) == table


@pytest.mark.parametrize("lenient", [True, False])
@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"a":}', b"{1:2,}", b"\xff\xfe", b'{"a":"\xff"}', b"[1"],
)
def test_wrong_text_is_the_peers_fault_and_names_the_body(text: bytes, lenient: bool) -> None:
    with pytest.raises(RemoteProtocolError, match="route"):
        fastjson.loads(text, dict[str, int], what="route", lenient=lenient)


def test_key_of_a_file_that_is_no_text_is_damage() -> None:
    with pytest.raises(RemoteProtocolError, match="offsets"):
        fastjson.loads(b'{{"a":"\xff"}:1}', dict[str, int], what="offsets", lenient=False)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b"{1:", b"}")])
def test_what_is_nested_too_deeply_is_the_peers_fault(opening: bytes, closing: bytes) -> None:
    deep = opening * 100_000 + b"1" + closing * 100_000
    with pytest.raises(RemoteProtocolError, match="topics"):
        fastjson.loads(b'{"x":' + deep + b"}", TopicConfigSerializeWrapper, what="topics")


def test_a_value_of_the_wrong_type_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="topicConfigTable"):
        fastjson.loads(b'{"topicConfigTable":3}', TopicConfigSerializeWrapper)


def test_a_long_run_of_opening_braces_takes_no_long_time() -> None:
    with pytest.raises(RemoteProtocolError):
        fastjson.loads(b'{1:2,"a":' + b"{" * 20_000, dict[str, Any])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("topics.json", TopicConfigSerializeWrapper),
        ("subscriptionGroup.json", SubscriptionGroupWrapper),
    ],
)
def test_config_files_of_4_9_7_are_written_again_to_the_byte(
    name: str, kind: type[msgspec.Struct], tmp_path: Path
) -> None:
    for role in ("master", "slave"):
        before = (unpack_store("4.9.7", role, tmp_path / role) / "config" / name).read_bytes()  # type: ignore[arg-type]
        assert as_4_9_wrote(fastjson.dumps_pretty(fastjson.loads(before, kind))) == before


@pytest.mark.parametrize("run", VERSIONS)
def test_every_config_file_of_apache_is_read(run: str, tmp_path: Path) -> None:
    root = unpack_store(run, "master", tmp_path)
    files = sorted((root / "config").glob("*.json*"))
    assert len(files) > 5
    for file in files:
        if file.stat().st_size:
            assert isinstance(fastjson.loads(file.read_bytes(), Any), dict)


def test_constant_part_is_encoded_once_and_again_when_replaced() -> None:
    class Frozen(msgspec.Struct, frozen=True):
        name: str
        counts: tuple[int, ...]

    class Loose(msgspec.Struct):
        name: str

    table = {"a": Frozen("a", (1, 2)), "b": Frozen("b", ())}
    before = fastjson._WRITERS.get(Frozen)
    assert (
        fastjson.dumps(table) == b'{"a":{"counts":[1,2],"name":"a"},"b":{"counts":[],"name":"b"}}'
    )
    writer = fastjson._WRITERS[Frozen]
    assert before is None
    fastjson.dumps(table | {"b": Frozen("c", ())})
    assert writer.__wrapped__.cache_info().misses == 3
    assert fastjson.dumps(table | {"b": Frozen("c", ())}).endswith(b'"b":{"counts":[],"name":"c"}}')
    assert fastjson.dumps_pretty(table).startswith(b'{\n\t"a":{\n\t\t"counts":[')
    loose = Loose("a")
    fastjson.dumps(loose)
    loose.name = "b"
    assert fastjson.dumps(loose) == b'{"name":"b"}'


HEARTBEATS = {
    "nulls for empty lists": b'{"clientID":"c","consumerDataSet":null,"producerDataSet":[{"groupName":"p"}]}',
    "nulls inside": b'{"clientID":"c","producerDataSet":[{"groupName":"p","other":null}],"consumerDataSet":['
    b'{"groupName":"g","consumeType":null,"subscriptionDataSet":[{"topic":"T","subString":null,"tagsSet":null,"expressionType":null}]}]}',
    "a NUL behind it": b'{"clientID":"c","producerDataSet":[{"groupName":"p"}]}\0',
    "a byte order mark": b'\xef\xbb\xbf{"clientID":"c","producerDataSet":[{"groupName":"p"}]}',
    "a tag in GBK": b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g",'
    b'"subscriptionDataSet":[{"topic":"T","subString":"\xb6\xa9"}]}]}',
}
NUMBERS_AS_TEXTS = (
    b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g","consumeType":"1",'
    b'"messageModel":"0","unitMode":"0","subscriptionDataSet":[{"topic":"T","subVersion":"12","codeSet":["7"]}]}]}'
)


@pytest.mark.parametrize("how", HEARTBEATS)
def test_bodies_of_other_clients_are_read_as_java_reads_them(how: str) -> None:
    heartbeat = fastjson.loads(HEARTBEATS[how], HeartbeatData)
    assert (heartbeat.client_id, heartbeat.producer_data_set[0].group_name) == ("c", "p")
    for consumer in heartbeat.consumer_data_set:
        assert (consumer.group_name, consumer.consume_type) == ("g", "CONSUME_PASSIVELY")
        assert consumer.subscription_data_set[0].topic == "T"


def test_numbers_in_texts_are_numbers() -> None:
    heartbeat = fastjson.loads(NUMBERS_AS_TEXTS, HeartbeatData)
    assert (heartbeat.client_id, heartbeat.producer_data_set[0].group_name) == ("c", "p")
    (consumer,) = heartbeat.consumer_data_set
    assert (consumer.group_name, consumer.consume_type) == ("g", "CONSUME_PASSIVELY")
    assert consumer.message_model == "BROADCASTING"
    (subscription,) = consumer.subscription_data_set
    assert (subscription.topic, subscription.sub_version) == ("T", 12)
    assert subscription.code_set == [7]


@pytest.mark.parametrize("how", HEARTBEATS)
def test_in_a_file_the_same_is_damage(how: str) -> None:
    with pytest.raises(RemoteProtocolError):
        fastjson.loads(HEARTBEATS[how], HeartbeatData, lenient=False)


def test_null_without_a_default_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="clientID"):
        fastjson.loads(b'{"clientID":null}', HeartbeatData)
    with pytest.raises(RemoteProtocolError):
        fastjson.loads(b"null", HeartbeatData)


@pytest.mark.parametrize("is_pretty", [True, False])
def test_kept_text_is_what_the_table_itself_is_written_as(is_pretty: bool) -> None:
    text, table = (
        fastjson.KeptText(is_pretty=is_pretty),
        {f"T{number}": TopicConfig(f"T{number}") for number in range(3)},
    )
    dumps = fastjson.dumps_pretty if is_pretty else fastjson.dumps
    for change in (
        {},
        {"T1": TopicConfig("T1", order=True), 'a"b': TopicConfig('a"b')},
        {"T0": TopicConfig("T0")},
    ):
        table |= change
        for one in (table, dict(list(table.items())[1:]), {}):
            expected = dumps({"dataVersion": DataVersion(1, 2), "table": one})
            assert dumps({"dataVersion": DataVersion(1, 2), "table": text.of(one)}) == expected


def test_loads_bounded_reads_a_long_text_only_if_it_is_strict_and_not_too_long() -> None:
    loose, strict = b'{0:"%b"}', b'{"0":"%b"}'
    room = fastjson.LENIENT_SIZE_LIMIT - 10
    for text in (loose % (b"x" * room), strict % (b"x" * (2 * room))):
        assert set(fastjson.loads_bounded(text, dict[str, str], what="map")) == {"0"}
    with pytest.raises(RemoteProtocolError, match="not strict JSON"):
        fastjson.loads_bounded(loose % (b"x" * (2 * room)), dict[str, str], what="map")
    with pytest.raises(RemoteProtocolError, match=f"{fastjson.REQUEST_SIZE_LIMIT} is the limit"):
        fastjson.loads_bounded(b" " * (fastjson.REQUEST_SIZE_LIMIT + 1), dict, what="map")
