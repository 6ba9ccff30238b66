"""Verdicts on groups by the rules of `rocketrio lag`, from the pages that were read in the last minute.

Each page is a sample; the pages of two Prometheus servers are more samples. Of the queues of a group only those are
judged that can be the worst: the longest queue of those that stand and of those that went back, and the latest of all.
If that one is behind, all are judged: they may catch up together.
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import trio

from rocketrio_broker.metrics.group_lags import Positions, TopicLag
from rocketrio_broker.offsets.table import TopicAndGroup
from rocketrio_protocol.lag import (
    SAMPLE_EVERY,
    SAMPLES_NEEDED,
    WINDOW,
    Circumstances,
    Owner,
    Sample,
    Verdict,
    judge_queue,
    lateness,
    together,
)

if TYPE_CHECKING:
    from rocketrio_broker.state import BrokerState

_Samples = deque[tuple[float, Positions, int]]
"""When, committed offset and end of each queue, and how often the group had been reset."""

SAMPLES_LIMIT: Final = round(WINDOW / SAMPLE_EVERY) + 1


class Verdicts:
    """Remembers where groups were, and judges how they keep up."""

    def __init__(self, broker: "BrokerState") -> None:
        self._broker = broker
        self._samples: dict[TopicAndGroup, _Samples] = {}
        self._last: dict[TopicAndGroup, _Samples] = {}

    def begin(self) -> None:
        """Begin a page: forget the groups that the last one did not have."""
        self._last, self._samples = self._samples, {}

    def verdict(self, found: TopicLag, log_age_ms: int | None) -> Verdict:
        """Judge a group once a page. `log_age_ms` is None if no message was ever deleted."""
        if found.is_ahead:
            return Verdict.AHEAD
        if found.lag is None:
            return Verdict.UNKNOWN
        key = found.topic, found.group
        samples = self._noted(key, found.offsets)
        if found.lag == 0:
            return Verdict.OK
        resets = [number for _, _, number in samples]
        members = self._broker.consumers.group(found.group)
        known = Circumstances(
            owner=Owner.NO_MEMBER if members is None else Owner.A_MEMBER,
            oldest_age=None if found.lag_ms is None else found.lag_ms / 1000,
            log_age=None if log_age_ms is None else log_age_ms / 1000,
            is_deleted=found.is_deleted,
            was_reset=resets[0] != resets[-1],
        )
        verdict = _judged(samples, _worst(samples), known)
        if verdict == Verdict.BEHIND:
            verdict = _judged(samples, range(len(found.offsets)), known)
        return verdict

    def _noted(self, key: TopicAndGroup, offsets: Positions) -> _Samples:
        """Return the samples of the window with this one, which replaces the last if that is too near."""
        now = trio.current_time()
        samples = self._samples[key] = self._last.get(key) or deque(maxlen=SAMPLES_LIMIT)
        if samples and len(samples[-1][1]) != len(offsets):
            samples.clear()  # The topic has other queues.
        if len(samples) > 1 and now - samples[-2][0] < SAMPLE_EVERY:
            samples.pop()
        # A group that stands shares the numbers of its samples: there may be thousands of groups.
        same = samples[-1][1] if samples and samples[-1][1] == offsets else offsets
        samples.append((now, same, self._broker.consumer_offsets.resets.get(key[1], 0)))
        while len(samples) > SAMPLES_NEEDED and now - samples[0][0] > WINDOW:
            samples.popleft()
        return samples


def _judged(samples: _Samples, queues: Iterable[int], known: Circumstances) -> Verdict:
    """Return the verdict on these queues together."""
    histories = ([Sample(at, *offsets[queue]) for at, offsets, _ in samples] for queue in queues)
    return together(judge_queue("", history, known) for history in histories).verdict


def _worst(samples: _Samples) -> set[int]:
    """Return the queues that may be the worst."""
    _, first, _ = samples[0]
    _, last, _ = samples[-1]
    different = list({id(queues): queues for _, queues, _ in samples}.values())
    unread = [queue for queue, (committed, end) in enumerate(last) if committed < end]
    standing = [queue for queue in unread if first[queue][0] == last[queue][0]]
    back = [
        queue for queue in unread if last[queue][0] < max(queues[queue][0] for queues in different)
    ]

    def length(queue: int) -> int:
        committed, end = last[queue]
        return end - committed

    def late(queue: int) -> tuple[float, int]:
        least = min(queues[queue][1] - queues[queue][0] for queues in different)
        return lateness(least, last[queue][1] - first[queue][1]), length(queue)

    found = {max(queues, key=length) for queues in (standing, back) if queues}
    return {*found, max(unread, key=late)} if unread else found
