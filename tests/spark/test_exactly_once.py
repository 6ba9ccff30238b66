"""Exactly once over killed drivers and a master outage; the long form is `python -m tests.spark.exactly_once`."""

import random
from pathlib import Path

import pytest
from tests.spark.exactly_once import Outcome, play
from tests.spark.limits import needs_limits

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.spark]


@needs_limits
@pytest.mark.parametrize("lives", [1, pytest.param(3, marks=pytest.mark.long)])
def test_killed_drivers_write_each_message_once(tmp_path: Path, lives: int) -> None:
    outcome = play(tmp_path, lives=lives, rng=random.Random(1))
    assert outcome.problems() == []
    assert len(outcome.acknowledged) > 100
    assert outcome.batches > lives


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(0, 0, "a"), (0, 0, "a"), (0, 1, "b")], "1 messages were written twice"),
        ([(0, 0, "a")], "1 messages are missing: ['b']"),
        ([(0, 0, "a"), (0, 1, "b"), (0, 2, "x")], "1 messages were never sent: ['x']"),
        ([(0, 0, "a"), (0, 1, "b"), (0, 2, "b")], "stored twice"),
    ],
)
def test_the_judge_sees_each_fault(rows: list[tuple[int, int, str]], said: str) -> None:
    assert said in str(Outcome(rows, {"a", "b"}, {"c"}, 1).problems())
    assert not Outcome([(0, 0, "a"), (0, 1, "b"), (1, 0, "c")], {"a", "b"}, {"c"}, 1).problems()
