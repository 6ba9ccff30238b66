"""What a seed stands for: how the brokers are set, which faults happen when, and who sends and reads.

Pure: the same seed gives the same schedule, whatever the machine. Times are virtual seconds since the run began.

Invariant: every fault is over at `Schedule.faults_end`; what is checked afterwards must have come right by itself.
"""

import random
from typing import Final, Literal, get_args

import attrs

QUEUES: Final = 4
MOVABLE_QUEUE: Final = 3
"""The one queue whose offsets are lowered on purpose; in all others they may only rise."""
FIRST_FAULT: Final = 3.0
USUAL_LENGTH: Final = 32.0
GRAB_LIMIT: Final = 6.0
"""Seconds until a slave that grabs for the place of a living master was refused it."""
LONG_LENGTH: Final = 150.0
"""Enough for a name server or broker to give a silent peer up after 120 s."""

BROKER_FAULTS = Literal["kill", "power cut", "stop", "slow disk", "full disk"]
PAIR_FAULTS = Literal["partition", "one way", "delay", "cut", "half close"]
HOST_FAULTS = Literal["silence"]
OTHER_FAULTS = Literal["name server down"]
MISTAKES = Literal["rival"]
DAMAGE = Literal["torn end", "wiped", "older copy"]
LOST_FILES = Literal["queue gone", "role gone", "epochs gone"]
CLOCK_FAULTS = Literal["clock"]
PAUSES = Literal["pause"]
Use = Literal["delayed", "transactions", "ledger", "retries", "static", "broadcast"]
FaultKind = (
    BROKER_FAULTS
    | PAIR_FAULTS
    | HOST_FAULTS
    | OTHER_FAULTS
    | MISTAKES
    | DAMAGE
    | LOST_FILES
    | CLOCK_FAULTS
    | PAUSES
)

_WEIGHTS: Final[dict[str, int]] = {"kill": 4, "stop": 2, "power cut": 2, "partition": 3}


@attrs.frozen
class Fault:
    """One thing that goes wrong, for a while."""

    at: float
    lasts: float
    kind: FaultKind
    who: str = ""
    """A member: `master`, `slave-1`, `name server`, `producer-0`, `consumer-0`; brokers by what they are at first."""
    other: str = ""
    amount: float = 0.0
    """Seconds of a delay, of a slow disk, or that the clocks are ahead; after a power cut the share of unsynced changes
    that stayed; of a torn end the bytes that are zeros then; of an older copy the seconds since it was made; of a queue
    whose files are gone its id, or a negative number for the whole topic."""

    def __str__(self) -> str:
        words = [self.kind, self.who, self.other, f"amount={self.amount:g}" if self.amount else ""]
        return " ".join(word for word in words if word) + f" for {self.lasts:g} s"


@attrs.frozen
class Visit:
    """One stay of a consumer in the group."""

    begins: float
    ends: float
    crashes: bool
    """It is gone without a word, as its network is; otherwise it takes leave."""
    auto_commit: bool


@attrs.frozen
class Switch:
    """Another broker is made master."""

    at: float
    to: str
    is_careful: bool
    """The operator waits until it has all that the old one had."""


@attrs.frozen
class HandOver:
    """The master and a slave change places by the one command for that."""

    at: float
    to: str = ""
    """The slave; whichever lacks least, where there is none of this name or it is master."""


@attrs.frozen
class Grab:
    """The operator makes a slave master while the master lives; the name server began again, and lists no broker."""

    at: float
    to: str


@attrs.frozen
class Decision:
    """The operator looks at the master; if that began a second history, the longest slave shall be master."""

    at: float


