"""Whether committed offsets only rise where nobody lowered them, survive what they must, and mean what they say.

A commit is in a broker's memory; its file follows within 5 s, and its slaves' memory within their period. So what
was there for `SETTLED` seconds outlives a kill or a power cut; a clean stop loses nothing at all.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from tests.cluster.histories.events import (
    Committed,
    FaultBegan,
    FaultEnded,
    Lowered,
    MemberEnded,
    MemberStarted,
    OffsetsSeen,
    Received,
    ReignBegan,
    ReignEnded,
)
from tests.cluster.histories.schedule import MOVABLE_QUEUE
from tests.cluster.histories.story import Story
from tests.cluster.histories.tail_losses import (
    TailLoss,
    shorter_reigns,
    tail_losses,
)
from tests.cluster.histories.violation import Violation

SETTLED: Final = 6.5
"""Seconds: the file's period of 5 s, the period of looking, and a little."""
COPIED: Final = 1.5
"""Seconds after which slaves have copied an offset: their period of 1 s, and a little."""


def check_offsets(story: Story) -> Iterator[Violation]:
    """All that is promised of offsets."""
    yield from offsets_rise_in_memory(story)
    yield from offsets_survive_restarts(story)
    yield from new_master_asked_its_slaves(story)
    yield from confirmed_commits_are_somewhere(story)
    yield from committed_was_received(story)
    yield from resets_win(story)


@attrs.define
class _Fall:
    """An order, or the loss of a queue's end, for which each broker's offset may fall once."""

    queue_id: int
    offset: int
    """At least this is left."""
    who: str = ""
    brokers: set[int] | None = None
    """Those that know of it; None for all."""
    is_over: bool = False
    """Whether it was answered."""
    used: set[int] = attrs.Factory(set)

    def allows(self, broker: int, queue_id: int, offset: int) -> bool:
        is_known = self.brokers is None or broker in self.brokers
        return (
            is_known
            and broker not in self.used
            and queue_id == self.queue_id
            and offset >= self.offset
        )


def offsets_rise_in_memory(story: Story) -> Iterator[Violation]:
    """While a broker runs its offsets fall only where somebody entitled lowered them, once for each order."""
    seen: dict[tuple[int, int], int] = {}
    falls: list[_Fall] = []
    losses = {ended.at: began for began, ended in shorter_reigns(story)}
    taken: dict[int, dict[int, int]] = {}  # what a master began with, by each slave that was behind
    for event in story.history.events:
        match event:
            case ReignEnded(at=at) if at in losses:
                # What was committed beyond the ends is void. Its broker looks at its queues before it is master.
                began = losses[at]
                for queue_id, end in enumerate(began.queue_ends):
                    falls.append(_Fall(queue_id, end, brokers={began.broker}))
            case ReignBegan():
                if event in losses.values():
                    for queue_id, end in enumerate(event.queue_ends):
                        others = {number for number, _, _ in event.others} - {event.broker}
                        falls.append(_Fall(queue_id, end, brokers=others))
                # What such a slave holds beyond its own log is not taken over, and it copies the master's offsets.
                behind = [number for number, end, _ in event.others if end < event.kept]
                taken = {number: dict(event.offsets) for number in behind}
            case Lowered():
                open_orders = [
                    one
                    for one in falls
                    if (one.who, one.queue_id, one.offset, one.is_over)
                    == (event.who, event.queue_id, event.offset, False)
                ]
                if not open_orders:
                    falls.append(_Fall(event.queue_id, event.offset, event.who))
                for one in open_orders:
                    one.is_over = True
            case MemberEnded(broker=broker):
                seen = {key: offset for key, offset in seen.items() if key[0] != broker}
            case MemberStarted(broker=broker, offsets=offsets):
                seen.update({(broker, queue_id): offset for queue_id, offset in offsets})
                for one in falls:  # What it has not kept it may obey again.
                    if dict(offsets).get(one.queue_id, -1) > one.offset:
                        one.used.discard(broker)
            case OffsetsSeen(broker=broker, offsets=offsets):
                for queue_id, offset in offsets:
                    before = seen.get((broker, queue_id), -1)
                    seen[broker, queue_id] = offset
                    if offset >= min(before, taken.get(broker, {}).get(queue_id, before)):
                        continue
                    allowing = [one for one in falls if one.allows(broker, queue_id, offset)]
                    if allowing:
                        max(allowing, key=lambda one: one.offset).used.add(broker)
                    else:
                        yield Violation(
                            "offset went back", f"queue {queue_id}: {before} before", event
                        )
            case _:
                pass


