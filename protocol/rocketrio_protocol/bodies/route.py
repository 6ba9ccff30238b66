"""Routes: which brokers serve a topic, with how many queues, and at which addresses.

Answers to: TopicRouteData, BrokerData, QueueData, ClusterInfo, TopicList, KVTable; RocketMQ reference, section 2.12.
Written in the classic form of Java (broker ids unquoted) or the standard one; read in both.
"""

from typing import Any

import msgspec

from rocketrio_protocol.bodies.fastjson import JsonBody
from rocketrio_protocol.bodies.topics import Permission

STANDARD_JSON_VERSION = 401
"""Requests of this protocol version on get routes in standard JSON (4.9.4)."""


class QueueData(JsonBody, gc=False):
    """How many queues of the topic one broker name has."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    @property
    def is_readable(self) -> bool:
        """Consumers may pull."""
        return bool(self.perm & Permission.READ)

    @property
    def is_writable(self) -> bool:
        """Producers may send."""
        return bool(self.perm & Permission.WRITE)


class BrokerData(JsonBody):
    """The addresses of one broker name by broker id; 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]
    enable_acting_master: bool = False
    """Whether a slave may stand in for the master (5.x). The Rust client cannot read a route without it."""


class TopicRouteData(JsonBody):
    """Everything a client needs to reach a topic."""

    broker_datas: list[BrokerData] = msgspec.field(default_factory=list)
    queue_datas: list[QueueData] = msgspec.field(default_factory=list)
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)
    order_topic_conf: str | None = None


class ClusterInfo(JsonBody):
    """All broker names with their addresses, and which cluster each belongs to."""

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = msgspec.field(default_factory=dict)


class TopicList(JsonBody):
    """Names of topics."""

    topic_list: list[str] = msgspec.field(default_factory=list)
    broker_addr: str | None = None

    def to_json(self) -> bytes:
        """Write it in one go: there may be a hundred thousand names, and no key but two."""
        addr = {} if self.broker_addr is None else {"brokerAddr": self.broker_addr}
        return msgspec.json.encode({**addr, "topicList": self.topic_list})


class KVTable(JsonBody):
    """Text by name."""

    table: dict[str, Any] = msgspec.field(default_factory=dict)
