"""What the verdict on a round of faults excuses, and no more."""

import pytest
from tests.faults.workload import Seen, StepBack, verdict

STORED = {b"1", b"2", b"3"}


def seen_by(handled: set[bytes], step: int) -> Seen:
    seen = Seen()
    seen.acknowledged |= STORED
    for each in seen.handled.values():
        each |= handled
    seen.went_back.append(StepBack(("g1", 0), 72, 72 - step, 72))
    return seen


@pytest.mark.parametrize(("step", "is_excused"), [(2, True), (3, False)])
def test_offset_may_go_back_by_the_messages_that_are_gone(step: int, is_excused: bool) -> None:
    seen = seen_by(STORED | {b"lost", b"lost too"}, step)
    assert is_excused == (not list(verdict(seen, STORED, may_lose=True, may_go_back=False)))
    assert list(verdict(seen, STORED, may_lose=False, may_go_back=False))


def test_offset_may_not_go_back_if_nothing_is_gone() -> None:
    seen = seen_by(STORED, 1)
    [problem] = verdict(seen, STORED, may_lose=True, may_go_back=False)
    assert problem == "committed offsets went back 1 times: [\"('g1', 0): 72 to 71 of 72\"]"
