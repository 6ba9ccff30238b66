"""Decides whether a proof is good here, and, for requests that change rights or return secrets, also now and once.

    receiver    one of this broker's addresses: the one that it advertises, or that of the connection
    time        within PROOF_WINDOW of this broker's clock, and not before its start
    use         the first one: the MACs of the window are kept, which a start forgets, hence the line above

A connection with a verified client certificate needs no proof, and neither does a host that the operator has named. A
name server does not know by which names it is dialled, and has no request that needs a proof.

Invariant: the memory is bounded by PROOFS_SIZE_LIMIT; at the limit requests are refused, and no MAC is forgotten.
Answers to: nothing of Apache's, whose signatures are good for ever.
"""

from collections.abc import Collection, Sequence
from typing import Final

from rocketrio_protocol.access.white_addresses import AddressPattern, numeric_address
from rocketrio_protocol.codes import RequestCode, code_name
from rocketrio_protocol.proof import Proof
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.ports import WallClock, split_addr

PROOF_WINDOW: Final = 300.0
"""Seconds by which the clock of a sender may differ from this server's: hosts without NTP drift by a few minutes."""
PROOFS_SIZE_LIMIT: Final = 4 << 20
"""Bytes of the MACs that are kept: 32,768 requests in ten minutes; operators send a few, each slave one a second."""

_KEPT_SIZE: Final = 16
"""Bytes of a MAC that are kept."""
_ENTRY_SIZE: Final = 128
"""Bytes of memory for one of them, with its place in a set."""
_NUMERIC_LENGTH: Final = 64
"""More characters than a numeric address has."""
_SHOWN_LENGTH: Final = 100
"""Characters of an address that a sender gives which are shown."""
_WINDOW_MS: Final = int(PROOF_WINDOW * 1000)
_FAILED: Final = "check signature failed"
"""How Apache's refusals begin: clients recognise them by it."""
_SETTING: Final = "acl_plain_signatures_from"


class FreshProofs:
    """The proofs that one server has accepted in the last minutes."""

    def __init__(
        self,
        wall_clock: WallClock,
        *,
        own_addrs: Collection[str] | None = None,
        plain_from: Sequence[AddressPattern] = (),
        size_limit: int = PROOFS_SIZE_LIMIT,
    ) -> None:
        """`own_addrs` are the addresses that this broker advertises; None means that receivers are not compared.

        Hosts in `plain_from` need no proof.
        """
        self._wall_clock = wall_clock
        self._own_addrs = None if own_addrs is None else frozenset(map(_plain_form, own_addrs))
        self._plain_from = plain_from
        self._started_ms = wall_clock.now_ms()
        self._limit = size_limit // _ENTRY_SIZE
        self._kept: dict[int, set[bytes]] = {}
        """The accepted MACs by the window in which they were made."""

    def problem(
        self, channel: Channel, code: int, proof: Proof | None, *, is_needed: bool
    ) -> str | None:
        """Return why a request with this proof, which belongs to it, is refused; None if it is accepted.

        Only a proof that is needed must be fresh, and is kept.
        """
        if proof is None and not is_needed:
            return None
        host = split_addr(channel.remote_addr)[0]
        if channel.is_certified or any(each.matches(host) for each in self._plain_from):
            return None
        if proof is None:
            return (
                f"{_FAILED}: {code_name(code, RequestCode)} needs a proof of code, receiver and time, as rocketrio's "
                f"clients add it, or TLS with a client certificate. {_SETTING} names hosts that need none."
            )
        problem = self._receiver_problem(channel, proof)
        if problem is None and is_needed:
            # Time first: only MACs of the window are kept, so that old ones cannot fill the memory.
            problem = self._time_problem(proof) or self._keep(proof)
        return problem

    def _receiver_problem(self, channel: Channel, proof: Proof) -> str | None:
        if self._own_addrs is None:
            return None
        own = {*self._own_addrs, _plain_form(channel.local_addr)}
        if own.intersection(map(_plain_form, proof.receivers)):
            return None
        given = proof.receivers[0][:_SHOWN_LENGTH]
        return (
            f"{_FAILED}: the request was made for {given}, and this is {' or '.join(sorted(own))}. "
            f"Send it to that address, or name your host in {_SETTING}."
        )

    def _time_problem(self, proof: Proof) -> str | None:
        now = self._wall_clock.now_ms()
        age = (now - proof.at_ms) / 1000
        if abs(age) > PROOF_WINDOW:
            side = "behind" if age > 0 else "ahead of"
            return (
                f"{_FAILED}: the sender's clock is {abs(age):.0f} s {side} this server's, or the request is old. "
                f"Up to {PROOF_WINDOW:.0f} s are permitted. Set both clocks right."
            )
        # The MACs of before the start are forgotten: a thief could use one of them a second time.
        if proof.at_ms < self._started_ms:
            return f"{_FAILED}: the request was made before this server started. Send it again."
        return None

    def _keep(self, proof: Proof) -> str | None:
        """Keep a MAC; return why that is not possible."""
        oldest = (self._wall_clock.now_ms() - _WINDOW_MS) // _WINDOW_MS
        self._kept = {window: kept for window, kept in self._kept.items() if window >= oldest}
        kept = self._kept.setdefault(proof.at_ms // _WINDOW_MS, set())
        mac = bytes.fromhex(proof.mac)[:_KEPT_SIZE]
        if mac in kept:
            return (
                f"{_FAILED}: this request was received before, and is not accepted a second time."
            )
        # Refused, and none forgotten: one that is forgotten could be used a second time, after enough others were sent.
        if sum(map(len, self._kept.values())) >= self._limit:
            return (
                f"{_FAILED}: {self._limit} requests that need a proof came in the last minutes, which is the most that "
                "are remembered. Send it again in five minutes."
            )
        kept.add(mac)
        return None


def _plain_form(addr: str) -> str:
    """Return an address in one spelling: an IPv4 address that a socket of both kinds gives as IPv6 is IPv4 again."""
    host, _, port = addr.rpartition(":")
    address = numeric_address(host) if len(host) <= _NUMERIC_LENGTH else None
    if address is None:
        return addr.lower()
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