@attrs.frozen
class Failover:
    """The master is killed, another becomes master, and the first comes back as what it was: as master."""

    at: float
    to: str
    cut_off: float
    """Seconds before the kill in which the next master hears nothing from this one."""
    promoted_after: float
    """Seconds after the kill."""
    back_after: float
    """Seconds after the promotion, less than clients keep a route."""
    mended_after: float
    """Seconds after its return until the operator makes it a slave."""
    torn: int = 0
    """Bytes at its end that are zeros when it comes back."""
    copied: float = 0.0
    """Seconds before the kill at which the next master's directory was copied: that one runs on the copy when it is
    promoted. 0 if it has what it had."""
    forgets: Literal["", "before", "after"] = ""
    """Whether the name server begins again, and lists no broker, before the promotion or after it."""

    @property
    def ends(self) -> float:
        """When it is over, unless brokers take long to start."""
        return self.at + self.promoted_after + self.back_after + self.mended_after


Change = Switch | HandOver | Grab | Decision | Failover


@attrs.frozen
class Mode:
    """How the brokers are set."""

    flush: Literal["sync", "async"]
    role: Literal["async-master", "sync-master"]
    slaves: int
    flush_interval: float
    """Seconds between two flushes where they are asynchronous."""
    reads_at_slaves: bool
    """Whether readers that are a little behind are sent to a slave."""
    acknowledge: Literal["memory", "disk"] = "memory"
    """What a slave's acknowledgement means."""
    link: Literal["open", "secret", "tls"] = "open"
    """What brokers prove to each other before they replicate."""
    returns: Literal["follow", "stand-aside"] = "follow"
    """What a master does that comes back and finds another one."""
    divergent_tail: Literal["cut", "refuse"] = "cut"
    """What a slave does with what only it has, where nothing proves that none of it was acknowledged."""


@attrs.frozen
class Schedule:
    """Everything that a seed decides before the run."""

    seed: int
    mode: Mode
    faults: tuple[Fault, ...]
    consumers: tuple[tuple[Visit, ...], ...]
    producers: int
    sending_ends: float
    resets: tuple[float, ...]
    """When an operator resets the movable queue."""
    faults_end: float
    switches: tuple[Change, ...] = ()
    remakes: tuple[float, ...] = ()
    """When the passing topic is deleted and created again; without any there is none."""
    uses: tuple[Use, ...] = ()
    """What is done beside the plain topic, see `uses/names.py`."""
    all_wait: bool = False
    """Every send waits for slaves. After an answer that does not, nothing of its epoch is cut automatically."""

    def has_wrong_clock(self, begins: float, ends: float) -> bool:
        """Whether the clocks are ahead or behind at some moment of a time: then everything is due earlier or later."""
        return any(
            fault.kind == "clock" and fault.at <= ends and fault.at + fault.lasts >= begins
            for fault in self.faults
        )

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.mode}"]
        lines += [f"  at {fault.at:g}: {fault}" for fault in self.faults]
        lines += [f"  consumer-{i}: {visits}" for i, visits in enumerate(self.consumers)]
        lines += [f"  {switch}" for switch in self.switches]
        lines.append(f"  resets: {self.resets} remakes: {self.remakes} uses: {self.uses}")
        return "\n".join(lines)


