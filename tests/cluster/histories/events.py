"""What happened in one run, in the order it happened, with virtual times: the history that the checker reads.

Every event is a value that compares by its content, so that two runs of one seed can be compared whole.
`broker` is a member of the cluster by its number, whatever its role and id: 0 began as master.
"""

import math

import attrs
import trio
from tests.cluster.histories.contacts import ASKABLE, RETURN_WAIT, Outcome

Generation = tuple[int, ...]
"""How often an offset was lowered by operators, and by others since: of two the greater one is newer."""


@attrs.frozen(kw_only=True)
class Event:
    """Something that happened at a virtual time, in seconds since the run began."""

    at: float

    def __str__(self) -> str:
        fields = attrs.asdict(self, recurse=False)
        del fields["at"]
        words = " ".join(f"{name}={value!r}" for name, value in fields.items())
        return f"{self.at:10.4f}  {type(self).__name__:<16} {words}"


# ------------------------------------------------------------------------------------------------ messages


@attrs.frozen(kw_only=True)
class SendStarted(Event):
    """A producer sends one message, or several as a batch."""

    producer: str
    queue_id: int
    bodies: tuple[bytes, ...]
    waits: bool
    """What the message's WAIT property says."""


@attrs.frozen(kw_only=True)
class SendAnswered(Event):
    """A master has stored it, as safely as the status says."""

    producer: str
    broker: int
    queue_id: int
    bodies: tuple[bytes, ...]
    waits: bool
    started: float
    status: str
    queue_offset: int
    end_offset: int
    """An address inside the last record: who has it has the record, as records come whole."""
    held_by: tuple[tuple[int, int, int], ...]
    """At this moment: each broker, where its log ends, and how far it is on its disk."""


@attrs.frozen(kw_only=True)
class SendFailed(Event):
    """It is not known whether it is stored."""

    producer: str
    queue_id: int
    bodies: tuple[bytes, ...]
    started: float
    error: str


@attrs.frozen(kw_only=True)
class Received(Event):
    """A member of the group was handed a message."""

    consumer: str
    queue_id: int
    queue_offset: int
    body: bytes


@attrs.frozen(kw_only=True)
class Pulled(Event):
    """A client was answered with messages by a broker: what the broker says it has."""

    reader: str
    broker: int
    role: str = ""
    """What the broker is."""
    queue_id: int
    messages: tuple[tuple[int, bytes], ...]
    """Queue offset and body."""
    end_offset: int = 0
    """An address inside the last record."""
    held_by: tuple[tuple[int, int, int], ...] = ()
    """At this moment: each broker, where its log ends, and how far it is on its disk."""
    asked: float = attrs.field()
    """When the client sent its request."""

    @asked.default
    def _asked(self) -> float:
        return self.at


# ------------------------------------------------------------------------------------------------- offsets


@attrs.frozen(kw_only=True)
class Committed(Event):
    """A commit was confirmed, so a broker has at least this."""

    consumer: str
    offsets: tuple[tuple[int, int], ...]
    held_by: tuple[tuple[int, int, int], ...]
    """At this moment: broker, queue id, offset."""
    all_seen: bool
    """No broker was starting: those serve before it can be seen what they hold."""
    queue_ends: tuple[int, ...] = ()
    """Where the master's queues end now; empty if it is down."""


@attrs.frozen(kw_only=True)
class CommitFailed(Event):
    """Some of it may be stored."""

    consumer: str
    error: str


@attrs.frozen(kw_only=True)
class Lowered(Event):
    """An owner or an operator sets an offset that may be lower: a consumer seeks, or an operator resets."""

    who: str
    queue_id: int
    offset: int
    outcome: str
    """`begins`, `done`, or the error."""
    held_by: tuple[tuple[int, int], ...] = ()
    """Now: broker and offset of that queue."""


@attrs.frozen(kw_only=True)
class TopicCreated(Event):
    """A master and the name server confirmed a new topic."""

    topic: str
    broker: int = 0
    """Who is master then."""


@attrs.frozen(kw_only=True)
class TopicRemade(Event):
    """The passing topic was deleted and created again, and both were confirmed."""

    life: int
    offsets: tuple[tuple[int, int], ...]
    """What the master has of the group then."""
    log_end: int = 0
    """Where the master's log ends then: with all of this the topic is another one."""


