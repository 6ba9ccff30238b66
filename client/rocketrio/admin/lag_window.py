"""Collects samples of how far groups are, until they suffice for a verdict on each queue.

Invariant: a broker that is silent at the last sample leaves no numbers there for what it stores.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs
import trio

from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.cluster_questions import registered_brokers
from rocketrio.admin.lag_sample import (
    BrokerFacts,
    BrokerSample,
    GroupTopic,
    Progress,
    broker_facts,
    broker_sample,
)
from rocketrio.client import ClientInstance
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error
from rocketrio_protocol.lag import (
    SAMPLE_EVERY,
    WINDOW,
    Sample,
    is_decided,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import is_system_group

FACTS_AGE: Final = 45.0
"""Seconds for which topics and groups of a broker count as known: an exporter's window stays open for months."""


@attrs.define
class LagWindow:
    """The samples of the last seconds, of all groups or of those that are named."""

    client: ClientInstance
    calls: AdminCalls
    groups: Collection[str] = ()
    topic: str | None = None
    length: float = WINDOW
    """Seconds; with 0 there is one sample."""
    include_system: bool = False
    masters: dict[str, str] = attrs.field(init=False, factory=dict)
    """Addresses by broker name."""
    facts: dict[str, BrokerFacts] = attrs.field(init=False, factory=dict)
    silent: dict[str, str] = attrs.field(init=False, factory=dict)
    """Why brokers did not answer at the last sample, by broker name."""
    samples: dict[GroupTopic, dict[MessageQueue, deque[Sample]]] = attrs.field(
        init=False, factory=dict
    )
    """The oldest sample of a queue comes first."""
    last: dict[GroupTopic, dict[MessageQueue, Progress]] = attrs.field(init=False, factory=dict)
    """What brokers answered at the last sample."""
    times: deque[float] = attrs.field(init=False, factory=deque)
    _facts_at: dict[str, float] = attrs.field(init=False, factory=dict)

    async def run(self) -> None:
        """Take samples until the window is full, or until no more samples can change a verdict."""
        await self.sample()
        while not self.is_full:
            await trio.sleep_until(self.next_at)
            await self.sample()

    @property
    def is_full(self) -> bool:
        """Whether the samples cover the window, or no more of them can change a verdict."""
        return self.times[-1] >= self.times[0] + self.length or self.is_decided

    @property
    def next_at(self) -> float:
        """When the next sample is due."""
        return self.times[-1] + min(SAMPLE_EVERY, self.length)

    @property
    def is_decided(self) -> bool:
        """Whether every queue keeps up, or has no known lag that further samples could judge."""
        return all(
            is_decided(samples) for queues in self.samples.values() for samples in queues.values()
        )

    async def sample(self) -> None:
        """Ask every broker once. Raises NoBrokerRegisteredError, and NotReachableError without a name server."""
        brokers = (await registered_brokers(self.client)).broker_addr_table
        self.masters = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in brokers.items()
            if MASTER_ID in broker.broker_addrs
        }
        known = dict.fromkeys(self.facts, "it is not registered any more")
        self.silent = {**known, **dict.fromkeys(brokers, "it has no master now")}
        found: dict[str, tuple[float, BrokerSample]] = {}

        async def ask(name: str, addr: str) -> None:
            try:
                now = trio.current_time()
                if name not in self.facts or now - self._facts_at[name] > FACTS_AGE:
                    self.facts[name] = await broker_facts(self.calls, addr)
                    self._facts_at[name] = now
                wanted = [self.client.namespace.wrapped(group) for group in self.groups]
                sample = await broker_sample(self.calls, addr, wanted, self._worst_first)
            except Error as error:
                self.silent[name] = str(error).removesuffix(f". {error.advice}")
            else:
                found[name] = trio.current_time(), sample
                del self.silent[name]

        async with trio.open_nursery() as nursery:
            for name, addr in self.masters.items():
                nursery.start_soon(ask, name, addr)
        self.times.append(trio.current_time())
        self._add(found)

    def _worst_first(self, groups: Iterable[str]) -> list[str]:
        lags: dict[str, int] = defaultdict(int)
        for (group, _), queues in self.samples.items():
            lags[group] += sum(samples[-1].lag or 0 for samples in queues.values())
        return sorted(groups, key=lambda group: (-lags[group], group))

    def _add(self, found: Mapping[str, tuple[float, BrokerSample]]) -> None:
        """Add one sample of each broker; a silent broker's queues get one without numbers."""
        before, self.samples, self.last = self.samples, {}, {}
        for key, queues in before.items():
            for queue, samples in queues.items():
                if queue.broker_name in self.silent:
                    samples.append(Sample(self.times[-1], None, None))
                    self.samples.setdefault(key, {})[queue] = samples
        for name, (at, sample) in found.items():
            for key, table in sample.items():
                if not self.is_wanted(*key):
                    continue
                old = before.get(key, {})
                for queue_id, progress in table.items():
                    queue = MessageQueue(key[1], name, queue_id)
                    samples = old.get(queue) or deque()
                    samples.append(Sample(at, progress.committed, progress.end))
                    self.samples.setdefault(key, {})[queue] = samples
                    self.last.setdefault(key, {})[queue] = progress
        begin = self.times[-1] - self.length - SAMPLE_EVERY / 2
        while self.times[0] < begin:
            self.times.popleft()
        for queues in self.samples.values():
            for samples in queues.values():
                while len(samples) > 1 and samples[0].at < begin:
                    samples.popleft()

    def is_wanted(self, group: str, topic: str | None) -> bool:
        """Return whether a group, named as brokers name it, belongs into the report."""
        space = self.client.namespace
        if self.groups:
            if space.unwrapped(group) not in self.groups and group not in self.groups:
                return False
        elif not self.include_system and is_system_group(group):
            return False
        if self.topic is not None and (topic is None or space.unwrapped(topic) != self.topic):
            return False
        return not space or bool(space.known([group]))
