"""What makes one committed offset newer than another."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketrio_broker.offsets.version import (
    GENERATION_LIMIT,
    LEAD_LIMIT,
    NO_OFFSET,
    Commit,
    Generation,
    Version,
    join_commit,
)
from rocketrio_protocol.commands.offset import CommitOutcome
from rocketrio_protocol.errors import RemoteProtocolError

STORED, RESET, UNCLAIMED = CommitOutcome.STORED, CommitOutcome.RESET, CommitOutcome.UNCLAIMED

generations = st.builds(Generation, st.integers(0, 2), st.integers(0, 2))
versions = st.builds(Version, st.integers(-1, 5), generations, st.integers(-1, 5))
commits = st.builds(
    Commit,
    st.integers(0, 5),
    st.none() | generations,
    st.none() | st.booleans(),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=50)
@given(versions, versions, versions)
def test_joining_in_any_order_gives_the_same(one: Version, two: Version, three: Version) -> None:
    assert one.join(two) == two.join(one)
    assert one.join(two).join(three) == one.join(two.join(three))
    assert one.join(one) == one
    assert one.join(two).join(two) == one.join(two)


@settings(max_examples=50)
@given(versions, versions)
def test_a_join_never_lowers_inside_a_generation_and_never_goes_back_to_one(
    one: Version, two: Version
) -> None:
    joined = one.join(two)
    for part in (one, two):
        assert joined.generation >= part.generation
        if joined.generation == part.generation:
            assert joined.offset >= part.offset
        else:
            assert joined.lowered_from >= part.offset
    assert joined.is_newer_than(one) == ((joined.generation, joined.offset) != one_of(one))


def one_of(version: Version) -> tuple[Generation, int]:
    return version.generation, version.offset


@settings(max_examples=50)
@given(versions, commits)
def test_every_commit_is_a_join(current: Version, commit: Commit) -> None:
    after, outcome = join_commit(current, commit)
    assert after.join(current) == after
    if outcome is not STORED:
        assert after == current


@settings(max_examples=50)
@given(versions, commits)
def test_member_that_does_not_own_the_queue_never_lowers_an_offset(
    current: Version, commit: Commit
) -> None:
    after, _ = join_commit(current, commit)
    is_plain = commit.generation is None
    may_lower = commit.is_reset or is_plain or commit.is_owner is not False
    if not may_lower:
        assert after.offset >= current.offset


@settings(max_examples=50)
@given(versions, st.integers(0, 5), generations)
def test_an_owner_lowers_only_by_a_seek(current: Version, offset: int, told: Generation) -> None:
    after, _ = join_commit(current, Commit(offset, told, is_owner=True))
    if told <= current.generation:
        assert after.offset >= current.offset


@settings(max_examples=50)
@given(versions, st.lists(commits, max_size=6))
def test_a_reset_is_newer_than_all_that_clients_do_elsewhere(
    start: Version, elsewhere: list[Commit]
) -> None:
    """Commits to one broker, a reset at another that has not heard of them: the reset stands when they meet."""
    reset, outcome = join_commit(start, Commit(start.offset - 1, is_reset=True))
    other = start
    for commit in elsewhere:
        told = commit.generation
        if not commit.is_reset and (told is None or told.resets <= start.generation.resets):
            other, _ = join_commit(other, commit)
    assert outcome is STORED
    joined = reset.join(other)
    assert (joined.generation, joined.offset) == (reset.generation, start.offset - 1)


NOW = Version(100, Generation(1, 2), 500)
SAME, OLDER, NEWER = Generation(1, 2), Generation(1, 1), Generation(1, 3)
BEFORE_RESET = Generation(0, 9)


@pytest.mark.parametrize(
    ("commit", "offset", "generation", "outcome"),
    [
        # Plain ones, as Apache's clients send: the last one wins.
        (Commit(120), 120, "1.2", STORED),
        (Commit(100), 100, "1.2", STORED),
        (Commit(80), 80, "1.3", STORED),
        # The owner's: they only raise.
        (Commit(120, SAME, True), 120, "1.2", STORED),
        (Commit(80, SAME, True), 100, "1.2", STORED),
        # A client without versions lowered it, which this broker does not know yet: it goes on all the same.
        (Commit(120, OLDER, True), 120, "1.2", STORED),
        # It knows of a lowering that this broker has not heard of.
        (Commit(80, NEWER, True), 80, "1.3", STORED),
        # It sought: also back, and a generation of its own also forwards.
        (Commit(80, SAME, True, is_seek=True), 80, "1.3", STORED),
        (Commit(120, SAME, True, is_seek=True), 120, "1.3", STORED),
        (Commit(80, NEWER, True, is_seek=True), 80, "1.4", STORED),
        (Commit(80, OLDER, True, is_seek=True), 80, "1.3", STORED),
        # One that may have lost the queue: it may raise, never lower.
        (Commit(120, SAME, False), 120, "1.2", STORED),
        (Commit(80, SAME, False), 100, "1.2", STORED),
        (Commit(120, SAME, False, is_seek=True), 100, "1.2", UNCLAIMED),
        (Commit(80, SAME, False, is_seek=True), 100, "1.2", UNCLAIMED),
        (Commit(120, OLDER, False), 100, "1.2", UNCLAIMED),
        (Commit(80, NEWER, False), 100, "1.2", UNCLAIMED),
        (Commit(120, NEWER, False), 120, "1.3", STORED),
        # No member overrules an operator before the reset has reached it.
        (Commit(120, BEFORE_RESET, True), 100, "1.2", RESET),
        (Commit(120, BEFORE_RESET, True, is_seek=True), 100, "1.2", RESET),
        (Commit(120, BEFORE_RESET, False), 100, "1.2", RESET),
        # Another broker tells what it has.
        (Commit(120, SAME), 120, "1.2", STORED),
        (Commit(80, SAME), 100, "1.2", STORED),
        (Commit(120, OLDER), 100, "1.2", STORED),
        (Commit(80, NEWER), 80, "1.3", STORED),
        # An operator.
        (Commit(80, is_reset=True), 80, "2.0", STORED),
        (Commit(120, is_reset=True), 120, "1.3", STORED),
    ],
)
def test_commit_gets_the_outcome_of_its_rule(
    commit: Commit, offset: int, generation: str, outcome: CommitOutcome
) -> None:
    after, said = join_commit(NOW, commit)
    assert (after.offset, str(after.generation), said) == (offset, generation, outcome)


def test_reset_without_a_former_offset_lowers_what_only_another_broker_may_know() -> None:
    """It wins over a member that goes on from there, unless the group cannot have read that far."""
    member = Commit(6, Generation(), is_owner=True)
    for may_stand_at, told in ((9, RESET), (inf, RESET), (2, STORED), (1, STORED)):
        after, _ = join_commit(
            Version(NO_OFFSET), Commit(2, is_reset=True, may_stand_at=may_stand_at)
        )
        assert join_commit(after, member)[1] is told


def test_a_first_commit_opens_no_generation() -> None:
    for commit in (Commit(0), Commit(5, Generation(), True), Commit(5, Generation(), False)):
        after, outcome = join_commit(Version(-1), commit)
        assert after == Version(commit.offset)
        assert outcome is STORED


@settings(max_examples=50)
@given(generations)
def test_a_generation_is_read_as_it_is_written(generation: Generation) -> None:
    assert Generation.parse(str(generation)) == generation


@pytest.mark.parametrize("text", ["", "1", "1.", "1.2.3", "-1.2", "a.b", "1.2 ", "9" * 5000])
def test_text_that_is_not_a_generation_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="generation"):
        Generation.parse(text)


LAST = Generation(GENERATION_LIMIT, GENERATION_LIMIT)


def test_lowering_and_reset_of_a_generation_at_the_limit_give_one_that_can_be_stored() -> None:
    for generation in (LAST, Generation(3, GENERATION_LIMIT), Generation(GENERATION_LIMIT, 3)):
        for following in (generation.lowered(), generation.reset()):
            assert Generation.parse(str(following)) == following
    assert Generation(3, GENERATION_LIMIT).lowered() == Generation(4, 0)
    assert Version(5, LAST).join(Version(3, LAST.lowered())) == Version(5, LAST)


@pytest.mark.parametrize("text", [f"{GENERATION_LIMIT + 1}.0", f"0.{GENERATION_LIMIT + 1}"])
def test_parse_of_a_generation_beyond_the_limit_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="beyond"):
        Generation.parse(text)


def test_generation_is_far_ahead_beyond_what_a_broker_can_have_missed() -> None:
    here = Generation(2, 7)
    for near in (here, Generation(0, 9), Generation(2 + LEAD_LIMIT, 0), Generation(3, LEAD_LIMIT)):
        assert not near.is_far_ahead_of(here)
    for far in (Generation(3 + LEAD_LIMIT, 0), Generation(2, 8 + LEAD_LIMIT)):
        assert far.is_far_ahead_of(here)
