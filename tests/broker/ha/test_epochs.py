"""Where two logs part by their epochs, and what of an end may have been promised."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_broker.ha.epochs import common_boundary, why_kept
from rocketrio_broker.store.acknowledged import Acknowledgement
from rocketrio_protocol.ha.exchange import Epoch

ME, SLAVE, OTHER = "me", "slave", "other"


def line(number: int, start: int, *, name: str = "a", **more: Any) -> Epoch:
    values: dict[str, Any] = {"member": ME, "mode": "sync", **more}
    return Epoch(number=number, id=f"{number}{name}", start=start, **values)


def opened(number: int, *members: str, whole_above: int = 0) -> list[Epoch]:
    """The master's line beyond the boundary, whose opener had all of these."""
    return [line(number, 100, name="z", member=SLAVE, covers=dict.fromkeys(members, whole_above))]


# --- the boundary ------------------------------------------------------------------------------


def test_logs_part_where_the_last_common_epoch_ends_first() -> None:
    own = [line(1, 0), line(2, 50), line(3, 80)]
    theirs = [line(1, 0), line(2, 50), line(4, 70, name="b")]
    found = common_boundary(own, 90, theirs, 200)
    assert found is not None
    assert (found.address, found.own_count, found.their_count) == (70, 2, 2)


def test_equal_numbers_are_two_histories() -> None:
    found = common_boundary([line(1, 0), line(2, 50)], 90, [line(1, 0), line(2, 50, name="b")], 90)
    assert found is not None
    assert found.address == 50


def test_lines_that_one_side_has_deleted_do_not_count() -> None:
    found = common_boundary([line(3, 80)], 90, [line(1, 0), line(2, 50), line(3, 80)], 120)
    assert found is not None
    assert (found.address, found.own_count, found.their_count) == (90, 1, 3)


@pytest.mark.parametrize("theirs", [[], [line(1, 0, name="b")]])
def test_without_a_common_epoch_nothing_is_known(theirs: list[Epoch]) -> None:
    assert common_boundary([line(1, 0)], 90, theirs, 90) is None


@attrs.frozen
class Log:
    """A log as its bytes say it: for each address which epoch wrote it."""

    epochs: tuple[Epoch, ...]
    end: int

    def writer(self, address: int) -> str:
        return [each.id for each in self.epochs if each.start <= address][-1]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Log, Log]:
    """Two logs with a history in common, each with epochs of its own behind it."""
    steps = st.lists(st.integers(0, 6), max_size=4)
    shared: list[Epoch] = []
    end = 0
    for number, size in enumerate([0, *draw(steps)]):
        end += size
        shared.append(line(number, end))
    end += draw(st.integers(0, 6))
    common_end = end
    logs = []
    for name in ("x", "y"):
        epochs, end = (
            list(shared),
            common_end - draw(st.integers(0, 3)) if name == "x" else common_end,
        )
        end = max(end, 0)
        for number, size in enumerate(draw(steps), start=len(shared)):
            epochs = [each for each in epochs if each.start < end or each.start == 0]
            epochs.append(line(number, end, name=name))
            end += size
        logs.append(Log(tuple(epochs), end))
    one, other = logs
    forgotten = draw(st.integers(0, len(other.epochs) - 1))
    return one, attrs.evolve(other, epochs=other.epochs[forgotten:])


@given(histories())
def test_everything_before_the_boundary_is_the_same_and_nothing_behind_it(
    logs: tuple[Log, Log],
) -> None:
    one, other = logs
    found = common_boundary(one.epochs, one.end, other.epochs, other.end)
    mirrored = common_boundary(other.epochs, other.end, one.epochs, one.end)
    if found is None:
        assert mirrored is None
        return
    assert mirrored is not None
    assert found.address == mirrored.address <= min(one.end, other.end)
    known = max(one.epochs[0].start, other.epochs[0].start)
    for address in range(known, min(one.end, other.end)):
        same = one.writer(address) == other.writer(address)
        assert same == (address < found.address)


# --- what is promised --------------------------------------------------------------------------


