"""Counters over minute, hour and day."""

import pytest
import trio
from trio.testing import MockClock

from rocketrio_broker.metrics.broker_stats_manager import (
    BROKER_GET_NUMS,
    BROKER_PUT_NUMS,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    SAMPLING_INTERVAL,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    BrokerStatsManager,
)
from rocketrio_protocol.bodies.stats import BrokerStatsData, BrokerStatsItem


def manager() -> BrokerStatsManager:
    return BrokerStatsManager(lambda: "cluster")


def pass_time(stats: BrokerStatsManager, seconds: float) -> None:
    for _ in range(round(seconds / SAMPLING_INTERVAL)):
        stats.sample()


def known(stats: BrokerStatsManager, name: str, key: str) -> BrokerStatsData:
    data = stats.stats_data(name, key)
    assert data is not None
    return data


def test_sum_and_rates_of_a_minute() -> None:
    stats = manager()
    for _ in range(4):
        stats.put("T", 100, 30_000)
        stats.got("T", "G", 50, 15_000)
        pass_time(stats, 10)
    assert known(stats, TOPIC_PUT_NUMS, "T").stats_minute == BrokerStatsItem(400, 10.0, 100.0)
    assert known(stats, TOPIC_PUT_SIZE, "T").stats_minute == BrokerStatsItem(
        120_000, 3000.0, 30_000.0
    )
    assert known(stats, GROUP_GET_NUMS, "T@G").stats_minute == BrokerStatsItem(200, 5.0, 50.0)
    assert known(stats, GROUP_GET_SIZE, "T@G").stats_minute.sum == 60_000
    assert stats.group_get_tps("T", "G") == 5.0
    assert stats.group_get_tps("T", "H") == 0.0


def test_messages_that_a_group_handed_back_are_counted_by_their_first_topic() -> None:
    stats = manager()
    stats.sent_back("T", "G", 100)
    stats.sent_back("T", "G", 100)
    pass_time(stats, 10)
    assert known(stats, SNDBCK_PUT_NUMS, "T@G").stats_minute.sum == 2
    assert stats.stats_data(SNDBCK_PUT_NUMS, "T@H") is None
    pass_time(stats, 60)
    assert known(stats, SNDBCK_PUT_NUMS, "T@G").stats_hour.sum == 2


def test_the_whole_broker_is_the_sum_of_its_topics_and_groups() -> None:
    stats = manager()
    stats.put("T", 1, 100)
    stats.put("U", 2, 100)
    stats.got("T", "G", 3, 100)
    stats.got("T", "H", 4, 100)
    pass_time(stats, 10)
    assert known(stats, BROKER_PUT_NUMS, "cluster").stats_minute.sum == 3
    assert known(stats, BROKER_GET_NUMS, "cluster").stats_minute.sum == 7


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (TOPIC_PUT_NUMS, "U"),
        (GROUP_GET_NUMS, "T@H"),
        (GROUP_GET_NUMS, "T"),
        (BROKER_PUT_NUMS, "other"),
        ("GROUP_GET_LATENCY", "0@T@G"),
        ("", "T"),
    ],
)
def test_statistics_that_were_not_counted_are_unknown(name: str, key: str) -> None:
    stats = manager()
    stats.put("T", 1, 1)
    stats.got("T", "G", 1, 1)
    pass_time(stats, 10)
    assert stats.stats_data(name, key) is None


def test_each_window_forgets_at_its_time() -> None:
    stats = manager()
    stats.put("T", 7, 70)
    # At once it is known, and shows from the next sample on, as Java's does.
    assert known(stats, TOPIC_PUT_NUMS, "T").stats_day == BrokerStatsItem()

    def sums() -> tuple[int, int, int]:
        data = known(stats, TOPIC_PUT_NUMS, "T")
        return data.stats_minute.sum, data.stats_hour.sum, data.stats_day.sum

    pass_time(stats, 60)
    assert sums() == (7, 7, 7)
    pass_time(stats, 10)
    assert sums() == (0, 7, 7)
    pass_time(stats, 3000 - 70)
    assert sums() == (0, 7, 7)
    pass_time(stats, 600)
    assert sums() == (0, 0, 7)
    pass_time(stats, 23 * 3600 - 3600)
    assert sums() == (0, 0, 7)
    pass_time(stats, 3600)
    assert stats.stats_data(TOPIC_PUT_NUMS, "T") is None


def test_steady_traffic_shows_the_same_rate_in_every_window() -> None:
    stats = manager()
    for _ in range(9000):
        stats.put("T", 10, 1000)
        stats.put("T", 30, 1000)
        stats.sample()
    data = known(stats, TOPIC_PUT_NUMS, "T")
    for item in (data.stats_minute, data.stats_hour, data.stats_day):
        assert item.tps == pytest.approx(4.0)
        assert item.avgpt == 20.0
    assert data.stats_minute.sum == 240
    assert 50 * 240 <= data.stats_hour.sum <= 60 * 240
    assert 23 * 60 * 240 <= data.stats_day.sum <= 24 * 60 * 240


async def test_statistics_are_sampled_every_ten_seconds(autojump_clock: MockClock) -> None:
    stats = manager()
    async with trio.open_nursery() as nursery:
        await nursery.start(stats.run)
        stats.put("T", 5, 50)
        await trio.sleep(9.5)
        assert known(stats, TOPIC_PUT_NUMS, "T").stats_minute.sum == 0
        await trio.sleep(1)
        assert known(stats, TOPIC_PUT_NUMS, "T").stats_minute == BrokerStatsItem(5, 0.5, 5.0)
        nursery.cancel_scope.cancel()
