"""Whether committed offsets only rise where nobody lowered them, survive what they must, and mean what they say.

A commit is in a broker's memory; its file follows within 5 s, and its slaves' memory within their period. So what
was there for `SETTLED` seconds outlives a kill or a power cut; a clean stop loses nothing at all.
"""

from collections.abc import Iterator, Sequence
from typing import Final

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
    any_divergent,
    first_tail_loss,
    reigns,
    shorter_reigns,
    tail_losses,
    was_down,
)
from tests.cluster.histories.violation import Violation

SETTLED: Final = 6.5
"""Seconds: the file's period of 5 s, the period of looking, and a little."""
COPIED: Final = 1.5
"""Seconds after which slaves have copied an offset: their period of 1 s, and a little."""
REGISTERED_AFTER: Final = 12.0
"""Seconds after which brokers have registered again with a name server that forgot them: their period is 10 s."""


def check_offsets(story: Story) -> Iterator[Violation]:
    """All that is promised of offsets."""
    yield from offsets_rise_in_memory(story)
    yield from offsets_survive_restarts(story)
    yield from new_master_asked_its_slaves(story)
    yield from confirmed_commits_are_somewhere(story)
    yield from committed_was_received(story)
    yield from resets_win(story)


def offsets_rise_in_memory(story: Story) -> Iterator[Violation]:
    """While a broker runs its offsets fall only where somebody entitled lowered them."""
    seen: dict[tuple[int, int], int] = {}
    lowest_allowed: dict[int, int] = {}
    losses = shorter_reigns(story)
    shorter = {began.at for began, _ in losses}
    taken: dict[int, dict[int, int]] = {}  # what a master began with, by each slave that was behind
    for event in story.history.events:
        if isinstance(event, ReignBegan):
            # What such a slave holds beyond its own log is not taken over, and it copies the master's offsets.
            behind = [number for number, end, _ in event.others if end < event.kept]
            taken = {number: dict(event.offsets) for number in behind}
        match event:
            case ReignBegan(at=at, queue_ends=ends) if at in shorter:
                for queue_id, end in enumerate(ends):  # What was committed beyond them is void.
                    lowest_allowed[queue_id] = min(end, lowest_allowed.get(queue_id, end))
            case Lowered(queue_id=queue_id, offset=offset):
                lowest_allowed[queue_id] = min(offset, lowest_allowed.get(queue_id, offset))
            case MemberEnded(broker=broker):
                seen = {key: offset for key, offset in seen.items() if key[0] != broker}
            case MemberStarted(broker=broker, offsets=offsets):
                seen.update({(broker, queue_id): offset for queue_id, offset in offsets})
            case OffsetsSeen(broker=broker, offsets=offsets):
                for queue_id, offset in offsets:
                    before = seen.get((broker, queue_id), -1)
                    allowed = lowest_allowed.get(queue_id, before)
                    allowed = min(taken.get(broker, {}).get(queue_id, allowed), allowed)
                    for began, ended in losses:
                        # It looks at its queues before it is master.
                        if broker == began.broker and ended.at <= event.at <= began.at:
                            ends = dict(enumerate(began.queue_ends))
                            allowed = min(ends.get(queue_id, allowed), allowed)
                    if offset < before and offset < allowed:
                        yield Violation(
                            "offset went back", f"queue {queue_id}: {before} before", event
                        )
                    seen[broker, queue_id] = offset
            case _:
                pass


def offsets_survive_restarts(story: Story) -> Iterator[Violation]:
    """What was settled is there again; what a clean stop had is there in any case."""
    seen: dict[tuple[int, int], list[tuple[float, int]]] = {}
    least: dict[int, dict[int, int]] = {}
    losses = tail_losses(story)
    for event in story.history.events:
        if _is_unsettled(losses, event.at):
            seen.clear()  # What lies beyond the ends of the queues is not kept.
            least.clear()
            continue
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
                for queue_id, offset in least.pop(broker, {}).items():
                    if queue_id != MOVABLE_QUEUE and found.get(queue_id, -1) < offset:
                        yield Violation(
                            "offset forgotten", f"queue {queue_id}: {offset} before", event
                        )
            case _:
                pass


