"""The single requests of an administrator, each to a given address.

Answers to: the administrative half of MQClientAPIImpl; RocketMQ reference, sections 2.5 and 2.11.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import attrs
import trio

from rocketrio.cluster.api import ClientAPI
from rocketrio.limits import ADMIN_TIMEOUT
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.events import LoggedEvent
from rocketrio_protocol.bodies.inspection import (
    ProducerInfo,
)
from rocketrio_protocol.bodies.java_properties import format_properties
from rocketrio_protocol.bodies.running_info import (
    ConsumerRunningInfo,
)
from rocketrio_protocol.bodies.stats import (
    BrokerStatsItem,
    ConsumerConnection,
    ConsumeStats,
    QueueTimeSpan,
    TopicStatsTable,
)
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.commands.admin import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicInBrokerRequestHeader,
    GetAllConsumerOffsetRequestHeader,
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
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    UpdateAndCreateSubscriptionGroupRequestHeader,
    UpdateBrokerConfigRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rocketrio_protocol.commands.consumer import (
    GetConsumerRunningInfoRequestHeader,
)
from rocketrio_protocol.commands.inspection import GetAllProducerInfoRequestHeader
from rocketrio_protocol.commands.send import AUTO_CREATE_TOPIC_KEY
from rocketrio_protocol.errors import BrokerError, RequestCodeNotSupportedError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.ha.status import HARuntimeInfo
from rocketrio_protocol.headers import AnsweredBy, AnsweredWith, Header
from rocketrio_protocol.names import LEDGER_END_ID, TRANSACTION_GROUP

WALK_TIMEOUT: Final = 30.0
"""Seconds for the progress of all groups: the broker walks through all its offsets."""
MEMBER_TIMEOUT: Final = 12.0
"""Seconds for the state of a member: the broker itself waits 10 s for it."""
_UNKNOWN_KEY: Final = "not exist"
"""A part of the remark of a broker that has counted nothing under this key lately."""

Period: TypeAlias = Literal["minute", "hour", "day"]


T = TypeVar("T")
HeaderT = TypeVar("HeaderT", bound=Header)


@attrs.define
class AdminCalls:
    """Asks one broker: with `ask` and `read` anything, and by a method what several callers ask or what takes thought.

    All raise NotReachableError, RequestTimeoutError, BrokerError, RemoteProtocolError.
    """

    api: ClientAPI
    timeout: float = ADMIN_TIMEOUT
    _walks: dict[str, trio.Lock] = attrs.field(init=False, factory=lambda: defaultdict(trio.Lock))
    """By address: a broker walks through all its offsets for one caller at a time."""

    async def ask(
        self,
        addr: str,
        header: AnsweredBy[HeaderT],
        what: str,
        body: Body = b"",
        *,
        timeout: float | None = None,
    ) -> HeaderT:
        """Return the header of an answer, as `ClientAPI.ask` does, within the time of administrators."""
        timeout = self.timeout if timeout is None else timeout
        return await self.api.ask(addr, header, what, body, timeout=timeout)

    async def read(
        self, addr: str, header: AnsweredWith[T], what: str, *, timeout: float | None = None
    ) -> T:
        """Return the body of an answer, as `ClientAPI.read` does, within the time of administrators."""
        timeout = self.timeout if timeout is None else timeout
        return await self.api.read(addr, header, what, timeout=timeout)

    # --------------------------------------------------------------- questions that several callers ask

    async def topics(self, addr: str) -> dict[str, TopicConfig]:
        """Return all topics of a broker, by name."""
        found = await self.read(addr, GetAllTopicConfigRequestHeader(), "topics not read")
        return found.topic_config_table

    async def topic(self, addr: str, topic: str) -> TopicConfig:
        """Return the settings of one topic. Brokers of RocketMQ 4 raise RequestCodeNotSupportedError."""
        header = GetTopicConfigRequestHeader(topic, logical=True)
        return await self.read(addr, header, "topic not read")

    async def update_topic(
        self, addr: str, config: TopicConfig, attributes: Mapping[str, str | None] = {}
    ) -> None:
        """Create or change a topic on a master; an attribute that is None is removed."""
        header = CreateTopicRequestHeader(
            topic=config.topic_name,
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
        await self.ask(addr, header, "topic not created")

    async def delete_topic(self, addr: str, topic: str) -> None:
        """Remove a topic from one broker."""
        await self.ask(addr, DeleteTopicInBrokerRequestHeader(topic), "topic not deleted")

    async def groups(self, addr: str) -> dict[str, dict[str, Any]]:
        """Return the settings of a broker's consumer groups by name, with all fields that its version knows."""
        header = GetAllSubscriptionGroupConfigRequestHeader()
        return (await self.read(addr, header, "groups not read")).subscription_group_table

    async def update_group(self, addr: str, settings: Mapping[str, Any]) -> None:
        """Create or change a consumer group on a master; `settings` have the form that `groups` returns."""
        header = UpdateAndCreateSubscriptionGroupRequestHeader()
        what = f"group {settings['groupName']} not changed"
        await self.ask(addr, header, what, fastjson.dumps(settings))

    async def delete_group(self, addr: str, group: str, *, with_offsets: bool) -> None:
        """Remove a group from a master."""
        # 4.9 reads the first flag, 5.x the second.
        header = DeleteSubscriptionGroupRequestHeader(group, with_offsets, with_offsets)
        await self.ask(addr, header, f"group {group} not deleted")

    async def topic_stats(self, addr: str, topic: str) -> TopicStatsTable:
        """Return the bounds and last store times of the topic's queues on one broker."""
        return await self.read(
            addr, GetTopicStatsInfoRequestHeader(topic), "topic statistics failed"
        )

    async def all_offsets(self, addr: str) -> dict[tuple[str, str], dict[int, int]]:
        """Return all committed offsets of a broker by group and topic, then by queue.

        Where transactions ended at their last progress (`LEDGER_END_ID`) belongs to no queue, and is left out.
        """
        answer = await self.read(addr, GetAllConsumerOffsetRequestHeader(), "offsets not read")
        found = answer.offset_table
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
            answer = await self.read(
                addr, header, "progress of the groups not read", timeout=WALK_TIMEOUT
            )
        found = answer.consume_stats_list
        return {group: stats for entry in found for group, stats in entry.items()}

    async def consume_stats(self, addr: str, group: str, topic: str | None) -> ConsumeStats:
        """Return a group's progress on one broker."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        return await self.read(addr, header, f"progress of group {group} not read")

    async def time_spans(self, addr: str, group: str, topic: str) -> list[QueueTimeSpan]:
        """Return the store times of each queue's first, last and next message for a group."""
        header = QueryConsumeTimeSpanRequestHeader(topic=topic, group=group)
        what = f"times of group {group} not read"
        return (await self.read(addr, header, what)).consume_time_span_set

    async def counted(self, addr: str, name: str, key: str, period: Period) -> BrokerStatsItem:
        """Return what a broker has counted under a name and a key; zeros if it has counted nothing lately."""
        header = ViewBrokerStatsDataRequestHeader(name, key)
        try:
            data = await self.read(addr, header, "statistics not read")
        except BrokerError as error:
            if _UNKNOWN_KEY in (error.remark or ""):
                return BrokerStatsItem()
            raise
        return {"minute": data.stats_minute, "hour": data.stats_hour, "day": data.stats_day}[period]

    async def consumer_connections(self, addr: str, group: str) -> ConsumerConnection:
        """Return the members that are connected to one broker for a group."""
        header = GetConsumerConnectionListRequestHeader(group)
        return await self.read(addr, header, f"members of group {group} not read")

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
        return await self.read(addr, header, what, timeout=timeout)

    async def producers(self, addr: str) -> dict[str, list[ProducerInfo]]:
        """Return all producers that are connected to one broker, by their groups."""
        header = GetAllProducerInfoRequestHeader()
        return (await self.read(addr, header, "producers not read", timeout=WALK_TIMEOUT)).data

    async def runtime_info(self, addr: str) -> dict[str, str]:
        """Return a broker's runtime information."""
        found = await self.read(addr, GetBrokerRuntimeInfoRequestHeader(), "runtime info failed")
        return {name: str(value) for name, value in found.table.items()}

    async def broker_config(self, addr: str) -> dict[str, str]:
        """Return a broker's settings, under Java's names."""
        return await self.read(addr, GetBrokerConfigRequestHeader(), "settings not read")

    async def update_broker_config(self, addr: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker, under Java's names. Apache's brokers ignore unknown names silently."""
        header = UpdateBrokerConfigRequestHeader()
        await self.ask(addr, header, "settings not changed", format_properties(settings))

    async def ha_status(self, addr: str) -> HARuntimeInfo | None:
        """Return a broker's replication state, or None if it does not know the request, as Apache's before 5.0."""
        try:
            return await self.read(addr, GetBrokerHAStatusRequestHeader(), "no HA status")
        except RequestCodeNotSupportedError:
            return None

    async def events(
        self, addr: str, *, after: int, since_ms: int, kinds: Sequence[str]
    ) -> tuple[GetEventsResponseHeader, list[LoggedEvent]]:
        """Return a rocketrio broker's last events. Apache's raise RequestCodeNotSupportedError."""
        header = GetEventsRequestHeader(after, since_ms, ",".join(kinds) or None)
        answer = await self.api.call(addr, header, what="events not read", timeout=self.timeout)
        return answer.header(header.answers), header.body.read(answer.body)
