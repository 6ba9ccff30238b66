"""When a reign began without what the last one had: after a power cut, with no slave that could give it back.

A master gets from its slaves what it lacks before it takes writes (`new_master_got_the_whole_log`), whether it comes
back or was a slave until then; where that could not be, a slave that had more follows again once it has cut what only
it had (ha_divergent_tail is cut in these clusters), or waits, saying so, while its master appends nothing.
"""

from collections.abc import Iterator

import attrs
from tests.cluster.histories.events import ReignBegan, ReignEnded
from tests.cluster.histories.story import Story


@attrs.frozen
class TailLoss:
    """A master began with less than the last one had: messages nobody promised more for are gone."""

    ended: float
    started: float
    """A little before it the new reign served already; how long is not in the history."""

    def lies_between(self, earlier: float, later: float) -> bool:
        """Whether what was seen at two times may differ because of it."""
        return earlier <= self.started and later >= self.ended


def tail_losses(story: Story) -> list[TailLoss]:
    """All of a story."""
    return [TailLoss(ended.at, began.at) for began, ended in _shorter_reigns(story)]


def first_tail_loss(story: Story) -> float:
    """When the first of them began, or never."""
    return min((loss.ended for loss in tail_losses(story)), default=float("inf"))


def may_be_divergent(story: Story, broker: int) -> bool:
    """Whether a broker had, and for a while served, bytes that a later master began without."""
    return any(number == broker for _, _, number in more_than_the_master(story))


def any_divergent(story: Story) -> bool:
    """Whether some broker may be."""
    return any(may_be_divergent(story, state.broker) for state in story.final.brokers)


def lost_by_master(story: Story, started: float, end_offset: int) -> bool:
    """Whether a message that was sent at this time, and ends there, went with a tail."""
    return any(
        ended.at >= started and began.kept <= end_offset for began, ended in _shorter_reigns(story)
    )


def may_be_lost(story: Story, *, status: str, waits: bool, started: float, end_offset: int) -> bool:
    """Whether what was answered went with a tail that no slave could give back, and the disk was not promised."""
    is_promised = waits and status == "SEND_OK" and story.schedule.mode.flush == "sync"
    return not is_promised and lost_by_master(story, started, end_offset)


def more_than_the_master(story: Story) -> Iterator[tuple[ReignBegan, ReignEnded, int]]:
    """Each reign that began without a tail, with a broker that had more of it."""
    for began, ended in _shorter_reigns(story):
        for number, end, _ in began.others:
            if number != began.broker and end > began.kept:
                yield began, ended, number


def reigns(story: Story) -> Iterator[tuple[ReignBegan, ReignEnded]]:
    """Each reign that began, with the end of the one before."""
    ended: ReignEnded | None = None
    for event in story.history.events:
        if isinstance(event, ReignEnded):
            ended = event
        elif isinstance(event, ReignBegan):
            assert ended is not None
            yield event, ended


def _shorter_reigns(story: Story) -> list[tuple[ReignBegan, ReignEnded]]:
    return [(began, ended) for began, ended in reigns(story) if began.kept < ended.log_end]
