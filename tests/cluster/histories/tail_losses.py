"""When a reign began without what the last one had: after a power cut, with no slave that could give it back.

A master gets from its slaves what it lacks before it takes writes (`new_master_got_the_whole_log`), whether it comes
back or was a slave until then; where that could not be, a slave that had more follows again once it has cut what only
it had (by the rule `cut`, or when an operator says so: `tails.py`), or waits, saying so, while its master appends
nothing.
"""

from collections.abc import Iterator
from typing import Final

import attrs
from tests.cluster.histories.events import MemberEnded, MemberStarted, ReignBegan, ReignEnded
from tests.cluster.histories.schedule import Fault
from tests.cluster.histories.story import Story

from rocketrio_protocol.remoting.ports import CONNECT_TIMEOUT

BEGINS_WITHIN: Final = 1
"""Seconds until a master takes writes that no longer waits for slaves: it looks for other masters, and registers."""
BEGINS_WITHOUT_NAME_SERVER: Final = 12
"""The same for a master that no name server answers: it asks for offsets, masters and its registration in vain."""
RETURN_WAIT: Final = 10.0
"""Seconds that a new master waits for a slave that it cannot ask (`ha_return_wait`)."""
ASKING_TAKES: Final = 0.1
"""Seconds between two faults in which a broker cannot ask another for its log, which takes several answers."""

NAME_SERVER: Final = "name server"
DAMAGES: Final = ("torn end", "wiped", "older copy")
"""The ends of a broker whose disk lost bytes that had been synced."""


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
    return [TailLoss(ended.at, began.at) for began, ended in shorter_reigns(story)]


def first_tail_loss(story: Story) -> float:
    """When the first of them began, or never."""
    return min((loss.ended for loss in tail_losses(story)), default=float("inf"))


def may_be_divergent(story: Story, broker: int) -> bool:
    """Whether a broker had, and for a while served, bytes that a later master began without."""
    return any(number == broker for _, _, number in more_than_the_master(story))


def any_divergent(story: Story) -> bool:
    """Whether some broker may be."""
    return any(may_be_divergent(story, state.broker) for state in story.final.brokers)


def may_be_lost(story: Story, *, status: str, waits: bool, started: float, end_offset: int) -> bool:
    """Whether what was answered went with a tail that no slave could give back, and the answer promised no more.

    What is on the master's disk does not outlive that disk, nor the word of an operator that a slave without it is
    the master now, while the former one is down or cut off from it, be it the one that has the older history; what is
    in a slave's log does, where that slave can be asked.
    """
    is_safe = waits and status == "SEND_OK"
    mode = story.schedule.mode
    for began, ended in shorter_reigns(story):
        if ended.at < started or began.kept > end_offset:
            continue
        is_without = began.broker != ended.broker and (
            was_down(story, ended.broker, began.at)
            or _was_cut_off(story, began, ended.broker, since=ended.at)
        )
        is_damaged = bool(_damages(story, ended.broker, ended.at, began.at))
        if is_without or is_damaged or _chose_other_history(story, began, ended):
            is_promised = is_safe and mode.role == "sync-master"
        else:
            is_promised = is_safe and mode.flush == "sync"
        if not is_promised or _no_copy_could_be_asked(story, began, started, end_offset):
            return True
    return False


def _no_copy_could_be_asked(
    story: Story, began: ReignBegan, started: float, end_offset: int
) -> bool:
    """Whether the new master lost its own copy, and every other broker was down then, or cut off from it."""
    damaged_at = [
        end.at
        for end in _ends(story, began.broker, started, began.at)
        if end.how in DAMAGES or (end.how == "power cut" and end.flushed <= end_offset)
    ]
    others = {state.broker for state in story.final.brokers} - {began.broker}
    return bool(damaged_at) and all(
        was_down(story, other, began.at)
        or any(was_down(story, other, at) for at in _asked_last(story, began))
        or _was_cut_off(story, began, other, since=damaged_at[-1])
        for other in others
    )


