"""When a reign began without what the last one had, who had it then, and who could have been asked for it.

A master gets from the other brokers what it lacks before it takes writes, whether it comes back or was a slave until
then. What they had, and how its questions to them went, stands in `ReignBegan`, what a disk kept in `MemberEnded`:
nothing is guessed from faults or times. A broker that had more and could not be asked follows again once it has cut
what only it had (by the rule `cut`, or when an operator says so: `tails.py`).
"""

from collections.abc import Iterator

import attrs
from tests.cluster.histories.events import (
    MemberEnded,
    PassingSent,
    ReignBegan,
    ReignEnded,
    Reported,
    SendAnswered,
    TailCut,
)
from tests.cluster.histories.story import Story
from tests.cluster.histories.uses.events import Accepted

Answer = SendAnswered | PassingSent | Accepted
"""Of a producer's message that a broker has stored."""


@attrs.frozen
class TailLoss:
    """A master began with less than the last one had: messages without a further promise are gone."""

    ended: float
    started: float
    """A little before it the new reign served already; how long is not in the history."""
    queue_ends: tuple[int, ...]
    """By queue id of the plain topic: from there on the places are given away again. Empty where all are."""

    def lies_between(self, earlier: float, later: float) -> bool:
        """Whether what was seen at two times may differ because of it."""
        return earlier <= self.started and later >= self.ended

    def took(self, queue_id: int, offset: int) -> bool:
        """Whether the message at a place went with it."""
        return offset >= self.end_of(queue_id)

    def end_of(self, queue_id: int) -> int:
        """Where a queue ends since."""
        return dict(enumerate(self.queue_ends)).get(queue_id, 0)


def tail_losses(story: Story) -> list[TailLoss]:
    """All of a story."""
    return [
        TailLoss(
            ended.at,
            began.at,
            () if has_other_history(story, began, ended) else began.queue_ends,
        )
        for began, ended in shorter_reigns(story)
    ]


def any_divergent(story: Story) -> bool:
    """Whether some broker had, and for a while served, bytes that a later master began without."""
    return any(more_than_the_master(story))


def may_be_lost(story: Story, answer: Answer) -> bool:
    """Whether what was answered is gone because no copy of it was left that the next master could ask for.

    Every broker that has it is a copy, and the next master had to ask for it. What those that acknowledged it have no
    longer they must have lost with their disks.
    """
    for began, ended in shorter_reigns(story):
        if began.kept <= answer.end_offset < ended.log_end and _was_stored_before(
            story, answer, ended
        ):
            holders = {number for number, held in began.holders if held > answer.end_offset}
            must_wait = _is_promised_by_slaves(story, answer)
            return not any(
                could_get(story, began, ended, number, must_wait=must_wait) for number in holders
            ) and all(
                _lost_with_its_disk(story, number, answer, began)
                for number in _acknowledged_by(story, answer) - holders
            )
    return False


def _was_stored_before(story: Story, answer: Answer, ended: ReignEnded) -> bool:
    """Whether a message was stored before a reign ended, and not in a later one of the same broker."""
    return answer.started <= ended.at and not any(
        began.broker == answer.broker and ended.at <= began.at <= answer.at
        for began, _ in reigns(story)
    )


def _acknowledged_by(story: Story, answer: Answer) -> set[int]:
    """Return the broker that answered, and for a synchronous one the slaves that it knew to have the message."""
    slaves: set[int] = set()
    if _is_promised_by_slaves(story, answer):
        slaves = {
            event.slave
            for event in story.history.events
            if isinstance(event, Reported)
            and event.broker == answer.broker
            and event.address > answer.end_offset
            and answer.started <= event.at <= answer.at
        }
    return {answer.broker, *slaves}


def _lost_with_its_disk(story: Story, broker: int, answer: Answer, began: ReignBegan) -> bool:
    """Whether a broker went down after it had a message, and its disk did not keep it."""
    return any(
        isinstance(event, MemberEnded)
        and event.broker == broker
        and answer.started <= event.at <= began.at
        and event.left <= answer.end_offset
        for event in story.history.events
    )


def _is_promised_by_slaves(story: Story, answer: Answer) -> bool:
    """Whether a synchronous master answered that a slave has it too."""
    waits = not isinstance(answer, SendAnswered) or answer.waits
    return waits and story.schedule.mode.role == "sync-master" and answer.status == "SEND_OK"


def could_get(
    story: Story, began: ReignBegan, ended: ReignEnded, number: int, *, must_wait: bool = False
) -> bool:
    """Whether a new master had what a broker has of the last one's log, or could have asked for it, and continued it.

    Where an operator made a broker master that has another history there is nothing to be continued.
    """
    return number == began.broker or (
        began.could_ask(number, must_wait=must_wait) and not has_other_history(story, began, ended)
    )


def has_other_history(story: Story, began: ReignBegan, ended: ReignEnded) -> bool:
    """Whether an operator made a broker master that had other bytes than the last master, beyond what they share."""
    held, end = dict(began.holders), {one: end for one, end, _ in began.others}
    return (
        began.broker != ended.broker
        and not end_of(story, ended)
        and end.get(began.broker, 0) > held.get(began.broker, 0)
    )


def end_of(story: Story, ended: ReignEnded) -> str:
    """How the broker of a reign that ended went down, or nothing if it did not."""
    for event in story.history.events:
        if isinstance(event, MemberEnded) and (event.at, event.broker) == (ended.at, ended.broker):
            return event.how
    return ""


def more_than_the_master(story: Story) -> Iterator[tuple[ReignBegan, ReignEnded, int]]:
    """Each reign that began without a tail, with a broker that had more of it."""
    for began, ended in shorter_reigns(story):
        for number, held in began.holders:
            if held > began.kept:
                yield began, ended, number


def is_divergent(story: Story, broker: int, at: float) -> bool:
    """Whether a broker has, at a time, more of an earlier reign than the master began with, and has not cut it yet."""
    began = max(
        (
            one.at
            for one, _, number in more_than_the_master(story)
            if number == broker and one.at <= at
        ),
        default=None,
    )
    return began is not None and not any(
        isinstance(event, TailCut) and event.broker == broker and began <= event.at <= at
        for event in story.history.events
    )


def reigns(story: Story) -> Iterator[tuple[ReignBegan, ReignEnded]]:
    """Each reign that began, with the end of the one before."""
    ended: ReignEnded | None = None
    for event in story.history.events:
        if isinstance(event, ReignEnded):
            ended = event
        elif isinstance(event, ReignBegan):
            assert ended is not None
            yield event, ended


def shorter_reigns(story: Story) -> list[tuple[ReignBegan, ReignEnded]]:
    """Return the reigns that began with less than the one before had at its end."""
    return [(began, ended) for began, ended in reigns(story) if began.kept < ended.log_end]
