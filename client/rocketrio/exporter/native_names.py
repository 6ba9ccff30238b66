"""Writes what a round found under the names that Apache's brokers have from 5.1.4 on, for brokers without a page.

Missing is what no request tells: messages and bytes by type, and histograms.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from rocketrio.admin.lag_values import GroupLag
from rocketrio.exporter.offsets import by_broker, known_sum
from rocketrio.exporter.rounds import BrokerFound, Round, is_retry
from rocketrio.exporter.runtime import runtime_numbers
from rocketrio_protocol import broker_metrics
from rocketrio_protocol.broker_metrics import (
    CONSUMERS,
    DISPATCH_BEHIND,
    FLUSH_BEHIND,
    GROUPS,
    LAG_LATENCY,
    LOCAL_DISK,
    PRODUCERS,
    RESERVED,
    STORAGE,
    TOPICS,
    client_kind,
    consumer_labels,
    lag_labels,
    node_labels,
    producer_labels,
)
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.exposition import label_text
from rocketrio_protocol.names import is_system_topic
from rocketrio_protocol.times import age_ms

LAG: Final = broker_metrics.LAG.described("Messages that are not committed.")
WATERMARK: Final = broker_metrics.WATERMARK.described("Requests that wait for a thread.")
_WAITING: Final = {
    "send": "send_threadpool_queue_size",
    "pull": "pull_threadpoolqueue_size",
    "query_message": "query_threadpoolqueue_size",
}
"""Processors, and the numbers of requests that wait for them."""


def native_names(found: Round) -> Iterator[str]:
    """Yield the metrics of masters, lag, and clients."""
    yield from _of_masters(found)
    yield from _of_lag(found)
    yield from _of_clients(found)


def _of_masters(found: Round) -> Iterator[str]:
    masters = [one for one in found.brokers if one.id == MASTER_ID and one.runtime is not None]
    numbers = {one.name: dict(runtime_numbers(one.runtime or {})) for one in masters}

    def used(one: BrokerFound) -> float | None:
        total = numbers[one.name].get("commitlogdir_capacity_total")
        free = numbers[one.name].get("commitlogdir_capacity_free")
        return total - free if total and free is not None else None

    def oldest(one: BrokerFound) -> float | None:
        stored_ms = numbers[one.name].get("earliest_message_timestamp", -1)
        return age_ms(stored_ms, found.now_ms) if stored_ms > 0 else None

    for family, labels, value_of in (
        (TOPICS, {}, lambda one: one.facts and len(one.facts.topics) + len(one.facts.unreadable)),
        (GROUPS, {}, lambda one: one.facts and len(one.facts.groups)),
        (STORAGE, LOCAL_DISK, used),
        (FLUSH_BEHIND, LOCAL_DISK, lambda one: numbers[one.name].get("remain_howmanydata_toflush")),
        (DISPATCH_BEHIND, LOCAL_DISK, lambda one: numbers[one.name].get("dispatch_behind_bytes")),
        (RESERVED, LOCAL_DISK, oldest),
    ):
        yield family.head()
        for one in masters:
            value = value_of(one)
            if value is not None:
                yield family.sample(
                    label_text({**node_labels(one.cluster, one.name), **labels}), value
                )
    yield WATERMARK.head()
    for one in masters:
        for processor, name in _WAITING.items():
            if name in numbers[one.name]:
                where = {**node_labels(one.cluster, one.name), "processor": processor}
                yield WATERMARK.sample(label_text(where), numbers[one.name][name])


def _of_lag(found: Round) -> Iterator[str]:
    lags: list[tuple[str, int, float | None]] = []
    for row in found.rows:
        for broker, queues in by_broker(row).items():
            lag = known_sum(queue.lag for queue in queues)
            if lag is None:
                continue
            oldest = [queue.oldest_seconds for queue in queues]
            known = [age for age in oldest if age is not None]
            age = max(known) if len(known) == len(oldest) else None
            where = label_text(node_labels(found.cluster_of(broker), broker))
            lags.append((f"{where},{group_labels(row)}", lag, age))
        yield ""
    yield LAG.head()
    for text, lag, _ in lags:
        yield LAG.sample(text, lag)
    yield LAG_LATENCY.head()
    for text, _, age in lags:
        if age is not None:
            yield LAG_LATENCY.sample(text, round(age * 1000))


def _of_clients(found: Round) -> Iterator[str]:
    yield CONSUMERS.head()
    for name, answers in found.details.items():
        where = node_labels(found.cluster_of(name), name)
        for group, members in answers.members.items():
            if members is None:
                continue
            kinds = Counter(
                client_kind(one.language, one.version) for one in members.connection_set
            )
            for kind, count in kinds.items():
                labels = consumer_labels(group, kind, members.consume_type, is_system=False)
                yield CONSUMERS.sample(label_text({**where, **labels}), count)
    yield PRODUCERS.head()
    for name, answers in found.details.items():
        where = node_labels(found.cluster_of(name), name)
        producers = (one for clients in answers.producers.values() for one in clients)
        kinds = Counter(client_kind(one.language, one.version) for one in producers)
        for kind, count in kinds.items():
            yield PRODUCERS.sample(label_text({**where, **producer_labels(kind)}), count)


def group_labels(row: GroupLag) -> str:
    """Return the text of the labels of a group on a topic."""
    topic = row.topic or ""
    is_system = is_system_topic(topic) and not is_retry(topic)
    return label_text(lag_labels(row.group, topic, is_system=is_system))
