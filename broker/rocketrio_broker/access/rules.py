"""What each request needs, by its code: one table for a broker, and one for a name server.

    fields(Header, T(SUB), G(SUB))      the topic and the group that the header names, each with one of these actions
    C(UPDATE)                           the cluster
    VALID_USER                          no right

A retry topic is its group: to send to it or to read it needs SUB on the group, whatever other group the header names.
Requests that name a message by its address need rights on the topic that the message is stored in.

The tables say too how a user is known (BY_ADDRESS, BY_SIGNATURE): each lists what suffices for a code, so a code
that is in no list needs the most.

Invariant: a code without a rule is refused; only a Super user gets the answer "not supported".
Invariant: a rule changes nothing, and reads bodies with the parsers that their processors use.
Answers to: the @RocketMQAction annotations and DefaultAuthorizationContextBuilder.
Unlike Java: every code that is answered has a rule, and a message by its address needs the rights on its stored topic.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from rocketrio_broker.refusal import RefusedError
from rocketrio_protocol.access.model import NAME_LENGTH_LIMIT, Action, Kind
from rocketrio_protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData
from rocketrio_protocol.bodies.queues import LockBatch
from rocketrio_protocol.bodies.topics import (
    SubscriptionGroupConfig,
    SubscriptionGroupConfigList,
    TopicConfigList,
)
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import (
    admin,
    client,
    cluster,
    consumer,
    inspection,
    offset,
    pull,
    query,
    send,
    transaction,
)
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import (
    RETRY_PREFIX,
    TRACE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
)
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.record.properties import PROPERTY_REAL_TOPIC

Code = RequestCode

PUB: Final = int(Action.PUB)
SUB: Final = int(Action.SUB)
CREATE: Final = int(Action.CREATE)
UPDATE: Final = int(Action.UPDATE)
DELETE: Final = int(Action.DELETE)
GET: Final = int(Action.GET)
ONLY_SUPER: Final = 0
"""No action suffices: only a Super user may do it."""

NAMES_LIMIT: Final = 1000
"""The most topics, or groups in a list, that the body of one request may name: each is a decision."""

_NEEDS_KEPT: Final = 4096
"""Remembered needs for topics: every send and pull has one."""

ALL_CLUSTERS: Final = "*"
"""What a name server asks for where no cluster is named: a right on `Cluster:*`."""


class Need(NamedTuple):
    """A right that a request needs: one of the actions on this resource."""

    kind: Kind
    name: str
    actions: int


class Facts(Protocol):
    """What rules ask about a server."""

    @property
    def cluster_name(self) -> str: ...
    @property
    def creates_topics(self) -> bool:
        """Whether a message to an unknown topic creates it."""

    def has_topic(self, name: str) -> bool: ...
    def topics_of_group(self, group: str) -> Iterable[str]:
        """Return the topics on which a group has offsets."""

    def stored_topic(self, address: int) -> str | None:
        """Return the topic of the message at an address of the log, or None if no message is there."""

    def stored_message(self, address: int) -> MessageExt | None:
        """Return the message at an address of the log, or None if no message is there."""


Rule = Callable[[RemotingCommand, Facts], Sequence[Need]]


class _Field(NamedTuple):
    need: Callable[[str, int], Need]
    attribute: str
    actions: int


def topic_need(name: str, actions: int) -> Need:
    """Return the need for a topic; a retry topic is its group."""
    # Longer names, which no topic has, would fill the memory of needs.
    known = _topic_need if len(name) <= NAME_LENGTH_LIMIT else _topic_need.__wrapped__
    return known(name, actions)


@lru_cache(_NEEDS_KEPT)
def _topic_need(name: str, actions: int) -> Need:
    if not name.startswith(RETRY_PREFIX):
        return Need(Kind.TOPIC, name, actions)
    if actions & (PUB | SUB):
        actions = actions & ~PUB | SUB
    return Need(Kind.GROUP, name.removeprefix(RETRY_PREFIX), actions)


def group_need(name: str, actions: int) -> Need:
    """Return the need for a group."""
    return Need(Kind.GROUP, name, actions)


def T(actions: int, attribute: str = "topic") -> _Field:  # noqa: N802 - as the specification writes it
    """Return the need for the topic in a field."""
    return _Field(topic_need, attribute, actions)


def G(actions: int, attribute: str = "consumer_group") -> _Field:  # noqa: N802
    """Return the need for the group in a field."""
    return _Field(group_need, attribute, actions)


def C(actions: int) -> Rule:  # noqa: N802
    """Return the rule of requests that need the server's cluster."""
    return lambda request, facts: (Need(Kind.CLUSTER, facts.cluster_name, actions),)


