"""Statistics of the store: counters, rates over three windows, and the store's keys of the runtime info.

Answers to: StoreStatsService, DefaultMessageStore.getRuntimeInfo.
"""

import time
from collections import deque
from typing import Final

import attrs
import trio

from rocketrio_broker.store.append import Appender
from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.put_times import PutTimes
from rocketrio_broker.store.retention import RetentionService
from rocketrio_broker.waiting.watermark import LogPosition
from rocketrio_protocol.remoting.ports import WallClock
from rocketrio_protocol.remoting.tasks import every

WINDOWS: Final = (10, 60, 600)
"""Seconds; rates are reported as "a b c" over these windows, as in StoreStatsService."""

UNKNOWN: Final = "-1"
"""The value of a number that is not measured; Apache's brokers use it for the oldest message's time without any."""
_SAMPLE_INTERVAL: Final = 10.0
_ROUNDS_A_MINUTE: Final = int(60 / _SAMPLE_INTERVAL)
_SAMPLE_LIMIT: Final = int(WINDOWS[-1] / _SAMPLE_INTERVAL) + 1
_NO_LIMIT: Final = "2147483647"  # remainTransientStoreBufferNumbs without a transient pool
_GIB: Final = 1 << 30


@attrs.frozen
class StoreStatistics:
    """Counts since the start, and the positions of the log."""

    put_message_times: int
    put_message_size: int
    put_message_failed_times: int
    get_found_times: int
    get_miss_times: int
    transferred_messages: int
    transferred_bytes: int
    min_physical_offset: int
    max_physical_offset: int
    flushed_offset: int
    dispatched_offset: int


@attrs.frozen
class Totals:
    """Counts since the start at the beginning of a local day."""

    put_message_times: int
    transferred_messages: int


class StoreStatisticsService:
    """Counts reads, and samples all counters for the rates."""

    def __init__(
        self,
        appender: Appender,
        log: CommitLog,
        dispatched: LogPosition,
        retention: RetentionService,
        *,
        wall_clock: WallClock,
    ) -> None:
        self._appender = appender
        self._log = log
        self._dispatched = dispatched
        self._retention = retention
        self._boot_timestamp_ms = wall_clock.now_ms()
        self._wall_clock = wall_clock
        self._found = 0
        self._missed = 0
        self._transferred = 0
        self._transferred_bytes = 0
        self.put_times = PutTimes()
        """How long puts took; the code that answers a put adds its time."""
        self._samples: deque[tuple[float, StoreStatistics]] = deque(maxlen=_SAMPLE_LIMIT)
        # Counts since the start, which are zero for the days before it.
        self._today = self._yesterday = Totals(0, 0)
        self._day = _day(self._boot_timestamp_ms)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        rounds = 0
        async for _ in every(_SAMPLE_INTERVAL):
            now = self.snapshot()
            self._samples.append((trio.current_time(), now))
            if (day := _day(self._wall_clock.now_ms())) > self._day:
                self._day = day
                self._yesterday = self._today
                self._today = Totals(now.put_message_times, now.transferred_messages)
            if rounds and rounds % _ROUNDS_A_MINUTE == 0:
                self.put_times.end_minute()
            rounds += 1

    def count_get(self, message_count: int, body_size: int) -> None:
        """Count one read."""
        if message_count:
            self._found += 1
            self._transferred += message_count
            self._transferred_bytes += body_size
        else:
            self._missed += 1

    def snapshot(self) -> StoreStatistics:
        counters = self._appender.counters
        return StoreStatistics(
            put_message_times=counters.messages,
            put_message_size=counters.bytes,
            put_message_failed_times=counters.failures,
            get_found_times=self._found,
            get_miss_times=self._missed,
            transferred_messages=self._transferred,
            transferred_bytes=self._transferred_bytes,
            min_physical_offset=self._log.min_offset,
            max_physical_offset=self._log.max_offset,
            flushed_offset=self._log.flushed.value,
            dispatched_offset=self._dispatched.value,
        )

    def runtime_info(self, earliest_message_ms: int | None) -> dict[str, str]:
        """Return the keys that an Apache admin tool reads; `UNKNOWN` is the value of what is not measured here."""
        now = self.snapshot()
        ratio = f"{self._retention.used_ratio:.2f}"
        total, free = self._retention.capacity
        average = now.put_message_size / now.put_message_times if now.put_message_times else 0.0
        transferred = self._rates("transferred_messages")
        return {
            "msgPutTotalYesterdayMorning": str(self._yesterday.put_message_times),
            "msgPutTotalTodayMorning": str(self._today.put_message_times),
            "msgPutTotalTodayNow": str(now.put_message_times),
            "msgGetTotalYesterdayMorning": str(self._yesterday.transferred_messages),
            "msgGetTotalTodayMorning": str(self._today.transferred_messages),
            "msgGetTotalTodayNow": str(now.transferred_messages),
            "bootTimestamp": str(self._boot_timestamp_ms),
            "runtime": _runtime_text(self._wall_clock.now_ms() - self._boot_timestamp_ms),
            "putMessageTimesTotal": str(now.put_message_times),
            "putMessageFailedTimes": str(now.put_message_failed_times),
            "putMessageSizeTotal": str(now.put_message_size),
            "putMessageAverageSize": repr(average),
            "dispatchMaxBuffer": UNKNOWN,
            "getMessageEntireTimeMax": UNKNOWN,
            "putTps": self._rates("put_message_times"),
            "getFoundTps": self._rates("get_found_times"),
            "getMissTps": self._rates("get_miss_times"),
            "getTotalTps": self._rates("get_found_times", "get_miss_times"),
            "getTransferedTps": transferred,
            "getTransferredTps": transferred,
            **self.put_times.runtime_info(),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{self._log.files.directory}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {_gib(total)}, Free : {_gib(free)}.",
            "commitLogMinOffset": str(now.min_physical_offset),
            "commitLogMaxOffset": str(now.max_physical_offset),
            "dispatchBehindBytes": str(now.max_physical_offset - now.dispatched_offset),
            "remainHowManyDataToFlush": f"{now.max_physical_offset - now.flushed_offset} B",
            "remainTransientStoreBufferNumbs": _NO_LIMIT,
            "pageCacheLockTimeMills": UNKNOWN,
            "earliestMessageTimeStamp": str(
                -1 if earliest_message_ms is None else earliest_message_ms
            ),
        }

    def _rates(self, *names: str) -> str:
        """Format events per second over each window; a window that is not full yet is left empty."""
        if not self._samples:
            return "0.0  "
        now_time, now = trio.current_time(), self.snapshot()
        rates = []
        for window in WINDOWS:
            old = next((s for s in reversed(self._samples) if s[0] <= now_time - window), None)
            if old is None:
                rates.append("0.0" if window == WINDOWS[0] else "")
                continue
            events = sum(getattr(now, name) - getattr(old[1], name) for name in names)
            rates.append(repr(events / (now_time - old[0])))
        return " ".join(rates)


def _day(time_ms: int) -> tuple[int, int]:
    """Return the local year and day of the year."""
    local = time.localtime(time_ms / 1000)
    return local.tm_year, local.tm_yday


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"


def _runtime_text(elapsed_ms: int) -> str:
    seconds = elapsed_ms // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
