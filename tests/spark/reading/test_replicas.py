"""Which replica a range is read from, by option, suggestion, bound and what replicas said of themselves."""

from collections.abc import Collection

import pytest

from rocketrio.routing import Router
from rocketrio.routing.read_policy import StalenessBound
from rocketrio.spark.reading.offsets import QueueRange
from rocketrio.spark.reading.replicas import Replicas, task_router

PART = QueueRange("orders", "broker-a", 0, 100, 900)
ADDRESSES = {"broker-a": {0: "m", 1: "s1", 2: "s2"}}


def _replicas(
    read_from: str = "auto",
    *,
    failed: Collection[str] = (),
    first_id: int = 0,
    bound: StalenessBound | None = None,
    addresses: dict[str, dict[int, str]] = ADDRESSES,
) -> Replicas:
    router = task_router(addresses, Router(is_avoided=lambda addr: addr in failed))
    replicas = Replicas(router, read_from, bound)  # type: ignore[arg-type]
    replicas.begin(PART, first_id, 0.0)
    return replicas


def _chosen(replicas: Replicas, offset: int = 100, *, tried: Collection[str] = ()) -> str | None:
    found = replicas.choose(PART, offset, 1.0, tried=tried)
    return None if found is None else found.addr


def _order(replicas: Replicas, offset: int = 100) -> list[str]:
    """All replicas that are asked when none answers."""
    tried: list[str] = []
    while (addr := _chosen(replicas, offset, tried=tried)) is not None:
        tried.append(addr)
    return tried


def test_auto_begins_at_the_master_and_follows_suggestions() -> None:
    replicas = _replicas()
    assert _chosen(replicas) == "m"
    replicas.suggested(PART, 2)
    assert _chosen(replicas) == "s2"
    replicas.suggested(PART, 0)
    assert _chosen(replicas) == "m"


def test_auto_begins_where_planning_saw_it_suggested() -> None:
    assert _order(_replicas(first_id=2)) == ["s2", "s1", "m"]


def test_a_suggestion_is_one_of_the_range() -> None:
    replicas, newer = _replicas(first_id=1), QueueRange("orders", "broker-a", 0, 900, 950)
    replicas.begin(newer, 0, 0.0)
    found = replicas.choose(newer, 900, 1.0)
    assert found is not None
    assert (found.addr, _chosen(replicas)) == ("m", "s1")


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
    for queue_id in range(20):
        part = QueueRange("orders", "broker-a", queue_id, 0, 10)
        replicas.begin(part, 0, 0.0)
        found = replicas.choose(part, 0, 1.0)
        assert found is not None
        assert found == replicas.choose(part, 5, 1.0)  # it stays with its own
        seen.add(found.addr)
    assert seen == {"s1", "s2"}


def test_a_slave_that_has_not_come_so_far_or_begins_later_is_passed_over() -> None:
    replicas = _replicas("slave", addresses={"broker-a": {0: "m", 1: "s1"}})
    (slave,) = [f for f in replicas.router.candidates("broker-a") if f.is_slave]
    replicas.answered(PART, slave, 150, 300, None, 1.0)
    assert [_chosen(replicas, offset) for offset in (149, 150, 299, 300)] == ["m", "s1", "s1", "m"]
    replicas.lacks(PART, slave, 1.0)
    assert _chosen(replicas, 200) == "m"
    # when the master does not answer, it may have it by then
    assert _order(replicas, 200) == ["m", "s1"]


def test_only_slaves_within_the_bound_are_read_even_without_others() -> None:
    bound = StalenessBound(messages=100)
    replicas = _replicas("slave", bound=bound)
    slaves = {f.addr: f for f in replicas.router.candidates("broker-a") if f.is_slave}
    assert _order(replicas) == ["m"]  # nothing is known of them yet
    replicas.answered(PART, slaves["s1"], 0, 790, None, 1.0)
    replicas.answered(PART, slaves["s2"], 0, 810, None, 1.0)
    assert _order(replicas) == ["s2", "m"]  # the master's end is at least the planned one, 900
    (master,) = [f for f in replicas.router.candidates("broker-a") if not f.is_slave]
    replicas.answered(PART, master, 0, 2000, None, 1.0)
    assert _order(replicas) == ["m"]


def test_replicas_are_probed_only_where_a_bound_decides() -> None:
    assert _replicas("slave").to_probe(PART, 0.0, max_age=1.0) == []
    replicas = _replicas("auto", bound=StalenessBound(seconds=5))
    to_probe = replicas.to_probe(PART, 0.0, max_age=1.0)
    assert [found.addr for found in to_probe] == ["m", "s1", "s2"]
    for found in to_probe:
        replicas.answered(PART, found, None, 900, 0.5, 0.0)
    assert replicas.to_probe(PART, 1.0, max_age=1.0) == []
    assert replicas.to_probe(PART, 1.1, max_age=1.0)
