"""Which replica a Spark task reads a range from, by option, suggestion, bound and what replicas said of themselves."""

from collections.abc import Collection
from typing import Any

import pytest

from rocketrio.cluster.replica_probe import ReplicaProbes
from rocketrio.routing import PullNodes, Router
from rocketrio.routing.read_policy import ReplicaPolicy, StalenessBound
from rocketrio_protocol.message import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)
PLANNED_END = 900
ADDRESSES = {"broker-a": {0: "m", 1: "s1", 2: "s2"}}


def _replicas(
    read_from: Any = "auto",
    *,
    failed: Collection[str] = (),
    first_id: int = 0,
    bound: StalenessBound | None = None,
    addresses: dict[str, dict[int, str]] = ADDRESSES,
) -> PullNodes:
    table = {name: dict(addrs) for name, addrs in addresses.items()}
    router = Router(broker_addr_table=table, is_avoided=lambda addr: addr in failed)
    return _of_range(router, "a range", ReplicaPolicy(read_from, bound), first_id)


def _of_range(router: Router, name: str, policy: ReplicaPolicy, first_id: int) -> PullNodes:
    replicas = PullNodes(router, name, policy)
    router.update_pull_from_which_node(QUEUE, first_id, name)
    replicas.views_of(QUEUE).planned_end = PLANNED_END
    return replicas


def _chosen(replicas: PullNodes, offset: int = 100, *, tried: Collection[str] = ()) -> str | None:
    choice = replicas.choose(QUEUE, offset, now=1.0, tried=tried)
    if choice is None:
        return None
    replicas.count(QUEUE, choice)
    return choice.found.addr


def _note(
    replicas: PullNodes,
    broker_id: int,
    max_offset: int,
    level_age: float | None = None,
    now: float = 1.0,
    *,
    min_offset: int | None = 0,
) -> None:
    replicas.views_of(QUEUE).note(broker_id, max_offset, level_age, now, min_offset=min_offset)


def _order(replicas: PullNodes, offset: int = 100) -> list[str]:
    """All replicas that are asked when none answers."""
    tried: list[str] = []
    while (addr := _chosen(replicas, offset, tried=tried)) is not None:
        tried.append(addr)
    return tried


def test_auto_begins_at_the_master_and_follows_suggestions() -> None:
    replicas = _replicas()
    assert _chosen(replicas) == "m"
    replicas.router.update_pull_from_which_node(QUEUE, 2, "a range")
    assert _chosen(replicas) == "s2"
    replicas.router.update_pull_from_which_node(QUEUE, 0, "a range")
    assert _chosen(replicas) == "m"


def test_auto_begins_where_planning_saw_it_suggested() -> None:
    assert _order(_replicas(first_id=2)) == ["s2", "s1", "m"]


def test_a_suggestion_is_one_of_the_range() -> None:
    replicas = _replicas(first_id=1)
    newer = _of_range(replicas.router, "another range", replicas.policy, 0)
    assert (_chosen(newer), _chosen(replicas)) == ("m", "s1")


@pytest.mark.parametrize("read_from", ["auto", "slave"])
def test_choice_is_repeated_only_while_it_holds(read_from: str) -> None:
    failed: set[str] = set()
    replicas = _replicas(read_from, failed=failed, first_id=1)
    first = _chosen(replicas)
    assert first is not None
    assert first.startswith("s")
    assert _chosen(replicas) == first
    first_id = int(first[1])
    replicas.router.broker_addr_table["broker-a"] = {0: "m", first_id: "moved"}
    assert _chosen(replicas) == "moved"
    failed.add("moved")
    assert _chosen(replicas) == "m"
    failed.clear()
    assert _chosen(replicas) == "moved"
    _note(replicas, first_id, 100)
    assert _chosen(replicas) == "m"


def test_suggestion_counts_also_after_another_slave_was_read() -> None:
    failed = {"s1"}
    replicas = _replicas(failed=failed, first_id=1)
    assert _chosen(replicas) == "s2"
    failed.clear()
    assert _chosen(replicas) == "s1"