def fields(header_class: type[RequestHeader], *parts: _Field) -> Rule:
    """Return the rule of requests that need what the header names; a field that is not given needs nothing."""

    def rule(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
        header = request.header(header_class)
        return [
            part.need(name, part.actions)
            for part in parts
            if (name := getattr(header, part.attribute)) is not None
        ]

    return rule


def named_cluster(header_class: type[RequestHeader], actions: int) -> Rule:
    """Return the rule of requests that name their cluster themselves."""

    def rule(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
        name = getattr(request.header(header_class), "cluster_name", None)
        return (Need(Kind.CLUSTER, name or ALL_CLUSTERS, actions),)

    return rule


def VALID_USER(request: RemotingCommand, facts: Facts) -> Sequence[Need]:  # noqa: N802
    """Need nothing but a user."""
    return ()


# ---------------------------------------------------------------------------------------- sends and pulls


def _send(
    header_class: type[send.SendMessageRequestHeader | send.SendMessageRequestHeaderV2],
) -> Rule:
    def rule(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
        name = request.header(header_class).topic
        if name == TRACE_TOPIC:
            return ()
        need = topic_need(name, PUB)
        if facts.has_topic(name) or need.kind is not Kind.TOPIC or not facts.creates_topics:
            return (need,)
        return need, Need(Kind.TOPIC, name, CREATE)

    return rule


def _reply(
    header_class: type[send.SendReplyMessageRequestHeader | send.SendReplyMessageRequestHeaderV2],
) -> Rule:
    return fields(header_class, T(PUB))


def pull_needs(header: pull.PullMessageRequestHeader) -> Sequence[Need]:
    """Return what a pull needs, now and while it waits for a message."""
    return topic_need(header.topic, SUB), group_need(header.consumer_group, SUB)


def _pull(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    return pull_needs(request.header(pull.PullMessageRequestHeader))


# ------------------------------------------------------------------------------------- stored messages


def _view(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    address = request.header(query.ViewMessageRequestHeader).offset
    missing = f"can not find message by the offset, {address}"
    return (topic_need(_stored_topic(facts, address, missing), SUB | GET),)


def _consume_directly(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(consumer.ConsumeMessageDirectlyRequestHeader)
    address = _address(header.msg_id)
    topic = _stored_topic(facts, address, f"look message by offset failed, {address}")
    return topic_need(topic, SUB | GET), group_need(header.consumer_group, SUB)


def _send_back(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(consumer.ConsumerSendMsgBackRequestHeader)
    missing = f"look message by offset failed, {header.offset}"
    topic = _stored_topic(facts, header.offset, missing)
    return group_need(header.group, SUB), topic_need(topic, SUB)


def _end_transaction(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(transaction.EndTransactionRequestHeader)
    missing = "Find prepared transaction message failed"
    return (_real_topic(facts, header.commit_log_offset, TRANS_HALF_TOPIC, missing),)


def _resume_check(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(transaction.ResumeCheckHalfMessageRequestHeader)
    missing = f"{header.msg_id} is not a message of {TRANS_CHECK_MAX_TIME_TOPIC}"
    half = _real_topic(facts, _address(header.msg_id), TRANS_CHECK_MAX_TIME_TOPIC, missing)
    return half, Need(Kind.CLUSTER, facts.cluster_name, UPDATE)


def _address(message_id: str | None) -> int:
    try:
        return parse_offset_message_id(message_id or "")[2]
    except LocalProtocolError as error:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, error.what) from error


def _stored_topic(facts: Facts, address: int, missing: str) -> str:
    # RefusedError here and not by the processor, which may run later, when there is a message.
    topic = facts.stored_topic(address)
    if topic is None:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, missing)
    return topic


def _real_topic(facts: Facts, address: int, stored_in: str, missing: str) -> Need:
    message = facts.stored_message(address)
    real = None
    if message is not None and message.topic == stored_in:
        real = message.property_value(PROPERTY_REAL_TOPIC)
    if real is None:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, missing)
    return topic_need(real, PUB)


# --------------------------------------------------------------------------------------------- clients


def _check_count(names: Sized) -> None:
    if len(names) > NAMES_LIMIT:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"with access control a request names {NAMES_LIMIT} topics or groups at most, not {len(names)}: ask in "
            "several requests",
        )


def _heart_beat(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    heartbeat = request.json_body(HeartbeatData, what="heartbeat")
    topics = {
        each.topic for group in heartbeat.consumer_data_set for each in group.subscription_data_set
    }
    _check_count(topics)
    needs: dict[Need, None] = {}
    for group in heartbeat.consumer_data_set:
        needs[group_need(group.group_name, SUB)] = None
        for each in group.subscription_data_set:
            needs[topic_need(each.topic, SUB)] = None
    return list(needs)


def _check_client(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    body = request.json_body(CheckClientRequestBody, what="subscription to check")
    needs = [group_need(body.group, SUB)]
    if body.subscription_data is not None:
        needs.append(topic_need(body.subscription_data.topic, SUB))
    return needs


def _locks(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    body = request.json_body(LockBatch, what="queue locks")
    topics = {queue.topic: None for queue in body.mq_set}
    _check_count(topics)
    return [group_need(body.consumer_group, SUB), *(topic_need(topic, SUB) for topic in topics)]


# --------------------------------------------------------------------------------------------- offsets


def _commit(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(offset.UpdateConsumerOffsetRequestHeader)
    group = group_need(header.consumer_group, UPDATE if header.reset else SUB)
    return topic_need(header.topic, SUB), group


def _clone(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(admin.CloneGroupOffsetRequestHeader)
    topics = [header.topic] if header.topic else facts.topics_of_group(header.src_group)
    return [
        group_need(header.src_group, GET | UPDATE),
        group_need(header.dest_group, UPDATE),
        *(topic_need(topic, UPDATE) for topic in topics),
    ]


def _copy_offsets(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(admin.GetAllConsumerOffsetRequestHeader)
    actions = GET if header.broker_id is None else UPDATE
    return (Need(Kind.CLUSTER, facts.cluster_name, actions),)


# ------------------------------------------------------------------------------------- administration


def _new_topic(name: str, facts: Facts) -> Need:
    return topic_need(name, UPDATE if facts.has_topic(name) else CREATE)


def _create_topic(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    return (_new_topic(request.header(admin.CreateTopicRequestHeader).topic, facts),)


def _create_topics(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    body = request.json_body(TopicConfigList, what="list of topics")
    _check_count(body.topic_config_list)
    return [_new_topic(topic.topic_name, facts) for topic in body.topic_config_list]


def _update_group(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    group = request.json_body(SubscriptionGroupConfig, what="group settings")
    return (group_need(group.group_name, CREATE | UPDATE),)


def _update_groups(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    body = request.json_body(SubscriptionGroupConfigList, what="list of group settings")
    _check_count(body.group_config_list)
    return [group_need(group.group_name, CREATE | UPDATE) for group in body.group_config_list]


def _check_log(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(admin.CheckLogRequestHeader)
    return (Need(Kind.CLUSTER, facts.cluster_name, UPDATE if header.start else GET),)


_BROKER_BY_ADDRESS: Final[Mapping[int, Rule]] = {
    # Sends
    Code.SEND_MESSAGE: _send(send.SendMessageRequestHeader),
    Code.SEND_MESSAGE_V2: _send(send.SendMessageRequestHeaderV2),
    Code.SEND_BATCH_MESSAGE: _send(send.SendMessageRequestHeaderV2),
    Code.SEND_REPLY_MESSAGE: _reply(send.SendReplyMessageRequestHeader),
    Code.SEND_REPLY_MESSAGE_V2: _reply(send.SendReplyMessageRequestHeaderV2),
    # Reads
    Code.PULL_MESSAGE: _pull,
    Code.LITE_PULL_MESSAGE: _pull,
    Code.QUERY_MESSAGE: fields(query.QueryMessageRequestHeader, T(SUB | GET)),
    # Stored messages
    Code.VIEW_MESSAGE_BY_ID: _view,
    Code.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
    Code.CONSUMER_SEND_MSG_BACK: _send_back,
    Code.END_TRANSACTION: _end_transaction,
    Code.RESUME_CHECK_HALF_MESSAGE: _resume_check,
    # Offsets
    Code.QUERY_CONSUMER_OFFSET: fields(
        offset.QueryConsumerOffsetRequestHeader, T(SUB | GET), G(SUB | GET)
    ),
    Code.UPDATE_CONSUMER_OFFSET: _commit,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: fields(offset.SearchOffsetRequestHeader, T(SUB | GET | PUB)),
    Code.GET_MAX_OFFSET: fields(offset.GetMaxOffsetRequestHeader, T(SUB | GET | PUB)),
    Code.GET_MIN_OFFSET: fields(offset.GetMinOffsetRequestHeader, T(SUB | GET | PUB)),
    Code.GET_EARLIEST_MSG_STORETIME: fields(
        offset.GetEarliestMsgStoretimeRequestHeader, T(SUB | GET | PUB)
    ),
    # Clients: each consumer group and each topic; a producer group belongs to no user
    Code.HEART_BEAT: _heart_beat,
    Code.UNREGISTER_CLIENT: fields(client.UnregisterClientRequestHeader, G(SUB)),
    Code.GET_CONSUMER_LIST_BY_GROUP: fields(client.GetConsumerListByGroupRequestHeader, G(SUB)),
    Code.CHECK_CLIENT_CONFIG: _check_client,
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
    # Topics
    Code.UPDATE_AND_CREATE_TOPIC: _create_topic,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _create_topics,
    Code.DELETE_TOPIC_IN_BROKER: fields(admin.DeleteTopicInBrokerRequestHeader, T(DELETE)),
    Code.GET_TOPIC_CONFIG: fields(admin.GetTopicConfigRequestHeader, T(GET)),
    Code.GET_TOPIC_STATS_INFO: fields(admin.GetTopicStatsInfoRequestHeader, T(GET)),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: fields(admin.QueryTopicConsumeByWhoRequestHeader, T(GET)),
    Code.QUERY_CONSUME_QUEUE: fields(inspection.QueryConsumeQueueRequestHeader, T(GET)),
    # Groups
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _update_group,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _update_groups,
    Code.DELETE_SUBSCRIPTIONGROUP: fields(
        admin.DeleteSubscriptionGroupRequestHeader, G(DELETE, "group_name")
    ),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: fields(
        admin.GetSubscriptionGroupConfigRequestHeader, G(GET, "group")
    ),
    Code.GET_CONSUMER_CONNECTION_LIST: fields(admin.GetConsumerConnectionListRequestHeader, G(GET)),
    Code.GET_CONSUME_STATS: fields(admin.GetConsumeStatsRequestHeader, G(GET)),
    Code.GET_CONSUMER_RUNNING_INFO: fields(consumer.GetConsumerRunningInfoRequestHeader, G(GET)),
    Code.QUERY_TOPICS_BY_CONSUMER: fields(
        inspection.QueryTopicsByConsumerRequestHeader, G(GET, "group")
    ),
    # Topics and groups together
    Code.INVOKE_BROKER_TO_RESET_OFFSET: fields(
        admin.ResetOffsetRequestHeader, T(UPDATE), G(UPDATE, "group")
    ),
    Code.CLONE_GROUP_OFFSET: _clone,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: fields(
        consumer.GetConsumerStatusRequestHeader, T(GET), G(GET, "group")
    ),
    Code.QUERY_CONSUME_TIME_SPAN: fields(
        admin.QueryConsumeTimeSpanRequestHeader, T(GET), G(GET, "group")
    ),
    Code.QUERY_CORRECTION_OFFSET: fields(
        admin.QueryCorrectionOffsetRequestHeader, T(GET), G(GET, "compare_group")
    ),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: fields(
        inspection.QuerySubscriptionByConsumerRequestHeader, T(GET), G(GET, "group")
    ),
    # The broker: changes
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: C(UPDATE),
    Code.CLEAN_UNUSED_TOPIC: C(UPDATE),
    Code.DELETE_EXPIRED_COMMITLOG: C(UPDATE),
    # The broker: what it shows
    Code.GET_BROKER_CONFIG: C(GET),
    Code.GET_BROKER_RUNTIME_INFO: C(GET),
    Code.GET_PRODUCER_CONNECTION_LIST: C(GET),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: C(GET),
    Code.VIEW_BROKER_STATS_DATA: C(GET),
    Code.GET_BROKER_CONSUME_STATS: C(GET),
    Code.GET_ALL_PRODUCER_INFO: C(GET),
    Code.GET_BROKER_HA_STATUS: C(GET),
    # Tables for slaves
    Code.GET_ALL_TOPIC_CONFIG: C(GET),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: C(GET),
    Code.GET_ALL_CONSUMER_OFFSET: _copy_offsets,
    Code.GET_ALL_DELAY_OFFSET: C(GET),
    # Answered as not supported, because they would show all secrets
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: VALID_USER,
    Code.GET_ALL_USERS: VALID_USER,
}

_BROKER_BY_SIGNATURE: Final[Mapping[int, Rule]] = {
    Code.UPDATE_BROKER_CONFIG: C(UPDATE),
}

_BROKER_BY_PROOF: Final[Mapping[int, Rule]] = {
    # Requests between rocketrio's brokers, and of rocketrio's tools
    Code.CHANGE_BROKER_ROLE: C(UPDATE),
    Code.CLAIM_SLAVE_ID: C(UPDATE),
    Code.HAND_OVER: C(UPDATE),
    Code.TAKE_OVER: C(UPDATE),
    Code.CHECK_LOG: _check_log,
    Code.GET_LOG_DIGEST: C(GET),
    Code.GET_EVENTS: C(GET),
    Code.GET_SEALED_USERS: C(ONLY_SUPER),
    # Access control
    Code.UPDATE_AND_CREATE_ACL_CONFIG: C(UPDATE),
    Code.DELETE_ACL_CONFIG: C(UPDATE),
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: C(UPDATE),
    Code.AUTH_CREATE_USER: C(UPDATE),
    Code.AUTH_UPDATE_USER: C(UPDATE),
    Code.AUTH_DELETE_USER: C(UPDATE),
    Code.AUTH_CREATE_ACL: C(UPDATE),
    Code.AUTH_UPDATE_ACL: C(UPDATE),
    Code.AUTH_DELETE_ACL: C(UPDATE),
    Code.GET_BROKER_CLUSTER_ACL_INFO: C(GET),
    Code.AUTH_GET_USER: C(GET),
    Code.AUTH_LIST_USER: C(GET),
    Code.AUTH_GET_ACL: C(GET),
    Code.AUTH_LIST_ACL: C(GET),
}

_NAME_SERVER_BY_ADDRESS: Final[Mapping[int, Rule]] = {
    # Clients
    Code.GET_ROUTEINFO_BY_TOPIC: VALID_USER,
    Code.GET_BROKER_CLUSTER_INFO: VALID_USER,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: VALID_USER,
    Code.GET_TOPICS_BY_CLUSTER: VALID_USER,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: VALID_USER,
    Code.GET_UNIT_TOPIC_LIST: VALID_USER,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: VALID_USER,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: VALID_USER,
    # Brokers
    Code.REGISTER_BROKER: named_cluster(cluster.RegisterBrokerRequestHeader, UPDATE),
    Code.UNREGISTER_BROKER: named_cluster(cluster.UnregisterBrokerRequestHeader, UPDATE),
    Code.QUERY_DATA_VERSION: named_cluster(cluster.QueryDataVersionRequestHeader, UPDATE),
    # Operators
    Code.WIPE_WRITE_PERM_OF_BROKER: C(UPDATE),
    Code.ADD_WRITE_PERM_OF_BROKER: C(UPDATE),
    Code.DELETE_TOPIC_IN_NAMESRV: named_cluster(cluster.DeleteTopicInNamesrvRequestHeader, UPDATE),
    Code.GET_KV_CONFIG: C(GET),
    Code.GET_KVLIST_BY_NAMESPACE: C(GET),
    Code.GET_NAMESRV_CONFIG: C(GET),
}

_NAME_SERVER_BY_SIGNATURE: Final[Mapping[int, Rule]] = {
    Code.PUT_KV_CONFIG: C(UPDATE),
    Code.DELETE_KV_CONFIG: C(UPDATE),
    Code.UPDATE_NAMESRV_CONFIG: C(UPDATE),
}

FOR_ANYONE: Final = frozenset({int(Code.GET_IDENTITY)})
"""Codes that need no user: what a name server lists of a broker, for peers that know no more of each other."""

BY_ADDRESS: Final = frozenset({*_BROKER_BY_ADDRESS, *_NAME_SERVER_BY_ADDRESS})
"""Codes for which an address that needs no signature suffices: they change no user, setting or role, and show no
secret."""

BY_SIGNATURE: Final = BY_ADDRESS.union(_BROKER_BY_SIGNATURE, _NAME_SERVER_BY_SIGNATURE)
"""Codes for which Apache's signature suffices, which a thief can use for each of them: all others need a proof too."""

BROKER_RULES: Final[Mapping[int, Rule]] = {
    **_BROKER_BY_ADDRESS,
    **_BROKER_BY_SIGNATURE,
    **_BROKER_BY_PROOF,
    **dict.fromkeys(FOR_ANYONE, VALID_USER),
}
"""The rules of a broker by request code."""

NAME_SERVER_RULES: Final[Mapping[int, Rule]] = {
    **_NAME_SERVER_BY_ADDRESS,
    **_NAME_SERVER_BY_SIGNATURE,
}
"""The rules of a name server by request code."""


class NameServerFacts:
    """What rules ask about a name server, which serves all clusters and stores no message."""

    cluster_name = ALL_CLUSTERS
    creates_topics = False

    def has_topic(self, name: str) -> bool:
        return False

    def topics_of_group(self, group: str) -> Iterable[str]:
        return ()

    def stored_topic(self, address: int) -> str | None:
        return None

    def stored_message(self, address: int) -> MessageExt | None:
        return None
