"""Computes the end of a stream's next batch, from what was read so far and what the queues hold now. Pure.

    start of a poll, view of the cluster, limits  ->  end of the next batch, what was lost before it

Invariant: a position never goes back, except in a queue that was created again, after that is reported as a loss: to
its oldest message if the broker says that the topic is another one, otherwise to its end.
Invariant: every queue of the start is in the end; a queue that is gone or does not answer keeps its offset.
Invariant: a new queue begins at its oldest message with nothing to read: the next batch then has a start that is in
Spark's log, so that a replay reads the same messages.
Invariant: with a target (Trigger.AvailableNow) the steps come to an end, whatever happens to the queues.
Answers to: latestOffset, rateLimit and delayBatch of Spark's KafkaMicroBatchStream.
Unlike Kafka: a queue is gone only if its broker is alive; the stream waits for a broker that does not answer.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from rocketrio.spark.errors import OffsetOutOfRangeError
from rocketrio.spark.reading.offsets import Bounds, Loss, OffsetTable
from rocketrio_protocol.message import MessageQueue

SHRUNK_GRACE: Final = 10.0
"""Seconds that a queue may be shorter than what was read of it: a master that returns gets the end of its log from its
slaves, and a promoted slave may need as long to read its own."""


@attrs.frozen
class Seen:
    """What a queue holds."""

    bounds: Bounds
    is_certain: bool = True
    """True if the queue's master reported this; a slave may be behind, so a loss is never concluded from it."""


@attrs.frozen
class View:
    """The cluster at one moment. A queue that is in no field has a broker that does not answer, or may not be read."""

    held: Mapping[MessageQueue, Seen]
    gone: frozenset[MessageQueue] = frozenset()
    """Queues that their brokers, which are alive, do not have any more."""
    retired: Mapping[MessageQueue, int | None] = attrs.Factory(dict)
    """Queues of brokers that the user has retired and no name server knows, with their last known ends."""


@attrs.frozen
class Step:
    """The end of the next batch."""

    end: dict[MessageQueue, int]
    rows: int
    """The number of offsets between start and end that are to be read."""
    losses: list[OffsetOutOfRangeError]
    """Messages that should have been read and do not exist; each loss is reported once."""
    incarnations: dict[MessageQueue, int] = attrs.Factory(dict)
    """Which of several topics of one name the end counts, as far as brokers report it."""


@attrs.frozen
class Part:
    """What can be read of a queue: from `first` to before `last`, perhaps nothing."""

    first: int
    last: int


