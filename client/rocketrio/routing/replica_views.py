"""What is known of each replica of a queue, and so how stale it is.

    staleness in messages   the master's end of the queue, as it last said, less the replica's
    staleness in seconds    what the replica said, and the time since then

Invariant: what nobody said is None, never 0; the master is not stale.
Invariant: what was said long ago is not known any more, but for the master's end while the master cannot be asked.
"""

from typing import Final

import attrs

from rocketrio_protocol.codes import MASTER_ID

VIEW_MAX_AGE: Final = 10.0
"""Seconds after which what a slave said of its end of the queue is not known any more."""


@attrs.define
class ReplicaView:
    """One replica's last word on one queue."""

    max_offset: int
    level_age: float | None
    """Seconds since it had been level with its master, when it said so; None if it did not say."""
    seen_at: float
    min_offset: int = 0
    """Where its queue begins, as it said last: a replica may have less of the past than others."""


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
        """A replica has answered; None: it did not say where its queue begins."""
        if min_offset is None:
            before = self.by_id.get(broker_id)
            min_offset = 0 if before is None else before.min_offset
        self.by_id[broker_id] = ReplicaView(max_offset, level_age, now, min_offset)

    def age(self, broker_id: int, now: float) -> float:
        """Seconds since a replica's last word; endless if there was none."""
        view = self.by_id.get(broker_id)
        return float("inf") if view is None else now - view.seen_at

    def staleness_messages(self, broker_id: int, now: float) -> int | None:
        """How many messages of the master's a replica lacks; None if that is not known."""
        if broker_id == MASTER_ID:
            return 0
        master, view = self.by_id.get(MASTER_ID), self._fresh(broker_id, now)
        if master is None or view is None:
            return None
        return max(0, master.max_offset - view.max_offset)

    def staleness(self, broker_id: int, now: float) -> float | None:
        """How many seconds ago a replica had everything; None if that is not known."""
        if broker_id == MASTER_ID:
            return 0.0
        view = self._fresh(broker_id, now)
        if view is None or view.level_age is None:
            return None
        return view.level_age + now - view.seen_at

    def has_reached(self, broker_id: int, offset: int, now: float) -> bool:
        """False for a replica that said a moment ago that its queue ends before this offset."""
        view = self._fresh(broker_id, now)
        return view is None or view.max_offset >= offset

    def begins_after(self, broker_id: int, offset: int, now: float) -> bool:
        """True for a replica that said a moment ago that its queue begins behind this offset."""
        view = self._fresh(broker_id, now)
        return view is not None and view.min_offset > offset

    def _fresh(self, broker_id: int, now: float) -> ReplicaView | None:
        view = self.by_id.get(broker_id)
        return None if view is None or now - view.seen_at > VIEW_MAX_AGE else view
