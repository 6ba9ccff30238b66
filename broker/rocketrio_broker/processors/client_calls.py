"""Requests that a console sends to clients through their broker: 222 (as 220), 223 (as 221), 307, 309.

    222 reset a group's offsets to a time     stored here, and sent to every member (220)
    223 the offsets members hold in memory    asked of all members at the same time (221)
    307 a member's state; 309 have it consume a message now     forwarded, and the answer returned unchanged

Answers to: AdminBrokerProcessor's resetOffset, getConsumerStatus, getConsumerRunningInfo, consumeMessageDirectly;
Broker2Client; RocketMQ reference, section 2.10.
Unlike Java (4.x): a reset is stored immediately, under a generation of its own, so it also works if no member is
connected.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import trio

from rocketrio_broker.access.needs import (
    ADDRESS,
    GET,
    SUB,
    UPDATE,
    Facts,
    G,
    Need,
    T,
    address_of,
    group_need,
    stored_topic,
    topic_need,
)
from rocketrio_broker.clients.connected import ClientChannelInfo
from rocketrio_broker.clients.housekeeping import send_oneway
from rocketrio_broker.offsets.version import Commit
from rocketrio_broker.processors.long_answers import JoinedBody, steps_of
from rocketrio_broker.processors.offsets import usual_boundary
from rocketrio_broker.requests.declaration import Audited, answers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.role.answering import TAKEN_OVER
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.query import Boundary
from rocketrio_protocol.bodies.queues import ConsumerStatusBody, ResetOffsetBody
from rocketrio_protocol.codes import VERSION_5, LanguageCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import consumer
from rocketrio_protocol.commands.admin import ResetOffsetRequestHeader
from rocketrio_protocol.errors import Error, LocalProtocolError, RequestTimeoutError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.proof import PROOF
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE

CALL_TIMEOUT: Final = 10.0
"""Seconds a client has to answer 307 or 309 (Broker2Client.callClient)."""
STATUS_TIMEOUT: Final = 5.0
"""Seconds a client has to answer 221 (Broker2Client.getConsumeStatus)."""
RESET_VERSION: Final = 28
"""3.0.7-SNAPSHOT: from this version on Java's clients know 220 and 221 (MQVersion)."""
CALL_VERSION: Final = 62
"""3.1.8-SNAPSHOT: from this version on Java's clients know 307 and 309."""
CREDENTIALS: Final = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, PROOF})
"""Header fields that prove who sent the request: they are not forwarded, because the client could use them
elsewhere."""
_NOT_GIVEN: Final = -1