class StreamPosition:
    """The state between steps; none of it survives a restart."""

    def __init__(self, *, min_rows: int | None = None, max_delay: float = 0.0) -> None:
        """Let a batch wait for `min_rows`, but not longer than `max_delay` seconds after the previous one."""
        self._min_rows = min_rows
        self._max_delay = max_delay
        self._last_batch_at: float | None = None
        self._target: dict[MessageQueue, int] | None = None  # None: the stream has no end.
        self._shrunk_at: dict[MessageQueue, float] = {}
        self._reported: dict[MessageQueue, list[str]] = {}
        self.incarnations: dict[MessageQueue, int] = {}
        """Which of several topics of one name was read, as far as it is known."""

    def set_target(self, view: View) -> None:
        """Read everything that exists now, and nothing that comes later."""
        self._target = {queue: seen.bounds.max_offset for queue, seen in view.held.items()}

    def add_targets(self, start: OffsetTable, view: View) -> None:
        """Read what exists now also of queues of the start whose brokers did not answer when the target was set."""
        if self._target is not None:
            for queue in start.keys() & view.held.keys():
                self._target.setdefault(queue, view.held[queue].bounds.max_offset)

    def step(
        self,
        start: OffsetTable,
        view: View,
        *,
        now: float,
        max_rows: int | None = None,
        is_whole: bool = False,
    ) -> Step:
        """Return the next end, at most `max_rows` further (but one for each queue); `is_whole` never waits for rows."""
        parts = self.parts(start, view)
        cut, losses = self._losses(start, view, now)
        # Lost offsets before a part are skipped, even if nothing follows.
        end = {**start, **self._new_queues(start, view), **cut}
        end |= {queue: part.first for queue, part in parts.items()}
        backlog = {queue: part.last - part.first for queue, part in parts.items()}
        rows = sum(backlog.values())
        incarnations = self._incarnations_of(end, view)
        if not rows or not (is_whole or self._is_due(rows, now)):
            return Step(end, 0, losses, incarnations)
        self._last_batch_at = now
        taken = shares(backlog, max_rows)
        for queue, count in taken.items():
            end[queue] += count
        return Step(end, sum(taken.values()), losses, incarnations)

    def _incarnations_of(self, end: OffsetTable, view: View) -> dict[MessageQueue, int]:
        seen = {
            queue: held.bounds.incarnation
            for queue, held in view.held.items()
            if held.bounds.incarnation is not None
        }
        known = {**self.incarnations, **seen}
        return {queue: known[queue] for queue in end if queue in known}

    def _begins_again(self, queue: MessageQueue, seen: Seen | None) -> bool:
        """Return True if the topic was deleted and created again since the queue was read."""
        before = self.incarnations.get(queue)
        now = None if seen is None or not seen.is_certain else seen.bounds.incarnation
        return before is not None and now is not None and before < now

    def is_waiting(self, start: OffsetTable, view: View, now: float) -> bool:
        """Return True if the next step would omit a queue that is shorter than what was read of it."""
        return any(
            self._may_grow_back(queue, start[queue], seen.bounds, now)
            for queue, seen in view.held.items()
            if seen.is_certain and queue in start and not self._begins_again(queue, seen)
        )

    def parts(self, start: OffsetTable, view: View) -> dict[MessageQueue, Part]:
        """Return what a step without limits would read, for the queues where it would advance."""
        parts: dict[MessageQueue, Part] = {}
        for queue, at in sorted(start.items()):
            seen = view.held.get(queue)
            if seen is not None and self._begins_again(queue, seen):
                at = seen.bounds.min_offset
            part = self._part(queue, at, view)
            if part is not None and part.last > at:
                parts[queue] = part
        return parts

    def _part(self, queue: MessageQueue, at: int, view: View) -> Part | None:
        seen = view.held.get(queue)
        if self._target is None:
            if seen is None:
                return None
            last = seen.bounds.max_offset
        elif queue in view.gone:
            return None
        else:
            # Even if no broker answers: a step without progress would end the query before its target.
            last = self._target.get(queue, at)
            if seen is not None and seen.is_certain:
                last = min(last, seen.bounds.max_offset)
        first = at
        if seen is not None and seen.is_certain:
            first = min(max(at, seen.bounds.min_offset), max(at, last))
        return Part(first, last)

    def _is_due(self, rows: int, now: float) -> bool:
        if self._min_rows is None or rows >= self._min_rows or self._target is not None:
            return True
        return self._last_batch_at is None or now - self._last_batch_at >= self._max_delay

    def _new_queues(self, start: OffsetTable, view: View) -> dict[MessageQueue, int]:
        return {
            queue: seen.bounds.min_offset
            for queue, seen in view.held.items()
            if queue not in start
            and seen.is_certain
            and (self._target is None or queue in self._target)
        }

    def _losses(
        self, start: OffsetTable, view: View, now: float
    ) -> tuple[dict[MessageQueue, int], list[OffsetOutOfRangeError]]:
        """Return where truncated queues continue, and all losses that were not reported before."""
        cut: dict[MessageQueue, int] = {}
        losses: list[OffsetOutOfRangeError] = []
        for queue, at in sorted(start.items()):
            found: list[OffsetOutOfRangeError] = []
            seen = view.held.get(queue)
            if queue in view.gone:
                found = [_gone(queue, at)]
            elif queue in view.retired:
                found = _retired(queue, at, view.retired[queue])
            elif seen is not None and self._begins_again(queue, seen):
                found, cut[queue] = [created_again(queue, at, seen.bounds)], seen.bounds.min_offset
            elif seen is not None and seen.is_certain:
                found, goes_on_at = self._lost_of(queue, at, seen.bounds, now)
                if goes_on_at is not None:
                    cut[queue] = goes_on_at
            texts = [loss.what for loss in found]
            if texts and texts != self._reported.get(queue):
                self._reported[queue] = texts
                losses += found
        return cut, losses

    def _lost_of(
        self, queue: MessageQueue, at: int, held: Bounds, now: float
    ) -> tuple[list[OffsetOutOfRangeError], int | None]:
        losses: list[OffsetOutOfRangeError] = []
        if at < held.min_offset:
            losses.append(Loss(queue, at, held.min_offset, held).error())
        if self._may_grow_back(queue, at, held, now):
            return losses, None
        if held.max_offset < at:
            return [*losses, _cut(queue, at, held)], held.max_offset
        if self._target is not None and held.max_offset < self._target.get(queue, at):
            losses.append(Loss(queue, held.max_offset, self._target[queue], held).error())
        return losses, None

    def _may_grow_back(self, queue: MessageQueue, at: int, held: Bounds, now: float) -> bool:
        """Return True if a queue is shorter than what was read of it, but too recently to count as a loss."""
        if held.max_offset >= at:
            self._shrunk_at.pop(queue, None)
            return False
        since = self._shrunk_at.setdefault(queue, now)
        return self._target is None and now - since < SHRUNK_GRACE


