import pytest

from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.record.encode import encode_record, record_shape
from rocketrio_protocol.record.layout import pack_host

IPV4 = pack_host("127.0.0.1", 10911)
IPV6 = pack_host("::1", 10911)
ENTRIES = [(0, b"", b""), (7, b"one", b"TAGS\1a"), (-1, b"x" * 300, b"KEYS\1k\2")]


@pytest.mark.parametrize("topic", [b"orders", b"t" * 127, b"t" * 128])
@pytest.mark.parametrize("hosts", [(IPV4, IPV4), (IPV6, IPV4), (IPV4, IPV6), (IPV6, IPV6)])
def test_a_batch_of_records_is_the_records_one_by_one(
    topic: bytes, hosts: tuple[bytes, bytes]
) -> None:
    common = {
        "queue_id": 3,
        "sys_flag": 0x10 | 0x1,
        "born_time_ms": 1_700_000_000_000,
        "born_host": hosts[0],
        "store_time_ms": 1_700_000_000_001,
        "store_host": hosts[1],
        "reconsume_times": 2,
        "prepared_transaction_offset": 99,
    }
    expected = b""
    for number, (flag, body, properties) in enumerate(ENTRIES):
        expected += encode_record(
            flag=flag,
            body=body,
            properties=properties,
            queue_offset=40 + number,
            physical_offset=5000 + len(expected),
            topic=topic,
            **common,  # type: ignore[arg-type]
        )
    shape = record_shape(topic, len(hosts[0]), len(hosts[1]))
    together = shape.records(ENTRIES, queue_offset=40, physical_offset=5000, **common)  # type: ignore[arg-type]
    assert together == expected


def test_a_host_of_another_size_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="8 or 20 bytes"):
        record_shape(b"orders", len(b"four"), len(IPV4))
