"""The standings of a broker among those of its name, what each allows, and which events lead from one to another.

This file decides alone, and without I/O. `service.py` and `hand_over.py` report events, `switchboard.py` makes the
parts of the broker do what the standing allows, and `answering.py` refuses requests by it. The page
docs/life-of-a-broker-name.md shows the same tables.

Invariant: of the brokers of one name that can ask each other, at most one has a standing that takes writes.
Invariant: an event that a standing does not know is a fault of this program, never ignored.
Answers to: nothing of 4.x, where two masters of one name both lead; 5.x's controller elects one.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import attrs

from rocketrio_broker.waiting.watermark import Watermark

Label: TypeAlias = Literal["leads", "follows", "stands aside"]

NOT_TAKEN_OVER: Final = "this master has not taken over yet"


class Followers(Enum):
    """Which slaves may follow this broker's log."""

    NONE = auto()
    IF_FOLLOWING = auto()
    """Any, once this broker has compared its own log with its master's."""
    ANY = auto()
    """The log is compared with that of each slave, and no other broker continues in place of this one."""


class Listing(Enum):
    """Whether this broker registers at the name servers."""

    HELD = auto()
    """Nothing; what they know of this broker stays, because clients go to a listed master."""
    ONCE_IT_SERVES = auto()
    ASKED_FOR = auto()
    """This broker registers as master, and looks whether one refuses that."""
    KEPT = auto()


@attrs.frozen(kw_only=True, eq=False)
class Standing:
    """A row of the table. What it does not name it does not allow."""

    name: str
    label: Label
    """As the status says it."""
    copies: bool = False
    """Replication writes the log, and readers see what the master lets them see."""
    writes: bool = False
    """Appends are taken, while no other part of the broker refuses them (`store/refusals.py`)."""
    followers: Followers = Followers.NONE
    listing: Listing = Listing.HELD
    claims: bool = False
    """Other brokers of the name get the answer that this one leads, or is about to."""
    locks: bool = False
    """Queues are locked here. A standing without locks may keep those of before; `FOLLOWING` and `ASIDE` drop them."""
    serves: bool = True
    """Clients are answered. Otherwise their readers, commits, members, topics and groups are refused: another master
    is alive."""

    def __repr__(self) -> str:
        return self.name


FOLLOWING: Final = Standing(
    name="following",
    label="follows",
    copies=True,
    followers=Followers.IF_FOLLOWING,
    listing=Listing.ONCE_IT_SERVES,
)
UNRESOLVED: Final = (
    Standing(  # It handed over, and does not know whether the other one took over: it asks.
        name="unresolved",
        label="follows",
        copies=True,
        followers=Followers.IF_FOLLOWING,
        listing=Listing.ONCE_IT_SERVES,
    )
)
LOOKING: Final = Standing(name="looking", label="stands aside")
ASIDE: Final = Standing(  # Another master is alive, or takes over first; it looks again.
    name="aside", label="stands aside", serves=False
)
PREPARING: Final = (
    Standing(  # No other one continues: it gets what others have of its log and its tables.
        name="preparing", label="stands aside", followers=Followers.ANY
    )
)
WAITING: Final = Standing(  # That takes long: readers are served meanwhile.
    name="waiting",
    label="stands aside",
    followers=Followers.ANY,
    listing=Listing.ONCE_IT_SERVES,
)
CLAIMING: Final = Standing(
    name="claiming",
    label="stands aside",
    followers=Followers.ANY,
    listing=Listing.ASKED_FOR,
    claims=True,
)
SHORT_OF_ROOM: Final = (
    Standing(  # The disk cannot store its topics or its epoch: it leads without writes.
        name="short of room",
        label="leads",
        followers=Followers.ANY,
        listing=Listing.ONCE_IT_SERVES,
        claims=True,
        locks=True,
    )
)
LEADING: Final = Standing(
    name="leading",
    label="leads",
    writes=True,
    followers=Followers.ANY,
    listing=Listing.KEPT,
    claims=True,
    locks=True,
)
# It does not claim: the other one may have taken over, died and started again, and would
# give way to a claim. Then the name would have no master.
HANDING_OVER: Final = Standing(  # Writes wait; the other one may have taken over at any moment.
    name="handing over",
    label="leads",
    followers=Followers.ANY,
    listing=Listing.KEPT,
    locks=True,
)
STEPPING_DOWN: Final = Standing(  # It is to become a slave, and ends what only a master runs.
    name="stepping down",
    label="leads",
    followers=Followers.ANY,
    listing=Listing.KEPT,
    locks=True,
)

STANDINGS: Final = (
    FOLLOWING, UNRESOLVED, LOOKING, ASIDE, PREPARING, WAITING, CLAIMING, SHORT_OF_ROOM, LEADING,
    HANDING_OVER, STEPPING_DOWN,
)  # fmt: skip
LEADERS: Final = tuple(one for one in STANDINGS if one.label == "leads")
"""The standings of a broker that decides for its name."""


