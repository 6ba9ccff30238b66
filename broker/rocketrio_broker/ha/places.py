"""Who may be connected to the replication port at once: slaves, and those who have yet to show that they are.

    arriving   from the first byte until it has proved itself, or where no proof is asked until it asks for the log
    kept       from then on

Invariant: a newcomer always gets a place among those who arrive: that of the one who has been there longest, of the
newcomer's own host if that has its share, otherwise of the host that has the most. Who knocks often displaces himself.
Invariant: nobody who arrives takes a slave's place.
Unlike Java: there the number is not limited.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.errors import ReplicationError
from rocketrio_protocol.remoting.ports import split_addr

SLAVES_LIMIT: Final = 64
"""Slaves served at once; a master has a handful, and each costs a stream of the whole log."""

ARRIVALS_LIMIT: Final = 64
"""Connections at once that have not shown who they are."""

ARRIVALS_OF_HOST_LIMIT: Final = 16
"""Those of one host among them: all slaves behind one address, and those of their connections that died unnoticed."""


@attrs.define(eq=False)
class Place:
    """One connection's."""

    host: str
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    """Cancelled when a newcomer gets the place."""


class Places:
    """All of them."""

    def __init__(self) -> None:
        self._arriving: list[Place] = []
        """The oldest first."""
        self._kept: set[Place] = set()

    def __repr__(self) -> str:
        return f"<Places of {len(self._kept)} slaves, {len(self._arriving)} arriving>"

    @contextmanager
    def take(self, addr: str) -> Iterator[Place]:
        """Give a place for as long as the block runs; the block is cancelled when a newcomer gets it."""
        place = Place(split_addr(addr)[0])
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
        oldest = next(place for place in self._arriving if place.host == host)
        self._arriving.remove(oldest)
        oldest.scope.cancel()

    def keep(self, place: Place) -> None:
        """Make it a slave's. Raises ReplicationError when there are too many of these."""
        if place not in self._arriving:
            return
        if len(self._kept) >= SLAVES_LIMIT:
            raise ReplicationError(
                f"There are already {SLAVES_LIMIT} slaves",
                remedy="A slave may follow a slave: set ha_master_address on some of them",
            )
        self._arriving.remove(place)
        self._kept.add(place)
