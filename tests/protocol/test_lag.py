"""Verdicts on lag: each rule by an example, and what holds for any samples."""

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.lag import (
    FRESH,
    ORDINARY,
    SAMPLE_EVERY,
    SAMPLES_NEEDED,
    Circumstances,
    Judgement,
    Owner,
    Sample,
    Verdict,
    duration,
    is_decided,
    judge_counters,
    judge_queue,
    together,
)

QUEUE = "queue 3 of broker-a"


def samples(*pairs: tuple[int | None, int | None]) -> list[Sample]:
    """Return samples every five seconds, from pairs of committed and end."""
    return [Sample(index * SAMPLE_EVERY, *pair) for index, pair in enumerate(pairs)]


def verdict(*pairs: tuple[int | None, int | None], known: Circumstances = ORDINARY) -> str:
    return judge_queue(QUEUE, samples(*pairs), known).verdict


# ------------------------------------------------------------------------------------------- rules


def test_lag_of_zero_at_the_last_sample_is_ok() -> None:
    assert verdict((5, 9), (7, 9), (9, 9)) == "ok"


def test_lag_of_zero_at_an_earlier_sample_is_ok() -> None:
    assert verdict((9, 9), (9, 20), (9, 30)) == "ok"


def test_lag_that_falls_is_ok_however_large() -> None:
    assert verdict((0, 10**6), (20, 10**6 + 9), (90, 10**6 + 20)) == "ok"
    assert verdict((0, 10**6), (0, 10**6), (1, 10**6)) == "ok"


def test_lag_that_fell_from_one_sample_to_the_next_and_does_not_fall_is_behind() -> None:
    assert verdict((0, 10**6), (10, 10**6 + 9), (10, 10**6 + 50)) == "behind"


def test_lag_of_what_comes_in_between_commits_is_ok() -> None:
    steady = [(10 * number, 10 * number + 20) for number in range(13)]
    assert verdict(*steady) == "ok"
    assert judge_queue(QUEUE, samples(*steady)).why == (
        "queue 3 of broker-a has 20 unread, and at times no more than come in within 10 s"
    )


def test_lag_of_less_than_a_minute_is_behind_only_if_it_grows() -> None:
    steady = [(10 * number, 10 * number + 100) for number in range(13)]
    assert verdict(*steady) == "ok"
    grows = [(5 * number, 10 * number + 100) for number in range(13)]
    assert verdict(*grows) == "behind"


def test_lag_of_more_than_a_minute_that_does_not_fall_is_behind() -> None:
    steady = [(10 * number, 10 * number + 121) for number in range(13)]
    assert verdict(*steady) == "behind"
    assert judge_queue(QUEUE, samples(*steady)).why == (
        "the lag of queue 3 of broker-a has not fallen in 60 s: 121 unread"
    )


def test_lag_that_falls_since_the_offset_moves_is_ok_although_it_grew_before() -> None:
    returned = [(0, 1000 + 10 * number) for number in range(10)]
    returned += [(100 * number, 1090 + 10 * number) for number in range(1, 4)]
    assert verdict(*returned) == "ok"


def test_offset_that_does_not_move_with_a_member_is_stalled_and_names_it() -> None:
    known = Circumstances(owner="app-7@10.0.0.9")
    found = judge_queue(QUEUE, samples(*[(1204, 1300)] * 4), known)
    assert found.verdict == "stalled"
    assert found.why == "queue 3 of broker-a stands at 1,204 for 15 s; owner app-7@10.0.0.9"


def test_offset_that_does_not_move_without_members_is_stopped() -> None:
    known = Circumstances(owner=Owner.NO_MEMBER)
    assert verdict((3, 9), (3, 9), (3, 9), known=known) == "stopped"


def test_lag_that_falls_because_messages_were_deleted_is_no_progress() -> None:
    assert verdict((3, 900), (3, 800), (3, 800)) == "stalled"


def test_offset_that_went_back_is_rewound_unless_an_operator_reset_it() -> None:
    pairs = ((9, 9), (9, 9), (2, 9))
    assert verdict(*pairs) == "rewound"
    assert verdict(*pairs, known=Circumstances(was_reset=True)) == "ok"


def test_offset_that_went_back_and_recovered_is_not_rewound() -> None:
    assert verdict((5, 9), (2, 9), (8, 9)) == "ok"


def test_oldest_message_near_the_first_of_the_log_is_losing_though_the_lag_falls() -> None:
    near = Circumstances(oldest_age=80 * 3600, log_age=100 * 3600)
    assert verdict((5, 9), (6, 9), (7, 9), known=near) == "losing"
    far = attrs.evolve(near, oldest_age=79 * 3600)
    assert verdict((5, 9), (6, 9), (7, 9), known=far) == "ok"