@attrs.frozen(kw_only=True)
class PassingSent(Event):
    """A message to the passing topic was acknowledged."""

    started: float
    broker: int
    life: int
    queue_id: int
    queue_offset: int
    body: bytes
    """Its life and number."""
    status: str = "SEND_OK"
    end_offset: int = 0
    """An address inside its record."""


@attrs.frozen(kw_only=True)
class PassingPulled(Event):
    """What a broker has of the passing topic."""

    asked: float
    broker: int
    queue_id: int
    bodies: tuple[bytes, ...]


@attrs.frozen(kw_only=True)
class OffsetStored(Event):
    """A request has changed what a broker has of the group."""

    broker: int
    queue_id: int
    offset: int
    before: int
    """The offset until then, or -1."""
    generation: Generation
    is_ordered: bool
    """The broker opened this generation: no order had lowered the offset so yet, as far as it and its caller know."""
    is_reset: bool
    """By an operator."""
    queue_end: int | None = None
    """Where the queue ends at a master; None at a slave, which may lack messages."""


@attrs.frozen(kw_only=True)
class OffsetsSeen(Event):
    """The offsets in a broker's memory have changed since they were looked at last."""

    broker: int
    offsets: tuple[tuple[int, int], ...]
    """Queue id and offset, where it changed."""
    generation: Generation = (0, 0)
    """Of the movable queue's offset."""


# --------------------------------------------------------------------------------------- members and faults


@attrs.frozen(kw_only=True)
class MemberEnded(Event):
    """A broker is down."""

    broker: int
    role: str
    how: str
    """`stop`, `kill` (as -9: written bytes stay), `power cut` (what was not synced may be lost), `torn end` (as kill,
    and the last bytes of the log are zeros), `wiped` (as kill, and the disk is empty), `older copy` (as kill, and in
    place of its directory is a copy of it, made before), `queue gone` (as stop, and files of queues are removed), or
    `role gone` and `epochs gone` (as kill, and that file is removed)."""
    log_end: int
    flushed: int
    offsets: tuple[tuple[int, int], ...]
    generation: Generation = (0, 0)
    """Of the movable queue's offset."""
    left: int = attrs.field()
    """Where what its disk kept of the log ends, at least."""
    noted: int = 0
    """How far slaves had acknowledged its log, says its disk afterwards."""
    disk_trouble_at: float = -math.inf
    """When its disk last refused a write, or took its time, or its process stood still."""

    @left.default
    def _left(self) -> int:
        return {"power cut": self.flushed, "wiped": 0}.get(self.how, self.log_end)


@attrs.frozen(kw_only=True)
class MemberStarted(Event):
    """A broker serves again."""

    broker: int
    role: str
    log_end: int
    kept: int
    """Where what it had when it ended, and has again, ends."""
    others: tuple[tuple[int, int, int], ...]
    """Before it started: all brokers, where their logs end, and how far they are on their disks."""
    offsets: tuple[tuple[int, int], ...]
    generation: Generation = (0, 0)
    """Of the movable queue's offset."""


@attrs.frozen(kw_only=True)
class Stood(Event):
    """An event changed a broker's standing, and all parts of it are set."""

    broker: int
    event: str
    before: str
    standing: str
    writes: bool
    """Its store takes appends of its own."""
    copies: bool
    """Its store takes appends of replication."""
    log_end: int = 0
    """Where its log ended before."""


@attrs.frozen(kw_only=True)
class ReignEnded(Event):
    """The master takes nothing more: it is down, or became a slave."""

    broker: int
    log_end: int


