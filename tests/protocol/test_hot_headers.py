"""Headers of sends and pulls read in one pass: they are what the general way gives, and odd ones are left to it."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import remoting_frames
from tests.support.raw_frames import is_answer
from tests.support.request_headers import COMMANDS

from rocketrio_protocol.codes import LanguageCode, RequestCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.pull import LitePullMessageRequestHeader, PullMessageRequestHeader
from rocketrio_protocol.commands.send import (
    SendBatchMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import Frame, FrameDecoder
from rocketrio_protocol.header_codec import CODECS_FIELD, decode_header, read_hot_header
from rocketrio_protocol.headers import Header, RequestHeader, value_type

HOT: dict[int, type[RequestHeader]] = {
    10: SendMessageRequestHeader,
    310: SendMessageRequestHeaderV2,
    320: SendBatchMessageRequestHeader,
    11: PullMessageRequestHeader,
    361: LitePullMessageRequestHeader,
}
RUNS = ("4.9.7", "5.3.3", "5.3.3-split")

# As JSON: what peers write, what Java reads all the same, and what no peer should send.
ODD = (
    '"3"', '"-3"', '"+3"', '" 3"', '"3.0"', '"0.0"', '"3e0"', '"03"', '"-0"', '"-"', '""', '"1_0"',
    '"2147483647"', '"2147483648"', '"-2147483649"', '"9223372036854775808"', '"nan"', '"inf"',
    '"null"', '"true"', '"TRUE"', '"False"', '"yes"', '"\\u0663"', '"\\ud800"', '"a\\u0001b"',
    "3", "3.0", "0.0", "99999999999", "true", "false", "null", "[]", "{}",
)  # fmt: skip


def header_of(cls: type[RequestHeader]) -> RequestHeader:
    example = {int: 3, str: "text", bool: True}
    return cls(*(example[value_type(field)] for field in msgspec.structs.fields(cls)))


def json_header(code: int, fields: dict[str, Any], **members: Any) -> bytes:
    header = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 7}
    return json.dumps(header | members, separators=(",", ":")).encode()


def general(cls: type[Header], header: bytes) -> Header | None:
    try:
        return cls.from_ext_fields(decode_header(SerializeType.JSON, header).ext_fields)
    except RemoteProtocolError:
        return None


@pytest.mark.parametrize("code", HOT)
def test_whole_header_is_read(code: int) -> None:
    cls = HOT[code]
    command = RemotingCommand.request(header_of(cls))
    command.opaque, command.remark = 7, "said"
    header = json_header(code, command.ext_fields, remark="said", version=407)
    read = read_hot_header(header)
    assert read is not None
    envelope, fields = read
    assert (type(fields), fields) == (cls, header_of(cls))
    assert (envelope.code, envelope.opaque, envelope.remark) == (code, 7, "said")
    decoded = RemotingCommand.decode(Frame(0, header, b"body"))
    assert decoded == attrs.evolve(command, body=b"body", language=LanguageCode.JAVA)
    assert decoded.header(cls) is decoded.header(cls)
    assert decoded.ext_fields == command.ext_fields
    assert decoded.header(cls) == header_of(cls)


def json_frames(run: str) -> Iterator[tuple[Frame, RemotingCommand]]:
    """What Apache's own sent with a JSON header."""
    for recorded in remoting_frames(run):
        (frame,) = FrameDecoder().feed(recorded.data)
        if frame.serialize_type == 0:
            yield frame, RemotingCommand.decode(frame)


def assert_read_as_in_general(cls: type[Header], frame: Frame, command: RemotingCommand) -> None:
    hot = read_hot_header(frame.header)
    assert hot is not None, frame
    assert hot[1] == general(cls, frame.header)
    assert command.ext_fields == decode_header(0, frame.header).ext_fields


@pytest.mark.parametrize("run", RUNS)
def test_what_apache_s_clients_send_is_read_so(run: str) -> None:
    read = 0
    for frame, command in json_frames(run):
        if not is_answer(command) and command.code in HOT:
            cls, _ = COMMANDS[RequestCode(command.code)]
            assert_read_as_in_general(cls, frame, command)
            read += 1
    assert read > 5


def assert_no_other_value(cls: type[Header], header: bytes) -> None:
    """Each reader reads the same, or leaves it to the general way."""
    hot = read_hot_header(header)
    if hot is not None:
        expected = general(cls, header)
        assert hot[1] == expected
        # 3.0 is 3 for `==`: the types count.
        assert repr(hot[1]) == repr(expected)