def test_log_that_never_deleted_anything_loses_nothing() -> None:
    known = Circumstances(oldest_age=80 * 3600, log_age=None)
    assert verdict((5, 9), (6, 9), (7, 9), known=known) == "ok"


def test_next_message_that_is_deleted_already_is_losing() -> None:
    assert verdict((5, 9), known=Circumstances(is_deleted=True)) == "losing"


def test_nothing_committed_is_unknown_and_never_zero() -> None:
    found = judge_queue(QUEUE, samples((None, 9), (None, 9), (None, 9)))
    assert (found.verdict, found.lag) == ("unknown", None)
    assert "nothing is committed" in found.why


def test_nothing_committed_in_an_empty_queue_is_ok() -> None:
    found = judge_queue(QUEUE, samples((None, 0)))
    assert (found.verdict, found.lag, found.eta) == ("ok", 0, 0)


def test_queue_whose_end_no_broker_reports_is_unknown() -> None:
    assert verdict((5, 9), (6, 9), (6, None)) == "unknown"


def test_sample_without_an_answer_is_left_out_of_the_window() -> None:
    assert verdict((3, 9), (None, None), (3, 9), (3, 9)) == "stalled"


def test_offset_beyond_the_end_is_ahead_and_its_lag_unknown() -> None:
    found = judge_queue(QUEUE, samples((1000, 19)))
    assert (found.verdict, found.lag) == ("ahead", None)
    assert found.why == (
        "queue 3 of broker-a is ahead of the end by 981: its topic was made again, or the log became shorter; "
        "reset the group there"
    )
    assert verdict((1000, 19), (1000, 20), (1000, 21)) == "ahead"
    assert verdict((5, 0)) == "ahead"  # The topic was made again, and nothing was sent yet.
    one = judge_counters(QUEUE, samples((20, 19))[0], in_per_second=1.0, out_per_second=1.0)
    assert (one.verdict, one.lag) == ("ahead", None)


def test_offset_that_was_ahead_before_is_judged_by_what_it_is_now() -> None:
    assert verdict((1000, 19), (19, 19)) == "ok"
    assert verdict((1000, 19), (3, 19), (3, 19), (3, 19)) == "stalled"


def test_what_members_keep_themselves_is_unknown_and_not_ahead() -> None:
    known = Circumstances(uncountable="its members keep their offsets themselves")
    assert verdict((1000, 19), known=known) == "unknown"


def test_one_queue_that_is_ahead_is_the_verdict_of_the_group() -> None:
    parts = [
        judge_queue(QUEUE, samples(*pairs)) for pairs in (((9, 9),), ((1000, 19),), ((None, 9),))
    ]
    assert (together(parts).verdict, together(parts).lag) == ("ahead", None)


def test_two_samples_do_not_show_that_an_offset_stopped() -> None:
    assert verdict((3, 9), (3, 9)) == "unknown"
    assert SAMPLES_NEEDED == 3


def test_offsets_that_count_nothing_are_unknown_although_they_seem_ok() -> None:
    found = judge_queue(QUEUE, samples((9, 9)), Circumstances(uncountable="members keep their own"))
    assert found == Judgement(Verdict.UNKNOWN, "members keep their own", None)


def test_window_is_decided_once_a_queue_is_ok_and_does_not_grow() -> None:
    assert is_decided(samples((9, 9)))
    assert is_decided(samples((None, 9)))
    assert not is_decided(samples((8, 9)))
    assert is_decided(samples((8, 9), (48, 49), (88, 89)))
    grows = samples((0, 6), (5, 26), (10, 46))
    assert judge_queue(QUEUE, grows).verdict == "ok"
    assert not is_decided(grows)


# ----------------------------------------------------------------------------------------- numbers


def test_eta_is_the_lag_over_what_is_gained() -> None:
    found = judge_queue(QUEUE, samples((0, 100), (30, 110), (60, 120)))
    assert (found.in_per_second, found.out_per_second) == (2, 6)
    assert (found.lag, found.eta) == (60, 15)


def test_eta_of_a_queue_that_gains_nothing_is_never() -> None:
    assert judge_queue(QUEUE, samples((0, 10), (1, 11), (2, 12))).eta == math.inf


def test_rates_of_one_sample_are_unknown() -> None:
    found = judge_queue(QUEUE, samples((0, 10)))
    assert (found.in_per_second, found.out_per_second, found.eta) == (None, None, None)


