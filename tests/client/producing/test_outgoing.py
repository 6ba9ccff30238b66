"""From messages to requests: bytes that any broker reads as the message that was given."""

import pytest

from rocketrio.producing.outgoing import (
    batch_outgoing,
    encode_entry,
    encode_messages,
    encode_single,
    wire_properties,
)
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.message import Message, MessageAgain, MessageQueue
from rocketrio_protocol.record.batch import decode_batch
from rocketrio_protocol.record.compression import decompress
from rocketrio_protocol.record.properties import decode_properties

MESSAGES = [
    Message("t", b""),
    Message("t", b"x", keys="k1 k2"),
    Message("t", b"x", tags="a"),
    Message("t", b"x", keys="k", tags="ä", wait_store_ok=False),
    Message("t", b"x", keys="k", tags="a", properties={"who": "me"}),
    Message("t", b"x", delay_level=3),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_wire_properties_equal_the_property_map(message: Message) -> None:
    text = wire_properties(message, "ID")
    assert decode_properties(text) == message.property_map(unique_key="ID")


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b"", keys="a\x01"),
        Message("t", b"", tags="\x02"),
        Message("t", b"", tags="a\x01b\x02"),
    ],
)
def test_text_that_would_tear_the_properties_is_refused(message: Message) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be stored"):
        wire_properties(message, "ID")


def test_body_is_compressed_only_when_that_makes_it_smaller() -> None:
    large, random_like = b"a" * 5000, bytes(range(256)) * 17
    packed = encode_single(Message("t", large), unique_id="ID")
    assert packed.sys_flag == 1
    assert decompress(packed.body, 0) == large
    assert encode_single(Message("t", b"a" * 4096), unique_id="ID").sys_flag == 0
    tiny = encode_single(Message("t", random_like[:10]), unique_id="ID", compress_over=1)
    assert (tiny.sys_flag, tiny.body) == (0, random_like[:10])


def test_header_of_a_batch_is_marked_and_has_no_unique_id() -> None:
    entries = [encode_entry(message, f"ID{index}") for index, message in enumerate(MESSAGES[:3])]
    outgoing = batch_outgoing("t", entries, ("ID0", "ID1", "ID2"))
    header = outgoing.header(MessageQueue("t", "b", 2), group="g", born_time_ms=7)
    assert header.code == RequestCode.SEND_BATCH_MESSAGE
    fields = header.to_ext_fields()
    assert (fields["e"], fields["g"], fields["m"], fields["i"]) == ("2", "7", "true", "")
    decoded = [
        decode_properties(properties)["UNIQ_KEY"]
        for _, _, properties in decode_batch(outgoing.body)
    ]
    assert decoded == ["ID0", "ID1", "ID2"]


def test_batch_that_need_not_wait_is_marked_in_its_header() -> None:
    outgoing = batch_outgoing("t", [(0, b"", b"")], ("ID",), wait_store_ok=False)
    assert decode_properties(outgoing.properties) == {"WAIT": "false"}


def test_properties_may_have_as_many_bytes_as_a_record_holds() -> None:
    fits = Message("t", b"", properties={"a": "x" * 32_000})
    assert len(wire_properties(fits, "ID")) < 32_767
    encode_entry(fits, "ID")
    with pytest.raises(LocalProtocolError, match="32767"):
        encode_entry(Message("t", b"", properties={"a": "ä" * 16_500}), "ID")


@pytest.mark.parametrize("keys", ["\ud800", "\ud800" * 20_000])
def test_text_that_is_no_unicode_is_refused(keys: str) -> None:
    message = Message("t", b"x", keys=keys)
    with pytest.raises(LocalProtocolError, match="surrogate"):
        encode_entry(message, "ID")


def test_body_that_is_text_is_refused_with_what_to_do() -> None:
    message = Message("t", "x")  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="must be bytes"):
        encode_entry(message, "ID")
    with pytest.raises(LocalProtocolError, match="must be bytes"):
        encode_single(message, unique_id="ID")


@pytest.mark.parametrize("body", [None, 5, [1, 2], "text"])
def test_body_that_is_no_bytes_is_refused_alone_and_in_a_batch(body: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="must be bytes"):
        encode_single(Message("t", body), unique_id="ID")
    with pytest.raises(LocalProtocolError, match="must be bytes"):
        encode_entry(Message("t", body), "ID")


@pytest.mark.parametrize("body", [bytearray(b"abc"), memoryview(b"abc")])
def test_body_may_be_any_bytes(body: bytes) -> None:
    assert bytes(encode_single(Message("t", body), unique_id="ID").body) == b"abc"
    assert bytes(encode_entry(Message("t", body), "ID")[1]) == b"abc"


UNLIKE = [
    Message("t", b"other"),
    Message("t", b"x", keys="k"),
    Message("t", b"x", tags="b"),
    Message("t", b"x", properties={"who": "me"}),
    Message("t", b"x", flag=7),
    Message("t", bytearray(b"x")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("first", [Message("t", b"x"), Message("t", b"x", tags="ä"), *UNLIKE])
def test_batch_holds_each_message_as_it_would_be_alone(first: Message) -> None:
    messages = [first, *UNLIKE, first]
    ids = [f"ID{index}" for index in range(len(messages))]
    alone = [encode_entry(message, each) for message, each in zip(messages, ids, strict=True)]
    assert decode_batch(encode_messages(messages, unique_ids=ids).body) == alone


def test_keys_that_were_set_later_are_joined_too() -> None:
    message = Message("t", b"x")
    message.keys = ["k1", "k2"]  # type: ignore[assignment]
    assert wire_properties(message, "ID") == wire_properties(Message("t", b"x", keys="k1 k2"), "ID")


@pytest.mark.parametrize("flag", [2**31, -(2**31) - 1, "a"])
def test_flag_beyond_32_bits_is_refused_alone_and_in_a_batch(flag: int) -> None:
    with pytest.raises(LocalProtocolError, match="flag="):
        encode_single(Message("t", b"", flag=flag), unique_id="ID")
    with pytest.raises(LocalProtocolError, match="flag="):
        encode_entry(Message("t", b"", flag=flag), "ID")


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b"", properties={"retries": 3}),  # type: ignore[dict-item]
        Message("t", b"", properties={"a": ["b"]}),  # type: ignore[dict-item]
        Message("t", b"", tags=5),  # type: ignore[arg-type]
    ],
)
def test_property_that_is_no_text_is_refused(message: Message) -> None:
    with pytest.raises(LocalProtocolError, match=r"must be (strings|text)"):
        encode_single(message, unique_id="ID")


@pytest.mark.parametrize("tags", ["a || b", "a||b", "||", "*"])
def test_tag_that_only_a_subscription_can_have_is_refused_alone_and_in_a_batch(tags: str) -> None:
    message = Message("t", b"x", tags=tags)
    with pytest.raises(LocalProtocolError, match="a message has one tag"):
        encode_single(message, unique_id="1")
    with pytest.raises(LocalProtocolError, match="a message has one tag"):
        encode_messages([Message("t", b"x"), message], unique_ids=["1", "2"])
    with pytest.raises(LocalProtocolError, match="a message has one tag"):
        encode_messages([message, message], unique_ids=["1", "2"])
    again = encode_single(MessageAgain("t", b"x", tags=tags), unique_id="1")
    assert f"TAGS\x01{tags}\x02" in again.properties


def test_tag_with_one_bar_or_star_is_a_tag() -> None:
    for tags in ("a|b", "a*", "**"):
        assert f"TAGS\x01{tags}\x02" in wire_properties(Message("t", b"x", tags=tags), "1")
