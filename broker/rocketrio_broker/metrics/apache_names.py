"""Writes the metrics of Apache's brokers; their names, texts and labels are in the protocol's `broker_metrics.py`.

Answers to: BrokerMetricsManager, DefaultStoreMetricsManager, ConsumerLagCalculator, TransactionMetrics.
Unlike Java: a slave has no metrics of topics, groups and clients, so that a sum over brokers counts nothing twice.
Unlike Java: samples have no time, so that Prometheus forgets a series at once when it ends.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from rocketrio_broker.metrics.counts import CountedStats, Incoming
from rocketrio_broker.metrics.group_lags import TopicLag
from rocketrio_protocol import broker_metrics, names
from rocketrio_protocol.broker_metrics import (
    COMMITTED,
    CONSUMERS,
    DEAD_LETTERS,
    DISPATCH_BEHIND,
    FINISHED,
    FLUSH_BEHIND,
    GROUP_CREATIONS,
    GROUPS,
    HALF,
    IN_FLIGHT,
    LAG,
    LAG_LATENCY,
    LOCAL_DISK,
    MESSAGE_SIZE,
    MESSAGES_IN,
    MESSAGES_OUT,
    PERMISSION,
    PRODUCERS,
    QUEUEING,
    READY,
    RESERVED,
    ROLLED_BACK,
    STORAGE,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    TOPIC_CREATIONS,
    TOPICS,
    WATERMARK,
    client_kind,
    consumer_labels,
    producer_labels,
)
from rocketrio_protocol.exposition import Family, flag, histogram_text
from rocketrio_protocol.lag import lag_of
from rocketrio_protocol.times import age_ms

if TYPE_CHECKING:
    from rocketrio_broker.clients.connected import ClientChannelInfo
    from rocketrio_broker.state import BrokerState

PROCESSORS: Final = (
    *("send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat"),
    *("lite_pull", "transaction", "consumer_manager", "admin", "reply"),
)

Named = Callable[..., str]
"""Returns the text of labels, after the common ones."""


def node(broker: "BrokerState", labels: Named) -> Iterator[str]:
    """Yield the metrics of the broker and its store, which slaves have too."""
    yield PERMISSION.alone(labels(), broker.config.broker.broker_permission)
    yield TOPICS.alone(labels(), len(broker.topics.topic_config_table))
    yield GROUPS.alone(labels(), len(broker.groups.subscription_group_table))
    yield WATERMARK.head()
    for processor in PROCESSORS:
        yield WATERMARK.sample(labels(processor=processor), 0)
    store = broker.store
    where = labels(**LOCAL_DISK)
    total, free = store.disk_capacity
    yield STORAGE.alone(where, total - free if total else None)
    end = store.max_physical_offset
    yield FLUSH_BEHIND.alone(where, lag_of(store.flushed.value, end))
    yield DISPATCH_BEHIND.alone(where, lag_of(store.dispatched.value, end))
    oldest_ms = store.earliest_message_time()
    age = None if oldest_ms is None else age_ms(oldest_ms, broker.wall_clock.now_ms())
    yield RESERVED.alone(where, age)


def traffic(stats: CountedStats, labels: Named, limit: int) -> Iterator[str]:
    """Yield what came in by topic and went out by group; retry topics do not count as going out, as in Java."""
    incoming: list[tuple[str, Incoming]] = []
    for topic, type_, counts in stats.incoming():
        if len(incoming) < limit:
            text = labels(topic=topic, message_type=type_, is_system=_system(topic))
            incoming.append((text, counts))
            yield ""
    yield MESSAGES_IN.head()
    for text, counts in incoming:
        yield MESSAGES_IN.sample(text, counts.messages)
    yield THROUGHPUT_IN.head()
    for text, counts in incoming:
        yield THROUGHPUT_IN.sample(text, counts.size)
    yield MESSAGE_SIZE.head()
    for text, counts in incoming:
        yield histogram_text(counts.sizes, MESSAGE_SIZE.name, text)
    outgoing: list[tuple[str, int, int]] = []
    for topic, group, messages, size in stats.outgoing():
        if len(outgoing) < limit and not topic.startswith(names.RETRY_PREFIX):
            text = labels(topic=topic, consumer_group=group, is_system=_system(topic, group))
            outgoing.append((text, messages, size))
            yield ""
    yield MESSAGES_OUT.head()
    for text, messages, _ in outgoing:
        yield MESSAGES_OUT.sample(text, messages)
    yield THROUGHPUT_OUT.head()
    for text, _, size in outgoing:
        yield THROUGHPUT_OUT.sample(text, size)
    yield DEAD_LETTERS.head()
    for (group, topic), count in list(stats.dead.items())[:limit]:
        text = labels(topic=topic, consumer_group=group, is_system=_system(topic, group))
        yield DEAD_LETTERS.sample(text, count)


def transactions(
    broker: "BrokerState", stats: CountedStats, labels: Named, limit: int
) -> Iterator[str]:
    """Yield the open transactions, and how others ended, by topic."""
    if broker.ledger.is_loaded:
        open_ = Counter(dict.fromkeys((*stats.committed, *stats.rolled_back), 0))
        for topic in broker.ledger.undecided_topics():
            if topic is not None:
                open_[topic] += 1
            yield ""
        yield HALF.head()
        for topic, count in list(open_.items())[:limit]:
            yield HALF.sample(labels(topic=topic), count)
    committed = list(stats.committed.items())[:limit]
    yield COMMITTED.head()
    for topic, seconds in committed:
        yield COMMITTED.sample(labels(topic=topic), sum(seconds.counts))
    yield ROLLED_BACK.head()
    for topic, count in list(stats.rolled_back.items())[:limit]:
        yield ROLLED_BACK.sample(labels(topic=topic), count)
    yield FINISHED.head()
    for topic, seconds in committed:
        yield histogram_text(seconds, FINISHED.name, labels(topic=topic))


def creations(stats: CountedStats, labels: Named) -> Iterator[str]:
    """Yield how long requests took that create topics and groups."""
    yield TOPIC_CREATIONS.head()
    for (status, is_system), times in list(stats.topic_creations.items()):
        text = labels(invocation_status=status, is_system=flag(is_system))
        yield histogram_text(times, TOPIC_CREATIONS.name, text)
    yield GROUP_CREATIONS.head()
    for status, times in list(stats.group_creations.items()):
        yield histogram_text(times, GROUP_CREATIONS.name, labels(invocation_status=status))


_LAG_NUMBERS: Final[tuple[tuple[Family, Callable[[TopicLag], int | None]], ...]] = (
    (LAG, attrgetter("lag")),
    (LAG_LATENCY, attrgetter("lag_ms")),
    (IN_FLIGHT, attrgetter("in_flight")),
    (QUEUEING, attrgetter("queueing_ms")),
    (READY, attrgetter("ready")),
)


def lags(found: Sequence[tuple[str, TopicLag]]) -> Iterator[str]:
    """Yield the lag of groups, each with its labels; an unknown number has no sample."""
    for family, number_of in _LAG_NUMBERS:
        yield family.head()
        for text, each in found:
            number = number_of(each)
            if number is not None:
                yield family.sample(text, number)


def lag_labels(labels: Named, each: TopicLag) -> str:
    """Return the labels of a group's lag."""
    is_system = _is_system(each.topic, each.group)
    return labels(**broker_metrics.lag_labels(each.group, each.topic, is_system=is_system))


