"""How far groups were handed messages."""

import pytest

from rocketrio_broker.offsets import pulls as pull_offsets
from rocketrio_broker.offsets.pulls import PullOffsets


def test_oldest_group_is_forgotten_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_offsets, "QUEUES_LIMIT", 3)
    offsets = PullOffsets()
    for group, queue_id in (("A", 0), ("A", 1), ("B", 0), ("B", 0), ("C", 0)):
        offsets.pulled(group, "T", queue_id, 5)
    known = [offsets.of(group, "T", 0, committed=0, end=9) for group in "ABC"]
    assert known == [0, 5, 5]
    offsets.pulled("D", "T", 0, 5)
    known = [offsets.of(group, "T", 0, committed=0, end=9) for group in "BCD"]
    assert known == [5, 5, 5]
