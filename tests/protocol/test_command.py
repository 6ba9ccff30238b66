"""Commands as whole frames: requests, answers, oneways; recorded ones and any."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.golden.golden import remoting_frames
from tests.support.raw_frames import commands_of, is_answer

from rocketrio_protocol.codes import PROTOCOL_VERSION, LanguageCode, RequestCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.client import NotifyConsumerIdsChangedRequestHeader
from rocketrio_protocol.commands.offset import OffsetResponseHeader
from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.frame import FRAME_SIZE_LIMIT, Frame, FrameDecoder

RUNS = ("4.9.7", "5.3.3", "5.3.3-split")


def test_request_takes_its_code_and_fields_from_its_header() -> None:
    request = RemotingCommand.request(
        NotifyConsumerIdsChangedRequestHeader("G"), b"body", oneway=True
    )
    assert request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert request.ext_fields == {"consumerGroup": "G"}
    assert request.body == b"body"
    assert request.is_oneway
    assert not is_answer(request)


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_answer_has_its_requests_number_and_encoding(serialize_type: SerializeType) -> None:
    request = RemotingCommand(14, opaque=99, flag=0, serialize_type=serialize_type)
    answer = request.response(OffsetResponseHeader(7), b"body", code=0, remark="well")
    assert (answer.opaque, answer.serialize_type) == (99, serialize_type)
    assert is_answer(answer)
    assert not answer.is_oneway
    (again,) = commands_of(answer.encode())
    assert again == answer
    assert again.header(OffsetResponseHeader) == OffsetResponseHeader(7)


def test_answer_without_fields_carries_an_empty_object_and_a_real_version() -> None:
    frame = RemotingCommand(34, opaque=1).response().encode()
    assert b'"extFields":{}' in frame
    assert b'"version":407' in frame
    assert PROTOCOL_VERSION == 407


def test_commands_do_not_share_their_fields() -> None:
    first, second = RemotingCommand(1), RemotingCommand(1)
    first.ext_fields["a"] = "b"
    assert second.ext_fields == {}


def test_command_over_the_frame_limit_is_not_encoded() -> None:
    with pytest.raises(LocalProtocolError, match="over the limit"):
        RemotingCommand(10, body=bytes(FRAME_SIZE_LIMIT)).encode()


def test_frame_of_unknown_serialize_type_is_a_protocol_error() -> None:
    with pytest.raises(RemoteProtocolError, match="serialize type 3"):
        RemotingCommand.decode(Frame(3, b"{}", b""))


@settings(max_examples=50)
@given(
    st.lists(
        st.builds(
            RemotingCommand,
            code=st.integers(0, 2**15 - 1),
            opaque=st.integers(0, 2**31 - 1),
            ext_fields=st.dictionaries(st.text(min_size=1), st.text(min_size=1), max_size=3),
            body=st.binary(max_size=300),
            serialize_type=st.sampled_from(SerializeType),
        ),
        max_size=4,
    ),
    st.lists(st.integers(1, 400), min_size=1, max_size=8),
)
def test_commands_in_a_row_come_back_whatever_the_split(
    commands: list[RemotingCommand], sizes: list[int]
) -> None:
    stream = b"".join(command.encode() for command in commands)
    decoder, found, position = FrameDecoder(), [], 0
    while position < len(stream):
        for size in sizes:
            for frame in decoder.feed(stream[position : position + size]):
                found.append(RemotingCommand.decode(frame))
            position += size
    assert found == commands


@pytest.mark.parametrize("run", RUNS)
def test_recorded_commands_are_encoded_again_to_an_equal_command(run: str) -> None:
    for recorded in remoting_frames(run):
        (command,) = commands_of(recorded.data)
        assert command.language is LanguageCode.JAVA
        assert commands_of(command.encode()) == [command]


@pytest.mark.parametrize("run", RUNS)
def test_recorded_commands_with_fields_are_encoded_again_to_the_same_bytes(run: str) -> None:
    same = 0
    for recorded in remoting_frames(run):
        (command,) = commands_of(recorded.data)
        if command.ext_fields:
            assert command.encode() == recorded.data
            same += 1
    assert same > 20


def test_no_text_of_a_command_has_proofs_or_passwords_in_it() -> None:
    fields = {
        "AccessKey": "user-1",
        "Signature": "marker",
        "SecurityToken": "marker",
        "secretKey": "marker",
    }
    command = RemotingCommand(50, ext_fields=fields, body=b'{"password":"marker"}')
    assert "user-1" in repr(command)
    assert "marker" not in f"{command!r} {command}"