@attrs.frozen(kw_only=True)
class ReignBegan(Event):
    """There is a master again: it came back, or a slave became it."""

    broker: int
    kept: int
    """Where what the last master had when its reign ended, and this one has, ends."""
    others: tuple[tuple[int, int, int], ...]
    """Before it was started or told: all brokers, where their logs end, and how far they are on their disks."""
    offsets: tuple[tuple[int, int], ...]
    generation: Generation = (0, 0)
    """Of the movable queue's offset."""
    queue_ends: tuple[int, ...] = ()
    """By queue id of the plain topic, as it began to lead."""
    holders: tuple[tuple[int, int], ...] = attrs.field()
    """All brokers, and up to where each had before that what the last master had; the others perhaps since."""
    asked: tuple[tuple[int, Outcome], ...] = ()
    """The other brokers, and how the last question of this one to each went, until it claimed to lead, since it was
    started or told."""
    named: tuple[int, ...] = attrs.field()
    """The other brokers that the name server named to this one in that time."""
    topics: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """All brokers, and the topics created meanwhile that each had before, on its disk if it was down."""
    has_topics: tuple[str, ...] = ()
    """Those that this one has now."""
    epochs_known_to: tuple[int, ...] = ()
    """By queue id of the plain topic, where the first epoch began that went with this broker's file of them, and that
    none it could ask knows; empty if there is none."""
    is_serving: bool = True
    """Whether it takes writes; if not it waits yet, for room on its disk for one, and `kept` is of its reign's end."""
    since: float = attrs.field()
    """When it was started or told to lead."""

    @since.default
    def _since(self) -> float:
        return self.at

    @holders.default
    def _holders(self) -> tuple[tuple[int, int], ...]:
        return tuple((number, end) for number, end, _ in self.others)

    @named.default
    def _named(self) -> tuple[int, ...]:
        return tuple(number for number, _, _ in self.others if number != self.broker)

    def could_ask(self, number: int, *, must_wait: bool = False) -> bool:
        """Whether a broker answered, or would have been found if it had been looked for; this one has itself.

        One that must wait for a slave that may come finds it also where no name server names it.
        """
        outcome = dict(self.asked).get(number, "unasked")
        may_come = must_wait and outcome == "unlisted" and self.at - self.since < RETURN_WAIT
        return outcome in ASKABLE or may_come


@attrs.frozen(kw_only=True)
class Reported(Event):
    """A master reads that a slave has its log up to here, in memory or on its disk as they are set."""

    broker: int
    slave: int
    address: int
    end: int
    """Where the master's log ends then."""
    flushed: int
    """How far the master is on its disk then."""


@attrs.frozen(kw_only=True)
class AnsweredEarly(Event):
    """A master answers success though slaves may not have the message: a send that does not wait, a deletion, ..."""

    broker: int


@attrs.frozen(kw_only=True)
class LogsCompared(Event):
    """A broker has started, or begins to reign; another one runs whose log has an epoch in common with its own."""

    broker: int
    other: int
    boundary: int
    """Up to where they are the same, by the epochs that they name."""
    same: int
    """Up to where they are."""


@attrs.frozen(kw_only=True)
class TailCut(Event):
    """A broker has cut off the end of its log, to follow another one."""

    broker: int
    start: int
    end: int
    is_proven: bool
    """By its own proof that none of it was acknowledged; otherwise by an operator's rule."""
    bodies: tuple[tuple[int, bytes], ...]
    """Queue id and body of the plain topic's messages in it."""
    why: str = ""
    """Why it has no proof; empty where it compared bytes alone."""


@attrs.frozen(kw_only=True)
class TailWaits(Event):
    """A slave that has more than its master waits for an operator."""

    broker: int
    start: int
    end: int
    why: str
    bodies: tuple[tuple[int, bytes], ...]
    """Queue id and body of the plain topic's messages that only it has."""


@attrs.frozen(kw_only=True)
class HandedOver(Event):
    """The operator's command to change places was answered: it is done."""

    former: int
    broker: int


@attrs.frozen(kw_only=True)
class TwoMasters(Event):
    """A broker leads while another one of the name takes writes."""

    broker: int
    other: int


@attrs.frozen(kw_only=True)
class RivalAnswered(Event):
    """A second master of the name was sent a message, and answered."""

    code: int


@attrs.frozen(kw_only=True)
class RivalEnded(Event):
    """It is down again."""

    log_end: int
    is_listed: bool
    """The name server sent clients to it."""


@attrs.frozen(kw_only=True)
class StrangerAnswered(Event):
    """Bytes came from a replication port for a peer that has proved nothing."""

    broker: int
    size: int


@attrs.frozen(kw_only=True)
class StartFailed(Event):
    """A broker did not come up, and is started again a little later."""

    broker: int
    error: str


@attrs.frozen(kw_only=True)
class FaultBegan(Event):
    """The schedule breaks something."""

    fault: str


@attrs.frozen(kw_only=True)
class FaultEnded(Event):
    """The schedule mends it."""

    fault: str


@attrs.frozen(kw_only=True)
class Note(Event):
    """Something worth reading in a history, which no invariant needs."""

    who: str
    text: str


@attrs.define
class History:
    """The events of one run."""

    seed: int
    events: list[Event] = attrs.Factory(list)

    def add(self, event: Event) -> None:
        self.events.append(event)

    def text(self) -> str:
        """One line an event."""
        return "\n".join(str(event) for event in self.events)


def now() -> float:
    """The time of an event, without the noise of the last bits."""
    return round(trio.current_time(), 6)
