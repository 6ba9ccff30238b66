"""Answers operators' tools about a group member: its offsets (221), its state (307), handling one more message (309).

All values are the consumer's state at the time of the request. Cached are messages that are not handed out, and those
that handlers have; messages with handlers of an orderly consumer are its "transaction". Times of consuming come from
samples every few seconds (consume_rates.py). What Java counts and this client does not has the value of an idle Java
consumer: `tryUnlockTimes` 0 (a lock that cannot be released expires), `droped` false (a queue that moved is not
reported at all). A consumer that is not orderly has no "transaction", and reports the time of the take-over as that of
the lock. A queue whose start is not known yet has the offset -1.

Invariant: topics and groups have the names that brokers know, with their namespace.
Answers to: DefaultMQPushConsumerImpl.consumerRunningInfo, ProcessQueue.fillProcessQueueInfo, cloneOffsetTable.
Unlike Java: properties are only settings, not objects; a consumer without handlers handles nothing on request.
"""

from datetime import datetime
from typing import Final

import attrs
import msgspec
import trio

from rocketrio.client import ClientInstance
from rocketrio.cluster.heartbeat import CONSUME_PASSIVELY, ConsumerMembership
from rocketrio.consuming.assignment import Assignment
from rocketrio.consuming.consume_rates import ConsumeRates
from rocketrio.consuming.consumer_options import ConsumerOptions
from rocketrio.consuming.hand_out import HandOut
from rocketrio.consuming.process_queue import CONSUME_MAX_SPAN, ProcessQueue
from rocketrio.consuming.queue_locks import LOCK_LIFETIME
from rocketrio.consuming.redelivered import redelivered
from rocketrio.consuming.running import SUSPEND_PAUSE, ConsumeLater, Handlers
from rocketrio_protocol.bodies import running_info as names
from rocketrio_protocol.bodies.running_info import (
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from rocketrio_protocol.codes import PROTOCOL_VERSION_NAME, LanguageCode
from rocketrio_protocol.errors import ClosedError
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.names import retry_topic

MIB: Final = 1024 * 1024
UNKNOWN: Final = -1


@attrs.define(eq=False)
class RunningMember:
    """The answers of one consumer that is a member of a group."""

    client: ClientInstance
    member: ConsumerMembership
    options: ConsumerOptions
    assigned: Assignment
    hand_out: HandOut
    rates: ConsumeRates
    handlers: Handlers
    started_ms: int

    # -------------------------------------------------------------------------------------- offsets

    def consumer_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return what would be committed now for the topic's queues, or all; omit queues without a known start."""
        return {
            self._long(queue): offset
            for queue, offset in self._commit_offsets().items()
            if topic in ("", queue.topic) and offset != UNKNOWN
        }

    def _commit_offsets(self) -> dict[MessageQueue, int]:
        noted, done_offset = self.assigned.offsets.offset_table, self.hand_out.done_offset
        offsets = {}
        for queue, process_queue in sorted(self.assigned.queues.items()):
            done = done_offset(process_queue) if self.options.auto_commit else None
            offsets[queue] = noted.get(queue, UNKNOWN) if done is None else done
        return offsets

    def _long(self, queue: MessageQueue) -> MessageQueue:
        return attrs.evolve(queue, topic=self.client.namespace.wrapped(queue.topic))

    # ------------------------------------------------------------------------------------------- state

    def running_info(self) -> ConsumerRunningInfo:
        """Return the whole report except for the stacks."""
        rates, wrapped = self.rates, self.client.namespace.wrapped
        rates.sample()
        subscriptions = self.member.subscriptions
        return ConsumerRunningInfo(
            properties=self._properties(),
            subscription_set=[
                msgspec.structs.replace(subscriptions[topic], topic=wrapped(topic))
                for topic in sorted(subscriptions)
            ],
            mq_table={
                self._long(queue): self._process_queue_info(queue, offset)
                for queue, offset in self._commit_offsets().items()
            },
            mq_pop_table={},
            status_table={wrapped(topic): rates.status(topic) for topic in sorted(subscriptions)},
            user_consumer_info={},
        )

    def _process_queue_info(self, queue: MessageQueue, commit_offset: int) -> ProcessQueueInfo:
        process_queue = self.assigned.queues[queue]
        rates, counts = self.rates, process_queue.counts
        in_work = _in_work(process_queue)
        waiting = _waiting(process_queue, self.hand_out.position(process_queue))
        cached = waiting if self.options.orderly else in_work.and_then(waiting)
        transaction = in_work if self.options.orderly else NONE
        locked_at = last_pull = rates.owned_since(process_queue)
        if process_queue.needs_lock:
            locked_at = process_queue.locked_until - LOCK_LIFETIME
        if counts.last_pull is not None:
            last_pull = counts.last_pull
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=cached.first,
            cached_msg_max_offset=cached.last,
            cached_msg_count=cached.count,
            cached_msg_size_in_mib=_held_bytes(process_queue) // MIB,
            transaction_msg_min_offset=transaction.first,
            transaction_msg_max_offset=transaction.last,
            transaction_msg_count=transaction.count,
            locked=process_queue.is_locked,
            last_lock_timestamp=self._wall_ms(locked_at),
            last_pull_timestamp=self._wall_ms(last_pull),
            last_consume_timestamp=self._wall_ms(rates.moved_at(process_queue)),
            rocketrio_dropped_commits=self.assigned.offsets.dropped_commits(queue) or msgspec.UNSET,
        )

    def _wall_ms(self, at: float) -> int:
        return self.client.wall_clock.now_ms() - round((trio.current_time() - at) * 1000)

    def _properties(self) -> dict[str, str]:
        """Return settings by the names and in the units of Java's consumers; rocketrio's own begin with `rocketrio`."""
        client, options, run = self.client, self.options, self.handlers.current
        times = options.max_reconsume_times
        properties = {
            names.PROP_CONSUME_TYPE: CONSUME_PASSIVELY,
            names.PROP_CLIENT_VERSION: PROTOCOL_VERSION_NAME,
            names.PROP_CONSUMER_START_TIMESTAMP: str(self.started_ms),
            names.PROP_CONSUME_ORDERLY: _flag(options.orderly),
            names.PROP_NAMESERVER_ADDR: "".join(
                f"{each};" for each in client.name_servers.addresses
            ),
            names.PROP_THREADPOOL_CORE_SIZE: "1" if run is None else str(run.concurrency),
            "allocateMessageQueueStrategy": getattr(
                options.strategy, "__qualname__", repr(options.strategy)
            ),
            "autoCommit": _flag(options.auto_commit),
            "consumeConcurrentlyMaxSpan": str(CONSUME_MAX_SPAN),
            "consumeFromWhere": self.member.consume_from_where,
            "consumerGroup": client.namespace.wrapped(options.group),
            "heartbeatBrokerInterval": _ms(client.heartbeat.interval),
            "language": LanguageCode.PYTHON.name,
            "maxReconsumeTimes": "-1" if times is None else str(times),
            "messageModel": self.member.message_model,
            "namesrvAddr": ";".join(client.name_servers.addresses),
            "persistConsumerOffsetInterval": _ms(options.auto_commit_interval),
            "pullBatchSize": str(options.prefetch.batch_size),
            "pullThresholdForQueue": str(options.prefetch.queue_messages),
            "pullThresholdSizeForQueue": f"{options.prefetch.queue_bytes / MIB:g}",
            "rocketrioPullThresholdSize": f"{options.prefetch.total_bytes / MIB:g}",
            "rocketrioReadFrom": options.policy.read_from,
            "suspendCurrentQueueTimeMillis": _ms(SUSPEND_PAUSE),
        }
        if isinstance(options.start_from, datetime):
            local = options.start_from.astimezone()  # as Java
            properties["consumeTimestamp"] = f"{local:%Y%m%d%H%M%S}"
        if run is not None:
            properties |= {
                "consumeMessageBatchMaxSize": str(run.batch_size or 1),
                "consumeThreadMax": str(run.concurrency),
                "consumeThreadMin": str(run.concurrency),
                "consumeTimeout": f"{run.handler_timeout / 60:g}",
            }
        return properties

    # ----------------------------------------------------------- one message at an operator's request

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Call a handler with a message immediately, out of order; no offset moves.

        Raises ClosedError without a handler. A cancel does not stop the handler.
        """
        run = self.handlers.current
        if run is None:
            raise ClosedError(
                f"the consumer of group {self.member.group} receives messages in a loop:"
                " it has no handler that could get one"
            )
        if message.topic == retry_topic(self.member.group):
            message = redelivered(message)
        begun = trio.current_time()
        failure = await run.handle_directly(message)
        result, remark = _outcome(failure)
        return ConsumeMessageDirectlyResult(
            order=self.options.orderly,
            consume_result=result,
            remark=remark,
            spent_time_mills=round((trio.current_time() - begun) * 1000),
        )


def _outcome(failure: Exception | None) -> tuple[ConsumeResult, str | None]:
    if failure is None or (isinstance(failure, ConsumeLater) and failure.done):
        return "CR_SUCCESS", None
    if isinstance(failure, ConsumeLater):
        return "CR_LATER", None
    return "CR_THROW_EXCEPTION", f"{type(failure).__name__}: {failure}"


@attrs.frozen
class _Span:
    """Some messages of one queue: their count, and the first and last offset; zeros as in Java if there are none."""

    count: int = 0
    first: int = 0
    last: int = 0

    def and_then(self, other: "_Span") -> "_Span":
        """Return the span extended by the messages after it."""
        if not self.count or not other.count:
            return self if self.count else other
        return _Span(self.count + other.count, self.first, other.last)


NONE: Final = _Span()


def _in_work(process_queue: ProcessQueue) -> _Span:
    """Return the span of the messages that handlers have."""
    offsets = [work.given.queue_offset for work in process_queue.unfinished]
    return _Span(len(offsets), offsets[0], offsets[-1]) if offsets else NONE


def _waiting(process_queue: ProcessQueue, position: int | None) -> _Span:
    """Return the span of the messages that are not handed out."""
    rest = process_queue.waiting(position)
    pieces = [rest] if rest else []
    pieces += [chunk.messages for chunk in process_queue.chunks if chunk.messages]
    if not pieces:
        return NONE
    count = sum(map(len, pieces))
    return _Span(count, pieces[0][0].queue_offset, pieces[-1][-1].queue_offset)


def _held_bytes(process_queue: ProcessQueue) -> int:
    """Return the size of the pulls that are not completely done."""
    chunks = {work.chunk for work in process_queue.unfinished} | set(process_queue.chunks)
    if process_queue.current is not None:
        chunks.add(process_queue.current)
    return sum(chunk.size for chunk in chunks)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))
