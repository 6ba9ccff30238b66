"""Administration of one broker: topics, groups, statistics, configuration, what slaves copy.

Answers to: RocketMQ reference, sections 2.11 and 7.
"""

from typing import ClassVar

import attrs

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import Header, RequestHeader, wire


@attrs.define
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


@attrs.define
class DeleteTopicInBrokerRequestHeader(RequestHeader):
    """Remove a topic from this broker."""

    code: ClassVar = RequestCode.DELETE_TOPIC_IN_BROKER
    topic: str


@attrs.define
class GetAllTopicConfigRequestHeader(RequestHeader):
    """All topics with their DataVersion (slaves ask)."""

    code: ClassVar = RequestCode.GET_ALL_TOPIC_CONFIG


@attrs.define
class GetAllSubscriptionGroupConfigRequestHeader(RequestHeader):
    """All groups with their DataVersion (slaves ask)."""

    code: ClassVar = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG


@attrs.define
class GetAllConsumerOffsetRequestHeader(RequestHeader):
    """All committed offsets (slaves ask); with `versions` our brokers add what makes one newer than another.

    A slave of ours says who it is, and the address of its end of the replication stream.
    """

    code: ClassVar = RequestCode.GET_ALL_CONSUMER_OFFSET
    versions: bool | None = wire("rocketrioVersions", default=None)
    broker_id: int | None = wire("rocketrioBrokerId", default=None)
    ha_addr: str | None = wire("rocketrioHAAddr", default=None)


@attrs.define
class GetAllDelayOffsetRequestHeader(RequestHeader):
    """Progress of the delay levels (slaves ask)."""

    code: ClassVar = RequestCode.GET_ALL_DELAY_OFFSET


@attrs.define
class GetAllDelayOffsetResponseHeader(Header):
    """The body is DelayOffsetWrapper. It holds for a log that reaches this address; only our brokers say so."""

    log_end_offset: int | None = wire("rocketrioLogEnd", default=None)


@attrs.define
class UpdateAndCreateSubscriptionGroupRequestHeader(RequestHeader):
    """Create or change a group; the body is SubscriptionGroupConfig."""

    code: ClassVar = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


@attrs.define
class DeleteSubscriptionGroupRequestHeader(RequestHeader):
    """Remove a group, with its offsets where asked."""

    code: ClassVar = RequestCode.DELETE_SUBSCRIPTIONGROUP
    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None


@attrs.define
class GetBrokerRuntimeInfoRequestHeader(RequestHeader):
    """A table of text about the running broker."""

    code: ClassVar = RequestCode.GET_BROKER_RUNTIME_INFO


@attrs.define
class GetBrokerConfigRequestHeader(RequestHeader):
    """The configuration in Java properties form."""

    code: ClassVar = RequestCode.GET_BROKER_CONFIG


@attrs.define
class GetBrokerConfigResponseHeader(Header):
    """The configuration's DataVersion as JSON."""

    version: str


@attrs.define
class UpdateBrokerConfigRequestHeader(RequestHeader):
    """Change settings at run time; the body is text in Java properties form."""

    code: ClassVar = RequestCode.UPDATE_BROKER_CONFIG


@attrs.define
class GetTopicStatsInfoRequestHeader(RequestHeader):
    """Bounds and last store time of a topic's queues."""

    code: ClassVar = RequestCode.GET_TOPIC_STATS_INFO
    topic: str


@attrs.define
class GetConsumeStatsRequestHeader(RequestHeader):
    """Progress of a group, queue by queue."""

    code: ClassVar = RequestCode.GET_CONSUME_STATS
    consumer_group: str
    topic: str | None = None


@attrs.define
class GetConsumerConnectionListRequestHeader(RequestHeader):
    """Who is connected for a consumer group."""

    code: ClassVar = RequestCode.GET_CONSUMER_CONNECTION_LIST
    consumer_group: str


@attrs.define
class GetProducerConnectionListRequestHeader(RequestHeader):
    """Who is connected for a producer group."""

    code: ClassVar = RequestCode.GET_PRODUCER_CONNECTION_LIST
    producer_group: str


@attrs.define
class QueryTopicConsumeByWhoRequestHeader(RequestHeader):
    """The groups that consume a topic."""

    code: ClassVar = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    topic: str


@attrs.define
class QueryConsumeTimeSpanRequestHeader(RequestHeader):
    """How far in time a group is on each queue of a topic."""

    code: ClassVar = RequestCode.QUERY_CONSUME_TIME_SPAN
    topic: str
    group: str


@attrs.define
class GetSystemTopicListFromBrokerRequestHeader(RequestHeader):
    """The broker's own topics."""

    code: ClassVar = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER


