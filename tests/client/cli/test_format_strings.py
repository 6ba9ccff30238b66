"""Format strings: what they print, and that what they print can be read again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import plain_record

from rocketrio.cli.format_strings import (
    FORMS,
    LETTERS,
    READ_LETTERS,
    Field,
    RecordReader,
    message_printer,
    parse_format,
    row_printer,
)
from rocketrio.cli.message_output import message_row
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.properties import encode_properties

STORED = 1_795_392_000_250
PROPERTIES = {"KEYS": "k1 k2", "TAGS": "paid", "UNIQ_KEY": "7F00", "a": "ä"}


def message(body: bytes = b"one", properties: dict[str, str] | None = None) -> MessageExt:
    texts = PROPERTIES if properties is None else properties
    record = plain_record(
        body=body, queue_offset=1204, store_time_ms=STORED, born_time_ms=STORED - 250, reconsume_times=2,
        properties=encode_properties(texts).encode(),
    )  # fmt: skip
    return MessageExt(record, 0, len(record), "broker-a")


def printed(text: str, one: MessageExt | None = None) -> str:
    return message_printer(text, message_row, utc=True)(one or message(), 7).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t/%p/%o\\n", "orders/3/1204\n"),
        ("%b %m %u %r %i", "broker-a 7F00 7F00 2 7"),
        ("%k|%g|%v", "k1 k2|paid|one"),
        ("%T %K %V", "6 5 3"),
        ("%H%h{ %k=%v}", "4 KEYS=k1 k2 TAGS=paid UNIQ_KEY=7F00 a=ä"),
        ("%h{%k%{%v%}}", "KEYS{k1 k2}TAGS{paid}UNIQ_KEY{7F00}a{ä}"),
        ("%d %D", f"{STORED} {STORED - 250}"),
        ("%d{iso}", "2026-11-23T00:00:00.250+00:00"),
        ("%d{strftime[%F %T]}", "2026-11-23 00:00:00"),
        ("%%%{%}\\t\\x41\\\\", "%{}\tA\\"),
        ("%v{json} %v{hex} %v{base64} %v{text}", '"one" 6f6e65 b25l one'),
        ("%k{json} %o{json}", '"k1 k2" 1204'),
        ("%f{queue_offset} %f{tags} %f{store_time}", "1204 paid \"2026-11-23T00:00:00.250+00:00\""),
        ("plain", "plain"),
        ("", ""),
    ],
)  # fmt: skip
def test_printed(text: str, expected: str) -> None:
    assert printed(text) == expected


def test_what_a_message_lacks_is_nothing_or_null() -> None:
    bare = message(properties={})
    assert printed("[%k|%g|%u|%h|%H|%K]", bare) == "[||||0|0]"
    assert printed("%k{json} %g{json} %f{tags}", bare) == "null null null"


def test_bytes_are_printed_as_they_are_and_text_cannot_steer_the_terminal() -> None:
    one = message(b"\x1b[2J\xff")
    assert message_printer("%v", message_row)(one, 1) == b"\x1b[2J\xff"
    assert message_printer("%v{text}", message_row)(one, 1) == rb"\x1b[2J\xff"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("%t %q", "%q at 4 of '%t %q' is not one of %t topic, %p queue"),
        ("%", "% at 1"),
        ("%v{json", "the brace at 3"),
        ("%v{xml}", "{xml} is not one of json, hex, base64, text"),
        ("%d{go[x]}", "is neither {iso} nor {strftime"),
        ("\\q", r"\\q at 1"),
        ("\\x1", r"\\x at 1"),
        ("%f", "%f needs the name"),
        ("%h{%t}", "%t at 1 of '%t' is not one of %k name, %v value"),
    ],
)
def test_wrong_format_is_an_error_that_names_the_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        message_printer(text, message_row)
    assert problem.replace("\\\\", "\\") in str(raised.value)


def test_unknown_field_is_an_error_that_names_the_fields() -> None:
    with pytest.raises(ConfigError, match="no field 'lg': group, lag"):
        row_printer("%f{lg}")({"group": "a", "lag": 1}, 1)


def test_rows_of_any_command() -> None:
    show = row_printer("%i %f{group}=%f{lag} %%\\n")
    assert show({"group": "billing", "lag": None}, 2) == b"2 billing=null %\n"
    with pytest.raises(ConfigError, match="%t at 1"):
        row_printer("%t")


# ---------------------------------------------------------------------------------------- reading


def read(text: str, data: bytes, size: int = 1000) -> list[dict[str, bytes]]:
    reader = RecordReader(text)
    found: list[dict[str, bytes]] = []
    for index in range(0, len(data), size):
        found += reader.feed(data[index : index + size])
    return [*found, *reader.end()]


def test_records_are_cut_where_the_text_behind_a_field_begins() -> None:
    data = b"k1 one\nk2 two words\n three\n"
    expected = [
        {"k": b"k1", "v": b"one"},
        {"k": b"k2", "v": b"two words"},
        {"k": b"", "v": b"three"},
    ]
    for size in (1, 2, 3, 1000):
        assert read("%k %v\\n", data, size) == expected
        assert read("%k %v\\n", data[:-1], size) == expected


def test_body_may_have_line_ends_if_the_format_says_so() -> None:
    assert read("%v\\x00", b"a\nb\0c") == [{"v": b"a\nb"}, {"v": b"c"}]
    assert read("%v{hex};", b"610a;") == [{"v": b"a\n"}]
    assert read("%v{json}\\n", b'"a\\nb"\n{"c":1}\nnull\n') == [
        {"v": b"a\nb"},
        {"v": b'{"c":1}'},
        {"v": b""},
    ]


@pytest.mark.parametrize(
    ("text", "data", "problem"),
    [
        ("<%k> %v\\n", b"<k1> one\nk2 two\n", r"record 2 has b'k'"),
        ("<%k> %v\\n", b"<k1", "record 1 ends before"),
        ("%v{hex}\\n", b"6x\n", "record 1: %v is not hex"),
        ("%v{base64}\\n", b"?\n", "record 1: %v is not base64"),
        ("%v{json}\\n", b"{\n", "record 1: %v is not json"),
    ],
)
def test_wrong_record_is_an_error_that_counts(text: str, data: bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(text, data)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("%k\\n", "reads no body"),
        ("%k%v\\n", "%k of '%k%v.*' has no end"),
        ("%v", "has no end: put a text behind it"),
        ("%v %v\\n", "reads a field twice"),
        ("%o %v\\n", "%o at 1"),
        ("%v{text}\\n", "is not one of json, hex, base64"),
    ],
)
def test_format_that_cannot_be_read_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        RecordReader(text)


@given(
    st.lists(st.binary(max_size=8), max_size=5),
    st.sampled_from(["", "{hex}", "{base64}"]),
    st.integers(1, 9),
)
def test_what_a_format_prints_the_same_format_reads(
    bodies: list[bytes], form: str, size: int
) -> None:
    text = f"%k\\x1f%v{form}\\x00"
    values = [body.replace(b"\0", b"").replace(b"\x1f", b"") for body in bodies]
    show = message_printer(text, message_row)
    data = b"".join(show(message(value), 1) for value in values)
    assert read(text, data, size) == [{"k": b"k1 k2", "v": value} for value in values]


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=4),
    st.integers(1, 9),
)
def test_json_carries_any_text(texts: list[str], size: int) -> None:
    show = message_printer("%v{json}\\n", message_row)
    data = b"".join(show(message(text.encode()), 1) for text in texts)
    assert [json.loads(line) for line in data.split(b"\n")[:-1]] == texts
    assert read("%v{json}\\n", data, size) == [{"v": text.encode()} for text in texts]


PARTS = st.lists(
    st.builds(
        Field, st.sampled_from(sorted(set(LETTERS) - set("dDhfi"))), st.sampled_from([None, *FORMS])
    )
    | st.binary(min_size=1, max_size=3),
    max_size=5,
)


def written(parts: list[Any]) -> str:
    return "".join(
        "".join(f"\\x{byte:02x}" for byte in part)
        if isinstance(part, bytes)
        else f"%{part.letter}" + (f"{{{part.argument}}}" if part.argument else "")
        for part in parts
    )


@given(PARTS)
def test_every_format_that_is_written_is_parsed(parts: list[Any]) -> None:
    found = list(parse_format(written(parts), LETTERS))
    joined: list[Any] = []
    for part in parts:
        if isinstance(part, bytes) and joined and isinstance(joined[-1], bytes):
            joined[-1] += part
        else:
            joined.append(part)
    assert found == joined
    message_printer(written(parts), message_row)(message(), 1)


@given(st.text(alphabet="%tvkhdf{}\\nx019 json[]", max_size=12))
def test_any_text_is_a_format_or_a_config_error(text: str) -> None:
    for make in (lambda: message_printer(text, message_row), lambda: RecordReader(text)):
        try:
            make()
        except ConfigError:
            continue


@given(st.text(alphabet="ab |\n", max_size=30), st.sampled_from(["%v\\n", "%k|%v\\n", "a%v b\\n"]))
def test_any_input_is_records_or_a_config_error(data: str, text: str) -> None:
    try:
        found = read(text, data.encode(), 3)
    except ConfigError:
        return
    assert all(set(record) <= set(READ_LETTERS) for record in found)