def make_schedule(seed: int) -> Schedule:
    """The schedule of a seed."""
    rng = random.Random(f"schedule {seed}")
    mode = Mode(
        flush=rng.choice(("sync", "async")),
        role=rng.choice(("async-master", "sync-master")),
        slaves=rng.choice((1, 1, 1, 2)),
        flush_interval=rng.choice((0.5, 4.0)),
        reads_at_slaves=rng.random() < 0.5,
        acknowledge=rng.choice(("memory", "disk")),
        link=random.Random(f"link {seed}").choice(("open", "open", "secret", "tls")),
        divergent_tail=random.Random(f"tail {seed}").choice(("cut", "cut", "refuse")),
    )
    is_long = rng.random() < 0.03
    length = LONG_LENGTH if is_long else USUAL_LENGTH
    consumer_count = rng.choice((1, 2, 2, 3))
    producer_count = rng.choice((1, 2))
    faults = [
        _fault(rng, length, mode.slaves, consumer_count, producer_count)
        for _ in range(rng.randint(2, 7))
    ]
    if is_long:
        silent = f"consumer-{rng.randrange(consumer_count)}"
        faults.append(Fault(round(rng.uniform(4, 20), 3), 125.0, "silence", silent))
    faults += _rivals(random.Random(f"rival {seed}"), length)
    uses = _uses(random.Random(f"uses {seed}"))
    if uses:
        faults += _faults_of_users(random.Random(f"users {seed}"), length, mode.slaves)
    faults += _pauses(random.Random(f"pauses {seed}"), length, mode.slaves)
    switches: tuple[Change, ...] = _switches(random.Random(f"switches {seed}"), length, mode.slaves)
    damage = _damage(random.Random(f"damage {seed}"), length, mode.slaves)
    older = _older_copy(random.Random(f"older copy {seed}"), length, mode.slaves)
    failover = _failover(random.Random(f"failover {seed}"), length, mode.slaves)
    grab = _grab(random.Random(f"grab {seed}"), length, mode.slaves)
    if failover is not None:
        failover = attrs.evolve(failover, copied=0.0 if older is None else older.amount)
        switches, damage = (failover,), []
        faults = _undisturbed(faults, failover.at, failover.ends)
        faults += _old_routes(random.Random(f"routes {seed}"), failover, consumer_count)
        returns: tuple[Literal["follow", "stand-aside"], ...] = ("follow", "stand-aside")
        mode = attrs.evolve(mode, returns=random.Random(f"returns {seed}").choice(returns))
    elif any(fault.kind == "wiped" for fault in damage):
        ends = max(fault.at + fault.lasts for fault in damage)
        switches = (Decision(round(ends + 4.0, 3)),)
        faults = _undisturbed(faults, damage[0].at, ends)
    elif older is not None:
        damage = [older]
        faults = _undisturbed(faults, older.at - older.amount, older.at + older.lasts)
    elif grab is not None:
        switches = (grab,)
        faults = _undisturbed(faults, grab.at, grab.at + GRAB_LIMIT)
        damage = _undisturbed(damage, grab.at, grab.at + GRAB_LIMIT)
    else:
        hand_overs, disturbing = _hand_overs(
            random.Random(f"hand-overs {seed}"), length, mode.slaves
        )
        switches = tuple(sorted((*switches, *hand_overs), key=lambda change: change.at))
        faults += disturbing
        for lost in _lost_file(random.Random(f"lost file {seed}"), length, mode.slaves):
            faults = [*_of_others(faults, lost), lost]
            damage = _of_others(damage, lost)
    faults += damage
    visits = [_visits(rng, length) for _ in range(consumer_count)]
    resets = sorted(round(rng.uniform(5, length), 3) for _ in range(rng.choice((0, 0, 1, 2))))
    return Schedule(
        seed=seed,
        mode=mode,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        consumers=tuple(visits),
        producers=producer_count,
        sending_ends=length,
        resets=tuple(resets),
        faults_end=length,
        switches=switches,
        remakes=_remakes(random.Random(f"remakes {seed}"), length),
        uses=uses,
        all_wait=random.Random(f"waits {seed}").random() < 0.5,
    )


def _rivals(rng: random.Random, length: float) -> list[Fault]:
    """A second master is started a few times, for it must go whenever the first is out of sight."""
    times = [rng.uniform(FIRST_FAULT, length - 5) for _ in range(rng.choice((0, 0, 3)))]
    return [Fault(round(at, 3), round(rng.uniform(1.0, 5.0), 3), "rival", "rival") for at in times]


def _uses(rng: random.Random) -> tuple[Use, ...]:
    """None in half of the runs: those are what they were before there were any. A run with two takes twice the time."""
    chosen = rng.sample(get_args(Use), rng.choice((0, 0, 0, 1, 1, 2)))
    return tuple(use for use in get_args(Use) if use in chosen)


