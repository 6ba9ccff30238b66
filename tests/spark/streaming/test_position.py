"""Where a stream goes next: limits, new queues, losses, targets; and a model: nothing is read twice or skipped."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rocketrio.spark.reading.offsets import Bounds
from rocketrio.spark.streaming.position import SHRUNK_GRACE, Seen, StreamPosition, View, shares
from rocketrio_protocol.message import MessageQueue

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
B0 = MessageQueue("orders", "broker-b", 0)


def _view(*gone: MessageQueue, certain: bool = True, **held: tuple[int, int]) -> View:
    names = {"a0": A0, "a1": A1, "b0": B0}
    return View(
        {names[name]: Seen(Bounds(*bounds), certain) for name, bounds in held.items()},
        frozenset(gone),
    )


def test_without_limits_a_step_reads_to_the_end() -> None:
    step = StreamPosition().step({A0: 3, A1: 5}, _view(a0=(0, 10), a1=(0, 5)), now=0)
    assert (step.end, step.rows, step.losses) == ({A0: 10, A1: 5}, 7, [])


def test_nothing_new_leaves_the_start_as_it_is() -> None:
    start = {A0: 10, A1: 5}
    step = StreamPosition().step(start, _view(a0=(0, 10), a1=(0, 5)), now=0)
    assert (step.end, step.rows) == (start, 0)


def test_a_limit_is_shared_in_proportion() -> None:
    view = _view(a0=(0, 900), a1=(0, 100))
    step = StreamPosition().step({A0: 0, A1: 0}, view, now=0, max_rows=100)
    assert step.end == {A0: 90, A1: 10}


def test_a_small_limit_starves_no_queue() -> None:
    view = _view(a0=(0, 1_000_000), a1=(0, 1), b0=(0, 0))
    step = StreamPosition().step({A0: 0, A1: 0, B0: 0}, view, now=0, max_rows=1)
    assert step.end == {A0: 1, A1: 1, B0: 0}


def test_what_small_queues_get_more_comes_from_the_largest() -> None:
    assert shares({A0: 1, A1: 1, B0: 4}, 3) == {A0: 1, A1: 1, B0: 1}
    assert shares({A0: 1, A1: 40, B0: 59}, 10) == {A0: 1, A1: 4, B0: 5}


@given(
    st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 10**12)), st.integers(1, 10**6)
)
def test_shares_stay_below_backlog_and_limit_and_omit_no_queue(
    backlog: dict[MessageQueue, int], limit: int
) -> None:
    taken = shares(backlog, limit)
    assert all(taken[queue] <= count for queue, count in backlog.items())
    assert all(taken[queue] >= 1 for queue, count in backlog.items() if count)
    assert sum(taken.values()) <= max(limit, len(backlog))
    if sum(backlog.values()) <= limit:
        assert taken == backlog


def test_a_new_queue_begins_at_its_oldest_message_with_nothing_to_read() -> None:
    position = StreamPosition()
    view = _view(a0=(0, 10), b0=(4, 20))
    first = position.step({A0: 10}, view, now=0)
    assert (first.end, first.rows) == ({A0: 10, B0: 4}, 0)
    assert position.step(first.end, view, now=1).end == {A0: 10, B0: 20}


def test_new_queue_that_only_a_slave_reports_waits_for_its_master() -> None:
    view = _view(certain=False, a0=(0, 10), b0=(4, 20))
    assert StreamPosition().step({A0: 10}, view, now=0).end == {A0: 10}


def test_silent_and_vanished_queues_stay_where_they_are() -> None:
    step = StreamPosition().step({A0: 7, A1: 5, B0: 3}, _view(A1, a0=(0, 10)), now=0)
    assert step.end == {A0: 10, A1: 5, B0: 3}
    (loss,) = step.losses
    assert (
        "[ROCKETMQ_OFFSET_OUT_OF_RANGE] orders@broker-a:1 is gone: it was read to before 5"
        in str(loss)
    )


def test_a_vanished_queue_is_reported_once() -> None:
    position = StreamPosition()
    assert position.step({A1: 5}, _view(A1), now=0).losses
    assert not position.step({A1: 5}, _view(A1), now=1).losses


def test_what_retention_took_is_lost_and_passed_over_also_if_nothing_follows() -> None:
    position = StreamPosition()
    step = position.step({A0: 3, A1: 3}, _view(a0=(50, 60), a1=(9, 9)), now=0, max_rows=4)
    assert step.end == {A0: 54, A1: 9}
    assert [str(loss.what) for loss in step.losses] == [
        "orders@broker-a:0: offsets 3 to 50 (47 messages) were to be read, but the queue holds 50 to 60",
        "orders@broker-a:1: offsets 3 to 9 (6 messages) were to be read, but the queue holds 9 to 9",
    ]


def test_a_slave_alone_proves_no_loss() -> None:
    view = _view(certain=False, a0=(50, 60), a1=(0, 2))
    step = StreamPosition().step({A0: 3, A1: 5}, view, now=0)
    assert (step.end, step.losses) == ({A0: 60, A1: 5}, [])


def test_a_shorter_queue_is_waited_for_then_lost_and_read_from_its_end() -> None:
    position, view = StreamPosition(), _view(a0=(0, 20))
    assert position.step({A0: 100}, view, now=0).end == {A0: 100}
    almost = position.step({A0: 100}, view, now=SHRUNK_GRACE - 0.1)
    assert (almost.end, almost.losses) == ({A0: 100}, [])
    step = position.step({A0: 100}, view, now=SHRUNK_GRACE)
    assert step.end == {A0: 20}
    assert "was truncated or recreated: it was read to before 100, and holds 0 to 20" in str(
        step.losses[0]
    )
    assert position.step(step.end, _view(a0=(0, 25)), now=SHRUNK_GRACE).end == {A0: 25}


def test_a_queue_that_grows_again_in_time_was_never_short() -> None:
    position = StreamPosition()
    position.step({A0: 100}, _view(a0=(0, 20)), now=0)
    position.step({A0: 100}, _view(a0=(0, 100)), now=5)
    assert not position.step({A0: 100}, _view(a0=(0, 20)), now=12).losses


def test_a_batch_waits_for_enough_rows_but_not_for_ever() -> None:
    position = StreamPosition(min_rows=10, max_delay=60)
    first = position.step({A0: 0}, _view(a0=(0, 2)), now=0)
    assert first.rows == 2, "after nothing there is nothing to wait for"
    assert position.step({A0: 2}, _view(a0=(0, 9)), now=59.9).end == {A0: 2}
    assert position.step({A0: 2}, _view(a0=(0, 12)), now=59.9).rows == 10
    assert position.step({A0: 12}, _view(a0=(0, 13)), now=119.8).rows == 0
    assert position.step({A0: 12}, _view(a0=(0, 13)), now=120).rows == 1


def test_whole_read_and_read_with_a_target_do_not_wait() -> None:
    position = StreamPosition(min_rows=10, max_delay=60)
    position.step({A0: 0}, _view(a0=(0, 2)), now=0)
    assert position.step({A0: 2}, _view(a0=(0, 3)), now=1, is_whole=True).rows == 1
    position.set_target(_view(a0=(0, 4)))
    assert position.step({A0: 3}, _view(a0=(0, 4)), now=2).rows == 1


# ------------------------------------------------------------------------------------------ AvailableNow


def test_a_target_is_reached_and_not_passed() -> None:
    position = StreamPosition()
    position.set_target(_view(a0=(0, 10), b0=(2, 5)))
    later = _view(a0=(0, 99), a1=(0, 50), b0=(2, 99))
    first = position.step({A0: 4}, later, now=0, max_rows=4)
    assert first.end == {A0: 8, B0: 2}
    second = position.step(first.end, later, now=1)
    assert second.end == {A0: 10, B0: 5}
    assert position.step(second.end, later, now=2).end == second.end


def test_a_target_is_read_to_also_while_a_broker_is_silent() -> None:
    position = StreamPosition()
    position.set_target(_view(a0=(0, 10), b0=(0, 5)))
    assert position.step({A0: 4, B0: 1}, _view(a0=(0, 10)), now=0).end == {A0: 10, B0: 5}


@pytest.mark.parametrize(
    "after", [_view(A0), _view(a0=(0, 6)), _view(a0=(0, 2)), _view(a0=(50, 60))]
)
def test_with_a_target_a_queue_that_shrinks_or_vanishes_is_done_and_reported(after: View) -> None:
    position = StreamPosition()
    position.set_target(_view(a0=(0, 10)))
    start, losses = {A0: 4}, 0
    for now in range(5):
        step = position.step(start, after, now=now)
        losses += len(step.losses)
        if step.end == start:
            break
        start = step.end
    else:
        pytest.fail("it does not end")
    assert losses


# --------------------------------------------------------------------------------------------- a model


class Stream(RuleBasedStateMachine):
    """Queues that grow, lose their oldest, fall silent, come new; a stream with a limit reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.position = StreamPosition()
        self.bounds: dict[MessageQueue, tuple[int, int]] = {}
        self.silent: set[str] = set()
        self.start: dict[MessageQueue, int] = {}
        self.begins: dict[MessageQueue, int] = {}
        self.lost = self.read = 0
        self.now = 0.0

    @initialize(count=st.integers(1, 3))
    def begin(self, count: int) -> None:
        for queue in (A0, A1, B0)[:count]:
            self.bounds[queue] = (0, 0)
            self.start[queue] = self.begins[queue] = 0

    @rule(queue=st.sampled_from([A0, A1, B0]), count=st.integers(1, 50))
    def append(self, queue: MessageQueue, count: int) -> None:
        least, most = self.bounds.get(queue, (0, 0))
        self.bounds[queue] = (least, most + count)

    @rule(queue=st.sampled_from([A0, A1, B0]), part=st.floats(0, 1))
    def retention(self, queue: MessageQueue, part: float) -> None:
        if queue in self.bounds:
            least, most = self.bounds[queue]
            self.bounds[queue] = (least + math.floor((most - least) * part), most)

    @rule(name=st.sampled_from(["broker-a", "broker-b"]))
    def toggle(self, name: str) -> None:
        self.silent ^= {name}

    @rule(limit=st.none() | st.integers(1, 30))
    def batch(self, limit: int | None) -> None:
        view = View(
            {
                queue: Seen(Bounds(*bounds))
                for queue, bounds in self.bounds.items()
                if queue.broker_name not in self.silent
            }
        )
        self.now += 1
        step = self.position.step(self.start, view, now=self.now, max_rows=limit)
        assert set(step.end) >= set(self.start)
        moved = 0
        for queue, end in step.end.items():
            if queue not in self.start:
                self.begins[queue] = end
                assert end == self.bounds[queue][0]
                continue
            at = self.start[queue]
            gone = max(0, self.bounds[queue][0] - at) if queue in view.held else 0
            assert at <= end <= self.bounds[queue][1]
            assert queue in view.held or end == at
            self.lost += gone
            moved += end - at - gone
        assert moved == step.rows
        assert limit is None or moved <= max(limit, len(self.start))
        self.read += moved
        self.start = step.end

    @precondition(lambda self: not self.silent)
    @rule()
    def settle(self) -> None:
        """Without limits two steps read everything: one for what is new, one for its messages."""
        self.batch(None)
        self.batch(None)
        assert self.start == {queue: most for queue, (_, most) in self.bounds.items()}

    @invariant()
    def every_offset_is_read_or_lost_or_to_come(self) -> None:
        assert self.read + self.lost == sum(
            at - self.begins[queue] for queue, at in self.start.items()
        )


TestStream = Stream.TestCase
