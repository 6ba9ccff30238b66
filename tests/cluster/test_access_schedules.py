"""Seeded schedules of users that lose their rights and change their keys among faults."""

from pathlib import Path

import pytest
from tests.cluster.access_schedule import play
from tests.support.further import first_of


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_of(1, range(12)))
async def test_changes_of_users_hold_among_faults(seed: int, tmp_path: Path) -> None:
    assert await play(seed, tmp_path)


@pytest.mark.slow
async def test_seed_gives_the_same_run_each_time(tmp_path: Path) -> None:
    first, second = [await play(5, tmp_path, steps=4) for _ in range(2)]
    assert first == second
