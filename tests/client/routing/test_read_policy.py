"""Which replica a consumer reads, by policy: choices as values, bounds, and reasons; no cluster."""

from typing import Any

import pytest

from rocketrio import ConfigError
from rocketrio.routing import FindBrokerResult, PullNodes, PullReason, ReadPolicy, Router
from rocketrio.routing.read_policy import StalenessBound
from rocketrio.routing.replica_views import VIEW_MAX_AGE, ReplicaViews
from rocketrio_protocol.message import MessageQueue

QUEUE = MessageQueue("orders", "a", 0)
MASTER, SLAVE_1, SLAVE_2 = (f"10.0.0.1{number}:10911" for number in range(3))
ADDRS = {0: MASTER, 1: SLAVE_1, 2: SLAVE_2}
TIMES = {MASTER: 0.030, SLAVE_1: 0.010, SLAVE_2: 0.020}


def nodes(
    *failed: str, times: dict[str, float] = TIMES, group: str = "g", **policy: Any
) -> PullNodes:
    router = Router(is_avoided=lambda addr: addr in failed)
    router.broker_addr_table["a"] = dict(ADDRS)
    return PullNodes(router, group, ReadPolicy(**policy), times.get)


def chosen(made: PullNodes, offset: int = 0, now: float = 0.0) -> tuple[int, PullReason] | None:
    choice = made.choose(QUEUE, offset, now=now)
    if choice is None:
        return None
    made.count(QUEUE, choice)
    return choice.found.broker_id, choice.reason


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"read_from": "slave"}, "must be one of 'suggested', 'master', 'nearest', 'replica'"),
        ({"read_from": "replica"}, "needs a bound"),
        ({"read_from": "master", "max_staleness": 1.0}, "has no effect"),
        ({"max_staleness_messages": 3}, "has no effect"),
        ({"read_from": "replica", "max_staleness": 0}, "more than 0"),
        ({"read_from": "replica", "max_staleness": float("nan")}, "more than 0"),
        ({"read_from": "replica", "max_staleness": float("inf")}, "bounds nothing"),
        ({"read_from": "nearest", "max_staleness_messages": -1}, "at least 0"),
        ({"read_from": "nearest", "max_staleness_messages": 1.5}, "whole number"),
    ],
)
def test_policy_without_effect_is_refused(policy: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ReadPolicy(**policy)


def test_bound_does_not_allow_a_replica_of_unknown_staleness() -> None:
    views = ReplicaViews()
    for bound in (StalenessBound(messages=10**9), StalenessBound(seconds=10.0**9)):
        assert not bound.allows(views, 1, 0.0)
        assert bound.allows(views, 0, 0.0)
    views.note(0, 1000, None, 0.0)
    views.note(1, 990, None, 0.0)  # As an Apache slave, which does not report how old its view is.
    assert StalenessBound(messages=10).allows(views, 1, 0.0)
    assert not StalenessBound(messages=9).allows(views, 1, 0.0)
    assert not StalenessBound(messages=10).allows(views, 1, VIEW_MAX_AGE + 1)
    assert not StalenessBound(seconds=10.0**9).allows(views, 1, 0.0)
    views.note(1, 990, 3.0, 0.0)
    assert StalenessBound(seconds=5.0).allows(views, 1, 2.0)
    assert not StalenessBound(seconds=5.0).allows(views, 1, 2.5)


def test_suggested_begins_at_the_master_and_follows() -> None:
    made = nodes()
    assert chosen(made) == (0, PullReason.DEFAULT)
    made.router.update_pull_from_which_node(QUEUE, 2, "g")
    assert chosen(made) == (2, PullReason.SUGGESTED)
    made.router.update_pull_from_which_node(QUEUE, 7, "g")
    assert chosen(made) == (0, PullReason.SKIPPED)
    made.router.connect_broker_by_user, made.router.default_broker_id = True, 1
    assert chosen(made) == (1, PullReason.BY_USER)
    assert made.counts[QUEUE].by_reason == {
        PullReason.DEFAULT: 1,
        PullReason.SUGGESTED: 1,
        PullReason.SKIPPED: 1,
        PullReason.BY_USER: 1,
    }


def test_suggested_passes_over_what_failed() -> None:
    assert chosen(nodes(MASTER)) == (1, PullReason.SKIPPED)


def test_policy_master_asks_only_the_master_even_if_it_failed() -> None:
    assert chosen(nodes(MASTER, read_from="master")) == (0, PullReason.MASTER)
    made = nodes(read_from="master")
    del made.router.broker_addr_table["a"][0]
    assert chosen(made) is None


@pytest.mark.parametrize(
    ("failed", "expected"),
    [((), 1), ((SLAVE_1,), 2), ((SLAVE_1, SLAVE_2), 0)],
)
def test_nearest_is_the_shortest_round_trip_of_those_that_live(
    failed: tuple[str, ...], expected: int
) -> None:
    assert chosen(nodes(*failed, read_from="nearest")) == (expected, PullReason.NEAREST)


def test_nearest_stays_where_it_is_for_a_little() -> None:
    times = {MASTER: 0.010, SLAVE_1: 0.020, SLAVE_2: 0.020}
    made = nodes(times=times, read_from="nearest")
    assert chosen(made) == (0, PullReason.NEAREST)
    times[SLAVE_1] = 0.009
    assert chosen(made) == (0, PullReason.NEAREST)
    times[SLAVE_1] = 0.007
    assert chosen(made) == (1, PullReason.NEAREST)


def test_nearest_that_was_never_measured_is_the_last() -> None:
    assert chosen(nodes(times={MASTER: 5.0}, read_from="nearest")) == (0, PullReason.NEAREST)
    assert chosen(nodes(times={}, read_from="nearest")) == (0, PullReason.NEAREST)


def test_slave_that_has_not_come_so_far_is_not_the_nearest() -> None:
    made = nodes(read_from="nearest")
    made.views_of(QUEUE).note(1, 5, None, now=0.0)
    assert chosen(made, offset=5) == (1, PullReason.NEAREST)
    assert chosen(made, offset=6) == (2, PullReason.NEAREST)
    assert chosen(made, offset=6, now=11.0) == (1, PullReason.NEAREST)  # That was long ago.


def told(made: PullNodes, **ends: tuple[int, float | None]) -> None:
    """master=(max_offset, None), slave_1=(max_offset, seconds since level), at time 0."""
    for name, (max_offset, level_age) in ends.items():
        broker_id = 0 if name == "master" else int(name[-1])
        made.views_of(QUEUE).note(broker_id, max_offset, level_age, now=0.0)


@pytest.mark.parametrize(
    ("bound", "slave_1", "now", "expected"),
    [
        ({"max_staleness_messages": 10}, (90, None), 0, (1, PullReason.REPLICA)),
        ({"max_staleness_messages": 10}, (89, None), 0, (0, PullReason.TOO_STALE)),
        ({"max_staleness_messages": 0}, (100, None), 0, (1, PullReason.REPLICA)),
        ({"max_staleness_messages": 0}, (105, None), 0, (1, PullReason.REPLICA)),  # Newer news.
        # What was said too long ago is not known any more.
        ({"max_staleness_messages": 10}, (100, None), 10.1, (0, PullReason.TOO_STALE)),
        ({"max_staleness": 5.0}, (0, 5.0), 0, (1, PullReason.REPLICA)),
        ({"max_staleness": 5.0}, (0, 5.1), 0, (0, PullReason.TOO_STALE)),
        ({"max_staleness": 5.0}, (0, 3.0), 2.0, (1, PullReason.REPLICA)),
        ({"max_staleness": 5.0}, (0, 3.0), 2.1, (0, PullReason.TOO_STALE)),
        ({"max_staleness": 5.0}, (100, None), 0, (0, PullReason.TOO_STALE)),  # An Apache slave.
        # Both bounds count.
        ({"max_staleness": 5.0, "max_staleness_messages": 1}, (99, 1.0), 0, (1, PullReason.REPLICA)),
        ({"max_staleness": 5.0, "max_staleness_messages": 1}, (98, 1.0), 0, (0, PullReason.TOO_STALE)),
        ({"max_staleness": 5.0, "max_staleness_messages": 1}, (99, 6.0), 0, (0, PullReason.TOO_STALE)),
    ],
)  # fmt: skip
def test_replica_is_read_within_its_bound_and_the_master_otherwise(
    bound: dict[str, Any],
    slave_1: tuple[int, float | None],
    now: float,
    expected: tuple[int, PullReason],
) -> None:
    made = nodes(SLAVE_2, read_from="replica", **bound)
    told(made, master=(100, None), slave_1=slave_1)
    assert chosen(made, now=now) == expected


def test_unknown_counts_as_too_stale() -> None:
    made = nodes(read_from="replica", max_staleness_messages=1_000_000)
    assert chosen(made) == (0, PullReason.TOO_STALE)
    told(made, slave_1=(100, 0.0))  # The master said nothing yet.
    assert chosen(made) == (0, PullReason.TOO_STALE)
    told(made, master=(100, None))
    assert chosen(made) == (1, PullReason.REPLICA)


def test_bound_holds_while_the_master_is_away() -> None:
    made = nodes(MASTER, read_from="replica", max_staleness_messages=0)
    told(made, master=(100, None), slave_1=(99, None), slave_2=(98, None))
    assert chosen(made) == (0, PullReason.TOO_STALE)
    made.views_of(QUEUE).note(2, 100, None, now=500.0)  # It got the rest before the master went.
    assert chosen(made, now=500.0) == (2, PullReason.REPLICA)


def test_slave_behind_the_reader_itself_is_not_read() -> None:
    made = nodes(SLAVE_2, read_from="replica", max_staleness_messages=10)
    told(made, master=(100, None), slave_1=(95, None))
    assert chosen(made, offset=96) == (0, PullReason.NOT_THERE_YET)
    assert chosen(made, offset=95) == (1, PullReason.REPLICA)


def test_slave_whose_queue_begins_behind_the_reader_is_not_read() -> None:
    made = nodes(SLAVE_2, read_from="replica", max_staleness_messages=10)
    told(made, master=(100, None), slave_1=(100, None))
    made.views_of(QUEUE).note(1, 100, None, now=0.0, min_offset=50)
    told(made, slave_1=(100, None))  # A look says nothing of the beginning.
    assert chosen(made, offset=49) == (0, PullReason.BEGINS_LATER)
    assert chosen(made, offset=50) == (1, PullReason.REPLICA)
    made = nodes(SLAVE_2, read_from="nearest")
    made.views_of(QUEUE).note(1, 100, None, now=0.0, min_offset=50)
    assert chosen(made, offset=49) == (0, PullReason.NEAREST)
    assert chosen(made, offset=50) == (1, PullReason.NEAREST)


def test_reader_stays_with_its_slave_and_groups_spread() -> None:
    homes = set()
    for number in range(20):
        made = nodes(group=f"group-{number}", read_from="replica", max_staleness_messages=10)
        told(made, master=(100, None), slave_1=(100, None), slave_2=(100, None))
        home = chosen(made)
        assert home == chosen(made)
        homes.add(home)
    assert homes == {(1, PullReason.REPLICA), (2, PullReason.REPLICA)}


def test_nearest_may_be_bounded_too() -> None:
    made = nodes(SLAVE_2, read_from="nearest", max_staleness=1.0)
    told(made, slave_1=(100, 0.5))
    assert chosen(made) == (1, PullReason.NEAREST)
    assert chosen(made, now=1.0) == (0, PullReason.NEAREST)


def test_what_is_known_of_queues_that_were_given_up_is_forgotten() -> None:
    made = nodes(read_from="replica", max_staleness=1.0)
    chosen(made)
    made.keep([QUEUE])
    assert QUEUE in made.counts
    made.keep([])
    assert not made.counts
    assert not made.views


def test_choice_names_the_address() -> None:
    choice = nodes().choose(QUEUE, 0, now=0.0)
    assert choice is not None
    assert choice.found == FindBrokerResult(MASTER, 0)
