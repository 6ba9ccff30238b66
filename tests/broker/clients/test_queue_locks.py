"""The table of queue locks: who holds what, for how long."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_broker.clients.queue_locks import LOCK_LIFETIME, QueueLocks
from rocketrio_protocol.bodies.queues import QueueName

Q0, Q1 = QueueName("T", "broker-a", 0), QueueName("T", "broker-a", 1)


def test_a_locked_queue_is_refused_to_others_and_given_to_its_holder_again() -> None:
    locks = QueueLocks()
    assert locks.lock("G", [Q0, Q1], "a", now=0.0) == [Q0, Q1]
    assert locks.lock("G", [Q0, Q1], "b", now=1.0) == []
    assert locks.lock("G", [Q0], "a", now=2.0) == [Q0]
    assert locks.holder("G", Q0, now=2.0) == "a"


def test_other_groups_have_locks_of_their_own() -> None:
    locks = QueueLocks()
    locks.lock("G", [Q0], "a", now=0.0)
    assert locks.lock("H", [Q0], "b", now=0.0) == [Q0]


def test_a_lock_lasts_a_minute_after_its_last_renewal() -> None:
    locks = QueueLocks()
    locks.lock("G", [Q0], "a", now=0.0)
    locks.lock("G", [Q0], "a", now=50.0)
    assert locks.lock("G", [Q0], "b", now=50.0 + LOCK_LIFETIME) == []
    assert locks.lock("G", [Q0], "b", now=50.1 + LOCK_LIFETIME) == [Q0]
    assert locks.lock("G", [Q0], "a", now=50.2 + LOCK_LIFETIME) == []


def test_only_the_holder_unlocks() -> None:
    locks = QueueLocks()
    locks.lock("G", [Q0, Q1], "a", now=0.0)
    locks.unlock("G", [Q0, Q1], "b")
    assert locks.lock("G", [Q0], "b", now=1.0) == []
    locks.unlock("G", [Q0], "a")
    assert locks.lock("G", [Q0, Q1], "b", now=1.0) == [Q0]
    locks.unlock("unknown", [Q0], "a")


def test_lock_that_is_not_renewed_is_forgotten() -> None:
    locks = QueueLocks()
    locks.lock("G", [Q0, Q1], "a", now=0.0)
    locks.unlock("G", [Q0], "a")
    assert len(locks) == 1
    locks.lock("H", [Q0], "b", now=3 * LOCK_LIFETIME)
    assert len(locks) == 1


def test_no_more_locks_are_held_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketrio_broker.clients.queue_locks.LOCKS_LIMIT", 2)
    locks = QueueLocks()
    assert locks.lock("G", [Q0], "a", now=0.0) == [Q0]
    assert locks.lock("H", [Q0, Q1], "b", now=0.0) == [Q0]
    locks.unlock("G", [Q0], "a")
    assert locks.lock("H", [Q0, Q1], "b", now=1.0) == [Q0, Q1]
    assert locks.lock("I", [Q0], "c", now=1.0) == []
    assert locks.lock("H", [QueueName("T", "broker-a", 7), Q1], "b", now=2.0) == [Q1]
    assert locks.lock("I", [Q0], "c", now=3 * LOCK_LIFETIME) == [Q0]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from([Q0, Q1]),
            st.booleans(),
            st.floats(0.0, 45.0),
        ),
        max_size=40,
    )
)
def test_a_queue_has_one_holder_at_a_time(
    steps: list[tuple[str, QueueName, bool, float]],
) -> None:
    locks, now = QueueLocks(), 0.0
    held: dict[QueueName, tuple[str, float]] = {}
    for client_id, queue, locking, pause in steps:
        now += pause
        holder, until = held.get(queue, ("", -1.0))
        is_free = holder in ("", client_id) or now > until
        if locking:
            got = locks.lock("G", [queue], client_id, now=now)
            assert got == ([queue] if is_free else [])
            if got:
                held[queue] = client_id, now + LOCK_LIFETIME
        else:
            locks.unlock("G", [queue], client_id)
            if holder == client_id:
                del held[queue]


def test_lock_of_many_queues_is_logged_in_one_line_a_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    locks = QueueLocks()
    queues = [QueueName("T", "broker-a", number) for number in range(1000)]
    assert len(locks.lock("G", queues, "a", now=0.0)) == 1000
    assert locks.lock("G", queues, "b", now=1.0) == []
    locks.unlock("G", queues, "a")
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" group=")[0] for line in lines] == [
        "queue locks what=queues locked",
        "queue locks what=queue locks refused",
        "queue locks what=queues unlocked",
    ]  # fmt: skip
    assert all(" count=1000 " in line for line in lines)
    assert "holder=a" in lines[1]
