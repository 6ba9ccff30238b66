"""The metrics of a broker that two pages have: the broker's own, and the one of `rocketrio exporter` for all brokers.

Those of Apache's brokers have the names that Apache's page has (5.1.4 to 5.3.3), which differ from the constants of
Java, because units are appended there. Here the lines of TYPE and HELP have the same names as the samples.
"""

from typing import Final

from rocketrio_protocol.exposition import Family, flag
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.versions import version_name

# ---------------------------------------------------------------------------- Apache's
MESSAGES_IN: Final = Family("rocketmq_messages_in_total", "counter", "Messages from producers.")
THROUGHPUT_IN: Final = Family("rocketmq_throughput_in_total", "counter", "Bytes from producers.")
MESSAGES_OUT: Final = Family("rocketmq_messages_out_total", "counter", "Messages to groups.")
THROUGHPUT_OUT: Final = Family("rocketmq_throughput_out_total", "counter", "Bytes to groups.")
MESSAGE_SIZE: Final = Family(
    "rocketmq_message_size", "histogram", "Bytes of messages; a batch counts once, by its average."
)
DEAD_LETTERS: Final = Family(
    "rocketmq_send_to_dlq_messages_total", "counter", "Messages that a group gave up."
)
LAG: Final = Family(
    "rocketmq_consumer_lag_messages", "gauge", "Messages that the group has not committed."
)
LAG_LATENCY: Final = Family(
    "rocketmq_consumer_lag_latency_milliseconds", "gauge", "Age of the first message not committed."
)
IN_FLIGHT: Final = Family(
    "rocketmq_consumer_inflight_messages", "gauge", "Messages that are pulled and not committed."
)
QUEUEING: Final = Family(
    "rocketmq_consumer_queueing_latency_milliseconds",
    "gauge",
    "Age of the first message not pulled.",
)
READY: Final = Family(
    "rocketmq_consumer_ready_messages", "gauge", "Messages that the group has not pulled."
)
CONSUMERS: Final = Family("rocketmq_consumer_connections", "gauge", "Connections of consumers.")
PRODUCERS: Final = Family("rocketmq_producer_connections", "gauge", "Connections of producers.")
PERMISSION: Final = Family(
    "rocketmq_broker_permission", "gauge", "6: read and write, 4: read, 2: write."
)
TOPICS: Final = Family("rocketmq_topic_number", "gauge", "Topics, with those of the system.")
GROUPS: Final = Family("rocketmq_consumer_group_number", "gauge", "Consumer groups.")
WATERMARK: Final = Family(
    "rocketmq_processor_watermark",
    "gauge",
    "Requests that wait for a thread: 0, as no threads are used; see rocketrio_loop_delay_seconds.",
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
COMMITTED: Final = Family("rocketmq_commit_messages_total", "counter", "Committed transactions.")
ROLLED_BACK: Final = Family(
    "rocketmq_rollback_messages_total", "counter", "Transactions that were rolled back."
)
HALF: Final = Family("rocketmq_half_messages", "gauge", "Transactions without a decision.")
FINISHED: Final = Family(
    "rocketmq_finish_message_latency_milliseconds",
    "histogram",
    "SECONDS from the birth of a message to the commit of its transaction, despite the name.",
)
TOPIC_CREATIONS: Final = Family(
    "rocketmq_topic_create_execution_time_milliseconds",
    "histogram",
    "Time of requests that create or change a topic.",
)
GROUP_CREATIONS: Final = Family(
    "rocketmq_consumer_group_create_execution_time_milliseconds",
    "histogram",
    "Time of requests that create or change a group.",
)

# ---------------------------------------------------------------------------- rocketrio's
LAG_KNOWN: Final = Family(
    "rocketrio_group_lag_known", "gauge", "Whether this broker knows the group's lag."
)
VERDICT: Final = Family(
    "rocketrio_group_verdict",
    "gauge",
    "1 for how the group keeps up, by the rules of `rocketrio lag`.",
)
MEMBERS: Final = Family("rocketrio_group_members", "gauge", "Members that are connected here.")

# ---------------------------------------------------------------------------- labels
LOCAL_DISK: Final = {"storage_type": "local", "storage_medium": "disk"}
"""The labels of a store in files."""
_CONSUME_MODES: Final = {"CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}


def node_labels(cluster: str, broker_name: str) -> dict[str, str]:
    """Return the labels of a broker, which come first in each sample."""
    return {"cluster": cluster, "node_type": "broker", "node_id": broker_name}


def lag_labels(group: str, topic: str, *, is_system: bool) -> dict[str, str]:
    """Return the labels of a group's lag on a topic."""
    return {
        "consumer_group": group,
        "topic": topic,
        "is_retry": flag(topic.startswith(RETRY_PREFIX)),
        "is_system": flag(is_system),
    }


def client_kind(language: str, version: int) -> tuple[str, str]:
    """Return the language and the version of a client as labels have them."""
    return language.lower(), version_name(version).lower()


def consumer_labels(
    group: str, kind: tuple[str, str], consume_type: str, *, is_system: bool
) -> dict[str, str]:
    """Return the labels of the connections of a group's members of one kind."""
    return {
        "consumer_group": group,
        "language": kind[0],
        "version": kind[1],
        "consume_mode": _CONSUME_MODES.get(consume_type, "pull"),
        "protocol_type": "remoting",
        "is_system": flag(is_system),
    }


def producer_labels(kind: tuple[str, str]) -> dict[str, str]:
    """Return the labels of the connections of producers of one kind."""
    return {"language": kind[0], "version": kind[1], "protocol_type": "remoting"}
