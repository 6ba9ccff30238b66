"""Properties strings and hashes, against values that Java computes and strings that Java wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.record.java_hash import index_key_hash, java_string_hash, tags_code
from rocketrio_protocol.record.properties import (
    DECODED_SIZE_LIMIT,
    decode_properties,
    encode_properties,
    property_value,
)

_texts = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1
)
_maps = st.dictionaries(_texts, _texts, max_size=8)


@given(_maps, st.booleans())
def test_encoded_properties_decode_to_the_same_map(
    properties: dict[str, str], trailing: bool
) -> None:
    text = encode_properties(properties, trailing_separator=trailing)
    assert decode_properties(text) == properties
    assert decode_properties(text.encode()) == properties
    assert all(property_value(text.encode(), name) == value for name, value in properties.items())


@given(
    st.lists(
        st.sampled_from([b"KEYS", b"A", b"\x01", b"\x02", b"v", b"\xff", b"\xc3\xa9"]), max_size=14
    )
)
def test_reading_one_property_agrees_with_decoding_all(parts: list[bytes]) -> None:
    raw = b"".join(parts)
    decoded = decode_properties(raw)
    for name in ("KEYS", "A", "v", "Av", "vKEYS", "AA"):
        assert property_value(raw, name) == decoded.get(name)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", {}),
        (b"a\x011\x02b\x012\x02", {"a": "1", "b": "2"}),
        (b"a\x011\x02b\x012", {"a": "1", "b": "2"}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
        (b"a\x011\x02a\x01\x02", {"a": "1"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"\x02\x02a\x011\x02\x02", {"a": "1"}),
        (b"\x011\x02nothing\x02a\x011", {"a": "1"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
)
def test_odd_strings_decode_as_java_reads_them(raw: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(raw) == expected
    assert decode_properties(memoryview(raw)) == expected
    for name in ("a", "b", "nothing"):
        assert property_value(raw, name) == expected.get(name)


@pytest.mark.parametrize("pair", [("a\x01", "v"), ("a", "v\x02"), ("", "v"), ("a", "")])
def test_properties_that_would_be_torn_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be stored"):
        encode_properties(dict([pair]))


# Values of String.hashCode as the Java language specification defines it.
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("hello", 99162322),
        ("The quick brown fox jumps over the lazy dog", -609428141),
        ("polygenelubricants", -2147483648),
        ("\u00e9\u4e2d", 27236),
        ("\U0001f600", 1772899),
    ],
)
def test_string_hash_is_javas(text: str, code: int) -> None:
    assert java_string_hash(text) == code
    assert tags_code(text) == code


def _hash_by_definition(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for at in range(0, len(units), 2):
        total = (total * 31 + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return total - (1 << 32) if total >= 1 << 31 else total


@given(st.one_of(st.text(), st.text("ab\u00e9\U0001f600", min_size=500, max_size=530)))
def test_string_hash_follows_the_definition_for_any_text(text: str) -> None:
    assert java_string_hash(text) == _hash_by_definition(text)


def test_no_tags_have_code_zero() -> None:
    assert tags_code(None) == 0
    assert tags_code("") == 0


def test_index_hash_is_never_negative() -> None:
    assert index_key_hash("t", "k") == abs(_hash_by_definition("t#k"))
    # Integer.MIN_VALUE has no absolute value in Java; the index files such a key under 0. Its digits to base 31:
    missing = (-0x80000000 - _hash_by_definition("t#@@@@@@@")) % (1 << 32)
    key = "".join(chr(ord("@") + missing // 31**place % 31) for place in reversed(range(7)))
    assert _hash_by_definition(f"t#{key}") == -0x80000000
    assert index_key_hash("t", key) == 0


def test_text_longer_than_any_message_can_have_is_refused() -> None:
    longest = "\x01\x02" * (DECODED_SIZE_LIMIT // 2)
    assert decode_properties(longest) == {}
    for text in (longest + "a", (longest + "a").encode()):
        with pytest.raises(RemoteProtocolError, match="65537 characters"):
            decode_properties(text)
