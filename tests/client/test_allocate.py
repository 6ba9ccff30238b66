"""Sharing queues: properties that hold for any group, and what Java computes."""

from hypothesis import given
from hypothesis import strategies as st

from rocketrio.allocate import allocate_averagely
from rocketrio_protocol.message import MessageQueue

GROUPS = st.tuples(st.integers(0, 60), st.integers(1, 20))


def shares(queue_count: int, member_count: int) -> list[list[int]]:
    queues = [MessageQueue("t", "b", number) for number in range(queue_count)]
    members = [f"c{number:03}" for number in range(member_count)]
    return [
        [queue.queue_id for queue in allocate_averagely(member, members, queues)]
        for member in members
    ]


@given(GROUPS)
def test_every_queue_has_exactly_one_owner(group: tuple[int, int]) -> None:
    taken = [queue_id for share in shares(*group) for queue_id in share]
    assert taken == list(range(group[0]))


@given(GROUPS)
def test_shares_differ_by_one_at_most(group: tuple[int, int]) -> None:
    sizes = [len(share) for share in shares(*group)]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_shares_are_those_of_java() -> None:
    assert shares(8, 3) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert shares(2, 3) == [[0], [1], []]
    assert shares(4, 1) == [[0, 1, 2, 3]]


def test_stranger_gets_nothing() -> None:
    assert allocate_averagely("x", ["a", "b"], [MessageQueue("t", "b", 0)]) == []
