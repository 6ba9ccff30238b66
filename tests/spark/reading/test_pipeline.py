"""Pipelines against brokers that cap, shorten and skip: every offset once, in order, never beyond the range."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio.spark.reading.offsets import QueueRange
from rocketrio.spark.reading.pipeline import FULL_SLOTS_TO_GROW, Pipeline, Slot


def _part(start: int, end: int) -> QueueRange:
    return QueueRange("t", "b", 0, start, end)


def _body(start: int, end: int) -> bytes:
    """Offsets as two bytes each, in place of records."""
    return b"".join(offset.to_bytes(2) for offset in range(start, end))


def _drive(pipeline: Pipeline, caps: list[int], rng: random.Random, depth: int) -> list[int]:
    """Send what may be sent, answer in any order with at most the next cap; the offsets handed on."""
    out: list[tuple[Slot, int]] = []
    seen: list[int] = []
    turn = 0
    while not pipeline.is_done:
        while (slot := pipeline.next_pull()) is not None:
            assert pipeline.part.start <= slot.at < slot.end <= pipeline.part.end
            out.append((slot, slot.at))
        assert 0 < len(out) <= depth
        slot, at = out.pop(rng.randrange(len(out)))
        cap = caps[turn % len(caps)]
        turn += 1
        if cap == 0:  # nothing but progress: filtered, or lost
            pipeline.answered(slot, at + 1)
        else:
            reached = min(at + cap, slot.end)
            pipeline.answered(slot, reached, _body(at, reached))
        for rows, body in pipeline.take_ready():
            assert rows * 2 == len(body)
            seen += [int.from_bytes(body[i : i + 2]) for i in range(0, len(body), 2)]
    assert not out
    return seen


@given(
    st.integers(0, 300), st.integers(0, 500), st.integers(1, 9), st.integers(1, 64),
    st.lists(st.integers(1, 70), min_size=1, max_size=20), st.randoms(),
)  # fmt: skip
def test_every_offset_comes_once_and_in_order(
    start: int, size: int, depth: int, batch_size: int, caps: list[int], rng: random.Random
) -> None:
    pipeline = Pipeline(_part(start, start + size), depth=depth, batch_size=batch_size)
    assert _drive(pipeline, caps, rng, depth) == list(range(start, start + size))


@given(st.integers(1, 9), st.lists(st.integers(0, 9), min_size=1, max_size=20), st.randoms())
def test_pipeline_skips_gaps(depth: int, caps: list[int], rng: random.Random) -> None:
    pipeline = Pipeline(_part(0, 200), depth=depth, batch_size=16)
    seen = _drive(pipeline, caps, rng, depth)
    assert seen == sorted(set(seen))
    assert 0 not in caps or len(seen) < 200


def test_one_pull_until_the_size_of_answers_is_known() -> None:
    pipeline = Pipeline(_part(0, 1000), depth=4, batch_size=100)
    first = pipeline.next_pull()
    assert first is not None
    assert (first.at, first.end) == (0, 100)
    assert pipeline.next_pull() is None
    pipeline.answered(first, 8, _body(0, 8))
    list(pipeline.take_ready())
    following = [pipeline.next_pull() for _ in range(5)]
    assert [(slot.at, slot.end) for slot in following if slot] == [
        (8, 16),
        (16, 24),
        (24, 32),
        (32, 40),
    ]


def test_a_short_answer_puts_the_rest_out_again_before_anything_new() -> None:
    pipeline = Pipeline(_part(0, 1000), depth=3, batch_size=10)
    first = pipeline.next_pull()
    assert first is not None
    pipeline.answered(first, 10, _body(0, 10))
    second, third = pipeline.next_pull(), pipeline.next_pull()
    assert second is not None
    assert third is not None
    pipeline.answered(second, 14, _body(10, 14))
    again = pipeline.next_pull()
    assert again is second
    assert (again.at, again.end) == (14, 20)


def test_full_answers_make_slots_grow() -> None:
    pipeline = Pipeline(_part(0, 10_000), depth=1, batch_size=64)
    sizes: list[int] = []
    while len(sizes) < 3 * FULL_SLOTS_TO_GROW + 3:
        slot = pipeline.next_pull()
        assert slot is not None
        sizes.append(slot.end - slot.at)
        pipeline.answered(slot, min(slot.end, slot.at + (16 if len(sizes) == 1 else 64)), b"xx")
        list(pipeline.take_ready())
    assert sizes[0] == 64
    assert sizes[1] == 16
    assert sizes[-1] == 64


def test_answers_beyond_the_slot_do_not_move_it_further() -> None:
    pipeline = Pipeline(_part(0, 50), depth=2, batch_size=10)
    slot = pipeline.next_pull()
    assert slot is not None
    pipeline.answered(slot, 2**40, b"10 rows")
    assert list(pipeline.take_ready()) == [(10, b"10 rows")]
    following = pipeline.next_pull()
    assert following is not None
    assert following.at == 10


@pytest.mark.parametrize("end", [5, 4])
def test_an_empty_range_is_done(end: int) -> None:
    assert Pipeline(_part(5, end), depth=2, batch_size=10).is_done


@given(st.integers(1, 9), st.lists(st.integers(0, 90), min_size=1, max_size=20), st.randoms())
def test_behind_a_filter_one_pull_follows_the_other(
    depth: int, caps: list[int], rng: random.Random
) -> None:
    pipeline = Pipeline(_part(5, 200), depth=depth, batch_size=16, is_filtered=True)
    seen = _drive(pipeline, caps, rng, 1)  # never more than one is out
    assert seen == sorted(set(seen))
    if 0 not in caps:
        assert seen == list(range(5, 200))


def test_behind_a_filter_answers_wait_in_limited_number() -> None:
    pipeline = Pipeline(_part(0, 1000), depth=3, batch_size=16, is_filtered=True)
    for at in (0, 100, 200):
        slot = pipeline.next_pull()
        assert slot is not None
        assert (slot.at, slot.end) == (at, 1000)
        pipeline.answered(slot, at + 100, b"two", rows=2)
    assert pipeline.next_pull() is None
    assert list(pipeline.take_ready()) == [(2, b"two")] * 3
    assert pipeline.next_pull() is not None
