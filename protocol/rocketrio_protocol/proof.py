"""The proof of a request: a second signature, which is good for one code, one receiver, one time and one use.

    0rocketrioProof    rocketrio-proof-1:USER:MILLISECONDS:NONCE:MAC:RECEIVER,RECEIVER
    MAC                HMAC-SHA256(secret key, the number of parts that follow | the other parts of this text | code |
                       each field's name and value | body), where each part but the body is preceded by its length

Apache's signature (signature.py) covers the values alone, one after the other: a thief of a signed request may send it
under another code, with other names of fields, and with other borders between them. The name of this field sorts before
all others, so what is signed of such a request begins with `rocketrio-proof-1:USER:`, and a thief cannot change that. A
server that knows proofs therefore accepts it with its proof alone. Servers of Apache, and older ones of rocketrio,
ignore the field.

Invariant: requests that differ in code, receivers, time, nonce, a field or the body have different texts under the MAC.
Answers to: nothing of Apache's.
"""

import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.frame import Body

PROOF: Final = "0rocketrioProof"
"""The ext field; it sorts before the names of all other fields."""

_MARK: Final = "rocketrio-proof-1:"
_NONCE_SIZE: Final = 8
_PARTS: Final = 5
"""The parts after the mark: user, milliseconds, nonce, MAC, and the receivers, which contain colons."""
_MILLISECONDS_DIGITS: Final = 15

_NOT_COVERED: Final = frozenset({PROOF, "AccessKey", "SecurityToken", "Signature"})
"""Fields that the MAC does not cover: the user is among its parts, and Apache's signature covers the token."""

UNPROVED: Final = frozenset(
    int(code)
    for code in (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
    )
)
"""Codes that clients send without a proof: sends and pulls are most of a cluster's traffic, and a proof takes each end
some 10 microseconds."""


def new_nonce() -> str:
    """Return a text that is never returned again."""
    return secrets.token_hex(_NONCE_SIZE)


@attrs.frozen
class Proof:
    """What the sender of a request has put under the MAC, besides the request itself."""

    user: str
    at_ms: int
    nonce: str
    receivers: tuple[str, ...]
    """The addresses at which the sender reached the receiver: the one that it dialled, and that of the connection."""
    mac: str = attrs.field(repr=False)

    def is_made_with(self, secret: bytes, code: int, fields: Mapping[str, str], body: Body) -> bool:
        """Return whether the MAC belongs to this request, and was made with this secret."""
        begin = f"{_MARK}{self.user}:{self.at_ms}:{self.nonce}:"
        wanted = _mac(secret, begin, ",".join(self.receivers), code, fields, body)
        return hmac.compare_digest(wanted.encode(), self.mac.encode())


def make_proof(
    secret: bytes,
    user: str,
    *,
    code: int,
    fields: Mapping[str, str],
    body: Body,
    receivers: Iterable[str],
    now_ms: int,
    nonce: str,
) -> str:
    """Return the proof of a request with these ext fields, at this time and for these receivers.

    Raises UnicodeEncodeError for a value that is not Unicode text.
    """
    begin = f"{_MARK}{user}:{now_ms}:{nonce}:"
    names = ",".join(dict.fromkeys(receivers))
    return f"{begin}{_mac(secret, begin, names, code, fields, body)}:{names}"


def _mac(
    secret: bytes, begin: str, receivers: str, code: int, fields: Mapping[str, str], body: Body
) -> str:
    covered = [begin, receivers, str(code)]
    for name in sorted(fields):
        if name not in _NOT_COVERED:
            covered += name, fields[name]
    text = f"{len(covered)} " + "".join([f"{len(part)}:{part}" for part in covered])
    return hmac.digest(secret, b"".join((text.encode(), body)), "sha256").hex()


def is_proved(user: str, fields: Mapping[str, str], body: Body) -> bool:
    """Return whether what is signed of a request begins as in this user's own requests with a proof.

    Then a server accepts it with its proof alone, whatever the fields are called now. `fields` have an AccessKey.
    """
    first = fields[min(fields)]
    if first and not first.startswith(_MARK) and not _MARK.startswith(first):
        return False  # So that the usual request costs no sort.
    begin = f"{_MARK}{user}:".encode()
    values = "".join(fields[name] for name in sorted(fields) if name != "Signature").encode()
    signed = values[: len(begin)]
    return begin == signed + bytes(body[: len(begin) - len(signed)])


def read_proof(fields: Mapping[str, str]) -> Proof | None:
    """Return the proof in a request's fields; None if there is none that can be read."""
    text = fields.get(PROOF, "")
    parts = text.removeprefix(_MARK).split(":", _PARTS - 1)
    if not text.startswith(_MARK) or len(parts) != _PARTS:
        return None
    user, at_ms, nonce, mac, receivers = parts
    if not (at_ms.isascii() and at_ms.isdigit() and len(at_ms) <= _MILLISECONDS_DIGITS):
        return None
    return Proof(user, int(at_ms), nonce, tuple(receivers.split(",")), mac)
