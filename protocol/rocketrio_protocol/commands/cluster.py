"""Headers of name servers: registration (103, 104, 217, 322), routes (105), brokers, topics, KV configuration.

Answers to: RocketMQ reference, section 2.12. Bodies are in `bodies/route.py` and `bodies/topics.py`.
"""

from typing import ClassVar

import attrs

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import Header, RequestHeader


@attrs.define
class RegisterBrokerResponseHeader(Header):
    """The address of the master, for slaves, if the name server knows one."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    displaced_addr: str | None = None
    """The live broker that this name server listed under the same id until now; only rocketrio's say that."""


@attrs.define
class RegisterBrokerRequestHeader(RequestHeader):
    """A broker's periodic registration; the body is RegisterBrokerBody."""

    code: ClassVar = RequestCode.REGISTER_BROKER
    answers: ClassVar = RegisterBrokerResponseHeader
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: int
    compressed: bool = False
    body_crc32: int = 0


@attrs.define
class UnregisterBrokerRequestHeader(RequestHeader):
    """Remove one address of a broker name."""

    code: ClassVar = RequestCode.UNREGISTER_BROKER
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@attrs.define
class RegisterTopicRequestHeader(RequestHeader):
    """Register one topic of a broker with a 5.x name server; the body is TopicRouteData that has only its queues."""

    code: ClassVar = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    topic: str


@attrs.define
class QueryDataVersionResponseHeader(Header):
    """Says whether a registration is needed."""

    changed: bool


@attrs.define
class QueryDataVersionRequestHeader(RequestHeader):
    """Ask whether the name server has this version of the broker's topics; the body is the DataVersion."""

    code: ClassVar = RequestCode.QUERY_DATA_VERSION
    answers: ClassVar = QueryDataVersionResponseHeader
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@attrs.define
class GetRouteInfoRequestHeader(RequestHeader):
    """Get the route of a topic; the body of the answer is TopicRouteData."""

    code: ClassVar = RequestCode.GET_ROUTEINFO_BY_TOPIC
    topic: str
    accept_standard_json_only: bool | None = None


@attrs.define
class GetBrokerClusterInfoRequestHeader(RequestHeader):
    """Get all brokers; the body of the answer is ClusterInfo."""

    code: ClassVar = RequestCode.GET_BROKER_CLUSTER_INFO


@attrs.define
class GetAllTopicListRequestHeader(RequestHeader):
    """Get all topics; the body of the answer is TopicList."""

    code: ClassVar = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


@attrs.define
class GetTopicsByClusterRequestHeader(RequestHeader):
    """Get the topics that brokers of one cluster serve."""

    code: ClassVar = RequestCode.GET_TOPICS_BY_CLUSTER
    cluster: str


@attrs.define
class GetSystemTopicListFromNsRequestHeader(RequestHeader):
    """Get the names of clusters and brokers, which are topics too."""

    code: ClassVar = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


@attrs.define
class DeleteTopicInNamesrvRequestHeader(RequestHeader):
    """Remove the routes of a topic."""

    code: ClassVar = RequestCode.DELETE_TOPIC_IN_NAMESRV
    topic: str
    cluster_name: str | None = None


@attrs.define
class WipeWritePermResponseHeader(Header):
    """How many topics changed."""

    wipe_topic_count: int


@attrs.define
class WipeWritePermRequestHeader(RequestHeader):
    """Remove the write permission of all queues of a broker."""

    code: ClassVar = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    answers: ClassVar = WipeWritePermResponseHeader
    broker_name: str


@attrs.define
class AddWritePermResponseHeader(Header):
    """How many topics changed."""

    add_topic_count: int


@attrs.define
class AddWritePermRequestHeader(RequestHeader):
    """Restore the write permission of all queues of a broker."""

    code: ClassVar = RequestCode.ADD_WRITE_PERM_OF_BROKER
    answers: ClassVar = AddWritePermResponseHeader
    broker_name: str


@attrs.define
class PutKVConfigRequestHeader(RequestHeader):
    """Store one value in the KV configuration."""

    code: ClassVar = RequestCode.PUT_KV_CONFIG
    namespace: str
    key: str
    value: str


@attrs.define
class GetKVConfigResponseHeader(Header):
    """The value of the KV configuration."""

    value: str | None = None


@attrs.define
class GetKVConfigRequestHeader(RequestHeader):
    """Get one value of the KV configuration."""

    code: ClassVar = RequestCode.GET_KV_CONFIG
    answers: ClassVar = GetKVConfigResponseHeader
    namespace: str
    key: str


@attrs.define
class DeleteKVConfigRequestHeader(RequestHeader):
    """Remove one value of the KV configuration."""

    code: ClassVar = RequestCode.DELETE_KV_CONFIG
    namespace: str
    key: str


@attrs.define
class GetKVListByNamespaceRequestHeader(RequestHeader):
    """Get all values of a namespace; the body of the answer is KVTable."""

    code: ClassVar = RequestCode.GET_KVLIST_BY_NAMESPACE
    namespace: str


@attrs.define
class GetNameServerConfigRequestHeader(RequestHeader):
    """Get the name server's settings as Java properties."""

    code: ClassVar = RequestCode.GET_NAMESRV_CONFIG


@attrs.define
class UpdateNameServerConfigRequestHeader(RequestHeader):
    """Change settings of a running name server; the body is Java properties."""

    code: ClassVar = RequestCode.UPDATE_NAMESRV_CONFIG
