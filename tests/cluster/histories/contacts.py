"""Which host got answers from which other one, and when: what the network saw of those that ask.

Of the requests to brokers those count that ask who one is and what it has of the log, tables and offsets: what a new
master asks before it takes writes. What it makes of an answer is its own affair; that it came, or did not, is known
here.

Invariant: looking changes nothing: no call is made that was not made before, and none waits.
"""

import math
import re
from collections.abc import Callable, Container
from itertools import count
from typing import Final, Literal

import attrs
import trio

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.errors import Error
from rocketrio_protocol.frame import Body
from rocketrio_protocol.remoting.ports import CONNECT_TIMEOUT, Dial, Transport, split_addr

BROKER_PORT: Final = 10_911
REPLICATION_PORT: Final = 10_912
_QUESTIONS: Final = (
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_IDENTITY,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
)

RETURN_WAIT: Final = 10.0
"""Seconds that a new master waits for a broker that does not answer (`ha_return_wait`); then it asks no more."""

Outcome = Literal["answered", "failed", "unreachable", "unlisted", "unasked"]
"""Of the last question to a broker in the time for that. `unlisted` is one that was not asked, and that no name server
named, `unreachable` one that could not have been found either; `unasked` one that was named, and not asked."""
ASKABLE: Final = ("answered", "unasked")
"""The outcomes for a broker that the new master could have asked: it answered, or a name server had named it."""


@attrs.define
class Contact:
    """What passed between two hosts: the last of each kind, in the order of these numbers, and when."""

    asked_at: float = -math.inf
    asked: int = 0
    answered: int = 0
    failed: int = 0
    waits_since: float | None = None
    """When the first question was asked of those that are not answered yet."""
    answers: list[tuple[float, float]] = attrs.Factory(list)
    """When the first question was asked, of some perhaps without an answer, and when an answer came."""


class Contacts:
    """All contacts of one run."""

    def __init__(self, listed: Callable[[], frozenset[str]]) -> None:
        """`listed` are the hosts of the brokers that the name server names now."""
        self._listed = listed
        self._contacts: dict[tuple[str, str], Contact] = {}
        self._heard_of: dict[str, frozenset[str]] = {}
        self._numbers = count(1)

    def dial(self, host: str, dial: Dial) -> Dial:
        """Return the dial function of a host, watched."""

        async def watched(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
            other, port = split_addr(addr)
            if port == REPLICATION_PORT:
                return await dial(addr, timeout=timeout)
            try:
                transport = await dial(addr, timeout=timeout)
            except Error:
                self.note_asked(host, other)
                self.note_failed(host, other)
                raise
            codes = _QUESTIONS if port == BROKER_PORT else None
            return _WatchedTransport(transport, self, (host, other), codes)

        return watched

    def outcome(self, host: str, other: str, name_server: str, *, since: float) -> Outcome:
        """Return how a broker's last question to another one went, of those that it asked since a time."""
        contact = self._contact(host, other)
        if contact.asked_at >= since:
            is_answered = contact.answered > max(contact.asked, contact.failed)
            waited = [at - max(asked, since) for asked, at in contact.answers if at >= since]
            in_time = bool(waited) and waited[0] < RETURN_WAIT
            return "answered" if is_answered and in_time else "failed"
        return "unasked" if self.is_named(host, other, name_server, since=since) else "unlisted"

    def is_named(self, host: str, other: str, name_server: str, *, since: float) -> bool:
        """Return whether the name server answered a broker since a time, and then knew of another one."""
        heard = self._contact(host, name_server)
        is_heard = heard.answered > heard.failed and heard.asked_at >= since
        return is_heard and other in self._heard_of.get(host, ())

    def note_asked(self, host: str, other: str) -> None:
        contact, now = self._contact(host, other), trio.current_time()
        contact.asked_at, contact.asked = now, next(self._numbers)
        if contact.waits_since is None:
            contact.waits_since = now

    def note_answered(self, host: str, other: str) -> None:
        contact = self._contact(host, other)
        contact.answered = next(self._numbers)
        if contact.waits_since is not None:
            contact.answers.append((contact.waits_since, trio.current_time()))
            contact.waits_since = None
        self._heard_of[host] = self._listed()

    def note_failed(self, host: str, other: str) -> None:
        self._contact(host, other).failed = next(self._numbers)

    def _contact(self, host: str, other: str) -> Contact:
        return self._contacts.setdefault((host, other), Contact())


class _WatchedTransport:
    """A connection from one host to another one, whose requests and answers are noted."""

    def __init__(
        self,
        transport: Transport,
        contacts: Contacts,
        hosts: tuple[str, str],
        codes: Container[int] | None,
    ) -> None:
        """`hosts` are the one that asks and the other one; `codes` are the requests that count, None for all."""
        self.local_addr = transport.local_addr
        self.remote_addr = transport.remote_addr
        self.aclose = transport.aclose
        self._transport = transport
        self._contacts = contacts
        self._hosts = hosts
        self._codes = codes

    async def receive_into(self, buffer: memoryview) -> int:
        try:
            size = await self._transport.receive_into(buffer)
        except Error:
            self._contacts.note_failed(*self._hosts)
            raise
        (self._contacts.note_answered if size else self._contacts.note_failed)(*self._hosts)
        return size

    def send_nowait(self, data: Body) -> int:
        self._note_asked(data)
        return self._transport.send_nowait(data)

    async def send_all(self, data: Body) -> None:
        self._note_asked(data)
        await self._transport.send_all(data)

    def _note_asked(self, data: Body) -> None:
        if self._codes is None or _code_of(bytes(data)) in self._codes:
            self._contacts.note_asked(*self._hosts)


def _code_of(data: bytes) -> int:
    """Return the code of the request that a frame begins with, 0 where there is none."""
    is_binary = data[4:5] == b"\1"
    if is_binary:
        return int.from_bytes(data[8:10])
    found = re.search(rb'"code":\s*(\d+)', data)
    return 0 if found is None else int(found[1])
