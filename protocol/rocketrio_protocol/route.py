"""Routes: which brokers serve a topic, with how many queues, and at which addresses.

Answers to: TopicRouteData, BrokerData, QueueData, ClusterInfo, TopicList, KVTable; RocketMQ reference, section 2.12.
Written in the classic form of Java (broker ids unquoted) or the standard one; read in both.
"""

from typing import Any, Self

import msgspec

from rocketrio_protocol import fastjson
from rocketrio_protocol.frame import Body
from rocketrio_protocol.topic_config import Permission

STANDARD_JSON_VERSION = 401
"""Requests of this protocol version on get routes in standard JSON (4.9.4)."""


class JsonBody(msgspec.Struct, rename="camel"):
    """A body that can be read in either form of JSON."""

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Read a body. Raises RemoteProtocolError that names the class."""
        return fastjson.loads(body, cls, what=cls.__name__)

    def to_json(self) -> bytes:
        """Standard JSON: every key quoted."""
        return fastjson.dumps_standard(self)

    def to_classic_json(self) -> bytes:
        """As fastjson writes it: integer keys unquoted."""
        return fastjson.dumps(self)


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

    broker_datas: list[BrokerData] = []
    queue_datas: list[QueueData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None


class ClusterInfo(JsonBody):
    """All broker names with their addresses, and which cluster each belongs to."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class TopicList(JsonBody):
    """Names of topics."""

    topic_list: list[str] = []
    broker_addr: str | None = None

    def to_json(self) -> bytes:
        """Write it in one go: there may be a hundred thousand names, and no key but two."""
        addr = {} if self.broker_addr is None else {"brokerAddr": self.broker_addr}
        return msgspec.json.encode({**addr, "topicList": self.topic_list})


class KVTable(JsonBody):
    """Text by name."""

    table: dict[str, Any] = {}
