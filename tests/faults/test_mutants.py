"""Brokers that lack a rule are found by one round of the campaign."""

from pathlib import Path

import pytest
from tests.faults.campaign import play
from tests.faults.mutants import mutant

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize(
    ("name", "story", "problem"),
    [
        ("half log", "return as master", "gone without a fault that explains it"),
        ("follows once", "kills", "does not follow"),
    ],
)
def test_broker_without_a_rule_is_found_where_no_answer_waits_for_a_slave(
    tmp_path: Path, name: str, story: str, problem: str
) -> None:
    played = play(tmp_path, "async", story, 1, None, command=mutant(name))
    assert [one for one in played.problems if problem in one], played.problems
