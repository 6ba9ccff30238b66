"""What a reset would do: targets, ways, and messages that come again or never."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio import MessageQueue
from rocketrio.admin.offsets import QueueOffsets
from rocketrio.admin.reset_plan import QueueNow, QueueReset, Target, Way, planned, target_of
from rocketrio_protocol.errors import ConfigError

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)
NOW = 1_700_000_000_000
PLACE = QueueNow(QUEUE, first=10, end=100, committed=40, at_time=60)


def goal(target: Target, place: QueueNow = PLACE) -> int:
    [queue] = planned("g", 0, target, [place]).queues
    return queue.to_offset


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("first", 10), ("earliest", 10), ("last", 100), ("latest", 100), ("55", 55), ("+5", 15), ("-5", 95),
        ("+500", 100), ("-500", 10), ("@2023-11-14T22:13:20Z", 60), ("@-1h30m", 60), (f"@{NOW}", 60),
    ],
)  # fmt: skip
def test_text_names_a_place_within_the_queue(text: str, offset: int) -> None:
    assert goal(target_of(text, NOW)) == offset


def test_time_back_is_counted_from_now() -> None:
    assert target_of("@-1d2h3m4s", NOW).time_ms == NOW - 93_784_000
    assert target_of("@-1s", 5).time_ms == 0
    assert target_of("@2023-11-14T22:13:20Z", 0).time_ms == NOW


@pytest.mark.parametrize(
    "text", ["", "soon", "@", "@soon", "@-", "@-5", "1.5", "+", "@2023-99-01", "٣h"]
)
def test_text_that_names_no_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        target_of(text, NOW)


def test_shift_stays_within_the_queue() -> None:
    assert [goal(Target(shift=shift)) for shift in (-5, 5, -50, 500)] == [35, 45, 10, 100]
    with pytest.raises(ConfigError, match="nothing is committed"):
        goal(Target(shift=1), QueueNow(QUEUE, 0, 9, None))


@pytest.mark.parametrize("offset", [9, 101])
def test_offset_outside_the_queue_is_refused(offset: int) -> None:
    with pytest.raises(ConfigError, match="not within 10 and 100"):
        goal(Target(offset=offset))


def test_queues_without_an_offset_of_their_own_stay() -> None:
    places = [PLACE, QueueNow(OTHER, 0, 9, 5)]
    plan = planned("g", 0, Target(offsets={OTHER: 7}), places)
    assert [(one.queue, one.to_offset) for one in plan.queues] == [(OTHER, 7)]
    with pytest.raises(ConfigError, match="none of the group's queues"):
        planned("g", 0, Target(offsets={}), places)


@pytest.mark.parametrize(
    ("committed", "stored", "end", "lag", "ahead"),
    [
        (40, None, 50, 10, 0),
        (50, None, 50, 0, 0),
        (70, None, 50, None, 20),
        (70, 80, 70, 0, 0),
        (70, 60, 50, None, 10),
        (40, 80, 50, 10, 0),
        (None, 80, 50, None, 0),
    ],
)
def test_group_may_stand_beyond_what_readers_see_but_not_beyond_the_log(
    committed: int | None, stored: int | None, end: int, lag: int | None, ahead: int
) -> None:
    found = QueueOffsets(QUEUE, 0, 50, committed, stored)
    assert (found.reachable_end, found.lag, found.ahead) == (end, lag, ahead)


@pytest.mark.parametrize(("text", "to", "again"), [("last", 50, 0), ("first", 0, 50)])
def test_group_beyond_the_end_is_put_back_to_it_and_reads_again_what_is_there(
    text: str, to: int, again: int
) -> None:
    [one] = planned("g", 0, target_of(text, NOW), [QueueNow(QUEUE, 0, 50, 1000)]).queues
    assert (one.to_offset, one.messages_again, one.messages_skipped) == (to, again, 0)


@pytest.mark.parametrize(
    ("members", "text", "offline", "way", "time_ms"),
    [
        (0, "55", False, Way.OFFLINE, None),
        (0, "@-1h", False, Way.OFFLINE, None),
        (2, "first", False, Way.ONLINE, 0),
        (2, "last", False, Way.ONLINE, -1),
        (2, "@-1h", False, Way.ONLINE, NOW - 3_600_000),
        (2, "first", True, Way.OFFLINE, None),
        (2, "55", True, Way.OFFLINE, None),
    ],
)
def test_way_depends_on_members_and_place(
    members: int, text: str, offline: bool, way: Way, time_ms: int | None
) -> None:
    plan = planned("g", members, target_of(text, NOW), [PLACE], offline=offline)
    assert (plan.way, plan.time_ms) == (way, time_ms)


@pytest.mark.parametrize("text", ["55", "+5", "-5"])
def test_place_that_members_would_undo_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="direct members to a time only"):
        planned("g", 2, target_of(text, NOW), [PLACE])


@pytest.mark.parametrize(
    ("start", "goal", "after", "arrived"),
    [
        (40, 10, 10, True), (40, 10, 30, True), (40, 10, 40, False), (40, 10, 50, False), (40, 10, 9, False),
        (40, 90, 90, True), (40, 90, 95, True), (40, 90, 60, False), (None, 5, 5, True), (40, 10, None, False),
    ],
)  # fmt: skip
def test_group_has_arrived_at_its_target_or_beyond_it(
    start: int | None, goal: int, after: int | None, arrived: bool
) -> None:
    assert QueueReset(QUEUE, start, goal, Way.ONLINE, after).has_arrived is arrived


numbers = st.integers(0, 100)
targets = st.one_of(
    st.builds(Target, from_first=numbers),
    st.builds(Target, from_last=numbers),
    st.builds(Target, shift=st.integers(-100, 100)),
    st.builds(Target, time_ms=st.just(0) | st.integers(10**11)),
)


@given(targets, numbers, numbers, numbers, numbers)
def test_target_is_within_the_queue_and_messages_come_again_or_are_skipped(
    target: Target, first: int, length: int, ahead: int, at_time: int
) -> None:
    committed = first + ahead
    place = QueueNow(QUEUE, first, first + length, committed, at_time)
    [one] = planned("g", 0, target, [place]).queues
    assert first <= one.to_offset <= first + length
    assert one.messages_again is not None
    assert one.messages_skipped is not None
    assert one.messages_again * one.messages_skipped == 0
    there = min(committed, first + length)
    assert there - one.messages_again + one.messages_skipped == one.to_offset
