import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_broker.store.key_hashes import key_hashes
from rocketrio_protocol.properties import decode_properties, index_key_hash

UNIQUE = "7F000001000018B4AAC2000000000001"


def expected(topic: str, properties: bytes) -> list[int]:
    values = decode_properties(properties)
    keys = [values.get("UNIQ_KEY", ""), *values.get("KEYS", "").split(" ")]
    return [index_key_hash(topic, key) for key in keys if key]


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        f"UNIQ_KEY\1{UNIQUE}".encode(),
        f"KEYS\1a b  c\2UNIQ_KEY\1{UNIQUE}\2TAGS\1x\2".encode(),
        b"UNIQ_KEY\1short\2KEYS\1k",
        f"UNIQ_KEY\1{UNIQUE * 2}".encode(),
        f"UNIQ_KEY\1first\2UNIQ_KEY\1{UNIQUE}".encode(),
        f"UNIQ_KEY\1{UNIQUE}\2UNIQ_KEY\1second".encode(),
        f"MY_UNIQ_KEY\1{UNIQUE}".encode(),
        "UNIQ_KEY\1é7F00001000018B4AAC200000000000\2KEYS\1ü".encode(),
        b"UNIQ_KEY\1" + b"\xff" * 32,
    ],
)
def test_hashes_are_those_of_the_protocol(properties: bytes) -> None:
    assert key_hashes(b"orders", properties) == expected("orders", properties)


@given(st.text("0123456789ABCDEF", min_size=32, max_size=32), st.sampled_from(["t", "orders", "ö"]))
def test_every_unique_id_hashes_as_in_java(unique: str, topic: str) -> None:
    assert key_hashes(topic.encode(), f"UNIQ_KEY\1{unique}".encode()) == [
        index_key_hash(topic, unique)
    ]
