"""Sharing queues: properties that hold for any group; `tests/interop` compares with Java's classes."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketrio.consuming.allocate import (
    AllocateStrategy,
    allocate_averagely,
    allocate_averagely_by_circle,
    allocate_by_config,
    allocate_by_consistent_hash,
    allocate_sticky,
)
from rocketrio_protocol.message import MessageQueue

EVEN = [allocate_averagely, allocate_averagely_by_circle, allocate_sticky]
ALL = [*EVEN, allocate_by_consistent_hash]
FEW = settings(max_examples=40)
GROUPS = st.tuples(
    st.integers(0, 60),
    st.lists(st.text("ab0.@#", min_size=1), min_size=1, max_size=20, unique=True),
)


def queues_of(count: int, topic: str = "t") -> list[MessageQueue]:
    return [MessageQueue(topic, f"b{number % 2}", number // 2) for number in range(count)]


def owners(
    strategy: AllocateStrategy, members: list[str], queues: list[MessageQueue]
) -> dict[MessageQueue, str]:
    owned = [(queue, member) for member in members for queue in strategy(member, members, queues)]
    assert len(owned) == len(dict(owned)), "a queue has two owners"
    return dict(owned)


def shares(strategy: AllocateStrategy, queue_count: int, member_count: int) -> list[list[int]]:
    queues = [MessageQueue("t", "b", number) for number in range(queue_count)]
    members = [f"c{number:03}" for number in range(member_count)]
    return [[queue.queue_id for queue in strategy(member, members, queues)] for member in members]


@pytest.mark.parametrize("strategy", ALL)
@FEW
@given(group=GROUPS)
def test_every_queue_has_exactly_one_owner(
    strategy: AllocateStrategy, group: tuple[int, list[str]]
) -> None:
    queues = sorted(queues_of(group[0]))
    assert sorted(owners(strategy, sorted(group[1]), queues)) == queues


@pytest.mark.parametrize("strategy", EVEN)
@FEW
@given(group=GROUPS)
def test_shares_differ_by_one_at_most(
    strategy: AllocateStrategy, group: tuple[int, list[str]]
) -> None:
    members = sorted(group[1])
    sizes = Counter(owners(strategy, members, queues_of(group[0])).values())
    assert max(sizes[member] for member in members) - min(sizes[member] for member in members) <= 1


@pytest.mark.parametrize("strategy", ALL)
@FEW
@given(group=GROUPS)
def test_own_queues_keep_the_order_of_all(
    strategy: AllocateStrategy, group: tuple[int, list[str]]
) -> None:
    members, queues = sorted(group[1]), sorted(queues_of(group[0]))
    own = strategy(members[0], members, queues)
    assert own == sorted(own)


def test_runs_of_neighbours_and_cards_dealt() -> None:
    assert shares(allocate_averagely, 8, 3) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert shares(allocate_averagely, 2, 3) == [[0], [1], []]
    assert shares(allocate_averagely_by_circle, 8, 3) == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert shares(allocate_averagely_by_circle, 2, 3) == [[0], [1], []]


@pytest.mark.parametrize("strategy", ALL)
def test_client_outside_the_group_gets_no_queue(strategy: AllocateStrategy) -> None:
    assert strategy("x", ["a", "b"], queues_of(4)) == []


def some_groups() -> list[tuple[list[str], list[MessageQueue], str]]:
    """Groups of several sizes, each with a member that may come."""
    rng = random.Random(5)
    return [
        (
            sorted(f"10.0.0.{rng.randrange(255)}@{rng.getrandbits(64):x}" for _ in range(size)),
            queues_of(size * rng.randrange(1, 12), f"topic-{rng.randrange(1000)}"),
            f"10.0.0.9@{rng.getrandbits(64):x}",
        )
        for size in (2, 3, 5, 8, 12)
        for _ in range(6)
    ]


def moved(strategy: AllocateStrategy) -> float:
    """Queues that change hands when a member comes, in shares of a member, on average."""
    total = 0.0
    groups = some_groups()
    for members, queues, newcomer in groups:
        before = owners(strategy, members, queues)
        after = owners(strategy, sorted([*members, newcomer]), queues)
        changed = sum(before[queue] != after[queue] for queue in queues)
        total += changed * (len(members) + 1) / len(queues)
    return total / len(groups)


@pytest.mark.slow
def test_sticky_and_consistent_hash_move_little() -> None:
    assert moved(allocate_by_consistent_hash) < 1.3
    assert moved(allocate_sticky) < 1.5 < 1.9 < moved(allocate_averagely)


@FEW
@given(group=GROUPS)
def test_leaving_member_of_a_ring_moves_its_queues_alone(group: tuple[int, list[str]]) -> None:
    members = sorted(group[1])
    before = owners(allocate_by_consistent_hash, members, queues_of(group[0]))
    left = members[1:]
    if not left:
        return
    after = owners(allocate_by_consistent_hash, left, queues_of(group[0]))
    assert all(after[queue] == owner for queue, owner in before.items() if owner != members[0])


def test_consistent_hash_gives_four_fair_shares_at_most() -> None:
    for members, queues, _ in some_groups():
        sizes = Counter(owners(allocate_by_consistent_hash, members, queues).values())
        assert max(sizes.values()) <= 4 * len(queues) / len(members)


def test_config_gives_what_was_written_down() -> None:
    queues = queues_of(4)
    mine = allocate_by_config([queues[2], queues[0], MessageQueue("other", "b0", 0)])
    assert mine("a", ["a", "b"], queues) == [queues[0], queues[2]]
    assert mine("x", ["a", "b"], queues) == []
