"""Our addition to the body of 43 beside Apache's."""

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.offsets import (
    ConsumerOffsetWrapper,
    OffsetVersions,
    VersionedConsumerOffsets,
)


def test_reader_without_versions_reads_the_same_offsets() -> None:
    versions = OffsetVersions({"T@G": {0: "0.1"}}, {"T@G": {0: 9}}, {"U": "1.0"})
    body = fastjson.dumps(VersionedConsumerOffsets({"T@G": {0: 4, 1: 7}}, versions))
    assert fastjson.loads(body, ConsumerOffsetWrapper).offset_table == {"T@G": {0: 4, 1: 7}}
    assert fastjson.loads(body, VersionedConsumerOffsets).rocketrio_versions == versions


def test_a_body_without_versions_is_an_apache_broker_s() -> None:
    body = (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5},"offsetTable":{"T@G":{0:4}}}'
    )
    found = fastjson.loads(body, VersionedConsumerOffsets)
    assert found == VersionedConsumerOffsets({"T@G": {0: 4}})
    assert fastjson.dumps(found) == b'{"offsetTable":{"T@G":{0:4}}}'
