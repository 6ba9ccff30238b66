import pytest
import trio
from tests.support.clocks import SettableClock
from tests.support.stores import opened, put_of, stored

from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.remoting.ports import VirtualWallClock


async def test_counts_since_the_start() -> None:
    async with opened(MemoryDisk()) as store:
        for _ in range(3):
            result = stored(store.append(put_of()))
        store.append(put_of(topic=""))
        store.get_message("orders", 0, 0, 32)
        store.get_message("orders", 0, 3, 32)
        statistics = store.statistics()
        assert statistics.put_message_times == 3
        assert statistics.put_message_size == store.max_physical_offset == 3 * result.size
        assert statistics.put_message_failed_times == 1
        assert (statistics.get_found_times, statistics.get_miss_times) == (1, 1)
        assert statistics.transferred_messages == 3
        assert statistics.transferred_bytes == 3 * result.size


async def test_rates_over_three_windows(autojump_clock: trio.abc.Clock) -> None:
    async with opened(MemoryDisk(), clock=VirtualWallClock()) as store:  # type: ignore[arg-type]
        assert store.runtime_info()["putTps"].split() == ["0.0"]
        for _ in range(70):
            stored(store.append(put_of()))
            await trio.sleep(1)
        info = store.runtime_info()
        ten, minute, ten_minutes = info["putTps"].split(" ")
        assert float(ten) == pytest.approx(1, abs=0.2)
        assert float(minute) == pytest.approx(1, abs=0.2)
        assert ten_minutes == ""
        assert info["runtime"] == "[ 0 days, 0 hours, 1 minutes, 10 seconds ]"


async def test_totals_of_mornings_are_those_when_the_local_day_began(
    autojump_clock: trio.abc.Clock,
) -> None:
    def mornings() -> list[str]:
        info = store.runtime_info()
        return [info[f"msgPutTotal{when}"] for when in ("YesterdayMorning", "TodayMorning")]

    clock = SettableClock()
    async with opened(MemoryDisk(), clock=clock) as store:
        for expected in (["0", "0"], ["0", "1"], ["1", "2"]):
            assert mornings() == expected
            stored(store.append(put_of()))
            clock.now += 24 * 3600 * 1000
            await trio.sleep(10.1)  # The day is looked at every 10 s.


async def test_unmeasured_statistics_are_not_reported_as_0() -> None:
    async with opened(MemoryDisk()) as store:
        info = store.runtime_info()
        for name in ("dispatchMaxBuffer", "getMessageEntireTimeMax", "pageCacheLockTimeMills"):
            assert info[name] == "-1"
        assert {info["putLatency99"], info["putLatency999"]} == {"-1.00"}


async def test_runtime_info_has_the_stores_keys() -> None:
    async with opened(MemoryDisk()) as store:
        stored(store.append(put_of()))
        info = store.runtime_info()
        assert info["commitLogMaxOffset"] == str(store.max_physical_offset)
        assert info["commitLogMinOffset"] == "0"
        assert info["dispatchBehindBytes"] == "0"
        assert info["remainHowManyDataToFlush"] == f"{store.max_physical_offset} B"
        assert info["earliestMessageTimeStamp"] == "1700000000000"
        assert info["commitLogDiskRatio_/data/commitlog"] == info["commitLogDiskRatio"] == "0.00"
        assert info["putMessageAverageSize"] == repr(float(store.max_physical_offset))
        assert all(isinstance(value, str) for value in info.values())