class Event(Enum):
    """What happens to a broker, or what it finds out."""

    FOLLOWS = "its role is that of a slave"
    OUTCOME_UNKNOWN = "its role is that of a slave, and it handed over without an answer"
    LOOKS = (
        "its role is that of a master, which looks for others first, again after it was replaced, "
        "or a longer log came back"
    )
    IS_GIVEN_THE_NAME = "its master has handed over to it, and looked for others a moment ago"
    IS_ALONE = "no other master was found that continues in place of this one"
    YIELDS = "another master continues, and this one does not follow it now"
    TAKES_LONG = "peers or tables that it needs are not to be had yet"
    CLAIMS = "it has everything that it could get"
    HAS_NO_ROOM = "the disk cannot store what a master needs before its first write"
    TAKES_OVER = "no name server lists another master, and its epoch is on the disk"
    HANDS_OVER = "a slave is about to take over by request"
    REMAINS = "that slave did not take over"
    STEPS_DOWN = "it led, and an operator, a hand-over or another master makes it a slave"


def _from(before: tuple[Standing, ...], after: Standing) -> dict[Standing, Standing]:
    return dict.fromkeys(before, after)


_BEFORE_LEADING: Final = (PREPARING, WAITING, CLAIMING)

NEXT: Final[Mapping[Event, Mapping[Standing, Standing]]] = MappingProxyType(
    {
        Event.FOLLOWS: _from(STANDINGS, FOLLOWING),
        Event.OUTCOME_UNKNOWN: _from(STANDINGS, UNRESOLVED),
        # One that stood aside does so until it is alone.
        Event.LOOKS: {**_from(STANDINGS, LOOKING), ASIDE: ASIDE},
        Event.IS_GIVEN_THE_NAME: _from((FOLLOWING, UNRESOLVED), PREPARING),
        Event.IS_ALONE: _from((LOOKING, ASIDE), PREPARING),
        Event.YIELDS: _from((LOOKING, ASIDE, *_BEFORE_LEADING, SHORT_OF_ROOM), ASIDE),
        Event.TAKES_LONG: _from((PREPARING, WAITING), WAITING),
        Event.CLAIMS: _from((PREPARING, WAITING), CLAIMING),
        Event.HAS_NO_ROOM: _from((CLAIMING, SHORT_OF_ROOM), SHORT_OF_ROOM),
        # Only after a claim that others could see: of two brokers that claim
        # at once, one finds the other before it writes.
        Event.TAKES_OVER: _from((CLAIMING, SHORT_OF_ROOM), LEADING),
        Event.HANDS_OVER: {LEADING: HANDING_OVER},
        # From no other standing: a broker that was replaced during its hand-over
        # must not get its writes back when that fails.
        Event.REMAINS: {HANDING_OVER: LEADING},
        # One that does not lead takes no writes anyway, and stays what it is until it follows.
        Event.STEPS_DOWN: _from(LEADERS, STEPPING_DOWN),
    }
)  # fmt: skip
"""Event, standing before it, standing after it. What is not here cannot happen."""


class IllegalEventError(RuntimeError):
    """An event was reported to a broker whose standing does not know it: a fault of this program."""

    def __init__(self, standing: Standing, event: Event) -> None:
        super().__init__(f"a broker that is {standing} cannot have the event {event.name}")


def after(standing: Standing, event: Event) -> Standing:
    """Return the standing after an event. Raises IllegalEventError."""
    try:
        return NEXT[event][standing]
    except KeyError:
        # Not ignored: a role that went on after an event without effect might write beside another master.
        raise IllegalEventError(standing, event) from None


class CurrentStanding:
    """The standing of one broker, for everybody to look at; `Switchboard` alone changes it."""

    def __init__(self) -> None:
        self.now = LOOKING
        self.reason = NOT_TAKEN_OVER
        """Why it does not take writes; empty while it leads."""
        self.other: str | None = None
        """The live master because of which this broker stands aside; None if it knows of none."""
        self.problem: str | None = None
        """Why the name has no master, as a slave found out; None if it has one."""
        self.changes = Watermark()
        """Counts the changes of label and of `other`."""
        self.served = Watermark()
        """Counts the times that a role began to serve."""

    def __repr__(self) -> str:
        return f"<CurrentStanding {self.now}>"

    @property
    def leads(self) -> bool:
        """Whether the broker decides for its name."""
        return self.now.label == "leads"

    @property
    def claims(self) -> bool:
        """Whether it leads or is about to, so that another master must wait for it."""
        return self.now.claims

    @property
    def stands_aside(self) -> bool:
        """Whether the broker is configured as master and does not lead."""
        return self.now.label == "stands aside"

    def note(self, event: Event, reason: str = "", *, other: str | None = None) -> Standing:
        """Take the next standing, and return the one before. Raises IllegalEventError."""
        before, self.now = self.now, after(self.now, event)
        self.reason = reason
        if (before.label, self.other) != (self.now.label, other):
            self.other = other
            self.changes.advance(self.changes.value + 1)
        return before