def test_offset_that_moved_first_stands_since_its_last_change() -> None:
    assert judge_queue(QUEUE, samples((1, 9), (3, 9), (3, 9), (3, 9))).stands_for == 10
    assert judge_queue(QUEUE, samples((1, 9), (2, 9), (3, 9))).stands_for is None


# ---------------------------------------------------------------------------------------- counters


NONE, SOME = Owner.NO_MEMBER, Owner.A_MEMBER


@pytest.mark.parametrize(
    ("into", "out", "owner", "age", "expected"),
    [
        (1, 0, NONE, 3, "stopped"),
        (0, 0, NONE, None, "stopped"),
        (1, 5, NONE, 3, "unknown"),  # Its members left within the minute.
        (0, 0, SOME, 60, "stalled"),
        (1, 0, SOME, 59, "unknown"),  # It may have come since the last commit.
        (0, 0, SOME, None, "unknown"),
        (5, 5, SOME, 9, "ok"),
        (9, 5, SOME, 3, "ok"),
        (5, 5, SOME, 10, "unknown"),  # Its members may hold it since then.
        (1, 5, SOME, 60, "unknown"),  # A member that restarts again and again gets them, too.
        (1, 5, SOME, None, "unknown"),
        (5, 5, SOME, 60, "behind"),
        (9, 5, SOME, None, "unknown"),  # 6 are no backlog where 9 come in each second.
        (0.1, 0.1, SOME, None, "behind"),
        (None, 5, SOME, 3, "unknown"),
    ],
)
def test_one_sample_is_judged_by_what_counters_and_ages_prove(
    into: float | None, out: float | None, owner: Owner, age: float | None, expected: str
) -> None:
    known = Circumstances(owner=owner, oldest_age=age)
    sample = Sample(0, 3, 9)
    found = judge_counters(QUEUE, sample, known, in_per_second=into, out_per_second=out)
    assert (found.verdict, found.lag) == (expected, 6)


def test_counters_matter_only_where_a_lag_is_known_and_not_zero() -> None:
    well = judge_counters(QUEUE, Sample(0, 9, 9), in_per_second=0, out_per_second=0)
    assert well.verdict == "ok"
    unknown = judge_counters(QUEUE, Sample(0, None, 9), in_per_second=0, out_per_second=0)
    assert (unknown.verdict, unknown.lag) == ("unknown", None)


# ---------------------------------------------------------------------------------------- together


def test_group_has_its_worst_verdict_and_the_reason_of_the_largest_lag() -> None:
    stalled = [Judgement(Verdict.STALLED, f"lag {lag}", lag, 0, 0, math.inf) for lag in (2, 7)]
    ok = Judgement(Verdict.OK, "nothing is unread", 0, 1, 1, 0)
    found = together([ok, *stalled])
    assert (found.verdict, found.why, found.lag, found.eta) == ("stalled", "lag 7", 9, math.inf)


def test_one_unknown_queue_makes_the_sum_unknown_but_hides_no_worse_verdict() -> None:
    unknown = Judgement(Verdict.UNKNOWN, "no answer", None)
    ok = Judgement(Verdict.OK, "nothing is unread", 0, 1, 1, 0)
    assert (together([ok, unknown]).verdict, together([ok, unknown]).lag) == ("unknown", None)
    assert together([unknown, Judgement(Verdict.BEHIND, "b", 3)]).verdict == "behind"


def test_sum_that_falls_makes_no_queue_behind_and_hides_no_worse_verdict() -> None:
    grows = [(2 * number, 100 + 10 * number) for number in range(13)]
    falls = [(20 * number, 9000) for number in range(13)]
    parts = [judge_queue(QUEUE, samples(*pairs)) for pairs in (grows, falls)]
    assert [one.verdict for one in parts] == ["behind", "ok"]
    assert together(parts).verdict == "ok"
    unknown = Judgement(Verdict.UNKNOWN, "no answer", None)
    assert together([*parts, unknown]).verdict == "unknown"
    by_counters = Judgement(Verdict.BEHIND, "one sample", 9)
    assert together([*parts, by_counters]).verdict == "behind"
    slowly = judge_queue(QUEUE, samples(*[(7 * number, 9000) for number in range(13)]))
    assert slowly.verdict == "ok"
    assert together([parts[0], slowly]).verdict == "behind"


def test_group_without_queues_is_unknown() -> None:
    assert together([]) == Judgement(Verdict.UNKNOWN, "nothing is committed in any queue", None)


