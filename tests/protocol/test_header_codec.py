"""Headers in JSON, ROCKETMQ and MSGPACK: both ways, from strict and from careless peers."""

import json
import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import remoting_frames

from rocketrio_protocol.codes import LanguageCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.frame import FrameDecoder
from rocketrio_protocol.header_codec import (
    FIELD_COUNT_LIMIT,
    HeaderParts,
    decode_header,
    encode_header,
)

RUNS = ("4.9.7", "5.3.3", "5.3.3-split")

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
int32 = st.integers(-(2**31), 2**31 - 1)
commands = st.builds(
    RemotingCommand,
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=int32,
    flag=st.integers(0, 3),
    ext_fields=st.dictionaries(texts, texts, max_size=5),
    remark=st.none() | texts,
    language=st.sampled_from(LanguageCode),
    version=st.integers(0, 2**15 - 1),
    serialize_type=st.sampled_from(SerializeType),
)


def parts_of(command: RemotingCommand) -> HeaderParts:
    return HeaderParts(
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
        command.ext_fields,
    )


def json_header(**members: object) -> bytes:
    return json.dumps({"code": 10, **members}).encode()


@given(commands)
def test_every_encoding_carries_every_command(command: RemotingCommand) -> None:
    assert decode_header(command.serialize_type, encode_header(command)) == parts_of(command)


@given(commands)
def test_header_may_lie_in_a_view_of_other_bytes(command: RemotingCommand) -> None:
    raw = encode_header(command)
    view = memoryview(b"before" + raw + b"after")[6:-5]
    assert decode_header(command.serialize_type, view) == parts_of(command)


@pytest.mark.parametrize("run", RUNS)
def test_recorded_json_headers_are_written_again_as_apache_wrote_them(run: str) -> None:
    for recorded in remoting_frames(run):
        (frame,) = FrameDecoder().feed(recorded.data)
        theirs = json.loads(bytes(frame.header))
        command = RemotingCommand.decode(frame)
        ours = json.loads(encode_header(command))
        # Java leaves the member out where there are no fields; ours is always there, see command.py.
        assert ours.pop("extFields") == theirs.pop("extFields", {})
        assert ours == theirs
        assert list(ours) == list(theirs)  # In Java's alphabetical order.
        assert decode_header(0, encode_header(command)) == parts_of(command)


def test_json_is_written_in_java_member_order() -> None:
    command = RemotingCommand(
        105, 7, 0, {"topic": "T1"}, language=LanguageCode.JAVA, version=409, remark=None
    )
    assert encode_header(command) == (
        b'{"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )


def test_json_numbers_and_booleans_in_fields_become_their_text() -> None:
    parts = decode_header(
        0,
        json_header(
            extFields={"queueId": 3, "batch": True, "unit": False, "offset": 2**40, "gone": None},
            language="CPP",
        ),
    )
    assert parts.ext_fields == {
        "queueId": "3",
        "batch": "true",
        "unit": "false",
        "offset": str(2**40),
    }
    assert parts.language is LanguageCode.CPP


@pytest.mark.parametrize(
    ("members", "language"),
    [
        ({"language": "RUST"}, LanguageCode.RUST),
        ({"language": "KLINGON"}, LanguageCode.OTHER),
        ({"language": 1}, LanguageCode.CPP),
        ({"language": 99}, LanguageCode.OTHER),
        ({"language": None}, LanguageCode.OTHER),
        ({}, LanguageCode.OTHER),
    ],
)
def test_json_language_in_any_form_is_understood(
    members: dict[str, object], language: LanguageCode
) -> None:
    assert decode_header(0, json_header(**members)).language is language


def test_json_members_may_be_missing_null_or_unknown() -> None:
    parts = decode_header(0, json_header(remark=None, extFields=None, later=[1, {"a": 2}]))
    assert (parts.remark, parts.ext_fields, parts.opaque, parts.flag) == (None, {}, 0, 0)
    assert decode_header(0, json_header(remark="")).remark == ""


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[]",
        b"{",
        b'{"code":"ten"}',
        b'{"code":10,"opaque":2147483648}',
        b'{"code":10,"extFields":[1]}',
        b'{"code":10,"extFields":"none"}',
        b'{"code":10,"flag":1.5}',
        b'{"code":10,"opaque":true}',
        b'{"code":null}',
        b'{"code":10}{}',
        b"[" * 100_000,
        b'{"code":10,"nobody asked":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_broken_json_is_a_protocol_error(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="JSON header cannot be read"):
        decode_header(0, raw)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"code":"310","flag":"2","opaque":"-7","version":"0","language":"GO","extFields":{"a":"b"}}',
        b'{"code":310,"flag":2,"opaque":-7,"version":null,"language":9,"remark":null,"extFields":{"a":"b","c":null}}',
        b'\xef\xbb\xbf{"code":310,"flag":2,"opaque":-7,"language":"GO","extFields":{"a":"b"}}\0\0',
        b'{"code":310,"flag":2,"opaque":-7,"language":"GO","extFields":{"a":"b"}}\r\n\0',
    ],
)
def test_json_as_other_clients_write_it_is_read_as_java_reads_it(raw: bytes) -> None:
    parts = decode_header(0, raw)
    assert (parts.code, parts.flag, parts.opaque, parts.version) == (310, 2, -7, 0)
    assert (parts.remark, parts.ext_fields) == (None, {"a": "b"})
    assert parts.language is LanguageCode.GO