@pytest.mark.parametrize("code", HOT)
def test_odd_value_is_read_as_the_general_way_reads_it(code: int) -> None:
    cls = HOT[code]
    fields = header_of(cls).to_ext_fields()
    for odd, name in product(ODD, fields):
        header = json_header(code, fields | {name: "@"}).replace(b'"@"', odd.encode())
        assert_no_other_value(cls, header)


@pytest.mark.parametrize("run", RUNS)
def test_answers_of_apache_s_brokers_to_sends_are_read_so(run: str) -> None:
    read = 0
    for frame, command in json_frames(run):
        if is_answer(command) and b'"msgId"' in frame.header:
            assert_read_as_in_general(SendMessageResponseHeader, frame, command)
            read += 1
    assert read > 5


def test_odd_value_of_an_answer_is_read_as_the_general_way_reads_it() -> None:
    answer = SendMessageResponseHeader("0A", 3, 4, "T", "region", True)
    fields = {"queueId": "3", **answer.to_ext_fields()}
    for odd, name in product(ODD, fields):
        header = json_header(0, fields | {name: "@"}).replace(b'"@"', odd.encode())
        assert_no_other_value(SendMessageResponseHeader, header)
    assert read_hot_header(json_header(0, fields)) is not None
    del fields["msgId"]
    assert read_hot_header(json_header(0, fields)) is None


@given(fields=st.dictionaries(st.sampled_from("abcdefghijklmnz"), st.text(max_size=8)))
def test_any_fields_are_read_as_the_general_way_reads_them(fields: dict[str, str]) -> None:
    usual = header_of(SendMessageRequestHeaderV2).to_ext_fields()
    header = json_header(310, usual | fields)
    hot = read_hot_header(header)
    if hot is not None:
        assert hot[1] == general(SendMessageRequestHeaderV2, header)


def test_missing_field_is_left_to_the_general_way() -> None:
    fields = header_of(SendMessageRequestHeaderV2).to_ext_fields()
    del fields["e"]
    assert read_hot_header(json_header(310, fields)) is None
    command = RemotingCommand.decode(Frame(0, json_header(310, fields), b""))
    with pytest.raises(RemoteProtocolError, match="the required field 'e' is missing"):
        command.header(SendMessageRequestHeaderV2)


def test_optional_fields_may_be_missing() -> None:
    cls = PullMessageRequestHeader
    required = {field.encode_name: "5" for field in msgspec.structs.fields(cls) if field.required}
    hot = read_hot_header(json_header(11, required))
    assert hot is not None
    assert hot[1] == cls("5", "5", 5, 5, 5, 5, 5, 5, 5)


def test_announced_codecs_are_left_to_the_general_way() -> None:
    fields = header_of(SendMessageRequestHeaderV2).to_ext_fields() | {CODECS_FIELD: "MSGPACK"}
    assert read_hot_header(json_header(310, fields)) is None
    assert RemotingCommand.decode(Frame(0, json_header(310, fields), b"")).has_field(CODECS_FIELD)


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":3105,"extFields":{}}',
        b'{"code":310}',
        b'{"code":310,"extFields":{',
        b'{"code":310,"extFields":null}',
        b'{"code":310,"extFields":' + b"[" * 10_000,
        b'{"code":310,"extFields":{"b":"\xff"}}',
        b'{"flag":0,"code":310}',
        b"",
    ],
)
def test_other_bytes_are_left_to_the_general_way(header: bytes) -> None:
    assert read_hot_header(header) is None


def test_a_second_code_in_the_header_counts() -> None:
    fields = header_of(SendMessageRequestHeaderV2).to_ext_fields()
    header = json_header(310, fields)[:-1] + b',"code":11}'
    assert read_hot_header(header) is None
    assert RemotingCommand.decode(Frame(0, header, b"")).code == 11


def test_fields_that_were_taken_are_what_the_header_is_read_from() -> None:
    fields = header_of(SendMessageRequestHeaderV2).to_ext_fields()
    command = RemotingCommand.decode(Frame(0, json_header(310, fields), b""))
    command.ext_fields["b"] = "other"
    assert command.header(SendMessageRequestHeaderV2).topic == "other"
    command = RemotingCommand.decode(Frame(0, json_header(310, fields), b""))
    assert (
        attrs.evolve(command, ext_fields=fields | {"b": "new"})
        .header(SendMessageRequestHeaderV2)
        .topic
        == "new"
    )
    command.ext_fields = fields | {"b": "last"}
    assert command.header(SendMessageRequestHeaderV2).topic == "last"