def test_duration_is_a_text_for_people() -> None:
    assert [duration(each) for each in (0.4, 42, 170, 700, 69 * 3600, 5 * 86400)] == [
        "0 s", "42 s", "170 s", "12 min", "69 h", "5 days"
    ]  # fmt: skip


# -------------------------------------------------------------------------------------- properties

offsets = st.none() | st.integers(0, 40)
windows = st.lists(st.tuples(offsets, offsets), min_size=1, max_size=8).map(lambda p: samples(*p))
ages = st.none() | st.floats(0, 1e6)
circumstances = st.builds(
    Circumstances,
    owner=st.sampled_from([*Owner, "app-7@10.0.0.9"]),
    oldest_age=ages,
    log_age=ages,
    is_deleted=st.booleans(),
    was_reset=st.booleans(),
)


@given(windows, circumstances)
def test_numbers_are_never_negative_and_unknown_lag_is_an_unknown_verdict(
    window: list[Sample], known: Circumstances
) -> None:
    found = judge_queue(QUEUE, window, known)
    for number in (found.lag, found.in_per_second, found.out_per_second, found.eta):
        assert number is None or number >= 0
    assert found.lag == window[-1].lag
    if found.lag is None:
        is_ahead = window[-1].ahead > 0 and known.uncountable is None
        assert found.verdict == (Verdict.AHEAD if is_ahead else Verdict.UNKNOWN)
    if found.lag == 0:
        assert found.verdict == Verdict.OK
    assert found.why


@given(windows, circumstances, st.integers(1, 10**12), st.floats(-1e6, 1e6))
def test_verdict_depends_on_differences_only(
    window: list[Sample], known: Circumstances, shift: int, later: float
) -> None:
    # An empty queue is not shifted: offset 0 is where messages begin.
    window = [
        attrs.evolve(sample, end=None if sample.end is None else sample.end + 1)
        for sample in window
    ]
    moved = [
        Sample(
            sample.at + later,
            None if sample.committed is None else sample.committed + shift,
            None if sample.end is None else sample.end + shift,
        )
        for sample in window
    ]
    assert judge_queue(QUEUE, window, known).verdict == judge_queue(QUEUE, moved, known).verdict


@given(st.integers(0, 99), st.lists(st.integers(1, 50), min_size=3), st.sampled_from(list(Owner)))
def test_offset_that_does_not_move_below_the_end_is_never_ok(
    committed: int, lags: list[int], owner: Owner
) -> None:
    found = judge_queue(
        QUEUE, samples(*[(committed, committed + lag) for lag in lags]), Circumstances(owner=owner)
    )
    expected = Verdict.STOPPED if owner is Owner.NO_MEMBER else Verdict.STALLED
    assert found.verdict == expected
    assert found.stands_for == (len(lags) - 1) * SAMPLE_EVERY


@given(st.lists(st.tuples(windows, circumstances), min_size=1, max_size=4))
def test_whole_is_as_bad_as_its_worst_part(parts: list[tuple[list[Sample], Circumstances]]) -> None:
    judged = [judge_queue(QUEUE, *part) for part in parts]
    whole = together(judged)
    worst = max((one.verdict for one in judged), key=lambda verdict: verdict.severity)
    assert whole.verdict == worst or (
        worst == Verdict.BEHIND and whole.verdict in (Verdict.OK, Verdict.UNKNOWN)
    )
    lags = [one.lag for one in judged]
    assert whole.lag == (None if None in lags else sum(filter(None, lags)))


@given(windows, circumstances, ages, ages)
def test_counters_agree_with_the_window_where_one_sample_suffices(
    window: list[Sample], known: Circumstances, into: float | None, out: float | None
) -> None:
    last = window[-1]
    by_samples = judge_queue(QUEUE, [last], known)
    by_counters = judge_counters(QUEUE, last, known, in_per_second=into, out_per_second=out)
    assert by_counters.lag == by_samples.lag
    if by_samples.verdict != Verdict.UNKNOWN:
        assert by_counters.verdict == by_samples.verdict


@given(windows, circumstances, ages, ages)
def test_lag_is_ok_at_once_only_with_a_member_and_fresh_messages(
    window: list[Sample], known: Circumstances, into: float | None, out: float | None
) -> None:
    last = window[-1]
    found = judge_counters(QUEUE, last, known, in_per_second=into, out_per_second=out)
    if found.verdict == Verdict.OK and found.lag:
        assert known.oldest_age is not None
        assert known.oldest_age < FRESH
        assert known.owner is not Owner.NO_MEMBER