@attrs.define
class QueryCorrectionOffsetRequestHeader(RequestHeader):
    """The lowest offsets of other groups on a topic."""

    code: ClassVar = RequestCode.QUERY_CORRECTION_OFFSET
    topic: str
    compare_group: str
    filter_groups: str | None = None


@attrs.define
class CloneGroupOffsetRequestHeader(RequestHeader):
    """Copy one group's offsets to another."""

    code: ClassVar = RequestCode.CLONE_GROUP_OFFSET
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


@attrs.define
class ViewBrokerStatsDataRequestHeader(RequestHeader):
    """One statistic over minute, hour and day."""

    code: ClassVar = RequestCode.VIEW_BROKER_STATS_DATA
    stats_name: str
    stats_key: str


@attrs.define
class GetBrokerConsumeStatsRequestHeader(RequestHeader):
    """Progress of all groups."""

    code: ClassVar = RequestCode.GET_BROKER_CONSUME_STATS
    is_order: bool


@attrs.define
class ResetOffsetRequestHeader(RequestHeader):
    """An operator sets a group back (or forward) to a time."""

    code: ClassVar = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    topic: str
    group: str
    timestamp: int
    is_force: bool
    queue_id: int | None = None
    offset: int | None = None


@attrs.define
class GetTopicConfigRequestHeader(RequestHeader):
    """One topic's settings (5.x)."""

    code: ClassVar = RequestCode.GET_TOPIC_CONFIG
    topic: str
    logical: bool | None = wire("lo", default=None)


@attrs.define
class GetSubscriptionGroupConfigRequestHeader(RequestHeader):
    """One group's settings (5.x)."""

    code: ClassVar = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    group: str


@attrs.define
class GetBrokerHAStatusRequestHeader(RequestHeader):
    """How replication stands (5.x)."""

    code: ClassVar = RequestCode.GET_BROKER_HA_STATUS


@attrs.define
class ChangeBrokerRoleRequestHeader(RequestHeader):
    """Take another role at run time: async-master, sync-master or slave, with the id that goes with it."""

    code: ClassVar = RequestCode.CHANGE_BROKER_ROLE
    role: str
    broker_id: int


@attrs.define
class ClaimSlaveIdRequestHeader(RequestHeader):
    """To a master of ours that takes writes: a broker of its name wants to follow it."""

    code: ClassVar = RequestCode.CLAIM_SLAVE_ID
    broker_name: str
    broker_addr: str


@attrs.define
class ClaimSlaveIdResponseHeader(Header):
    """The id it may have, which no other has."""

    broker_id: int


@attrs.define
class CheckLogRequestHeader(RequestHeader):
    """To a rocketrio broker: how the check of its log stands; with `start` begin one, at `rate` bytes a second."""

    code: ClassVar = RequestCode.CHECK_LOG
    start: bool = False
    rate: int | None = None


@attrs.define
class GetLogDigestRequestHeader(RequestHeader):
    """To a rocketrio broker: a digest of its log between two addresses."""

    code: ClassVar = RequestCode.GET_LOG_DIGEST
    start_offset: int
    end_offset: int


@attrs.define
class GetLogDigestResponseHeader(Header):
    """Of exactly these bytes (BLAKE2b, 16 bytes, hexadecimal); None where the broker does not have all of them."""

    digest: str | None = None


@attrs.define
class HandOverRequestHeader(RequestHeader):
    """To a master of ours: change places with a slave; with `dry_run` only say whether that can be."""

    code: ClassVar = RequestCode.HAND_OVER
    to_id: int | None = None
    """The slave's id; None leaves the choice to the master."""
    dry_run: bool = False


@attrs.define
class HandOverResponseHeader(Header):
    """Who the slave is, or was."""

    broker_id: int
    broker_addr: str
    log_end_offset: int
    """Where the master's log ends, or ended."""
    slave_ack_offset: int
    """What the slave had of it before."""
    millis: int = 0
    """How long no master took writes; 0 of a dry run."""


@attrs.define
class TakeOverRequestHeader(RequestHeader):
    """From a master to the slave that is to succeed it, step by step: `prepare`, `take`, `ask`."""

    code: ClassVar = RequestCode.TAKE_OVER
    step: str
    token: str
    """Names one hand-over."""
    broker_name: str
    master_addr: str
    """Where the master answers requests."""
    role: str = ""
    """Of `take`: the master's role, which the slave gets."""
    log_end_offset: int = -1
    """Of `take`: where the log of both ends."""


@attrs.define
class TakeOverResponseHeader(Header):
    """What became of the hand-over at the slave."""

    state: str
    """`prepared`; `void`, never to be; `taken`, it is master from now on; `leads`, and takes writes."""
