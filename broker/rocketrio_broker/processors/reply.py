"""Replies to request messages: SEND_REPLY_MESSAGE (324, 325), pushed to the waiting requester (326).

    requester: message with REPLY_TO_CLIENT, CORRELATION_ID -> broker -> replier
    replier: 325 with the same properties -> any broker that the requester is connected to -> 326 -> requester

The reply is also stored, in <cluster>_REPLY_TOPIC; the answer to the replier depends on the push alone.

Answers to: ReplyMessageProcessor; RocketMQ reference, section 2.2.
Unlike Java: a reply that cannot be stored (on a slave, or while the broker takes no writes) is pushed anyway, and the
replier gets the result of the push.
"""

import logging
from typing import Final

from rocketrio_broker.access.needs import ADDRESS, PUB, T
from rocketrio_broker.processors.answers import SendAnswers
from rocketrio_broker.processors.client_calls import CALL_TIMEOUT
from rocketrio_broker.requests.declaration import answers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.put_message import AppendResult, PutMessage, PutStatus
from rocketrio_protocol.bodies.topics import Permission, TopicConfig
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.send import (
    PushReplyMessageRequestHeader,
    SendMessageResponseHeader,
    SendReplyMessageRequestHeader,
    SendReplyMessageRequestHeaderV2,
)
from rocketrio_protocol.errors import Error
from rocketrio_protocol.names import NOT_SENDABLE_TOPICS
from rocketrio_protocol.record.layout import TRANSACTION_MASK, pack_host, unpack_host
from rocketrio_protocol.record.message_id import offset_message_id
from rocketrio_protocol.record.properties import (
    PROPERTY_PUSH_REPLY_TIME,
    PROPERTY_REPLY_TO_CLIENT,
    decode_properties,
    encode_properties,
)
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.ports import join_addr, split_addr

logger = logging.getLogger("rocketrio_broker.reply")

NO_MESSAGE_ID: Final = "0"  # for clients that always need the field, as Java's do

ReplyHeader = SendReplyMessageRequestHeader | SendReplyMessageRequestHeaderV2


class ReplyMessageProcessor:
    """Pushes replies to the requesters that wait for them."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    @answers(
        SendReplyMessageRequestHeader,
        SendReplyMessageRequestHeaderV2,
        needs=T(PUB),
        known_by=ADDRESS,
    )
    async def reply(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Push the reply, and answer whether that succeeded."""
        header: ReplyHeader
        if request.code == RequestCode.SEND_REPLY_MESSAGE:
            header = request.header(SendReplyMessageRequestHeader)
        else:
            header = request.header(SendReplyMessageRequestHeaderV2)
        try:
            topic = self._checked(header)
        except RefusedError as refusal:
            return self._answer(request, refusal.code, refusal.remark)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._broker.rng.randrange(max(topic.write_queue_nums, 1))
        problem = await self._push(channel, request, header)
        stored = self._stored(channel, request, header, queue_id)
        answer = SendMessageResponseHeader(NO_MESSAGE_ID, queue_id, 0)
        if stored is not None:
            answer.msg_id = offset_message_id(self._broker.store_host, stored.physical_offset)
            answer.queue_offset = stored.queue_offset
        code = ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS
        return self._answer(request, code, problem, answer)

    def _answer(
        self,
        request: RemotingCommand,
        code: ResponseCode,
        problem: str,
        header: SendMessageResponseHeader | None = None,
    ) -> RemotingCommand:
        answer = request.response(header, code=code, remark=problem or None)
        broker = self._broker.config.broker
        answers = SendAnswers(
            self._broker.store_host, region_id=broker.region_id, trace_on=broker.trace_on
        )
        answer.ext_fields.update(answers.fields_of_error())
        return answer

    def _checked(self, header: ReplyHeader) -> TopicConfig:
        name = header.topic
        topic = self._broker.topics.topic_config(name)
        if name in NOT_SENDABLE_TOPICS:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
            )
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
            )
        if not topic.perm & Permission.WRITE:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden"
            )
        if header.queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queue_id}] is illegal, topic {name}",
            )
        return topic

    async def _push(self, channel: Channel, request: RemotingCommand, header: ReplyHeader) -> str:
        """Push the reply to its requester; return the problem, or an empty text if there is none."""
        properties = decode_properties(header.properties or "")
        client_id = properties.get(PROPERTY_REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{PROPERTY_REPLY_TO_CLIENT}] is null"
        requester = self._broker.producers.channel(client_id)
        if requester is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._broker.wall_clock.now_ms()
        properties[PROPERTY_PUSH_REPLY_TIME] = str(now_ms)
        pushed = PushReplyMessageRequestHeader(
            header.producer_group,
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            header.queue_id,
            header.sys_flag,
            header.born_timestamp,
            header.flag,
            born_host=channel.remote_addr,
            store_host=join_addr(*unpack_host(self._broker.store_host)),
            store_timestamp=now_ms,
            properties=encode_properties(properties, trailing_separator=False),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )
        try:
            answer = await requester.call(
                RemotingCommand.request(pushed, request.body), timeout=CALL_TIMEOUT
            )
        except Error as error:
            logger.warning("reply not pushed client_id=%s error=%s", client_id, error)
            return f"push reply message to {client_id} fail: {error.what}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail: {answer.remark}"
        return ""

    def _stored(
        self, channel: Channel, request: RemotingCommand, header: ReplyHeader, queue_id: int
    ) -> AppendResult | None:
        broker = self._broker.config.broker
        if not (broker.store_reply_message_enable and broker.broker_permission & Permission.WRITE):
            return None
        result = self._broker.store.append(
            PutMessage(
                topic=header.topic,
                queue_id=queue_id,
                body=request.body,
                properties=(header.properties or "").encode(),
                flag=header.flag,
                sys_flag=header.sys_flag & ~TRANSACTION_MASK,
                born_time_ms=header.born_timestamp,
                born_host=pack_host(*split_addr(channel.remote_addr)),
                store_host=self._broker.store_host,
                reconsume_times=header.reconsume_times or 0,
            )
        )
        if result.status is not PutStatus.PUT_OK:
            logger.warning(
                "reply not stored status=%s remark=%s", result.status.name, result.remark
            )
            return None
        self._broker.stats.put(header.topic, 1, result.size)
        return result
