"""Heartbeats and group members: 34, 35, 38, 46.

Answers to: ClientManageProcessor, ConsumerManageProcessor; RocketMQ reference, section 2.6.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio

from rocketrio_broker.access.needs import (
    ADDRESS,
    SUB,
    Facts,
    G,
    Need,
    group_need,
    refuse_many,
    topic_need,
)
from rocketrio_broker.clients.connected import ClientChannelInfo
from rocketrio_broker.namesrv.routes import UNIT_SUB
from rocketrio_broker.processors.tag_expression import is_tag_type
from rocketrio_broker.requests.declaration import answers
from rocketrio_broker.role.answering import SERVING
from rocketrio_broker.state import BrokerState
from rocketrio_broker.tables.config_file import ConfigFileError
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
)
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import client
from rocketrio_protocol.errors import BrokerSystemError
from rocketrio_protocol.names import consumer_group_problem, group_name_problem
from rocketrio_protocol.remoting.channel import Channel

logger = logging.getLogger("rocketrio_broker.groups")

GROUPS_LIMIT: Final = 500
"""The most groups of one connection, producers' and consumers' together: as many as one large program may need."""
SUBSCRIPTIONS_LIMIT: Final = 2000
"""The most subscriptions in one heartbeat: one topic for each of 500 groups, their retry topics, and as many again."""
SIZE_LIMIT: Final = 1 << 20
"""The most bytes of heartbeats per connection: its groups and subscriptions are kept while it lasts."""
CLIENT_IDS_LIMIT: Final = 64
"""The most client ids of one connection; a client has one."""
CLIENT_ID_LENGTH_LIMIT: Final = 512
"""The most characters of a client id: an address, the names of an instance and of a unit."""
REFUSED_LOGGED: Final = 100
"""The most refused groups that get a line in the log, each once: clients choose the names."""


def _needs_of_heartbeat(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    # Each consumer group and each topic; a producer group belongs to no user.
    heartbeat = request.json_body(HeartbeatData, what="heartbeat")
    topics = {
        each.topic for group in heartbeat.consumer_data_set for each in group.subscription_data_set
    }
    refuse_many(topics)
    needs: dict[Need, None] = {}
    for group in heartbeat.consumer_data_set:
        needs[group_need(group.group_name, SUB)] = None
        for each in group.subscription_data_set:
            needs[topic_need(each.topic, SUB)] = None
    return list(needs)


def _needs_of_check(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    body = request.json_body(CheckClientRequestBody, what="subscription to check")
    needs = [group_need(body.group, SUB)]
    if body.subscription_data is not None:
        needs.append(topic_need(body.subscription_data.topic, SUB))
    return needs


class ClientManageProcessor:
    """Answers the requests with which clients register."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker
        self._refused_groups: set[str] = set()

    @answers(
        client.HeartBeatRequestHeader, needs=_needs_of_heartbeat, known_by=ADDRESS, standing=SERVING
    )
    def heart_beat(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        size = len(request.body)
        if size > SIZE_LIMIT:
            raise BrokerSystemError(f"A heartbeat has {SIZE_LIMIT} bytes at most, not {size}")
        heartbeat = request.json_body(HeartbeatData, what="heartbeat")
        problem = self._heartbeat_problem(channel, heartbeat, size)
        if problem is not None:
            raise BrokerSystemError(problem)
        info = ClientChannelInfo(channel, heartbeat.client_id, request.language, request.version)
        info.user = request.user
        asked = request.header(client.HeartBeatRequestHeader).static_grace
        if asked is not None:
            info.static_grace = max(
                0.0, min(asked, self._broker.config.broker.static_member_grace_limit)
            )
        now = trio.current_time()
        consumers, refusal = self._accepted(heartbeat.consumer_data_set, channel)
        self._prepare_groups(consumers)
        share = size // max(1, len(consumers))
        changed = [
            consumer.group_name
            for consumer in consumers
            if self._broker.consumers.register(consumer, info, now=now, size=share)
        ]
        self._broker.client_housekeeping.notify(changed)
        for producer in heartbeat.producer_data_set:
            self._broker.producers.register(producer.group_name, info, now=now)
        if refusal is not None:
            return request.response(code=ResponseCode.INVALID_PARAMETER, remark=refusal)
        if asked is None:
            return request.response()
        return request.response(client.HeartBeatResponseHeader(int(info.static_grace)))

    def _accepted(
        self, consumers: Sequence[ConsumerData], channel: Channel
    ) -> tuple[list[ConsumerData], str | None]:
        """Return the consumers to register, and why the others are refused.

        One group that is refused does not keep the others of its process from their messages.
        """
        accepted, refusal = [], None
        for consumer in consumers:
            problem = consumer_group_problem(consumer.group_name)
            if problem is None:
                accepted.append(consumer)
                continue
            refusal = refusal or problem
            group = consumer.group_name
            if group not in self._refused_groups and len(self._refused_groups) < REFUSED_LOGGED:
                self._refused_groups.add(group)
                # Java's clients log the refusal in a file of their own, and report nothing to their program.
                logger.warning(
                    "consumer group refused group=%s addr=%s reason=%s",
                    group, channel.remote_addr, problem,
                )  # fmt: skip
        return accepted, refusal

    def _heartbeat_problem(
        self, channel: Channel, heartbeat: HeartbeatData, size: int
    ) -> str | None:
        """Return why this connection cannot register with a heartbeat of `size` bytes; None if it can."""
        consumed = {consumer.group_name for consumer in heartbeat.consumer_data_set}
        produced = {producer.group_name for producer in heartbeat.producer_data_set}
        for group in consumed | produced:
            if problem := group_name_problem(group):
                return problem
        known = self._broker.consumers.sizes_of(channel)
        client_ids = {heartbeat.client_id, *self._broker.producers.client_ids_of(channel)}
        produced.update(self._broker.producers.groups_of(channel))
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
                return f"A connection may have {limit} {what} at most, not {count}"
        return None

    @answers(client.UnregisterClientRequestHeader, needs=G(SUB), known_by=ADDRESS)
    def unregister_client(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(client.UnregisterClientRequestHeader)
        if header.producer_group is not None:
            self._broker.producers.unregister(header.producer_group, channel)
        group = header.consumer_group
        if group is not None and self._broker.consumers.unregister(group, channel):
            self._broker.client_housekeeping.notify([group])
        return request.response()

    @answers(
        client.GetConsumerListByGroupRequestHeader, needs=G(SUB), known_by=ADDRESS, standing=SERVING
    )
    def consumer_list_by_group(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(client.GetConsumerListByGroupRequestHeader)
        members = self._broker.consumers.client_ids(header.consumer_group)
        if not members:
            return request.response(
                code=ResponseCode.SYSTEM_ERROR,
                remark=f"no consumer for this group, {header.consumer_group}",
            )
        return request.response(body=fastjson.dumps(ConsumerIdList(members)))

    @answers(client.CheckClientConfigRequestHeader, needs=_needs_of_check, known_by=ADDRESS)
    def check_client_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        body = request.json_body(CheckClientRequestBody, what="subscription to check")
        wanted = body.subscription_data
        if wanted is not None and not is_tag_type(wanted.expression_type):
            self._broker.sql_expressions.filter(
                channel, wanted.expression_type, wanted.sub_string, self._broker.config.broker
            )
        return request.response()

    def _prepare_groups(self, consumers: Sequence[ConsumerData]) -> None:
        """Create the groups and retry topics that do not exist yet, with one write for each table."""
        groups = self._broker.groups.find_all(consumer.group_name for consumer in consumers)
        for sys_flag in (0, UNIT_SUB):
            wanted = [
                groups[consumer.group_name]
                for consumer in consumers
                if consumer.group_name in groups and consumer.unit_mode == bool(sys_flag)
            ]
            with suppress(
                ConfigFileError
            ):  # They are created at the next heartbeat; clients must be able to read.
                self._broker.topics.create_retry_topics(wanted, sys_flag=sys_flag)
