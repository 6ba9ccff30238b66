"""Whether brokers do what the table of standings says: the table is the model, and each run is a walk through it.

Invariant: this file compares with the table of the source, also where a mutant has put another one in its place.
"""

from collections.abc import Iterator
from math import inf
from typing import Final

from tests.cluster.histories.events import (
    MemberEnded,
    PassingSent,
    Pulled,
    ReignBegan,
    ReignEnded,
    SendAnswered,
    Stood,
)
from tests.cluster.histories.story import Story
from tests.cluster.histories.uses.events import Accepted
from tests.cluster.histories.violation import Violation

from rocketrio_broker.role.standing import (
    ASIDE,
    FOLLOWING,
    LEADING,
    LOOKING,
    NEXT,
    STANDINGS,
    Standing,
)

_BY_NAME: Final = {standing.name: standing for standing in STANDINGS}
_TABLE: Final = {
    (event.name, before.name): standing.name
    for event, row in NEXT.items()
    for before, standing in row.items()
}


def standings_are_those_of_the_table(story: Story) -> Iterator[Violation]:
    """Each event leads where the table says, nothing else changes a standing, and the store obeys it."""
    standings = _at_first(story)
    for event in story.history.events:
        if isinstance(event, MemberEnded):
            standings[event.broker] = LOOKING
        elif isinstance(event, Stood):
            before = standings[event.broker]
            if event.before != before.name:
                yield Violation("a standing changed without an event", f"it was {before}", event)
            after = _BY_NAME.get(event.standing)
            if after is None or _TABLE.get((event.event, event.before)) != after.name:
                yield Violation("a standing that the table does not have", "", event)
                return
            if (event.writes and not after.writes) or event.copies != after.copies:
                yield Violation("a store does what its standing forbids", "", event)
            standings[event.broker] = after


def writes_are_taken_by_those_that_may(story: Story) -> Iterator[Violation]:
    """A broker that answered a message took writes at some moment since the message was sent."""
    until = {number: inf if one.writes else -inf for number, one in _at_first(story).items()}
    for event in story.history.events:
        match event:
            case MemberEnded(at=at, broker=broker):
                until[broker] = min(until[broker], at)
            case Stood(at=at, broker=broker, standing=name):
                is_taking = name in _BY_NAME and _BY_NAME[name].writes
                until[broker] = inf if is_taking else min(until[broker], at)
            case (
                SendAnswered(broker=broker, started=started)
                | PassingSent(broker=broker, started=started)
                | Accepted(broker=broker, started=started)
            ) if until[broker] < started:
                yield Violation("a write was taken without a right to it", "", event)
            case _:
                pass


def former_masters_lead_nobody(story: Story) -> Iterator[Violation]:
    """A broker that comes back as master gives nothing to readers while another one is master.

    In a hand-over both do: the former one until it has heard that it is over, the next one as soon as it has the name.
    """
    until = dict.fromkeys(_at_first(story), inf)
    master: int | None = 0
    for event in story.history.events:
        match event:
            case ReignEnded():
                master = None
            case ReignBegan(broker=broker):
                master = broker
            case MemberEnded(at=at, broker=broker):
                until[broker] = min(until[broker], at)
            case Stood(at=at, broker=broker, event=what, standing=name):
                if name in (LOOKING.name, ASIDE.name):
                    until[broker] = min(until[broker], at)
                elif what == "IS_GIVEN_THE_NAME" or _label(name) != ASIDE.label:
                    until[broker] = inf
            case Pulled(broker=broker, role=role, asked=asked) if master not in (None, broker):
                if role not in ("", "slave") and until[broker] < asked:
                    yield Violation("a former master was read from", "", event)
            case _:
                pass


def _label(name: str) -> str:
    return _BY_NAME[name].label if name in _BY_NAME else ASIDE.label


def _at_first(story: Story) -> dict[int, Standing]:
    """Return the standings when the run began, by the numbers of the brokers."""
    slaves = range(1, story.schedule.mode.slaves + 1)
    return {0: LEADING, **dict.fromkeys(slaves, FOLLOWING)}
