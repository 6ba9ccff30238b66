"""Whether readers get all that was acknowledged, and whether a synchronous master's readers see only what is confirmed.

Invariant: nothing here is excused by a log that became shorter: a group that is running reads on from its committed
offsets, and misses nothing that was acknowledged afterwards at places used before.
"""

from collections.abc import Iterator
from typing import Final

from tests.cluster.histories.events import (
    Lowered,
    MemberEnded,
    OffsetStored,
    Pulled,
    Received,
    ReignBegan,
    Reported,
    SendAnswered,
)
from tests.cluster.histories.schedule import MOVABLE_QUEUE
from tests.cluster.histories.story import Story
from tests.cluster.histories.violation import Violation, events_of

SLAVE_TIMEOUT: Final = 3.0
"""Seconds without progress of slaves after which a master's own disk stands in for them (`slave_timeout`)."""


def acknowledged_messages_are_delivered(story: Story) -> Iterator[Violation]:
    """What was acknowledged and is still there was handed to a member of the group that runs until the end."""
    there = [dict(queue) for queue in story.final.brokers[0].queues]
    received = {(event.queue_id, event.body) for event in events_of(story, Received)}
    passed = places_passed_by_an_order(story)
    for answer in events_of(story, SendAnswered):
        queue_id = answer.queue_id
        for index, body in enumerate(answer.bodies):
            offset = answer.queue_offset + index
            if queue_id == MOVABLE_QUEUE and offset in passed:
                continue
            if there[queue_id].get(offset) == body and (queue_id, body) not in received:
                yield Violation("acknowledged and undelivered", f"{body!r}", answer)


def places_passed_by_an_order(story: Story) -> set[int]:
    """Return the places of the movable queue over which a broker has moved the group by an order.

    An operator may reset to what a slave had committed, and a member may seek to where it had been before a loss. Where
    that lies beyond the queue's end it continues at the end: the user's word counts (decision 0036).
    """
    orders: dict[int, bool] = {}  # the offset of each, and whether it came as a plain commit
    passed: set[int] = set()
    for event in story.history.events:
        if isinstance(event, Lowered):
            orders[event.offset] = event.who == "mqadmin" or orders.get(event.offset, False)
        elif isinstance(event, OffsetStored) and event.queue_id == MOVABLE_QUEUE:
            is_to_the_end = (
                event.offset == event.queue_end and max(orders, default=0) > event.offset
            )
            is_known = event.offset in orders or is_to_the_end
            if orders.get(event.offset) or (is_known and event.is_ordered):
                passed.update(range(max(event.before, 0), event.offset))
    return passed


def readers_see_what_is_confirmed(story: Story) -> Iterator[Violation]:
    """A synchronous master shows what a slave told it to have, or what is on its disk while no slave moves.

    A slave that reports all that there is moves the gate for certain; one that is behind may not count yet.
    """
    if story.schedule.mode.role != "sync-master":
        return
    master, confirmed, moved_at = 0, 0, 0.0
    kept = 0  # the log's end when the reign began: its master may have shown all of that before
    shown = 0  # by the master of the moment, and what it shows again after a restart
    shows: dict[int, int] = {}  # what each broker shows if it becomes master: a former one said so
    for event in story.history.events:
        match event:
            case Reported(at=at, broker=broker, address=address) if broker == master:
                if _is_over(moved_at, at):
                    shown = max(shown, event.flushed)  # Its disk stood in, perhaps until now.
                if address == event.end and address > max(kept, confirmed):
                    moved_at = at
                confirmed = max(confirmed, address)
            case MemberEnded(at=at, broker=broker, flushed=flushed) if broker == master:
                if _is_over(moved_at, at):
                    # Its readers may have been shown all that was on its disk.
                    shown = max(shown, flushed)
            case ReignBegan(at=at, broker=broker, kept=kept, others=others):
                for number, end, _ in others:
                    shows[number] = min(max(shows.get(number, 0), confirmed, shown), end)
                confirmed, moved_at = min(confirmed, kept), at
                shown = max(min(shown, kept) if broker == master else 0, shows.get(broker, 0))
                master = broker
            case Pulled(at=at, broker=broker, end_offset=end, held_by=held_by) if broker == master:
                on_disk = {number: flushed for number, _, flushed in held_by}.get(broker)
                if on_disk is None:
                    continue  # It is starting, and serves before it can be seen how far it is.
                if _is_over(moved_at, at):
                    shown = max(shown, on_disk)
                if end >= max(confirmed, shown):
                    yield Violation("shown before it was confirmed", "", event)
                shown = max(shown, end + 1)
            case _:
                pass


def _is_over(moved_at: float, at: float) -> bool:
    """Whether a master waits no longer for slaves that have moved last; times are rounded."""
    return round(at - moved_at, 6) >= SLAVE_TIMEOUT