def _is_unsettled(losses: Sequence[TailLoss], at: float) -> bool:
    """Whether offsets may still count messages of a log that became shorter."""
    return any(loss.ended <= at <= loss.started + SETTLED for loss in losses)


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
    """A master that comes back, or is new, has what was committed to another broker meanwhile, if it could be asked."""
    held: dict[int, dict[int, int]] = {}
    none_since = 0.0
    losses = tail_losses(story)
    for event in story.history.events:
        match event:
            case OffsetsSeen(broker=broker, offsets=offsets):
                held.setdefault(broker, {}).update(offsets)
            case MemberEnded(broker=broker):
                held.pop(broker, None)
            case ReignEnded(at=at):
                none_since = at
            case ReignBegan(at=at, offsets=offsets, queue_ends=queue_ends):
                if _is_unsettled(losses, at) or not can_ask(story, none_since, event):
                    continue
                found, ends = dict(offsets), dict(enumerate(queue_ends))
                for broker, queues in held.items():
                    for queue_id, offset in queues.items():
                        least = min(offset, ends.get(queue_id, offset)) if losses else offset
                        if queue_id != MOVABLE_QUEUE and found.get(queue_id, -1) < least:
                            detail = f"queue {queue_id}: broker {broker} has {offset}"
                            yield Violation("slaves were not asked", detail, event)
            case _:
                pass


def can_ask(story: Story, ended: float, began: ReignBegan) -> bool:
    """Whether a new master could reach its name server and slaves, and they had registered there."""
    clients = ("consumer", "producer", "user", "payer")
    itself = "master" if began.broker == 0 else f"slave-{began.broker}"
    return not any(
        fault.at <= began.at and fault.at + fault.lasts >= ended - REGISTERED_AFTER
        for fault in story.schedule.faults
        if fault.kind != "rival"
        and not fault.who.startswith(clients)
        and not fault.other.startswith(clients)
        and (fault.who != itself or fault.other or fault.kind in ("silence", "full disk"))
    )


def confirmed_commits_are_somewhere(story: Story) -> Iterator[Violation]:
    """When a commit is confirmed a broker has it, or had it: one that ended since may have forgotten it."""
    highest: dict[int, int] = {}
    lowered: set[int] = set()
    first_loss = first_tail_loss(story)
    for event in story.history.events:
        if event.at >= first_loss:
            return  # What lies beyond the end of a queue is no offset of a message that is there.
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
            for queue_id, offset in event.offsets:
                if queue_id in lowered:
                    continue  # What belongs to the time before a reset is confirmed and left out.
                if highest.get(queue_id, -1) < offset:
                    yield Violation(
                        "confirmed and nowhere", f"queue {queue_id} offset {offset}", event
                    )


def committed_was_received(story: Story) -> Iterator[Violation]:
    """No offset stands behind a message that nobody of the group was handed."""
    first_loss = first_tail_loss(story)
    if any_divergent(story):
        return
    ends: dict[int, int] = {}
    for event in story.history.events:
        if event.at >= first_loss:
            return
        if isinstance(event, Received):
            ends[event.queue_id] = max(ends.get(event.queue_id, 0), event.queue_offset + 1)
        elif isinstance(event, OffsetsSeen):
            for queue_id, offset in event.offsets:
                if offset > ends.get(queue_id, 0):
                    yield Violation("committed and never received", f"queue {queue_id}", event)