def test_a_language_that_is_a_number_in_a_text_is_an_unknown_name() -> None:
    assert decode_header(0, b'{"code":310,"language":"9"}').language is LanguageCode.OTHER


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        (b"[]", {}),  # PHP's map without members
        (b'{"e":4.0,"g":1.7e12,"f":0.5}', {"e": "4", "g": "1700000000000", "f": "0.5"}),
        (b'{"z":{"a":[1,null]},"y":[]}', {"z": '{"a":[1,null]}', "y": "[]"}),
        (b'{"i":"KEYS\\u0001\xb6\xa9\xb5\xa5"}', {"i": "KEYS\x01\ufffd\ufffd\ufffd\ufffd"}),  # GBK
    ],
)
def test_json_fields_of_any_kind_become_texts(raw: bytes, fields: dict[str, str]) -> None:
    assert decode_header(0, b'{"code":310,"extFields":%b}' % raw).ext_fields == fields
    assert decode_header(0, b'{"code":1,"remark":7}').remark == "7"


def test_rocketmq_texts_that_are_no_utf_8_are_read_with_replacements() -> None:
    parts = decode_header(
        1, rocketmq_header(ext=entry(b"i", b"KEYS\x01\xb6\xa9") + entry(b"\xff", b"v"))
    )
    assert parts.ext_fields == {"i": "KEYS\x01\ufffd\ufffd", "\ufffd": "v"}


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]"])
def test_unknown_serialize_type_names_those_that_are_known(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"type 2; known are 0 \(JSON\), 1"):
        decode_header(2, raw)


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_text_that_is_not_unicode_cannot_be_encoded(serialize_type: SerializeType) -> None:
    for command in (
        RemotingCommand(10, ext_fields={"a": "\ud800"}, serialize_type=serialize_type),
        RemotingCommand(10, remark="\udfff", serialize_type=serialize_type),
    ):
        with pytest.raises(LocalProtocolError, match=f"cannot be encoded in {serialize_type.name}"):
            encode_header(command)


# ----------------------------------------------------------------------------------------- ROCKETMQ


def rocketmq_header(remark_size: int = 0, ext: bytes = b"", ext_size: int | None = None) -> bytes:
    size = len(ext) if ext_size is None else ext_size
    return struct.pack(">hbhiii", 10, 0, 407, 1, 0, remark_size) + struct.pack(">i", size) + ext


def entry(name: bytes, value: bytes, *, name_size: int | None = None) -> bytes:
    size = len(name) if name_size is None else name_size
    return struct.pack(">h", size) + name + struct.pack(">i", len(value)) + value