def _faults_of_users(rng: random.Random, length: float, slaves: int) -> list[Fault]:
    """Between a sender of the uses and a peer: the one that is named here has its part in no other fault."""
    others = [
        "master",
        "master",
        *(f"slave-{number + 1}" for number in range(slaves)),
        "name server",
    ]
    faults = []
    for _ in range(rng.choice((0, 1, 1, 2))):
        kind = rng.choice(get_args(PAIR_FAULTS))
        at = round(rng.uniform(FIRST_FAULT, length - 10), 3)
        lasts = round(min(rng.choice((2.0, 5.0, 12.0)) * rng.uniform(0.5, 1.5), length - at), 3)
        who, other = rng.choice(("user-0", "payer-0")), rng.choice(others)
        if rng.random() < 0.5:
            who, other = other, who
        amount = rng.choice((0.01, 0.3, 2.0)) if kind == "delay" else 0.0
        faults.append(Fault(at, lasts, kind, who, other, amount))
    return faults


def _remakes(rng: random.Random, length: float) -> tuple[float, ...]:
    times = [rng.uniform(FIRST_FAULT, length - 6) for _ in range(rng.choice((0, 0, 1, 3)))]
    return tuple(sorted(round(at, 3) for at in times))


def _switches(rng: random.Random, length: float, slaves: int) -> tuple[Switch, ...]:
    names = ["master", *(f"slave-{number + 1}" for number in range(slaves))]
    # There and back again: one to a broker that is master already changes nothing.
    return tuple(
        Switch(at, rng.choice(names), is_careful=rng.random() < 0.5)
        for at in sorted(
            round(rng.uniform(FIRST_FAULT, length - 10), 3) for _ in range(rng.choice((0, 0, 1, 4)))
        )
    )


def _pauses(rng: random.Random, length: float, slaves: int) -> list[Fault]:
    """For less than a question takes, longer than a call, longer than replication's patience."""
    brokers = ["master", "master", *(f"slave-{number + 1}" for number in range(slaves))]
    faults = []
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        at = round(rng.uniform(FIRST_FAULT, length - 10), 3)
        lasts = rng.choice((0.3, 2.0, 5.0, 12.0, 25.0)) * rng.uniform(0.5, 1.5)
        faults.append(Fault(at, round(min(lasts, length - at), 3), "pause", rng.choice(brokers)))
    return faults


def _hand_overs(
    rng: random.Random, length: float, slaves: int
) -> tuple[list[HandOver], list[Fault]]:
    """Over a link that is slow, so that its steps take time, and something breaks in the middle of some."""
    names = ["master", *(f"slave-{number + 1}" for number in range(slaves))]
    changes, faults = [], []
    for _ in range(rng.choice((0, 0, 1, 1, 3))):
        at = round(rng.uniform(FIRST_FAULT + 1, length - 12), 3)
        changes.append(HandOver(at, rng.choice(("", *names))))
        other = rng.choice(names[1:])
        seconds = rng.choice((0.0, 0.01, 0.05, 0.2))
        if seconds:
            faults.append(Fault(round(at - 0.5, 3), 5.0, "delay", "master", other, amount=seconds))
        if seconds and rng.random() < 0.25:
            faults += _stall(rng, at + rng.uniform(4, 12) * seconds, other)
            continue
        if rng.random() < 0.3:
            down = round(at + rng.uniform(0.0, 0.5), 3)
            faults.append(Fault(down, 8.0, "name server down", "name server"))
        kind = rng.choice((None, "kill", "power cut", "pause", "partition", "cut"))
        if kind is not None:
            is_pair = kind in get_args(PAIR_FAULTS)
            faults.append(
                Fault(
                    at=round(at + rng.uniform(0.0, 0.02 + 14 * seconds), 3),
                    lasts=round(rng.choice((0.3, 1.5, 4.0, 8.0)) * rng.uniform(0.5, 1.5), 3),
                    kind=kind,
                    who="master" if is_pair else rng.choice(("master", other)),
                    other=other if is_pair else "",
                    amount=0.5 if kind == "power cut" else 0.0,
                )
            )
    return changes, faults


