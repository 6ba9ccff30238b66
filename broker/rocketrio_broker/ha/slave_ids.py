"""Gives a broker that wants to follow this master an id that no other broker has.

The master alone decides, so that two brokers that ask at the same time get two ids. Taken are the ids that name servers
list, those of slaves that identified themselves, and those given recently; a broker that asks again gets the same id.

Invariant: no await lies between checking which ids are taken and giving one.
Answers to: nothing of Java's; 5.x's controller gives ids (CONTROLLER_APPLY_BROKER_ID).
"""

from collections.abc import Callable, Collection
from typing import Final

from rocketrio_broker.ha.peers import Peers
from rocketrio_protocol.codes import MASTER_ID

GIVEN_LIMIT: Final = 64
"""The most given ids that are remembered; as many slaves may be connected. The oldest is dropped first."""


class SlaveIds:
    """The ids of one master's slaves."""

    def __init__(self, peers: Peers, introduced: Callable[[], Collection[int]]) -> None:
        """`introduced` returns the ids of slaves that identified themselves."""
        self._peers = peers
        self._introduced = introduced
        self._given: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<SlaveIds given={self._given}>"

    async def give(self, addr: str) -> int:
        """Return an id for the broker at this address."""
        listed: dict[int, str] = {}
        # If a name server does not answer, the others list the same; and ids given here are known anyway.
        for one in await self._peers.listed_by_all():
            listed.update(one)
        own = {id_ for id_, other in listed.items() if other == addr and id_ != MASTER_ID}
        taken = {MASTER_ID, *listed, *self._introduced()} - own
        taken |= {id_ for other, id_ in self._given.items() if other != addr}
        before = self._given.pop(addr, None)
        wanted = [*sorted(own), *range(1, len(taken) + 2)]
        if before is not None:
            wanted.insert(0, before)
        found: int = next(id_ for id_ in wanted if id_ not in taken)
        self._given[addr] = found
        if len(self._given) > GIVEN_LIMIT:
            del self._given[next(iter(self._given))]
        return found