def why(
    own: Epoch, theirs: list[Epoch], acknowledged: dict[str, int] | None = None, shown: int = 0
) -> str | None:
    """Why an end from 100 to 150 is kept; slaves have acknowledged what is before it, if nothing else is said."""
    known = dict.fromkeys(own.joined, 100) if acknowledged is None else acknowledged
    slaves = {name: Acknowledgement(address, f"{name}:1") for name, address in known.items()}
    return why_kept([own], ME, 100, 150, theirs, slaves, shown)


def test_tail_without_a_joined_slave_was_never_acknowledged() -> None:
    assert why(line(2, 0, joined={SLAVE: 1}), opened(3, SLAVE)) is None
    assert why(line(2, 0), opened(3, SLAVE)) is None


def test_slave_that_was_not_asked_may_have_had_it() -> None:
    assert "other" in (why(line(2, 0, joined={SLAVE: 1, OTHER: 1}), opened(3, SLAVE)) or "")


def test_one_slave_alone_is_not_enough_where_two_have_to_have_it() -> None:
    own = line(2, 0, joined={SLAVE: 1, OTHER: 1}, in_sync_slaves=2)
    assert why(own, opened(3, SLAVE)) is None
    assert why(own, opened(3)) is not None


def test_slave_that_lost_its_end_since_may_have_had_it() -> None:
    own = line(2, 0, joined={SLAVE: 1})
    assert why(own, opened(3, SLAVE, whole_above=1)) is None
    assert why(own, opened(3, SLAVE, whole_above=2)) is not None


def test_slave_that_came_back_after_it_was_asked_may_have_had_it() -> None:
    assert why(line(2, 0, joined={SLAVE: 3}), opened(3, SLAVE)) is not None


def test_slave_without_a_name_may_have_had_it() -> None:
    own = line(2, 0, joined={SLAVE: 1, "": 0}, in_sync_slaves=2)
    assert "does not identify itself" in (why(own, opened(3, SLAVE)) or "")


@pytest.mark.parametrize(
    ("own", "text"),
    [
        (line(2, 0, mode="async"), "before any slave"),
        (line(2, 0, member=OTHER), "another member"),
        (line(2, 0, answered_early=True), "not to wait"),
        (line(2, 120), "older than"),
    ],
)
def test_epoch_of_a_broker_that_may_have_promised_more_has_a_reason(own: Epoch, text: str) -> None:
    assert text in (why(own, opened(3, SLAVE)) or "")


def test_every_epoch_beyond_the_boundary_is_judged_and_none_before() -> None:
    own = [line(1, 0, mode="async"), line(2, 100), line(3, 120, mode="async")]
    assert why_kept(own[:2], ME, 100, 150, opened(4, SLAVE), {}) is None
    assert why_kept(own, ME, 100, 150, opened(4, SLAVE), {}) is not None


def test_slave_that_acknowledged_more_than_it_says_now_had_it() -> None:
    own = line(2, 0, joined={SLAVE: 1})
    told = why(own, opened(3, SLAVE), {SLAVE: 101}) or ""
    assert "slave slave:1 had acknowledged this log up to 101, and began epoch 3" in told
    assert "its directory is an older copy" in told


def test_another_opener_than_the_slave_that_had_it_is_not_called_a_copy() -> None:
    own = line(2, 0, joined={OTHER: 1})
    told = why(own, opened(3, OTHER), {OTHER: 101}) or ""
    assert "had acknowledged" in told
    assert "older copy" not in told


def test_end_that_too_few_slaves_acknowledged_was_never_acknowledged() -> None:
    own = line(2, 0, joined={SLAVE: 1, OTHER: 1}, in_sync_slaves=2)
    assert why(own, opened(3, SLAVE, OTHER), {SLAVE: 101, OTHER: 100}) is None
    assert why(own, opened(3, SLAVE, OTHER), {SLAVE: 101, OTHER: 150}) is not None


def test_slave_of_which_nothing_is_noted_may_have_had_it() -> None:
    assert why(line(2, 0, joined={SLAVE: 1}), opened(3, SLAVE), {}) is not None


def test_end_that_readers_were_shown_is_kept() -> None:
    own = line(2, 0, joined={SLAVE: 1})
    assert why(own, opened(3, SLAVE), shown=100) is None
    assert "shown this log up to 101" in (why(own, opened(3, SLAVE), shown=101) or "")
