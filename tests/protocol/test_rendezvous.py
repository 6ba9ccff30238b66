"""Which broker a name prefers."""

from collections import Counter

from rocketrio_protocol.rendezvous import weight


def _preferred(name: str, broker_ids: list[int]) -> int:
    return max(broker_ids, key=lambda broker_id: weight(name, broker_id))


def test_weight_spreads_names_over_brokers() -> None:
    counts = Counter(_preferred(f"group-{number}", [1, 2, 3]) for number in range(300))
    assert set(counts) == {1, 2, 3}
    assert min(counts.values()) > 60


def test_weight_after_a_broker_left_moves_only_its_names() -> None:
    for number in range(100):
        before = _preferred(f"group-{number}", [1, 2, 3])
        after = _preferred(f"group-{number}", [1, 3])
        assert after == before or before == 2


def test_weight_is_the_same_in_every_process() -> None:
    assert weight("billing", 1).hex() == "ebefabd30c5316a8"
