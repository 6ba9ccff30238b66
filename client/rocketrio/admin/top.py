"""What `rocketrio top` shows: brokers, groups or topics, with rates since the last sample.

Invariant: a rate is the difference of two samples, divided by the time between them; it is None after one sample, and
if a number is unknown.
Invariant: what was not observed is None in a trend too, never the number before it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from rocketrio.admin.admin import Admin
from rocketrio.admin.cluster_questions import ask_each
from rocketrio.admin.diagnosis import health_of
from rocketrio.admin.diagnosis.brokers import disk_used
from rocketrio.admin.diagnosis.snapshot import Snapshot, number_of
from rocketrio.admin.lag import LagWindow
from rocketrio_protocol.errors import Error
from rocketrio_protocol.names import is_system_topic

TOPICS_ASKED: Final = 300
"""The topics whose ends are asked for at each sample."""
PARALLEL_TOPICS: Final = 16
WINDOW: Final = 60.0
TREND_LENGTH: Final = 12
"""The samples that a trend remembers: more have no room beside a verdict on 80 columns."""

Row = Mapping[str, Any]


@attrs.frozen
class TopSample:
    """What one sample found."""

    rows: Sequence[Row]
    silent: Mapping[str, str]
    """What did not answer, and why."""
    note: str = ""


class Rates:
    """Remembers counters, and returns how fast they grow."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}

    def of(self, name: str, count: int | None, now: float) -> float | None:
        """Return the growth per second since the last sample; a counter that fell has begun again, and has no rate."""
        last = self._last.pop(name, None)
        if count is not None:
            self._last[name] = now, count
        if last is None or count is None or count < last[1] or now <= last[0]:
            return None
        return (count - last[1]) / (now - last[0])


class Trends:
    """Remembers the last observations of numbers, and forgets a number that none of these has found."""

    def __init__(self) -> None:
        self._observed: dict[str, deque[int | None]] = {}

    def add(self, numbers: Mapping[str, int | None]) -> None:
        """Take what one sample found; what it did not find is unknown in it."""
        for name in self._observed.keys() | numbers.keys():
            observed = self._observed.setdefault(name, deque(maxlen=TREND_LENGTH))
            observed.append(numbers.get(name))
            if name not in numbers and set(observed) == {None}:
                del self._observed[name]

    def of(self, name: str) -> tuple[int | None, ...]:
        """Return the observations of a number, the oldest first; none of one that was forgotten."""
        return tuple(self._observed.get(name, ()))


@attrs.define
class ClusterSampler:
    """Samples the brokers."""

    admin: Admin
    _rates: Rates = attrs.Factory(Rates)

    async def sample(self) -> TopSample:
        """Ask all brokers. Raises NotReachableError without a name server."""
        seen = await self.admin.snapshot()
        found = health_of(seen)
        rows = self.rows(seen, trio.current_time())
        wrong = len(found.findings)
        return TopSample(rows, found.silent, f"{wrong} findings" if wrong else "no findings")

    def rows(self, seen: Snapshot, now: float) -> list[Row]:
        """Return a row for each broker."""
        rows: list[Row] = []
        for one in seen.brokers:
            runtime = seen.runtime(one)
            used = disk_used(seen, one)
            put = number_of(runtime.get("msgPutTotalTodayNow"))
            got = number_of(runtime.get("msgGetTotalTodayNow"))
            rows.append(
                {
                    "broker": one.broker_name,
                    "id": one.broker_id,
                    "role": one.role,
                    "in/s": self._rates.of(f"{one.address} put", _whole(put), now),
                    "out/s": self._rates.of(f"{one.address} get", _whole(got), now),
                    "disk %": None if used is None else round(100 * used),
                    "behind s": 0.0 if one.role != "slave" else one.seconds_behind,
                    "state": one.problem or one.state,
                }
            )
        return rows


