"""What is known not to be right yet, stated so that it fails when it is.

A master that lost its tail in a power cut comes back shorter than a slave, and takes writes. Until logs can be told
apart and resynced the slave is refused (SlaveAheadError), or, once the master has outgrown it, followed with other
bytes. `slave_ahead_of_its_master_stays_divergent` expects that; when resync is built it fails, and this file goes.
"""

from collections.abc import Iterator

import attrs
from tests.cluster.histories.events import MemberEnded, MemberStarted
from tests.cluster.histories.story import Story
from tests.cluster.histories.violation import Violation


@attrs.frozen
class TailLoss:
    """The master came back with less than it had: messages nobody promised more for are gone."""

    ended: float
    started: float
    """A little before it the master served already; how long is not in the history."""

    def lies_between(self, earlier: float, later: float) -> bool:
        """Whether what was seen at two times may differ because of it."""
        return earlier <= self.started and later >= self.ended


def tail_losses(story: Story) -> list[TailLoss]:
    """All of a story."""
    return [TailLoss(ended.at, started.at) for started, ended in _shorter_masters(story)]


def first_tail_loss(story: Story) -> float:
    """When the first of them began, or never."""
    return min((loss.ended for loss in tail_losses(story)), default=float("inf"))


def may_be_divergent(story: Story, broker: int) -> bool:
    """Whether a slave had bytes that its master came back without."""
    return any(
        number == broker and end > started.kept
        for started, _ in _shorter_masters(story)
        for number, end, _ in started.others
    )


def any_divergent(story: Story) -> bool:
    """Whether some slave may be."""
    return any(may_be_divergent(story, slave.broker) for slave in story.final.brokers[1:])


def slave_ahead_of_its_master_stays_divergent(story: Story) -> Iterator[Violation]:
    """The expectation itself, where the slave was surely ahead and lost nothing later."""
    master = story.final.brokers[0]
    for started, _ in _shorter_masters(story):
        for number, end, _ in started.others:
            if not number or end <= started.kept or _lost_power(story, number):
                continue
            if story.final.brokers[number].log == master.log:
                yield Violation(
                    "a known gap is closed",
                    f"broker {number} was ahead of its master and is level now: remove known_gaps.py",
                    started,
                )


def _lost_power(story: Story, broker: int) -> bool:
    return any(
        isinstance(event, MemberEnded) and event.broker == broker and event.how == "power cut"
        for event in story.history.events
    )


def _shorter_masters(story: Story) -> list[tuple[MemberStarted, MemberEnded]]:
    found = []
    ended: MemberEnded | None = None
    for event in story.history.events:
        if isinstance(event, MemberEnded) and event.broker == 0:
            ended = event
        elif isinstance(event, MemberStarted) and event.broker == 0:
            assert ended is not None
            if event.kept < ended.log_end:
                found.append((event, ended))
    return found
