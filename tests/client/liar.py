"""A network that lies: what servers of a real cluster answer, changed where it hurts before the client reads it.

The frames stay whole, so that what is changed gets past the framing: a field or a member is missing, has another type
or a number without a meaning, the code is another one, bytes of messages are flipped.
"""

import json
import random
from collections.abc import Callable
from typing import Any

import attrs
from tests.support.raw_frames import json_framed, unframed
from tests.support.transports import Forwarding

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.remoting.ports import CONNECT_TIMEOUT, Dial, Transport

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 7, 2**31, 2**63 - 1, 2**63, -(2**63), 10**40, 1.5, 1e308, "", "0", "x", "-1", "1e3", "9" * 30,
    "9" * 5000, "\0", "\ud800", "\x01\x02", "é" * 200, "a:b:c", "host", "host:99999", "[::1]:x", ":1",
    "\0:1", "10.0.0.99:1", "%RETRY%g", "%DLQ%",
    [], {}, [None], [[]], [1, "x"], {"": None}, {"0": "x"}, {"x": {}}, {"-1": 10**40},
)  # fmt: skip
CODES = (0, 1, 2, 3, 10, 11, 14, 17, 19, 20, 21, 22, 25, 26, 29, 40, 206, 215, 1500, -1, 2**31 - 1)
TEXTS = tuple(value for value in ODD if isinstance(value, str))
RESPONSE = 1


@attrs.define
class Liar:
    """What it changes, by the numbers of its seed."""

    seed: int
    lies: float = 0.5
    """How many of the answers it changes, between 0 and 1."""
    told: list[str] = attrs.Factory(list)
    """What it did, in words."""
    _random: random.Random = attrs.Factory(lambda self: random.Random(self.seed), takes_self=True)

    def changed(self, frame: bytes) -> bytes:
        """One frame of a server."""
        _, header, body = unframed(frame)
        answer = json.loads(header)
        if not answer["flag"] & RESPONSE or self._random.random() >= self.lies:
            return frame
        ways = [self._code, self._remark] + [self._field] * 3 * bool(answer.get("extFields"))
        if body:
            ways += [self._body] * 6
        body = self._random.choice(ways)(answer, body)
        return json_framed(answer, body)

    def _code(self, answer: dict[str, Any], body: bytes) -> bytes:
        answer["code"] = self._random.choice(CODES)
        self._note(f"code {answer['code']}")
        return body

    def _remark(self, answer: dict[str, Any], body: bytes) -> bytes:
        answer["remark"] = self._random.choice(TEXTS)
        answer["code"] = self._random.choice(CODES)
        self._note(f"code {answer['code']} with remark")
        return body

    def _field(self, answer: dict[str, Any], body: bytes) -> bytes:
        fields = answer["extFields"]
        name = self._random.choice(sorted(fields))
        if self._random.random() < 0.2:
            del fields[name]
            self._note(f"without {name}")
        else:
            fields[name] = self._random.choice(ODD)
            self._note(f"{name}={str(fields[name])[:30]!r}")
        return body

    def _body(self, answer: dict[str, Any], body: bytes) -> bytes:
        way = self._random.random()
        if way < 0.1:
            self._note("no body")
            return b""
        if way < 0.2:
            size = self._random.randrange(200)
            self._note(f"{size} random bytes for a body")
            return self._random.randbytes(size)
        try:
            value = fastjson.loads(body, Any)
        except RemoteProtocolError:
            return self._bytes(body)
        return json.dumps(self._mutated(value, "body")).encode()

    def _bytes(self, body: bytes) -> bytes:
        data = bytearray(body)
        for _ in range(self._random.randint(1, 8)):
            data[self._random.randrange(min(len(data), 400))] = self._random.choice(
                (0, 1, 0x7F, 0x80, 0xFF, 0x31)
            )
        self._note("bytes of the body")
        return bytes(data)

    def _mutated(self, value: Any, path: str) -> Any:
        """The same with one node changed, anywhere in it."""
        if isinstance(value, dict) and value:
            name = self._random.choice(sorted(value, key=str))
            if _children(value[name]) and self._random.random() < 0.75:
                return {**value, name: self._mutated(value[name], f"{path}.{name}")}
            if self._random.random() < 0.2:
                self._note(f"{path} without {name}")
                return {key: each for key, each in value.items() if key != name}
            if self._random.random() < 0.2:
                odd = self._random.choice(TEXTS)
                self._note(f"{path}: {odd[:30]!r} for {name}")
                return {odd if key == name else key: each for key, each in value.items()}
            return {**value, name: self._odd(f"{path}.{name}")}
        if isinstance(value, list) and value:
            at = self._random.randrange(len(value))
            if _children(value[at]) and self._random.random() < 0.75:
                changed = self._mutated(value[at], f"{path}[{at}]")
            else:
                changed = self._odd(f"{path}[{at}]")
            return [*value[:at], changed, *value[at + 1 :]]
        return self._odd(path)

    def _odd(self, path: str) -> Any:
        odd = self._random.choice(ODD)
        self._note(f"{path}={str(odd)[:30]!r}")
        return odd

    def _note(self, what: str) -> None:
        self.told.append(what)


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


@attrs.define(eq=False)
class LyingTransport(Forwarding):
    """One connection, whose answers pass the liar."""

    change: Callable[[bytes], bytes]
    _received: bytearray = attrs.Factory(bytearray)
    _ready: bytearray = attrs.Factory(bytearray)

    async def receive_into(self, buffer: memoryview) -> int:
        while not self._ready:
            size = await self.inner.receive_into(buffer)
            if not size:
                return 0
            self._received += buffer[:size]
            while len(self._received) >= 4:
                end = 4 + int.from_bytes(self._received[:4])
                if len(self._received) < end:
                    break
                self._ready += self.change(bytes(self._received[:end]))
                del self._received[:end]
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        del self._ready[:size]
        return size


def lying(dial: Dial, liar: Liar) -> Dial:
    """As `dial`, with all that comes back changed."""

    async def dialled(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
        return LyingTransport(await dial(addr, timeout=timeout), liar.changed)

    return dialled
