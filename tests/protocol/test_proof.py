"""The proof of a request covers its code, receiver, time, use, fields and body (`proof.py`)."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.codes import RequestCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.connection import RemotingConnection
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.proof import PROOF, UNPROVED, is_proved, make_proof, read_proof
from rocketrio_protocol.signature import SIGNATURE, Signer, signature

SECRET = b"12345678"
ACCOUNT = Credentials("RocketMQ", SECRET.decode())
HERE = ("broker-a.example:10911", "10.0.0.10:10911")

names = st.text(st.characters(min_codepoint=ord("A"), exclude_categories=["Cs"]), max_size=5)
fields_of_requests = st.dictionaries(
    names.filter(lambda name: name and name not in ("AccessKey", "SecurityToken", SIGNATURE)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    max_size=4,
)
"""Fields as requests have them: no name sorts before that of the proof."""


def proof(fields: Mapping[str, str], body: Body = b"", *, code: int = 26) -> str:
    return make_proof(
        SECRET,
        "RocketMQ",
        code=code,
        fields=fields,
        body=body,
        receivers=HERE,
        now_ms=1_700_000_000_000,
        nonce="n",
    )


def test_mac_is_that_of_the_documentation() -> None:
    """Computed by hand: a change of the form would be refused by all other versions."""
    assert proof({"b": "1", "a": "23"}, b"body") == (
        "rocketrio-proof-1:RocketMQ:1700000000000:n:"
        "cf286c71d6f3fbc3c55d6ca75cd89638e7db141e2929791ce9d0691c25cbbb65"
        ":broker-a.example:10911,10.0.0.10:10911"
    )


@given(fields_of_requests, st.binary(max_size=20), fields_of_requests, st.binary(max_size=20))
def test_other_fields_or_another_body_have_another_mac(
    fields: dict[str, str], body: bytes, others: dict[str, str], other_body: bytes
) -> None:
    is_equal = (fields, body) == (others, other_body)
    assert (proof(fields, body) == proof(others, other_body)) is is_equal


def test_fields_that_move_into_the_body_have_another_mac() -> None:
    assert proof({"a": "1"}, b"1:b1:2") != proof({"a": "1", "b": "2"})
    assert proof({}, b"1:a1:1") != proof({"a": "1"})


@pytest.mark.parametrize("serialize_type", SerializeType)
@given(fields=fields_of_requests, body=st.binary(max_size=20))
def test_proof_is_verified_from_what_was_received(
    serialize_type: SerializeType, fields: dict[str, str], body: bytes
) -> None:
    signer = Signer(ACCOUNT, now_ms=lambda: 7)
    connection = RemotingConnection[None](
        serialize_type=serialize_type, signer=signer, receivers=HERE
    )
    server = RemotingConnection[None]()
    if serialize_type is SerializeType.MSGPACK:
        connection._agree_on_msgpack()
    connection.send_request(RemotingCommand(26, ext_fields=dict(fields), body=body))
    (received,), _ = server.receive(connection.take_output())
    wire = received.wire_fields()
    assert wire[SIGNATURE] == signature(SECRET, wire, received.body)
    assert is_proved("RocketMQ", wire, received.body)
    found = read_proof(wire)
    assert found is not None
    assert (found.user, found.at_ms, found.receivers) == ("RocketMQ", 7, HERE)
    assert found.is_made_with(SECRET, 26, wire, received.body)
    assert not found.is_made_with(SECRET, 25, wire, received.body)
    assert not found.is_made_with(b"another", 26, wire, received.body)


def test_no_two_requests_have_the_same_proof() -> None:
    signer = Signer(ACCOUNT, now_ms=lambda: 7)
    proofs = {signer.proved(26, {}, b"", receivers=HERE)[PROOF] for _ in range(100)}
    assert len(proofs) == 100


def test_sends_and_pulls_and_signers_without_a_clock_make_none() -> None:
    signer = Signer(ACCOUNT, now_ms=lambda: 7)
    for code in UNPROVED:
        assert signer.proved(code, {"a": "1"}, b"", receivers=HERE) == signer.signed(
            {"a": "1"}, b""
        )
    assert RequestCode.SEND_MESSAGE_V2 in UNPROVED
    assert PROOF not in Signer(ACCOUNT).proved(26, {}, b"", receivers=HERE)


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"0": "rocketrio-proof-1:Rocket", "1": "MQ:"}, b""),
        ({"0": "", "00": "rocketrio-proof-1:RocketMQ:7"}, b""),
        ({"0": "rocketrio-"}, b""),
        ({"AccessKey": ""}, b"rocketrio-proof-1:RocketMQ:7"),
        ({PROOF: "rocketrio-proof-1:RocketMQ:7:n:0:a"}, b""),
    ],
)
def test_request_is_proved_however_its_fields_are_named_and_divided(
    fields: dict[str, str], body: bytes
) -> None:
    own = (
        {"AccessKey": "proof-1:RocketMQ:"} if "0" in fields and fields["0"] == "rocketrio-" else {}
    )
    assert is_proved("RocketMQ", {"AccessKey": "RocketMQ", SIGNATURE: "x", **fields, **own}, body)


@pytest.mark.parametrize(
    "fields",
    [
        {"AccessKey": "RocketMQ"},
        {"AccessKey": "RocketMQ", "0": "rocketrio-proof-1:other:7:n:0:a"},
        {"AccessKey": "RocketMQ", "Z": "rocketrio-proof-1:RocketMQ:7:n:0:a"},
    ],
)
def test_other_requests_are_not_proved(fields: dict[str, str]) -> None:
    assert not is_proved("RocketMQ", fields, b"rocketrio-proof-1:RocketMQ:")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rocketrio-proof-1:",
        "rocketrio-proof-1:u:7:n:mac",
        "rocketrio-proof-1:u:x:n:mac:a:1",
        "rocketrio-proof-1:u:-7:n:mac:a:1",
        "rocketrio-proof-1:u:" + "7" * 5000 + ":n:mac:a:1",
        "rocketrio-proof-2:u:7:n:mac:a:1",
    ],
)
def test_text_that_is_no_proof_is_none(text: str) -> None:
    assert read_proof({PROOF: text}) is None


def test_field_that_is_not_unicode_text_is_a_local_error() -> None:
    with pytest.raises(LocalProtocolError):
        Signer(ACCOUNT, now_ms=lambda: 7).proved(26, {"a": "\ud800"}, b"", receivers=HERE)
