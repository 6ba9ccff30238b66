"""A model of the link between brokers of one name, walked at random: exchange, boundary, cut, report, answer.

    python -m tests.cluster.link_model [--walks N] [--seed N]

Members are logs of records without bytes: every record is a number of its own, and its address is its place. What
decides are the product's own rules: `common_boundary` and `why_kept`. Any of two or three members may be made master at
any time, several at once too, for no register forbids it; every step of the link may be followed by a kill, a power cut
or a start. In walks that set back, one member's directory may be replaced by an older copy of itself.

Invariant: two logs are the same below every boundary that the rule names (I4).
Invariant: what a member cuts by itself had no PUT_OK as its answer (I8).

`RULES` are what brokers do so that this holds. Taken away one at a time, half of them are missed within 250 walks, the
others after thousands.
"""

import argparse
import random
import sys
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import attrs
import msgspec

from rocketrio_broker.ha.epochs import common_boundary, why_kept
from rocketrio_broker.store.acknowledged import Acknowledgement
from rocketrio_broker.store.epochs import ANONYMOUS, SYNC
from rocketrio_protocol.ha.exchange import Epoch

T = TypeVar("T")

STEPS: Final = 200
"""Of one walk."""
RULES: Final = (
    "a cut asks what was promised",
    "an epoch has an id",
    "a slave is noted before it counts",
    "a slave is noted with the greatest number that it knows",
    "who is asked by an opener reports no more to a former master",
    "a power cut of reports from memory is remembered",
    "what is given up by an operator's word is remembered",
    "an opener claims only members whose whole log it has",
    "an opener claims only members that answered",
    "answers that wait for no slave are noted",
    "what slaves acknowledge is noted",
    "of an own epoch that comes back the slaves are not known",
)
SETS_BACK: Final = RULES[-2:]
"""What only counts where a member is set back, or soonest there."""


class MissedError(AssertionError):
    """An invariant does not hold."""


@attrs.define(eq=False)
class Member:
    """One data directory, and the broker on it while it is up."""

    name: str
    reports_disk: bool
    log: list[int] = attrs.Factory(list)
    synced: int = 0
    lines: list[Epoch] = attrs.Factory(list)
    highest: int = 0
    whole_above: int = 0
    is_up: bool = True
    lost_power: bool = False
    session: int = 0
    """Counts what ends its connections: starts, and changes of its role."""
    promises: int = 0
    is_master: bool = False
    asked: tuple[int, dict[str, int]] | None = None
    """The number and the members of an epoch that is about to be opened."""
    pending: dict[int, int] = attrs.Factory(dict)
    """Place to record of what waits for slaves."""
    acknowledged: dict[str, int] = attrs.Factory(dict)
    """How far slaves have acknowledged its log, on its disk."""
    copy: "Member | None" = None
    """An older copy of its directory."""

    @property
    def own(self) -> Epoch:
        """The epoch that it writes."""
        return self.lines[-1]

    def know(self, lines: Iterable[Epoch]) -> None:
        self.lines = list(lines)
        self.highest = max((self.highest, *(line.number for line in self.lines)))


@attrs.define(eq=False)
class Link:
    """A slave's connection."""

    slave: Member
    master: Member
    slave_session: int
    master_session: int
    promises: int
    on_the_way: int = 0
    acknowledged: int = 0

    @property
    def stands(self) -> bool:
        sessions = self.slave.session, self.master.session
        return sessions == (self.slave_session, self.master_session)


