"""Judges how a consumer group keeps up with its topic: a verdict on each queue, a sentence why, and a forecast.

Each queue is sampled several times. Members commit every 5 s, so a group that keeps up has a lag, too: of what came in
since then. And its lag goes up and down with the commits, so one that fell from one sample to the next proves nothing.
A committed offset that does not move is a problem, however small the lag is. No rule has a threshold on the lag.

    verdict    rule, over a window of 60 s with a sample every 5 s
    ok         at some sample the lag was zero
               or in the last two thirds of the window it was at some sample no more than comes in within 10 s
               or it falls: it is lower in the last third of the window than in the first third
               or it hardly grows, and was at some sample no more than comes in within 60 s
    behind     the committed offset moves, and the queue is not ok
    stalled    the committed offset does not move, and a member owns the queue
    stopped    the committed offset does not move, and no member owns the queue
    rewound    the committed offset went back, and no operator reset it
    ahead      the committed offset lies beyond the end of the queue: what comes next is skipped, or read again
    losing     the oldest unread message is about to be deleted, or has been
    unknown    a number is missing, or the offsets of the group do not say what its members have handled

A group is as bad as its worst queue, but not behind if the lag of all its queues together falls.

Broker and client share these rules. Invariant: an unknown number is None, never 0; an offset beyond the end is no lag
of 0 but an unknown one, for the group and its queue do not count the same messages.
Answers to: nothing in Apache's tools; the rules are near to those of LinkedIn's Burrow for Kafka.
"""

import math
from collections.abc import Iterable, Sequence
from enum import Enum, StrEnum
from typing import Final, TypeVar

import attrs

WINDOW: Final = 60.0
"""Seconds that the samples of a verdict cover."""
SAMPLE_EVERY: Final = 5.0
"""Seconds between two samples: members commit that often."""
SAMPLES_NEEDED: Final = 3
"""Fewer samples do not show that something never happened."""
FRESH: Final = 2 * SAMPLE_EVERY
"""Seconds: a younger message may be unread only because its handler has not ended, or its commit is not due."""
DRIFT: Final = SAMPLE_EVERY / 2
"""Seconds: by as much as comes in then, the last third of a window may seem to have grown. If members commit nearly as
often as samples are taken, every 4.6 s, each sample is a little later after a commit than the one before."""
LOSING_PART: Final = 0.8
"""A message is about to be deleted if it is at least this part of the age of the log's first message old."""


N = TypeVar("N", int, float)


class Verdict(StrEnum):
    """How a group keeps up, from good to bad; what is unknown stands before what is known to be bad."""

    OK = "ok"
    UNKNOWN = "unknown"
    BEHIND = "behind"
    REWOUND = "rewound"
    STALLED = "stalled"
    STOPPED = "stopped"
    AHEAD = "ahead"
    LOSING = "losing"

    @property
    def severity(self) -> int:
        """The rank among the verdicts: 0 for ok, higher for worse."""
        return _SEVERITY[self]


_SEVERITY: Final = {verdict: index for index, verdict in enumerate(Verdict)}


class Owner(Enum):
    """What is known of a queue's owner if it has no name."""

    NO_MEMBER = "no member"
    A_MEMBER = "a member"
    """The group has members, or no broker could say whether it has."""


def lag_of(committed: int | None, end: int | None) -> int | None:
    """Return how many messages are stored and not committed; None if a number is unknown, or beyond the end."""
    if committed is None or end is None or committed > end:
        return None
    return end - committed


def ahead_of(committed: int | None, end: int | None) -> int:
    """Return how many messages a committed offset lies beyond the end; 0 if it does not, or if that is unknown."""
    return committed - end if committed is not None and end is not None and committed > end else 0


def ahead_text(name: str, ahead: int) -> str:
    """Return why a queue's lag is unknown that has a committed offset beyond its end."""
    return (
        f"{name} is ahead of the end by {ahead:,}: its topic was made again, or the log became shorter; "
        "reset the group there"
    )