def _needs_of_delivery(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(consumer.ConsumeMessageDirectlyRequestHeader)
    address = address_of(header.msg_id)
    topic = stored_topic(facts, address, f"look message by offset failed, {address}")
    return topic_need(topic, SUB | GET), group_need(header.consumer_group, SUB)


class ClientCallProcessor:
    """Forwards a console's requests to clients."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    # --------------------------------------------------------------------------------------- resets

    def _offsets(self, names: Mapping[str, str]) -> dict[int, int]:
        return self._broker.consumer_offsets.query_offsets(names["group"], names["topic"])

    @answers(
        ResetOffsetRequestHeader,
        needs=(T(UPDATE), G(UPDATE, "group")),
        known_by=ADDRESS,
        standing=TAKEN_OVER,
        audit=Audited(state=_offsets),
        limited=True,
    )
    async def reset_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(ResetOffsetRequestHeader)
        if self._broker.store.is_slave:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "a slave resets no offsets: ask the master of its name"
            )
        members = self._members(header.group)
        too_old = min((member.version for member in members), default=RESET_VERSION)
        if too_old < RESET_VERSION:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the client does not support this feature. version={too_old}",
            )
        self._refuse_unknown(header, request.version, has_members=bool(members))
        body = JoinedBody(ResetOffsetBody().to_json(), "offsetTable")
        cpp_body = JoinedBody(ResetOffsetBody().to_list_json(), "offsetTable")
        boundary = usual_boundary(request.version)
        queue_ids = range(self._broker.topics.topic_config_table[header.topic].write_queue_nums)
        if header.queue_id is not None and header.queue_id != _NOT_GIVEN:
            if header.queue_id not in queue_ids:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] has {len(queue_ids)} queues",
                )
            queue_ids = range(header.queue_id, header.queue_id + 1)
        if self._broker.consumer_offsets.is_full:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "the table of offsets is full: nothing is reset"
            )
        for some in steps_of(queue_ids):
            table = ResetOffsetBody(self._reset_queues(header, some, boundary))
            body.add(table.to_json())
            cpp_body.add(table.to_list_json())
            await trio.lowlevel.checkpoint()
        reset = consumer.ResetConsumerClientOffsetRequestHeader(
            header.topic, header.group, header.timestamp, header.is_force
        )
        for member in members:
            is_cpp = member.language is LanguageCode.CPP
            order = RemotingCommand.request(
                reset, cpp_body.joined() if is_cpp else body.joined(), oneway=True
            )
            send_oneway(member.channel, order, what="reset of offsets", group=header.group)
        return request.response(body=body.joined())

    def _refuse_unknown(
        self, header: ResetOffsetRequestHeader, version: int, *, has_members: bool
    ) -> None:
        """Raise RefusedError for an unknown topic or group, by the rules of 5.x or of 4.x."""
        group, is_5 = header.group, version >= VERSION_5
        if self._broker.topics.topic_config(header.topic) is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST if is_5 else ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        is_known = has_members or group in self._broker.groups.subscription_group_table
        if is_5 and not is_known:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        is_idle = not has_members and not self._broker.consumer_offsets.query_offsets(
            group, header.topic
        )
        if is_idle and not is_5:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"The consumer group <{group}> not exist")

    def _reset_queues(
        self, header: ResetOffsetRequestHeader, queue_ids: range, boundary: Boundary
    ) -> dict[MessageQueue, int]:
        """Store where the group continues in each of these queues, and return it."""
        committed = self._broker.consumer_offsets.query_offsets(header.group, header.topic)
        table = {}
        for queue_id in queue_ids:
            wanted = self._wanted_offset(header, queue_id, boundary)
            is_place = header.offset is not None and header.offset != _NOT_GIVEN
            if header.timestamp == consumer.TO_THE_END and not is_place:
                # After a change of masters a group may be ahead of what readers see.
                end = self._broker.store.next_queue_offset(header.topic, queue_id)
                wanted = max(wanted, min(committed.get(queue_id, 0), end))
            if not header.is_force:
                wanted = min(wanted, committed.get(queue_id, wanted))
            queue = MessageQueue(header.topic, self._broker.config.broker.broker_name, queue_id)
            table[queue] = wanted
            end = self._broker.store.next_queue_offset(header.topic, queue_id)
            reset = Commit(wanted, is_reset=True, may_stand_at=end)
            self._broker.consumer_offsets.commit_version(
                header.group, header.topic, queue_id, reset
            )
        return table

    def _wanted_offset(
        self, header: ResetOffsetRequestHeader, queue_id: int, boundary: Boundary
    ) -> int:
        low, high = self._broker.store.queue_bounds(header.topic, queue_id) or (0, 0)
        if header.offset is not None and header.offset != _NOT_GIVEN:
            if not low <= header.offset <= high:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {header.offset} not in consume queue range [{low}-{high}]",
                )
            return header.offset
        if header.timestamp == consumer.TO_THE_END:
            return high
        found = self._broker.store.offset_by_time(
            header.topic, queue_id, header.timestamp, boundary
        )
        return max(0, found)

    # ---------------------------------------------------------------------------- asking the clients

    @answers(
        consumer.GetConsumerStatusRequestHeader, needs=(T(GET), G(GET, "group")), known_by=ADDRESS
    )
    async def consumer_status(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(consumer.GetConsumerStatusRequestHeader)
        members = self._members(header.group)
        if not members:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        table: dict[str, dict[MessageQueue, int]] = {}

        async def ask(member: ClientChannelInfo) -> None:
            question = consumer.GetConsumerStatusFromClientRequestHeader(header.topic, header.group)
            try:
                answer = await member.channel.call(
                    RemotingCommand.request(question), timeout=STATUS_TIMEOUT
                )
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    status = ConsumerStatusBody.from_json(answer.body)
                    table[member.client_id] = status.message_queue_table or {}
            except Error:
                pass  # A member that does not answer is omitted from the table.

        async with trio.open_nursery() as nursery:
            for member in members:
                is_meant = not header.client_addr or header.client_addr == member.client_id
                if is_meant and member.version >= RESET_VERSION:
                    nursery.start_soon(ask, member)
        body = ConsumerStatusBody(consumer_table=table)
        return request.response(body=body.to_json())

    @answers(consumer.GetConsumerRunningInfoRequestHeader, needs=G(GET), known_by=ADDRESS)
    async def running_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(consumer.GetConsumerRunningInfoRequestHeader)
        return await self._forward(request, header.consumer_group, header.client_id)

    @answers(
        consumer.ConsumeMessageDirectlyRequestHeader, needs=_needs_of_delivery, known_by=ADDRESS
    )
    async def consume_directly(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(consumer.ConsumeMessageDirectlyRequestHeader)
        try:
            _, _, physical_offset = parse_offset_message_id(header.msg_id or "")
        except LocalProtocolError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, error.what) from error
        record = self._broker.store.message_at(physical_offset)
        if record is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {physical_offset}"
            )
        request.ext_fields["brokerName"] = self._broker.config.broker.broker_name
        request.body = bytes(record)
        return await self._forward(request, header.consumer_group, header.client_id)

    async def _forward(
        self, request: RemotingCommand, group: str, client_id: str | None
    ) -> RemotingCommand:
        """Forward the request to a member, without the sender's credentials, and return its answer unchanged."""
        member = self._broker.consumers.channel(group, client_id or "")
        if member is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        if member.version < CALL_VERSION:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        fields = {
            name: value for name, value in request.ext_fields.items() if name not in CREDENTIALS
        }
        question = RemotingCommand(code=request.code, ext_fields=fields, body=request.body)
        try:
            answer = await member.channel.call(question, timeout=CALL_TIMEOUT)
        except RequestTimeoutError as error:
            raise RefusedError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {error.what}",
            ) from error
        except Error as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client_id}> Exception: {error.what}",
            ) from error
        forwarded = request.response(body=answer.body, code=answer.code, remark=answer.remark)
        forwarded.ext_fields = dict(answer.ext_fields)
        return forwarded

    def _members(self, group: str) -> list[ClientChannelInfo]:
        info = self._broker.consumers.group(group)
        return [] if info is None else list(info.channels.values())
