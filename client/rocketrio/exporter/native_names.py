"""Writes what a round found under the names that Apache's brokers have from 5.1.4 on, for brokers without a page.

Missing is what no request tells: messages and bytes by type, and histograms.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from rocketrio.admin.lag_values import GroupLag
from rocketrio.exporter.offsets import by_broker, known_sum
from rocketrio.exporter.rounds import BrokerFound, Round, is_retry
from rocketrio.exporter.runtime import runtime_numbers
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.exposition import Family, flag, label_text
from rocketrio_protocol.names import is_system_topic
from rocketrio_protocol.versions import version_name

LAG: Final = Family("rocketmq_consumer_lag_messages", "gauge", "Messages that are not committed.")
LAG_AGE: Final = Family(
    "rocketmq_consumer_lag_latency_milliseconds", "gauge", "Age of the first message not committed."
)
CONSUMERS: Final = Family("rocketmq_consumer_connections", "gauge", "Connections of consumers.")
PRODUCERS: Final = Family("rocketmq_producer_connections", "gauge", "Connections of producers.")
TOPICS: Final = Family("rocketmq_topic_number", "gauge", "Topics, with those of the system.")
GROUPS: Final = Family("rocketmq_consumer_group_number", "gauge", "Consumer groups.")
WATERMARK: Final = Family(
    "rocketmq_processor_watermark", "gauge", "Requests that wait for a thread."
)
STORAGE: Final = Family(
    "rocketmq_storage_size_bytes", "gauge", "Used bytes of the file system that has the log."
)
FLUSH_BEHIND: Final = Family(
    "rocketmq_storage_flush_behind_bytes", "gauge", "Bytes of the log that are not flushed."
)
DISPATCH_BEHIND: Final = Family(
    "rocketmq_storage_dispatch_behind_bytes", "gauge", "Bytes of the log without queue entries."
)
RESERVED: Final = Family(
    "rocketmq_storage_message_reserve_time_milliseconds", "gauge", "Age of the oldest message."
)
_WAITING: Final = {
    "send": "send_threadpool_queue_size",
    "pull": "pull_threadpoolqueue_size",
    "query_message": "query_threadpoolqueue_size",
}
"""Processors, and the numbers of requests that wait for them."""
_MODES: Final = {"CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}


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
        return max(0, found.now_ms - stored_ms) if stored_ms > 0 else None

    disk = {"storage_type": "local", "storage_medium": "disk"}
    for family, labels, value_of in (
        (TOPICS, {}, lambda one: one.facts and len(one.facts.topics) + len(one.facts.unreadable)),
        (GROUPS, {}, lambda one: one.facts and len(one.facts.groups)),
        (STORAGE, disk, used),
        (FLUSH_BEHIND, disk, lambda one: numbers[one.name].get("remain_howmanydata_toflush")),
        (DISPATCH_BEHIND, disk, lambda one: numbers[one.name].get("dispatch_behind_bytes")),
        (RESERVED, disk, oldest),
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
    yield LAG_AGE.head()
    for text, _, age in lags:
        if age is not None:
            yield LAG_AGE.sample(text, round(age * 1000))


def _of_clients(found: Round) -> Iterator[str]:
    yield CONSUMERS.head()
    for name, answers in found.details.items():
        where = node_labels(found.cluster_of(name), name)
        for group, members in answers.members.items():
            if members is None:
                continue
            mode = _MODES.get(members.consume_type, "pull")
            kinds = _kinds((one.language, one.version) for one in members.connection_set)
            for (language, version), count in kinds:
                labels = {
                    **where,
                    "consumer_group": group,
                    "language": language,
                    "version": version,
                    "consume_mode": mode,
                    "protocol_type": "remoting",
                    "is_system": flag(False),
                }
                yield CONSUMERS.sample(label_text(labels), count)
    yield PRODUCERS.head()
    for name, answers in found.details.items():
        where = node_labels(found.cluster_of(name), name)
        producers = (one for clients in answers.producers.values() for one in clients)
        for (language, version), count in _kinds((one.language, one.version) for one in producers):
            labels = {
                **where, "language": language, "version": version, "protocol_type": "remoting"
            }  # fmt: skip
            yield PRODUCERS.sample(label_text(labels), count)


def _kinds(clients: Iterable[tuple[str, int]]) -> Iterable[tuple[tuple[str, str], int]]:
    """Return language and version as labels have them, with the number of clients of each."""
    return Counter(
        (language.lower(), version_name(version).lower()) for language, version in clients
    ).items()


def node_labels(cluster: str, name: str) -> dict[str, object]:
    """Return the labels of a broker."""
    return {"cluster": cluster, "node_type": "broker", "node_id": name}


def group_labels(row: GroupLag) -> str:
    """Return the text of the labels of a group on a topic."""
    topic = row.topic or ""
    return label_text(
        {
            "consumer_group": row.group,
            "topic": topic,
            "is_retry": flag(is_retry(topic)),
            "is_system": flag(is_system_topic(topic) and not is_retry(topic)),
        }
    )
