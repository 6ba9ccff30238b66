"""What is counted while the broker works if metrics are on, in plain numbers.

A broker with metrics uses the classes of this file in place of their base classes from its start. A broker without
them runs the same code as if this file did not exist.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import attrs

from rocketrio_broker.metrics.broker_stats_manager import KEYS_LIMIT, BrokerStatsManager, KeyCounts
from rocketrio_broker.waiting.answers import WaitingAnswer, WaitingAnswers
from rocketrio_protocol.histogram import Histogram
from rocketrio_protocol.record.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TRANSACTION_PREPARED,
)

SIZES: Final = (1024.0, 4096.0, 524288.0, 1048576.0, 2097152.0, 4194304.0)
CREATION_MS: Final = (10.0, 100.0, 1000.0, 3000.0, 5000.0)
FINISH_SECONDS: Final = (5.0, 60.0, 600.0, 3600.0, 43200.0, 86400.0)
WAIT_SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)

_TRANSACTION: Final = PROPERTY_TRANSACTION_PREPARED + NAME_VALUE_SEPARATOR
_DELAY: Final = PROPERTY_DELAY_TIME_LEVEL + NAME_VALUE_SEPARATOR
_FIFO: Final = PROPERTY_SHARDING_KEY + NAME_VALUE_SEPARATOR
NORMAL: Final = "normal"
_SMALL: Final = int(SIZES[0])

_NOTHING: Final = KeyCounts()

Key = TypeVar("Key")


@attrs.define(eq=False)
class Incoming:
    """The messages of one topic and type that were sent."""

    messages: int = 0
    size: int = 0
    sizes: Histogram = attrs.Factory(lambda: Histogram(SIZES))

    def add(self, messages: int, size: int) -> None:
        """Count a request; a batch counts once in the histogram, by its average."""
        self.messages += messages
        self.size += size
        self.sizes.add(size if messages == 1 else size / messages)


class CountedStats(BrokerStatsManager):
    """Counts since the start of the broker, beside those of the last minute, hour and day.

    A normal message of at most a kilobyte costs two comparisons more than without metrics: what is counted of a topic
    and is neither of another type nor large must be such messages.
    """

    def __init__(self, cluster_name: Callable[[], str]) -> None:
        super().__init__(cluster_name)
        self.dead: dict[tuple[str, str], int] = {}
        """Dead letters by group and topic."""
        self.committed: dict[str, Histogram] = {}
        """By topic, the seconds from the birth of messages to their commit."""
        self.rolled_back: dict[str, int] = {}
        self.topic_creations: dict[tuple[str, bool], Histogram] = {}
        """Milliseconds of requests that create or change a topic, by result and whether it is the system's."""
        self.group_creations: dict[str, Histogram] = {}
        """The same of groups, by result."""
        self._unusual: dict[tuple[str, str], Incoming] = {}
        """By topic and type: messages of other types, large ones, and batches."""
        self._put: dict[str, KeyCounts] = {}
        self._got: dict[str, KeyCounts] = {}

    def put(self, topic: str, messages: int, size: int, properties: str | None = None) -> None:
        # The lines of the base class again: this runs with every send, and a call would add a tenth to it.
        counts = self._counting.puts.get(topic)
        if counts is None:
            counts = self._counting.puts[topic] = KeyCounts()
        counts.times += 1
        counts.messages += messages
        counts.size += size
        if (
            messages != 1
            or size > _SMALL
            or (
                properties
                and (_FIFO in properties or _DELAY in properties or _TRANSACTION in properties)
            )
        ):
            key = topic, message_type(properties or "")
            unusual = self._unusual.get(key)
            if unusual is None:
                if len(self._unusual) >= KEYS_LIMIT:
                    return
                unusual = self._unusual[key] = Incoming()
            unusual.add(messages, size)

    def dead_letter(self, group: str, topic: str) -> None:
        _count(self.dead, (group, topic))

    def transaction_ended(self, topic: str, seconds: float | None) -> None:
        if seconds is None:
            _count(self.rolled_back, topic)
            return
        histogram = self.committed.get(topic)
        if histogram is None:
            if len(self.committed) >= KEYS_LIMIT:
                return
            histogram = self.committed[topic] = Histogram(FINISH_SECONDS)
        histogram.add(seconds)

    def sample(self) -> None:
        _move(self._counting.puts, self._put)
        _move(self._counting.gets, self._got)
        for topic, type_ in list(self._unusual):
            if topic not in self._put:  # Otherwise it would be subtracted from nothing.
                del self._unusual[topic, type_]
        super().sample()

    def incoming(self) -> Iterator[tuple[str, str, Incoming]]:
        """Yield topic, type and messages of what came in since the start."""
        others: defaultdict[str, list[tuple[str, Incoming]]] = defaultdict(list)
        for (topic, type_), unusual in self._unusual.items():
            others[topic].append((type_, unusual))
        for topic in list(dict.fromkeys((*self._put, *self._counting.puts))):
            total = _sum(self._put, self._counting.puts, topic)
            normal = Incoming(total.messages, total.size)
            normal.sizes.counts[0], normal.sizes.sum = total.times, float(total.size)
            for type_, unusual in others[topic]:
                normal.sizes.counts[0] -= sum(unusual.sizes.counts)
                normal.sizes.sum -= unusual.size
                if type_ == NORMAL:
                    normal.sizes.join(unusual.sizes)
                else:
                    normal.messages -= unusual.messages
                    normal.size -= unusual.size
                    yield topic, type_, unusual
            if normal.messages:
                yield topic, NORMAL, normal

    def outgoing(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield topic, group, messages and bytes of what each group was given since the start."""
        for key in list(dict.fromkeys((*self._got, *self._counting.gets))):
            total = _sum(self._got, self._counting.gets, key)
            topic, _, group = key.partition("@")
            yield topic, group, total.messages, total.size


def _move(counting: dict[str, KeyCounts], totals: dict[str, KeyCounts]) -> None:
    for key, counts in counting.items():
        totals.setdefault(key, KeyCounts()).add(counts)
    while len(totals) > KEYS_LIMIT:
        del totals[next(iter(totals))]


def _sum(totals: dict[str, KeyCounts], counting: dict[str, KeyCounts], key: str) -> KeyCounts:
    total = KeyCounts()
    total.add(totals.get(key, _NOTHING))
    total.add(counting.get(key, _NOTHING))
    return total


class CountedAnswers(WaitingAnswers):
    """Counts how long sends wait for the disk and for slaves."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.disk_waits = Histogram(WAIT_SECONDS)
        self.slave_waits = Histogram(WAIT_SECONDS)

    def _frame(self, waiting: WaitingAnswer) -> bytes:
        if waiting.flushed_at:
            self.disk_waits.add(waiting.flushed_at - waiting.begin)
        if waiting.replicated_at:
            self.slave_waits.add(waiting.replicated_at - waiting.begin)
        return super()._frame(waiting)


def message_type(properties: str) -> str:
    """Return the type of a message by its properties, as TopicMessageType of RocketMQ 5."""
    if _TRANSACTION in properties:
        return "transaction"
    if _DELAY in properties:
        return "delay"
    return "fifo" if _FIFO in properties else NORMAL


def _count(counts: dict[Key, int], key: Key) -> None:
    if key in counts or len(counts) < KEYS_LIMIT:
        counts[key] = counts.get(key, 0) + 1
