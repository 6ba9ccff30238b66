"""Verdicts over time on groups of every kind, whose samples are computed: arrivals, handlers and commits have times."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.lag import (
    SAMPLE_EVERY,
    WINDOW,
    Circumstances,
    Judgement,
    Owner,
    Sample,
    Verdict,
    judge_queue,
    together,
)

END = 480.0
"""How long a shape lasts, in seconds."""
OFFSET = 1.7
"""When the first sample is taken, so that samples and commits do not coincide."""


@attrs.frozen
class Queue:
    """When messages of a queue are stored, when their handlers have ended, and when that is committed."""

    stored: Sequence[float]
    done: Sequence[float]
    commit_every: float = 5.0
    commits_from: float = 0.0

    def at(self, now: float) -> Sample:
        ticks = (now - self.commits_from) // self.commit_every
        committed_at = self.commits_from + ticks * self.commit_every
        return Sample(now, bisect_right(self.done, committed_at), bisect_right(self.stored, now))


def smooth(per_second: float, begin: float = 0.0, end: float = END) -> list[float]:
    return [begin + number / per_second for number in range(round((end - begin) * per_second))]


def bursts(size: int, every: float) -> list[float]:
    return [number * every for number in range(round(END / every)) for _ in range(size)]


def one_by_one(stored: Sequence[float], each: float, begin: float = 0.0) -> list[float]:
    """Return when a member has handled messages that it takes one at a time."""
    return list(accumulate(stored, lambda free, at: max(free, at) + each, initial=begin))[1:]


def at_once(stored: Sequence[float], each: float) -> list[float]:
    """Return when a member has handled messages that it takes as they come."""
    return [at + each for at in stored]


def judged(queues: Sequence[Queue], times: Sequence[float], known: Circumstances) -> Judgement:
    parts = []
    for number, queue in enumerate(queues):
        parts.append(judge_queue(f"queue {number}", [queue.at(now) for now in times], known))
    return together(parts)


def verdicts(
    queues: Sequence[Queue], every: float = SAMPLE_EVERY, owner: Owner = Owner.A_MEMBER
) -> list[tuple[float, Verdict]]:
    """Return the verdict at each sample that ends a whole window."""
    times = [OFFSET + number * every for number in range(int((END - OFFSET) / every))]
    length = max(2, round(WINDOW / every))
    return [
        (times[last], judged(queues, times[last - length : last + 1], Circumstances(owner)).verdict)
        for last in range(length, len(times))
    ]


def both(stored: list[float], done: Callable[[list[float]], list[float]], **more: float) -> Queue:
    return Queue(stored, done(stored), **more)


def keeps_up(per_second: float, each: float = 0.01, **more: float) -> list[Queue]:
    stored = [smooth(per_second / 4, begin=number / per_second) for number in range(4)]
    return [both(one, lambda one: at_once(one, each), **more) for one in stored]


def too_slow(per_second: float, each: float, **more: float) -> list[Queue]:
    """Return four queues, each of which is read one message at a time."""
    stored = smooth(per_second / 4)
    return [both(stored, lambda one: one_by_one(one, each), **more)] * 4


def trickle_among(queues: list[Queue], per_second: float, each: float) -> list[Queue]:
    return [*queues, both(smooth(per_second), lambda one: one_by_one(one, each))]


def catching_up(per_second: float, each: float, *, begin: float) -> list[Queue]:
    stored = smooth(per_second / 4)
    return [both(stored, lambda one: one_by_one(one, each, begin))] * 4


def one_after_another() -> list[Queue]:
    """Return queues of a group that reads a backlog, the first queue before the second."""
    first, second = [0.0] * 4000, [0.0] * 3000 + smooth(1)
    return [
        Queue(first, one_by_one(first, 0.1)),
        Queue(second, one_by_one(second, 2.0)),
    ]


# ------------------------------------------------------------------------------------------ always


@pytest.mark.parametrize("every", [5.0, 15.0, 30.0])
@pytest.mark.parametrize(
    "queues",
    [
        keeps_up(15),
        keeps_up(40),
        keeps_up(400),
        keeps_up(0.5),
        keeps_up(40, commit_every=4.9),  # Each sample is a little later after the commit.
        keeps_up(40, each=4),
        keeps_up(40, each=25),
        keeps_up(40, each=25, commit_every=4.6),
        keeps_up(40, commit_every=30),  # Spark commits after each batch.
        [both(bursts(100, 20), lambda one: one_by_one(one, 0.1))],
        [both(bursts(400, 60), lambda one: one_by_one(one, 0.1))],
        [both(sorted(smooth(10) + [200.3] * 400), lambda one: one_by_one(one, 0.05))],
        [both(sorted(smooth(10) + [200.3] * 900), lambda one: one_by_one(one, 0.05))],
        [Queue([0.0] * 10, [0.1] * 10)],  # The topic is idle.
        [Queue([], [])],
    ],
    ids=[
        "15/s", "40/s", "400/s", "0.5/s", "commits drift", "handlers of 4 s", "handlers of 25 s", "slow and drifting",
        "batches of 30 s", "bursts", "rare bursts", "40 s of burst", "90 s of burst", "idle", "empty",
    ],
)  # fmt: skip
def test_group_that_keeps_up_is_always_ok(queues: list[Queue], every: float) -> None:
    assert {found for at, found in verdicts(queues, every) if at >= 100} == {Verdict.OK}


@pytest.mark.parametrize("every", [5.0, 15.0, 30.0])
@pytest.mark.parametrize(
    ("queues", "since"),
    [
        (too_slow(40, 0.8), 60),
        (too_slow(40, 0.8, commit_every=4.9), 60),
        (too_slow(40, 0.2), 70),
        (too_slow(400, 0.02), 70),
        (too_slow(40, 0.125), 120),
        ([both([0.0] * 450 + smooth(10), lambda one: one_by_one(one, 0.11))], 240),
        (trickle_among(keeps_up(400), 2, 1.0), 70),
        ([both(bursts(200, 20), lambda one: one_by_one(one, 0.2))], 240),
    ],
    ids=[
        "8 times",
        "commits drift",
        "twice",
        "twice of 400/s",
        "a quarter",
        "a tenth",
        "one queue",
        "bursts",
    ],
)
def test_group_that_is_too_slow_is_behind_and_stays_so(
    queues: list[Queue], since: float, every: float
) -> None:
    found = verdicts(queues, every)
    assert {one for at, one in found if at >= since + every} == {Verdict.BEHIND}
    assert {one for _, one in found} <= {Verdict.OK, Verdict.BEHIND}


def test_group_that_grew_is_behind_though_the_lag_of_its_queues_fell_from_one_sample_to_the_next() -> (
    None
):
    queues = too_slow(35, 0.2, commit_every=11)
    times = [200 + number * SAMPLE_EVERY for number in range(13)]
    lags = [queues[0].at(now).lag for now in times]
    assert any(after < before for before, after in pairwise(lags))  # type: ignore[operator]
    found = judged(queues, times, Circumstances())
    assert (found.verdict, found.lag) == ("behind", 4 * (lags[-1] or 0))
    assert found.why.startswith("the lag of queue 0 has not fallen in 60 s")


@pytest.mark.parametrize("begin", [90.0, 120.0])
@pytest.mark.parametrize("per_second", [0.0, 40.0, 400.0])
def test_group_that_returns_is_stopped_and_then_ok(begin: float, per_second: float) -> None:
    queues = catching_up(per_second, 2 / per_second if per_second else 0.1, begin=begin)
    if not per_second:
        stored = [0.0] * 2000
        queues = [Queue(stored, one_by_one(stored, 0.1, begin))]
    found = verdicts(queues, owner=Owner.NO_MEMBER)
    assert {one for at, one in found if at < begin} == {Verdict.STOPPED}
    assert {one for at, one in found if at >= begin + 20} == {Verdict.OK}


def test_one_queue_that_stands_is_the_verdict_of_a_group_that_keeps_up() -> None:
    stored = smooth(2)
    hanging = Queue(stored, stored[:100])
    found = verdicts([*keeps_up(400), hanging])
    assert {one for at, one in found if at <= 50} <= {Verdict.OK}
    assert {one for at, one in found if at >= 130} == {Verdict.STALLED}


def test_group_whose_lag_falls_is_ok_though_one_queue_grows() -> None:
    queues = one_after_another()
    times = [OFFSET + 100 + number * SAMPLE_EVERY for number in range(13)]
    alone = [judged([queue], times, Circumstances()) for queue in queues]
    assert [one.verdict for one in alone] == ["ok", "behind"]
    whole = judged(queues, times, Circumstances())
    assert whole.verdict == "ok"
    assert whole.why == f"{whole.lag:,} are unread in all queues, and the sum falls"
    standing = Queue(smooth(1), [])
    assert judged([*queues, standing], times, Circumstances()).verdict == "stalled"


def test_large_lag_that_neither_falls_nor_grows_is_behind() -> None:
    backlog = Queue([0.0] * 36_000 + smooth(10), smooth(10))
    assert {one for _, one in verdicts([backlog])} == {Verdict.BEHIND}


# -------------------------------------------------------------------------------------- properties


@given(
    per_second=st.floats(0.01, 100),
    begins=st.floats(0, 10),
    each=st.floats(0, 3),
    commit_every=st.floats(0.05, 5),
    commits_from=st.floats(0, 5),
    delays=st.lists(st.floats(0, 0.5), min_size=13, max_size=13),
)
def test_group_that_keeps_up_at_a_constant_rate_is_neither_behind_nor_stopped(
    per_second: float,
    begins: float,
    each: float,
    commit_every: float,
    commits_from: float,
    delays: list[float],
) -> None:
    stored = smooth(per_second, begins, 120)
    queue = Queue(stored, at_once(stored, each), commit_every, commits_from)
    times = [50 + number * SAMPLE_EVERY + delay for number, delay in enumerate(delays)]
    for samples in (times, times[-3:], times[::3], times[::6]):
        found = judged([queue], samples, Circumstances(Owner.NO_MEMBER))
        assert found.verdict == Verdict.OK, found.why


@pytest.mark.slow
@given(per_second=st.floats(1, 100), part=st.floats(0.05, 0.8), commit_every=st.floats(0.05, 5))
def test_group_that_grows_at_a_constant_rate_is_behind_once_it_is_minutes_late(
    per_second: float, part: float, commit_every: float
) -> None:
    stored = smooth(per_second, end=900)
    each = 1 / (part * per_second)
    queue = Queue(stored, one_by_one(stored, each), commit_every)
    times = [700 + number * SAMPLE_EVERY for number in range(13)]
    found = judged([queue], times, Circumstances())
    standing = each > 30  # Then the samples may show no progress.
    assert found.verdict == Verdict.BEHIND or (standing and found.verdict == Verdict.STALLED)
