import trio
from trio.testing import MockClock

from rocketrio.repeated_failures import RepeatedFailures


async def test_failures_are_counted_by_cause(
    autojump_clock: MockClock,
) -> None:
    failures = RepeatedFailures()
    assert failures.failed("a") == 1
    assert failures.failed("b") == 1
    assert [failures.failed("a") for _ in range(3)] == [0, 0, 0]
    await trio.sleep(60)
    assert failures.failed("a") == 4


async def test_success_ends_what_was_logged(autojump_clock: MockClock) -> None:
    failures = RepeatedFailures()
    assert failures.succeeded() == 0
    assert [failures.failed("a") for _ in range(3)] == [1, 0, 0]
    assert failures.succeeded() == 3
    assert failures.succeeded() == 0


async def test_work_that_fails_every_other_time_is_logged_once_a_minute(
    autojump_clock: MockClock,
) -> None:
    failures, lines = RepeatedFailures(), []
    for _ in range(90):
        if count := failures.failed("a"):
            lines.append(count)
        await trio.sleep(1)
        if count := failures.succeeded():
            lines.append(-count)
        await trio.sleep(1)
    assert lines == [1, -1, 30, -30, 30, -30]


async def test_causes_without_number_are_kept_in_a_bounded_table() -> None:
    failures = RepeatedFailures()
    assert [failures.failed(number) for number in range(1000)] == [1] * 1000
    assert failures.failed(999) == 0
    assert failures.failed(0) == 1
