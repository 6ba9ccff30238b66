"""Chooses where one reader pulls each of its queues from: applies the policy to what is known, and gives the reason.

A reader is a consumer's group, or one range of a Spark task.

Invariant: every choice has a reason, and is counted for its queue.
Invariant: `master` never reads from a slave, and a bound on staleness holds even if no slave is within it.
Answers to: PullAPIWrapper.pullKernelImpl's choice of an address.
"""

from collections.abc import Callable, Collection
from enum import Enum
from typing import Final

import attrs

from rocketrio.routing.read_policy import SUGGESTED, ReplicaPolicy
from rocketrio.routing.replica_views import ReplicaViews
from rocketrio.routing.router import FindBrokerResult, Router
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.rendezvous import weight

NEARER_FACTOR: Final = 0.8
"""A pull moves only to a replica that is a fifth nearer: two at the same distance would alternate."""


class PullReason(Enum):
    """Why a pull went where it went."""

    DEFAULT = "nothing was suggested yet: the master"
    SUGGESTED = "the last answer suggested it"
    BY_USER = "default_broker_id, with connect_broker_by_user"
    MASTER = "only the master is to be read"
    NEAREST = "the shortest round trip"
    REPLICA = "a slave within the bound on staleness"
    TOO_STALE = "the master: no slave is known to be within the bound"
    NOT_THERE_YET = "the master: no slave has reached this offset"
    BEGINS_LATER = "the master: no slave has messages as old as this offset"
    SKIPPED = "the preferred address failed recently or is unknown"


# Accessing a member of an enumeration costs a call.
_SUGGESTED: Final = PullReason.SUGGESTED
_REPLICA: Final = PullReason.REPLICA


@attrs.define
class PullChoice:
    """An address, and why it was chosen."""

    found: FindBrokerResult
    reason: PullReason


@attrs.define
class PullCounts:
    """Where the pulls of one queue went."""

    last: PullChoice
    _in_a_row: int = 0
    """The number of consecutive pulls for the last reason: usually all of them."""
    _before: dict[PullReason, int] = attrs.Factory(dict)

    def add(self, choice: PullChoice) -> None:
        """Count one more pull."""
        if choice.reason is not self.last.reason:
            # Summed up only when the reason changes: usually it never does.
            self._before = self.by_reason
            self._in_a_row = 0
        self.last = choice
        self._in_a_row += 1

    @property
    def by_reason(self) -> dict[PullReason, int]:
        """The number of pulls for each reason."""
        counts = dict(self._before)
        if self._in_a_row:
            reason = self.last.reason
            counts[reason] = counts.get(reason, 0) + self._in_a_row
        return counts


def _no_round_trip(addr: str) -> float | None:
    return None


