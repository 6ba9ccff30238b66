"""Whether committed offsets fall only where they were lowered on purpose, survive what they must, mean what they say.

A commit is in a broker's memory; its file follows within 5 s, and its slaves' memory within their period. So what
was there for `SETTLED` seconds outlives a kill or a power cut; a clean stop loses nothing at all.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from tests.cluster.histories.events import (
    Committed,
    Generation,
    Lowered,
    MemberEnded,
    MemberStarted,
    OffsetsSeen,
    OffsetStored,
    Received,
    ReignBegan,
    ReignEnded,
)
from tests.cluster.histories.schedule import MOVABLE_QUEUE
from tests.cluster.histories.story import Story
from tests.cluster.histories.tail_losses import (
    TailLoss,
    is_divergent,
    shorter_reigns,
    tail_losses,
)
from tests.cluster.histories.violation import Violation, events_of

SETTLED: Final = 6.5
"""Seconds: the file's period of 5 s, the period of looking, and a little."""
COPIED: Final = 1.5
"""Seconds after which slaves have copied an offset: their period of 1 s, and a little."""

_Known = tuple[Generation, int]
"""The generation of an offset, as far as that is looked at, and the offset: of two the greater one is newer."""
_NOTHING: Final[_Known] = (), -1


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
    """An order, what a broker made of one, or the loss of a queue's end: each broker's offset may fall once for it."""

    queue_id: int
    offset: int
    """At least this is left."""
    brokers: set[int] | None = None
    """Those that know of it; None for all."""
    generation: Generation = (0, 0)
    """The generation of the offset that an order stored; (0, 0) on queues whose generations are not recorded."""
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
    """While a broker runs its offsets fall only where an owner or an operator lowered them, once for each order."""
    seen: dict[tuple[int, int], int] = {}
    orders: list[_Fall] = []
    falls: list[_Fall] = []
    losses = {ended.at: began for began, ended in shorter_reigns(story)}
    # What a master began with, by each slave that may fall to it.
    taken: dict[int, dict[int, int]] = {}
    for event in story.history.events:
        match event:
            case ReignEnded(at=at) if at in losses:
                # What was committed beyond the ends is void. Its broker looks at its queues before it is master.
                began = losses[at]
                for queue_id, end in enumerate(began.queue_ends):
                    falls.append(_Fall(queue_id, end, brokers={began.broker}))
            case ReignBegan():
                if event in losses.values():
                    running = {number for number, _, _ in event.others}
                    longer = {number for number, end in event.holders if end > event.kept}
                    others = (running | longer) - {event.broker}
                    for queue_id, end in enumerate(event.queue_ends):
                        falls.append(_Fall(queue_id, end, brokers=others))
                # What such a slave holds beyond its own log is not taken over, nor what any counts of an epoch that
                # the master has lost: it copies the master's offsets.
                behind = [
                    number
                    for number, end, _ in event.others
                    if end < event.kept or event.epochs_known_to
                ]
                taken = {number: dict(event.offsets) for number in behind}
            case Lowered(outcome="begins", queue_id=queue_id, offset=offset):
                orders.append(_Fall(queue_id, offset))
            case OffsetStored(is_ordered=True, broker=broker, queue_id=queue_id, offset=offset):
                generation = event.generation if queue_id == MOVABLE_QUEUE else (0, 0)
                # An owner or an operator may send it again to another broker, which carries it out as well.
                if offset < event.before:
                    obeyed = [one for one in orders if one.allows(broker, queue_id, offset)]
                    # A member whose position is beyond the end of the queue goes back to it: there is nothing to read.
                    is_to_the_end = event.queue_end is not None and offset >= event.queue_end
                    if obeyed:
                        max(obeyed, key=lambda one: one.offset).used.add(broker)
                    elif not is_to_the_end:
                        yield Violation("lowered without an order", "", event)
                if event.queue_end is not None and offset > event.queue_end:
                    # Its member goes on at the end, as it is when it comes there.
                    orders.append(_Fall(queue_id, event.queue_end))
                falls.append(_Fall(queue_id, offset, generation=generation))
            case MemberEnded(broker=broker):
                seen = {key: offset for key, offset in seen.items() if key[0] != broker}
            case MemberStarted(broker=broker, offsets=offsets, generation=kept):
                seen.update({(broker, queue_id): offset for queue_id, offset in offsets})
                for one in (*orders, *falls):  # What it has not kept it may obey again.
                    if dict(offsets).get(one.queue_id, -1) > one.offset or one.generation > kept:
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


