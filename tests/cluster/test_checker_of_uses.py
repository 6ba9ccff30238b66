"""The checker on histories of the uses made by hand: right ones pass, and each way to be wrong has its name."""

from typing import Any

import attrs
import pytest
from tests.cluster.histories.checker import check
from tests.cluster.histories.chosen import schedule_of
from tests.cluster.histories.contacts import Outcome
from tests.cluster.histories.events import Event, History, MemberEnded, ReignBegan, ReignEnded
from tests.cluster.histories.schedule import Fault, Use
from tests.cluster.histories.story import BrokerState, FinalState, Story
from tests.cluster.histories.uses.events import (
    Accepted,
    Away,
    Began,
    Finished,
    Listed,
    Noticed,
    Offered,
    Owns,
    Worked,
)
from tests.cluster.histories.uses.names import LEDGER, NOTICES, PAYMENTS, REMINDERS, TASKS
from tests.cluster.histories.uses.playing import Stored, is_read_by_all

BODY = b"1"


def stored(topic: str, at: float, *, queue_offset: int = 0, body: bytes = BODY) -> Stored:
    return Stored(topic, 0, queue_offset, at, 0, body)


def sent(topic: str, at: float, *, delay: float = 0.0) -> list[Event]:
    return [
        Offered(at=at, topic=topic, body=BODY, delay=delay),
        Accepted(
            at=at, topic=topic, body=BODY, started=at, broker=0, status="SEND_OK", end_offset=50
        ),
    ]


def handled(
    began: float,
    finished: float,
    *,
    topic: str = LEDGER,
    who: str = "one",
    queue_offset: int = 0,
    times: int = 0,
    outcome: str = "done",
    body: bytes = BODY,
    address: int = 0,
) -> list[Event]:
    begun = Began(
        at=began, who=who, topic=topic, queue_id=0, queue_offset=queue_offset, body=body,
        times=times, address=address,
    )  # fmt: skip
    fields = attrs.asdict(begun) | {"at": finished, "outcome": outcome}
    return [begun, Finished(**fields)]


def switched(at: float, *, kept: int = 200, asked: Outcome = "answered") -> list[Event]:
    others = (0, 200, 200), (1, kept, kept)
    return [
        ReignEnded(at=at, broker=0, log_end=200),
        ReignBegan(at=at + 1, broker=1, kept=kept, others=others, offsets=(), asked=((0, asked),)),
    ]


def broken(
    use: Use,
    events: list[Event],
    *used: Stored,
    faults: tuple[Fault, ...] = (),
    readers: int = 0,
    **mode: Any,
) -> set[str]:
    """The names of the promises that such a story breaks."""
    schedule = attrs.evolve(
        schedule_of(*faults), uses=(use,), consumers=((),) * readers, producers=0
    )
    schedule = attrs.evolve(schedule, mode=attrs.evolve(schedule.mode, **mode))
    master = BrokerState(0, 0, b"", ((), (), (), ()), (), ((), ()), (), (), (), "", used=used)
    ends = (master, attrs.evolve(master, broker=1))
    ordered = sorted(events, key=lambda event: event.at)
    history = History(1, ordered or [ReignEnded(at=0.0, broker=0, log_end=0)])
    story = Story(schedule, history, FinalState(ends, came_to_rest=True))
    return {violation.invariant for violation in check(story)}


def test_delayed_message_comes_once_and_in_time() -> None:
    events = sent(REMINDERS, 10.0, delay=4.0)
    on_time = stored(REMINDERS, 14.0)
    assert broken("delayed", events, on_time) == set()
    assert broken("delayed", events, stored(REMINDERS, 13.9)) == {"delivered before its time"}
    assert broken("delayed", events) == {"delayed and lost"}
    assert broken("delayed", [], on_time) == {"delivered and never sent"}
    again = stored(REMINDERS, 15.0, queue_offset=1)
    assert broken("delayed", events, on_time, again) == {"delivered too often"}
    assert broken("delayed", [*events, *switched(14.5)], on_time, again) == set()


