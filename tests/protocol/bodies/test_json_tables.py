"""Tables of which one entry is damaged."""

import pytest

from rocketrio_protocol.bodies.json_tables import loads_table
from rocketrio_protocol.bodies.offsets import ConsumerOffsetSnapshot, OffsetVersions
from rocketrio_protocol.bodies.topics import TopicConfig, TopicConfigSerializeWrapper
from rocketrio_protocol.errors import RemoteProtocolError


def test_whole_table_is_loaded_without_a_report() -> None:
    table, skipped = loads_table(b'{"offsetTable":{"T@G":{0:9}}}', ConsumerOffsetSnapshot)
    assert table == ConsumerOffsetSnapshot({"T@G": {0: 9}})
    assert not skipped


@pytest.mark.parametrize(
    ("entry", "kept"),
    [
        (b'"U@G":{1:"x",2:5}', {"U@G": {2: 5}}),
        (b'"U@G":{1:null,2:5}', {"U@G": {2: 5}}),
        (b'"U@G":{1:1e400,2:5}', {"U@G": {2: 5}}),
        (b'"U@G":{1:9223372036854775808,2:5}', {"U@G": {2: 5}}),
        (b'"U@G":{1:' + b"9" * 5000 + b",2:5}", {"U@G": {2: 5}}),
        (b'"U@G":{2147483648:1,2:5}', {"U@G": {2: 5}}),
        (b'"U@G":{"one":1,2:5}', {"U@G": {2: 5}}),
        (b'"U@G":7', {}),
    ],
)
def test_damaged_entry_is_left_out_and_the_others_are_loaded(
    entry: bytes, kept: dict[str, dict[int, int]]
) -> None:
    data = b'{"offsetTable":{"T@G":{0:9},' + entry + b',"V@G":{0:3}}}'
    table, skipped = loads_table(data, ConsumerOffsetSnapshot, lenient=False)
    assert table.offset_table == {"T@G": {0: 9}, **kept, "V@G": {0: 3}}
    assert len(skipped) == 1
    assert skipped[0].startswith("body.offsetTable.U@G")


def test_record_of_a_table_is_whole_or_left_out() -> None:
    data = (
        b'{"dataVersion":{"counter":"x","timestamp":5},"topicConfigTable":'
        b'{"T":{"topicName":"T"},"U":{"topicName":"U","perm":[]},"V":{}}}'
    )
    table, skipped = loads_table(data, TopicConfigSerializeWrapper)
    assert table.topic_config_table == {"T": TopicConfig("T")}
    assert (table.data_version.counter, table.data_version.timestamp) == (0, 5)
    assert len(skipped) == 3


def test_class_within_a_table_loses_entries_of_its_own() -> None:
    data = b'{"offsetTable":{},"rocketrioVersions":{"generations":{"T@G":{0:"0.1",1:2}}}}'
    table, skipped = loads_table(data, ConsumerOffsetSnapshot)
    assert table.rocketrio_versions == OffsetVersions(generations={"T@G": {0: "0.1"}})
    assert len(skipped) == 1


@pytest.mark.parametrize(
    "data", [b"", b'{"offsetTable":{', b"[]", b'{"offsetTable":7}', b"[" * 100_000]
)
def test_text_without_the_table_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        loads_table(data, ConsumerOffsetSnapshot)
