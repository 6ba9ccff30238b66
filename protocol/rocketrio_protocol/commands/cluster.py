"""Headers of name servers: registration (103, 104, 217, 322), routes (105), brokers, topics, KV configuration.

Answers to: RocketMQ reference, section 2.12. Bodies are in `bodies/route.py` and `bodies/topics.py`.
"""

from typing import ClassVar

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import Header, RequestHeader


class RegisterBrokerResponseHeader(Header):
    """The address of the master, for slaves, if the name server knows one."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    displaced_addr: str | None = None
    """The live broker that this name server listed under the same id until now; only rocketrio's say that."""


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


class UnregisterBrokerRequestHeader(RequestHeader):
    """Remove one address of a broker name."""

    code: ClassVar = RequestCode.UNREGISTER_BROKER
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


class RegisterTopicRequestHeader(RequestHeader):
    """Register one topic of a broker with a 5.x name server; the body is TopicRouteData that has only its queues."""

    code: ClassVar = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    topic: str


class QueryDataVersionResponseHeader(Header):
    """Says whether a registration is needed."""

    changed: bool


class QueryDataVersionRequestHeader(RequestHeader):
    """Ask whether the name server has this version of the broker's topics; the body is the DataVersion."""

    code: ClassVar = RequestCode.QUERY_DATA_VERSION
    answers: ClassVar = QueryDataVersionResponseHeader
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


class GetRouteInfoRequestHeader(RequestHeader):
    """Get the route of a topic; the body of the answer is TopicRouteData."""

    code: ClassVar = RequestCode.GET_ROUTEINFO_BY_TOPIC
    topic: str
    accept_standard_json_only: bool | None = None


class GetBrokerClusterInfoRequestHeader(RequestHeader):
    """Get all brokers; the body of the answer is ClusterInfo."""

    code: ClassVar = RequestCode.GET_BROKER_CLUSTER_INFO


class GetAllTopicListRequestHeader(RequestHeader):
    """Get all topics; the body of the answer is TopicList."""

    code: ClassVar = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


class GetTopicsByClusterRequestHeader(RequestHeader):
    """Get the topics that brokers of one cluster serve."""

    code: ClassVar = RequestCode.GET_TOPICS_BY_CLUSTER
    cluster: str


class GetSystemTopicListFromNsRequestHeader(RequestHeader):
    """Get the names of clusters and brokers, which are topics too."""

    code: ClassVar = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


class DeleteTopicInNamesrvRequestHeader(RequestHeader):
    """Remove the routes of a topic."""

    code: ClassVar = RequestCode.DELETE_TOPIC_IN_NAMESRV
    topic: str
    cluster_name: str | None = None


class WipeWritePermResponseHeader(Header):
    """How many topics changed."""

    wipe_topic_count: int


class WipeWritePermRequestHeader(RequestHeader):
    """Remove the write permission of all queues of a broker."""

    code: ClassVar = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    answers: ClassVar = WipeWritePermResponseHeader
    broker_name: str


class AddWritePermResponseHeader(Header):
    """How many topics changed."""

    add_topic_count: int


class AddWritePermRequestHeader(RequestHeader):
    """Restore the write permission of all queues of a broker."""

    code: ClassVar = RequestCode.ADD_WRITE_PERM_OF_BROKER
    answers: ClassVar = AddWritePermResponseHeader
    broker_name: str


class PutKVConfigRequestHeader(RequestHeader):
    """Store one value in the KV configuration."""

    code: ClassVar = RequestCode.PUT_KV_CONFIG
    namespace: str
    key: str
    value: str


class GetKVConfigResponseHeader(Header):
    """The value of the KV configuration."""

    value: str | None = None


class GetKVConfigRequestHeader(RequestHeader):
    """Get one value of the KV configuration."""

    code: ClassVar = RequestCode.GET_KV_CONFIG
    answers: ClassVar = GetKVConfigResponseHeader
    namespace: str
    key: str


class DeleteKVConfigRequestHeader(RequestHeader):
    """Remove one value of the KV configuration."""

    code: ClassVar = RequestCode.DELETE_KV_CONFIG
    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(RequestHeader):
    """Get all values of a namespace; the body of the answer is KVTable."""

    code: ClassVar = RequestCode.GET_KVLIST_BY_NAMESPACE
    namespace: str


class GetNameServerConfigRequestHeader(RequestHeader):
    """Get the name server's settings as Java properties."""

    code: ClassVar = RequestCode.GET_NAMESRV_CONFIG


class UpdateNameServerConfigRequestHeader(RequestHeader):
    """Change settings of a running name server; the body is Java properties."""

    code: ClassVar = RequestCode.UPDATE_NAMESRV_CONFIG
