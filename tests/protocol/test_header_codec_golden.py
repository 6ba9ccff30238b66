"""ROCKETMQ headers of real Apache peers: every recorded frame is read, and written again to the byte.

Source: tests/golden/rocketmq-header, recorded by tests/interop/record_header.py.
"""

import struct

import pytest
from tests.golden.golden import VERSIONS, RecordedFrame, remoting_frames
from tests.support.raw_frames import command_of, is_answer

from rocketrio_protocol.codes import LanguageCode, RequestCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import RemoteProtocolError

PROTOCOL_VERSION_OF = {"4.9.7": 407, "5.3.3": 479}


def frames_of(version: str) -> list[RecordedFrame]:
    return remoting_frames(f"rocketmq-header/{version}")


def commands(version: str) -> list[tuple[RecordedFrame, RemotingCommand]]:
    return [(recorded, command_of(recorded.data)) for recorded in frames_of(version)]


EMPTY_ATTRIBUTES = struct.pack(">h", len("attributes")) + b"attributes" + struct.pack(">i", 0)
"""5.3.3 sends this field of code 17 empty; a reader of either version takes it as absent."""


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_rocketmq_frames_are_encoded_again_to_the_same_bytes(version: str) -> None:
    binary = [
        (recorded, command)
        for recorded, command in commands(version)
        if command.serialize_type is SerializeType.ROCKETMQ
    ]
    assert len(binary) > 150
    for recorded, command in binary:
        if EMPTY_ATTRIBUTES in recorded.data:
            assert command.code == RequestCode.UPDATE_AND_CREATE_TOPIC
            assert command_of(command.encode()) == command
        else:
            assert command.encode() == recorded.data, command


@pytest.mark.parametrize("version", VERSIONS)
def test_java_peers_name_themselves_in_every_frame(version: str) -> None:
    for _, command in commands(version):
        assert command.language is LanguageCode.JAVA
        assert command.version == PROTOCOL_VERSION_OF[version]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_request_but_oneways_is_answered_under_its_number(version: str) -> None:
    waiting: set[tuple[int, bool, int]] = set()
    unasked = []
    for recorded, command in commands(version):
        if is_answer(command):
            key = (recorded.connection, not recorded.from_dialer, command.opaque)
            if key in waiting:
                waiting.remove(key)
            else:
                unasked.append(command)
        elif not command.is_oneway:
            waiting.add((recorded.connection, recorded.from_dialer, command.opaque))
    assert not unasked
    # Pulls that were held when their client went away stay unanswered.
    assert len(waiting) < 12


@pytest.mark.parametrize(
    ("version", "answered_in"),
    [("4.9.7", SerializeType.JSON), ("5.3.3", SerializeType.ROCKETMQ)],
)
def test_json_requests_to_a_rocketmq_server_are_answered_in(
    version: str, answered_in: SerializeType
) -> None:
    """4.9 answers in the request's encoding, 5.x in its own: a client has to look at each answer."""
    asked = {
        (recorded.connection, command.opaque)
        for recorded, command in commands(version)
        if command.serialize_type is SerializeType.JSON and not is_answer(command)
    }
    answers = [
        command.serialize_type
        for recorded, command in commands(version)
        if is_answer(command) and (recorded.connection, command.opaque) in asked
    ]
    assert len(answers) > 4
    assert set(answers) == {answered_in}


@pytest.mark.parametrize("version", VERSIONS)
def test_text_beyond_ascii_arrives_in_properties(version: str) -> None:
    sends = [
        command.ext_fields["i"]
        for _, command in commands(version)
        if command.code == RequestCode.SEND_MESSAGE_V2 and not is_answer(command)
    ]
    assert sum("colour\x01blau-grün\x02" in properties for properties in sends) == 1


def test_a_cut_header_is_refused_wherever_it_is_cut() -> None:
    recorded = next(
        frame for frame in frames_of("5.3.3") if struct.unpack_from(">i", frame.data, 4)[0] >> 24
    )
    header_size = struct.unpack_from(">i", recorded.data, 4)[0] & 0xFFFFFF
    for kept in range(header_size):
        cut = struct.pack(">iI", 4 + kept, 1 << 24 | kept) + recorded.data[8 : 8 + kept]
        with pytest.raises(RemoteProtocolError):
            command_of(cut)