@attrs.frozen
class Sample:
    """How far a group is in one queue at one moment; None is unknown, or nothing was committed."""

    at: float
    """Seconds of any clock that does not jump."""
    committed: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        """The number of messages that are stored and not committed. An empty queue has none if nothing is committed."""
        return 0 if self.end == 0 and self.committed is None else lag_of(self.committed, self.end)

    @property
    def ahead(self) -> int:
        """The number of messages that the committed offset lies beyond the end; 0 if it does not."""
        return ahead_of(self.committed, self.end)


@attrs.frozen
class Circumstances:
    """What is known of a queue beside its offsets."""

    owner: str | Owner = Owner.A_MEMBER
    """The client id of the member that reads the queue, if it is known."""
    oldest_age: float | None = None
    """How many seconds ago the first unread message was stored."""
    log_age: float | None = None
    """How many seconds ago the first message of the log was stored; None if unknown, or if none was ever deleted."""
    is_deleted: bool = False
    """Whether the first unread message is known to be deleted."""
    was_reset: bool = False
    """Whether an operator has reset the group within the window."""
    uncountable: str | None = None
    """Why the offsets do not say what was handled: a sentence about the group, or about a broker that is silent."""


ORDINARY: Final = Circumstances()
"""Nothing is known but the offsets."""


@attrs.frozen
class Judgement:
    """A verdict, with the numbers behind it."""

    verdict: Verdict
    why: str
    """One sentence."""
    lag: int | None
    in_per_second: float | None = None
    out_per_second: float | None = None
    """The messages that were stored, and those that were committed, each second of the window."""
    eta: float | None = None
    """Seconds until nothing is unread at these rates: infinite if that will never be, None if it is unknown."""
    stands_for: float | None = None
    """How many seconds of the window the committed offset has not moved; None if it moved or is unknown."""
    lags: Sequence[int] = ()
    """The lags that are known, the oldest first."""


def judge_queue(name: str, samples: Sequence[Sample], known: Circumstances = ORDINARY) -> Judgement:
    """Return the verdict on one queue by its samples, the oldest first; sentences call it `name`."""
    if known.uncountable is not None:
        return Judgement(Verdict.UNKNOWN, known.uncountable, None)
    if samples and samples[-1].ahead:
        return Judgement(Verdict.AHEAD, ahead_text(name, samples[-1].ahead), None)
    if not samples or samples[-1].lag is None:
        return Judgement(Verdict.UNKNOWN, _missing(name, samples[-1] if samples else None), None)
    lag = samples[-1].lag
    counted = [sample for sample in samples if sample.lag is not None]
    lags = [sample.lag for sample in counted if sample.lag is not None]
    commits = _commits(counted)
    into, out = _rate([sample.end for sample in counted], counted), _rate(commits, counted)
    stands = _stands_for(commits, counted)

    def judged(verdict: Verdict, why: str) -> Judgement:
        return Judgement(verdict, why, lag, into, out, _eta(lag, into, out), stands, lags)

    if lag == 0:
        return judged(Verdict.OK, "nothing is unread")
    losing = _losing(name, known)
    if losing is not None:
        return judged(Verdict.LOSING, losing)
    last = samples[-1].committed
    highest = max(
        (sample.committed for sample in counted if sample.committed is not None), default=last
    )
    if last is not None and highest is not None and last < highest and not known.was_reset:
        return judged(Verdict.REWOUND, f"{name} went back from {highest:,} to {last:,}")
    span = counted[-1].at - counted[0].at
    if min(lags) == 0:
        return judged(Verdict.OK, f"the lag of {name} was 0 within the last {duration(span)}")
    if len(counted) < SAMPLES_NEEDED:
        why = f"{name} has {len(counted)} of the {SAMPLES_NEEDED} samples that a verdict needs"
        return judged(Verdict.UNKNOWN, why)
    if len(set(commits)) == 1:
        return judged(*_standing(name, last, f"for {duration(span)}", known))
    # What came in while the group stood does not say whether it catches up now.
    since = _first_change(commits) - 1
    return judged(*_moving(name, lags, lags[since:], into or 0, span))


def is_decided(samples: Sequence[Sample]) -> bool:
    """Return whether further samples will hardly change the verdict: a queue that is ok may have begun to grow."""
    found = judge_queue("", samples)
    if not found.lag:
        return True
    growth = found.lags[-1] - found.lags[0]
    return found.verdict == Verdict.OK and growth <= (found.in_per_second or 0) * DRIFT