def _known(event: OffsetsSeen | MemberEnded | MemberStarted | ReignBegan) -> dict[int, _Known]:
    """Return what a broker knows of each queue."""
    return {
        queue_id: (event.generation if queue_id == MOVABLE_QUEUE else (), offset)
        for queue_id, offset in event.offsets
    }


def offsets_survive_restarts(story: Story) -> Iterator[Violation]:
    """What was settled is there again; what a clean stop had is there in any case."""
    seen: dict[tuple[int, int], list[tuple[float, _Known]]] = {}
    least: dict[int, dict[int, _Known]] = {}
    losses = tail_losses(story)
    for event in story.history.events:
        match event:
            case OffsetsSeen(at=at, broker=broker):
                for queue_id, known in _known(event).items():
                    seen.setdefault((broker, queue_id), []).append((at, known))
            case MemberEnded(broker=broker, how=how):
                had_trouble = event.at - event.disk_trouble_at < SETTLED
                if not had_trouble and how not in ("wiped", "older copy"):
                    least[broker] = _known(event) if how == "stop" else _settled(seen, event)
            case MemberStarted(broker=broker):
                seen = {key: values for key, values in seen.items() if key[0] != broker}
                found = _known(event)
                for queue_id, (generation, before) in least.pop(broker, {}).items():
                    offset = _still_there(losses, queue_id, before, event.at)
                    if found.get(queue_id, _NOTHING) < (generation, offset):
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
    seen: dict[tuple[int, int], list[tuple[float, _Known]]], end: MemberEnded
) -> dict[int, _Known]:
    """Queue id to the offset that was there long enough to be on the broker's disk, and was not lowered since."""
    settled = {}
    for (broker, queue_id), known_at in seen.items():
        old = [known for at, known in known_at if at <= end.at - SETTLED]
        if broker == end.broker and old:
            later = [known for _, known in known_at[len(old) :]]
            settled[queue_id] = min([old[-1], *later])
    return settled


def new_master_asked_its_slaves(story: Story) -> Iterator[Violation]:
    """A master that comes back, or is new, has what was committed to another broker meanwhile, if it could be asked.

    So it knows of each order, too. Those that it knows from their connections alone it asks once: they are not held
    against it.
    """
    held: dict[tuple[int, int], list[tuple[float, _Known]]] = {}
    losses = tail_losses(story)
    for event in story.history.events:
        match event:
            case OffsetsSeen(at=at, broker=broker):
                for queue_id, known in _known(event).items():
                    held.setdefault((broker, queue_id), []).append((at, known))
            case MemberEnded(broker=broker):
                held = {key: values for key, values in held.items() if key[0] != broker}
            case ReignBegan(is_serving=True, at=at, queue_ends=queue_ends):
                found, ends = _known(event), dict(enumerate(queue_ends))
                known_to = dict(enumerate(event.epochs_known_to))
                for (broker, queue_id), values in held.items():
                    before = [known for seen_at, known in values if seen_at <= event.since]
                    is_asked = broker == event.broker or (
                        broker in event.named and event.could_ask(broker)
                    )
                    if not before or not is_asked:
                        continue
                    generation, offset = before[-1]
                    if not _still_there(losses, queue_id, 1, at):
                        continue  # Of the queue whose messages it counts nothing is left.
                    least = _still_there(losses, queue_id, offset, at)
                    least = min(least, ends.get(queue_id, least)) if losses else least
                    if broker != event.broker and is_divergent(story, broker, at):
                        # What it counts beyond the end of what both have are other messages.
                        shared = [one.end_of(queue_id) for one in losses if one.started <= at]
                        least = min(least, *shared)
                    if broker != event.broker:
                        # Nothing shows that what others count of a lost epoch are messages of this log (0036).
                        least = min(least, known_to.get(queue_id, least))
                    if found.get(queue_id, _NOTHING) < (generation, least):
                        detail = f"queue {queue_id}: broker {broker} has {before[-1]}"
                        yield Violation("slaves were not asked", detail, event)
            case _:
                pass