def _stall(rng: random.Random, at: float, other: str) -> list[Fault]:
    """The master stands still in the middle; the follower dies meanwhile, and is back about when that one goes on."""
    lasts = rng.uniform(1.0, 3.0)
    kill = at + rng.uniform(0.3, lasts)
    down = max(0.1, at + lasts + rng.uniform(-0.3, 0.6) - kill)
    return [
        Fault(round(at, 3), round(lasts, 3), "pause", "master"),
        Fault(round(kill, 3), round(down, 3), "kill", other),
    ]


def _grab(rng: random.Random, length: float, slaves: int) -> Grab | None:
    if rng.random() < 0.9:
        return None
    return Grab(round(rng.uniform(8, length - 16), 3), f"slave-{rng.randint(1, slaves)}")


def _damage(rng: random.Random, length: float, slaves: int) -> list[Fault]:
    """A torn end, an empty disk, or clocks that jump, in some runs."""
    kind = rng.choice((None, None, None, "torn end", "torn end", "wiped", "clock"))
    at, lasts = round(rng.uniform(6, length - 14), 3), round(rng.uniform(0.3, 6.0), 3)
    if kind is None:
        return []
    if kind == "clock":
        return [Fault(at, lasts, kind, "clocks", amount=rng.choice((-5.0, 30.0, 3600.0)))]
    who = rng.choice(("master", "master", *(f"slave-{number + 1}" for number in range(slaves))))
    amount = float(rng.choice((1, 17, 40, 300))) if kind == "torn end" else 0.0
    faults = [Fault(at, lasts, kind, who, amount=amount)]
    if kind == "wiped" and who == "master" and rng.random() < 0.5:
        # On the same machine: it forgets who the slaves were, and is back a little sooner or later.
        back = max(0.1, lasts + rng.choice((-2.0, -0.1, 0.1, 2.0)))
        faults.append(Fault(at, round(back, 3), "name server down", "name server"))
    return faults


def _lost_file(rng: random.Random, length: float, slaves: int) -> list[Fault]:
    """Remove files of a broker that is down, in some runs: it has its log, and not all that it knew of it."""
    if rng.random() < 0.7:
        return []
    kind = rng.choice(get_args(LOST_FILES))
    at, lasts = rng.uniform(8, length - 12), rng.uniform(0.3, 6.0)
    who = rng.choice(("master", "master", *(f"slave-{number + 1}" for number in range(slaves))))
    amount = float(rng.choice((-1, *range(QUEUES)))) if kind == "queue gone" else 0.0
    return [Fault(round(at, 3), round(lasts, 3), kind, who, amount=amount)]


def _of_others(faults: list[Fault], one: Fault) -> list[Fault]:
    """Without those that may have its broker down when a fault begins, or while it lasts."""
    ends = one.at + one.lasts
    return [
        fault
        for fault in faults
        if fault.who != one.who or fault.at > ends or fault.at + fault.lasts < one.at - 1
    ]


def _older_copy(rng: random.Random, length: float, slaves: int) -> Fault | None:
    """A broker's directory is set back, in some runs: between its kill and its next start, or in a failover."""
    if rng.random() < 0.7:
        return None
    age = rng.choice((0.3, 2.0, 5.0)) * rng.uniform(0.5, 1.5)
    at, lasts = rng.uniform(10, length - 14), rng.uniform(0.3, 6.0)
    who = rng.choice(("master", *(f"slave-{number + 1}" for number in range(slaves))))
    return Fault(round(at, 3), round(lasts, 3), "older copy", who, amount=round(age, 3))


def _failover(rng: random.Random, length: float, slaves: int) -> Failover | None:
    if rng.random() < 0.6:
        return None
    return Failover(
        at=round(rng.uniform(8, length - 16), 3),
        to=f"slave-{rng.randint(1, slaves)}",
        cut_off=rng.choice((0.0, 0.0, 0.3, 3.0)),
        promoted_after=rng.choice((0.1, 1.0)),
        back_after=rng.choice((0.3, 1.0, 4.0)),
        mended_after=rng.choice((3.0, 8.0)),
        torn=rng.choice((0, 0, 0, 17)),
        forgets=rng.choice(("", "", "before", "after")),
    )


