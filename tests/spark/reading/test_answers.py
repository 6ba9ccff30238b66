"""What each kind of answer means, on a master and on a slave that may be behind."""

from typing import Any

import pytest

from rocketrio.consuming.pull_result import PullResult, PullStatus
from rocketrio.spark.reading.answers import Again, AskMaster, Lost, Take, Verdict, judge

FOUND, NO_NEW = PullStatus.FOUND, PullStatus.NO_NEW_MSG
NO_MATCHED, ILLEGAL = PullStatus.NO_MATCHED_MSG, PullStatus.OFFSET_ILLEGAL


def _judged(
    status: PullStatus,
    next_offset: int,
    least: int,
    most: int,
    *,
    broker_id: int = 0,
    **kwargs: Any,
) -> Verdict:
    result = PullResult(status, next_offset, least, most, 0, b"", "h:1", broker_id)
    return judge(result, offset=100, end=200, **({"master_known": True} | kwargs))


@pytest.mark.parametrize(
    ("status", "next_offset", "least", "most", "verdict"),
    [
        (FOUND, 132, 0, 500, Take(132)),
        (FOUND, 100, 0, 500, Again()),
        (NO_NEW, 100, 0, 100, Again()),
        (NO_NEW, 100, 100, 100, Again()),
        (NO_MATCHED, 120, 0, 500, Take(120)),
        (NO_MATCHED, 900, 0, 900, Take(200)),
        (NO_MATCHED, 100, 0, 500, Again()),
        (NO_MATCHED, 150, 140, 500, Lost(140)),
        (ILLEGAL, 140, 140, 500, Lost(140)),
        (ILLEGAL, 300, 300, 500, Lost(200)),
        (ILLEGAL, 90, 0, 90, Lost(200)),
        (ILLEGAL, 0, 0, 0, Lost(200)),
        (ILLEGAL, 100, 0, 500, Again()),
    ],
)
def test_answers_of_a_master(
    status: PullStatus, next_offset: int, least: int, most: int, verdict: Verdict
) -> None:
    assert _judged(status, next_offset, least, most) == verdict


@pytest.mark.parametrize("status", [NO_NEW, NO_MATCHED, ILLEGAL])
def test_what_a_slave_lacks_is_asked_of_the_master(status: PullStatus) -> None:
    assert _judged(status, 100, 0, 50, broker_id=1) == AskMaster()
    alone = _judged(status, 100, 0, 50, broker_id=1, master_known=False)
    assert alone == Again(is_lost_at_last=False)


def test_what_a_slave_has_is_taken() -> None:
    assert _judged(FOUND, 108, 0, 108, broker_id=1) == Take(108)


@pytest.mark.parametrize(
    ("broker_id", "next_offset", "least", "verdict"),
    [
        (0, 150, 0, Take(150)),
        (0, 900, 0, Take(200)),
        (1, 150, 0, Take(150)),  # without a filter: AskMaster
        (1, 150, 140, AskMaster()),
        (0, 150, 140, Lost(140)),
    ],
)
def test_what_a_filter_leaves_out_is_no_loss_and_a_slave_can_tell(
    broker_id: int, next_offset: int, least: int, verdict: Verdict
) -> None:
    found = _judged(NO_MATCHED, next_offset, least, 500, broker_id=broker_id, is_filtered=True)
    assert found == verdict