def test_suggested_id_that_is_missing_means_any_slave() -> None:
    replicas = _replicas(first_id=1, addresses={"broker-a": {0: "m", 7: "s7"}})
    assert _chosen(replicas) == "s7"


@pytest.mark.parametrize("read_from", ["auto", "slave"])
def test_every_replica_is_asked_before_giving_up(read_from: str) -> None:
    assert sorted(_order(_replicas(read_from))) == ["m", "s1", "s2"]
    assert sorted(_order(_replicas(read_from, failed=["m", "s1", "s2"]))) == ["m", "s1", "s2"]


def test_read_from_master_asks_no_slave() -> None:
    assert _order(_replicas("master")) == ["m"]
    assert _order(_replicas("master", failed=["m"], first_id=1)) == ["m"]
    assert _order(_replicas("master", addresses={"broker-a": {1: "s1"}})) == []


def test_slave_means_the_master_where_there_is_none() -> None:
    assert _order(_replicas("slave"))[-1] == "m"
    assert _order(_replicas("slave", addresses={"broker-a": {0: "m"}})) == ["m"]
    assert _chosen(_replicas("slave", failed=["s1", "s2"])) == "m"


def test_replica_that_failed_recently_comes_last() -> None:
    assert _order(_replicas(failed=["m"]))[-1] == "m"
    assert _order(_replicas(failed=["s2"], first_id=2))[0] == "s1"


def test_ranges_spread_over_slaves() -> None:
    replicas, seen = _replicas("slave"), set()
    for number in range(20):
        one = _of_range(replicas.router, f"range {number}", replicas.policy, 0)
        addr = _chosen(one)
        assert addr == _chosen(one, 105)  # It stays with its own.
        seen.add(addr)
    assert seen == {"s1", "s2"}


def test_a_slave_that_has_not_come_so_far_or_begins_later_is_passed_over() -> None:
    replicas = _replicas("slave", addresses={"broker-a": {0: "m", 1: "s1"}})
    _note(replicas, 1, 300, min_offset=150)
    assert [_chosen(replicas, offset) for offset in (149, 150, 299, 300)] == ["m", "s1", "s1", "m"]
    (slave,) = [found for found in replicas.router.candidates("broker-a") if found.is_slave]
    replicas.lacks(QUEUE, slave, 1.0)
    assert _chosen(replicas, 200) == "m"
    # when the master does not answer, it may have it by then
    assert _order(replicas, 200) == ["m", "s1"]


def test_only_slaves_within_the_bound_are_read_even_without_others() -> None:
    replicas = _replicas("slave", bound=StalenessBound(messages=100))
    assert _order(replicas) == ["m"]  # nothing is known of them yet
    _note(replicas, 1, 790)
    _note(replicas, 2, 810)
    assert _order(replicas) == ["s2", "m"]  # the master's end is at least the planned one, 900
    _note(replicas, 0, 500)
    assert _order(replicas) == ["s2", "m"]
    _note(replicas, 0, 2000)
    assert _order(replicas) == ["m"]


def test_slave_within_the_bound_that_lacks_the_offset_is_asked_after_the_master() -> None:
    replicas = _replicas("slave", bound=StalenessBound(messages=100), failed=["s2"])
    _note(replicas, 1, 810)
    assert _order(replicas, 809) == ["s1", "m"]
    assert _order(replicas, 810) == ["m", "s1"]


def test_replicas_are_probed_only_where_a_bound_decides() -> None:
    bound = StalenessBound(seconds=5)
    assert not ReplicaPolicy("slave").needs_probes
    assert not ReplicaPolicy("master", bound).needs_probes
    replicas = _replicas("auto", bound=bound)
    assert replicas.policy.needs_probes
    nothing: Any = None
    probes = ReplicaProbes(nothing, replicas, nothing)
    assert probes.are_due(QUEUE, 0.0)
    for broker_id in (0, 1, 2):
        _note(replicas, broker_id, 900, 0.5, now=0.0)
    assert not probes.are_due(QUEUE, 1.0)
    assert probes.are_due(QUEUE, 1.1)
