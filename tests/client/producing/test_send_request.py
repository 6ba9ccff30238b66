"""The bytes of a send mean what its header object does."""

import pytest
from tests.support.raw_frames import command_of

from rocketrio.producing.outgoing import Outgoing, encode_messages, encode_single
from rocketrio.producing.send_request import SendRequest
from rocketrio_protocol.codes import SerializeType
from rocketrio_protocol.commands.send import (
    SendBatchMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.frame import FRAME_SIZE_LIMIT
from rocketrio_protocol.message import Message, MessageQueue
from rocketrio_protocol.signature import Signer

QUEUE = MessageQueue("orders", "broker-a", 3)
NOW_MS = 1_700_000_000_123


def request_of(outgoing: Outgoing, queue: MessageQueue = QUEUE) -> SendRequest:
    return SendRequest(outgoing, queue, "producers", NOW_MS)


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b"body"),
        Message("orders", b""),
        Message("orders", b"body", keys=["a", "b"], tags="T", flag=-7),
        Message("orders", b"body", properties={"who": 'said "no"\\ \x00\n', "où": "été €"}),
        Message("%RETRY%billing|x", bytes(10_000), delay_level=3, wait_store_ok=False),
    ],
)
def test_single_message_frame_equals_its_encoded_header(message: Message) -> None:
    outgoing = encode_single(message, unique_id="ID")
    queue = MessageQueue(message.topic, "broker-a", 3)
    request = request_of(outgoing, queue)
    command = command_of(request.json_frame(77))
    assert command.opaque == 77
    expected = request.command()
    expected.opaque = 77
    assert command == command_of(expected.encode())
    header = command.header(SendMessageRequestHeaderV2)
    assert header == outgoing.header(queue, group="producers", born_time_ms=NOW_MS)
    assert command.code == request.code == header.code
    assert command.body == outgoing.body


def test_batch_frame_equals_its_encoded_header() -> None:
    messages = [Message("orders", b"1"), Message("orders", b"2", keys="k")]
    outgoing = encode_messages(messages, unique_ids=["A", "B"])
    request = request_of(outgoing)
    command = command_of(request.json_frame(1))
    header = command.header(SendBatchMessageRequestHeader)
    assert header == outgoing.header(QUEUE, group="producers", born_time_ms=NOW_MS)
    assert command.code == request.code == header.code
    assert command.body == outgoing.body


def test_other_encodings_are_made_of_the_same_fields() -> None:
    request = request_of(encode_single(Message("orders", b"body", keys="k"), unique_id="ID"))
    command = request.command()
    command.serialize_type = SerializeType.ROCKETMQ
    assert command_of(command.encode()).ext_fields == command_of(request.json_frame(0)).ext_fields


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("token", [None, 'to"ken'])
def test_signed_frame_equals_its_encoded_signed_header(is_batch: bool, token: str | None) -> None:
    signer = Signer(Credentials('key "of" é', "secret", token))
    message = Message("orders", b"body", keys="été \\", properties={"a": "b"})
    outgoing = (
        encode_messages([message, message], unique_ids=["A", "B"])
        if is_batch
        else encode_single(message, unique_id="ID")
    )
    request = request_of(outgoing)
    signed = command_of(request.json_frame(7, signer))
    command = request.command()
    assert signed.wire_fields() == signer.signed(command.ext_fields, command.body)
    outgoing.body = bytes(FRAME_SIZE_LIMIT - 1000)  # Too large for the short way.
    assert command_of(request.json_frame(7, signer)).wire_fields() == (
        signer.signed(request.command().ext_fields, outgoing.body)
    )


def test_what_no_peer_takes_is_refused() -> None:
    outgoing = encode_single(Message("orders", b"x"), unique_id="ID")
    outgoing.properties = "\ud800"
    with pytest.raises(LocalProtocolError, match="UnicodeEncodeError"):
        request_of(outgoing).json_frame(0)
    outgoing = encode_single(Message("orders", b"x"), unique_id="ID")
    for size in (FRAME_SIZE_LIMIT - 200_000, FRAME_SIZE_LIMIT - 1000):
        outgoing.body = bytes(size)
        assert command_of(request_of(outgoing).json_frame(0)).body == outgoing.body
    outgoing.body = bytes(FRAME_SIZE_LIMIT)
    with pytest.raises(LocalProtocolError, match="over the limit"):
        request_of(outgoing).json_frame(0)