class Walk:
    """One random walk; `broken` is the rule that is taken away."""

    def __init__(self, seed: int, broken: str = "", *, sets_back: bool = False) -> None:
        self.rng = rng = random.Random(f"link {seed}")
        self.broken = broken
        self.in_sync = 1
        self.mode = rng.choice((SYNC, SYNC, SYNC, "async"))
        disk = rng.random() < 0.4
        self.members = [Member(f"m{number}", disk) for number in range(rng.choice((2, 3, 3)))]
        self.in_sync = rng.choice((1, 1, 2)) if len(self.members) == 3 else 1
        self.set_back_one = rng.choice(self.members) if sets_back else None
        self.links: list[Link] = []
        self.answered: set[int] = set()
        self.records = 0
        self.epochs = 0
        self.cuts = 0

    def has(self, rule: str) -> bool:
        assert rule in RULES
        return rule != self.broken

    def run(self) -> None:
        steps = (
            *(self.write,) * 4, *(self.connect,) * 6, *(self.transfer,) * 8, *(self.report,) * 6, *(self.deliver,) * 6,
            self.sync, self.kill, self.cut_power, *(self.start,) * 6, *(self.ask,) * 2, *(self.open,) * 4, self.demote,
            *(() if self.set_back_one is None else (self.copy, self.set_back)),
        )  # fmt: skip
        self.ask()
        self.open()
        for _ in range(STEPS):
            self.rng.choice(steps)()
            self.check()

    # ------------------------------------------------------------------------------------- producers

    def write(self) -> None:
        master = self._any(self._masters())
        if master is None:
            return
        self.records += 1
        place = len(master.log)
        master.log.append(self.records)
        if master.own.mode != SYNC:
            self.answered.add(self.records)
        elif self.rng.random() < 0.1:  # WAIT=false
            if self.has("answers that wait for no slave are noted"):
                self._change_own(master, answered_early=True)
            self.answered.add(self.records)
        else:
            master.pending[place] = self.records

    def sync(self) -> None:
        member = self._any(self._up())
        if member is not None:
            member.synced = len(member.log)

    # --------------------------------------------------------------------------------------- the link

    def connect(self) -> None:
        """A slave and a master say which epochs their logs have."""
        slave = self._any([one for one in self._up() if not one.is_master and one.asked is None])
        master = self._any([one for one in self._masters() if one is not slave])
        if slave is None or master is None:
            return
        self.links = [link for link in self.links if link.slave is not slave]
        lines, end = list(master.lines), len(master.log)
        if self.has("a slave is noted before it counts"):
            known = slave.highest if self.has(RULES[3]) else 0
            if master.own.joined.get(slave.name, -1) < known or slave.name not in master.own.joined:
                self._change_own(master, joined={**master.own.joined, slave.name: known})
        if master.own.mode == SYNC:
            # Of what is older than its epoch a slave that is new may have had everything.
            master.acknowledged.setdefault(slave.name, master.own.start)
        if not self._agree(slave, master, lines, end):
            return
        self.links.append(Link(slave, master, slave.session, master.session, slave.promises))

    def _agree(self, slave: Member, master: Member, lines: list[Epoch], end: int) -> bool:
        """Whether the slave may go on from its end; it may cut its own first."""
        boundary = common_boundary(self._seen(slave.lines), len(slave.log), self._seen(lines), end)
        if boundary is None:
            is_prefix = slave.log == master.log[: len(slave.log)]
            if is_prefix:
                self._adopt(slave, lines)
            return is_prefix
        if boundary.address > min(len(slave.log), end):
            raise MissedError("the boundary lies beyond a log's end")
        if slave.log[: boundary.address] != master.log[: boundary.address]:
            raise MissedError(f"logs differ below their boundary {boundary.address}")
        if len(slave.log) <= boundary.address:
            self._adopt(slave, lines)
            return True
        theirs = lines[boundary.their_count :]
        if not theirs or theirs[0].start > end:
            return False
        noted = {name: Acknowledgement(end) for name, end in slave.acknowledged.items()}
        if not self.has("what slaves acknowledge is noted"):
            noted = dict.fromkeys(noted, Acknowledgement(0))
        why = why_kept(slave.lines, slave.name, boundary.address, len(slave.log), theirs, noted)
        if why is not None and self.has("a cut asks what was promised"):
            if self.rng.random() < 0.1:
                if self.has("what is given up by an operator's word is remembered"):
                    slave.whole_above = slave.highest
                self._cut(slave, boundary.address, boundary.own_count)
            return False
        gone = self.answered.intersection(slave.log[boundary.address :])
        if gone:
            raise MissedError(f"{slave.name} cuts by itself what was answered: {sorted(gone)}")
        self.cuts += 1
        self._cut(slave, boundary.address, boundary.own_count)
        return False

    def _seen(self, lines: list[Epoch]) -> list[Epoch]:
        if self.has("an epoch has an id"):
            return lines
        return [msgspec.structs.replace(line, id="") for line in lines]

    def _adopt(self, slave: Member, lines: list[Epoch]) -> None:
        own = {line.key: line for line in slave.lines}
        for line in lines:
            is_own = line.member == slave.name and self.has(RULES[-1])
            unknown = {ANONYMOUS: line.number} if is_own else {}
            own.setdefault(line.key, msgspec.structs.replace(line, joined=unknown))
        slave.know(own[line.key] for line in lines)

    def _cut(self, slave: Member, at: int, count: int) -> None:
        del slave.log[at:]
        slave.synced = min(slave.synced, at)
        slave.lines = [line for line in slave.lines[:count] if line.start < at]
        slave.session += 1

    def transfer(self) -> None:
        link = self._any(self._standing())
        if link is not None and len(link.slave.log) < len(link.master.log):
            link.slave.log.append(link.master.log[len(link.slave.log)])

    def report(self) -> None:
        """It leaves the slave, which has asked again if it promised something since."""
        link = self._any(self._standing())
        if link is None:
            return
        rule = "who is asked by an opener reports no more to a former master"
        if self.has(rule) and link.promises != link.slave.promises:
            self.links.remove(link)
            return
        slave = link.slave
        link.on_the_way = slave.synced if slave.reports_disk else len(slave.log)

    def deliver(self) -> None:
        """A report reaches the master, maybe long after."""
        link = self._any([link for link in self._standing() if link.on_the_way])
        if link is None:
            return
        link.acknowledged = link.on_the_way
        master = link.master
        if master.own.mode == SYNC:
            known = master.acknowledged.get(link.slave.name, 0)
            master.acknowledged[link.slave.name] = max(known, link.acknowledged)
        having = [one.acknowledged for one in self._standing() if one.master is master]
        for place, record in list(master.pending.items()):
            if sum(end > place for end in having) >= master.own.in_sync_slaves:
                del master.pending[place]
                self.answered.add(record)

    # ------------------------------------------------------------------------------ faults and operators

    def kill(self) -> None:
        member = self._any(self._up())
        if member is not None:
            self._leave(member)
            member.is_up = False

    def cut_power(self) -> None:
        member = self._any(self.members)
        if member is not None:
            self._leave(member)
            member.is_up = False
            member.lost_power = True
            del member.log[max(member.synced, self.rng.randint(0, len(member.log))) :]

    def copy(self) -> None:
        """A backup is made, while it runs or not."""
        one = self.set_back_one
        if one is not None and not one.lost_power:
            one.copy = attrs.evolve(one, log=list(one.log), acknowledged=dict(one.acknowledged))

    def set_back(self) -> None:
        """A broker is killed, and comes back with the copy: nothing tells it."""
        one = self.set_back_one
        if one is not None and one.copy is not None:
            copy = one.copy
            self._leave(one)
            one.log, one.lines, one.acknowledged = copy.log, list(copy.lines), copy.acknowledged
            one.highest, one.whole_above = copy.highest, copy.whole_above
            one.synced, one.copy = len(one.log), None
            one.lost_power, one.is_up = False, True

    def start(self) -> None:
        member = self._any([one for one in self.members if not one.is_up])
        if member is None:
            return
        is_remembered = self.has("a power cut of reports from memory is remembered")
        if member.lost_power and not member.reports_disk and is_remembered:
            member.whole_above = member.highest
        member.lost_power, member.is_up = False, True
        member.synced = len(member.log)

    def demote(self) -> None:
        master = self._any(self._masters())
        if master is not None:
            self._leave(master)

    def ask(self) -> None:
        """A member is made master: it gets what others have more, and asks all that answer how far they are."""
        opener = self._any([one for one in self._up() if not one.is_master])
        if opener is None:
            return
        self._leave(opener)
        peers = [one for one in self._up() if one is not opener and self.rng.random() < 0.8]
        for peer in peers:
            boundary = common_boundary(opener.lines, len(opener.log), peer.lines, len(peer.log))
            is_behind = boundary is not None and boundary.address == len(opener.log)
            if len(peer.log) > len(opener.log) and (is_behind or not opener.log):
                opener.log = list(peer.log)
                self._adopt(opener, peer.lines)
        opener.synced = len(opener.log)
        number = 1 + max((opener.highest, *(peer.highest for peer in peers)))
        covers = {}
        for peer in self.members if not self.has(RULES[8]) else peers:
            if peer in peers:
                peer.promises += 1
                peer.highest = max(peer.highest, number)
            boundary = common_boundary(opener.lines, len(opener.log), peer.lines, len(peer.log))
            has_all = not peer.log or (boundary is not None and boundary.address >= len(peer.log))
            if has_all or not self.has("an opener claims only members whose whole log it has"):
                covers[peer.name] = peer.whole_above
        opener.asked = number, covers

    def open(self) -> None:
        """The epoch begins."""
        opener = self._any([one for one in self._up() if one.asked is not None])
        if opener is None or opener.asked is None:
            return
        number, covers = opener.asked
        self.epochs += 1
        opened = Epoch(
            number=number,
            id=f"e{self.epochs}",
            start=len(opener.log),
            member=opener.name,
            mode=self.mode,
            in_sync_slaves=self.in_sync,
            covers={**covers, opener.name: opener.whole_above},
        )
        opener.know([*(line for line in opener.lines if line.start < opened.start), opened])
        opener.asked, opener.is_master = None, True
        if self.mode == SYNC:
            opener.acknowledged = {
                name: min(end, opened.start) for name, end in opener.acknowledged.items()
            }

    # ------------------------------------------------------------------------------------------ helpers

    def check(self) -> None:
        """I4 for all pairs, connected or not."""
        for index, one in enumerate(self.members):
            for other in self.members[index + 1 :]:
                ends = len(one.log), len(other.log)
                boundary = common_boundary(
                    self._seen(one.lines), ends[0], self._seen(other.lines), ends[1]
                )
                if boundary is None:
                    continue
                at = boundary.address
                if one.log[:at] != other.log[:at]:
                    raise MissedError(
                        f"{one.name} and {other.name} differ below their boundary {at}"
                    )

    def _leave(self, member: Member) -> None:
        member.session += 1
        member.is_master = False
        member.asked = None
        member.pending.clear()

    def _change_own(self, master: Member, **changes: object) -> None:
        if master.own.mode == SYNC:
            master.lines[-1] = msgspec.structs.replace(master.own, **changes)

    def _up(self) -> list[Member]:
        return [one for one in self.members if one.is_up]

    def _masters(self) -> list[Member]:
        return [one for one in self._up() if one.is_master]

    def _standing(self) -> list[Link]:
        self.links = [link for link in self.links if link.stands]
        return [link for link in self.links if link.master.is_master]

    def _any(self, choices: Sequence[T]) -> T | None:
        return self.rng.choice(choices) if choices else None


def walks_until_missed(broken: str, walks: int) -> int | None:
    """How many walks it takes until a rule is missed; None when that many are not enough."""
    for seed in range(walks):
        try:
            Walk(seed, broken, sets_back=broken in SETS_BACK).run()
        except MissedError:
            return seed + 1
    return None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.link_model")
    parser.add_argument("--walks", type=int, default=20_000, help="with all rules")
    parser.add_argument("--seed", type=int, default=0, help="the first walk")
    options = parser.parse_args(arguments)
    cuts = answered = 0
    for seed in range(options.seed, options.seed + options.walks):
        walk = Walk(seed, sets_back=seed % 2 == 1)
        try:
            walk.run()
        except MissedError as missed:
            print(f"walk {seed}: {missed}")
            return 1
        cuts, answered = cuts + walk.cuts, answered + len(walk.answered)
    print(f"walks={options.walks} steps={options.walks * STEPS} answered={answered} cuts={cuts}")
    for rule in RULES:
        print(f"without {rule!r}: missed after {walks_until_missed(rule, options.walks)} walks")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
