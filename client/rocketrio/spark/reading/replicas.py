"""Chooses the replica for each pull, from what a task knows of its brokers. Pure except for its tables.

    readFrom   asked
    master     the master alone
    slave      a slave that may be read, or the master if there is none
    auto       the suggestion of the last answer for this range, or at first the one from planning: see `cold`

Each range uses one of several slaves. A slave may be read if it is within `maxStaleness`, and did not report a moment
ago that its queue ends before the offset or begins after it. Addresses that failed a moment ago come last.

Invariant: a bound on staleness is never given up, even if no replica is within it.
Answers to: PullAPIWrapper's choice of an address.
Unlike Java: a suggestion belongs to the range, not the queue: a task may read the old and the new end of one queue.
"""

from collections.abc import Collection, Mapping
from typing import Literal

import attrs

from rocketrio.routing import FindBrokerResult, Router
from rocketrio.routing.read_policy import StalenessBound
from rocketrio.routing.replica_views import ReplicaViews
from rocketrio.spark.reading.offsets import QueueRange
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.rendezvous import weight


@attrs.define(eq=False)
class Replicas:
    """What one task knows of its brokers."""

    router: Router
    """The task's own router: the addresses from the driver, or later ones from a name server."""
    read_from: Literal["auto", "master", "slave"] = "auto"
    max_staleness: StalenessBound | None = None
    _suggested: dict[QueueRange, int] = attrs.Factory(dict)
    _views: dict[MessageQueue, ReplicaViews] = attrs.Factory(dict)
    _views_of: dict[QueueRange, ReplicaViews] = attrs.Factory(dict)
    """The same views, by range."""
    _usual: dict[QueueRange, FindBrokerResult] = attrs.Factory(dict)
    """The choice for a range, while it holds: until something else is suggested."""

    def begin(self, part: QueueRange, broker_id: int, now: float) -> None:
        """Begin to read a range at that broker id. Its end was once the queue's end, so the master has all of it."""
        self._suggested[part] = broker_id
        self._note_master(part, part.end, now)

    def choose(
        self, part: QueueRange, offset: int, now: float, *, tried: Collection[str] = ()
    ) -> FindBrokerResult | None:
        """Return the broker for the next pull at `offset`, or None if every replica was tried or may not be asked."""
        usual = self._usual.get(part)
        if (
            usual is not None
            and not tried
            and not self.router.is_avoided(usual.addr)
            and (not usual.is_slave or self._serves(part, usual, offset, now))
        ):
            return usual
        known = self.router.candidates(part.broker_name)  # the master first, recent failures last
        left = [found for found in known if found.addr not in tried]
        master = next((found for found in left if not found.is_slave), None)
        if self.read_from == "master":
            return master  # also if it failed a moment ago
        allowed = [f for f in left if f.is_slave and self._is_fresh_enough(part, f, now)]
        serving = [
            found
            for found in allowed
            if not self.router.is_avoided(found.addr) and self._serves(part, found, offset, now)
        ]
        wanted = self._wanted(part, serving, master)
        if wanted is not None:
            if self.max_staleness is None and not self.router.is_avoided(wanted.addr):
                self._usual[part] = wanted
            return wanted
        if master is not None and not self.router.is_avoided(master.addr):
            return master
        for others in (serving, [] if master is None else [master], allowed):
            if others:
                return _spread(part, others)
        return None

    def to_probe(self, part: QueueRange, now: float, *, max_age: float) -> list[FindBrokerResult]:
        """Return the replicas to ask for their offsets before the next pull; none unless `maxStaleness` decides."""
        if self.max_staleness is None or self.read_from == "master":
            return []
        live, views = self.router.live(part.broker_name), self.views(part)
        if all(views.age(found.broker_id, now) <= max_age for found in live if found.is_slave):
            return []
        return live

    def answered(
        self,
        part: QueueRange,
        found: FindBrokerResult,
        min_offset: int | None,
        max_offset: int,
        level_age: float | None,
        now: float,
    ) -> None:
        """Record the offsets that a replica reported; `min_offset` is None if the replica did not report it."""
        if found.is_slave:
            self.views(part).note(
                found.broker_id, max_offset, level_age, now, min_offset=min_offset
            )
        else:
            self._note_master(part, max_offset, now)

    def suggested(self, part: QueueRange, broker_id: int) -> None:
        """Record where an answer for the range suggested to ask next."""
        if self._suggested.get(part) != broker_id:
            self._suggested[part] = broker_id
            self._usual.pop(part, None)

    def moved(self, broker_name: str, addrs: Mapping[int, str]) -> None:
        """Record the addresses of the replicas that a name server reported."""
        self.router.broker_addr_table[broker_name] = dict(addrs)
        self._usual.clear()

    def lacks(self, part: QueueRange, found: FindBrokerResult, now: float) -> None:
        """Record that a slave does not know the queue at the moment."""
        self.views(part).note(found.broker_id, -1, None, now)

    def views(self, part: QueueRange) -> ReplicaViews:
        """Return what replicas reported of the range's queue."""
        views = self._views_of.get(part)
        if views is None:
            views = self._views_of[part] = self._views.setdefault(part.queue, ReplicaViews())
        return views

    def has_master(self, broker_name: str, *, tried: Collection[str] = ()) -> bool:
        """Return True if a master is known that did not fail a moment ago."""
        addr = self.router.find_broker_address_in_publish(broker_name)
        return addr is not None and addr not in tried and not self.router.is_avoided(addr)

    def _note_master(self, part: QueueRange, max_offset: int, now: float) -> None:
        views = self.views(part)
        before = views.by_id.get(MASTER_ID)
        views.note(
            MASTER_ID,
            max_offset if before is None else max(max_offset, before.max_offset),
            None,
            now,
        )

    def _wanted(
        self, part: QueueRange, serving: list[FindBrokerResult], master: FindBrokerResult | None
    ) -> FindBrokerResult | None:
        """Return the broker that the option or the last suggestion names, if it can be asked."""
        broker_id = self._suggested.get(part, MASTER_ID)
        if self.read_from == "auto" and broker_id == MASTER_ID:
            return None if master is None or self.router.is_avoided(master.addr) else master
        if not serving:
            return None
        if self.read_from == "slave":
            return _spread(part, serving)
        # Apache's masters suggest id 1 even if that slave does not exist.
        return next((f for f in serving if f.broker_id == broker_id), _spread(part, serving))

    def _is_fresh_enough(self, part: QueueRange, found: FindBrokerResult, now: float) -> bool:
        bound = self.max_staleness
        return bound is None or bound.allows(self.views(part), found.broker_id, now)

    def _serves(self, part: QueueRange, found: FindBrokerResult, offset: int, now: float) -> bool:
        return self.views(part).has(found.broker_id, offset, offset + 1, now)


def task_router(addresses: Mapping[str, Mapping[int, str]], router: Router) -> Router:
    """Return the router of one task, which shares with the client's `router` which addresses failed recently."""
    table = {name: dict(addrs) for name, addrs in addresses.items()}
    return Router(broker_addr_table=table, is_avoided=router.is_avoided)


def _spread(part: QueueRange, found: list[FindBrokerResult]) -> FindBrokerResult:
    name = str(part)
    return max(found, key=lambda one: weight(name, one.broker_id))
