"""Bytes over all queues: who may pull how much, and in which turn."""

import attrs

from rocketrio.consuming.pull_budget import PULL_MAX_BYTES, PullBudget
from rocketrio.wakeup import Wakeup

MIB = 1024 * 1024


@attrs.define(eq=False)
class Queue:
    room: Wakeup = attrs.Factory(Wakeup)


def test_pulls_that_lag_reserve_up_to_three_quarters() -> None:
    budget = PullBudget(8 * MIB)
    queues = [Queue() for _ in range(10)]
    granted = [budget.reserve(queue, is_lagging=True) for queue in queues]
    assert granted[:6] == [(PULL_MAX_BYTES, PULL_MAX_BYTES)] * 6
    assert granted[6:] == [None] * 4
    assert budget.used == 6 * MIB


def test_pulls_at_the_end_share_the_last_quarter_and_reserve_nothing() -> None:
    budget = PullBudget(8 * MIB, queue_count=16)
    assert [budget.reserve(Queue(), is_lagging=False) for _ in range(16)] == [(MIB // 8, 0)] * 16
    assert budget.used == 0


def test_full_budget_stops_pulls_at_the_end_too() -> None:
    budget = PullBudget(8 * MIB)
    budget.take(6 * MIB)
    assert budget.reserve(Queue(), is_lagging=False) is None
    budget.give(1)
    assert budget.reserve(Queue(), is_lagging=False) is None  # Another one waited first.


def test_room_goes_to_the_queue_that_waited_longest() -> None:
    budget = PullBudget(4 * MIB)
    budget.take(4 * MIB)
    first, second = Queue(), Queue()
    assert budget.reserve(first, is_lagging=True) is None
    assert budget.reserve(second, is_lagging=True) is None
    budget.give(2 * MIB)
    assert budget.reserve(second, is_lagging=True) is None
    assert budget.reserve(first, is_lagging=True) is not None
    assert budget.reserve(second, is_lagging=True) is None  # It is next, and there is no room.
    budget.give(MIB)
    assert budget.reserve(second, is_lagging=True) is not None


def test_cancelled_waiter_does_not_keep_others_from_room() -> None:
    budget = PullBudget(4 * MIB)
    budget.take(4 * MIB)
    first, second = Queue(), Queue()
    budget.reserve(first, is_lagging=True)
    budget.reserve(second, is_lagging=True)
    budget.give(4 * MIB)
    budget.forget(first)
    assert budget.reserve(second, is_lagging=True) is not None


def test_one_pull_is_always_permitted() -> None:
    assert PullBudget(1).reserve(Queue(), is_lagging=True) == (1, 1)
