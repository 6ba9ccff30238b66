"""Whether readers get all that was acknowledged, and whether a synchronous master's readers see only what is confirmed.

Invariant: nothing here is excused by a log that became shorter: a group that is running reads on from its committed
offsets, and misses nothing that was acknowledged afterwards at places used before.
"""

import math
from collections.abc import Iterator
from typing import Final

from tests.cluster.histories.events import (
    Lowered,
    MemberEnded,
    MemberStarted,
    Pulled,
    Received,
    ReignBegan,
    SendAnswered,
)
from tests.cluster.histories.schedule import MOVABLE_QUEUE
from tests.cluster.histories.story import Story
from tests.cluster.histories.tail_losses import name_of, tail_losses
from tests.cluster.histories.violation import Violation, events_of

SLAVE_TIMEOUT: Final = 3.0
"""Seconds without progress of slaves after which a master's own disk stands in for them (`slave_timeout`)."""

LEVEL_WITHIN: Final = 1.0
"""Seconds within which a slave must acknowledge what its master has, to confirm it for readers (`gate_keeper.py`)."""
RETRY: Final = 0.5
"""Seconds until a slave connects again."""


def acknowledged_messages_are_delivered(story: Story) -> Iterator[Violation]:
    """What was acknowledged and is still there was handed to somebody of the group, who runs until the end."""
    there = [dict(queue) for queue in story.final.brokers[0].queues]
    received = {(event.queue_id, event.body) for event in events_of(story, Received)}
    passed = _places_passed_by_a_reset(story)
    for answer in events_of(story, SendAnswered):
        queue_id = answer.queue_id
        for index, body in enumerate(answer.bodies):
            offset = answer.queue_offset + index
            if queue_id == MOVABLE_QUEUE and offset < passed:
                continue
            if there[queue_id].get(offset) == body and (queue_id, body) not in received:
                yield Violation("acknowledged and undelivered", f"{body!r}", answer)


def _places_passed_by_a_reset(story: Story) -> int:
    """Return the offset before which an operator may have passed over messages.

    After a loss an operator may reset to what a slave had committed, beyond messages at places that were used again.
    """
    losses = tail_losses(story)
    return max(
        (
            event.offset
            for event in events_of(story, Lowered)
            if any(loss.ended <= event.at for loss in losses)
        ),
        default=0,
    )


