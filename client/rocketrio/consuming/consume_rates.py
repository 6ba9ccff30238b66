"""How fast a consumer is, by topic: looks at the counts of its queues, and what lies between two looks.

    every round of commits     a look: what was counted since the last one is added to the topic
    a question                 one more; rates are over the last minute, failed messages over the last hour

Invariant: no message costs anything; a queue is looked at every few seconds.
Invariant: what a queue counted stays in its topic's sum when the queue moves to another member.
Answers to: ConsumerStatsManager, StatsItemSet.
Unlike Java: no watch is stopped for a message. The time one takes is how many messages handlers had on average, divided
by how many were done a second (Little's law), and 0 where a loop gets the messages: nobody says when one is done.
"""

from collections import deque
from collections.abc import Callable, Mapping
from operator import add, sub
from typing import Final, NamedTuple

import attrs
import trio

from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio_protocol.bodies.running_info import ConsumeStatus
from rocketrio_protocol.message import MessageQueue

MINUTE: Final = 60.0
MINUTE_SPACING: Final = 1.0
"""Seconds between two looks that are remembered: a minute has 60 at most, however often somebody asks."""
HOUR: Final = 3600.0
HOUR_SPACING: Final = 300.0


class Counts(NamedTuple):
    """Of a topic or of a queue, since the beginning. A tuple, as there are thousands of queues to look at."""

    pulls: int = 0
    pull_seconds: float = 0.0
    pulled: int = 0
    done: int = 0
    """Messages that are out of our hands: worked on, or with the caller's loop."""
    failed: int = 0
    handed_back: int = 0
    busy_seconds: float = 0.0
    """Seconds that handlers had messages, of all messages together."""

    def plus(self, other: "Counts") -> "Counts":
        """Both."""
        return Counts(*map(add, self, other))

    def minus(self, other: "Counts") -> "Counts":
        """What came since `other`."""
        return Counts(*map(sub, self, other))


NOTHING: Final = Counts()


@attrs.define(eq=False)
class _Seen:
    """A queue at the last look."""

    counts: Counts
    owned_since: float
    moved_at: float
    """When a message of it was last seen to be done or to fail, or the queue was new."""


@attrs.define
class _Window:
    """The looks of a span of time, and the last one before it."""

    length: float
    spacing: float
    _looks: deque[tuple[float, dict[str, Counts]]] = attrs.Factory(deque)

    def note(self, now: float, totals: Mapping[str, Counts]) -> None:
        looks = self._looks
        if looks and now < looks[-1][0] + self.spacing:
            return
        looks.append((now, dict(totals)))
        while len(looks) > 1 and looks[1][0] <= now - self.length:
            looks.popleft()

    def first(self, topic: str) -> tuple[float, Counts]:
        """When it begins, and what was counted by then."""
        at, totals = self._looks[0]
        return at, totals.get(topic, NOTHING)


@attrs.define(eq=False)
class ConsumeRates:
    """Those of one consumer."""

    queues: Mapping[MessageQueue, ProcessQueue]
    """Owned now."""
    position: Callable[[ProcessQueue], int | None]
    """What of a queue is handed out next."""
    _totals: dict[str, Counts] = attrs.Factory(dict)
    _seen: dict[ProcessQueue, _Seen] = attrs.Factory(dict)
    _looked_at: float = attrs.Factory(trio.current_time)
    _minute: _Window = attrs.Factory(lambda: _Window(MINUTE, MINUTE_SPACING))
    _hour: _Window = attrs.Factory(lambda: _Window(HOUR, HOUR_SPACING))

    def __attrs_post_init__(self) -> None:
        self.look()

    def look(self) -> None:
        """Add what was counted since the last look."""
        now = trio.current_time()
        spent, self._looked_at = now - self._looked_at, now
        before, self._seen = self._seen, {}
        for queue, process_queue in self.queues.items():
            seen = before.get(process_queue) or _Seen(NOTHING, now, now)
            self._seen[process_queue] = seen
            last, counts = seen.counts, self._counts(process_queue, seen.counts, spent)
            if counts == last:
                continue
            seen.counts = counts
            if (counts.done, counts.failed) != (last.done, last.failed):
                seen.moved_at = now
            total = self._totals.get(queue.topic, NOTHING)
            self._totals[queue.topic] = total.plus(counts.minus(last))
        self._minute.note(now, self._totals)
        self._hour.note(now, self._totals)

    def _counts(self, process_queue: ProcessQueue, last: Counts, spent: float) -> Counts:
        counted = process_queue.counts
        in_work = len(process_queue.unfinished)
        here = process_queue.waiting_count(self.position(process_queue)) + in_work
        return Counts(
            counted.pulls,
            counted.pull_seconds,
            counted.pulled,
            counted.pulled - counted.forgotten - here,
            counted.failed,
            counted.handed_back,
            last.busy_seconds + in_work * spent,
        )

    def owned_since(self, process_queue: ProcessQueue) -> float:
        """When an owned queue was taken over."""
        return self._seen[process_queue].owned_since

    def moved_at(self, process_queue: ProcessQueue) -> float:
        """When a message of an owned queue was last seen to be done or to fail, or the queue was new."""
        return self._seen[process_queue].moved_at

    def status(self, topic: str) -> ConsumeStatus:
        """As of the last look."""
        total = self._totals.get(topic, NOTHING)
        since, before = self._minute.first(topic)
        seconds = self._looked_at - since
        if seconds <= 0:
            return ConsumeStatus()
        recent = total.minus(before)
        # What goes elsewhere while handlers have messages of it counts as done a moment too early.
        tries = max(0, recent.done - recent.handed_back + recent.failed)
        _, an_hour_ago = self._hour.first(topic)
        return ConsumeStatus(
            pull_rt=recent.pull_seconds * 1000 / recent.pulls if recent.pulls else 0.0,
            pull_tps=recent.pulled / seconds,
            consume_rt=recent.busy_seconds * 1000 / tries if tries else 0.0,
            consume_ok_tps=max(0, recent.done - recent.handed_back) / seconds,
            consume_failed_tps=recent.failed / seconds,
            consume_failed_msgs=total.minus(an_hour_ago).failed,
        )
