"""What is known of each replica of a queue, and how stale the replica is.

    staleness in messages   the end of the queue that the master last reported, minus the replica's
    staleness in seconds    what the replica reported, plus the time since then

Invariant: what was never reported is None, never 0; the master is not stale.
Invariant: old reports count as unknown, except the master's end while the master cannot be asked.
"""

from typing import Final

import attrs

from rocketrio_protocol.codes import MASTER_ID

VIEW_MAX_AGE: Final = 10.0
"""Seconds after which a slave's report of its queue's end counts as unknown."""


@attrs.define
class ReplicaView:
    """One replica's last report on one queue."""

    max_offset: int
    level_age: float | None
    """Seconds since it was level with its master, as of the report; None if it did not report that."""
    seen_at: float
    min_offset: int = 0
    """Where its queue begins, by its last report: a replica may have fewer old messages than others."""


@attrs.define
class ReplicaViews:
    """All replicas of one queue."""

    by_id: dict[int, ReplicaView] = attrs.Factory(dict)

    def note(
        self,
        broker_id: int,
        max_offset: int,
        level_age: float | None,
        now: float,
        *,
        min_offset: int | None = None,
    ) -> None:
        """Note a replica's answer; `min_offset` is None if it did not report where its queue begins."""
        if min_offset is None:
            before = self.by_id.get(broker_id)
            min_offset = 0 if before is None else before.min_offset
        self.by_id[broker_id] = ReplicaView(max_offset, level_age, now, min_offset)

    def age(self, broker_id: int, now: float) -> float:
        """Return the seconds since a replica's last report; infinity without one."""
        view = self.by_id.get(broker_id)
        return float("inf") if view is None else now - view.seen_at

    def staleness_messages(self, broker_id: int, now: float) -> int | None:
        """Return how many of the master's messages a replica lacks; None if unknown."""
        if broker_id == MASTER_ID:
            return 0
        master, view = self.by_id.get(MASTER_ID), self._fresh(broker_id, now)
        # Unknown, and not 0: a bound would pass a slave of which nothing is known.
        if master is None or view is None:
            return None
        if view.max_offset >= master.max_offset:
            return 0  # It reported after its master.
        return master.max_offset - view.max_offset

    def staleness(self, broker_id: int, now: float) -> float | None:
        """Return how many seconds ago a replica had everything; None if unknown."""
        if broker_id == MASTER_ID:
            return 0.0
        view = self._fresh(broker_id, now)
        if view is None or view.level_age is None:
            return None
        return view.level_age + now - view.seen_at

    def has_reached(self, broker_id: int, offset: int, now: float) -> bool:
        """Return False if a replica recently reported that its queue ends before this offset."""
        view = self._fresh(broker_id, now)
        return view is None or view.max_offset >= offset

    def has(self, broker_id: int, start: int, end: int, now: float) -> bool:
        """Return False if a replica recently reported that its queue begins after `start` or ends before `end`."""
        view = self._fresh(broker_id, now)
        return view is None or (view.min_offset <= start and view.max_offset >= end)

    def _fresh(self, broker_id: int, now: float) -> ReplicaView | None:
        view = self.by_id.get(broker_id)
        # Not its last known value: a slave that is silent may be any distance behind by now.
        return None if view is None or now - view.seen_at > VIEW_MAX_AGE else view


NEWEST_SHARE: Final = 0.25
"""The weight of the newest measurement: a minute's measurements are enough to follow a change of route."""


@attrs.define
class SmoothedRoundTrips:
    """Smoothed round trips in seconds, and when each was last measured."""

    _seconds: dict[str, float] = attrs.Factory(dict)
    _measured_at: dict[str, float] = attrs.Factory(dict)

    def note(self, addr: str, seconds: float, now: float) -> None:
        """Add a measurement."""
        before = self._seconds.get(addr, seconds)
        self._seconds[addr] = before + (seconds - before) * NEWEST_SHARE
        self._measured_at[addr] = now

    def seconds(self, addr: str) -> float | None:
        """Return the round trip to an address; None if it was never measured."""
        return self._seconds.get(addr)

    def age(self, addr: str, now: float) -> float:
        """Return the seconds since the last measurement; infinity without one."""
        return now - self._measured_at.get(addr, float("-inf"))

    def forget(self, addr: str) -> None:
        """Forget an address that is in no route any more."""
        self._seconds.pop(addr, None)
        self._measured_at.pop(addr, None)