@attrs.define
class GroupSampler:
    """Samples the groups, with a verdict on each."""

    admin: Admin
    _trends: Trends = attrs.Factory(Trends)
    _window: LagWindow = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._window = self.admin.lag_window(seconds=WINDOW)

    async def sample(self) -> TopSample:
        """Ask all masters. Raises NotReachableError without a name server."""
        try:
            await self._window.sample()
            report = await self._window.report()
        except Error:
            self._trends.add({})
            raise
        self._trends.add({f"{row.group} {row.topic}": row.lag for row in report.rows})
        rows = [
            {
                "group": row.group,
                "topic": row.topic or "-",
                "lag": row.lag,
                "trend": self._trends.of(f"{row.group} {row.topic}"),
                "in/s": row.judgement.in_per_second,
                "out/s": row.judgement.out_per_second,
                "members": row.members,
                "verdict": row.verdict.value,
                "why": row.judgement.why,
            }
            for row in report.rows
        ]
        return TopSample(rows, report.silent, f"window {report.window:.0f} s")


@attrs.define
class TopicSampler:
    """Samples the ends of the topics, and how far behind the group is that is furthest behind in each."""

    admin: Admin
    _rates: Rates = attrs.Factory(Rates)
    _window: LagWindow = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._window = self.admin.lag_window(seconds=0)

    async def sample(self) -> TopSample:
        """Ask the masters for the ends of all topics. Raises NotReachableError without a name server."""
        info = await self.admin.cluster_info()
        owners = {*info.cluster_addr_table, *info.broker_addr_table}
        masters = {
            name: one.broker_addrs[0]
            for name, one in info.broker_addr_table.items()
            if 0 in one.broker_addrs
        }
        silent = dict.fromkeys(info.broker_addr_table.keys() - masters, "it has no master now")
        counts: dict[str, int | None] = {}
        queues: dict[str, int] = {}
        places: dict[str, list[str]] = {}
        space = self.admin.client.namespace
        answers, failed = await ask_each(dict(sorted(masters.items())), self.admin.calls.topics)
        silent.update((name, error.what) for name, error in failed.items())
        for name, configs in answers.items():
            addr = masters[name]
            for topic in space.known(configs):
                if not is_system_topic(topic, owners):
                    places.setdefault(topic, []).append(addr)
                    queues[topic] = (
                        queues.get(topic, 0) + configs[space.wrapped(topic)].read_queue_nums
                    )
        waiting = iter(sorted(places)[:TOPICS_ASKED])

        async def ask() -> None:
            for topic in waiting:
                counts[topic] = await self._count(topic, places[topic])

        async with trio.open_nursery() as nursery:
            for _ in range(PARALLEL_TOPICS):
                nursery.start_soon(ask)
        await self._window.sample()
        lags = furthest_behind(self._window)
        now = trio.current_time()
        rows = [
            {
                "topic": topic,
                "queues": queues[topic],
                "messages": count,
                "lag": lags.get(topic, "-"),
                "in/s": self._rates.of(topic, count, now),
            }
            for topic, count in sorted(counts.items())
        ]
        left = len(places) - len(rows)
        return TopSample(rows, silent, f"the first {TOPICS_ASKED}, {left} more" if left > 0 else "")

    async def _count(self, topic: str, addrs: Sequence[str]) -> int | None:
        """Return how many messages a topic has ever had; None if a broker does not say."""
        total = 0
        for addr in addrs:
            try:
                table = await self.admin.calls.topic_stats(addr, topic)
            except Error:
                return None
            total += sum(one.max_offset for one in table.offset_table.values())
        return total


def furthest_behind(window: LagWindow) -> dict[str, int | None]:
    """Return the greatest lag that a group is known to have, by topic; None if no group's lag there is known."""
    lags: dict[str, list[int]] = {}
    for (_, topic), queues in window.samples.items():
        found = [samples[-1].lag for samples in queues.values()]
        known = [lag for lag in found if lag is not None]
        lags.setdefault(window.client.namespace.unwrapped(topic), [])
        if len(known) == len(found):
            lags[window.client.namespace.unwrapped(topic)].append(sum(known))
    return {topic: max(found, default=None) for topic, found in lags.items()}


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
