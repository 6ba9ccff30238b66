"""Searches for another master of this broker's name; called twice before a broker takes writes, see `role/service.py`.

Each name server is asked (106) which brokers of the name it lists, and each of those whether it is a master, and if it
leads (71003; Apache's 26 and 907). Only a broker that answers this itself counts: a broker that a name server lists
may have died a moment ago. A master that was found before, or followed, is asked directly, and so are the slaves that
this broker last had: a name server that has restarted lists no broker for a moment.

    leads, or is about to        the other one continues
    waits, as this one does      the one with the longer log continues, of two equal ones the lesser address
    does not say (Apache)        the other one continues

Invariant: a broker that cannot be asked does not count as another master; two masters that cannot reach each other are
not detected here.
Invariant: of two masters that reach each other one continues; of two that lead, the one that a name server lists.
Unlike Java: an Apache broker that starts as a second master overwrites the first in the name server's list.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.peers import CALL_TIMEOUT, Identity, Peers, ask, ask_identity
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.admin import GetBrokerHAStatusRequestHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.ha.status import HARuntimeInfo

ASK_LIMIT: Final = CALL_TIMEOUT
"""Seconds for all name servers and the brokers that they list together."""


@attrs.frozen
class OtherMaster:
    """Another broker that is master of this name."""

    addr: str
    ha_addr: str | None = None
    is_rocketrio: bool = False
    leads: bool = True
    """Whether it takes writes, or is about to; assumed of a broker that does not say."""
    log_end: int = 0
    is_listed: bool = False
    """Whether nothing else is known than that a name server lists it, and refused this broker."""

    def goes_before(self, own_end: int, own_addr: str) -> bool:
        """Return whether it is the one of the two that continues."""
        return self.leads or (-self.log_end, self.addr) < (-own_end, own_addr)


@attrs.frozen
class OtherMasters:
    """The answers of the brokers of a name, as far as they could be asked."""

    masters: Sequence[OtherMaster] = ()
    """The other masters; those that lead come first."""
    silent: frozenset[str] = frozenset()
    """Brokers that could not be asked."""
    slaves: frozenset[str] = frozenset()
    """Brokers of the name that answered that they are none."""
    name_servers: int = 0
    """How many of them answered."""


async def find_other_masters(
    peers: Peers,
    known: str | None = None,
    *,
    limit: float = ASK_LIMIT,
    but: Collection[str] = (),
) -> OtherMasters:
    """Find other masters of this name, in `limit` seconds at most. Never fails.

    `known` is the address of the last known other master; those in `but` are not asked.
    """
    search = _Search(peers, but)
    with trio.move_on_after(limit):
        async with trio.open_nursery() as nursery:
            for addr in (known, *peers.remembered()):
                search.ask_broker(addr, nursery)
            for name_server in peers.name_servers:
                nursery.start_soon(search.ask_name_server, name_server, nursery)
    masters = search.masters
    if peers.own_addr in search.listed:
        masters = [one for one in masters if one.addr in search.listed or not one.leads]
    return OtherMasters(
        sorted(masters, key=lambda one: (not one.leads, one.addr)),
        frozenset(search.silent),
        frozenset(search.slaves),
        search.name_servers,
    )


class _Search:
    """One round of queries."""

    def __init__(self, peers: Peers, but: Collection[str]) -> None:
        self.masters: list[OtherMaster] = []
        self.listed: set[str] = set()
        """The brokers that name servers list under id 0."""
        self._peers = peers
        self.silent: set[str] = set()
        self.slaves: set[str] = set()
        self.name_servers = 0
        self._asked = {peers.own_addr, *but}

    async def ask_name_server(self, name_server: str, nursery: trio.Nursery) -> None:
        with suppress(Error):
            listed = await self._peers.listed(name_server)
            self.name_servers += 1
            if MASTER_ID in listed:
                self.listed.add(listed[MASTER_ID])
            for addr in listed.values():
                self.ask_broker(addr, nursery)

    def ask_broker(self, addr: str | None, nursery: trio.Nursery) -> None:
        """Ask a broker in a task of its own, unless it was asked already."""
        if addr is not None and addr not in self._asked:
            self._asked.add(addr)
            nursery.start_soon(self._ask_broker, addr)

    async def _ask_broker(self, addr: str) -> None:
        self.silent.add(addr)
        with suppress(Error):
            identity = await ask_identity(self._peers.question, addr)
            name = self._peers.broker_name
            if identity.broker_name not in (None, name):
                return  # The address was given away: the broker that had it cannot be asked.
            master = await _as_master(self._peers, addr, identity)
            self.silent.discard(addr)
            if master is not None:
                self.masters.append(master)
            elif identity.broker_name == name:
                self.slaves.add(addr)


async def _as_master(peers: Peers, addr: str, identity: Identity) -> OtherMaster | None:
    """Return the broker at this address, which says who it is, if it is master of the name, otherwise None."""
    if identity.broker_name != peers.broker_name or identity.broker_id != MASTER_ID:
        return None
    if identity.role == "slave":
        return None
    if identity.log_end is not None:
        claims = identity.claims is not False
        return OtherMaster(addr, identity.ha_addr, True, claims, identity.log_end)
    own = None
    with suppress(Error):  # Apache's brokers before 5.0 do not know the request.
        body = await ask(peers.question, addr, GetBrokerHAStatusRequestHeader())
        own = HARuntimeInfo.from_json(body).rocketrio
    if own is None:
        return OtherMaster(addr, identity.ha_addr)
    if own.role == "slave":  # It became one since it was asked for its settings.
        return None
    return OtherMaster(addr, identity.ha_addr, True, own.claims is not False, own.max_offset)