def judge_counters(
    name: str,
    sample: Sample,
    known: Circumstances = ORDINARY,
    *,
    in_per_second: float | None,
    out_per_second: float | None,
) -> Judgement:
    """Return the verdict on one sample, by what brokers counted in their last minute: messages stored, and delivered.

    Deliveries are no commits: members may receive messages and never finish them. So a lag is ok only if no message is
    unread for longer than commits take, and what one sample does not show is unknown.
    """
    lag = sample.lag
    eta = None if lag is None else _eta(lag, in_per_second, out_per_second)

    def judged(verdict: Verdict, why: str) -> Judgement:
        return Judgement(verdict, why, lag, in_per_second, out_per_second, eta)

    first = judge_queue(name, [sample], known)
    if known.uncountable is not None or lag is None:
        return first
    if first.verdict != Verdict.UNKNOWN:
        return judged(first.verdict, first.why)
    if in_per_second is None or out_per_second is None:
        return judged(Verdict.UNKNOWN, f"no broker counted the messages of {name}")
    unread = f"{name} has {lag:,} unread"
    age = known.oldest_age
    if out_per_second == 0:
        if known.owner is Owner.NO_MEMBER or (age is not None and age >= WINDOW):
            return judged(*_standing(name, sample.committed, "in the last minute", known))
        why = (
            "none was delivered in the last minute, and one sample does not show whether they wait"
        )
        return judged(Verdict.UNKNOWN, f"{unread}; {why}")
    if known.owner is Owner.NO_MEMBER:
        return judged(
            Verdict.UNKNOWN, f"{unread}; some were delivered lately, but no member is left"
        )
    if age is not None and age < FRESH:
        return judged(Verdict.OK, f"{unread}, and none is older than {duration(age)}")
    late = lateness(lag, in_per_second) if age is None else age
    if out_per_second <= in_per_second and late >= WINDOW:
        return judged(Verdict.BEHIND, f"{unread}, and no more are delivered than stored")
    why = "some were delivered lately, and one sample does not show whether they are committed"
    return judged(Verdict.UNKNOWN, f"{unread}; {why}")


def together(judgements: Iterable[Judgement]) -> Judgement:
    """Return one judgement for several queues: the worst verdict, with the reason of its largest lag.

    While a group catches up, members read some queues before others; so none is behind if the sum of the lags falls.
    A number is None if it is unknown for one of them, and the slowest queue decides the forecast.
    """
    found = list(judgements)
    if not found:
        return Judgement(Verdict.UNKNOWN, "nothing is committed in any queue", None)
    if _fall_together(found):
        unread = sum(one.lag or 0 for one in found)
        why = f"{unread:,} are unread in all queues, and the sum falls"
        found = [
            attrs.evolve(one, verdict=Verdict.OK, why=why) if one.verdict == Verdict.BEHIND else one
            for one in found
        ]
    worst = max(found, key=lambda one: (one.verdict.severity, one.lag or 0))
    etas = [one.eta for one in found]
    return Judgement(
        worst.verdict,
        worst.why,
        _total([one.lag for one in found]),
        _total([one.in_per_second for one in found]),
        _total([one.out_per_second for one in found]),
        None if None in etas else max(eta for eta in etas if eta is not None),
        worst.stands_for,
    )


def _fall_together(judgements: Sequence[Judgement]) -> bool:
    """Return whether the sum of the lags falls; False if no queue is behind, or if one is by a single sample."""
    behind = [len(one.lags) for one in judgements if one.verdict == Verdict.BEHIND]
    if not behind or min(behind) < SAMPLES_NEEDED:
        return False
    histories = [one.lags for one in judgements if one.lags]
    length = min(map(len, histories))
    return _falls([sum(lags) for lags in zip(*(one[-length:] for one in histories), strict=True)])


def duration(seconds: float) -> str:
    """Return a length of time for a sentence: `42 s`, `12 min`, `69 h` or `5 days`."""
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 3 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _missing(name: str, sample: Sample | None) -> str:
    if sample is None or sample.end is None:
        return f"no broker reported how many messages {name} has"
    return f"nothing is committed in {name}, so its members decide where they start"


