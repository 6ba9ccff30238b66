"""Heartbeats and group members: 34, 35, 38, 46, and the notification 40 that they cause.

Invariant: members are notified of a change (40) before the heartbeat that made it is answered, including the new
member, unless there are very many. Groups that broadcast are not notified, as in 5.x.
Answers to: ClientManageProcessor, ConsumerManageProcessor, ClientHousekeepingService, DefaultConsumerIdsChangeListener;
RocketMQ reference, section 2.6.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import trio

from rocketrio_broker.clients import (
    BROADCASTING,
    SCAN_INTERVAL,
    ClientChannel,
    ClientChannelInfo,
    ConsumerManager,
    ProducerManager,
)
from rocketrio_broker.config import LiveConfig
from rocketrio_broker.config_file import ConfigFileError
from rocketrio_broker.groups import SubscriptionGroupManager
from rocketrio_broker.namesrv.routes import UNIT_SUB
from rocketrio_broker.processors.sql_expression import SqlExpressions
from rocketrio_broker.processors.tag_expression import is_tag_type
from rocketrio_broker.topics import TopicConfigManager
from rocketrio_broker.watermark import Watermark
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
)
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import client
from rocketrio_protocol.errors import BrokerSystemError, Error
from rocketrio_protocol.names import group_name_problem
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.tasks import every

logger = logging.getLogger("rocketrio_broker.clients")

GROUPS_LIMIT: Final = 500
"""The most groups of one connection, producers' and consumers' together: as many as one large program may need."""
SUBSCRIPTIONS_LIMIT: Final = 2000
"""The most subscriptions in one heartbeat: one topic for each of 500 groups, their retry topics, and as many again."""
SIZE_LIMIT: Final = 1 << 20
"""The most bytes of heartbeats per connection: its groups and subscriptions are kept while it lasts."""
NOTICES_TOGETHER: Final = 2000
"""The most members that are notified of a change (40) without a pause: some 8 ms."""
CLIENT_IDS_LIMIT: Final = 64
"""The most client ids of one connection; a client has one."""
CLIENT_ID_LENGTH_LIMIT: Final = 512
"""The most characters of a client id: an address, the names of an instance and of a unit."""


class ClientManageProcessor:
    """Answers the requests with which clients register."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        consumers: ConsumerManager,
        producers: ProducerManager,
        groups: SubscriptionGroupManager,
        topics: TopicConfigManager,
        sql: SqlExpressions,
    ) -> None:
        self._config = config
        self._consumers = consumers
        self._producers = producers
        self._groups = groups
        self._topics = topics
        self._sql = sql
        self._untold: dict[str, None] = {}
        """Groups whose members must still be notified of a change."""
        self._untold_members: list[ClientChannel] = []
        """The members still to be notified of the group that is being processed."""
        self._order = client.NotifyConsumerIdsChangedRequestHeader("")
        """The notification for these members."""
        self._notices = Watermark()

    def processors(self) -> dict[int, Processor]:
        """Return the methods of this processor by request code."""
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list_by_group,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    def heart_beat(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        size = len(request.body)
        if size > SIZE_LIMIT:
            raise BrokerSystemError(f"A heartbeat has {SIZE_LIMIT} bytes at most, not {size}")
        heartbeat = fastjson.loads_bounded(request.body, HeartbeatData, what="heartbeat")
        problem = self._heartbeat_problem(channel, heartbeat, size)
        if problem is not None:
            raise BrokerSystemError(problem)
        info = ClientChannelInfo(channel, heartbeat.client_id, request.language, request.version)
        asked = request.header(client.HeartBeatRequestHeader).static_grace
        if asked is not None:
            info.static_grace = max(0.0, min(asked, self._config.broker.static_member_grace_limit))
        now = trio.current_time()
        consumers = heartbeat.consumer_data_set
        self._prepare_groups(consumers)
        share = size // max(1, len(consumers))
        changed = [
            consumer.group_name
            for consumer in consumers
            if self._consumers.register(consumer, info, now=now, size=share)
        ]
        self.notify(changed)
        for producer in heartbeat.producer_data_set:
            self._producers.register(producer.group_name, info, now=now)
        if asked is None:
            return request.response()
        return request.response(client.HeartBeatResponseHeader(int(info.static_grace)))

    def _heartbeat_problem(
        self, channel: Channel, heartbeat: HeartbeatData, size: int
    ) -> str | None:
        """Return why this connection cannot register with a heartbeat of `size` bytes; None if it can."""
        consumed = {consumer.group_name for consumer in heartbeat.consumer_data_set}
        produced = {producer.group_name for producer in heartbeat.producer_data_set}
        for group in consumed | produced:
            if problem := group_name_problem(group):
                return problem
        known = self._consumers.sizes_of(channel)
        client_ids = {heartbeat.client_id, *self._producers.client_ids_of(channel)}
        produced.update(self._producers.groups_of(channel))
        for what, count, limit in (
            ("bytes", size + sum(known[group] for group in known.keys() - consumed), SIZE_LIMIT),
            ("groups", len(consumed | known.keys()) + len(produced), GROUPS_LIMIT),
            (
                "subscriptions",
                sum(len(each.subscription_data_set) for each in heartbeat.consumer_data_set),
                SUBSCRIPTIONS_LIMIT,
            ),
            ("client ids", len(client_ids), CLIENT_IDS_LIMIT),
            ("characters of a client id", len(heartbeat.client_id), CLIENT_ID_LENGTH_LIMIT),
        ):
            if count > limit:
                return f"A connection is known by {limit} {what} at most, and this one would by {count}"
        return None

    def unregister_client(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(client.UnregisterClientRequestHeader)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, channel)
        group = header.consumer_group
        if group is not None and self._consumers.unregister(group, channel):
            self.notify([group])
        return request.response()

    def consumer_list_by_group(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(client.GetConsumerListByGroupRequestHeader)
        members = self._consumers.client_ids(header.consumer_group)
        if not members:
            return request.response(
                code=ResponseCode.SYSTEM_ERROR,
                remark=f"no consumer for this group, {header.consumer_group}",
            )
        return request.response(body=fastjson.dumps(ConsumerIdList(members)))

    def check_client_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        body = fastjson.loads_bounded(
            request.body, CheckClientRequestBody, what="subscription to check"
        )
        wanted = body.subscription_data
        if wanted is not None and not is_tag_type(wanted.expression_type):
            self._sql.filter(
                channel, wanted.expression_type, wanted.sub_string, self._config.broker
            )
        return request.response()

    def notify(self, groups: Iterable[str]) -> None:
        """Notify the members of these groups that their number changed, if the group is configured so.

        At most NOTICES_TOGETHER members are notified here; `run` notifies the others.
        """
        if not self._config.broker.notify_consumer_ids_changed_enable:
            return
        self._untold.update(dict.fromkeys(groups))
        if self._tell_some():
            self._notices.advance(self._notices.value + 1)

    def _tell_some(self) -> bool:
        """Notify some members; return whether there are more."""
        for _ in range(NOTICES_TOGETHER):
            while not self._untold_members and self._untold:
                group = next(iter(self._untold))
                del self._untold[group]
                self._untold_members = self._members_to_tell(group)
                self._order = client.NotifyConsumerIdsChangedRequestHeader(group)
            if not self._untold_members:
                return False
            told = RemotingCommand.request(self._order, oneway=True)
            channel = self._untold_members.pop()
            tell(channel, told, what="notification", group=self._order.consumer_group)
        return True

    def _members_to_tell(self, group: str) -> list[ClientChannel]:
        """Return the members to notify, in reverse order."""
        known = self._groups.subscription_group_table.get(group)
        if known is not None and not known.notify_consumer_ids_changed_enable:
            return []
        members = self._consumers.group(group)
        if members is None or members.message_model == BROADCASTING:
            return []  # Members that broadcast do not share queues, so no queue changes its owner.
        return list(reversed(members.channels))

    # ------------------------------------------------------------------- connections that end or go silent

    def channel_opened(self, channel: Channel) -> None:
        """Do nothing: a client registers with its first heartbeat."""

    def channel_closed(self, channel: Channel) -> None:
        """Remove the members of a connection that ended from their groups."""
        self._producers.channel_closed(channel)
        self.notify(self._consumers.channel_closed(channel, now=trio.current_time()))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Drop clients that have been silent for too long, and send the remaining notifications."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_the_rest)
            task_status.started()
            async for _ in every(SCAN_INTERVAL, first_after=SCAN_INTERVAL):
                self.scan(trio.current_time())

    async def _tell_the_rest(self) -> None:
        seen = 0
        while True:
            seen = await self._notices.wait_past(seen)
            while self._tell_some():
                await trio.lowlevel.checkpoint()

    def scan(self, now: float) -> None:
        """Drop the clients that are silent at this time."""
        groups, silent = self._consumers.scan_not_active(now)
        silent += self._producers.scan_not_active(now)
        for channel in silent:
            logger.warning("client silent addr=%s", channel.remote_addr)
            channel.close()
        self.notify(groups)

    def _prepare_groups(self, consumers: Sequence[ConsumerData]) -> None:
        """Create the groups and retry topics that do not exist yet, with one write for each table."""
        groups = self._groups.find_all(consumer.group_name for consumer in consumers)
        for sys_flag in (0, UNIT_SUB):
            wanted = [
                groups[consumer.group_name]
                for consumer in consumers
                if consumer.group_name in groups and consumer.unit_mode == bool(sys_flag)
            ]
            with suppress(
                ConfigFileError
            ):  # They are created at the next heartbeat; clients must be able to read.
                self._topics.create_retry_topics(wanted, sys_flag=sys_flag)


def tell(channel: ClientChannel, order: RemotingCommand, *, what: str, group: str) -> None:
    """Send a one-way request; a failure is logged."""
    try:
        channel.send_oneway(order)
    except Error as error:
        # The client polls periodically and finds out; the other clients must still be notified.
        logger.info("%s failed group=%s addr=%s error=%s", what, group, channel.remote_addr, error)
