"""When a master came back without its tail: after a power cut, with no slave that could give it back.

A master gets from its slaves what it lacks before it takes writes (`returning_master_got_its_tail_back`); where that
could not be, a slave that had more follows again once it has cut what only it had (ha_divergent_tail is cut in these
clusters), or waits, saying so, while its master appends nothing.
"""

from collections.abc import Iterator

import attrs
from tests.cluster.histories.events import MemberEnded, MemberStarted
from tests.cluster.histories.story import Story


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
    """Whether a slave had, and for a while served, bytes that its master came back without."""
    return any(number == broker for _, _, number in more_than_the_master(story))


def any_divergent(story: Story) -> bool:
    """Whether some slave may be."""
    return any(may_be_divergent(story, slave.broker) for slave in story.final.brokers[1:])


def lost_by_master(story: Story, started: float, end_offset: int) -> bool:
    """Whether a message that was sent at this time, and ends there, went with a tail."""
    return any(
        ended.at >= started and member.kept <= end_offset
        for member, ended in _shorter_masters(story)
    )


def more_than_the_master(story: Story) -> Iterator[tuple[MemberStarted, MemberEnded, int]]:
    """Each return without a tail, with a slave that had more of it."""
    for started, ended in _shorter_masters(story):
        for number, end, _ in started.others:
            if number and end > started.kept:
                yield started, ended, number


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
