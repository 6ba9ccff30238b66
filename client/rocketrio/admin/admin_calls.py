"""The single requests of an administrator, each to a given address.

Answers to: the administrative half of MQClientAPIImpl; RocketMQ reference, sections 2.5 and 2.11.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec
import trio

from rocketrio.cluster.api import ClientAPI
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.events import LoggedEvent, events_from_json
from rocketrio_protocol.bodies.inspection import (
    MessageRequestMode,
    MessageRequestModes,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketrio_protocol.bodies.java_properties import format_properties, parse_properties
from rocketrio_protocol.bodies.log_check import LogCheckStatus
from rocketrio_protocol.bodies.offsets import ConsumerOffsetWrapper
from rocketrio_protocol.bodies.route import KVTable
from rocketrio_protocol.bodies.running_info import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
)
from rocketrio_protocol.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumerConnection,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    ProducerConnection,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicStatsTable,
)
from rocketrio_protocol.bodies.topics import TopicConfig, TopicConfigSerializeWrapper
from rocketrio_protocol.commands.admin import (
    ChangeBrokerRoleRequestHeader,
    CheckLogRequestHeader,
    CleanExpiredQueuesRequestHeader,
    CleanUnusedTopicsRequestHeader,
    CreateTopicRequestHeader,
    DeleteExpiredLogRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicInBrokerRequestHeader,
    GetAllConsumerOffsetRequestHeader,
    GetAllMessageRequestModeRequestHeader,
    GetAllSubscriptionGroupConfigRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetBrokerConfigRequestHeader,
    GetBrokerConsumeStatsRequestHeader,
    GetBrokerHAStatusRequestHeader,
    GetBrokerRuntimeInfoRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetEventsRequestHeader,
    GetEventsResponseHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    HandOverRequestHeader,
    HandOverResponseHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    SetMessageRequestModeRequestHeader,
    UpdateAndCreateSubscriptionGroupRequestHeader,
    UpdateBrokerConfigRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rocketrio_protocol.commands.consumer import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rocketrio_protocol.commands.inspection import GetAllProducerInfoRequestHeader
from rocketrio_protocol.commands.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketrio_protocol.commands.send import AUTO_CREATE_TOPIC_KEY
from rocketrio_protocol.errors import BrokerError, RemoteProtocolError, RequestCodeNotSupportedError
from rocketrio_protocol.ha.status import HARuntimeInfo
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.names import LEDGER_END_ID, TRANSACTION_GROUP

ADMIN_TIMEOUT: Final = 5.0  # timeoutMillis of DefaultMQAdminExt
WALK_TIMEOUT: Final = 30.0
"""Seconds for the progress of all groups: the broker walks through all its offsets."""
MEMBER_TIMEOUT: Final = 12.0
"""Seconds for the state of a member: the broker itself waits 10 s for it."""
CLEAN_TIMEOUT: Final = 30.0
"""Seconds for a broker to delete files."""
HAND_OVER_TIMEOUT: Final = 20.0
"""Seconds: a broker needs at most eleven, if the slave does not answer."""
ROLE_TIMEOUT: Final = 70.0
"""Seconds that a change of role may take: a rocketrio broker answers within 60."""
_UNKNOWN_KEY: Final = "not exist"
"""A part of the remark of a broker that has counted nothing under this key lately."""
_END_OF_TIME: Final = 2**63 - 1

Period: TypeAlias = Literal["minute", "hour", "day"]


class _RawGroups(msgspec.Struct, rename="camel"):
    subscription_group_table: dict[str, dict[str, Any]] = {}


@attrs.define
class AdminCalls:
    """One method for each request.

    All raise NotReachableError, RequestTimeoutError, BrokerError, RemoteProtocolError.
    """

    api: ClientAPI
    timeout: float = ADMIN_TIMEOUT
    _walks: dict[str, trio.Lock] = attrs.field(init=False, factory=lambda: defaultdict(trio.Lock))
    """By address: a broker walks through all its offsets for one caller at a time."""

    async def topics(self, addr: str) -> dict[str, TopicConfig]:
        """Return all topics of a broker, by name."""
        header = GetAllTopicConfigRequestHeader()
        answer = await self.api.call(addr, header, what="topics not read", timeout=self.timeout)
        table = fastjson.loads(answer.body, TopicConfigSerializeWrapper, what="topics")
        return table.topic_config_table

    async def topic(self, addr: str, topic: str) -> TopicConfig:
        """Return the settings of one topic. Brokers of RocketMQ 4 raise RequestCodeNotSupportedError."""
        header = GetTopicConfigRequestHeader(topic, logical=True)
        what = "topic not read"
        answer = await self.api.call(addr, header, what=what, topic=topic, timeout=self.timeout)
        return fastjson.loads(answer.body, TopicConfig, what="topic")

    async def update_topic(
        self, addr: str, config: TopicConfig, attributes: Mapping[str, str | None] = {}
    ) -> None:
        """Create or change a topic on a master; an attribute that is None is removed."""
        topic = config.topic_name
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC_KEY,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=int(config.perm),
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=",".join(
                f"-{name}" if value is None else f"+{name}={value}"
                for name, value in attributes.items()
            )
            or None,
        )
        what = "topic not created"
        await self.api.call(addr, header, what=what, topic=topic, timeout=self.timeout)

    async def delete_topic(self, addr: str, topic: str) -> None:
        """Remove a topic from one broker."""
        header = DeleteTopicInBrokerRequestHeader(topic=topic)
        what = "topic not deleted"
        await self.api.call(addr, header, what=what, topic=topic, timeout=self.timeout)

    async def groups(self, addr: str) -> dict[str, dict[str, Any]]:
        """Return the settings of a broker's consumer groups by name, with all fields that its version knows."""
        header = GetAllSubscriptionGroupConfigRequestHeader()
        answer = await self.api.call(addr, header, what="groups not read", timeout=self.timeout)
        table = fastjson.loads(answer.body, _RawGroups, what="group settings")
        return table.subscription_group_table

    async def group(self, addr: str, group: str) -> dict[str, Any]:
        """Return what `groups` returns of one group.

        Brokers of RocketMQ 4 raise RequestCodeNotSupportedError; those of RocketMQ 5 create an unknown group.
        """
        header = GetSubscriptionGroupConfigRequestHeader(group)
        answer = await self.api.call(addr, header, what="group not read", timeout=self.timeout)
        settings: dict[str, Any] = fastjson.loads(
            answer.body, dict[str, Any], what="group settings"
        )
        return settings

    async def update_group(self, addr: str, settings: Mapping[str, Any]) -> None:
        """Create or change a consumer group on a master; `settings` have the form that `groups` returns."""
        header = UpdateAndCreateSubscriptionGroupRequestHeader()
        what = f"group {settings['groupName']} not changed"
        body = fastjson.dumps(settings)
        await self.api.call(addr, header, body, what=what, timeout=self.timeout)

    async def delete_group(self, addr: str, group: str, *, with_offsets: bool) -> None:
        """Remove a group from a master."""
        # 4.9 reads the first flag, 5.x the second.
        header = DeleteSubscriptionGroupRequestHeader(group, with_offsets, with_offsets)
        what = f"group {group} not deleted"
        await self.api.call(addr, header, what=what, timeout=self.timeout)

    async def groups_of(self, addr: str, topic: str) -> list[str]:
        """Return the groups that one broker knows to consume a topic."""
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        what = "groups of the topic not read"
        answer = await self.api.call(addr, header, what=what, topic=topic, timeout=self.timeout)
        return GroupList.from_json(answer.body).group_list

    async def topic_stats(self, addr: str, topic: str) -> TopicStatsTable:
        """Return the bounds and last store times of the topic's queues on one broker."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        what = "topic statistics failed"
        answer = await self.api.call(addr, header, what=what, topic=topic, timeout=self.timeout)
        return TopicStatsTable.from_json(answer.body)

    async def all_offsets(self, addr: str) -> dict[tuple[str, str], dict[int, int]]:
        """Return all committed offsets of a broker by group and topic, then by queue.

        Where transactions ended at their last progress (`LEDGER_END_ID`) belongs to no queue, and is left out.
        """
        header = GetAllConsumerOffsetRequestHeader()
        answer = await self.api.call(addr, header, what="offsets not read", timeout=self.timeout)
        found = fastjson.loads(answer.body, ConsumerOffsetWrapper, what="offsets").offset_table
        # A topic's name cannot contain an @, but a group's may have one on a broker that checks no names.
        split = {key: key.partition("@") for key in found}
        for key, (_, _, group) in split.items():
            if group == TRANSACTION_GROUP:
                found[key].pop(LEDGER_END_ID, None)
        return {(group, topic): found[key] for key, (topic, _, group) in split.items()}

    async def all_progress(self, addr: str) -> dict[str, list[ConsumeStats]]:
        """Return the progress of all groups on one broker, one value for each topic of a group.

        The broker reports 0 where nothing was committed.
        """
        header = GetBrokerConsumeStatsRequestHeader(is_order=False)
        async with self._walks[addr]:
            answer = await self.api.call(
                addr, header, what="progress of the groups not read", timeout=WALK_TIMEOUT
            )
        found = ConsumeStatsList.from_json(answer.body).consume_stats_list
        return {group: stats for entry in found for group, stats in entry.items()}

    async def consume_stats(self, addr: str, group: str, topic: str | None) -> ConsumeStats:
        """Return a group's progress on one broker."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        what = f"progress of group {group} not read"
        answer = await self.api.call(addr, header, what=what, topic=topic, timeout=self.timeout)
        return ConsumeStats.from_json(answer.body)

    async def time_spans(self, addr: str, group: str, topic: str) -> list[QueueTimeSpan]:
        """Return the store times of each queue's first, last and next message for a group."""
        header = QueryConsumeTimeSpanRequestHeader(topic=topic, group=group)
        what = f"times of group {group} not read"
        answer = await self.api.call(addr, header, what=what, topic=topic, timeout=self.timeout)
        return QueryConsumeTimeSpanBody.from_json(answer.body).consume_time_span_set

    async def counted(self, addr: str, name: str, key: str, period: Period) -> BrokerStatsItem:
        """Return what a broker has counted under a name and a key; zeros if it has counted nothing lately."""
        header = ViewBrokerStatsDataRequestHeader(name, key)
        try:
            answer = await self.api.call(
                addr, header, what="statistics not read", timeout=self.timeout
            )
        except BrokerError as error:
            if _UNKNOWN_KEY in (error.remark or ""):
                return BrokerStatsItem()
            raise
        data = BrokerStatsData.from_json(answer.body)
        return {"minute": data.stats_minute, "hour": data.stats_hour, "day": data.stats_day}[period]

    async def consumer_connections(self, addr: str, group: str) -> ConsumerConnection:
        """Return the members that are connected to one broker for a group."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        what = f"members of group {group} not read"
        answer = await self.api.call(addr, header, what=what, timeout=self.timeout)
        return ConsumerConnection.from_json(answer.body)

    async def running_info(
        self,
        addr: str,
        group: str,
        client_id: str,
        *,
        stacks: bool = False,
        timeout: float = MEMBER_TIMEOUT,
    ) -> ConsumerRunningInfo:
        """Return the state of a group's member, which the broker asks for it."""
        header = GetConsumerRunningInfoRequestHeader(group, client_id, jstack_enable=stacks)
        what = f"state of member {client_id} not read"
        answer = await self.api.call(addr, header, what=what, timeout=timeout)
        return ConsumerRunningInfo.from_json(answer.body)

    async def consume_directly(
        self, addr: str, message: MessageExt, group: str, client_id: str
    ) -> ConsumeMessageDirectlyResult:
        """Have a group's member handle a message that the broker at `addr` has."""
        header = ConsumeMessageDirectlyRequestHeader(
            group,
            client_id,
            message.offset_message_id,
            broker_name=message.broker_name,
            topic=message.topic,
        )
        what = f"{message.message_id} not delivered to {client_id}"
        answer = await self.api.call(
            addr, header, what=what, topic=message.topic, timeout=MEMBER_TIMEOUT
        )
        return fastjson.loads(
            answer.body, ConsumeMessageDirectlyResult, what="result of the delivery"
        )

    async def producers(self, addr: str) -> dict[str, list[ProducerInfo]]:
        """Return all producers that are connected to one broker, by their groups."""
        header = GetAllProducerInfoRequestHeader()
        answer = await self.api.call(addr, header, what="producers not read", timeout=WALK_TIMEOUT)
        return ProducerTableInfo.from_json(answer.body).data

    async def request_modes(self, addr: str) -> dict[str, dict[str, str]]:
        """Return how groups ask for topics, `pull` or `pop`, by topic and group. Brokers before 5.0 do not know it."""
        header = GetAllMessageRequestModeRequestHeader()
        answer = await self.api.call(addr, header, what="modes not read", timeout=self.timeout)
        modes = MessageRequestModes.from_json(answer.body).message_request_mode_map
        return {
            topic: {group: one.mode.lower() for group, one in groups.items()}
            for topic, groups in modes.items()
        }

    async def set_request_mode(
        self, addr: str, group: str, topic: str, mode: str, share_queues: int
    ) -> None:
        """Have a group ask for a topic by `pull` or by `pop`; both have the names that brokers know."""
        header = SetMessageRequestModeRequestHeader()
        body = MessageRequestMode(topic, group, mode.upper(), share_queues).to_json()
        what = f"mode of {group} not changed"
        await self.api.call(addr, header, body, what=what, topic=topic, timeout=self.timeout)

    async def clean_queues(self, addr: str) -> None:
        """Have a broker delete the files of queues whose messages are no longer in its log."""
        header = CleanExpiredQueuesRequestHeader()
        await self.api.call(addr, header, what="queues not cleaned", timeout=CLEAN_TIMEOUT)

    async def clean_topics(self, addr: str) -> None:
        """Have a broker delete the queues of topics that it does not have any more."""
        header = CleanUnusedTopicsRequestHeader()
        await self.api.call(addr, header, what="topics not cleaned", timeout=CLEAN_TIMEOUT)

    async def clean_log(self, addr: str) -> None:
        """Have a broker delete the files of its log that are older than its retention."""
        header = DeleteExpiredLogRequestHeader()
        await self.api.call(addr, header, what="log not cleaned", timeout=CLEAN_TIMEOUT)

    async def producer_connections(self, addr: str, group: str) -> ProducerConnection:
        """Return the clients that are connected to one broker for a producer group."""
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        what = f"clients of producer group {group} not read"
        answer = await self.api.call(addr, header, what=what, timeout=self.timeout)
        return ProducerConnection.from_json(answer.body)

    async def runtime_info(self, addr: str) -> dict[str, str]:
        """Return a broker's runtime information."""
        header = GetBrokerRuntimeInfoRequestHeader()
        answer = await self.api.call(addr, header, what="runtime info failed", timeout=self.timeout)
        return {name: str(value) for name, value in KVTable.from_json(answer.body).table.items()}

    async def broker_config(self, addr: str) -> dict[str, str]:
        """Return a broker's settings, under Java's names."""
        header = GetBrokerConfigRequestHeader()
        answer = await self.api.call(addr, header, what="settings not read", timeout=self.timeout)
        return parse_properties(answer.body)

    async def update_broker_config(self, addr: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker, under Java's names. Apache's brokers ignore unknown names silently."""
        header = UpdateBrokerConfigRequestHeader()
        body = format_properties(settings)
        await self.api.call(addr, header, body, what="settings not changed", timeout=self.timeout)

    async def ha_status(self, addr: str) -> HARuntimeInfo | None:
        """Return a broker's replication state, or None if it does not know the request, as Apache's before 5.0."""
        header = GetBrokerHAStatusRequestHeader()
        try:
            answer = await self.api.call(addr, header, what="no HA status", timeout=self.timeout)
        except RequestCodeNotSupportedError:
            return None
        return HARuntimeInfo.from_json(answer.body)

    async def change_role(
        self, addr: str, role: str, broker_id: int, *, accept_loss: bool = False
    ) -> None:
        """Give a rocketrio broker another role; it serves when this returns.

        Apache's raise RequestCodeNotSupportedError.
        """
        header = ChangeBrokerRoleRequestHeader(role, broker_id, accept_loss)
        what = f"role not changed to {role} with id {broker_id}"
        await self.api.call(addr, header, what=what, timeout=ROLE_TIMEOUT)

    async def check_log(
        self, addr: str, *, start: bool = False, rate: int | None = None
    ) -> LogCheckStatus:
        """Return the state of a rocketrio broker's log check; `start` begins one.

        Raises RequestCodeNotSupportedError.
        """
        header = CheckLogRequestHeader(start=start, rate=rate)
        answer = await self.api.call(addr, header, what="log not checked", timeout=self.timeout)
        return LogCheckStatus.from_json(answer.body)

    async def events(
        self, addr: str, *, after: int, since_ms: int, kinds: Sequence[str]
    ) -> tuple[GetEventsResponseHeader, list[LoggedEvent]]:
        """Return a rocketrio broker's last events. Apache's raise RequestCodeNotSupportedError."""
        header = GetEventsRequestHeader(after, since_ms, ",".join(kinds) or None)
        answer = await self.api.call(addr, header, what="events not read", timeout=self.timeout)
        return answer.header(GetEventsResponseHeader), events_from_json(answer.body)

    async def hand_over(
        self, addr: str, to_id: int | None, *, dry_run: bool
    ) -> HandOverResponseHeader:
        """Make a rocketrio master change places with a slave. Apache's raise RequestCodeNotSupportedError."""
        header = HandOverRequestHeader(to_id, dry_run)
        answer = await self.api.call(
            addr, header, what="not handed over", timeout=HAND_OVER_TIMEOUT
        )
        return answer.header(HandOverResponseHeader)

    async def view_message(self, addr: str, physical_offset: int) -> MessageExt:
        """Return the message at a position of a broker's log."""
        header = ViewMessageRequestHeader(offset=physical_offset)
        what = f"no message at physical offset {physical_offset}"
        answer = await self.api.call(addr, header, what=what, timeout=self.timeout)
        messages = decode_messages(answer.body)
        if len(messages) != 1:
            raise RemoteProtocolError(f"{what}: {len(messages)} came", broker_addr=addr)
        return messages[0]

    async def query_message(
        self,
        addr: str,
        topic: str,
        key: str,
        *,
        max_messages: int,
        begin_ms: int = 0,
        end_ms: int | None = None,
        broker_name: str = "",
    ) -> list[MessageExt]:
        """Return messages whose key has the hash of `key`. Raises QueryNotFoundError if there are none.

        `_UNIQUE_KEY_QUERY` is never sent: it only means "at most 32", and servers disagree whether it is signed.
        """
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=max_messages,
            begin_timestamp=begin_ms,
            end_timestamp=_END_OF_TIME if end_ms is None else end_ms,
        )
        what = f"no message with key {key!r}"
        answer = await self.api.call(addr, header, what=what, topic=topic, timeout=self.timeout)
        return decode_messages(answer.body, broker_name)