def confirmed_commits_are_somewhere(story: Story) -> Iterator[Violation]:
    """When a commit is confirmed a broker has it, or had it: one that ended since may have forgotten it.

    As far as there are messages: what lies beyond the end of a queue that became shorter is confirmed and left out.
    """
    highest: dict[int, int] = {}
    for event in story.history.events:
        seen: tuple[tuple[int, int], ...] = ()
        if isinstance(event, OffsetsSeen | MemberEnded | MemberStarted):
            seen = event.offsets
        elif isinstance(event, OffsetStored):
            seen = ((event.queue_id, event.offset),)
        elif isinstance(event, Committed):
            seen = tuple((queue_id, offset) for _, queue_id, offset in event.held_by)
        for queue_id, offset in seen:
            highest[queue_id] = max(offset, highest.get(queue_id, -1))
        if isinstance(event, Committed) and event.all_seen:
            ends = dict(enumerate(event.queue_ends))
            for queue_id, offset in event.offsets:
                if highest.get(queue_id, -1) < min(offset, ends.get(queue_id, offset)):
                    yield Violation(
                        "confirmed and nowhere", f"queue {queue_id} offset {offset}", event
                    )


def committed_was_received(story: Story) -> Iterator[Violation]:
    """No offset stands behind a message that no member of the group was handed."""
    ends: dict[int, int] = {}
    for event in story.history.events:
        if isinstance(event, Received):
            ends[event.queue_id] = max(ends.get(event.queue_id, 0), event.queue_offset + 1)
        elif isinstance(event, OffsetsSeen):
            for queue_id, offset in event.offsets:
                if offset > ends.get(queue_id, 0):
                    yield Violation("committed and never received", f"queue {queue_id}", event)


def resets_win(story: Story) -> Iterator[Violation]:
    """The newest reset by an operator that lowered the group's offset is obeyed: it is read from there again.

    By the generations that brokers gave them, not by time: of two that do not know of each other the order is one of
    rule (decision 0014). That a master knows of a reset is looked at elsewhere.
    """
    stored = [event for event in events_of(story, OffsetStored) if event.is_reset]
    for order in events_of(story, Lowered):
        if (order.who, order.outcome) == ("operator", "done") and not any(
            (one.queue_id, one.offset) == (order.queue_id, order.offset) and one.at <= order.at
            for one in stored
        ):
            yield Violation("reset without effect", "no broker carried it out", order)
    reset = max(
        (event for event in stored if event.is_ordered and event.offset < event.before),
        key=lambda event: (event.generation[0], event.offset),
        default=None,
    )
    if reset is None or _is_overruled(story, reset):
        return
    place = reset.queue_id, reset.offset
    is_there = reset.offset < len(story.final.brokers[0].queues[reset.queue_id]) and not any(
        loss.took(*place) and loss.started >= reset.at for loss in tail_losses(story)
    )
    is_read = any(
        (event.queue_id, event.queue_offset) == place and event.at >= reset.at
        for event in events_of(story, Received)
    )
    if is_there and not is_read:
        yield Violation("reset without effect", "", reset)


def _is_overruled(story: Story, reset: OffsetStored) -> bool:
    """Whether another order came since, or the master of the end has not heard of this one."""
    last = [
        event.generation
        for event in events_of(story, OffsetsSeen)
        if event.broker == story.final.brokers[0].broker
        and any(queue_id == reset.queue_id for queue_id, _ in event.offsets)
    ]
    # Orders that wait at a broker which stands still are obeyed one after the other, in the same moment. Those of
    # Apache's tools are commits there.
    of_apache = {order.offset for order in events_of(story, Lowered) if order.who == "mqadmin"}
    is_followed = any(
        (event.is_reset and event.generation > reset.generation)
        or (event.before == reset.offset and not event.is_reset and event.offset in of_apache)
        for event in events_of(story, OffsetStored)
        if event.at >= reset.at and event.queue_id == reset.queue_id
    )
    is_overruled = any(
        event.at >= reset.at and event.offset != reset.offset for event in events_of(story, Lowered)
    )
    return last[-1:] < [reset.generation] or is_followed or is_overruled
