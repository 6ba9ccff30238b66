"""The batch-0 rule: which polls stand still, and what a replayed batch 0 holds."""

import pytest

from rocketrio.spark.reading.offsets import AtTimestamp, ExplicitOffsets, GroupOffsets, Position
from rocketrio.spark.streaming.start import StreamStart
from rocketrio_protocol.message import MessageQueue

QUEUE, OTHER = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
UNCERTAIN: list[Position] = [
    "earliest",
    "latest",
    GroupOffsets(),
    AtTimestamp(1),
    ExplicitOffsets({QUEUE: 7, OTHER: -1}),
    ExplicitOffsets({QUEUE: 7, OTHER: -2}),
]


@pytest.mark.parametrize("starting", UNCERTAIN)
def test_the_first_poll_after_the_start_stands_still_once(starting: Position) -> None:
    start = StreamStart(starting)
    start.asked()
    start.asked()  # Spark asks twice
    assert start.stands_still(is_only_batch=False)
    assert not start.stands_still(is_only_batch=False)
    start.asked()  # a looser test would stand still again
    assert not start.stands_still(is_only_batch=False)


@pytest.mark.parametrize("starting", UNCERTAIN)
def test_a_restart_does_not_stand_still(starting: Position) -> None:
    assert not StreamStart(starting).stands_still(is_only_batch=False)


def test_a_start_that_the_options_tell_needs_no_empty_batch() -> None:
    start = StreamStart(ExplicitOffsets({QUEUE: 7, OTHER: 0}))
    start.asked()
    assert not start.stands_still(is_only_batch=False)


@pytest.mark.parametrize("starting", UNCERTAIN)
def test_a_replayed_batch_0_is_known_and_does_not_stand_still_after_it(starting: Position) -> None:
    start = StreamStart(starting)
    start.asked()
    assert start.replays_first_batch()
    assert not start.replays_first_batch()
    assert not start.stands_still(is_only_batch=False)


@pytest.mark.parametrize("starting", UNCERTAIN)
def test_a_batch_planned_before_the_start_is_asked_for_is_no_replay(starting: Position) -> None:
    start = StreamStart(starting)
    assert not start.replays_first_batch(), "PySpark 4.0: from the logged end to itself"
    start.asked()
    assert start.replays_first_batch()


def test_batches_after_a_poll_are_no_replay() -> None:
    start = StreamStart("latest")
    start.asked()
    start.stands_still(is_only_batch=False)
    assert not start.replays_first_batch()


@pytest.mark.parametrize(
    ("starting", "at_once"),
    [
        ("earliest", True),
        (ExplicitOffsets({QUEUE: 7, OTHER: -2}), True),
        (ExplicitOffsets({QUEUE: 7, OTHER: -1}), False),
        ("latest", False),
        (GroupOffsets(), False),
    ],
)
def test_an_only_batch_reads_at_once_from_a_start_that_is_found_again(
    starting: Position, at_once: bool
) -> None:
    start = StreamStart(starting)
    start.asked()
    assert start.stands_still(is_only_batch=True) is not at_once
    assert start.first_batch_is_empty is not at_once
