"""The first words of a proved replication link, its keys and its frames (`ha/link.py`)."""

import random
from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha.link import (
    ANSWER_NONCE_SIZE,
    FRAME_OVERHEAD,
    FRAME_SIZE_LIMIT,
    LINK_HEAD_SIZE,
    LINK_HELLO_SIZE_LIMIT,
    LINK_MAGIC,
    LINK_VERSION,
    NONCE_SIZE,
    FrameOpener,
    FrameSealer,
    LinkHello,
    decode_hello,
    derive_keys,
    encode_hello,
    hello_size,
    hkdf,
)

KEY = bytes(32)
HELLO = LinkHello(
    end="slave", broker_name="broker-a", address="10.0.0.1:10912", nonce=bytes(NONCE_SIZE)
)


def test_hkdf_gives_what_its_standard_gives() -> None:
    """RFC 5869, appendix A, cases 1 and 3: the first 32 bytes."""
    case_1 = hkdf(b"\x0b" * 22, salt=bytes(range(13)), info=bytes(range(0xF0, 0xFA)))
    assert case_1.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
    case_3 = hkdf(b"\x0b" * 22, salt=b"", info=b"")
    assert case_3.hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"


def test_each_key_is_another_and_depends_on_the_secret_and_on_what_was_said() -> None:
    all_keys = [
        key
        for secret, hellos in ((b"one", b"hellos"), (b"two", b"hellos"), (b"one", b"others"))
        for key in attrs.astuple(derive_keys(secret, hellos))
    ]
    assert len(set(all_keys)) == len(all_keys) == 15
    assert "\\x" not in repr(derive_keys(b"one", b"hellos"))


@given(st.binary(max_size=200), st.binary(max_size=20))
def test_sealed_answer_is_read_by_the_owner_of_the_link_to_that_question(
    body: bytes, question: bytes
) -> None:
    seal = derive_keys(b"one", b"hellos").answers
    sealed = seal.seal(body, question=question, nonce=b"n" * ANSWER_NONCE_SIZE)
    assert seal.open(sealed, question=question) == body
    if len(body) > 3:
        assert body not in sealed
    for key, asked, data in (
        (derive_keys(b"one", b"others").answers, question, sealed),
        (derive_keys(b"two", b"hellos").answers, question, sealed),
        (seal, question + b"?", sealed),
        (seal, question, sealed[:-1]),
        (seal, question, sealed[1:]),
        (seal, question, bytes([sealed[0] ^ 1]) + sealed[1:]),
        (seal, question, b""),
    ):
        with pytest.raises(RemoteProtocolError, match="not sealed"):
            key.open(data, question=asked)
    assert "one" not in repr(seal)


def test_hello_survives_the_wire() -> None:
    data = encode_hello(HELLO)
    assert hello_size(data[:LINK_HEAD_SIZE]) == len(data) - LINK_HEAD_SIZE
    assert decode_hello(data[LINK_HEAD_SIZE:], "slave") == HELLO


def test_field_of_a_later_version_is_skipped() -> None:
    body = encode_hello(HELLO)[LINK_HEAD_SIZE:]
    assert decode_hello(body[:-1] + b',"later":1}', "slave") == HELLO


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"\x8arktrix\x01" + bytes(4), id="another magic"),
        pytest.param(LINK_MAGIC + (LINK_HELLO_SIZE_LIMIT + 1).to_bytes(4), id="too large"),
    ],
)
def test_bytes_that_are_not_a_hello_are_refused_by_their_head(head: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        hello_size(head)


@pytest.mark.parametrize(
    "changes",
    [{"version": LINK_VERSION + 1}, {"end": "master"}, {"nonce": b"short"}, {"nonce": bytes(33)}],
)
def test_hello_of_another_version_or_end_is_refused(changes: dict[str, object]) -> None:
    fields = {"end": "slave", "broker_name": "b", "address": "a", "nonce": bytes(32)} | changes
    body = encode_hello(LinkHello(**fields))[LINK_HEAD_SIZE:]  # type: ignore[arg-type]
    with pytest.raises(RemoteProtocolError, match="one version"):
        decode_hello(body, "slave")


def test_hello_that_is_not_json_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be decoded"):
        decode_hello(b'{"end": "slave"', "slave")


# --- frames ----------------------------------------------------------------------------------


def frames(*bodies: bytes, key: bytes = KEY) -> list[bytes]:
    sealer = FrameSealer(key)
    return [sealer.seal(body) for body in bodies]


def opened(data: bytes, key: bytes = KEY) -> list[bytes]:
    """What whole frames in these bytes hold."""
    opener, view, bodies = FrameOpener(key), memoryview(data), []
    while (body := opener.open(view)) is not None:
        bodies.append(bytes(body))
        view = view[len(body) + FRAME_OVERHEAD :]
    return bodies


def test_frames_give_what_was_sealed() -> None:
    bodies = [b"a", bytes(range(256)), bytes(FRAME_SIZE_LIMIT)]
    assert opened(b"".join(frames(*bodies))) == bodies


def test_no_byte_of_a_frame_is_handed_on_before_it_is_whole() -> None:
    (frame,) = frames(b"some bytes")
    opener = FrameOpener(KEY)
    for end in range(len(frame)):
        assert opener.open(memoryview(frame)[:end]) is None
    assert opener.open(memoryview(frame)) == b"some bytes"


def test_any_changed_bit_is_noticed() -> None:
    (frame,) = frames(b"report: 123")
    for bit in range(len(frame) * 8):
        changed = bytearray(frame)
        changed[bit // 8] ^= 1 << bit % 8
        # A larger size waits for more bytes: whatever they are, they do not fit the tag.
        with pytest.raises(RemoteProtocolError, match="not what the other end has sent"):
            FrameOpener(KEY).open(memoryview(bytes(changed) + bytes(FRAME_SIZE_LIMIT)))


def test_frame_larger_than_allowed_is_refused_before_it_arrives() -> None:
    for size in (FRAME_SIZE_LIMIT + 1, 2**32 - 1, 0):
        with pytest.raises(RemoteProtocolError):
            FrameOpener(KEY).open(memoryview(size.to_bytes(4)))


@pytest.mark.parametrize(
    "order",
    [
        pytest.param((0, 0), id="repeated"),
        pytest.param((1, 0), id="in another order"),
        pytest.param((0, 2), id="one left out"),
    ],
)
def test_frame_holds_for_its_place_only(order: tuple[int, int]) -> None:
    made = frames(b"report 1", b"report 2", b"report 3")
    with pytest.raises(RemoteProtocolError):
        opened(b"".join(made[place] for place in order))


def test_frame_of_the_other_direction_or_another_connection_is_refused() -> None:
    keys = derive_keys(b"secret", b"hellos"), derive_keys(b"secret", b"other hellos")
    streams = [keys[0].slave_stream, keys[0].master_stream, keys[1].slave_stream]
    for key, other in [*pairwise(streams), (streams[0], streams[2])]:
        with pytest.raises(RemoteProtocolError):
            opened(frames(b"report", key=key)[0], key=other)


def test_random_bytes_are_never_taken() -> None:
    rng = random.Random(5)
    for _ in range(300):
        data = rng.randrange(1, 60).to_bytes(4) + rng.randbytes(200)
        with pytest.raises(RemoteProtocolError):
            FrameOpener(KEY).open(memoryview(data))
