"""Writes what a round found under the names of Apache's rocketmq-exporter, with its labels, for its boards.

Answers to: RMQMetricsCollector, MetricsCollectTask and ClientMetricTaskRunnable of rocketmq-exporter.
Unlike Java: the rates of topics and groups are what their offsets grew by since the last round.
Unlike Java: what is unknown has no sample, where Java has 0 or -1.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final

from rocketrio.exporter.details import GROUP_SIZE, SENT_BACK, TOPIC_SIZE
from rocketrio.exporter.offsets import by_broker
from rocketrio.exporter.rounds import BrokerFound, Round, is_retry
from rocketrio.exporter.runtime import rate, runtime_numbers
from rocketrio_protocol.bodies.running_info import ConsumeStatus
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.exposition import Family, label_text
from rocketrio_protocol.names import DEAD_LETTER_PREFIX
from rocketrio_protocol.remoting.ports import split_addr

Samples = Iterable[tuple[str, float | None]]
"""Labels and values; None is unknown."""

_OF_CLIENTS: Final[dict[str, Callable[[ConsumeStatus], float]]] = {
    "rocketmq_client_consume_fail_msg_count": attrgetter("consume_failed_msgs"),
    "rocketmq_client_consume_fail_msg_tps": attrgetter("consume_failed_tps"),
    "rocketmq_client_consume_ok_msg_tps": attrgetter("consume_ok_tps"),
    "rocketmq_client_consume_rt": attrgetter("consume_rt"),
    "rocketmq_client_consumer_pull_rt": attrgetter("pull_rt"),
    "rocketmq_client_consumer_pull_tps": attrgetter("pull_tps"),
}
_CLUSTERING: Final = 1
"""The number of a message model, as `msgModel` has it; broadcasting is 0, and has no lag."""


def exporter_names(found: Round) -> Iterator[str]:
    """Yield the metrics."""
    yield from _of_brokers(found.brokers)
    yield from _of_topics(found)
    yield from _of_groups(found)
    yield from _of_members(found)
    yield from _of_producers(found)


def _of_topics(found: Round) -> Iterator[str]:
    ends, retries, dead, speeds = [], [], [], []
    for (broker, topic), total in found.ends.items():
        where = {"cluster": found.cluster_of(broker), "broker": broker}
        if topic.startswith(DEAD_LETTER_PREFIX):
            group = topic.removeprefix(DEAD_LETTER_PREFIX)
            dead.append((label_text({**where, "group": group}), total.value))
            continue
        text = label_text({**where, "topic": topic})
        if is_retry(topic):
            retries.append((text, total.value))
        else:
            ends.append((text, total.value))
            speeds.append((text, total.per_second))
    yield from _gauge("rocketmq_producer_offset", "Sum of the ends of a topic's queues.", ends)
    yield from _gauge("rocketmq_topic_retry_offset", "The same of retry topics.", retries)
    yield from _gauge("rocketmq_topic_dlq_offset", "The same of dead letters.", dead)
    yield from _gauge("rocketmq_producer_tps", "Messages stored in a second.", speeds)
    yield from _gauge(
        "rocketmq_producer_message_size",
        "Bytes stored in a second.",
        _counted(found, TOPIC_SIZE, attrgetter("tps")),
    )


def _of_groups(found: Round) -> Iterator[str]:
    committed, speeds = [], []
    for (broker, topic, group), total in found.committed.items():
        text = _on_topic(found, broker, topic, group)
        committed.append((text, total.value))
        speeds.append((text, total.per_second))
    ages: list[tuple[str, float]] = []
    for row in found.rows:
        for broker, queues in by_broker(row).items():
            known = [queue.oldest_seconds for queue in queues]
            if None not in known:
                oldest = max(age for age in known if age is not None)
                text = _on_topic(found, broker, row.topic or "", row.group)
                ages.append((text, round(1000 * oldest)))
        yield ""
    yield from _gauge("rocketmq_consumer_offset", "Sum of a group's offsets.", committed)
    yield from _gauge("rocketmq_consumer_tps", "Messages committed in a second.", speeds)
    yield from _gauge(
        "rocketmq_consumer_message_size",
        "Bytes delivered in a second.",
        _counted(found, GROUP_SIZE, attrgetter("tps")),
    )
    yield from _gauge(
        "rocketmq_send_back_nums",
        "Messages handed back in the last minute.",
        _counted(found, SENT_BACK, attrgetter("sum")),
    )
    yield from _gauge(
        "rocketmq_group_get_latency_by_storetime", "Age of the first unread message.", ages
    )
    for name, wants_retry in (("rocketmq_group_diff", False), ("rocketmq_group_retrydiff", True)):
        yield from _gauge(
            name,
            "Messages that are not committed.",
            (
                (_of_diff(found, row.group, row.topic or ""), row.lag)
                for row in found.rows
                if is_retry(row.topic or "") == wants_retry
            ),
        )


def _on_topic(found: Round, broker: str, topic: str, group: str) -> str:
    cluster = found.cluster_of(broker)
    return label_text({"cluster": cluster, "broker": broker, "topic": topic, "group": group})


def _of_diff(found: Round, group: str, topic: str) -> str:
    count = found.member_counts.get(group)
    return label_text(
        {
            "group": group,
            "topic": topic,
            "countOfOnlineConsumers": "" if count is None else count,
            "msgModel": _CLUSTERING,
        }
    )


def _counted(found: Round, what: str, value_of: Callable[[object], float]) -> Samples:
    for broker, answers in found.details.items():
        where = {"cluster": found.cluster_of(broker), "broker": broker}
        for (name, of), item in answers.counts.items():
            if name == what:
                labels = dict(zip(("topic", "group"), of, strict=False))
                yield label_text({**where, **labels}), value_of(item)


def _of_members(found: Round) -> Iterator[str]:
    counts: list[tuple[str, float]] = []
    clients: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for answers in found.details.values():
        for group, members in answers.members.items():
            connections = [] if members is None else members.connection_set
            text = label_text(
                {
                    "caddr": ",".join(one.client_addr for one in connections),
                    "localaddr": ",".join(one.client_id for one in connections),
                    "group": group,
                }
            )
            counts.append((text, len(connections)))
        for (group, client_id), (connection, topics) in answers.running.items():
            for topic, status in topics.items():
                text = label_text(
                    {
                        "clientAddr": connection.client_addr,
                        "clientId": client_id,
                        "group": group,
                        "topic": topic,
                    }
                )
                for name, value_of in _OF_CLIENTS.items():
                    clients[name].append((text, value_of(status)))
        yield ""
    yield from _gauge("rocketmq_group_count", "Members of a group.", counts)
    for name, samples in clients.items():
        yield from _gauge(name, "What a member counts.", samples)


def _of_producers(found: Round) -> Iterator[str]:
    yield from _gauge(
        "rocketmq_producer_count",
        "Producers of a group.",
        (
            (
                label_text({"cluster": found.cluster_of(broker), "broker": broker, "group": group}),
                len(producers),
            )
            for broker, answers in found.details.items()
            for group, producers in answers.producers.items()
        ),
    )


def _of_brokers(brokers: Iterable[BrokerFound]) -> Iterator[str]:
    series: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    ends: dict[str, float] = {}
    for one in brokers:
        numbers = dict(runtime_numbers(one.runtime or {}))
        if one.runtime is None:
            continue
        host, _ = split_addr(one.addr)
        base = {"cluster": one.cluster, "brokerIP": one.addr}
        plain = label_text({**base, "broker": one.name})
        for name, key in (
            ("rocketmq_broker_tps", "putTps"),
            ("rocketmq_broker_qps", "getTotalTps"),
        ):
            value = rate(one.runtime, key)
            if value is not None and one.id == MASTER_ID:
                series[name].append((plain, value))
        end = numbers.get("commitlog_maxoffset")
        if end is not None and one.id == MASTER_ID:
            ends[one.name] = end
        elif end is not None and one.name in ends:  # Masters come first.
            # Negative as in Java, if the slave answered later, or has what its master lacks.
            series["rocketmq_broker_commitlog_diff"].append((plain, ends[one.name] - end))
        detailed = label_text(
            {
                **base,
                "brokerHost": host,
                "des": one.runtime.get("brokerVersionDesc", ""),
                "boottime": one.runtime.get("bootTimestamp", ""),
                "broker_version": one.runtime.get("brokerVersion", ""),
            }
        )
        for name, value in numbers.items():
            series[f"rocketmq_brokeruntime_{name}"].append((detailed, value))
    for name, samples in series.items():
        yield from _gauge(name, "As rocketmq-exporter has it.", samples)


def _gauge(name: str, meaning: str, samples: Samples) -> Iterator[str]:
    family = Family(name, "gauge", meaning)
    yield family.head()
    for text, value in samples:
        if value is not None:
            yield family.sample(text, value)