def shares(backlog: Mapping[MessageQueue, int], limit: int | None) -> dict[MessageQueue, int]:
    """Divide `limit` among the queues in proportion to their backlogs, at least one for each queue with a backlog.

    If more queues than `limit` have a backlog, the sum is their number, so that each queue advances.
    """
    total = sum(backlog.values())
    if limit is None or total <= limit:
        return dict(backlog)
    taken = {queue: max(min(1, count), count * limit // total) for queue, count in backlog.items()}
    # Queues that got one although their share was none take it from those that got most.
    excess = sum(taken.values()) - max(limit, sum(map(bool, taken.values())))
    for queue in sorted(taken, key=lambda queue: taken[queue], reverse=True):
        if excess <= 0:
            break
        given = min(excess, taken[queue] - 1)
        taken[queue] -= given
        excess -= given
    return taken


def _gone(queue: MessageQueue, at: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"{queue} is gone: it was read to before {at}, and its broker, which lives, does not have it any more"
    )


def _retired(queue: MessageQueue, at: int, end: int | None) -> list[OffsetOutOfRangeError]:
    if end is not None and at >= end:
        return []
    unread = "whether it held more is not known"
    if end is not None:
        unread = f"offsets {at} to {end} ({end - at} messages) are unread"
    return [
        OffsetOutOfRangeError(
            f"{queue} was read to before {at}, and its broker is retired (retiredBrokers): {unread}",
            remedy="Start the broker again to read them, or set failOnDataLoss=false for one run to go on without them",
        )
    ]


def created_again(queue: MessageQueue, at: int, held: Bounds) -> OffsetOutOfRangeError:
    """Return the loss of what an earlier topic of that name held from an offset on."""
    return OffsetOutOfRangeError(
        f"the topic of {queue} was deleted: it was read to before {at}, and what it held after that is lost; the topic"
        f" of that name now holds {held.min_offset} to {held.max_offset} there"
    )


def _cut(queue: MessageQueue, at: int, held: Bounds) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"{queue} was truncated or recreated: it was read to before {at}, and holds {held.min_offset} to"
        f" {held.max_offset}; what was stored below {held.max_offset} since then is not read"
    )
