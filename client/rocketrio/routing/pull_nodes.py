"""Chooses where one group pulls each of its queues from: applies the policy to what is known, and gives the reason.

Invariant: every choice has a reason, and is counted for its queue.
Invariant: `master` never reads from a slave, and a bound on staleness holds even if no slave is within it.
Answers to: PullAPIWrapper.pullKernelImpl's choice of an address.
"""

from collections.abc import Callable, Collection
from enum import Enum
from typing import Final

import attrs

from rocketrio.routing.read_policy import SUGGESTED, ReadPolicy
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


_SUGGESTED: Final = PullReason.SUGGESTED  # accessing a member of an enumeration costs a call


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
    """The choices of one consumer."""

    router: Router
    group: str
    policy: ReadPolicy = SUGGESTED
    round_trip: Callable[[str], float | None] = _no_round_trip
    """Returns the seconds that an address takes to answer; None if that was not measured."""
    counts: dict[MessageQueue, PullCounts] = attrs.Factory(dict)
    views: dict[MessageQueue, ReplicaViews] = attrs.Factory(dict)

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

    def choose(self, queue: MessageQueue, offset: int, *, now: float) -> PullChoice | None:
        """Return where the next pull goes; None if no address is acceptable."""
        read_from = self.policy.read_from
        if read_from == "suggested":
            return self._suggested(queue)
        if read_from == "master":
            return self._only_master(queue, PullReason.MASTER)
        if read_from == "nearest":
            return self._nearest(queue, offset, now)
        return self._replica(queue, offset, now)

    def _suggested(self, queue: MessageQueue) -> PullChoice | None:
        # Every pull runs this: `recalculate_pull_from_which_node`, and the reason.
        router = self.router
        table = router.pull_from_which_node_tables.get(self.group)
        broker_id = None if table is None else table.get(queue)
        reason = _SUGGESTED
        if router.connect_broker_by_user:
            broker_id, reason = router.default_broker_id, PullReason.BY_USER
        elif broker_id is None:
            broker_id, reason = MASTER_ID, PullReason.DEFAULT
        found = router.find_broker_address_in_subscribe(queue.broker_name, broker_id)
        if found is None:
            return None
        return PullChoice(found, reason if found.broker_id == broker_id else PullReason.SKIPPED)

    def _only_master(self, queue: MessageQueue, reason: PullReason) -> PullChoice | None:
        found = self.router.find_broker_address_in_subscribe(
            queue.broker_name, MASTER_ID, only_this_broker=True
        )
        return None if found is None else PullChoice(found, reason)

    def _nearest(self, queue: MessageQueue, offset: int, now: float) -> PullChoice | None:
        live = self.router.live(queue.broker_name)
        usable = [
            found for found in live if not found.is_slave or self._serves(queue, found, offset, now)
        ]
        if not usable:
            return self._rest(queue, offset, now, live)
        current = self._current(queue, usable)
        nearest = min(usable, key=lambda found: (self._distance(found), found.broker_id))
        if current is not None and self._distance(nearest) > (
            self._distance(current) * NEARER_FACTOR
        ):
            nearest = current
        return PullChoice(nearest, PullReason.NEAREST)

    def _replica(self, queue: MessageQueue, offset: int, now: float) -> PullChoice | None:
        live = self.router.live(queue.broker_name)
        usable = [
            found for found in live if found.is_slave and self._serves(queue, found, offset, now)
        ]
        if not usable:
            return self._rest(queue, offset, now, live)
        # A group stays with its slave; its first slave is chosen by the group's name, so that groups spread.
        current = self._current(queue, usable)
        if current is None:
            current = max(usable, key=lambda found: weight(self.group, found.broker_id))
        return PullChoice(current, PullReason.REPLICA)

    def _rest(
        self, queue: MessageQueue, offset: int, now: float, live: list[FindBrokerResult]
    ) -> PullChoice | None:
        """Return the master, because no slave is acceptable; without a bound any other replica will do too."""
        slaves = [found for found in live if found.is_slave]
        if not slaves:
            reason = PullReason.SKIPPED
        elif any(not self._is_within(queue, found, now) for found in slaves):
            reason = PullReason.TOO_STALE
        elif any(not self._has_reached(queue, found, offset, now) for found in slaves):
            reason = PullReason.NOT_THERE_YET
        else:
            reason = PullReason.BEGINS_LATER
        # No slave at all: a reader that has set a bound rather waits for the master than reads older messages.
        if self.policy.is_bounded:
            return self._only_master(queue, reason)
        found = self.router.find_broker_address_in_subscribe(queue.broker_name, MASTER_ID)
        return None if found is None else PullChoice(found, reason)

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
        return self._is_within(queue, found, now) and self.views_of(queue).has(
            found.broker_id, offset, offset, now
        )

    def _is_within(self, queue: MessageQueue, found: FindBrokerResult, now: float) -> bool:
        """Return whether a slave is known to be within the bounds; always true without bounds."""
        bound = self.policy.bound
        return bound is None or bound.allows(self.views_of(queue), found.broker_id, now)

    def _has_reached(
        self, queue: MessageQueue, found: FindBrokerResult, offset: int, now: float
    ) -> bool:
        return self.views_of(queue).has_reached(found.broker_id, offset, now)
