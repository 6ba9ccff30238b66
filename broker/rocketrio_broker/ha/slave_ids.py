"""Gives a broker that wants to follow this master an id that no other broker has.

The master alone decides, so that two brokers that ask at the same time get two ids. A broker gets the id of its
settings if that is free, or the one that it was given before, or has; otherwise the first free one.

    taken       ids that name servers list, and those of slaves that identified themselves
                those given recently to others
                the ids by which other members of this name were last listed, though they are away (known_slaves.py)
                the id in this master's own settings: it may start as that slave again
                the id that the broker wants to give up, because another one has it too (role/shared_id.py)

Invariant: no await lies between checking which ids are taken and giving one.
Invariant: an id that is given is not that of another broker's settings, as far as this master has met that broker.
Answers to: nothing of Java's; 5.x's controller gives ids (CONTROLLER_APPLY_BROKER_ID).
"""

from collections.abc import Callable, Collection, Mapping

from rocketrio_broker.ha.config import SLAVES_LIMIT
from rocketrio_broker.ha.peers import Peers
from rocketrio_protocol.codes import MASTER_ID


class SlaveIds:
    """The ids of one master's slaves."""

    def __init__(
        self,
        peers: Peers,
        introduced: Callable[[], Collection[int]],
        *,
        met: Callable[[], Mapping[str, int]] = dict,
        configured: int = MASTER_ID,
    ) -> None:
        """`introduced` returns the ids of slaves that identified themselves, `met` the last known ids by address.

        `configured` is the id in this broker's settings.
        """
        self._peers = peers
        self._introduced = introduced
        self._met = met
        self._configured = configured
        self._given: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<SlaveIds given={self._given}>"

    async def give(self, addr: str, *, configured: int = MASTER_ID, shared: int = MASTER_ID) -> int:
        """Return an id for the broker at this address.

        `configured` is the id in that broker's settings, and `shared` one that another broker has too; 0 if none.
        """
        # If a name server does not answer, the others list the same; and ids given here are known anyway.
        answers = await self._peers.listed_by_all()
        # No await from here on: two brokers that ask at the same time must not get one id.
        met = self._met()
        listed = sorted({id_ for one in answers for id_, other in one.items() if other == addr})
        before = self._given.pop(addr, MASTER_ID)
        wanted = [configured, before, *listed, met.get(addr, MASTER_ID)]
        taken = {id_ for one in answers for id_, other in one.items() if other != addr}
        # It may have identified itself here.
        taken |= {id_ for id_ in self._introduced() if id_ not in wanted}
        for known in (self._given, met):
            taken |= {id_ for other, id_ in known.items() if other != addr}
        taken |= {MASTER_ID, self._configured, shared}
        found: int = next(id_ for id_ in (*wanted, *range(1, len(taken) + 2)) if id_ not in taken)
        self._given[addr] = found
        if len(self._given) > SLAVES_LIMIT:  # The oldest is dropped first.
            del self._given[next(iter(self._given))]
        return found
