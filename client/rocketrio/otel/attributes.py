"""The attributes of spans: names of OpenTelemetry's conventions for messaging and RocketMQ, and what stands in them.

The names are copied, because the package that has them (`opentelemetry.semconv._incubating`) may change them.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from rocketrio.consuming.redelivered import RedeliveredMessage
from rocketrio.hooks import Client, Reader, SendCall
from rocketrio.producing.send_result import SendResult
from rocketrio_protocol.codes import ResponseCode, code_name
from rocketrio_protocol.errors import BrokerError
from rocketrio_protocol.message import Message, MessageExt, MessageQueue
from rocketrio_protocol.names import (
    DEAD_LETTER_PREFIX,
    REPLY_TOPIC_POSTFIX,
    RETRY_PREFIX,
    retry_topic,
)
from rocketrio_protocol.remoting.ports import split_addr

Value: TypeAlias = str | int | Sequence[str]
Attributes: TypeAlias = dict[str, Value]

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
NAMESPACE: Final = "messaging.rocketmq.namespace"
DESTINATION: Final = "messaging.destination.name"
DESTINATION_TEMPLATE: Final = "messaging.destination.template"
PARTITION: Final = "messaging.destination.partition.id"
GROUP: Final = "messaging.consumer.group.name"
CLIENT_ID: Final = "messaging.client.id"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
MESSAGE_COUNT: Final = "messaging.batch.message_count"
MESSAGE_TYPE: Final = "messaging.rocketmq.message.type"
MESSAGE_TAG: Final = "messaging.rocketmq.message.tag"
MESSAGE_KEYS: Final = "messaging.rocketmq.message.keys"
MESSAGE_GROUP: Final = "messaging.rocketmq.message.group"
DELAY_LEVEL: Final = "messaging.rocketmq.message.delay_time_level"
MODEL: Final = "messaging.rocketmq.consumption_model"
BODY_SIZE: Final = "messaging.message.body.size"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
PEER_ADDRESS: Final = "network.peer.address"
PEER_PORT: Final = "network.peer.port"
ERROR_TYPE: Final = "error.type"
SEND_STATUS: Final = "rocketrio.send.status"
READ_FROM: Final = "rocketrio.read_from_broker_id"
RECONSUME_TIMES: Final = "rocketrio.reconsume_times"
QUEUE_OFFSET: Final = "rocketrio.queue_offset"
TRANSACTION_STATE: Final = "rocketrio.transaction.state"
LINKS_OMITTED: Final = "rocketrio.links_omitted"


def of_client(client: Client, operation: str, kind: str, topic: str | None) -> Attributes:
    """Return what every span has; `topic` is None for a call about several topics."""
    found: Attributes = {
        SYSTEM: "rocketmq",
        OPERATION_NAME: operation,
        OPERATION_TYPE: kind,
        NAMESPACE: client.namespace.name,
        CLIENT_ID: client.client_id,
    }
    if topic is not None:
        found[DESTINATION] = topic
        template = _template(topic)
        if template is not None:
            found[DESTINATION_TEMPLATE] = template
    return found


def _template(topic: str) -> str | None:
    """Return what stands for many topics of the same kind, which each group or cluster has."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return f"{prefix}{{group}}"
    if topic.endswith(f"_{REPLY_TOPIC_POSTFIX}"):
        return f"{{cluster}}_{REPLY_TOPIC_POSTFIX}"
    return None


def of_send(call: SendCall) -> Attributes:
    """Return what is known of a send before it is answered, besides `of_client`."""
    if call.kind != "single":
        return {MESSAGE_COUNT: len(call.messages)}
    message = call.messages[0]
    found = of_outgoing(message)
    kind = "normal"
    if call.is_transaction:
        kind = "transaction"
    elif message.delay_level:
        kind = "delay"
    elif call.sharding_key is not None:
        kind = "fifo"
        found[MESSAGE_GROUP] = call.sharding_key
    found[MESSAGE_TYPE] = kind
    if call.conversation_id is not None:
        found[CONVERSATION_ID] = call.conversation_id
    return found


def of_outgoing(message: Message) -> Attributes:
    """Return tag, keys and delay of a message to send."""
    found = _of_texts(message.tags, message.keys)
    if message.delay_level:
        found[DELAY_LEVEL] = message.delay_level
    return found


def _of_texts(tags: str | None, keys: str) -> Attributes:
    found: Attributes = {}
    if tags:
        found[MESSAGE_TAG] = tags
    if keys:
        found[MESSAGE_KEYS] = keys.split()
    return found


def of_result(client: Client, result: SendResult) -> Attributes:
    """Return where a message is stored."""
    queue = result.queue
    addr = client.routing.find_broker_address_in_publish(queue.broker_name)
    return {
        PARTITION: partition(queue),
        QUEUE_OFFSET: result.queue_offset,
        SEND_STATUS: result.status.name,
        **of_broker(addr),
    }


def of_received(reader: Reader, messages: Sequence[MessageExt]) -> Attributes:
    """Return what received messages have in common, and what a single one is."""
    found = of_reader(reader)
    if len(messages) == 1:
        found |= of_message(messages[0])
    else:
        found[MESSAGE_COUNT] = len(messages)
    queues = {queue_of(reader, message) for message in messages}
    if len(queues) == 1:
        (queue,) = queues
        found[PARTITION] = partition(queue)
        pulled_from = reader.pulled_from(queue)
        if pulled_from is not None:
            found |= {**of_broker(pulled_from[0]), READ_FROM: pulled_from[1]}
    return found


def of_reader(reader: Reader) -> Attributes:
    """Return group and model."""
    found: Attributes = {GROUP: reader.group}
    if reader.model is not None:
        found[MODEL] = reader.model
    return found


def of_message(message: MessageExt) -> Attributes:
    """Return what a single stored message is."""
    found = _of_texts(message.tags, message.keys)
    found[MESSAGE_ID] = message.message_id
    found[QUEUE_OFFSET] = message.queue_offset
    if message.reconsume_times:
        found[RECONSUME_TIMES] = message.reconsume_times
    return found


def queue_of(reader: Reader, message: MessageExt) -> MessageQueue:
    """Return the queue that a message came from: of the retry topic for a redelivered one."""
    is_retry = isinstance(message, RedeliveredMessage)
    topic = retry_topic(reader.group) if is_retry else message.topic
    return MessageQueue(topic, message.broker_name, message.queue_id)


def partition(queue: MessageQueue) -> str:
    """Return the id of a queue that is unique in its topic: the number alone is not."""
    return f"{queue.broker_name}:{queue.queue_id}"


def of_broker(addr: str | None) -> Attributes:
    """Return a broker's address, which is the peer's too: there is no host name."""
    if addr is None:
        return {}
    host, port = split_addr(addr)
    return {SERVER_ADDRESS: host, SERVER_PORT: port, PEER_ADDRESS: host, PEER_PORT: port}


def error_type(error: BaseException) -> str:
    """Return the name of the response code that a broker answered, else the exception's class."""
    if isinstance(error, BrokerError) and error.code is not None:
        return code_name(error.code, ResponseCode).split(" ")[0]
    return type(error).__name__
