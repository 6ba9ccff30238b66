"""Whether static members keep their queues while they are away for less than their grace time.

Who is away is known to the memory of each broker alone, and everybody's place to who can be reached: from the first
fault of a broker, the name server, or their network on, they only have to have their queues in the end, or the run
comes to no rest.
"""

from collections.abc import Iterator
from typing import Final, get_args

from tests.cluster.histories.schedule import FIRST_FAULT, HOST_FAULTS, PAIR_FAULTS, Fault
from tests.cluster.histories.story import Story
from tests.cluster.histories.uses.events import Away, Owns
from tests.cluster.histories.uses.regulars import fair_shares
from tests.cluster.histories.violation import Violation

OPENING: Final = 1.0
"""Seconds in which a member that is back finds out what is its own."""
_CLIENTS: Final = ("consumer", "producer", "user", "payer")
_HARMLESS: Final = ("slow disk", "full disk", "rival")


def check_regulars(story: Story) -> Iterator[Violation]:
    """Each has its own share whenever it is there."""
    if "static" not in story.schedule.uses:
        return
    until = first_disturbance(story)
    shares = fair_shares()
    back: dict[str, float] = {}
    last: dict[str, tuple[int, ...]] = {}
    for event in story.history.events:
        if isinstance(event, Away):
            last.pop(event.who, None)
        elif isinstance(event, Owns):
            if event.who not in last:
                back[event.who] = event.at
            last[event.who] = event.queue_ids
            is_settled = FIRST_FAULT <= event.at < until
            # It owns nothing before it knows its group; it may own others' at no time.
            is_opening = not event.queue_ids and event.at < back[event.who] + OPENING
            if is_settled and not is_opening and event.queue_ids != shares[event.who]:
                yield Violation("a static member's queues moved", f"{shares[event.who]}", event)


def first_disturbance(story: Story) -> float:
    """When something happened that brokers, or members, may not remember each other after."""
    schedule = story.schedule
    times = [fault.at for fault in schedule.faults if _disturbs(fault)]
    times += [switch.at for switch in schedule.switches]
    return min(times, default=float("inf"))


def _disturbs(fault: Fault) -> bool:
    if fault.kind in _HARMLESS:
        return False
    is_of_network = fault.kind in (*get_args(PAIR_FAULTS), *get_args(HOST_FAULTS))
    return not (
        is_of_network and (fault.who.startswith(_CLIENTS) or fault.other.startswith(_CLIENTS))
    )
