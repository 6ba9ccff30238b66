"""Whether static members keep their queues while they are away for less than their grace time.

Who is away is known to the memory of each broker alone, and a member that is back asks those that it reaches. So what
it owns is its share of the group as some broker told it, and as long as brokers forget no member that is all queues.
"""

from collections.abc import Iterator
from typing import Final

from tests.cluster.histories.events import MemberEnded
from tests.cluster.histories.story import Story
from tests.cluster.histories.uses.events import Away, Listed, Owns
from tests.cluster.histories.uses.regulars import GRACE, fair_shares, share_of
from tests.cluster.histories.violation import Violation

OPENING: Final = 1.0
"""Seconds in which a member that is back finds out what is its own."""


def check_regulars(story: Story) -> Iterator[Violation]:
    """Each has its share of the group as a broker reported it, and each broker reports every member."""
    shares = fair_shares()
    told: dict[int, tuple[str, ...]] = {}  # by broker, what it says of the group
    since = {
        name: set[tuple[str, ...]]() for name in shares
    }  # what a broker may have answered to each
    back: dict[str, float] = {}
    for event in story.history.events:
        match event:
            case MemberEnded(broker=broker):
                told.pop(broker, None)
            case Listed(broker=broker, members=members, silent=silent):
                if broker in told and any(seconds < GRACE for _, seconds in silent):
                    yield Violation("a static member was forgotten", "", event)
                told[broker] = members
                for lists in since.values():
                    lists.add(members)
            case Away(who=who):
                back.pop(who, None)
                since[who] = set(told.values())
            case Owns(at=at, who=who, queue_ids=queue_ids):
                is_opening = at < back.setdefault(who, at) + OPENING
                may_own = {share_of(who, members) for members in since[who]}
                # It owns nothing before it knows its group; it may own others' at no time.
                if queue_ids not in may_own and not (is_opening and not queue_ids):
                    yield Violation("a static member's queues moved", f"{shares[who]}", event)
                since[who] = set(told.values())
            case _:
                pass
