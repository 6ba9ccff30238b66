"""Answers requests that brokers send to consumers, on their own initiative (40) or for an operator's tool.

    40  the group's members have changed    no answer
    220 an operator reset the offsets       no answer
    221 the offsets on a topic's queues     GetConsumerStatusBody
    307 the state of the consumer           ConsumerRunningInfo, with stacks on request
    309 handle this message now             ConsumeMessageDirectlyResult

Answers to: ClientRemotingProcessor, except for transactions and replies.
Unlike Java: a request that a consumer without handlers cannot serve is refused with an explanation.
"""

from collections.abc import Mapping

import attrs

from rocketrio.cluster.heartbeat import ConsumerMembership, MemberAnswers
from rocketrio.cluster.namespace import Namespace
from rocketrio.cluster.stacks import stacks
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.queues import ConsumerStatusBody, ResetOffsetBody
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import consumer
from rocketrio_protocol.commands.client import NotifyConsumerIdsChangedRequestHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue, decode_messages
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor


@attrs.frozen
class MemberCalls:
    """Finds the member that a request is for, and asks it."""

    members: Mapping[str, ConsumerMembership]
    """The memberships by group."""
    namespace: Namespace

    def processors(self) -> dict[int, Processor]:
        """Return the method for each request code."""
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self.notify_consumer_ids_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self.reset_consumer_offset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self.consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def notify_consumer_ids_changed(self, channel: Channel, request: RemotingCommand) -> None:
        """Rebalance at once with the group's current members."""
        header = request.header(NotifyConsumerIdsChangedRequestHeader)
        member = self._find(header.consumer_group)
        if member is not None:
            member.rebalance_now.wake()

    def reset_consumer_offset(self, channel: Channel, request: RemotingCommand) -> None:
        """Move to the offsets that an operator set, on the given queues."""
        header = request.header(consumer.ResetConsumerClientOffsetRequestHeader)
        member = self._find(header.group)
        if member is not None and member.follow_reset is not None:
            offsets = ResetOffsetBody.from_json(request.body).offset_table
            short = self.namespace.unwrapped
            member.follow_reset(
                {
                    MessageQueue(short(queue.topic), queue.broker_name, queue.queue_id): offset
                    for queue, offset in offsets.items()
                }
            )

    def consumer_status(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer 221; as in Java with an empty table if the group has no member here."""
        header = request.header(consumer.GetConsumerStatusFromClientRequestHeader)
        answers = self._answers(header.group)
        table = {}
        if answers is not None:
            table = answers.consumer_offsets(self.namespace.unwrapped(header.topic))
        body = ConsumerStatusBody(message_queue_table=table, consumer_table={})
        return request.response(body=body.to_json())

    def running_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer 307."""
        header = request.header(consumer.GetConsumerRunningInfoRequestHeader)
        info = self._member(header.consumer_group).running_info()
        if header.jstack_enable:
            info.jstack = stacks()
        return request.response(body=info.to_json())

    async def consume_directly(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer 309, after the handler has ended."""
        header = request.header(consumer.ConsumeMessageDirectlyRequestHeader)
        member = self._member(header.consumer_group)
        messages = decode_messages(request.body, header.broker_name or "")
        if len(messages) != 1:
            raise Error(
                f"the request has {len(messages)} messages, and one can be consumed directly"
            )
        result = await member.consume_directly(self.namespace.message(messages[0]))
        return request.response(body=fastjson.dumps(result))

    def _find(self, group: str) -> ConsumerMembership | None:
        return self.members.get(self.namespace.unwrapped(group))

    def _answers(self, group: str) -> MemberAnswers | None:
        member = self._find(group)
        return None if member is None else member.answers

    def _member(self, group: str) -> MemberAnswers:
        answers = self._answers(group)
        if answers is None:
            raise Error(f"The Consumer Group <{group}> not exist in this consumer")
        return answers