def offsets_survive_restarts(story: Story) -> Iterator[Violation]:
    """What was settled is there again; what a clean stop had is there in any case."""
    seen: dict[tuple[int, int], list[tuple[float, int]]] = {}
    least: dict[int, dict[int, int]] = {}
    losses = tail_losses(story)
    for event in story.history.events:
        match event:
            case OffsetsSeen(broker=broker, offsets=offsets):
                for queue_id, offset in offsets:
                    seen.setdefault((broker, queue_id), []).append((event.at, offset))
            case MemberEnded(broker=broker, how=how, offsets=offsets):
                if _has_bad_disk(story, event) or how in ("wiped", "older copy"):
                    continue
                least[broker] = dict(offsets) if how == "stop" else _settled(seen, event)
            case MemberStarted(broker=broker, offsets=offsets):
                seen = {key: values for key, values in seen.items() if key[0] != broker}
                found = dict(offsets)
                for queue_id, before in least.pop(broker, {}).items():
                    offset = _still_there(losses, queue_id, before, event.at)
                    if queue_id != MOVABLE_QUEUE and found.get(queue_id, -1) < offset:
                        yield Violation(
                            "offset forgotten", f"queue {queue_id}: {offset} before", event
                        )
            case _:
                pass


def _still_there(losses: Sequence[TailLoss], queue_id: int, offset: int, at: float) -> int:
    """Return how much of an offset still counts messages that are there, where brokers are settling after a loss."""
    ends = [loss.end_of(queue_id) for loss in losses if loss.ended <= at <= loss.started + SETTLED]
    return min([offset, *ends])


def _settled(
    seen: dict[tuple[int, int], list[tuple[float, int]]], end: MemberEnded
) -> dict[int, int]:
    """Queue id to the offset that was there long enough to be on the broker's disk, and was not lowered since."""
    settled = {}
    for (broker, queue_id), offsets_at in seen.items():
        old = [offset for at, offset in offsets_at if at <= end.at - SETTLED]
        if broker == end.broker and old:
            later = [offset for _, offset in offsets_at[len(old) :]]
            settled[queue_id] = min([old[-1], *later])
    return settled


def new_master_asked_its_slaves(story: Story) -> Iterator[Violation]:
    """A master that comes back, or is new, has what was committed to another broker meanwhile, if it could be asked.

    Those that it knows from their connections alone it asks once: they are not held against it.
    """
    held: dict[tuple[int, int], list[tuple[float, int]]] = {}
    losses = tail_losses(story)
    for event in story.history.events:
        match event:
            case OffsetsSeen(at=at, broker=broker, offsets=offsets):
                for queue_id, offset in offsets:
                    held.setdefault((broker, queue_id), []).append((at, offset))
            case MemberEnded(broker=broker):
                held = {key: values for key, values in held.items() if key[0] != broker}
            case ReignBegan(is_serving=True, at=at, offsets=offsets, queue_ends=queue_ends):
                found, ends = dict(offsets), dict(enumerate(queue_ends))
                for (broker, queue_id), values in held.items():
                    before = [offset for seen_at, offset in values if seen_at <= event.since]
                    is_asked = broker == event.broker or (
                        broker in event.named and event.could_ask(broker)
                    )
                    if not before or not is_asked or queue_id == MOVABLE_QUEUE:
                        continue
                    least = _still_there(losses, queue_id, before[-1], at)
                    least = min(least, ends.get(queue_id, least)) if losses else least
                    if found.get(queue_id, -1) < least:
                        detail = f"queue {queue_id}: broker {broker} has {before[-1]}"
                        yield Violation("slaves were not asked", detail, event)
            case _:
                pass


def confirmed_commits_are_somewhere(story: Story) -> Iterator[Violation]:
    """When a commit is confirmed a broker has it, or had it: one that ended since may have forgotten it.

    As far as there are messages: what lies beyond the end of a queue that became shorter is confirmed and left out.
    """
    highest: dict[int, int] = {}
    lowered: set[int] = set()
    for event in story.history.events:
        seen: tuple[tuple[int, int], ...] = ()
        if isinstance(event, OffsetsSeen | MemberEnded | MemberStarted):
            seen = event.offsets
        elif isinstance(event, Committed):
            seen = tuple((queue_id, offset) for _, queue_id, offset in event.held_by)
        for queue_id, offset in seen:
            highest[queue_id] = max(offset, highest.get(queue_id, -1))
        if isinstance(event, Lowered):
            lowered.add(event.queue_id)
        if isinstance(event, Committed) and event.all_seen:
            ends = dict(enumerate(event.queue_ends))
            for queue_id, offset in event.offsets:
                if queue_id in lowered:
                    continue  # What belongs to the time before a reset is confirmed and left out.
                if highest.get(queue_id, -1) < min(offset, ends.get(queue_id, offset)):
                    yield Violation(
                        "confirmed and nowhere", f"queue {queue_id} offset {offset}", event
                    )


