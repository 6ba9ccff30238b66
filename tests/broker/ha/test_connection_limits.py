"""Who may be connected to the replication port at once, and who gives way (`ha/connection_limits.py`)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import trio

from rocketrio_broker.ha.config import SLAVES_LIMIT
from rocketrio_broker.ha.connection_limits import (
    ARRIVALS_LIMIT,
    ARRIVALS_OF_HOST_LIMIT,
    HAPlace,
    HAPlaces,
)
from rocketrio_broker.ha.errors import ReplicationError


@contextmanager
def arrived(*hosts: str) -> Iterator[tuple[HAPlaces, list[HAPlace]]]:
    """Connections of these hosts, one after the other."""
    places = HAPlaces()
    with ExitStack() as stack:
        yield places, [stack.enter_context(places.take(f"{host}:1")) for host in hosts]


def lost(places: list[HAPlace]) -> list[int]:
    return [number for number, place in enumerate(places) if place.scope.cancel_called]


async def test_host_that_knocks_often_displaces_its_own_oldest() -> None:
    knocks = ["10.0.0.66"] * (ARRIVALS_OF_HOST_LIMIT + 3)
    with arrived("10.0.0.2", *knocks) as (_, places):
        assert lost(places) == [1, 2, 3]


async def test_many_hosts_that_are_silent_give_way_to_a_newcomer() -> None:
    hosts = [f"10.0.1.{number % 60}" for number in range(ARRIVALS_LIMIT)]
    with arrived("10.0.0.2", *hosts[1:], "10.0.0.3") as (_, places):
        # The oldest of a host that has two.
        (one,) = lost(places)
        assert hosts.count(hosts[one]) == 2
        assert not places[-1].scope.cancel_called


async def test_place_of_an_identified_slave_is_not_taken() -> None:
    with arrived("10.0.0.2") as (places, (slave,)), ExitStack() as stack:
        places.keep(slave)
        for number in range(200):
            stack.enter_context(places.take(f"10.0.0.{number}:1"))
            stack.enter_context(places.take("10.0.0.2:2"))
        assert not slave.scope.cancel_called


async def test_places_are_limited_and_a_slave_that_leaves_makes_room() -> None:
    places = HAPlaces()
    with ExitStack() as stack:
        for number in range(SLAVES_LIMIT - 1):
            places.keep(stack.enter_context(places.take(f"10.0.0.{number}:1")))
        with places.take("10.0.1.1:1") as last, places.take("10.0.1.2:1") as surplus:
            places.keep(last)
            places.keep(last)
            with pytest.raises(ReplicationError, match=f"already {SLAVES_LIMIT} slaves"):
                places.keep(surplus)
        with places.take("10.0.1.3:1") as next_one:
            places.keep(next_one)


async def test_place_that_was_lost_ends_what_was_done_there() -> None:
    places = HAPlaces()
    ended = trio.Event()

    async def wait() -> None:
        with places.take("10.0.0.66:1") as place:
            await trio.sleep_forever()
        assert place.scope.cancelled_caught
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        with ExitStack() as stack:
            for _ in range(ARRIVALS_OF_HOST_LIMIT):
                stack.enter_context(places.take("10.0.0.66:1"))
            await ended.wait()