def resets_win(story: Story) -> Iterator[Violation]:
    """Where an operator's reset by our tools lowered what was committed, it is read from there again."""
    lowered = [event for event in story.history.events if isinstance(event, Lowered)]
    if not lowered or tail_losses(story) or any_divergent(story):
        return
    last = lowered[-1]
    if last.who != "operator" or last.outcome != "done":
        return
    began = next(
        (one for one in reversed(lowered) if one.outcome == "begins" and one.who == last.who), last
    )
    seen = [
        (event, offset)
        for event in story.history.events
        if isinstance(event, OffsetsSeen) and event.at <= began.at
        for queue_id, offset in event.offsets
        if queue_id == last.queue_id
    ]
    before = {event.broker: offset for event, offset in seen}
    # What somebody else lowered since the last look: then this reset may have raised it.
    looked = max((event.at for event, _ in seen), default=0.0)
    unseen = [
        one.offset
        for one in lowered
        if one.who != last.who
        and (looked < one.at <= began.at or _waited(story, one, until=began.at))
    ]
    did_lower = min([*before.values(), *unseen], default=-1) > last.offset
    is_there = last.offset < len(story.final.brokers[0].queues[last.queue_id])
    is_read = any(
        isinstance(event, Received)
        and event.queue_id == last.queue_id
        and event.queue_offset == last.offset
        and event.at >= began.at
        for event in story.history.events
    )
    was_forgotten = (
        _went_with_its_disk(story, began, last)
        or _stayed_with_a_master(story, last)
        or _met_an_unknown_reset(story, began)
        or any(
            one.offset > last.offset and _waited(story, one, until=last.at)
            for one in lowered
            if one.who == "mqadmin" and one.queue_id == last.queue_id
        )
    )
    if did_lower and is_there and not is_read and not was_forgotten:
        yield Violation("reset without effect", "", last)


def _waited(story: Story, order: Lowered, *, until: float) -> bool:
    """Return whether an order waited without an answer, until a time, at a broker that stood still or was starting.

    The broker carries it out after that. An order of mqadmin then replaces what other orders have set.
    """
    if not order.outcome.startswith("No answer"):
        return False
    began: dict[str | int, float] = {}  # by fault, or by broker
    for event in story.history.events:
        match event:
            case FaultBegan(at=at, fault=fault) if fault.startswith("pause "):
                began[fault] = at
            case MemberEnded(at=at, broker=broker):
                began[broker] = at
            case FaultEnded(at=at, fault=what) | MemberStarted(at=at, broker=what):
                if began.pop(what, at) <= order.at and until <= at:
                    return True
    return False


def _went_with_its_disk(story: Story, began: Lowered, last: Lowered) -> bool:
    """Return whether a reset was undone: by a power cut soon after it, or with a broker whose disk took nothing since.

    An empty disk undoes what no slave had copied before.
    """
    return any(
        began.at <= event.at <= last.at + (SETTLED if event.how == "power cut" else COPIED)
        if event.how in ("power cut", "wiped", "older copy")
        else any(
            fault_at <= last.at <= until and event.at <= until + SETTLED + 1.0
            for fault_at, until in _bad_disk_times(story, event)
        )
        for event in story.history.events
        if isinstance(event, MemberEnded) and event.at >= began.at
    )


def _stayed_with_a_master(story: Story, last: Lowered) -> bool:
    """Whether a master went down before its slaves copied a reset, and another one reigned without it.

    A member that heard of it still may ask that one where to go on, and pass on what the reset has opened.
    """
    return any(
        began.broker != ended.broker
        and last.at <= ended.at <= last.at + COPIED
        and dict(began.offsets).get(last.queue_id, -1) > last.offset
        and was_down(story, ended.broker, began.at)
        for began, ended in reigns(story)
    )


def _met_an_unknown_reset(story: Story, began: Lowered) -> bool:
    """Whether those that took a reset had not heard of an earlier one: a slave without a master, or the next master.

    Of two resets that do not know of each other the order is one of rule, not of time (decision 0014).
    """
    seen = [
        (event.at, event.broker, dict(event.offsets)[began.queue_id])
        for event in story.history.events
        if isinstance(event, OffsetsSeen) and began.queue_id in dict(event.offsets)
    ]
    took_it = {broker for at, broker, offset in seen if at >= began.at and offset == began.offset}
    took_it |= _reigning(story, began.at)
    for earlier in story.history.events:
        if (
            isinstance(earlier, Lowered)
            and earlier.outcome == "done"
            and earlier.queue_id == began.queue_id
            and earlier.who in ("operator", "mqadmin")
        ):
            heard = {
                broker
                for at, broker, offset in seen
                if earlier.at <= at <= began.at and offset == earlier.offset
            }
            if heard and heard.isdisjoint(took_it):
                return True
    return False


def _reigning(story: Story, at: float) -> set[int]:
    """The broker that reigns at a time, or none."""
    master = {0}
    for event in story.history.events:
        if event.at > at:
            break
        if isinstance(event, ReignEnded):
            master = set()
        elif isinstance(event, ReignBegan):
            master = {event.broker}
    return master


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
