"""The verdict on a round of faults: each rule finds what it is for, and excuses what a fault explains, and no more."""

from collections.abc import Callable
from math import inf

import attrs
import pytest
import trio
from tests.faults.faults import COPIED, LAST, SETTLED, WRITTEN, Faults, Loss, Mode
from tests.faults.verdict import CHANGES, REPEATED, verdict
from tests.faults.workload import DELAY_MS, GROUPS, ORDERLY, Handling, Record, Sample, Seen, Sent
from trio.testing import MockClock

BEGAN, ENDED = 100.0, 110.0
SETTLED_AT = ENDED + SETTLED


@attrs.define
class Played:
    """A round in which all is well: a sender in one queue, a delayed message, and two transactions."""

    seen: Seen = attrs.Factory(Seen)
    stored: list[Record] = attrs.Factory(list)
    faults: Faults = attrs.Factory(lambda: Faults("money", began=BEGAN, ended=ENDED))

    def __attrs_post_init__(self) -> None:
        for number in range(10):
            self.add(f"p0.{number}", 60.0 + number)
        for number in range(10, 20):
            self.add(f"p0.{number}", 120.0 + number)
        self.add("d0.0", 60.0, store_ms=60_000 + DELAY_MS)
        self.seen.done.add(b"t0.0")
        self.add("t0.0", 60.0)
        self.seen.sent[b"t0.1"] = Sent(60.0, 60_000, 60.0, True)

    def add(
        self, name: str, at: float, *, store_ms: int = 0, answered: float | None = inf
    ) -> Record:
        """A message that was sent, stored, and came to every group."""
        body, offset = name.encode(), len(self.stored)
        self.seen.sent[body] = Sent(
            at, int(at * 1000), at if answered == inf else answered, answered is not None
        )
        record = Record(0, offset, body, store_ms or int(at * 1000))
        self.stored.append(record)
        for group in (*GROUPS, ORDERLY):
            self.came(group, record, at)
        return record

    def came(self, group: str, record: Record, at: float, *, member: str = "0") -> None:
        """A member got it."""
        handling = Handling(member, record.queue_id, record.offset, record.body, at, at + 0.01)
        self.seen.handled[group].append(handling)
        self.seen.bodies[group].add(record.body)

    def lose(self, name: str) -> None:
        """It is not in the queue any more."""
        self.stored = [record for record in self.stored if record.body != name.encode()]

    def record(self, name: str) -> Record:
        """Where a message is."""
        return next(record for record in self.stored if record.body == name.encode())

    def commit(self, *samples: tuple[float, int]) -> None:
        """What was seen of the first group's offset."""
        self.seen.committed["g1", 0] = [Sample(at, committed, 1000) for at, committed in samples]

    @property
    def problems(self) -> list[str]:
        return list(verdict(self.seen, self.stored, self.faults))


def only(played: Played) -> str:
    """The one problem of a round."""
    (problem,) = played.problems
    return problem


def test_round_in_which_all_is_well_has_no_problem() -> None:
    assert Played().problems == []


# --- what may be lost ------------------------------------------------------------------------

COSTS: dict[Loss, set[Mode]] = {
    Loss.COPY: {"async", "async-sync"},
    Loss.CACHE: {"async"},
    Loss.CACHES: {"async", "sync-mem"},
}


@pytest.mark.parametrize("mode", ["async", "async-sync", "sync-mem", "money"])
@pytest.mark.parametrize("loss", Loss)
async def test_fault_costs_what_only_it_held_of_the_last_second(
    autojump_clock: MockClock, loss: Loss, mode: Mode
) -> None:
    played = Played(faults=Faults(mode))
    await trio.sleep(100)
    since = played.faults.begin()
    await trio.sleep(3)
    played.faults.lose(loss, since=since)
    played.faults.ended = trio.current_time()
    for name, answered in (
        ("p1.0", since - LAST + 0.1),
        ("p1.1", since + 2.9),
        ("p1.2", since - LAST - 0.1),
        ("p1.3", since + 4),
    ):
        played.add(name, answered)
        played.lose(name)
    too_many = {b"p1.2", b"p1.3"}
    if mode not in COSTS[loss]:
        too_many |= {b"p1.0", b"p1.1"}
    problem = only(played)
    assert problem.startswith("acknowledged and gone without a fault that explains it: ")
    assert {body for body in played.seen.sent if body.decode() in problem} == too_many


def test_kill_without_a_loss_excuses_nothing() -> None:
    played = Played(faults=Faults("async", began=BEGAN, ended=ENDED))
    played.add("p1.0", BEGAN - 0.1)
    played.lose("p1.0")
    assert "gone without a fault" in only(played)


def test_message_that_is_in_doubt_may_be_there_or_not() -> None:
    played = Played()
    played.add("p1.0", BEGAN, answered=None)
    played.add("p1.1", BEGAN, answered=None)
    played.lose("p1.1")
    assert played.problems == []


# --- deliveries ------------------------------------------------------------------------------


def without_a_delivery(played: Played) -> None:
    played.seen.bodies["g2"].remove(b"p0.3")


def with_a_transaction_that_was_rolled_back(played: Played) -> None:
    played.add("t0.5", 60.0)


def with_a_transaction_that_was_never_stored(played: Played) -> None:
    played.seen.bodies["g1"].add(b"t0.1")


def with_an_early_one(played: Played) -> None:
    played.add("d0.1", 60.0, store_ms=60_000 + DELAY_MS - 1)