def _old_routes(rng: random.Random, failover: Failover, consumers: int) -> list[Fault]:
    """In some runs consumers cannot ask who is master now: they go to the first one as soon as it is back."""
    if rng.random() < 0.5:
        return []
    begins = failover.at - failover.cut_off - 0.5
    return [
        Fault(
            at=round(begins, 3),
            lasts=round(failover.ends - begins + 1.0, 3),
            kind="partition",
            who=f"consumer-{number}",
            other="name server",
        )
        for number in range(consumers)
    ]


def _undisturbed(faults: list[Fault], begins: float, ends: float) -> list[Fault]:
    """Without those of brokers, and of what shows them each other, in this time and shortly before or after.

    Two masters that cannot know of each other, and the loss of every copy, are beyond what is promised.
    """
    clients = ("consumer", "producer", "user", "payer")
    return [
        fault
        for fault in faults
        if fault.at > ends + 10
        or fault.at + fault.lasts + 15 < begins
        or fault.who.startswith(clients)
        or fault.other.startswith(clients)
    ]


def _fault(rng: random.Random, length: float, slaves: int, consumers: int, producers: int) -> Fault:
    kinds = [
        kind
        for literal in (BROKER_FAULTS, PAIR_FAULTS, HOST_FAULTS, OTHER_FAULTS)
        for kind in get_args(literal)
    ]
    kind = rng.choices(kinds, [_WEIGHTS.get(kind, 1) for kind in kinds])[0]
    at = round(rng.uniform(FIRST_FAULT, length - 10), 3)
    # Short, longer than a call's 3 s, longer than replication's 20 s of patience; over before the end.
    lasts = round(
        min(rng.choice((0.3, 2.0, 5.0, 12.0, 25.0)) * rng.uniform(0.5, 1.5), length - at), 3
    )
    brokers = ["master", *(f"slave-{number + 1}" for number in range(slaves))]
    clients = [
        *(f"consumer-{number}" for number in range(consumers)),
        *(f"producer-{number}" for number in range(producers)),
    ]
    amount = 0.0
    if kind in get_args(BROKER_FAULTS):
        who = rng.choice(("master", *brokers))
        if kind == "power cut":
            amount = rng.choice((0.0, 0.5, 1.0))
        if kind == "slow disk":
            amount = rng.choice((0.05, 1.0, 7.0))
        return Fault(at, lasts, kind, who, amount=amount)
    if kind == "silence":
        return Fault(at, lasts, kind, rng.choice((*brokers, *clients, "name server")))
    if kind == "name server down":
        return Fault(at, lasts, kind, "name server")
    who, other = rng.choice(
        (
            *((slave, "master") for slave in brokers[1:] * 3),
            *((client, broker) for client in clients for broker in brokers),
            *((broker, "name server") for broker in brokers),
        )
    )
    if rng.random() < 0.5:
        who, other = other, who
    if kind == "delay":
        amount = rng.choice((0.01, 0.3, 2.0))
    return Fault(at, lasts, kind, who, other, amount)


def _visits(rng: random.Random, length: float) -> tuple[Visit, ...]:
    """Stays until one outlasts the faults, so that a member reads to the end."""
    begins = rng.choice((0.0, round(rng.uniform(0, length / 2), 3)))
    visits = []
    while True:
        stays = rng.choice((8.0, 20.0, 2 * length)) * rng.uniform(0.7, 1.3)
        ends = round(begins + stays, 3)
        visits.append(Visit(begins, ends, rng.random() < 0.4, rng.random() < 0.7))
        if ends >= length:
            return tuple(visits)
        begins = round(ends + rng.uniform(0.5, 8.0), 3)
