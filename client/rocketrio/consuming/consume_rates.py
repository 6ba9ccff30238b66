"""A consumer's rates by topic, computed from the differences between samples of its queues' counts.

    every commit round         one sample: what was counted since the last one is added to the topic
    every status request       one more sample; rates cover the last minute, failed messages the last hour

Invariant: no work is done per message; each queue is sampled every few seconds.
Invariant: a queue's counts stay in its topic's sum when the queue moves to another member.
Answers to: ConsumerStatsManager, StatsItemSet.
Unlike Java: no stopwatch runs per message. The time of a message is the average number of messages that handlers had,
divided by the number done per second (Little's law). It is 0 if a loop receives the messages: a loop does not report
when a message is done.
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
"""Seconds between two remembered samples: a minute has 60 at most, however often status is requested."""
HOUR: Final = 3600.0
HOUR_SPACING: Final = 300.0


class Counts(NamedTuple):
    """Counts of a topic or a queue since the beginning. A tuple, because thousands of queues are sampled."""

    pulls: int = 0
    pull_seconds: float = 0.0
    pulled: int = 0
    done: int = 0
    """Messages that the consumer no longer holds: handled, or given to the caller's loop."""
    failed: int = 0
    handed_back: int = 0
    busy_seconds: float = 0.0
    """Seconds that messages were with handlers, summed over all messages."""

    def plus(self, other: "Counts") -> "Counts":
        """Return the sum of both."""
        return Counts(*map(add, self, other))

    def minus(self, other: "Counts") -> "Counts":
        """Return what was counted since `other`."""
        return Counts(*map(sub, self, other))


NOTHING: Final = Counts()


@attrs.define(eq=False)
class _Seen:
    """A queue at the last sample."""

    counts: Counts
    owned_since: float
    moved_at: float
    """When a message of the queue was last seen to be done or to fail, or when the queue was taken over."""


@attrs.define
class _Window:
    """The samples of a time span, and the last one before it."""

    length: float
    spacing: float
    _samples: deque[tuple[float, dict[str, Counts]]] = attrs.Factory(deque)

    def note(self, now: float, totals: Mapping[str, Counts]) -> None:
        samples = self._samples
        if samples and now < samples[-1][0] + self.spacing:
            return
        samples.append((now, dict(totals)))
        while len(samples) > 1 and samples[1][0] <= now - self.length:
            samples.popleft()

    def first(self, topic: str) -> tuple[float, Counts]:
        """Return when the window begins, and the topic's counts at that time."""
        at, totals = self._samples[0]
        return at, totals.get(topic, NOTHING)


@attrs.define(eq=False)
class ConsumeRates:
    """The rates of one consumer."""

    queues: Mapping[MessageQueue, ProcessQueue]
    """The queues that are owned now."""
    position: Callable[[ProcessQueue], int | None]
    """Returns the offset of a queue that is handed out next."""
    _totals: dict[str, Counts] = attrs.Factory(dict)
    _seen: dict[ProcessQueue, _Seen] = attrs.Factory(dict)
    _looked_at: float = attrs.Factory(trio.current_time)
    _minute: _Window = attrs.Factory(lambda: _Window(MINUTE, MINUTE_SPACING))
    _hour: _Window = attrs.Factory(lambda: _Window(HOUR, HOUR_SPACING))

    def __attrs_post_init__(self) -> None:
        self.sample()

    def sample(self) -> None:
        """Sample the queues: add what was counted since the last sample."""
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
        """Return when an owned queue was taken over."""
        return self._seen[process_queue].owned_since

    def moved_at(self, process_queue: ProcessQueue) -> float:
        """Return when a message of an owned queue last succeeded or failed, or else when the queue was taken over."""
        return self._seen[process_queue].moved_at

    def status(self, topic: str) -> ConsumeStatus:
        """Return the rates of a topic as of the last sample."""
        total = self._totals.get(topic, NOTHING)
        since, before = self._minute.first(topic)
        seconds = self._looked_at - since
        if seconds <= 0:
            return ConsumeStatus()
        recent = total.minus(before)
        # A message that is handed back while a handler has it counts as done slightly too early.
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
