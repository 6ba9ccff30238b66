"""Signs requests, and computes the signature that a server expects.

    fields      every ext field that is sent, with AccessKey and SecurityToken, without Signature
    content     UTF-8 of the values in the order of the names, then the body as it is sent
    Signature   base64(HMAC-SHA1(secret key, content))

Access control of Apache's 4.x and 5.x uses the same signature. It covers no request code, time or field name: who reads
a signed request can send it again. A proof (proof.py), which rocketrio's clients and brokers add, covers these too.

Invariant: a field with an empty value does not change the content.
Answers to: AclSigner, AclUtils.combineRequestContent, AclClientRPCHook.
Unlike Java: names are ordered by code point, not by UTF-16 unit, which is the same below U+10000.
"""

import hashlib
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from operator import itemgetter
from typing import Final, TypeAlias

import msgspec

from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.proof import PROOF, UNPROVED, make_proof, new_nonce

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"

_SHAPES: Final = 256
"""Remembered orders of field names: a client sends fewer kinds of requests."""
_SHAPE_LENGTH: Final = 1024
"""Characters of all names that are remembered together: those of Apache's longest request have 300."""

_SECRETS: Final = 1024
"""Remembered secrets of users: a busy server has fewer at a time."""
_BLOCK_SIZE: Final = 64
"""Bytes of a block of SHA-1."""
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))

_Pads: TypeAlias = "tuple[hashlib._Hash, hashlib._Hash]"

_sha1: Final = partial(hashlib.sha1, usedforsecurity=False)
_json: Final = msgspec.json.Encoder().encode


def signature(secret: bytes, fields: Mapping[str, str], body: Body) -> str:
    """Return the Signature of a request with these ext fields, of which `Signature` itself does not count.

    Raises UnicodeEncodeError for a value that is not Unicode text, which no received field is.
    """
    content = "".join(_ordered(fields)(fields))
    return _signature(_pads(secret), content, body)


class Signer:
    """Signs the requests of one client. Assign `credentials` to change the account from the next request on."""

    def __init__(
        self, credentials: Credentials, *, now_ms: Callable[[], int] | None = None
    ) -> None:
        """`now_ms` returns the time of the proofs; without it requests get none."""
        self.credentials = credentials
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<Signer {self._credentials.access_key}>"

    @property
    def credentials(self) -> Credentials:
        """The account that signs."""
        return self._credentials

    @credentials.setter
    def credentials(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._secret = _pads(credentials.secret_key.encode())
        self._fields = {ACCESS_KEY: credentials.access_key}
        if credentials.security_token is not None:
            self._fields[SECURITY_TOKEN] = credentials.security_token
        self._first_values = "".join(self._fields.values())
        self._json_fields = _json(self._fields)[1:-1].decode()

    def signed(self, fields: Mapping[str, str], body: Body) -> dict[str, str]:
        """Return the fields to send: the given ones, the account's, and the Signature.

        Raises LocalProtocolError for a value that is not Unicode text.
        """
        sent = {**fields, **self._fields}
        content = "".join(_ordered(sent)(sent))
        sent[SIGNATURE] = self._sign(content, body)
        return sent

    def proved(
        self, code: int, fields: Mapping[str, str], body: Body, *, receivers: Iterable[str]
    ) -> dict[str, str]:
        """Return the fields to send as `signed` does, with a proof for a receiver that has one of these addresses.

        Sends and pulls get none (`UNPROVED`). Raises LocalProtocolError as `signed` does.
        """
        if code in UNPROVED or self._now_ms is None:
            return self.signed(fields, body)
        try:
            proof = make_proof(
                self._credentials.secret_key.encode(),
                self._credentials.access_key,
                code=code,
                fields=fields,
                body=body,
                receivers=receivers,
                now_ms=self._now_ms(),
                nonce=new_nonce(),
            )
        except UnicodeEncodeError as error:
            raise LocalProtocolError("A field of the request is not Unicode text") from error
        return self.signed({**fields, PROOF: proof}, body)

    def json_fields(self, values: str, body: Body) -> str:
        """Return the account's fields and the Signature as members of a JSON object, for a frame that is made by hand.

        `values` are the values of all other fields in the order of their names, none of which sorts before
        `SecurityToken`. Raises LocalProtocolError as `signed` does.
        """
        signed = self._sign(self._first_values + values, body)
        return f'{self._json_fields},"{SIGNATURE}":"{signed}"'

    def _sign(self, content: str, body: Body) -> str:
        try:
            return _signature(self._secret, content, body)
        except UnicodeEncodeError as error:
            raise LocalProtocolError("A field of the request is not Unicode text") from error


def _ordered(fields: Mapping[str, str]) -> Callable[[Mapping[str, str]], Iterable[str]]:
    names = tuple(fields)
    if len("".join(names)) > _SHAPE_LENGTH:  # A stranger may have written them.
        return _values_in_order.__wrapped__(names)
    return _values_in_order(names)


@lru_cache(_SHAPES)
def _values_in_order(names: tuple[str, ...]) -> Callable[[Mapping[str, str]], Iterable[str]]:
    """Return the function that returns what is signed of fields with these names."""
    signed = sorted(name for name in names if name != SIGNATURE)
    return itemgetter(*signed) if signed else lambda _: ()


@lru_cache(_SECRETS)
def _pads(secret: bytes) -> _Pads:
    """Return the states of HMAC's two hashes after the secret: a signature that continues copies costs half as much."""
    key = (secret if len(secret) <= _BLOCK_SIZE else _sha1(secret).digest()).ljust(
        _BLOCK_SIZE, b"\0"
    )
    return _sha1(key.translate(_INNER)), _sha1(key.translate(_OUTER))


def _signature(pads: _Pads, content: str, body: Body) -> str:
    inner_pad, outer_pad = pads
    inner, outer = inner_pad.copy(), outer_pad.copy()
    inner.update(content.encode())
    if body:
        inner.update(body)
    outer.update(inner.digest())
    return b2a_base64(outer.digest(), newline=False).decode()