def committed_was_received(story: Story) -> Iterator[Violation]:
    """No offset stands behind a message that nobody of the group was handed."""
    ends: dict[int, int] = {}
    for event in story.history.events:
        if isinstance(event, Received):
            ends[event.queue_id] = max(ends.get(event.queue_id, 0), event.queue_offset + 1)
        elif isinstance(event, OffsetsSeen):
            for queue_id, offset in event.offsets:
                if offset > ends.get(queue_id, 0):
                    yield Violation("committed and never received", f"queue {queue_id}", event)


def resets_win(story: Story) -> Iterator[Violation]:
    """Where an operator's reset by our tools lowered what was committed, it is read from there again."""
    lowered = [event for event in story.history.events if isinstance(event, Lowered)]
    last = lowered[-1] if lowered else None
    if last is None or (last.who, last.outcome) != ("operator", "done"):
        return
    began = next(
        (one for one in reversed(lowered) if one.outcome == "begins" and one.who == last.who), last
    )
    held = dict(began.held_by)
    place = last.queue_id, last.offset
    did_lower = bool(held) and min(held.values()) > last.offset
    is_there = last.offset < len(story.final.brokers[0].queues[last.queue_id]) and not any(
        loss.took(*place) and loss.started >= began.at for loss in tail_losses(story)
    )
    is_read = any(
        isinstance(event, Received)
        and (event.queue_id, event.queue_offset) == place
        and event.at >= began.at
        for event in story.history.events
    )
    if did_lower and is_there and not is_read and not _was_forgotten(story, began):
        yield Violation("reset without effect", "", last)


def _was_forgotten(story: Story, began: Lowered) -> bool:
    """Return whether a reset met another order, or a master began that had not heard of it and could ask no other.

    A broker has heard of it when its offset falls; it forgets it if it ends before the file was due, or if its disk
    did not take the file. Of two orders that do not know of each other the order is one of rule, not of time (decision
    0014), and one that was not answered may be carried out at any time after.
    """
    held = dict(began.held_by)
    knowing: dict[int, float] = {}  # since when each broker knows it
    others: dict[Lowered, set[int]] = {}  # the brokers that have heard of each earlier order
    master: int | None = 0
    for event in story.history.events:
        match event:
            case Lowered() if event.outcome.startswith("No answer"):
                return True
            case Lowered(outcome="done") if event.at <= began.at and event is not began:
                others[event] = set()
            case OffsetsSeen(at=at, broker=broker, offsets=offsets):
                for queue_id, offset in offsets:
                    if queue_id != began.queue_id:
                        continue
                    if at >= began.at and offset < held.get(broker, offset + 1):
                        knowing.setdefault(broker, at)
                    for order, heard in others.items():
                        if offset == order.offset and at < began.at:
                            heard.add(broker)
            case MemberEnded(at=at, broker=broker, how=how) if at >= began.at:
                is_kept = how == "stop" or at - knowing.get(broker, at) > SETTLED
                if how in ("wiped", "older copy") or not is_kept or _has_bad_disk(story, event):
                    knowing.pop(broker, None)
            case ReignEnded():
                master = None
            case ReignBegan(at=at, broker=broker):
                master = broker
                if at >= began.at:
                    if broker not in knowing and not any(map(event.could_ask, knowing)):
                        return True
                    knowing.setdefault(broker, at)
            case _:
                pass
        if event is began and any(heard and master not in heard for heard in others.values()):
            return True
    return False


def _has_bad_disk(story: Story, end: MemberEnded) -> bool:
    """Whether the broker could not write its file in the seconds before, or only slowly, or stood still."""
    return any(until >= end.at - SETTLED - 1.0 for _, until in _bad_disk_times(story, end))


def _bad_disk_times(story: Story, end: MemberEnded) -> list[tuple[float, float]]:
    """From when until when a broker that ended could not write before, or only slowly, or stood still."""
    name = "master" if end.broker == 0 else f"slave-{end.broker}"
    bad = tuple(f"{kind} {name}" for kind in ("slow disk", "full disk", "pause"))
    times: dict[str, tuple[float, float]] = {}
    for event in story.history.events:
        if event.at > end.at:
            break
        if isinstance(event, FaultBegan) and event.fault.startswith(bad):
            times[event.fault] = event.at, float("inf")
        elif isinstance(event, FaultEnded) and event.fault in times:
            times[event.fault] = times[event.fault][0], event.at
    return list(times.values())
