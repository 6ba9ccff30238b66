"""The authenticated replication link between two brokers: hellos, keys, and frames with tags.

    slave  -> master   magic (8)
    master -> slave    magic (8) | size u32 | LinkHello as JSON
    slave  -> master   magic (8) | size u32 | LinkHello as JSON | proof (32)
    master -> slave    proof (32)
    both               | size u32 | bytes of the stream (stream.py, exchange.py) | tag (16) |

Without a secret (with certificates only) the proofs are omitted, and the stream follows without frames.

    keys   HKDF-SHA256(secret, salt = SHA-256 of both hellos, info = the purpose of the key)
    tag    HMAC-SHA256(key of the direction, number of the frame u64 | size u32 | bytes), its first 16 bytes

Invariant: the slave proves first; before that the master sends nothing that depends on the secret.
Invariant: a proof is valid for one connection, its names and addresses, and one end; a frame also for its position.
Invariant: no byte of a frame is returned before its tag is checked, and a claimed size allocates nothing.
Answers to: nothing in Apache's brokers, which do not have it.
"""

import hashlib
import hmac
import struct
from typing import Final, Literal

import attrs
import msgspec

from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.ha.exchange import UNREADABLE_JSON
from rocketrio_protocol.nesting import check_depth

LINK_MAGIC: Final = b"\x8arktrio\x02"
"""The first bytes of a slave. To a master that does not know them, such as Apache's, they are a negative report."""

LINK_VERSION: Final = 2
LINK_HEAD_SIZE: Final = len(LINK_MAGIC) + 4
LINK_HELLO_SIZE_LIMIT: Final = 4096
"""Bytes of a hello: two names, an address and a nonce."""

NONCE_SIZE: Final = 32
PROOF_SIZE: Final = 32

FRAME_SIZE_LIMIT: Final = 128 << 10
"""Bytes of the stream in one frame, which a receiver keeps until it has checked them."""
FRAME_OVERHEAD: Final = 4 + 16

ANSWER_NONCE_SIZE: Final = 16

_TAG_SIZE: Final = 16
_NAME_SIZE: Final = 16
_SIZE: Final = struct.Struct(">I")
_PLACE: Final = struct.Struct(">QI")
_REMEDY: Final = "Are both ends rocketrio brokers of one version?"

End = Literal["master", "slave"]
"""`master` is the end that was dialled, `slave` the end that dialled, even if a slave is dialled to be asked."""


class LinkHello(msgspec.Struct, kw_only=True):
    """The unproved first message of each end."""

    version: int = LINK_VERSION
    end: End
    broker_name: str
    address: str
    """From the master's end its advertised address; from the slave's end the address that it dialled."""
    nonce: bytes
    """Random bytes that are used only once."""


def encode_hello(hello: LinkHello) -> bytes:
    """Encode a hello with its magic and size."""
    body = msgspec.json.encode(hello)
    return LINK_MAGIC + _SIZE.pack(len(body)) + body


def hello_size(head: bytes) -> int:
    """Return how many bytes follow the first `LINK_HEAD_SIZE`. Raises RemoteProtocolError."""
    if not head.startswith(LINK_MAGIC):
        raise RemoteProtocolError("The other end did not send a hello", remedy=_REMEDY)
    (size,) = _SIZE.unpack_from(head, len(LINK_MAGIC))
    if size > LINK_HELLO_SIZE_LIMIT:
        raise RemoteProtocolError(
            f"The other end announces a hello of {size} bytes; {LINK_HELLO_SIZE_LIMIT} is the limit",
            remedy=_REMEDY,
        )
    return int(size)


def decode_hello(body: bytes, end: End) -> LinkHello:
    """Decode the hello of this end, without its head. Raises RemoteProtocolError."""
    try:
        check_depth(body)
        hello = msgspec.json.decode(body, type=LinkHello)
    except UNREADABLE_JSON as error:
        raise RemoteProtocolError(
            f"The hello of the other end cannot be decoded: {error}", remedy=_REMEDY
        ) from error
    if (hello.version, hello.end, len(hello.nonce)) != (LINK_VERSION, end, NONCE_SIZE):
        raise RemoteProtocolError(
            f"The other end opens the link as {hello.end} in version {hello.version}, "
            f"where a {end} in version {LINK_VERSION} was expected",
            remedy=_REMEDY,
        )
    return hello


# --- keys ------------------------------------------------------------------------------------


@attrs.frozen(repr=False)
class LinkKeys:
    """The keys of one connection, which only the owners of the secret can derive."""

    slave_proof: bytes
    master_proof: bytes
    slave_stream: bytes
    """The key of the frames that the slave sends."""
    master_stream: bytes
    answers: "AnswerSeal"


def derive_keys(secret: bytes, hellos: bytes) -> LinkKeys:
    """Derive the keys of the connection that begins with these hellos, the master's first."""
    # Of both hellos: a proof is good for these two names, addresses and nonces, and for no other connection.
    salt = hashlib.sha256(hellos).digest()

    def key(purpose: bytes) -> bytes:
        return hkdf(secret, salt=salt, info=b"rocketrio link " + purpose)

    return LinkKeys(
        slave_proof=key(b"slave proof"),
        master_proof=key(b"master proof"),
        slave_stream=key(b"slave stream"),
        master_stream=key(b"master stream"),
        answers=AnswerSeal(key(b"name")[:_NAME_SIZE].hex(), key(b"answers")),
    )


