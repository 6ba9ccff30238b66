"""Requests are signed as Apache's AclClientRPCHook signs them, in every encoding, and verify from what was received.

The expected signatures were computed by the Java classes of 4.9.7.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.codes import SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.connection import RemotingConnection
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import ConfigError, LocalProtocolError
from rocketrio_protocol.signature import SIGNATURE, Signer, signature

SECRET = "12345678"
ACCOUNT = Credentials("RocketMQ", SECRET)

SEND = {
    "a": "PG",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x010A0B0C0D00002A139F5512345678\x02WAIT\x01true\x02TAGS\x01TagA",
    "j": "0",
    "k": "false",
    "m": "false",
}
PULL = {
    "consumerGroup": "CG",
    "topic": "TopicTest",
    "queueId": "3",
    "queueOffset": "42",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": "1700000000000",
    "expressionType": "TAG",
}
QUERY = {
    "topic": "TopicTest",
    "key": "k1",
    "maxNum": "32",
    "beginTimestamp": "0",
    "endTimestamp": "1700000000000",
    "_UNIQUE_KEY_QUERY": "false",
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
names = st.text(
    st.sampled_from("abcXYZ_0"), min_size=1, max_size=8
)  # As they are: short and ASCII.


@pytest.mark.parametrize(
    ("fields", "body", "token", "expected"),
    [
        (SEND, "hello 你好".encode(), None, "jrAEah4Cf0ku2t71z4nOQNXCFz4="),
        (SEND, "hello 你好".encode(), "sts-token-1", "e7rBjm1yCC/bk6b7VhXVmqL23Og="),
        (PULL, b"", None, "39NU5c8yPiXetFEEPuILwKK4hOw="),
        ({}, b"", None, "IUc8rrO/0gDch8CjObLQsW2rsiA="),
        (QUERY, b"", None, "vopxj/+dziHmf8uSUuW3Xh5KnEw="),
    ],
    ids=["send", "send with a token", "pull", "no fields", "query"],
)
def test_signature_of_a_request_is_the_one_of_javas_classes(
    fields: dict[str, str], body: bytes, token: str | None, expected: str
) -> None:
    signed = Signer(Credentials("RocketMQ", SECRET, token)).signed(fields, body)
    assert signed[SIGNATURE] == expected
    assert signature(SECRET.encode(), signed, memoryview(body)) == expected
    assert signed.items() > fields.items()
    assert set(signed) - set(fields) == {"AccessKey", "Signature"} | (
        {"SecurityToken"} if token else set()
    )


@pytest.mark.parametrize("serialize_type", SerializeType)
@given(fields=st.dictionaries(names, texts), body=st.binary(max_size=100))
def test_signed_request_verifies_from_its_received_fields_in_every_encoding(
    serialize_type: SerializeType, fields: dict[str, str], body: bytes
) -> None:
    client = RemotingConnection[str](serialize_type=serialize_type, signer=Signer(ACCOUNT))
    server = RemotingConnection[str]()
    for _ in range(2):  # The first request of MSGPACK announces it, in a field that is signed.
        client.start_call(RemotingCommand(9, ext_fields=fields, body=body), "call")
        (request,), _ = server.receive(client.take_output())
        received = request.wire_fields()
        assert received["AccessKey"] == "RocketMQ"
        assert signature(SECRET.encode(), received, request.body) == received[SIGNATURE]
        assert {name: value for name, value in request.ext_fields.items() if value}.items() >= {
            name: value for name, value in fields.items() if value
        }.items()
        server.send_answer(request.response())
        client.receive(server.take_output())


@given(fields=st.dictionaries(names, texts, min_size=1), body=st.binary(max_size=20))
def test_change_of_a_value_or_the_body_breaks_the_signature(
    fields: dict[str, str], body: bytes
) -> None:
    signed = Signer(ACCOUNT).signed(fields, body)
    name = next(iter(fields))
    changed = {**signed, name: signed[name] + "x"}
    expected = signed[SIGNATURE]
    assert signature(SECRET.encode(), changed, body) != expected
    assert signature(SECRET.encode(), signed, body + b"x") != expected
    assert signature(b"another secret", signed, body) != expected


def test_request_that_is_sent_twice_is_signed_from_its_own_fields_each_time() -> None:
    signer = Signer(ACCOUNT)
    client = RemotingConnection[str](signer=signer)
    command = RemotingCommand(9, ext_fields={"topic": "T"})
    client.start_call(command, "first")
    first = client.take_output()
    signer.credentials = Credentials("another", "secret of another")
    client.start_call(command, "second")
    assert command.ext_fields == {"topic": "T"}
    server = RemotingConnection[str]()
    (one,), _ = server.receive(first)
    (two,), _ = server.receive(client.take_output())
    assert (one.ext_fields["AccessKey"], two.ext_fields["AccessKey"]) == ("RocketMQ", "another")
    assert signature(b"secret of another", two.wire_fields(), b"") == two.ext_fields[SIGNATURE]


def test_wire_fields_leave_the_decoded_header_as_it_is() -> None:
    request = RemotingCommand(310, ext_fields=Signer(ACCOUNT).signed(SEND, b"x"), body=b"x")
    server = RemotingConnection[str]()
    (received,), _ = server.receive(request.encode())
    assert (
        signature(SECRET.encode(), received.wire_fields(), b"x")
        == (received.wire_fields()[SIGNATURE])
    )
    assert not received.has_field("AccessKey")  # Still the header object, not a map.


def test_answers_are_not_signed() -> None:
    server = RemotingConnection[str](signer=Signer(ACCOUNT))
    server.send_answer(RemotingCommand(9).response())
    client = RemotingConnection[str]()
    client.response_table[0] = "call"
    _, ((_, answer),) = client.receive(server.take_output())
    assert answer.ext_fields == {}


def test_value_that_is_not_text_is_refused_before_anything_is_sent() -> None:
    client = RemotingConnection[str](signer=Signer(ACCOUNT))
    with pytest.raises(LocalProtocolError, match="not Unicode"):
        client.start_call(RemotingCommand(9, ext_fields={"topic": "\ud800"}), "call")
    assert client.out_size == 0
    assert not client.response_table


def test_secrets_are_in_no_text_of_the_objects() -> None:
    account = Credentials("RocketMQ", "marker-secret", "marker-token")
    for shown in (repr(account), str(account), repr(Signer(account))):
        assert "RocketMQ" in shown
        assert "marker" not in shown
    for wrong in (("", "x"), ("x", ""), ("x", "y", "")):
        with pytest.raises(ConfigError, match="must be text that is not empty"):
            Credentials(*wrong)