def test_rocketmq_reads_empty_names_and_values_as_absent() -> None:
    ext = entry(b"a", b"") + entry(b"", b"x") + entry(b"b", b"1") + entry(b"b", b"2")
    assert decode_header(1, rocketmq_header(ext=ext)).ext_fields == {"b": "2"}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        rocketmq_header()[:-1],
        rocketmq_header(remark_size=-1),
        rocketmq_header(remark_size=2**31 - 1),
        rocketmq_header(ext_size=2**31 - 1),
        rocketmq_header(ext_size=-4),
        rocketmq_header(ext=b"\x00"),
        rocketmq_header(ext=entry(b"a", b"b", name_size=-2)),
        rocketmq_header(ext=entry(b"a", b"b", name_size=500)),
        rocketmq_header(ext=struct.pack(">h1si", 1, b"a", 1000)),
    ],
)
def test_broken_rocketmq_header_is_a_protocol_error(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="ROCKETMQ header"):
        decode_header(1, raw)


def test_rocketmq_refuses_to_write_what_its_sizes_cannot_say() -> None:
    command = RemotingCommand(200_050, serialize_type=SerializeType.ROCKETMQ)
    with pytest.raises(LocalProtocolError, match="200050 does not fit"):
        encode_header(command)
    command = RemotingCommand(
        10, ext_fields={"n" * 40_000: "v"}, serialize_type=SerializeType.ROCKETMQ
    )
    with pytest.raises(LocalProtocolError, match="32767"):
        encode_header(command)


# ------------------------------------------------------------------------------------------ MSGPACK


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        [],
        [10, 3, 407, 1, 0, None],
        [10, 3, 407, 1, 0, None, {}, 8],
        ["10", 3, 407, 1, 0, None, {}],
        [10, 3, 407, 2**31, 0, None, {}],
        [10.5, 3, 407, 1, 0, None, {}],
        [10, 3, 407, True, 0, None, {}],
        [True, 3, 407, 1, False, None, {}],
        [10, 3, 407, 1, 0, 5, {}],
        [10, 3, 407, 1, 0, None, None],
        [10, 3, 407, 1, 0, None, {"a": b"1"}],
        [10, 3, 407, 1, 0, None, {"a": ["b"]}],
        [10, 3, 407, 1, 0, None, {b"a": "b"}],
    ],
)
def test_msgpack_of_another_shape_is_a_protocol_error(value: object) -> None:
    with pytest.raises(RemoteProtocolError, match="MSGPACK header"):
        decode_header(77, msgpack.packb(value))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\x97\x0a",
        b"\x91" * 5000,
        b"\x97" * 7 + b"\xff" * 50,
    ],
)
def test_broken_msgpack_is_a_protocol_error(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="MSGPACK header"):
        decode_header(77, raw)


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_decode_header_with_too_many_fields_is_refused(serialize_type: SerializeType) -> None:
    fields = {f"f{number}": "v" for number in range(FIELD_COUNT_LIMIT)}
    command = RemotingCommand(34, ext_fields=fields, serialize_type=serialize_type)
    assert decode_header(serialize_type, encode_header(command)).ext_fields == fields
    command.ext_fields["one more"] = "v"
    with pytest.raises(RemoteProtocolError, match=str(FIELD_COUNT_LIMIT)):
        decode_header(serialize_type, encode_header(command))


@given(st.sampled_from([0, 1, 77]), st.binary(max_size=200))
def test_garbage_is_a_header_or_a_protocol_error(serialize_type: int, raw: bytes) -> None:
    try:
        decode_header(serialize_type, raw)
    except RemoteProtocolError:
        return


def test_msgpack_numbers_and_booleans_in_fields_become_their_text() -> None:
    fields = {"queueId": 3, "batch": True, "order": False, "absent": None, "topic": "T"}
    header = msgpack.packb([30, 3, 407, 7, 0, None, fields])
    parts = decode_header(SerializeType.MSGPACK, header)
    assert parts.ext_fields == {"queueId": "3", "batch": "true", "order": "false", "topic": "T"}
