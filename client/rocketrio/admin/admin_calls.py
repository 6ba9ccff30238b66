"""The single requests of an administrator, each to a given address.

Answers to: the administrative half of MQClientAPIImpl; RocketMQ reference, sections 2.5 and 2.11.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from rocketrio.cluster.api import ClientAPI
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.java_properties import format_properties, parse_properties
from rocketrio_protocol.bodies.log_check import LogCheckStatus
from rocketrio_protocol.bodies.route import KVTable
from rocketrio_protocol.bodies.stats import (
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    ProducerConnection,
    TopicStatsTable,
)
from rocketrio_protocol.bodies.topics import TopicConfig, TopicConfigSerializeWrapper
from rocketrio_protocol.commands.admin import (
    ChangeBrokerRoleRequestHeader,
    CheckLogRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicInBrokerRequestHeader,
    GetAllSubscriptionGroupConfigRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetBrokerConfigRequestHeader,
    GetBrokerHAStatusRequestHeader,
    GetBrokerRuntimeInfoRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    HandOverRequestHeader,
    HandOverResponseHeader,
    QueryTopicConsumeByWhoRequestHeader,
    UpdateAndCreateSubscriptionGroupRequestHeader,
    UpdateBrokerConfigRequestHeader,
)
from rocketrio_protocol.commands.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketrio_protocol.commands.send import AUTO_CREATE_TOPIC_KEY
from rocketrio_protocol.errors import RemoteProtocolError, RequestCodeNotSupported
from rocketrio_protocol.ha.status import HARuntimeInfo
from rocketrio_protocol.message import MessageExt, decode_messages

ADMIN_TIMEOUT: Final = 5.0  # timeoutMillis of DefaultMQAdminExt
HAND_OVER_TIMEOUT: Final = 20.0
"""Seconds: a broker needs at most eleven, if the slave does not answer."""
ROLE_TIMEOUT: Final = 70.0
"""Seconds that a change of role may take: a rocketrio broker answers within 60."""
_END_OF_TIME: Final = 2**63 - 1


class _RawGroups(msgspec.Struct, rename="camel"):
    subscription_group_table: dict[str, dict[str, Any]] = {}


@attrs.define
class AdminCalls:
    """One method for each request. All raise NotReachable, RequestTimeout, BrokerError, RemoteProtocolError."""

    api: ClientAPI
    timeout: float = ADMIN_TIMEOUT

    async def topics(self, addr: str) -> dict[str, TopicConfig]:
        """Return all topics of a broker, by name."""
        header = GetAllTopicConfigRequestHeader()
        answer = await self.api.call(addr, header, what="topics not read", timeout=self.timeout)
        table = fastjson.loads(answer.body, TopicConfigSerializeWrapper, what="topics")
        return table.topic_config_table

    async def topic(self, addr: str, topic: str) -> TopicConfig:
        """Return the settings of one topic. Brokers of RocketMQ 4 raise RequestCodeNotSupported."""
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

    async def topic_stats(self, addr: str, topic: str) -> TopicStatsTable:
        """Return the bounds and last store times of the topic's queues on one broker."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        what = "topic statistics failed"
        answer = await self.api.call(addr, header, what=what, topic=topic, timeout=self.timeout)
        return TopicStatsTable.from_json(answer.body)

    async def groups(self, addr: str) -> dict[str, dict[str, Any]]:
        """Return the settings of a broker's consumer groups by name, with all fields that its version knows."""
        header = GetAllSubscriptionGroupConfigRequestHeader()
        answer = await self.api.call(addr, header, what="groups not read", timeout=self.timeout)
        table = fastjson.loads(answer.body, _RawGroups, what="group settings")
        return table.subscription_group_table

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
        except RequestCodeNotSupported:
            return None
        return HARuntimeInfo.from_json(answer.body)

    async def change_role(self, addr: str, role: str, broker_id: int) -> None:
        """Give a rocketrio broker another role; it serves when this returns. Apache's raise RequestCodeNotSupported."""
        header = ChangeBrokerRoleRequestHeader(role, broker_id)
        what = f"role not changed to {role} with id {broker_id}"
        await self.api.call(addr, header, what=what, timeout=ROLE_TIMEOUT)

    async def check_log(
        self, addr: str, *, start: bool = False, rate: int | None = None
    ) -> LogCheckStatus:
        """Return the state of a rocketrio broker's log check; `start` begins one. Raises RequestCodeNotSupported."""
        header = CheckLogRequestHeader(start=start, rate=rate)
        answer = await self.api.call(addr, header, what="log not checked", timeout=self.timeout)
        return LogCheckStatus.from_json(answer.body)

    async def hand_over(
        self, addr: str, to_id: int | None, *, dry_run: bool
    ) -> HandOverResponseHeader:
        """Make a rocketrio master change places with a slave. Apache's raise RequestCodeNotSupported."""
        header = HandOverRequestHeader(to_id, dry_run)
        answer = await self.api.call(
            addr, header, what="not handed over", timeout=HAND_OVER_TIMEOUT
        )
        return answer.header(HandOverResponseHeader)

    async def consume_stats(self, addr: str, group: str, topic: str | None) -> ConsumeStats:
        """Return a group's progress on one broker."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        what = f"progress of group {group} not read"
        answer = await self.api.call(addr, header, what=what, topic=topic, timeout=self.timeout)
        return ConsumeStats.from_json(answer.body)

    async def consumer_connections(self, addr: str, group: str) -> ConsumerConnection:
        """Return the members that are connected to one broker for a group."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        what = f"members of group {group} not read"
        answer = await self.api.call(addr, header, what=what, timeout=self.timeout)
        return ConsumerConnection.from_json(answer.body)

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
        is_unique_id: bool = False,
        broker_name: str = "",
    ) -> list[MessageExt]:
        """Return messages whose key has the hash of `key`. Raises QueryNotFound if there are none."""
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=max_messages,
            begin_timestamp=begin_ms,
            end_timestamp=_END_OF_TIME if end_ms is None else end_ms,
            unique_key_query=is_unique_id,
        )
        what = f"no message with key {key!r}"
        answer = await self.api.call(addr, header, what=what, topic=topic, timeout=self.timeout)
        return decode_messages(answer.body, broker_name)