def hkdf(secret: bytes, *, salt: bytes, info: bytes) -> bytes:
    """Derive 32 bytes by HKDF-SHA256 (RFC 5869)."""
    return hmac.digest(hmac.digest(salt, secret, "sha256"), info + b"\x01", "sha256")


# --- answers on other connections ------------------------------------------------------------


@attrs.frozen
class AnswerSeal:
    """Encrypts answers that the master gives at its ordinary port, so that the slave of one link alone can read them.

        sealed    nonce (16) | body XOR SHAKE-256(HMAC-SHA256(key, "stream" | nonce)) | tag (32)
        tag       HMAC-SHA256(key, "tag" | size of the question u32 | question | nonce | encrypted body)

    Python's library has no cipher; a key stream of a keyed hash with a tag over what was encrypted is one that it has.
    """

    link: str
    """The name of the link, by which the master finds it: it says nothing about the secret."""
    _key: bytes = attrs.field(repr=False)

    def seal(self, body: bytes, *, question: bytes, nonce: bytes) -> bytes:
        """Encrypt the answer to a question, which has random bytes of its own; `nonce` is never repeated."""
        assert len(nonce) == ANSWER_NONCE_SIZE
        encrypted = self._encrypted(body, nonce)
        return nonce + encrypted + self._tag(question, nonce + encrypted)

    def open(self, sealed: bytes, *, question: bytes) -> bytes:
        """Return the answer to a question. Raises RemoteProtocolError if it is not one that the master sealed."""
        rest, tag = sealed[:-PROOF_SIZE], sealed[-PROOF_SIZE:]
        if len(rest) < ANSWER_NONCE_SIZE or not hmac.compare_digest(self._tag(question, rest), tag):
            raise RemoteProtocolError(
                "The answer is not sealed with the key of this replication link",
                remedy="Find out what between the two brokers alters or repeats answers",
            )
        return self._encrypted(rest[ANSWER_NONCE_SIZE:], rest[:ANSWER_NONCE_SIZE])

    def _encrypted(self, body: bytes, nonce: bytes) -> bytes:
        key = hmac.digest(self._key, b"stream" + nonce, "sha256")
        stream = hashlib.shake_256(key).digest(len(body))
        return (int.from_bytes(body) ^ int.from_bytes(stream)).to_bytes(len(body))

    def _tag(self, question: bytes, sealed: bytes) -> bytes:
        return hmac.digest(
            self._key, b"tag" + _SIZE.pack(len(question)) + question + sealed, "sha256"
        )


# --- frames ----------------------------------------------------------------------------------


class _Tags:
    """Computes the tags of the frames of one direction, in their order."""

    def __init__(self, key: bytes) -> None:
        self._begun = hmac.new(key, digestmod="sha256")
        self._count = 0

    def next(self, body: Body) -> bytes:
        tag = self._begun.copy()
        # With its number: a frame that is repeated, left out or moved has a wrong tag.
        tag.update(_PLACE.pack(self._count, len(body)))
        tag.update(body)
        self._count += 1
        return tag.digest()[:_TAG_SIZE]


class FrameSealer:
    """Encodes the frames of one direction."""

    def __init__(self, key: bytes) -> None:
        self._tags = _Tags(key)

    def seal(self, body: Body) -> bytes:
        """Encode the next frame, with at most `FRAME_SIZE_LIMIT` bytes of the stream."""
        assert 0 < len(body) <= FRAME_SIZE_LIMIT, len(body)
        return b"".join((_SIZE.pack(len(body)), body, self._tags.next(body)))


class FrameOpener:
    """Checks and decodes the frames of one direction."""

    def __init__(self, key: bytes) -> None:
        self._tags = _Tags(key)

    def open(self, data: memoryview) -> memoryview | None:
        """Return the content of the frame at the start of `data`, as a view; None while the frame is incomplete.

        The frame has `FRAME_OVERHEAD` more bytes. Raises RemoteProtocolError for a frame that is not the next one of
        the other end; the connection cannot be used any more then.
        """
        if len(data) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(data)
        if not 0 < size <= FRAME_SIZE_LIMIT:
            raise _forged()
        if len(data) < size + FRAME_OVERHEAD:
            return None
        # A view until the tag is right: nothing of it was handed on, or copied for a size that was only claimed.
        body, tag = data[_SIZE.size : _SIZE.size + size], data[_SIZE.size + size :][:_TAG_SIZE]
        if not hmac.compare_digest(self._tags.next(body), tag):
            raise _forged()
        return body


def _forged() -> RemoteProtocolError:
    return RemoteProtocolError(
        "A frame on the replication link is not what the other end has sent, and is refused",
        remedy="Find out what between the two brokers alters, repeats or omits bytes",
    )