def test_delayed_message_may_go_with_the_tail_it_was_parked_in() -> None:
    told = {"delayed and lost"}
    lost = [*sent(REMINDERS, 10.0), *switched(11.0, kept=40, asked="failed")]
    assert broken("delayed", lost) == set()
    asked = [*sent(REMINDERS, 10.0), *switched(11.0, kept=40)]
    assert broken("delayed", asked) & told == told
    behind_it = [*sent(REMINDERS, 10.0), *switched(11.0, kept=60, asked="failed")]
    assert broken("delayed", behind_it) & told == told


def test_message_of_a_transaction_comes_if_its_work_was_done() -> None:
    half, done = sent(PAYMENTS, 10.0), Worked(at=11.0, body=BODY)
    delivered = stored(PAYMENTS, 12.0)
    assert broken("transactions", [*half, done], delivered) == set()
    assert broken("transactions", half) == set()
    assert broken("transactions", half, delivered) == {"not done and delivered"}
    assert broken("transactions", [*half, done]) == {"done and not delivered"}
    given_up = stored("TRANS_CHECK_MAX_TIME_TOPIC", 12.0)
    assert broken("transactions", half, given_up) == {"given up"}


def test_ledger_is_read_in_order_by_one_at_a_time() -> None:
    def read(*events: list[Event]) -> set[str]:
        messages = (stored(LEDGER, 5.0, queue_offset=offset) for offset in range(3))
        told = broken("ledger", [event for some in events for event in some], *messages)
        return told - {"neither done nor a dead letter"}

    first = handled(10.0, 11.0)
    assert read(first, handled(11.0, 12.0, who="two", queue_offset=1)) == set()
    assert read(first, handled(12.0, 13.0, queue_offset=2)) == {"handled out of order"}
    failed = handled(10.0, 11.0, outcome="failed")
    assert read(failed, handled(11.0, 12.0, queue_offset=1)) == {"handled out of order"}
    dead = handled(10.0, 11.0, times=2, outcome="failed")
    assert read(dead, handled(11.0, 12.0, queue_offset=1)) == set()
    both = first, handled(10.5, 11.5, who="two")
    assert read(*both) == {"two owners"}
    assert read(switched(8.0), *both) == {"two owners"}


@pytest.mark.parametrize("use", ["ledger", "retries"])
def test_every_message_is_done_or_a_dead_letter(use: Use) -> None:
    topic, group = (LEDGER, "clerks") if use == "ledger" else (TASKS, "workers")
    message, letter = stored(topic, 10.0), stored(f"%DLQ%{group}", 20.0)
    dead = [
        event
        for times in range(3)
        for event in handled(11.0 + 10 * times, 12.0 + 10 * times, topic=topic, times=times,
                             outcome="failed")
    ]  # fmt: skip
    assert broken(use, [], message) == {"neither done nor a dead letter"}
    assert broken(use, handled(11.0, 12.0, topic=topic), message) == set()
    assert broken(use, dead, message) == {"neither done nor a dead letter"}
    assert broken(use, dead, message, letter) == set()


def test_message_that_is_handed_back_may_be_in_a_lost_tail() -> None:
    message = stored(TASKS, 10.0)

    def missing(begins: float, ends: float, *, address: int, loss: list[Event]) -> bool:
        failed = handled(begins, ends, topic=TASKS, times=1, outcome="failed", address=address)
        events = sorted([*failed, *loss], key=lambda event: event.at)
        return "neither done nor a dead letter" in broken("retries", events, message)

    lost, whole = switched(20.0, kept=100), switched(20.0)
    assert not missing(11.0, 12.0, address=50, loss=lost)  # What it comes again as is lost.
    assert not missing(19.0, 25.0, address=150, loss=lost)  # It is lost itself.
    assert missing(19.0, 25.0, address=50, loss=lost)
    assert missing(23.0, 25.0, address=150, loss=lost)  # It was read from the shorter log.
    assert missing(19.0, 25.0, address=150, loss=whole)