def clients(broker: "BrokerState", labels: Named, limit: int) -> Iterator[str]:
    """Yield the connections of consumers and producers, by language and version."""
    yield CONSUMERS.head()
    for group, info in list(broker.consumers.consumer_table.items())[:limit]:
        is_system = _is_system(group=group)
        kinds = Counter(_kind(client) for client in info.channels.values())
        for kind, count in kinds.items():
            where = consumer_labels(group, kind, info.consume_type, is_system=is_system)
            yield CONSUMERS.sample(labels(**where), count)
    producers: Counter[tuple[str, str]] = Counter()
    for channels in list(broker.producers.group_channel_table.values()):
        producers.update(_kind(client) for client in channels.values())
        yield ""
    yield PRODUCERS.head()
    for kind, count in producers.items():
        yield PRODUCERS.sample(labels(**producer_labels(kind)), count)


def _kind(client: "ClientChannelInfo") -> tuple[str, str]:
    return client_kind(client.language.name, client.version)


def _system(topic: str = "", group: str = "") -> str:
    return flag(_is_system(topic, group))


def _is_system(topic: str = "", group: str = "") -> bool:
    return (
        topic in names.SYSTEM_TOPICS
        or topic.startswith(names.SYSTEM_TOPIC_PREFIX)
        or names.is_system_group(group)
    )