def readers_see_what_is_confirmed(story: Story) -> Iterator[Violation]:
    """A synchronous master shows what a slave has too, or what is on a disk when no slave moves."""
    if story.schedule.mode.role != "sync-master":
        return
    needs_disk = story.schedule.mode.acknowledge == "disk"
    master, confirmed = 0, 0
    moved_after, looked_at = 0.0, 0.0  # slaves got further at some time after the look before
    late: list[
        tuple[float, float]
    ] = []  # moves that the master may not know yet: until when, and after which look
    down: set[int] = set()
    kept = 0  # the log's end when the reign began: its master may have shown all of that before
    shown = 0  # by the master of the moment, and what it shows again after a restart
    shows: dict[
        int, int
    ] = {}  # what each broker shows if it becomes master, because a former one has confirmed it
    before: dict[int, int] = {}  # what each broker had at the last look, or when it came back
    for event in story.history.events:
        moved_after = max([moved_after, *(after for told, after in late if told <= event.at)])
        match event:
            case MemberEnded(at=at, broker=broker, role=role, log_end=log_end, flushed=flushed):
                down.add(broker)
                if role == "slave" or broker != master:  # It may have begun to take over.
                    confirmed = max(confirmed, log_end)
                    late.clear()  # Reports that were held back came on a connection that is gone.
                elif broker == master and _is_over(moved_after, at):
                    # Its readers may have been shown all that was on its disk.
                    shown = max(shown, flushed)
            case MemberStarted(broker=broker, log_end=log_end):
                down.discard(broker)
                before[broker] = log_end
            case ReignBegan(at=at, broker=broker, kept=kept, others=others):
                for number, end, _ in others:
                    shows[number] = min(max(shows.get(number, 0), confirmed, shown), end)
                # What a slave had when the last reign ended it had told its master.
                ends = sorted(_acknowledged(others, master, needs_disk).values())
                confirmed = min(max([confirmed, *ends[:-1]]), kept)
                moved_after = at
                late.clear()
                shown = max(min(shown, kept) if broker == master else 0, shows.get(broker, 0))
                master = broker
            case Pulled(held_by=held_by) | SendAnswered(held_by=held_by) if held_by:
                had = _acknowledged(held_by, master, needs_disk)
                stands_in = before.get(master, 0) > confirmed and _is_over(moved_after, looked_at)
                if stands_in:
                    # Its disk stood in already, and does until a slave has all.
                    on_disk = {number: flushed for number, _, flushed in held_by}
                    shown = max(shown, on_disk.get(master, 0))
                ends = sorted(end for number, end in had.items() if number not in down)
                if len(ends) > 1 and ends[-2] > confirmed:
                    confirmed = ends[-2]
                    # One that comes back with much, and stands aside, has not moved.
                    told = [
                        _told_at(story, event.at, number, master)
                        for number, end in had.items()
                        if number != master and end > before.get(number, -1)
                    ]
                    if stands_in and ends[-2] < had.get(master, 0):
                        pass  # Perhaps its report is late, or its connection gone: the disk goes on to stand in.
                    elif ends[-2] <= kept:
                        pass  # The gate was there already.
                    elif event.at in told:
                        moved_after = looked_at
                    elif told:
                        late.append((min(told), looked_at))
                before |= had
                looked_at = event.at
                if isinstance(event, SendAnswered) or event.broker != master:
                    continue
                before_it, shown = max(confirmed, shown), max(shown, event.end_offset + 1)
                if len(held_by) <= story.schedule.mode.slaves:
                    continue  # One that is starting serves before it can be seen how far it is.
                flushed = {number: flushed for number, _, flushed in held_by}[event.broker]
                is_on_disk = _is_over(moved_after, event.at) and flushed > event.end_offset
                if before_it <= event.end_offset and not is_on_disk:
                    yield Violation("shown before it was confirmed", "", event)
            case _:
                pass


def _acknowledged(
    held_by: tuple[tuple[int, int, int], ...], master: int, needs_disk: bool
) -> dict[int, int]:
    """By broker how far it is: the master in its log, others in what they acknowledge."""
    return {
        number: flushed if needs_disk and number != master else end
        for number, end, flushed in held_by
    }


def _told_at(story: Story, at: float, slave: int, master: int) -> float:
    """When a master knows at the latest what a slave had: a delay holds up what is sent behind its bytes too.

    Reports that a network holds back come when it no longer does, or on a connection after that; a master that stands
    still reads them when it goes on. One that is on its way when the connection is cut does not come at all.
    """
    told = at
    cuts = []
    for fault in story.schedule.faults:
        is_between = {fault.who, fault.other} == {name_of(slave), name_of(master)}
        if fault.kind == "delay" and is_between and fault.at <= at:
            told = max(told, min(at, fault.at + fault.lasts) + fault.amount)
        elif fault.kind in ("full disk", "slow disk") and fault.who == name_of(slave):
            # It leaves its master when the disk takes no more, and syncs what it had; too slow a one is never level.
            is_slow = story.schedule.mode.acknowledge == "disk" and fault.amount >= LEVEL_WITHIN
            if fault.at <= at <= fault.at + fault.lasts and (fault.kind == "full disk" or is_slow):
                told = max(told, fault.at + fault.lasts + RETRY)
        elif (
            fault.at <= told
            and at <= fault.at + fault.lasts
            and (
                (fault.kind == "partition" and is_between)
                or (
                    fault.kind == "one way"
                    and (fault.who, fault.other) == (name_of(slave), name_of(master))
                )
                or (fault.kind == "silence" and fault.who in (name_of(slave), name_of(master)))
                or (fault.kind == "pause" and fault.who == name_of(master))
            )
        ):
            told = max(told, fault.at + fault.lasts)
        elif fault.kind == "cut" and is_between:
            cuts.append(fault.at)
    return math.inf if any(at < cut < told for cut in cuts) else told


def _is_over(moved_after: float, at: float) -> bool:
    """Whether a master waits no longer for slaves that have moved last; times are rounded."""
    return round(at - moved_after, 6) >= SLAVE_TIMEOUT