def with_one_that_is_twice_in_the_log(played: Played) -> None:
    played.stored.append(Record(1, 0, b"p0.3", 0))


def with_one_that_came_late_and_again(played: Played) -> None:
    played.came("g1", played.record("p0.15"), 135.0 + REPEATED + 0.1)


def with_one_that_came_long_before_and_again(played: Played) -> None:
    played.came("g1", played.record("p0.3"), 105.0)


def with_a_wrong_order_in_the_log(played: Played) -> None:
    body = played.stored[3].body
    played.stored[3] = attrs.evolve(played.stored[3], body=played.stored[4].body)
    played.stored[4] = attrs.evolve(played.stored[4], body=body)


def with_a_wrong_order_at_the_owner(played: Played) -> None:
    handled = played.seen.handled[ORDERLY]
    handled[3] = attrs.evolve(handled[3], begun=64.5, ended=64.6)


def with_two_owners(played: Played) -> None:
    for group in (*GROUPS, ORDERLY):
        played.came(group, played.record("p0.3"), 63.005, member="1")


def with_owners_in_turn(played: Played) -> None:
    for number in range(CHANGES + 2):
        played.came("g1", played.record("p0.19"), 139.0 + number / 10, member=str(number % 2))


def without_transactions(played: Played) -> None:
    played.seen.sent = {
        body: sent for body, sent in played.seen.sent.items() if not body.startswith(b"t")
    }
    played.lose("t0.0")
    for bodies in played.seen.bodies.values():
        bodies.discard(b"t0.0")


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (without_a_delivery, "acknowledged and never delivered to g2: 1 (p0.3)"),
        (with_a_transaction_that_was_rolled_back, "rolled back: 1 (t0.5)"),
        (with_a_transaction_that_was_never_stored, "rolled back: 1 (t0.1)"),
        (with_an_early_one, "before their delay was over: 1 (d0.1)"),
        (with_one_that_is_twice_in_the_log, "stored twice, though nothing was wrong: 1 (p0.3"),
        (with_one_that_came_late_and_again, "came to g1 again"),
        (with_one_that_came_long_before_and_again, "came to g1 again"),
        (with_a_wrong_order_in_the_log, "stored behind later ones of their sender: 1 (p0.3)"),
        (
            with_a_wrong_order_at_the_owner,
            "handled by g3 after later ones of their sender: 1 (p0.3)",
        ),
        (with_two_owners, "queue 0 had two owners in g3 at once: 1 (p0.3)"),
        (with_owners_in_turn, "queue 0 changed its owner in g1"),
        (without_transactions, "nothing was acknowledged of t"),
    ],
)
def test_rule_finds_what_it_is_for(broken: Callable[[Played], None], words: str) -> None:
    played = Played()
    broken(played)
    assert words in only(played)


@pytest.mark.parametrize(
    ("name", "since"),
    [("p1.0", BEGAN - COPIED), ("d1.0", BEGAN - WRITTEN), ("t1.0", BEGAN - WRITTEN)],
)
@pytest.mark.parametrize("is_in_time", [False, True])
def test_repetition_in_the_log_is_excused_by_a_fault_in_its_time(
    name: str, since: float, is_in_time: bool
) -> None:
    played = Played()
    played.seen.done.add(b"t1.0")
    at = since + (0.1 if is_in_time else -0.1)
    played.add(name, at, store_ms=int(at * 1000) + DELAY_MS)
    played.stored.append(Record(1, 0, name.encode(), 200_000))
    assert (played.problems == []) == is_in_time


@pytest.mark.parametrize(
    ("at", "is_excused"), [(BEGAN - COPIED - 0.1, False), (BEGAN - COPIED + 0.1, True)]
)
def test_message_comes_again_if_its_commit_may_be_forgotten(at: float, is_excused: bool) -> None:
    played = Played()
    played.came("g1", played.add("p1.0", at), 150.0)
    assert (played.problems == []) == is_excused


# --- committed offsets -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "is_excused"),
    [
        # What was committed long before the fault is known to both brokers.
        ([(BEGAN - COPIED - 0.1, 72), (BEGAN + 1, 71)], False),
        ([(BEGAN - COPIED + 0.1, 72), (BEGAN + 1, 71)], True),
        # Without a fault it is after a moment.
        ([(80.0, 72), (80.0 + COPIED + 0.1, 71)], False),
        ([(80.0, 72), (80.0 + COPIED - 0.1, 71)], True),
        # What happens later has nothing to do with the fault.
        ([(SETTLED_AT + 0.1, 72), (SETTLED_AT + COPIED + 0.2, 71)], False),
        ([(SETTLED_AT - 0.1, 72), (SETTLED_AT + COPIED + 0.2, 71)], True),
    ],
)
def test_offset_goes_back_only_as_far_as_a_fault_explains(
    samples: list[tuple[float, int]], is_excused: bool
) -> None:
    played = Played()
    played.commit(*samples)
    if is_excused:
        assert played.problems == []
    else:
        assert "committed offsets went back: 1 (g1/0: 72 to 71 of 1000" in only(played)


@pytest.mark.parametrize(("step", "is_excused"), [(2, True), (3, False)])
def test_offset_may_go_back_by_the_messages_that_are_gone(step: int, is_excused: bool) -> None:
    played = Played()
    played.faults.exposed.append((BEGAN - LAST, BEGAN))
    for name in ("p1.0", "p1.1"):
        played.add(name, BEGAN - 0.5)
        played.lose(name)
    played.commit((90.0, 72), (BEGAN + 1, 72 - step))
    assert (played.problems == []) == is_excused