def _standing(
    name: str, committed: int | None, how_long: str, known: Circumstances
) -> tuple[Verdict, str]:
    at = "nowhere" if committed is None else f"at {committed:,}"
    if known.owner is Owner.NO_MEMBER:
        return Verdict.STOPPED, f"{name} stands {at} {how_long}; no member owns it"
    owner = known.owner.value if isinstance(known.owner, Owner) else known.owner
    return Verdict.STALLED, f"{name} stands {at} {how_long}; owner {owner}"


def _losing(name: str, known: Circumstances) -> str | None:
    if known.is_deleted:
        return f"the next message of {name} was deleted before it was read"
    if known.oldest_age is None or known.log_age is None:
        return None
    if known.oldest_age < LOSING_PART * known.log_age:
        return None
    return (
        f"the oldest unread message of {name} is {duration(known.oldest_age)} old, "
        f"and the log has {duration(known.log_age)}: it will be deleted unread"
    )


def _commits(samples: Sequence[Sample]) -> list[int | None]:
    # Nothing is committed in an empty queue: its members begin at 0.
    return [
        0 if sample.end == 0 and sample.committed is None else sample.committed
        for sample in samples
    ]


def _first_change(commits: Sequence[int | None]) -> int:
    """Return the index of the first sample with another offset than the first one."""
    return next(at for at, committed in enumerate(commits) if committed != commits[0])


def lateness(least: int, into: float) -> float:
    """Return in how many seconds as many messages come in as were unread when the fewest were."""
    if least == 0:
        return 0.0
    return least / into if into > 0 else math.inf


def _thirds(lags: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    third = math.ceil(len(lags) / 3)
    return lags[:third], lags[-third:]


def _falls(lags: Sequence[int]) -> bool:
    """Return whether no lag of the last third is above one of the first third, and some are below.

    Commits move in steps, so lags go up and down at the same distance: they fall or grow if these ranges lie apart.
    """
    first, last = _thirds(lags)
    return max(last) <= min(first) and min(last) < max(first)


def _growth(lags: Sequence[int]) -> int:
    """Return how much the lag has grown at least; below zero if it may not have."""
    first, last = _thirds(lags)
    return min(last) - max(first)


def _moving(
    name: str, lags: Sequence[int], since: Sequence[int], into: float, span: float
) -> tuple[Verdict, str]:
    """Judge a queue by its lags, and by those since the committed offset began to move."""
    unread = f"{name} has {lags[-1]:,} unread"
    # Before, it may have been level and have grown since then. The last sample of the first third counts: what comes
    # in at once after it is no growth.
    first, _ = _thirds(lags)
    if lateness(min(lags[len(first) - 1 :]), into) <= FRESH:
        why = f"and at times no more than come in within {duration(FRESH)}"
        return Verdict.OK, f"{unread}, {why}"
    if _falls(since):
        return Verdict.OK, f"{unread}, and the lag falls"
    if lateness(min(lags), into) <= WINDOW and _growth(since) <= into * DRIFT:
        why = f"no more than come in within {duration(WINDOW)}, and the lag hardly changes"
        return Verdict.OK, f"{unread}, at times {why}"
    why = f"the lag of {name} has not fallen in {duration(span)}: {lags[-1]:,} unread"
    return Verdict.BEHIND, why


def _rate(numbers: Sequence[int | None], samples: Sequence[Sample]) -> float | None:
    span = samples[-1].at - samples[0].at
    first, last = numbers[0], numbers[-1]
    if span <= 0 or first is None or last is None or last < first:
        return None
    return (last - first) / span


def _stands_for(commits: Sequence[int | None], samples: Sequence[Sample]) -> float | None:
    since = len(commits) - 1
    while since > 0 and commits[since - 1] == commits[-1]:
        since -= 1
    return samples[-1].at - samples[since].at if since < len(commits) - 1 else None


def _eta(lag: int, into: float | None, out: float | None) -> float | None:
    if lag == 0:
        return 0.0
    if into is None or out is None:
        return None
    return lag / (out - into) if out > into else math.inf


def _total(numbers: Sequence[N | None]) -> N | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
