"""A cluster that answers the calls of the lag window from tables, on a clock that a test sets."""

from typing import Any, cast

import attrs
import trio
from tests.client.routes import route
from tests.support.clocks import SettableClock

from rocketrio import MessageQueue
from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.lag import LagWindow
from rocketrio.cluster.namespace import NO_NAMESPACE, Namespace
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo, TopicRouteData
from rocketrio_protocol.bodies.stats import (
    BrokerStatsItem,
    ConsumerConnection,
    ConsumeStats,
    OffsetWrapper,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.errors import (
    ConsumerNotOnlineError,
    NotReachableError,
    RequestCodeNotSupportedError,
    RequestTimeoutError,
)


@attrs.define
class Names:
    """A name server of brokers `a`, `b`, … at `a:1`, `b:1`, …, all of which store `orders`."""

    brokers: list[str]
    addresses: tuple[str, ...] = ("names:1",)

    async def cluster_info(self) -> ClusterInfo:
        table = {name: BrokerData("c", name, {0: f"{name}:1"}) for name in self.brokers}
        return ClusterInfo(table, {"c": self.brokers})

    async def topic_route(self, topic: str) -> TopicRouteData:
        return route({name: {0: f"{name}:1"} for name in self.brokers}, queues=1)


@attrs.define
class FakeClient:
    name_servers: Names
    wall_clock: SettableClock = attrs.Factory(SettableClock)
    namespace: Namespace = NO_NAMESPACE


@attrs.define
class FakeCalls(AdminCalls):
    """Brokers with one queue of `orders` each, in which `billing` has committed 5 of 9."""

    api: Any = None
    committed: dict[str, dict[tuple[str, str], dict[int, int]]] = attrs.Factory(dict)
    ends: dict[str, int] = attrs.Factory(dict)
    extra_topics: tuple[str, ...] = ()
    runtime: dict[str, str] = attrs.Factory(dict)
    last_consumed: int = 0
    delay_ms: int = -1
    min_offset: int = 0
    members: ConsumerConnection | None = None
    silent: set[str] = attrs.Factory(set)
    slow_walk: bool = False
    asked: list[tuple[str, str]] = attrs.Factory(list)

    def _ask(self, what: str, addr: str) -> str:
        self.asked.append((what, addr))
        if addr in self.silent:
            raise NotReachableError(f"{addr} is away")
        return addr.partition(":")[0]

    async def topics(self, addr: str) -> dict[str, TopicConfig]:
        self._ask("topics", addr)
        return {name: TopicConfig(name, 1, 1) for name in ("orders", *self.extra_topics)}

    async def groups(self, addr: str) -> dict[str, dict[str, Any]]:
        self._ask("groups", addr)
        return {"billing": {}}

    async def runtime_info(self, addr: str) -> dict[str, str]:
        self._ask("runtime", addr)
        return self.runtime

    async def all_offsets(self, addr: str) -> dict[tuple[str, str], dict[int, int]]:
        return self.committed.get(self._ask("offsets", addr), {("billing", "orders"): {0: 5}})

    async def all_progress(self, addr: str) -> dict[str, list[ConsumeStats]]:
        self._ask("walk", addr)
        if self.slow_walk:
            raise RequestTimeoutError("no answer within 30 s")
        return {
            group: [await self.consume_stats(addr, group, None)]
            for group, _ in await self.all_offsets(addr)
        }

    async def consume_stats(self, addr: str, group: str, topic: str | None) -> ConsumeStats:
        name = self._ask(f"group {group}", addr)
        await trio.lowlevel.checkpoint()
        return ConsumeStats(
            {
                MessageQueue(topic, name, queue_id): OffsetWrapper(
                    self.ends.get(name, 9), offset, self.last_consumed
                )
                for (owner, topic), table in (await self.all_offsets(addr)).items()
                if owner == group
                for queue_id, offset in table.items()
            }
        )

    async def consumer_connections(self, addr: str, group: str) -> ConsumerConnection:
        self._ask("members", addr)
        if self.members is None:
            raise ConsumerNotOnlineError("none")
        return self.members

    async def time_spans(self, addr: str, group: str, topic: str) -> list[QueueTimeSpan]:
        span = QueueTimeSpan.of(MessageQueue(topic, self._ask("times", addr), 0))
        span.delay_time = self.delay_ms
        return [span]

    async def topic_stats(self, addr: str, topic: str) -> TopicStatsTable:
        name = self._ask("bounds", addr)
        bounds = TopicOffset(self.min_offset, self.ends.get(name, 9), 0)
        return TopicStatsTable({MessageQueue(topic, name, 0): bounds})

    async def events(self, addr: str, **asked: Any) -> Any:
        raise RequestCodeNotSupportedError("Apache's brokers keep no events")

    async def counted(self, addr: str, name: str, key: str, period: Any) -> BrokerStatsItem:
        return BrokerStatsItem({"TOPIC_PUT_NUMS": 60, "GROUP_GET_NUMS": 120}[name])


def window_of(
    calls: FakeCalls, *brokers: str, clock: SettableClock | None = None, **options: Any
) -> LagWindow:
    client = FakeClient(Names(list(brokers)), clock or SettableClock())
    return LagWindow(cast(Any, client), calls, **options)
