"""Asks every broker how far all groups are, in O(brokers) requests a sample, until a verdict on each queue is possible.

    43    what was really committed; 317 reports 0 where nothing was
    317   how far all groups are, and where their queues end; the broker walks through all its offsets
    208   the same for one group: if few groups are asked for, or if 317 takes too long
    21    which topics a broker has, and how many queues       once a minute
    201   which groups it knows                               once a minute
    28    how old the first message of its log is             once a minute

Invariant: what a broker did not answer is None, never zero.
Invariant: no broker is asked by 317 twice at the same time.
Invariant: a broker that is silent at the last sample leaves no numbers there for what it stores.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs
import trio

from rocketrio.admin.admin_calls import WALK_TIMEOUT, AdminCalls
from rocketrio.admin.cluster_questions import registered_brokers
from rocketrio.client import ClientInstance
from rocketrio_protocol.bodies.stats import ConsumeStats
from rocketrio_protocol.bodies.topics import Permission
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import AccessRefusedError, BrokerError, Error, RequestTimeoutError
from rocketrio_protocol.lag import SAMPLE_EVERY, WINDOW, Sample, is_decided
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import is_system_group
from rocketrio_protocol.record.properties import decimal_value

ASKED_ONE_BY_ONE: Final = 16
"""Up to this number of groups are asked for by 208; more of them by 317."""

PARALLEL_REQUESTS: Final = 8
"""The requests to one broker that are under way at the same time."""

FACTS_AGE: Final = 45.0
"""Seconds for which topics and groups of a broker count as known: an exporter's window stays open for months."""

logger = logging.getLogger("rocketrio.admin")


@attrs.frozen
class Progress:
    """How far a group is in one queue, as its broker answered."""

    committed: int | None
    end: int | None
    last_consumed_ms: int | None
    """When the last consumed message was stored."""


@attrs.frozen
class BrokerFacts:
    """Facts about a broker that change rarely: they are asked for once a minute."""

    topics: Mapping[str, int]
    """The number of readable queues by topic."""
    unreadable: Collection[str]
    """The topics that may not be read, such as dead-letter topics of older brokers."""
    groups: Collection[str]
    log_began_ms: int | None
    """When the first message of its log was stored; None if unknown, or if the log never deleted anything."""


GroupTopic = tuple[str, str]

BrokerSample = dict[GroupTopic, dict[int, Progress]]
"""By group and topic, then by queue."""


@attrs.define
class LagSamples:
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


async def broker_facts(calls: AdminCalls, addr: str) -> BrokerFacts:
    """Ask a broker for what changes rarely. Raises NotReachableError, BrokerError."""
    topics = await calls.topics(addr)
    groups = await calls.groups(addr)
    runtime = await calls.runtime_info(addr)
    readable = {
        name: config.read_queue_nums
        for name, config in topics.items()
        if Permission.READ in Permission(config.perm)
    }
    began = decimal_value(runtime.get("earliestMessageTimeStamp"))
    has_deleted = bool(decimal_value(runtime.get("commitLogMinOffset")))
    return BrokerFacts(
        readable,
        topics.keys() - readable.keys(),
        list(groups),
        (began or None) if has_deleted else None,
    )


async def broker_sample(
    calls: AdminCalls,
    addr: str,
    wanted: Collection[str],
    worst_first: Callable[[Iterable[str]], list[str]],
) -> BrokerSample:
    """Ask a broker how far the wanted groups are, or all groups if none are named.

    Raises NotReachableError, BrokerError.

    If 317 takes too long, the groups are asked for one by one, in the order that `worst_first` gives, until as much
    time has passed again; the ends of the others are unknown then.
    """
    committed = await calls.all_offsets(addr)
    if wanted:
        committed = {key: table for key, table in committed.items() if key[0] in wanted}
    progress: dict[str, list[ConsumeStats]] = {}
    if wanted and len(wanted) <= ASKED_ONE_BY_ONE:
        await _ask_one_by_one(calls, addr, {group for group, _ in committed}, progress)
    else:
        try:
            progress = await calls.all_progress(addr)
        except (RequestTimeoutError, BrokerError) as error:
            logger.info("groups are asked for one by one addr=%s error=%s", addr, error)
            groups = worst_first({group for group, _ in committed})
            with trio.move_on_after(WALK_TIMEOUT):
                await _ask_one_by_one(calls, addr, groups, progress)
    return _combined(committed, progress)


async def _ask_one_by_one(
    calls: AdminCalls,
    addr: str,
    groups: Iterable[str],
    progress: dict[str, list[ConsumeStats]],
) -> None:
    """Ask for each group. Raises AccessRefusedError if each was refused: then nothing is known."""
    waiting = iter(list(groups))
    refused: list[AccessRefusedError] = []

    async def ask() -> None:
        for group in waiting:
            try:
                progress[group] = [await calls.consume_stats(addr, group, None)]
            except Error as error:
                if isinstance(error, AccessRefusedError):
                    refused.append(error)
                logger.info("progress unknown group=%s addr=%s error=%s", group, addr, error)

    async with trio.open_nursery() as nursery:
        for _ in range(PARALLEL_REQUESTS):
            nursery.start_soon(ask)
    if refused and not progress:
        raise refused[0]


def _combined(
    committed: Mapping[GroupTopic, Mapping[int, int]],
    progress: Mapping[str, Iterable[ConsumeStats]],
) -> BrokerSample:
    """Return what both answers say. Offsets of topics that exist no more, or that the group left, are in one only."""
    sample: BrokerSample = {}
    for group, tables in progress.items():
        for table in tables:
            for queue, found in table.offset_table.items():
                key = group, queue.topic
                has_committed = queue.queue_id in committed.get(key, ()) or found.consumer_offset
                sample.setdefault(key, {})[queue.queue_id] = Progress(
                    found.consumer_offset if has_committed else None,
                    found.broker_offset,
                    found.last_timestamp or None,
                )
    for (group, topic), offsets in committed.items():
        if group not in progress:
            sample[group, topic] = {
                queue_id: Progress(offset, None, None) for queue_id, offset in offsets.items()
            }
    return sample
