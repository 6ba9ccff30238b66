"""Requests by message: one is sent to a topic, its consumer replies, and the broker pushes the reply to the requester.

    message with CORRELATION_ID, REPLY_TO_CLIENT, TTL ----> broker ----> consumer
    326 with the reply <---- any broker <---- 325 to a queue of <cluster>_REPLY_TOPIC

Invariant: every master knows the requester before the request is sent, so that any of them can push the reply.
Answers to: DefaultMQProducer.request, RequestFutureHolder, MessageUtil.createReplyMessage,
ClientRemotingProcessor.receiveReplyMessage; RocketMQ reference, section 2.2.
Unlike Java: a reply is tried at other brokers if one cannot push it; the timeout includes the sending.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import attrs
import msgspec
import trio

from rocketrio.client import ClientInstance
from rocketrio.hooks import Reader, SendCall
from rocketrio.producing.observed import observing
from rocketrio.producing.outgoing import Outgoing
from rocketrio.producing.send_result import is_worth_another_broker
from rocketrio.producing.sender import MessageSender
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.send import (
    PushReplyMessageRequestHeader,
    SendReplyMessageRequestHeaderV2,
)
from rocketrio_protocol.errors import (
    BrokerError,
    Error,
    LocalProtocolError,
    NotReachableError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from rocketrio_protocol.message import Message, MessageExt, MessageQueue
from rocketrio_protocol.names import REPLY_TOPIC_POSTFIX
from rocketrio_protocol.record.encode import encode_record
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.record.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_REPLY_MESSAGE_ARRIVE_TIME,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    REPLY_MESSAGE_TYPE,
    decode_properties,
    encode_properties,
)
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.ports import split_addr

REQUEST_TIMEOUT: Final = 3.0
"""Seconds for the request, its handling and the reply together."""
NO_HOST: Final = pack_host("0.0.0.0", 0)
"""Replaces an address that cannot be parsed."""

logger = logging.getLogger("rocketrio.producer")


@attrs.define(eq=False)
class _Expected:
    """A reply that a task waits for."""

    arrived: trio.Event = attrs.Factory(trio.Event)
    reply: MessageExt | None = None


class Replies:
    """The replies that one client waits for."""

    def __init__(self, client: ClientInstance) -> None:
        self._client = client
        self._expected: dict[str, _Expected] = {}
        client.on_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self.pushed)

    @contextmanager
    def expecting(self, correlation_id: str) -> Iterator[_Expected]:
        """Expect a reply while the block runs; a later reply is dropped."""
        expected = self._expected[correlation_id] = _Expected()
        try:
            yield expected
        finally:
            del self._expected[correlation_id]

    def pushed(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Take a reply that a broker pushes; confirm it even if no task waits any more, as Java does."""
        header = request.header(PushReplyMessageRequestHeader)
        properties = decode_properties(header.properties or "")
        correlation_id = properties.get(PROPERTY_CORRELATION_ID, "")
        expected = self._expected.get(correlation_id)
        if expected is None:
            logger.info(
                "unexpected reply dropped correlation_id=%s peer=%s",
                correlation_id,
                channel.remote_addr,
            )
        elif expected.reply is None:  # A redelivered request may be answered twice.
            properties[PROPERTY_REPLY_MESSAGE_ARRIVE_TIME] = str(self._client.wall_clock.now_ms())
            expected.reply = _message(header, bytes(request.body), properties)
            expected.arrived.set()
        return request.response()


async def request(
    sender: MessageSender,
    message: Message,
    *,
    sharding_key: str | None,
    queue: MessageQueue | None,
    timeout: float,
) -> MessageExt:
    """Send a request as described at `Producer.request`."""
    client = sender.client
    deadline = trio.current_time() + timeout
    correlation_id = str(uuid.UUID(int=client.rng.getrandbits(128), version=4))
    marks = {
        PROPERTY_CORRELATION_ID: correlation_id,
        PROPERTY_REPLY_TO_CLIENT: client.client_id,
        PROPERTY_TTL: str(int(timeout * 1000)),
    }
    asking = attrs.evolve(message, properties={**message.properties, **marks})
    call = SendCall(
        client=client,
        messages=[asking],
        sharding_key=sharding_key,
        conversation_id=correlation_id,
    )
    # Before the request is sent: the reply may come before the answer to the send.
    with client.shared(Replies).expecting(correlation_id) as expected:
        with observing(sender, call) as sending:
            outgoing = sender.encode(sending.messages[0])
            sending.encoded(outgoing.message_ids)
            with trio.move_on_at(deadline):
                # Any master may have to push the reply, and can push only to a client that it knows.
                await client.announce_producer(sender.group)
            left = max(deadline - trio.current_time(), 0.0)
            sent = await sender.send(outgoing, sharding_key, queue, left)
            sending.stored(sent)
        hooks = sender.hooks
        received = None if hooks is None else hooks.receiving(Reader(client, sender.group))
        with trio.move_on_at(deadline):
            await expected.arrived.wait()
        if expected.reply is None:
            raise RequestTimeoutError(
                f"no reply to message {sent.message_id} within {timeout:g} s",
                topic=message.topic,
                remedy="The message is stored, and its consumer may still be working on it",
            )
        if received is not None:
            received([expected.reply])
        return expected.reply


