import pytest

from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.message_codec import encode_record, encode_records, pack_host

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
        "born_timestamp_ms": 1_700_000_000_000,
        "born_host": hosts[0],
        "store_timestamp_ms": 1_700_000_000_001,
        "store_host": hosts[1],
        "reconsume_times": 2,
        "prepared_transaction_offset": 99,
        "topic": topic,
    }
    expected = b""
    for number, (flag, body, properties) in enumerate(ENTRIES):
        expected += encode_record(
            flag=flag,
            body=body,
            properties=properties,
            queue_offset=40 + number,
            physical_offset=5000 + len(expected),
            **common,  # type: ignore[arg-type]
        )
    together = encode_records(ENTRIES, queue_offset=40, physical_offset=5000, **common)  # type: ignore[arg-type]
    assert together == expected


def test_a_host_of_another_size_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="8 or 20 bytes"):
        encode_records(
            ENTRIES,
            queue_id=0,
            queue_offset=0,
            physical_offset=0,
            sys_flag=0,
            born_timestamp_ms=0,
            born_host=b"four",
            store_timestamp_ms=0,
            store_host=IPV4,
            reconsume_times=0,
            prepared_transaction_offset=0,
            topic=b"orders",
        )