def test_task_comes_again_when_it_failed_and_its_delay_is_over() -> None:
    failed = handled(10.0, 11.0, topic=TASKS, outcome="failed")
    again = handled(14.0, 15.0, topic=TASKS, times=1)
    assert broken("retries", [*failed, *again]) == set()
    assert broken("retries", [*failed, *handled(13.9, 15.0, topic=TASKS, times=1)]) == {
        "tried again too early"
    }
    done = handled(10.0, 11.0, topic=TASKS)
    assert broken("retries", [*done, *again]) == {"tried again without a failure"}
    letter = stored("%DLQ%workers", 20.0)
    assert broken("retries", failed, letter) == {"dead too soon"}


def test_every_reader_gets_all_notices() -> None:
    def read(who: int, *offsets: int) -> list[Event]:
        return [
            Noticed(at=10.0, who=f"consumer-{who}", queue_id=0, queue_offset=offset, body=BODY)
            for offset in offsets
        ]

    both = stored(NOTICES, 5.0), stored(NOTICES, 6.0, queue_offset=1)
    assert broken("broadcast", [*read(0, 0, 1), *read(1, 0, 0, 1)], *both, readers=2) == set()
    told = {"a reader was left out"}
    assert broken("broadcast", [*read(0, 0, 1), *read(1, 0)], *both, readers=2) == told
    assert broken("broadcast", read(0, 1, 0), *both, readers=1) == told
    # What was at a place before the end of the queue was lost is not missed.
    lost = attrs.evolve(read(0, 1)[0], body=b"lost")
    assert broken("broadcast", [lost, *read(0, 0, 1)], *both, readers=1) == set()


def test_reader_is_not_done_while_another_message_has_a_place_that_it_read() -> None:
    def noticed(who: int, body: bytes) -> Noticed:
        return Noticed(at=9.0, who=f"consumer-{who}", queue_id=0, queue_offset=0, body=body)

    lost, there = noticed(0, b"lost"), [noticed(0, BODY), noticed(1, BODY)]
    notice = stored(NOTICES, 5.0)
    assert not is_read_by_all([lost, noticed(1, BODY)], [notice], readers=2)
    assert is_read_by_all([lost, *there], [notice], readers=2)


def test_static_member_gets_its_own_queues_whenever_it_is_connected() -> None:
    def owns(at: float, *queue_ids: int) -> Owns:
        return Owns(at=at, who="regular-0", queue_ids=queue_ids)

    def told(*events: Event) -> set[str]:
        return broken("static", list(events))

    names = "regular-0", "regular-1", "regular-2"
    listed = Listed(at=0.5, broker=0, members=names)
    away = [listed, owns(1.0, 0, 1), Away(at=5.0, who="regular-0")]
    moved = {"a static member's queues moved"}
    assert told(*away, owns(8.0), owns(8.2, 0, 1)) == set()
    assert told(*away, owns(8.0, 0, 1, 2)) == moved
    assert told(listed, owns(1.0, 0, 1), owns(8.0, 0)) == moved
    assert told(listed, owns(1.0, 0, 1), owns(8.0)) == moved
    # A broker that begins again has heard of two of them.
    two = Listed(at=7.0, broker=1, members=names[:2], silent=(("regular-2", 0.5),))
    assert told(listed, owns(1.0, 0, 1), two, owns(8.0, 0, 1)) == set()
    assert told(*away, two, owns(8.0, 0, 1)) == set()
    alone = Listed(at=7.0, broker=1, members=names[:1])
    assert told(*away, alone, owns(8.0, 0, 1, 2, 3), owns(9.0, 0, 1)) == set()
    assert told(*away, alone, owns(8.0, 0, 1), owns(9.0, 0, 1), owns(9.5, 0)) == moved


def test_static_member_that_a_broker_forgets_within_its_grace_time_is_reported() -> None:
    names = "regular-0", "regular-1"
    events = [Listed(at=0.5, broker=0, members=names)]

    def told(silent_for: float, *between: Event) -> set[str]:
        gone = Listed(at=9.0, broker=0, members=names[:1], silent=(("regular-1", silent_for),))
        return broken("static", [*events, *between, gone])

    assert told(19.0) == {"a static member was forgotten"}
    assert told(20.0) == set()
    # Its memory is all that it knows them by.
    ended = MemberEnded(
        at=5.0, broker=0, role="async-master", how="kill", log_end=0, flushed=0, offsets=()
    )
    assert told(1.0, ended) == set()
