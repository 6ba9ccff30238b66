"""Verdicts on groups, from pages that are read every 15 s."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from tests.support.scraping import Scraping, scraping
from trio.testing import MockClock

from rocketrio_broker.offsets.version import Commit

Step = Callable[[Scraping, int], Awaitable[None]]


async def verdict_of(one: Scraping) -> str:
    (found,) = (await one.scrape()).all("rocketrio_group_verdict", topic="orders")
    assert found.value == 1
    return found.labels["verdict"]


async def nothing(one: Scraping, round_: int) -> None:
    pass


async def beat(one: Scraping, round_: int) -> None:
    await one.beat("billing", "orders")


async def sends_and_commits_one_of_two(one: Scraping, round_: int) -> None:
    for _ in range(2):
        await one.call.send(one.addr, b"1")
    await one.call.commit(one.addr, round_ + 1)


async def commits(one: Scraping, round_: int) -> None:
    await one.call.commit(one.addr, round_ + 1)


async def goes_back(one: Scraping, round_: int) -> None:
    if round_ == 4:
        one.state.consumer_offsets.commit_version("billing", "orders", 0, Commit(0, is_seek=True))
    elif round_ < 4:
        await sends_and_commits_one_of_two(one, round_)


async def is_reset(one: Scraping, round_: int) -> None:
    if round_ == 4:
        one.state.consumer_offsets.commit_version("billing", "orders", 0, Commit(0, is_reset=True))
    elif round_ < 4:
        await sends_and_commits_one_of_two(one, round_)


@pytest.mark.parametrize(
    ("step", "verdict"),
    [
        (nothing, "stopped"),
        (beat, "stalled"),
        (sends_and_commits_one_of_two, "behind"),
        (commits, "ok"),
        (goes_back, "rewound"),
        (is_reset, "behind"),
    ],
)
async def test_verdict_is_what_happened_between_pages(
    step: Step, verdict: str, autojump_clock: MockClock
) -> None:
    async with scraping() as one:
        for _ in range(20):
            await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 0)
        assert await verdict_of(one) == "unknown"
        for round_ in range(5):
            await trio.sleep(15)
            await step(one, round_)
            found = await verdict_of(one)
        assert found == verdict


async def test_group_that_has_read_all_is_ok_at_once(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 1)
        assert await verdict_of(one) == "ok"


async def test_pages_within_a_second_do_not_make_a_verdict(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 0)
        for _ in range(10):
            assert await verdict_of(one) == "unknown"
            await trio.sleep(0.1)


async def test_slow_queue_of_a_fast_group_decides(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"1", queue_id=1)
        await one.call.commit(one.addr, 0, queue_id=1)
        for number in range(1, 7):
            for _ in range(100):
                await one.call.send(one.addr, b"1", queue_id=0)
            await one.call.commit(one.addr, 100 * number - 50, queue_id=0)
            found = await verdict_of(one)
            await trio.sleep(15)
        assert found == "stopped"


async def test_unknown_lag_is_an_unknown_verdict(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"1")
        await one.beat("billing", "orders")
        for _ in range(5):
            await trio.sleep(15)
            assert await verdict_of(one) == "unknown"