def _asked_last(story: Story, began: ReignBegan) -> list[float]:
    """Return the times at which a new master may have given up asking the other brokers for their logs."""
    earliest = began.at - BEGINS_WITHOUT_NAME_SERVER
    is_alone = any(
        fault.at <= began.at
        and fault.at + fault.lasts >= earliest
        and {fault.who, fault.other} in ({NAME_SERVER, ""}, {NAME_SERVER, name_of(began.broker)})
        for fault in story.schedule.faults
    )
    before = BEGINS_WITHOUT_NAME_SERVER if is_alone else BEGINS_WITHIN
    return [began.at - back for back in range(BEGINS_WITHIN, before + 1)]


def _damages(story: Story, broker: int, since: float, until: float) -> list[float]:
    """Return when a broker lost bytes that had been synced."""
    return [end.at for end in _ends(story, broker, since, until) if end.how in DAMAGES]


def _ends(story: Story, broker: int, since: float, until: float) -> Iterator[MemberEnded]:
    """Yield how a broker ended, in the order of time."""
    for event in story.history.events:
        if isinstance(event, MemberEnded) and event.broker == broker and since <= event.at <= until:
            yield event


def _was_cut_off(story: Story, began: ReignBegan, other: int, *, since: float) -> bool:
    """Return whether faults kept a new master from asking another broker for as long as it waited."""
    is_cut_off, reached = False, max(since, began.at - RETURN_WAIT)
    for fault in sorted(story.schedule.faults, key=lambda fault: fault.at):
        if fault.at <= reached + ASKING_TAKES and _keeps_apart(fault, began.broker, other):
            ends = fault.at + fault.lasts
            reached = max(reached, ends)
            if fault.kind not in DAMAGES and ends >= began.at - BEGINS_WITHIN:
                is_cut_off = True
    return is_cut_off


def _keeps_apart(fault: Fault, asking: int, other: int) -> bool:
    """Return whether a fault keeps a broker from getting answers from another one."""
    pair = {name_of(asking), name_of(other)}
    match fault.kind:
        case "partition" | "one way":
            return {fault.who, fault.other} == pair
        case "delay":
            # There and back: no connection is made in time.
            return {fault.who, fault.other} == pair and 2 * fault.amount > CONNECT_TIMEOUT
        case "pause" | "silence":
            return fault.who in pair
        case _:
            return fault.kind in DAMAGES and fault.who == name_of(asking)


def name_of(broker: int) -> str:
    """What a schedule calls a broker."""
    return f"slave-{broker}" if broker else "master"


def _chose_other_history(story: Story, began: ReignBegan, ended: ReignEnded) -> bool:
    """Whether the last master began without what this one had, and an operator chose this one after all."""
    if began.broker == ended.broker or end_of(story, ended):
        return False
    last = [
        event
        for event in story.history.events
        if isinstance(event, ReignBegan) and event.at < ended.at
    ][-1:]
    # The first master of a story began without anything to lack.
    return bool(last) and all(
        any(number == began.broker and end > reign.kept for number, end, _ in reign.others)
        for reign in (*last, began)
    )


def end_of(story: Story, ended: ReignEnded) -> str:
    """How the broker of a reign that ended went down, or nothing if it did not."""
    for event in story.history.events:
        if isinstance(event, MemberEnded) and (event.at, event.broker) == (ended.at, ended.broker):
            return event.how
    return ""


def was_down(story: Story, broker: int, at: float) -> bool:
    """Whether a broker could give nothing away at a time."""
    is_down = False
    for event in story.history.events:
        if event.at > at:
            break
        if isinstance(event, MemberEnded | MemberStarted) and event.broker == broker:
            is_down = isinstance(event, MemberEnded)
    return is_down


def more_than_the_master(story: Story) -> Iterator[tuple[ReignBegan, ReignEnded, int]]:
    """Each reign that began without a tail, with a broker that had more of it."""
    for began, ended in shorter_reigns(story):
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


def shorter_reigns(story: Story) -> list[tuple[ReignBegan, ReignEnded]]:
    """Return the reigns that began with less than the one before had at its end."""
    return [(began, ended) for began, ended in reigns(story) if began.kept < ended.log_end]