@attrs.define
class PullNodes:
    """The choices of one reader."""

    router: Router
    reader: str
    """Its name: readers of different names spread over the slaves, and each has its table of suggestions."""
    policy: ReplicaPolicy = SUGGESTED
    round_trip: Callable[[str], float | None] = _no_round_trip
    """Returns the seconds that an address takes to answer; None if that was not measured."""
    counts: dict[MessageQueue, PullCounts] = attrs.Factory(dict)
    views: dict[MessageQueue, ReplicaViews] = attrs.Factory(dict)
    """What replicas reported of each queue; ranges of one Spark task share it."""

    def count(self, queue: MessageQueue, choice: PullChoice) -> None:
        """Count a pull."""
        counts = self.counts.get(queue)
        if counts is None:
            counts = self.counts[queue] = PullCounts(choice)
        counts.add(choice)

    def keep(self, queues: Collection[MessageQueue]) -> None:
        """Forget everything about queues that are not in `queues`."""
        for table in (self.counts, self.views):
            for queue in [queue for queue in table if queue not in queues]:
                del table[queue]

    def views_of(self, queue: MessageQueue) -> ReplicaViews:
        """Return what the replicas of a queue reported; called only if the policy needs it."""
        return self.views.setdefault(queue, ReplicaViews())

    def lacks(self, queue: MessageQueue, found: FindBrokerResult, now: float) -> None:
        """Record that a slave answered, but does not know the queue yet or is behind the reader."""
        self.views_of(queue).note(found.broker_id, -1, None, now)

    def choose(
        self, queue: MessageQueue, offset: int, *, now: float, tried: Collection[str] = ()
    ) -> PullChoice | None:
        """Return where the next pull goes, not to an address in `tried`; None if no address is acceptable."""
        read_from = self.policy.read_from
        if read_from == "suggested":
            return self._suggested(queue, tried)
        if read_from == "master":
            return self._only_master(queue, PullReason.MASTER, tried)
        if read_from == "nearest":
            return self._nearest(queue, offset, now, tried)
        if read_from == "auto":
            return self._auto(queue, offset, now, tried)
        return self._slave(queue, offset, now, tried)

    def _suggested(self, queue: MessageQueue, tried: Collection[str]) -> PullChoice | None:
        # Every pull runs this: `recalculate_pull_from_which_node`, and the reason.
        router = self.router
        table = router.pull_from_which_node_tables.get(self.reader)
        broker_id = None if table is None else table.get(queue)
        reason = _SUGGESTED
        if router.connect_broker_by_user:
            broker_id, reason = router.default_broker_id, PullReason.BY_USER
        elif broker_id is None:
            broker_id, reason = MASTER_ID, PullReason.DEFAULT
        found = router.find_broker_address_in_subscribe(queue.broker_name, broker_id)
        if found is not None and found.addr in tried:
            left = router.candidates(queue.broker_name, first=broker_id)
            found = next((other for other in left if other.addr not in tried), None)
        if found is None:
            return None
        return PullChoice(found, reason if found.broker_id == broker_id else PullReason.SKIPPED)

    def _only_master(
        self, queue: MessageQueue, reason: PullReason, tried: Collection[str]
    ) -> PullChoice | None:
        addr = self.router.find_broker_address_in_publish(queue.broker_name)
        if addr is None or addr in tried:
            return None
        return PullChoice(FindBrokerResult(addr, MASTER_ID), reason)

    def _nearest(
        self, queue: MessageQueue, offset: int, now: float, tried: Collection[str]
    ) -> PullChoice | None:
        usable = [
            found
            for found in self._live(queue, tried)
            if not found.is_slave or self._serves(queue, found, offset, now)
        ]
        if not usable:
            return self._rest(queue, offset, now, tried)
        current = self._current(queue, usable)
        nearest = min(usable, key=lambda found: (self._distance(found), found.broker_id))
        if current is not None and self._distance(nearest) > (
            self._distance(current) * NEARER_FACTOR
        ):
            nearest = current
        return PullChoice(nearest, PullReason.NEAREST)

    def _auto(
        self, queue: MessageQueue, offset: int, now: float, tried: Collection[str]
    ) -> PullChoice | None:
        router = self.router
        broker_id = router.recalculate_pull_from_which_node(queue, self.reader)
        repeated = self._repeated(queue, offset, now, tried, _SUGGESTED)
        if repeated is not None and repeated.found.broker_id == broker_id:
            return repeated
        if broker_id == MASTER_ID:
            master = self._only_master(queue, _SUGGESTED, tried)
            if master is not None and not router.is_avoided(master.found.addr):
                return master
        return self._slave(queue, offset, now, tried, suggested_id=broker_id)

    def _slave(
        self,
        queue: MessageQueue,
        offset: int,
        now: float,
        tried: Collection[str],
        suggested_id: int = MASTER_ID,
    ) -> PullChoice | None:
        if suggested_id == MASTER_ID:
            repeated = self._repeated(queue, offset, now, tried, _REPLICA)
            if repeated is not None:
                return repeated
        usable = [
            found
            for found in self._live(queue, tried)
            if found.is_slave and self._serves(queue, found, offset, now)
        ]
        if not usable:
            return self._rest(queue, offset, now, tried)
        # Apache's masters suggest id 1 even if that slave does not exist. A reader stays with its slave; its first
        # slave is chosen by the reader's name, so that readers spread.
        suggested = next((found for found in usable if found.broker_id == suggested_id), None)
        if suggested is not None:
            return PullChoice(suggested, _SUGGESTED)
        current = self._current(queue, usable)
        if current is None:
            current = max(usable, key=lambda found: weight(self.reader, found.broker_id))
        return PullChoice(current, _REPLICA)

    def _repeated(
        self,
        queue: MessageQueue,
        offset: int,
        now: float,
        tried: Collection[str],
        reason: PullReason,
    ) -> PullChoice | None:
        """Return the last choice if it was made for this reason and still holds: much cheaper than a new one."""
        counts = self.counts.get(queue)
        if counts is None or tried or counts.last.reason is not reason:
            return None
        found, router = counts.last.found, self.router
        addrs = router.broker_addr_table.get(queue.broker_name, {})
        if addrs.get(found.broker_id) != found.addr or router.is_avoided(found.addr):
            return None
        if found.is_slave and not self._serves(queue, found, offset, now):
            return None
        return counts.last

    def _rest(
        self, queue: MessageQueue, offset: int, now: float, tried: Collection[str]
    ) -> PullChoice | None:
        """Return the master, because no slave is acceptable; any other replica within the bound will do too."""
        slaves = [found for found in self.router.live(queue.broker_name) if found.is_slave]
        if not slaves:
            reason = PullReason.SKIPPED
        elif any(not self._is_within(queue, found, now) for found in slaves):
            reason = PullReason.TOO_STALE
        elif any(not self._has_reached(queue, found, offset, now) for found in slaves):
            reason = PullReason.NOT_THERE_YET
        else:
            reason = PullReason.BEGINS_LATER
        # No slave at all: a consumer that has set a bound rather waits for the master than for a slave to come so far.
        if self.policy.is_bounded and self.policy.waits:
            return self._only_master(queue, reason, tried)
        for found in self.router.candidates(queue.broker_name):
            if found.addr not in tried and self._is_within(queue, found, now):
                return PullChoice(found, reason)
        return None

    def _live(self, queue: MessageQueue, tried: Collection[str]) -> list[FindBrokerResult]:
        return [found for found in self.router.live(queue.broker_name) if found.addr not in tried]

    def _current(
        self, queue: MessageQueue, usable: list[FindBrokerResult]
    ) -> FindBrokerResult | None:
        counts = self.counts.get(queue)
        return counts.last.found if counts is not None and counts.last.found in usable else None

    def _distance(self, found: FindBrokerResult) -> float:
        seconds = self.round_trip(found.addr)
        return float("inf") if seconds is None else seconds

    def _serves(
        self, queue: MessageQueue, found: FindBrokerResult, offset: int, now: float
    ) -> bool:
        """Return whether a slave is fresh enough and, as far as is known, has the message at the offset."""
        end = offset if self.policy.waits else offset + 1
        return self._is_within(queue, found, now) and self.views_of(queue).has(
            found.broker_id, offset, end, now
        )

    def _is_within(self, queue: MessageQueue, found: FindBrokerResult, now: float) -> bool:
        """Return whether a slave is known to be within the bounds; always true without bounds."""
        bound = self.policy.bound
        return bound is None or bound.allows(self.views_of(queue), found.broker_id, now)

    def _has_reached(
        self, queue: MessageQueue, found: FindBrokerResult, offset: int, now: float
    ) -> bool:
        return self.views_of(queue).has_reached(found.broker_id, offset, now)
