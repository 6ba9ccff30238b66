"""Verdicts on groups, from pages that are read every 15 s."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from tests.support.scraping import Scraping, scraping
from tests.support.stores import put_of, stored
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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_slow_queue_of_a_fast_group_decides(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"1", queue_id=1)
        await one.call.commit(one.addr, 0, queue_id=1)
        for number in range(1, 7):
            await move(one, {0: (100 * number, 100 * number - 50)})
            found = await verdict_of(one)
            await trio.sleep(15)
        assert found == "stopped"


async def keeps_one_unread(one: Scraping, number: int) -> None:
    await move(one, {0: (60 * number, 60 * number - 1), 1: (15 * number, 15 * number - 1)})


async def slow_queue_is_the_shorter_one(one: Scraping, number: int) -> None:
    await move(one, {0: (60 * number, 60 * number - 30), 1: (8 * number, 2 * number)})


async def grows_though_it_falls_at_every_third_page(one: Scraping, number: int) -> None:
    await move(one, {0: (40 * number, 60 * (number // 3))})


async def catches_up_with_one_queue_first(one: Scraping, number: int) -> None:
    await move(one, {0: (600, 70 * number), 1: (200 + 20 * number, 2 * number)})


async def move(one: Scraping, queues: dict[int, tuple[int, int]]) -> None:
    """Have each queue end at an offset, and commit another one there."""
    for queue_id, (end, committed) in queues.items():
        _, at = one.state.store.queue_bounds("orders", queue_id) or (0, 0)
        for _ in range(end - at):
            stored(one.state.store.append(put_of(queue_id=queue_id)))
        await one.call.commit(one.addr, committed, queue_id=queue_id)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "verdict"),
    [
        (keeps_one_unread, "ok"),
        (slow_queue_is_the_shorter_one, "behind"),
        (grows_though_it_falls_at_every_third_page, "behind"),
        (catches_up_with_one_queue_first, "ok"),
    ],
)
async def test_verdict_on_several_queues_by_their_trends(
    step: Step, verdict: str, autojump_clock: MockClock
) -> None:
    async with scraping() as one:
        await one.call.create_topic(one.addr)
        found = []
        for number in range(1, 9):
            await step(one, number)
            found.append(await verdict_of(one))
            await trio.sleep(15)
        assert set(found[4:]) == {verdict}


@pytest.mark.parametrize("others", [(), (1,)])
async def test_offset_beyond_the_end_is_ahead_whatever_other_queues_are(
    autojump_clock: MockClock, others: tuple[int, ...]
) -> None:
    """A queue with messages in which nothing was committed makes the lag unknown, and is not worse."""
    async with scraping() as one:
        for queue_id in (0, *others):
            await one.call.send(one.addr, b"1", queue_id=queue_id)
        await one.call.commit(one.addr, 1000, queue_id=2)
        await one.call.commit(one.addr, 1, queue_id=0)
        page = await one.scrape()
        assert await verdict_of(one) == "ahead"
        assert page.value("rocketrio_group_lag_known", topic="orders") == 0
        assert not page.all("rocketmq_consumer_lag_messages", topic="orders")
        assert not page.all("rocketmq_consumer_lag_latency_milliseconds", topic="orders")


async def test_group_beyond_what_readers_see_is_not_ahead(autojump_clock: MockClock) -> None:
    """Readers of a new master see less than they saw, until its slaves have said what they have."""
    async with scraping() as one:
        for _ in range(4):
            await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 3)
        store = one.state.store
        entry = store.queue_table.by_key["orders", 0].entry(1)
        assert entry is not None
        store.read_gate.set_reported(entry[0])
        assert store.seen_queue_end("orders", 0) < 3
        assert await verdict_of(one) == "ok"
        await one.call.commit(one.addr, 5)
        assert await verdict_of(one) == "ahead"


@pytest.mark.slow
async def test_unknown_lag_is_an_unknown_verdict(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"1")
        await one.beat("billing", "orders")
        for _ in range(5):
            await trio.sleep(15)
            assert await verdict_of(one) == "unknown"
