"""Requests about groups: settings (200, 201, 207, 225, 352), offsets (43, 45, 308, 314), connections (203, 204).

Answers to: AdminBrokerProcessor; RocketMQ reference, section 2.11.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Final

import msgspec
import trio

from rocketrio_broker.access.needs import (
    ADDRESS,
    CREATE,
    DELETE,
    GET,
    UPDATE,
    C,
    Facts,
    G,
    Need,
    T,
    group_need,
    refuse_many,
    topic_need,
)
from rocketrio_broker.clients.connected import ClientChannelInfo
from rocketrio_broker.processors.long_answers import STEP_QUEUES, JoinedBody, steps_of
from rocketrio_broker.processors.topic_admin import is_left_to_master, refuse_long_list
from rocketrio_broker.requests.declaration import Audited, answers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.requests.steps import in_steps
from rocketrio_broker.role.answering import SERVING, TAKEN_OVER
from rocketrio_broker.state import BrokerState
from rocketrio_broker.tables.attributes import group_attributes
from rocketrio_protocol.access.model import ResourceKind
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.stats import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    QueryCorrectionOffsetBody,
)
from rocketrio_protocol.bodies.topics import (
    QUEUE_NUMS_LIMIT,
    SubscriptionGroupConfig,
    SubscriptionGroupConfigList,
)
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import admin
from rocketrio_protocol.errors import BrokerSystemError
from rocketrio_protocol.names import consumer_group_problem
from rocketrio_protocol.remoting.channel import Channel

GROUP_SETTINGS_LIMIT: Final = 64 * 1024
"""The most bytes of one group's settings in JSON: they are kept in memory, in a file and in slaves' copies. Usual
settings have 400."""
_NO_CORRECTION: Final = 2**63 - 1  # Long.MAX_VALUE: the compared group is already behind.


def _needs_of_update(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    group = request.json_body(SubscriptionGroupConfig, what="group settings")
    return (group_need(group.group_name, CREATE | UPDATE),)


def _needs_of_list(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    body = request.json_body(SubscriptionGroupConfigList, what="list of group settings")
    refuse_many(body.group_config_list)
    return [group_need(group.group_name, CREATE | UPDATE) for group in body.group_config_list]


def _needs_of_copy(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    # A slave that names itself changes what the broker knows of its slaves.
    header = request.header(admin.GetAllConsumerOffsetRequestHeader)
    actions = GET if header.broker_id is None else UPDATE
    return (Need(ResourceKind.CLUSTER, facts.cluster_name, actions),)


def _needs_of_clone(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(admin.CloneGroupOffsetRequestHeader)
    topics = [header.topic] if header.topic else facts.topics_of_group(header.src_group)
    return [
        group_need(header.src_group, GET | UPDATE),
        group_need(header.dest_group, UPDATE),
        *(topic_need(topic, UPDATE) for topic in topics),
    ]


def _named(request: RemotingCommand) -> list[str]:
    body = fastjson.loads_bounded(request.body, SubscriptionGroupConfig, what="group settings")
    return [body.group_name]


def _listed(request: RemotingCommand) -> list[str]:
    body = fastjson.loads_bounded(
        request.body, SubscriptionGroupConfigList, what="list of group settings"
    )
    return [each.group_name for each in body.group_config_list]


class GroupAdminProcessor:
    """Answers administrators' and slaves' requests about groups."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    # ---------------------------------------------------------------------------------- settings

    def _group(self, names: Mapping[str, str]) -> SubscriptionGroupConfig | None:
        return self._broker.groups.subscription_group_table.get(names["group_name"])

    def _groups(self, names: Sequence[str]) -> dict[str, SubscriptionGroupConfig | None]:
        table = self._broker.groups.subscription_group_table
        return {name: table.get(name) for name in names}

    @answers(
        admin.UpdateAndCreateSubscriptionGroupRequestHeader,
        needs=_needs_of_update,
        known_by=ADDRESS,
        standing=SERVING,
        held=True,
        audit=Audited(names=_named, state=_groups),
    )
    def update_and_create_group(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        if is_left_to_master(self._broker.config, request):
            return request.response()
        group = fastjson.loads_bounded(request.body, SubscriptionGroupConfig, what="group settings")
        self._broker.groups.update(self._checked(group))
        return request.response()

    @answers(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        needs=_needs_of_list,
        known_by=ADDRESS,
        standing=SERVING,
        held=True,
        audit=Audited(names=_listed, state=_groups),
    )
    def update_and_create_groups(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        if is_left_to_master(self._broker.config, request):
            return request.response()
        body = fastjson.loads_bounded(
            request.body, SubscriptionGroupConfigList, what="list of group settings"
        )
        refuse_long_list(body.group_config_list)
        self._broker.groups.update_all([self._checked(group) for group in body.group_config_list])
        return request.response()

    def _checked(self, group: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """Return the group with the attributes that it will have. Raises BrokerSystemError for invalid settings."""
        if (size := len(fastjson.dumps(group))) > GROUP_SETTINGS_LIMIT:
            raise BrokerSystemError(
                f"The settings of a group cannot have {size} bytes; {GROUP_SETTINGS_LIMIT} are allowed"
            )
        problem = consumer_group_problem(group.group_name)
        if problem is not None:
            raise BrokerSystemError(problem)
        if not 0 <= group.retry_queue_nums <= QUEUE_NUMS_LIMIT:
            raise BrokerSystemError(
                f"The group {group.group_name} cannot have {group.retry_queue_nums} retry queues; "
                f"0 to {QUEUE_NUMS_LIMIT} are allowed"
            )
        known = self._broker.groups.subscription_group_table.get(group.group_name)
        attributes = group_attributes(group, known)
        return msgspec.structs.replace(group, attributes=attributes)

    @answers(
        admin.DeleteSubscriptionGroupRequestHeader,
        needs=G(DELETE, "group_name"),
        known_by=ADDRESS,
        standing=SERVING,
        held=True,
        audit=Audited(state=_group),
    )
    async def delete_group(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        if is_left_to_master(self._broker.config, request):
            return request.response()
        header = request.header(admin.DeleteSubscriptionGroupRequestHeader)
        self._broker.groups.delete(header.group_name)
        if header.remove_offset or header.clean_offset:
            await self._broker.consumer_offsets.remove_group(header.group_name)
        return request.response()

    @answers(admin.GetAllSubscriptionGroupConfigRequestHeader, needs=C(GET), known_by=ADDRESS)
    def all_group_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=self._broker.groups.answer())

    @answers(admin.GetSubscriptionGroupConfigRequestHeader, needs=G(GET, "group"), known_by=ADDRESS)
    def group_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(admin.GetSubscriptionGroupConfigRequestHeader)
        group = self._broker.groups.subscription_group_table.get(header.group)
        if group is None:
            return request.response(
                code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                remark=f"No group in this broker. group: {header.group}",
            )
        return request.response(body=fastjson.dumps(group))

    # ----------------------------------------------------------------------------------- offsets

    @answers(admin.GetAllConsumerOffsetRequestHeader, needs=_needs_of_copy, known_by=ADDRESS)
    async def all_consumer_offset(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = request.header(admin.GetAllConsumerOffsetRequestHeader)
        if header.broker_id is not None and header.ha_addr is not None:
            self._broker.live_slaves.note_reported(header.broker_id, header.ha_addr)
        body = await self._broker.consumer_offsets.answer(with_versions=bool(header.versions))
        return request.response(body=body)

    @answers(admin.GetAllDelayOffsetRequestHeader, needs=C(GET), known_by=ADDRESS)
    def all_delay_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        wrapper, log_end = self._broker.delay_offsets.answer()
        header = admin.GetAllDelayOffsetResponseHeader(log_end)
        return request.response(header, fastjson.dumps(wrapper))

    @answers(
        admin.QueryCorrectionOffsetRequestHeader,
        needs=(T(GET), G(GET, "compare_group")),
        known_by=ADDRESS,
    )
    async def query_correction_offset(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = request.header(admin.QueryCorrectionOffsetRequestHeader)
        corrections = await in_steps(self._corrections(header))
        compared = self._broker.consumer_offsets.query_offsets(header.compare_group, header.topic)
        for queue_id, offset in compared.items():
            if corrections.get(queue_id, _NO_CORRECTION) > offset:
                corrections[queue_id] = _NO_CORRECTION
        return request.response(body=QueryCorrectionOffsetBody(corrections).to_classic_json())

    def _corrections(
        self, header: admin.QueryCorrectionOffsetRequestHeader
    ) -> Generator[None, None, dict[int, int]]:
        left_out = set((header.filter_groups or "").split(","))
        corrections: dict[int, int] = {}
        count = 0
        for group in self._broker.consumer_offsets.groups_of_topic(header.topic):
            if group in left_out:
                continue
            offsets = self._broker.consumer_offsets.query_offsets(group, header.topic)
            for queue_id, offset in offsets.items():
                bounds = self._broker.store.queue_bounds(header.topic, queue_id)
                if bounds is not None and offset >= bounds[0]:
                    corrections[queue_id] = min(offset, corrections.get(queue_id, offset))
                count += 1
                if count % STEP_QUEUES == 0:
                    yield
        return corrections

    def _cloned(self, names: Mapping[str, str]) -> dict[str, dict[int, int]]:
        offsets = self._broker.consumer_offsets
        topic = names.get("topic")
        topics = [topic] if topic else offsets.topics_of_group(names["src_group"])
        return {topic: offsets.query_offsets(names["dest_group"], topic) for topic in topics}

    @answers(
        admin.CloneGroupOffsetRequestHeader,
        needs=_needs_of_clone,
        known_by=ADDRESS,
        standing=TAKEN_OVER,
        audit=Audited(state=_cloned),
    )
    async def clone_group_offset(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = request.header(admin.CloneGroupOffsetRequestHeader)
        if self._broker.groups.find(header.dest_group) is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.dest_group} not exist!"
            )
        topics = (
            [header.topic]
            if header.topic
            else self._broker.consumer_offsets.topics_of_group(header.src_group)
        )
        for topic in topics:
            if self._broker.consumer_offsets.is_full:
                raise BrokerSystemError(
                    f"The table of offsets is full: those on {topic} are not cloned"
                )
            if self._broker.topics.topic_config(topic) is not None:
                await in_steps(
                    self._broker.consumer_offsets.clone_offset(
                        header.src_group, header.dest_group, topic
                    )
                )
                await trio.lowlevel.checkpoint()
        return request.response()

    # ------------------------------------------------------------------------------- connections

    @answers(
        admin.GetConsumerConnectionListRequestHeader, needs=G(GET), known_by=ADDRESS, limited=True
    )
    async def consumer_connection_list(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = request.header(admin.GetConsumerConnectionListRequestHeader)
        group = self._broker.consumers.group(header.consumer_group)
        if group is None:
            return request.response(
                code=ResponseCode.CONSUMER_NOT_ONLINE,
                remark=f"the consumer group[{header.consumer_group}] not online",
            )
        body = ConsumerConnection(
            subscription_table=group.subscription_table,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return request.response(body=await _with_connections(body, group.channels.values()))

    @answers(
        admin.GetProducerConnectionListRequestHeader, needs=C(GET), known_by=ADDRESS, limited=True
    )
    async def producer_connection_list(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = request.header(admin.GetProducerConnectionListRequestHeader)
        clients = self._broker.producers.clients(header.producer_group)
        if not clients:
            return request.response(
                code=ResponseCode.SYSTEM_ERROR,
                remark=f"the producer group[{header.producer_group}] not exist",
            )
        return request.response(body=await _with_connections(ProducerConnection(), clients))


async def _with_connections(
    empty: ConsumerConnection | ProducerConnection, clients: Collection[ClientChannelInfo]
) -> bytes:
    """Return the body with these clients, encoded in steps."""
    body, all_of_them = JoinedBody(empty.to_json(), "connectionSet"), list(clients)
    for numbers in steps_of(range(len(all_of_them))):
        connections = [
            Connection(
                client_id=client.client_id,
                client_addr=client.channel.remote_addr,
                language=client.language.name,
                version=client.version,
            )
            for client in all_of_them[numbers.start : numbers.stop]
        ]
        body.add_entries(fastjson.dumps(connections)[1:-1])
        await trio.lowlevel.checkpoint()
    return body.joined()
