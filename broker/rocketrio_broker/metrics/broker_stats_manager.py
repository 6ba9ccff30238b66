"""Counts what came in by topic and went out by topic and group, over the last minute, hour and day.

    every put or pull     adds to its key, which is the only work on its path
    every 10 s            the counts become a round of the minute, and are added to
    every 10 min, hour    the unfinished round of the hour, and of the day

A round contains only the keys that were used in it, so idle topics and groups cost nothing.

Invariant: each count is in exactly one round of each window, or has left the window.
Answers to: BrokerStatsManager, StatsItem.
Unlike Java: hour and day include their unfinished rounds, so they are never stale and reach back 50 to 60 minutes and
23 to 24 hours; a key that was not used for a day is unknown again; latency, reads from disk and commercial statistics
are not counted.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
import trio

from rocketrio_protocol.bodies.stats import BrokerStatsData, BrokerStatsItem
from rocketrio_protocol.remoting.tasks import every

SAMPLING_INTERVAL: Final = 10.0  # samplingInSeconds
MINUTE_ROUNDS: Final = 6
HOUR_ROUND_SAMPLES: Final = 60
"""Samples in a round of the hour: ten minutes (samplingInMinutes)."""
HOUR_ROUNDS: Final = 5
DAY_ROUND_SAMPLES: Final = 360
"""Samples in a round of the day: one hour (samplingInHour)."""
DAY_ROUNDS: Final = 23

KEYS_LIMIT: Final = 20_000
"""The largest number of topics with groups that are counted in one sample; further ones are ignored."""

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"


@attrs.define(eq=False)
class KeyCounts:
    """The counts of one key: requests, and the messages and bytes in them."""

    times: int = 0
    messages: int = 0
    size: int = 0

    def add(self, other: "KeyCounts") -> None:
        self.times += other.times
        self.messages += other.messages
        self.size += other.size


Table = dict[str, KeyCounts]


@attrs.define(eq=False)
class _Round:
    """The counts of one period, by topic and by `topic@group`."""

    puts: Table = attrs.Factory(dict)
    gets: Table = attrs.Factory(dict)
    backs: Table = attrs.Factory(dict)
    """Messages that a group handed back."""

    def add(self, other: "_Round") -> None:
        for mine, theirs in (
            (self.puts, other.puts),
            (self.gets, other.gets),
            (self.backs, other.backs),
        ):
            for key, counts in theirs.items():
                mine.setdefault(key, KeyCounts()).add(counts)


class _Window:
    """The last rounds of one length, and the unfinished one."""

    def __init__(self, *, round_samples: int, rounds: int) -> None:
        self._round_samples = round_samples
        self._rounds: deque[_Round] = deque(maxlen=rounds)
        self._unfinished = _Round()
        self._samples = 0

    def add(self, sampled: _Round) -> None:
        self._unfinished.add(sampled)
        self._samples += 1
        if self._samples == self._round_samples:
            self._rounds.append(self._unfinished)
            self._unfinished, self._samples = _Round(), 0

    def rounds(self) -> tuple[list[_Round], float]:
        """Return the rounds that count now, and the number of seconds that they cover."""
        samples = len(self._rounds) * self._round_samples + self._samples
        return [*self._rounds, self._unfinished], max(samples, 1) * SAMPLING_INTERVAL


class BrokerStatsManager:
    """The counters of one broker."""

    def __init__(self, cluster_name: Callable[[], str]) -> None:
        """Create counters; `cluster_name` returns the key of the statistics of the whole broker."""
        self._cluster_name = cluster_name
        self._counting = _Round()
        self._minute = _Window(round_samples=1, rounds=MINUTE_ROUNDS)
        self._hour = _Window(round_samples=HOUR_ROUND_SAMPLES, rounds=HOUR_ROUNDS)
        self._day = _Window(round_samples=DAY_ROUND_SAMPLES, rounds=DAY_ROUNDS)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sample until cancelled."""
        task_status.started()
        async for _ in every(SAMPLING_INTERVAL, first_after=SAMPLING_INTERVAL):
            self.sample()

    def put(self, topic: str, messages: int, size: int, properties: str | None = None) -> None:
        """Count a producer's request with the stored messages and bytes; `properties` are as it sent them."""
        counts = self._counting.puts.get(topic)
        if counts is None:
            counts = self._counting.puts[topic] = KeyCounts()
        counts.times += 1
        counts.messages += messages
        counts.size += size

    def got(self, topic: str, group: str, messages: int, size: int) -> None:
        """Count a consumer's pull with the returned messages and bytes."""
        _add(self._counting.gets, f"{topic}@{group}", messages, size)

    def sent_back(self, topic: str, group: str, size: int) -> None:
        """Count a message of the topic that the group handed back, to get it again or to give it up."""
        _add(self._counting.backs, f"{topic}@{group}", 1, size)

    def dead_letter(self, group: str, topic: str) -> None:
        """Count a message of the topic that the group gave up. Only metrics count these."""

    def transaction_ended(self, topic: str, seconds: float | None) -> None:
        """Count a committed transaction, that many seconds after its birth; None: it was rolled back.

        Only metrics count these.
        """

    def sample(self) -> None:
        """End a round, and add it to the windows."""
        sampled, self._counting = self._counting, _Round()
        for window in (self._minute, self._hour, self._day):
            window.add(sampled)

    # --------------------------------------------------------------------------------------- asking

    def stats_data(self, name: str, key: str) -> BrokerStatsData | None:
        """Return one statistic of one key, or None if the name is unknown or the key was not used lately."""
        cluster_name = self._cluster_name()
        windows = (self._minute, self._hour, self._day)
        items = [_item(window, name, key, cluster_name) for window in windows]
        is_new = _counted(self._counting, name, key, cluster_name) is not None
        if not is_new and not any(items):
            return None
        minute, hour, day = (item or BrokerStatsItem() for item in items)
        return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)

    def group_get_tps(self, topic: str, group: str) -> float:
        """Return how many messages of the topic the group got per second in the last minute."""
        item = _item(self._minute, GROUP_GET_NUMS, f"{topic}@{group}", "")
        return 0.0 if item is None else item.tps


def _add(table: Table, key: str, messages: int, size: int) -> None:
    counts = table.get(key)
    if counts is None:
        if len(table) >= KEYS_LIMIT:
            return
        counts = table[key] = KeyCounts()
    counts.times += 1
    counts.messages += messages
    counts.size += size


def _item(window: _Window, name: str, key: str, cluster_name: str) -> BrokerStatsItem | None:
    rounds, seconds = window.rounds()
    total, is_known = KeyCounts(), False
    for each in rounds:
        counts = _counted(each, name, key, cluster_name)
        if counts is not None:
            is_known = True
            total.add(counts)
    if not is_known:
        return None
    value = total.size if name in (TOPIC_PUT_SIZE, GROUP_GET_SIZE) else total.messages
    average = value / total.times if total.times else 0.0
    return BrokerStatsItem(sum=value, tps=value / seconds, avgpt=average)


def _counted(round_: _Round, name: str, key: str, cluster_name: str) -> KeyCounts | None:
    if name in (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE):
        return round_.puts.get(key)
    if name in (GROUP_GET_NUMS, GROUP_GET_SIZE):
        return round_.gets.get(key)
    if name == SNDBCK_PUT_NUMS:
        return round_.backs.get(key)
    if key != cluster_name or name not in (BROKER_PUT_NUMS, BROKER_GET_NUMS):
        return None
    total = KeyCounts()
    for counts in (round_.puts if name == BROKER_PUT_NUMS else round_.gets).values():
        total.add(counts)
    return total