async def reply(
    sender: MessageSender,
    asked: MessageExt,
    body: bytes,
    *,
    properties: Mapping[str, str],
    timeout: float | None,
) -> None:
    """Send a reply as described at `Producer.reply`."""
    answer = _reply_message(asked, body, properties)
    conversation_id = answer.properties[PROPERTY_CORRELATION_ID]
    call = SendCall(client=sender.client, messages=[answer], conversation_id=conversation_id)
    with observing(sender, call) as sending:
        outgoing = sender.encode(sending.messages[0])
        sending.encoded(outgoing.message_ids)
        await _push(sender, asked, outgoing, timeout)


async def _push(
    sender: MessageSender, asked: MessageExt, outgoing: Outgoing, timeout: float | None
) -> None:
    deadline = trio.current_time() + (sender.timeout if timeout is None else timeout)
    last_broker: str | None = None
    for attempt in range(sender.retries + 1):
        queue = await sender.routes.next_queue(
            outgoing.topic, last_broker=last_broker, until=deadline
        )
        header = SendReplyMessageRequestHeaderV2(
            *msgspec.structs.astuple(
                outgoing.header(
                    queue,
                    group=sender.group,
                    born_time_ms=sender.client.wall_clock.now_ms(),
                )
            )
        )
        try:
            addr = await sender.master_of(queue, until=deadline)
            answer = await sender.client.connections.call(
                addr, header, outgoing.body, timeout=deadline - trio.current_time()
            )
            if answer.code == ResponseCode.SUCCESS:
                return
            what = f"reply to message {asked.message_id} not pushed"
            raise answer.error(what, broker_addr=addr, topic=outgoing.topic)
        except (BrokerError, NotReachableError, RouteNotFoundError) as error:
            is_last = attempt == sender.retries or trio.current_time() >= deadline
            if is_last or not is_worth_another_broker(error):
                raise
            logger.info("reply tries again queue=%s error=%s", queue, error)
            last_broker = queue.broker_name


def _reply_message(asked: MessageExt, body: bytes, properties: Mapping[str, str]) -> Message:
    of_request = asked.properties
    cluster = of_request.get(PROPERTY_CLUSTER)
    if cluster is None or not {PROPERTY_CORRELATION_ID, PROPERTY_REPLY_TO_CLIENT} <= set(
        of_request
    ):
        raise LocalProtocolError(
            f"message {asked.message_id} does not request a reply",
            topic=asked.topic,
            remedy="Reply to messages that were sent by `request`, through brokers of 4.9 or later",
        )
    marks = {
        PROPERTY_MESSAGE_TYPE: REPLY_MESSAGE_TYPE,
        PROPERTY_CORRELATION_ID: of_request[PROPERTY_CORRELATION_ID],
        PROPERTY_REPLY_TO_CLIENT: of_request[PROPERTY_REPLY_TO_CLIENT],
        PROPERTY_TTL: of_request.get(PROPERTY_TTL, str(int(REQUEST_TIMEOUT * 1000))),
    }
    return Message(f"{cluster}_{REPLY_TOPIC_POSTFIX}", body, properties={**properties, **marks})


def _message(
    header: PushReplyMessageRequestHeader, body: bytes, properties: dict[str, str]
) -> MessageExt:
    record = encode_record(
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=0,
        physical_offset=0,
        sys_flag=header.sys_flag,
        born_time_ms=header.born_timestamp,
        born_host=_host(header.born_host),
        store_time_ms=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body=body,
        topic=header.topic.encode(),
        properties=encode_properties(properties).encode(),
    )
    return MessageExt(record, 0, len(record))


def _host(addr: str) -> bytes:
    try:
        return pack_host(*split_addr(addr.removeprefix("/")))
    except (Error, ValueError, OSError):
        return NO_HOST
