"""Bodies about routes: which brokers serve a topic, with how many queues, and at which addresses.

They are encoded in the classic form of Java (broker ids unquoted) or the standard one, and decoded from both.

Answers to: TopicRouteData, BrokerData, QueueData, ClusterInfo, TopicList, KVTable; RocketMQ reference, section 2.12.
"""

from typing import Any

import msgspec

from rocketrio_protocol.bodies.fastjson import JsonBody
from rocketrio_protocol.bodies.topics import Permission

STANDARD_JSON_VERSION = 401
"""The protocol version (4.9.4) from which requests for routes are answered in standard JSON."""


class QueueData(JsonBody, gc=False):
    """The queues of the topic on one broker name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    @property
    def is_readable(self) -> bool:
        """True if consumers may pull."""
        return bool(self.perm & Permission.READ)

    @property
    def is_writable(self) -> bool:
        """True if producers may send."""
        return bool(self.perm & Permission.WRITE)


class BrokerData(JsonBody):
    """The addresses of one broker name by broker id; 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]
    enable_acting_master: bool = False
    """Whether a slave may stand in for the master (5.x). The Rust client cannot read a route without it."""


class TopicRouteData(JsonBody):
    """The route of a topic: everything that a client needs to reach it."""

    broker_datas: list[BrokerData] = msgspec.field(default_factory=list)
    queue_datas: list[QueueData] = msgspec.field(default_factory=list)
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)
    order_topic_conf: str | None = None


class ClusterInfo(JsonBody):
    """All broker names with their addresses, and the broker names of each cluster."""

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = msgspec.field(default_factory=dict)


class TopicList(JsonBody):
    """Names of topics."""

    topic_list: list[str] = msgspec.field(default_factory=list)
    broker_addr: str | None = None

    def to_json(self) -> bytes:
        """Encode the list directly, because it may have a hundred thousand names and needs only two keys."""
        addr = {} if self.broker_addr is None else {"brokerAddr": self.broker_addr}
        return msgspec.json.encode({**addr, "topicList": self.topic_list})


class KVTable(JsonBody):
    """Strings by name."""

    table: dict[str, Any] = msgspec.field(default_factory=dict)
