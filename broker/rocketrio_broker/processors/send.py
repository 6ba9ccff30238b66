"""Sending: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

Header, checks, append and answer are done without an await; with synchronous flush or replication the answer is added
to `WaitingAnswers`. A large batch is parsed before that, in steps between which other requests are answered.

Invariant: a refused message is not stored; a stored one is answered with its id, even if its flush is late.
Invariant: checks come in Java's order, each refusal with Java's code.
Answers to: SendMessageProcessor, AbstractSendMessageProcessor; RocketMQ reference, section 2.2.
Unlike Java: code 320 is a batch whatever its field `m` says.
"""

from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import lru_cache
from time import perf_counter
from typing import Any, Final, TypeAlias

import trio

from rocketrio_broker.access.needs import ADDRESS, CREATE, PUB, Facts, Need, Rule, topic_need
from rocketrio_broker.namesrv.routes import UNIT, UNIT_SUB
from rocketrio_broker.processors.answers import SendAnswers
from rocketrio_broker.processors.resent import ResentMessages, SendHeader
from rocketrio_broker.processors.special_sends import SpecialSends
from rocketrio_broker.processors.stored_properties import (
    DELAY_MARK,
    TRANSACTION_MARK,
    UNIQUE_KEY_LABEL,
    stored_properties,
)
from rocketrio_broker.requests.declaration import answers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.requests.steps import in_steps
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.put_batch import (
    MixedEntries,
    UniformEntries,
    entries_in_steps,
    entries_of,
)
from rocketrio_broker.store.put_message import PutMessage, PutStatus
from rocketrio_broker.store.put_times import SHORT
from rocketrio_protocol.access.model import ResourceKind
from rocketrio_protocol.bodies.topics import Permission, TopicConfig
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import FLAG_ONEWAY, RemotingCommand
from rocketrio_protocol.commands.send import (
    SendBatchMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.names import (
    NOT_SENDABLE_TOPICS,
    RETRY_PREFIX,
    TRACE_TOPIC,
    topic_name_problem,
)
from rocketrio_protocol.record.layout import TRANSACTION_MASK, SysFlag, pack_host
from rocketrio_protocol.record.properties import stored_value
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.ports import split_addr

LARGE_BATCH: Final = 128 << 10
"""Bytes above which a batch is parsed in steps: it may have more than 6,000 messages."""
IN_STEPS_LIMIT: Final = 8
"""The most batches that are parsed in steps at once, each with entries of some MB; others are parsed in one step."""

_CLIENT_ADDR_CACHE: Final = 4096  # connections whose packed address is kept
# Plain names, because every send uses them: looking up a member of an enumeration takes as long as a call.
_SEND_MESSAGE: Final = int(RequestCode.SEND_MESSAGE)
_SEND_BATCH_MESSAGE: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_PUT_OK: Final = PutStatus.PUT_OK
_MULTI_TAGS: Final = int(SysFlag.MULTI_TAGS)
_MULTI_TAG_TOPIC: Final = "MULTI_TAG"

_CODE_BY_STATUS: Final = {
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.CREATE_MAPPED_FILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
}


Entries: TypeAlias = UniformEntries | MixedEntries


@lru_cache(_CLIENT_ADDR_CACHE)
def _packed_addr(addr: str) -> bytes:
    return pack_host(*split_addr(addr))


def _needs(header_class: type[SendMessageRequestHeader | SendMessageRequestHeaderV2]) -> Rule:
    def rule(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
        name = request.header(header_class).topic
        if name == TRACE_TOPIC:
            return ()
        need = topic_need(name, PUB)
        if facts.has_topic(name) or need.kind is not ResourceKind.TOPIC or not facts.creates_topics:
            return (need,)
        return need, Need(ResourceKind.TOPIC, name, CREATE)

    return rule


class SendMessageProcessor:
    """Stores the messages that producers send."""

    def __init__(self, broker: BrokerState) -> None:
        self._store = broker.store
        self._config = broker.config
        self._topics = broker.topics
        self._resent = ResentMessages(broker)
        self._special = SpecialSends(broker)
        self._waiting = broker.waiting_answers
        self._stats = broker.stats
        self._store_host = broker.store_host
        self._answers_of: BrokerConfig | None = None
        self._rng = broker.rng
        self._put_times = broker.store.put_times
        self._waits_for_flush = broker.waits_for_flush
        self._held_writes = broker.held_writes
        self._in_steps = 0

    @answers(
        SendMessageRequestHeader,
        needs=_needs(SendMessageRequestHeader),
        known_by=ADDRESS,
        held=True,
    )
    @answers(
        SendMessageRequestHeaderV2,
        SendBatchMessageRequestHeader,
        needs=_needs(SendMessageRequestHeaderV2),
        known_by=ADDRESS,
        held=True,
    )
    def send(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand | None] | None:
        """Store the message or batch of one request.

        The answer is sent here, or later, or never if the request is one-way.
        """
        if len(request.body) > LARGE_BATCH:
            # A wrong header is answered below, among the other checks.
            with suppress(RemoteProtocolError):
                if _is_batch(request.code, _header_of(request)):
                    return self._send_large(channel, request)
        return self._sent(channel, request)

    async def _send_large(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Parse a batch in steps, between which others are answered, and store it in the last one."""
        entries: Entries | None = None
        if self._in_steps < IN_STEPS_LIMIT:
            self._in_steps += 1
            try:
                entries = await in_steps(entries_in_steps(request.body))
                await trio.lowlevel.checkpoint()
            except RemoteProtocolError as error:
                return self._refusal(request, _illegal(error))
            finally:
                self._in_steps -= 1
        # A hand-over may have begun since. The store would refuse the batch; it waits, as those do that came later.
        if self._held_writes.is_holding:
            return self._held_writes.keep(self.send, channel, request)
        return self._sent(channel, request, entries)

    def _sent(
        self, channel: Channel, request: RemotingCommand, entries: Entries | None = None
    ) -> RemotingCommand | None:
        try:
            self._send(channel, request, entries)
        except (RefusedError, RemoteProtocolError) as refusal:
            return self._refusal(request, refusal)
        return None

    def _refusal(
        self, request: RemotingCommand, refusal: RefusedError | RemoteProtocolError
    ) -> RemotingCommand:
        code = ResponseCode.SYSTEM_ERROR if refusal.code is None else refusal.code
        answer = request.response(code=code, remark=refusal.remark or refusal.what)
        answer.ext_fields = self._current_answers(self._config.broker).fields_of_error()
        return answer

    def _send(self, channel: Channel, request: RemotingCommand, entries: Entries | None) -> None:
        begin = perf_counter()
        code = request.code
        header = _header_of(request)
        broker = self._config.broker
        self._waiting.check_room()  # First: what is stored and refused as busy would be stored twice.
        topic = self._topics.topic_config_table.get(header.topic)
        if topic is None or header.topic in NOT_SENDABLE_TOPICS or topic.order:
            topic = self._checked_topic(header, topic, broker)
        queue_id = header.queue_id
        if not 0 <= queue_id < topic.write_queue_nums:
            queue_id = self._checked_queue_id(queue_id, topic, channel)
        text = header.properties
        if topic.topic_name.startswith(RETRY_PREFIX):
            topic, queue_id, text = self._resent.destination(
                header, request.version, topic, queue_id
            )
        is_batch = _is_batch(code, header)
        changed, waits = stored_properties(text, broker.cluster_name, is_batch=is_batch)
        properties = changed.encode()
        put = PutMessage(
            topic=topic.topic_name,
            queue_id=queue_id,
            body=b"" if is_batch else request.body,
            properties=properties,
            flag=header.flag,
            sys_flag=header.sys_flag | _MULTI_TAGS
            if topic.topic_filter_type == _MULTI_TAG_TOPIC
            else header.sys_flag,
            born_time_ms=header.born_timestamp,
            born_host=_packed_addr(channel.remote_addr),
            store_host=self._store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        if header.sys_flag & TRANSACTION_MASK or (
            text and (DELAY_MARK in text or TRANSACTION_MARK in text)
        ):
            put = self._special.parked(put, text, is_batch=is_batch)
        store = self._store
        result = (
            store.append_batch(put, entries or _entries(request)) if is_batch else store.append(put)
        )
        if result.status is not _PUT_OK:
            raise RefusedError(
                _CODE_BY_STATUS[result.status], f"{result.status.name}: {result.remark}"
            )
        self._stats.put(topic.topic_name, result.message_count, result.size, text)
        if request.flag & FLAG_ONEWAY:
            return
        answers = self._answers if broker is self._answers_of else self._current_answers(broker)
        unique_key = stored_value(properties, UNIQUE_KEY_LABEL)
        frame = answers.frame(request.opaque, request.serialize_type, queue_id, result, unique_key)
        if waits and self._waiting.is_needed:
            self._waiting.add(result.end_offset, channel, frame)
            return
        took = perf_counter() - begin
        if took < SHORT:
            self._put_times.short += 1
        else:
            self._put_times.add(took)
        if waits:
            channel.reply(frame)
        else:
            self._waiting.answer_early(channel, frame)

    def _current_answers(self, broker: BrokerConfig) -> SendAnswers:
        """Return the writer of answers, made again when the settings were replaced."""
        if broker is not self._answers_of:
            self._answers_of = broker
            self._answers = SendAnswers(
                self._store_host, region_id=broker.region_id, trace_on=broker.trace_on
            )
        return self._answers

    # --------------------------------------------------------------------------------- checks, in order

    def _checked_topic(
        self, header: SendHeader, topic: TopicConfig | None, broker: BrokerConfig
    ) -> TopicConfig:
        name = header.topic
        if not broker.broker_permission & Permission.WRITE and topic is not None and topic.order:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker {broker.broker_name} takes no messages: its permission is "
                f"{broker.broker_permission}",
            )
        if topic is None and (problem := topic_name_problem(name)) is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, problem)
        if name in NOT_SENDABLE_TOPICS:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
            )
        if topic is None:
            topic = self._created_topic(header)
        return topic

    def _created_topic(self, header: SendHeader) -> TopicConfig:
        if not self._store.writable:
            # Checked before the topic is created: a slave would keep it until the next copy of the master's topics.
            raise RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, self._store.refusal)
        is_retry = header.topic.startswith(RETRY_PREFIX)
        sys_flag = (UNIT_SUB if is_retry else UNIT) if header.unit_mode else 0
        topic = self._topics.create_in_send(
            header.topic,
            default_topic=header.default_topic,
            queue_nums=header.default_topic_queue_nums,
            sys_flag=sys_flag,
        )
        if topic is None and is_retry:
            topic = self._topics.create_in_send_back(header.topic, sys_flag=sys_flag)
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        self._topics.keep_new(at_once=self._waits_for_flush)
        return topic

    def _checked_queue_id(self, queue_id: int, topic: TopicConfig, channel: Channel) -> int:
        if queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, {_described(topic)} "
                f"Producer: {channel.remote_addr}",
            )
        if queue_id < 0:
            return self._rng.randrange(max(topic.write_queue_nums, 1))
        return queue_id


def _header_of(request: RemotingCommand) -> SendHeader:
    if request.code == _SEND_MESSAGE:
        return request.header(SendMessageRequestHeader)
    return request.header(SendMessageRequestHeaderV2)


def _is_batch(code: int, header: SendHeader) -> bool:
    return code == _SEND_BATCH_MESSAGE or bool(header.batch)


def _entries(request: RemotingCommand) -> Entries:
    try:
        return entries_of(request.body)
    except RemoteProtocolError as error:
        raise _illegal(error) from error


def _illegal(error: RemoteProtocolError) -> RefusedError:
    return RefusedError(ResponseCode.MESSAGE_ILLEGAL, error.what)


def _described(topic: TopicConfig) -> str:
    """Return a text for the topic as Java's error contains it."""
    perm = "".join(
        letter if topic.perm & bit else "-"
        for letter, bit in (
            ("R", Permission.READ),
            ("W", Permission.WRITE),
            ("X", Permission.INHERIT),
        )
    )
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={perm}, "
        f"topicFilterType={topic.topic_filter_type}, topicSysFlag={topic.topic_sys_flag}, "
        f"order={'true' if topic.order else 'false'}]"
    )
