"""Limits the connections to the replication port: those of slaves, and those that have not proved yet to be slaves.

    arriving   from the first byte until it has proved itself, or, if no proof is required, until it asks for the log
    kept       from then on

Invariant: a new connection always gets a place among the arriving ones: the oldest connection of its own host gives way
if that host has its share, otherwise the oldest of the host that has the most. A host that connects often displaces its
own connections.
Invariant: an arriving connection never takes a slave's place.
Unlike Java: there the number is not limited.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.config import SLAVES_LIMIT
from rocketrio_broker.ha.errors import ReplicationError
from rocketrio_protocol.remoting.ports import split_addr

ARRIVALS_LIMIT: Final = 64
"""The most connections at once that have not identified themselves."""

ARRIVALS_OF_HOST_LIMIT: Final = 16
"""The most of them from one host: all slaves behind one address, and their connections that died unnoticed."""


@attrs.define(eq=False)
class HAPlace:
    """The place of one connection."""

    host: str
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    """Cancelled when a new connection gets the place."""


class HAPlaces:
    """All of them."""

    def __init__(self) -> None:
        self._arriving: list[HAPlace] = []
        """The oldest first."""
        self._kept: set[HAPlace] = set()

    def __repr__(self) -> str:
        return f"<HAPlaces of {len(self._kept)} slaves, {len(self._arriving)} arriving>"

    @contextmanager
    def take(self, addr: str) -> Iterator[HAPlace]:
        """Give a place for as long as the block runs; the block is cancelled when a new connection gets the place."""
        place = HAPlace(split_addr(addr)[0])
        self._make_room(place.host)
        self._arriving.append(place)
        try:
            with place.scope:
                yield place
        finally:
            self._kept.discard(place)
            if place in self._arriving:
                self._arriving.remove(place)

    def _make_room(self, host: str) -> None:
        hosts = Counter(place.host for place in self._arriving)
        if hosts[host] < ARRIVALS_OF_HOST_LIMIT:
            if len(self._arriving) < ARRIVALS_LIMIT:
                return
            host = max(hosts, key=lambda one: hosts[one])
        # Only among the arriving: no host can displace a slave.
        oldest = next(place for place in self._arriving if place.host == host)
        self._arriving.remove(oldest)
        oldest.scope.cancel()

    def keep(self, place: HAPlace) -> None:
        """Give the connection a slave's place. Raises ReplicationError if there are SLAVES_LIMIT slaves already."""
        # It is kept already, or has lost its place to a newer connection and is about to end.
        if place not in self._arriving:
            return
        if len(self._kept) >= SLAVES_LIMIT:
            raise ReplicationError(
                f"There are already {SLAVES_LIMIT} slaves",
                remedy="A slave may follow a slave: set ha_master_address on some of them",
            )
        self._arriving.remove(place)
        self._kept.add(place)
