"""Headers for the administration of one broker: topics, groups, statistics, configuration, and tables for slaves.

Answers to: RocketMQ reference, sections 2.11 and 7.
"""

from typing import Any, ClassVar

import msgspec

from rocketrio_protocol.bodies.events import events_from_json
from rocketrio_protocol.bodies.inspection import MessageRequestModes
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.bodies.log_check import LogCheckStatus
from rocketrio_protocol.bodies.offsets import ConsumerOffsetWrapper
from rocketrio_protocol.bodies.route import KVTable
from rocketrio_protocol.bodies.stats import (
    BrokerStatsData,
    ConsumerConnection,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    ProducerConnection,
    QueryConsumeTimeSpanBody,
    TopicStatsTable,
)
from rocketrio_protocol.bodies.topics import (
    GroupSettingsTable,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.ha.status import HARuntimeInfo
from rocketrio_protocol.headers import AnswerBody, Header, RequestHeader, json_body


class CreateTopicRequestHeader(RequestHeader):
    """Create or change a topic."""

    code: ClassVar = RequestCode.UPDATE_AND_CREATE_TOPIC
    topic: str
    default_topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str
    order: bool
    topic_sys_flag: int | None = None
    attributes: str | None = None
    force: bool | None = None


class DeleteTopicInBrokerRequestHeader(RequestHeader):
    """Remove a topic from this broker."""

    code: ClassVar = RequestCode.DELETE_TOPIC_IN_BROKER
    topic: str


class GetAllTopicConfigResponseHeader(Header):
    """The body is TopicConfigSerializeWrapper; a rocketrio master that does not lead (yet) adds that."""

    stands_aside: bool | None = msgspec.field(name="rocketrioStandsAside", default=None)


class GetAllTopicConfigRequestHeader(RequestHeader):
    """Get all topics with their DataVersion (sent by slaves)."""

    code: ClassVar = RequestCode.GET_ALL_TOPIC_CONFIG
    answers: ClassVar = GetAllTopicConfigResponseHeader
    body: ClassVar = json_body(TopicConfigSerializeWrapper, what="topics")


class GetAllSubscriptionGroupConfigRequestHeader(RequestHeader):
    """Get all groups with their DataVersion (sent by slaves)."""

    code: ClassVar = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    body: ClassVar = json_body(GroupSettingsTable, what="group settings")


class GetAllConsumerOffsetRequestHeader(RequestHeader):
    """Get all committed offsets (sent by slaves); with `versions` a rocketrio broker adds their versions.

    A rocketrio slave names itself, and the address of its end of the replication stream.
    """

    code: ClassVar = RequestCode.GET_ALL_CONSUMER_OFFSET
    body: ClassVar = json_body(ConsumerOffsetWrapper, what="offsets")
    versions: bool | None = msgspec.field(name="rocketrioVersions", default=None)
    broker_id: int | None = msgspec.field(name="rocketrioBrokerId", default=None)
    ha_addr: str | None = msgspec.field(name="rocketrioHAAddr", default=None)


class GetAllDelayOffsetResponseHeader(Header):
    """The body is DelayOffsetWrapper; a rocketrio broker adds the log offset up to which the progress is valid."""

    log_end_offset: int | None = msgspec.field(name="rocketrioLogEnd", default=None)


class GetAllDelayOffsetRequestHeader(RequestHeader):
    """Get the progress of the delay levels (sent by slaves)."""

    code: ClassVar = RequestCode.GET_ALL_DELAY_OFFSET
    answers: ClassVar = GetAllDelayOffsetResponseHeader


class UpdateAndCreateSubscriptionGroupRequestHeader(RequestHeader):
    """Create or change a group; the body is SubscriptionGroupConfig."""

    code: ClassVar = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


class DeleteSubscriptionGroupRequestHeader(RequestHeader):
    """Remove a group, and optionally its offsets."""

    code: ClassVar = RequestCode.DELETE_SUBSCRIPTIONGROUP
    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None


class GetBrokerRuntimeInfoRequestHeader(RequestHeader):
    """Get a table of strings about the running broker."""

    code: ClassVar = RequestCode.GET_BROKER_RUNTIME_INFO
    body: ClassVar = AnswerBody(KVTable.from_json)


class GetBrokerConfigResponseHeader(Header):
    """The configuration's DataVersion as JSON."""

    version: str


class GetBrokerConfigRequestHeader(RequestHeader):
    """Get the configuration as Java properties."""

    code: ClassVar = RequestCode.GET_BROKER_CONFIG
    answers: ClassVar = GetBrokerConfigResponseHeader
    body: ClassVar = AnswerBody(parse_properties)


class UpdateBrokerConfigRequestHeader(RequestHeader):
    """Change settings at run time; the body is Java properties."""

    code: ClassVar = RequestCode.UPDATE_BROKER_CONFIG


class GetTopicStatsInfoRequestHeader(RequestHeader):
    """Get the bounds and the last store time of a topic's queues."""

    code: ClassVar = RequestCode.GET_TOPIC_STATS_INFO
    body: ClassVar = AnswerBody(TopicStatsTable.from_json)
    topic: str


class GetConsumeStatsRequestHeader(RequestHeader):
    """Get the progress of a group in each queue."""

    code: ClassVar = RequestCode.GET_CONSUME_STATS
    body: ClassVar = AnswerBody(ConsumeStats.from_json)
    consumer_group: str
    topic: str | None = None


class GetConsumerConnectionListRequestHeader(RequestHeader):
    """Get the connected clients of a consumer group."""

    code: ClassVar = RequestCode.GET_CONSUMER_CONNECTION_LIST
    body: ClassVar = AnswerBody(ConsumerConnection.from_json)
    consumer_group: str


class GetProducerConnectionListRequestHeader(RequestHeader):
    """Get the connected clients of a producer group."""

    code: ClassVar = RequestCode.GET_PRODUCER_CONNECTION_LIST
    body: ClassVar = AnswerBody(ProducerConnection.from_json)
    producer_group: str


class QueryTopicConsumeByWhoRequestHeader(RequestHeader):
    """Get the groups that consume a topic."""

    code: ClassVar = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    body: ClassVar = AnswerBody(GroupList.from_json)
    topic: str


class QueryConsumeTimeSpanRequestHeader(RequestHeader):
    """Get the store times up to which a group has consumed each queue of a topic."""

    code: ClassVar = RequestCode.QUERY_CONSUME_TIME_SPAN
    body: ClassVar = AnswerBody(QueryConsumeTimeSpanBody.from_json)
    topic: str
    group: str


class GetSystemTopicListFromBrokerRequestHeader(RequestHeader):
    """Get the system topics of the broker."""

    code: ClassVar = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER


class QueryCorrectionOffsetRequestHeader(RequestHeader):
    """Get the lowest offsets of other groups on a topic."""

    code: ClassVar = RequestCode.QUERY_CORRECTION_OFFSET
    topic: str
    compare_group: str
    filter_groups: str | None = None


class CloneGroupOffsetRequestHeader(RequestHeader):
    """Copy one group's offsets to another."""

    code: ClassVar = RequestCode.CLONE_GROUP_OFFSET
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


class ViewBrokerStatsDataRequestHeader(RequestHeader):
    """Get one statistic for the last minute, hour and day."""

    code: ClassVar = RequestCode.VIEW_BROKER_STATS_DATA
    body: ClassVar = AnswerBody(BrokerStatsData.from_json)
    stats_name: str
    stats_key: str


class GetBrokerConsumeStatsRequestHeader(RequestHeader):
    """Get the progress of all groups."""

    code: ClassVar = RequestCode.GET_BROKER_CONSUME_STATS
    body: ClassVar = AnswerBody(ConsumeStatsList.from_json)
    is_order: bool


class CleanExpiredQueuesRequestHeader(RequestHeader):
    """Delete the files of queues whose messages are no longer in the log."""

    code: ClassVar = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


class CleanUnusedTopicsRequestHeader(RequestHeader):
    """Delete the queues of topics that the broker does not have any more."""

    code: ClassVar = RequestCode.CLEAN_UNUSED_TOPIC


class DeleteExpiredLogRequestHeader(RequestHeader):
    """Delete the files of the log that are older than the retention."""

    code: ClassVar = RequestCode.DELETE_EXPIRED_COMMITLOG


class ResetOffsetRequestHeader(RequestHeader):
    """Reset a group to a time, backward or forward."""

    code: ClassVar = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    topic: str
    group: str
    timestamp: int
    is_force: bool
    queue_id: int | None = None
    offset: int | None = None


class SetMessageRequestModeRequestHeader(RequestHeader):
    """Have a group ask for a topic by pull or by pop (5.x); the body is MessageRequestMode."""

    code: ClassVar = RequestCode.SET_MESSAGE_REQUEST_MODE


class GetAllMessageRequestModeRequestHeader(RequestHeader):
    """Get these modes (5.x); the body of the answer is MessageRequestModes."""

    code: ClassVar = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
    body: ClassVar = AnswerBody(MessageRequestModes.from_json)


class GetTopicConfigRequestHeader(RequestHeader):
    """Get the settings of one topic (5.x)."""

    code: ClassVar = RequestCode.GET_TOPIC_CONFIG
    body: ClassVar = json_body(TopicConfig, what="topic")
    topic: str
    logical: bool | None = msgspec.field(name="lo", default=None)


class GetSubscriptionGroupConfigRequestHeader(RequestHeader):
    """Get the settings of one group (5.x)."""

    code: ClassVar = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    body: ClassVar = json_body(dict[str, Any], what="group settings")
    group: str


class GetBrokerHAStatusRequestHeader(RequestHeader):
    """Get the state of replication (5.x)."""

    code: ClassVar = RequestCode.GET_BROKER_HA_STATUS
    body: ClassVar = AnswerBody(HARuntimeInfo.from_json)


class ChangeBrokerRoleRequestHeader(RequestHeader):
    """Change the broker's role at run time: async-master, sync-master or slave, with the matching broker id.

    `accept_loss` permits a slave that lacks much of its master's log to become master.
    """

    code: ClassVar = RequestCode.CHANGE_BROKER_ROLE
    role: str
    broker_id: int
    accept_loss: bool = False


class ClaimSlaveIdResponseHeader(Header):
    """The id that the broker may use; no other broker has it."""

    broker_id: int


class ClaimSlaveIdRequestHeader(RequestHeader):
    """Ask a rocketrio master for a slave id: a broker of the same name wants to follow it."""

    code: ClassVar = RequestCode.CLAIM_SLAVE_ID
    answers: ClassVar = ClaimSlaveIdResponseHeader
    broker_name: str
    broker_addr: str
    configured_broker_id: int = 0
    """The slave's id in its settings, which it gets if that is free; 0 if they say master."""
    shared_broker_id: int = 0
    """An id that it must not get, because another broker has it too; 0 if none."""


class GetIdentityResponseHeader(Header):
    """What other brokers of its name ask before they know each other: no setting, no topic, no user."""

    broker_name: str
    broker_id: int
    ha_address: str
    """Where it serves its log."""
    replication: int
    """The version of the exchange of epochs that it supports (26: rocketrioReplication)."""
    log_end_offset: int
    """Where its log ends."""
    role: str
    """`async-master`, `sync-master` or `slave`."""
    claims: bool | None = None
    """Whether a master leads or is about to; None for a slave."""


class GetIdentityRequestHeader(RequestHeader):
    """Ask a rocketrio broker who it is; needs no account."""

    code: ClassVar = RequestCode.GET_IDENTITY
    answers: ClassVar = GetIdentityResponseHeader


class CheckLogRequestHeader(RequestHeader):
    """Ask a rocketrio broker for the state of its log check; with `start` begin one, at `rate` bytes a second."""

    code: ClassVar = RequestCode.CHECK_LOG
    body: ClassVar = AnswerBody(LogCheckStatus.from_json)
    start: bool = False
    rate: int | None = None


class GetEventsResponseHeader(Header):
    """The number of the next event, and the ring in which these numbers count: each start of a broker has another."""

    next_offset: int
    ring: str


class GetEventsRequestHeader(RequestHeader):
    """Ask a rocketrio broker for its last events: those after the number `after_offset`, from `since_millis` on.

    `kinds` are separated by commas; without them all are meant.
    """

    code: ClassVar = RequestCode.GET_EVENTS
    answers: ClassVar = GetEventsResponseHeader
    body: ClassVar = AnswerBody(events_from_json)
    after_offset: int = 0
    since_millis: int = 0
    kinds: str | None = None


class GetLogDigestResponseHeader(Header):
    """BLAKE2b of these bytes (16 bytes, hexadecimal); None if the broker does not have all of them."""

    digest: str | None = None


class GetLogDigestRequestHeader(RequestHeader):
    """Ask a rocketrio broker for a digest of its log between two offsets."""

    code: ClassVar = RequestCode.GET_LOG_DIGEST
    answers: ClassVar = GetLogDigestResponseHeader
    start_offset: int
    end_offset: int


class HandOverResponseHeader(Header):
    """The slave, and the result of the hand-over."""

    broker_id: int
    broker_addr: str
    log_end_offset: int
    """The end of the master's log, at the time of the hand-over if there was one."""
    slave_ack_offset: int
    """Up to where the slave had the log before."""
    millis: int = 0
    """How long there was no master that accepted writes; 0 after a dry run."""


class HandOverRequestHeader(RequestHeader):
    """Ask a rocketrio master to exchange roles with a slave; with `dry_run` only check whether that is possible."""

    code: ClassVar = RequestCode.HAND_OVER
    answers: ClassVar = HandOverResponseHeader
    to_id: int | None = None
    """The slave's id; with None the master chooses."""
    dry_run: bool = False


class TakeOverResponseHeader(Header):
    """The state of the hand-over at the slave."""

    state: str
    """`prepared`; `void`: it will not happen; `taken`: the slave is the master now; `leads`: it accepts writes."""


class TakeOverRequestHeader(RequestHeader):
    """Sent by a master to the slave that will succeed it, in the steps `prepare`, `take` and `ask`."""

    code: ClassVar = RequestCode.TAKE_OVER
    answers: ClassVar = TakeOverResponseHeader
    step: str
    token: str
    """Identifies one hand-over."""
    broker_name: str
    master_addr: str
    """The address at which the master answers requests."""
    role: str = ""
    """In the step `take`: the master's role, which the slave takes over."""
    log_end_offset: int = -1
    """In the step `take`: the end of both logs."""
