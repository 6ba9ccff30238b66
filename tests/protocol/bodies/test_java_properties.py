import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.exchanges import exchanges_of
from tests.golden.golden import VERSIONS

from rocketrio_protocol.bodies.java_properties import (
    LINES_LIMIT,
    TEXT_SIZE_LIMIT,
    format_properties,
    parse_properties,
)
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.errors import RemoteProtocolError

words = st.text("abcXYZ019._-/ ", min_size=1, max_size=12).map(str.strip).filter(bool)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a=1\nb=2\n", {"a": "1", "b": "2"}),
        (b"a = 1\r\nb : 2\rc 3", {"a": "1", "b": "2", "c": "3"}),
        (b"# comment\n! another\n\n   \na=1", {"a": "1"}),
        (b"a=b=c:d", {"a": "b=c:d"}),
        (b"empty=\nnothing", {"empty": "", "nothing": ""}),
        (b"long=one \\\n   two", {"long": "one two"}),
        (b"a\\=b=c", {"a=b": "c"}),
        (b"path=C:\\\\dir\\u0041", {"path": "C:\\dirA"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=x\\", {"a": "x"}),
        (b"a=one \\\n  \\\n two\\\n# three", {"a": "one two# three"}),
        ("ä=ö".encode(), {"ä": "ö"}),
    ],
)
def test_the_forms_of_the_text_are_read(text: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@given(st.dictionaries(words.map(lambda word: word.replace(" ", "")).filter(bool), words))
def test_what_is_written_is_read_again(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties


@pytest.mark.parametrize("run", VERSIONS)
def test_the_settings_of_apaches_broker_are_read(run: str) -> None:
    (exchange,) = exchanges_of(run, "broker", RequestCode.GET_BROKER_CONFIG)
    assert exchange.answer is not None
    shown = parse_properties(exchange.answer.body)
    assert len(shown) > 100
    assert shown["brokerName"] == "broker-a"
    assert shown["messageDelayLevel"].startswith("1s 5s 10s")
    (update,) = exchanges_of(run, "broker", RequestCode.UPDATE_BROKER_CONFIG)
    assert parse_properties(update.request.body) == {"accessMessageInMemoryMaxRatio": "41"}


def test_other_encodings_are_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        parse_properties(b"\xff\xfe")


def test_parse_properties_of_a_text_over_the_limit_is_refused() -> None:
    assert parse_properties(b"#" * TEXT_SIZE_LIMIT) == {}
    with pytest.raises(RemoteProtocolError, match=f"{TEXT_SIZE_LIMIT} is the limit"):
        parse_properties(b"#" * (TEXT_SIZE_LIMIT + 1))


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_parse_properties_of_too_many_lines_is_refused(end: bytes) -> None:
    assert parse_properties((b"x=y" + end) * LINES_LIMIT) == {"x": "y"}
    with pytest.raises(RemoteProtocolError, match=f"{LINES_LIMIT} is the limit"):
        parse_properties((b"x=y" + end) * (LINES_LIMIT + 1))
