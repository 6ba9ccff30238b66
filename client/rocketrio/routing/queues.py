"""Computes from a route the queues to send to or read from.

Invariant: the result only depends on the route and is sorted, so that every client sees the same list.
Answers to: MQClientInstance.topicRouteData2TopicPublishInfo, topicRouteData2TopicSubscribeInfo.
Unlike Java: messages with a key are spread over the writable queues of all brokers, even if their master is away; a
send to such a queue fails instead of going to another queue and breaking the order.
"""

from typing import Final

from rocketrio_protocol.bodies.route import QueueData, TopicRouteData
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import ConfigError, RemoteProtocolError
from rocketrio_protocol.message import MessageQueue

QUEUES_PER_TOPIC_LIMIT: Final = 65_536
"""A route with more queues than this is rejected as invalid: Apache allows 65,535 per broker."""

_COUNT_DIGITS: Final = 9  # int() refuses thousands of digits with its own error


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues to read; a broker's queues count even if its master is down."""
    return _queues(
        topic, [(data, data.read_queue_nums) for data in route.queue_datas if data.is_readable]
    )


def not_readable(topic: str) -> ConfigError:
    """Return the error for a topic whose permission forbids reading."""
    return ConfigError(
        f"{topic} may not be read: older brokers create dead-letter topics without read permission",
        remedy=f"`rocketrio topic create {topic} --perm rw` or create_topic({topic!r}, perm=6) makes it readable",
    )


def publish_queues(
    topic: str, route: TopicRouteData, *, queue_limit: int | None = None
) -> list[MessageQueue]:
    """Return the queues to send to: those of brokers whose master is up.

    `queue_limit` limits the queues per broker, for a topic that the send itself will create.
    """
    with_master = {
        broker.broker_name for broker in route.broker_datas if MASTER_ID in broker.broker_addrs
    }
    if route.order_topic_conf:
        return [
            queue
            for queue in _ordered_by_config(topic, route.order_topic_conf)
            if queue.broker_name in with_master
        ]
    return _queues(
        topic,
        [
            (data, _limited(data, queue_limit))
            for data in route.queue_datas
            if data.is_writable and data.broker_name in with_master
        ],
    )


def ordered_publish_queues(
    topic: str, route: TopicRouteData, *, queue_limit: int | None = None
) -> list[MessageQueue]:
    """Return the queues over which messages with a key are spread; the list does not change with the masters."""
    if route.order_topic_conf:
        # By name and not in the order of the text, which may be written differently for the same queues.
        return sorted(_ordered_by_config(topic, route.order_topic_conf))
    return _queues(
        topic,
        [(data, _limited(data, queue_limit)) for data in route.queue_datas if data.is_writable],
    )


def broker_names(route: TopicRouteData) -> list[str]:
    """Return the names of the brokers that serve the topic."""
    return sorted({broker.broker_name for broker in route.broker_datas})


def _limited(data: QueueData, limit: int | None) -> int:
    return data.write_queue_nums if limit is None else min(limit, data.write_queue_nums)


def _queues(topic: str, counts: list[tuple[QueueData, int]]) -> list[MessageQueue]:
    _check_count(topic, [count for _, count in counts])
    # Sorted: members divide the list by index, and producers choose from it by a key's hash.
    return sorted(
        MessageQueue(topic, data.broker_name, queue_id)
        for data, count in counts
        for queue_id in range(count)
    )


def _check_count(topic: str, counts: list[int]) -> None:
    if sum(max(count, 0) for count in counts) > QUEUES_PER_TOPIC_LIMIT:
        raise RemoteProtocolError(
            f"a route has more than {QUEUES_PER_TOPIC_LIMIT} queues", topic=topic
        )


def _ordered_by_config(topic: str, config: str) -> list[MessageQueue]:
    # `broker-a:4;broker-b:4`
    counts: dict[str, int] = {}
    for part in config.split(";"):
        if not part.strip():
            continue
        name, _, count = part.strip().rpartition(":")
        if not name or not count.isdecimal() or len(count) > _COUNT_DIGITS:
            raise RemoteProtocolError(f"orderTopicConf {config!r} cannot be read", topic=topic)
        counts[name] = int(count)
    _check_count(topic, list(counts.values()))
    return [
        MessageQueue(topic, name, queue_id)
        for name, count in counts.items()
        for queue_id in range(count)
    ]
