"""Sends messages: one at a time, many as one batch, or without waiting for an answer.

Invariant: a message with a key or a given queue goes to that queue or nowhere.
Invariant: a message counts as stored only when a master has confirmed it.
Answers to: DefaultMQProducer, DefaultMQProducerImpl.sendDefaultImpl.
Unlike Java: one `send` with keyword arguments; a short pause between attempts at the same broker; and an unknown topic
can be an error instead of being created.
"""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from math import inf
from typing import Final

import attrs
import trio

from rocketrio.arguments import seconds, whole_number
from rocketrio.client import ClientInstance
from rocketrio.live import Live
from rocketrio.producing.delays import DELAY_LEVELS, check_level, level_for, level_until
from rocketrio.producing.outgoing import Outgoing, check_topic, encode_messages, encode_single
from rocketrio.producing.pipeline import BATCH_MAX_BYTES, PENDING_LIMIT, SendPipeline
from rocketrio.producing.publish_route import PublishRoutes, queue_for_key
from rocketrio.producing.request_reply import REQUEST_TIMEOUT, reply, request
from rocketrio.producing.send_request import SendRequest
from rocketrio.producing.send_result import SendResult, is_worth_another_broker, read_send_result
from rocketrio.producing.slow_brokers import SlowBrokers
from rocketrio.producing.transaction import Transaction, transaction
from rocketrio.tracing.trace import Traces
from rocketrio_protocol.errors import (
    BrokerError,
    ClosedError,
    ConfigError,
    Error,
    NotReachable,
    RouteNotFound,
    ServiceNotAvailable,
)
from rocketrio_protocol.message import Message, MessageExt, MessageQueue
from rocketrio_protocol.remoting.tasks import background_nursery

SEND_RETRIES: Final = 2  # retryTimesWhenSendFailed
SAME_BROKER_PAUSE: Final = 0.1
"""Seconds before the second attempt at a broker that failed; the third attempt waits twice as long."""
ROUTE_AGE: Final = 1.0
"""Seconds for which a route counts as fresh after a failed send: many sends that fail together refresh it once."""
LATE_ROUTE: Final = 0.2
"""Seconds to refresh the route after a send whose time is over, for the benefit of the next send."""
logger = logging.getLogger("rocketrio.producer")


@attrs.define(eq=False, repr=False)
class Producer(Live):
    """The producer of one group, made by `open_producer`. Any number of tasks may use it concurrently."""

    client: ClientInstance
    group: str
    timeout: float
    retries: int
    max_message_size: int
    compress_over: int
    routes: PublishRoutes
    delay_levels: tuple[timedelta, ...] = DELAY_LEVELS
    slow_brokers: SlowBrokers | None = None
    """Set only with `avoid_slow_brokers`; `routes` uses it too."""
    traces: Traces | None = None
    """Set only with `open_client(trace=...)`."""
    checks_transactions: bool = False
    """Whether `check_transaction` was given."""
    is_closed: bool = False
    """Whether the producer's block was left."""
    _announced_to: frozenset[str] = frozenset()

    def __attrs_post_init__(self) -> None:
        self.born()

    def __repr__(self) -> str:
        return f"<Producer group={self.group} client={self.client.client_id}>"

    async def send(
        self,
        message: Message,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send one message and wait until a broker has stored it.

        Messages with the same `sharding_key` go to the same queue, and so do all with the same `queue`; they keep their
        order if each is sent after the previous one was answered. Other messages go to all queues in turn, and after a
        failure to another broker.

        The result's `status` says how safe the message is. Raises LocalProtocolError if the message cannot be sent at
        all, RouteNotFound without a broker for the topic, BrokerError if brokers refuse it, NotReachable and
        RequestTimeout if none answers in time: then it may have been stored nevertheless, as after a cancel.
        """
        outgoing = self.outgoing(message)
        return await self.send_outgoing(outgoing, sharding_key, queue, timeout)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send messages of one topic together: all or none are stored, one after the other in one queue.

        Raises as `send`; LocalProtocolError also if they exceed `max_message_size` bytes together, have different
        topics, or are delayed. For more messages than fit, see `pipeline`.
        """
        if self.is_closed:
            raise self._closed()
        for topic in {message.topic for message in messages}:
            check_topic(topic)
        outgoing = encode_messages(
            messages,
            unique_ids=self.client.unique_ids.take(len(messages)),
            max_message_size=self.max_message_size,
        )
        return await self.send_outgoing(outgoing, sharding_key, queue, timeout)

    async def send_oneway(
        self,
        message: Message,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send without requesting an answer: fast, but it is not known whether the message is stored."""
        outgoing = self.outgoing(message)
        if queue is None and sharding_key is None:
            until = trio.current_time() + self.timeout
            chosen = await self.routes.next_queue(outgoing.topic, until=until)
        else:
            chosen = await self._chosen(outgoing.topic, sharding_key, queue, self.timeout)
        addr = await self.master_of(chosen)
        header = outgoing.header(
            chosen, group=self.group, born_time_ms=self.client.wall_clock.now_ms()
        )
        await self.client.connections.send_oneway(addr, header, outgoing.body, timeout=self.timeout)

    @asynccontextmanager
    async def pipeline(
        self,
        *,
        linger: float = 0.0,
        batch_size: int = BATCH_MAX_BYTES,
        pending_limit: int = PENDING_LIMIT,
    ) -> AsyncGenerator[SendPipeline]:
        """Open a pipeline for many messages: `await pipeline.send(message)` returns at once, and batches form.

        A full batch has `batch_size` bytes; a smaller one is sent as soon as its queue is free, or `linger` seconds
        later, unless a task waits for it: in `flush`, at the end, or for room. At most `pending_limit` messages wait;
        then `send` waits too. Order is kept per `sharding_key`. Leaving the block waits for every answer and raises
        MessagesNotStored if any message was not stored. An exception in the block, or a cancel, drops the messages that
        have no answer yet. Raises ConfigError for numbers that are out of range.
        """
        seconds("linger", linger, may_be_0=True)
        whole_number("batch_size", batch_size, least=1)
        whole_number("pending_limit", pending_limit, least=1)
        async with background_nursery() as nursery:
            pipeline = SendPipeline(
                self,
                nursery,
                linger=linger,
                batch_size=min(batch_size, self.max_message_size),
                pending_limit=pending_limit,
            )
            try:
                yield pipeline
                await pipeline.flush()
            finally:
                pipeline.close()
            pipeline.raise_failures()

    def transaction(
        self,
        message: Message,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> AbstractAsyncContextManager[Transaction]:
        """Send a message that consumers get only if the work of the block was done.

            async with producer.transaction(Message("orders", b"paid")) as transaction:
                await database.mark_paid(order, transaction.message_id)

        The message is stored where consumers do not see it before the block begins. An exception in the block drops it;
        the end of the block delivers it, unless `transaction.rollback()` or `transaction.leave_open()` decided
        otherwise. Needs `open_producer(check_transaction=...)`, which is called as long as the broker has received no
        decision.

        The broker may already ask while the block runs, after 6 s by default: not here, but in another process of the
        group. Property CHECK_IMMUNITY_TIME_IN_SECONDS of the message gives it more time.

        A cancel inside the block decides nothing, because it is unknown how far the work got: the broker asks. A cancel
        after the block waits up to three seconds until the decision is sent. If the process dies, or the broker cannot
        be reached at the end, the broker asks too: then nothing is raised.

        Raises as `send`; TransactionNotBegun if the message is not stored as safely as the broker's modes require;
        LocalProtocolError for a delayed message. At the end BrokerError if the broker refuses the decision: the work
        was done, and the message is not delivered.
        """
        return transaction(self, message, sharding_key=sharding_key, queue=queue, timeout=timeout)

    async def request(
        self,
        message: Message,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> MessageExt:
        """Send a message and wait for its consumer's reply (see `reply`), `timeout` seconds in all.

        The message is like any other: consumers get it at least once, and the first reply counts. Raises as `send`, and
        RequestTimeout without a reply in time. After that, and after a cancel, the message may still be stored and
        handled; a late reply is dropped.
        """
        return await request(self, message, sharding_key=sharding_key, queue=queue, timeout=timeout)

    async def reply(
        self,
        asked: MessageExt,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Answer a consumed message that was sent by `request`, here or by a Java client.

        Raises LocalProtocolError for a message that does not request a reply; BrokerError if no broker could push the
        reply, usually because the requester has gone; NotReachable. If the requester merely stopped waiting, no error
        is reported. A cancel leaves open whether the reply was pushed.
        """
        await reply(
            self,
            asked,
            body,
            properties=properties or {},
            timeout=self.timeout if timeout is None else timeout,
        )

    def delayed(self, message: Message, until: timedelta | datetime) -> Message:
        """Return a copy of `message` that consumers get after a delay, or at an aware time, never sooner.

        RocketMQ's brokers delay by levels, 1 s to 2 h, so it may arrive later: the delay is the shortest level that is
        long enough, counted from when the broker stores it. Raises LocalProtocolError beyond the longest level.
        """
        if isinstance(until, datetime):
            level = level_until(until, self.client.wall_clock.now_ms(), self.delay_levels)
        else:
            level = level_for(until, self.delay_levels)
        return attrs.evolve(message, delay_level=level)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of a topic go to. Raises RouteNotFound, NotReachable."""
        return list(await self.routes.queues(topic))

    # -------------------------------------------------------------------------------- one request

    def outgoing(self, message: Message) -> Outgoing:
        """Encode a message to be sent alone. Raises ClosedError, or LocalProtocolError if brokers would refuse it."""
        if self.is_closed:
            raise self._closed()
        if not isinstance(message, Message):
            raise ConfigError(
                f"a Message is sent, and this is {type(message).__name__}: Message(topic, body)"
            )
        check_topic(message.topic)
        if message.delay_level:
            check_level(message.delay_level, self.delay_levels)
        return encode_single(
            message,
            unique_id=self.client.unique_ids.next(),
            max_message_size=self.max_message_size,
            compress_over=self.compress_over,
        )

    def _closed(self) -> ClosedError:
        return ClosedError(f"the producer of group {self.group} is closed")

    async def _chosen(
        self, topic: str, sharding_key: str | None, queue: MessageQueue | None, timeout: float
    ) -> MessageQueue:
        if queue is None:
            assert sharding_key is not None
            until = trio.current_time() + timeout
            return queue_for_key(sharding_key, await self.routes.keyed_queues(topic, until=until))
        if queue.topic != topic or sharding_key is not None:
            raise ConfigError(f"{queue} is no queue of {topic!r}, or sharding_key= is given too")
        return queue

    async def send_outgoing(
        self,
        outgoing: Outgoing,
        sharding_key: str | None,
        queue: MessageQueue | None,
        timeout: float | None,
    ) -> SendResult:
        """Send an encoded message as `send` does."""
        started = trio.current_time()
        if timeout is None:
            timeout = self.timeout
        if queue is not None or sharding_key is not None:
            chosen = await self._chosen(outgoing.topic, sharding_key, queue, timeout)
            spent = trio.current_time() - started
            return await self.send_to(chosen, outgoing, timeout - spent)
        routes = self.routes
        last_broker: str | None = None
        for attempt in range(self.retries + 1):
            addr, now, remaining = None, None, timeout
            known = None if attempt else routes.next_cached(outgoing.topic)
            if known is not None:
                (target, addr), now = known, started
            else:
                target = await routes.next_queue(
                    outgoing.topic, last_broker=last_broker, until=started + timeout
                )
                if attempt and target.broker_name == last_broker:
                    await trio.sleep(SAME_BROKER_PAUSE * attempt)
                remaining -= trio.current_time() - started
            try:
                return await self.send_to(target, outgoing, remaining, addr=addr, now=now)
            except (BrokerError, NotReachable, RouteNotFound) as error:
                is_last = attempt == self.retries or trio.current_time() >= started + timeout
                if is_last or not is_worth_another_broker(error):
                    raise
                logger.info("send tries again queue=%s error=%s", target, error)
                last_broker = target.broker_name
        raise AssertionError("the last attempt returns or raises")

    async def send_to(
        self,
        queue: MessageQueue,
        outgoing: Outgoing,
        timeout: float,
        *,
        addr: str | None = None,
        now: float | None = None,
        is_second: bool = False,
    ) -> SendResult:
        """Try once to send to one queue; refresh the route after a failure.

        A broker that refuses writes because another one is master now does not cost an attempt: it has stored nothing,
        and the message goes to the new master. `addr` is the master's address and `now` the time, if the caller has
        just got them.
        """
        client = self.client
        started = trio.current_time() if now is None else now
        if addr is None:
            addr = client.routing.find_broker_address_in_publish(queue.broker_name)
            if addr is None:
                addr = await self.master_of(queue, until=started + timeout)
        if addr not in self._announced_to:
            self._announce(addr)
        request = SendRequest(outgoing, queue, self.group, client.wall_clock.now_ms())
        try:
            answer = await client.connections.call(addr, request, timeout=timeout, now=now)
            if client.faults.are_any:
                client.mark_reachable(addr)
            if self.slow_brokers is not None:
                now = trio.current_time()
                self.slow_brokers.answered(queue.broker_name, latency=now - started, now=now)
            result = read_send_result(answer, queue, outgoing.message_ids, addr=addr)
            if self.traces is not None:
                spent = trio.current_time() - started
                self.traces.sent(
                    outgoing, result, answer, group=self.group, addr=addr, seconds=spent
                )
            return result
        except Error as error:
            if isinstance(error, NotReachable):
                client.mark_unreachable(addr, spent=trio.current_time() - started)
            if self.slow_brokers is not None and error.retryable:
                self.slow_brokers.failed(queue.broker_name, now=trio.current_time())
            if error.stale_route:
                until = started + timeout
                is_refused = isinstance(error, ServiceNotAvailable)
                # A route received since this send began is fresh enough, because the refusal came later.
                age = trio.current_time() - started if is_refused else ROUTE_AGE
                await self._refresh(queue.topic, until=until, max_age=min(age, ROUTE_AGE))
                master = client.routing.find_broker_address_in_publish(queue.broker_name)
                left = until - trio.current_time()
                if is_refused and not is_second and left > 0 and master not in (None, addr):
                    return await self.send_to(queue, outgoing, left, addr=master, is_second=True)
            raise

    async def master_of(self, queue: MessageQueue, *, until: float = inf) -> str:
        """Return the master's address. Raises RouteNotFound if a fresh route lacks it, or none arrived by `until`."""
        routing = self.client.routing
        addr = routing.find_broker_address_in_publish(queue.broker_name)
        if addr is None:
            await self._refresh(queue.topic, until=until)
            addr = routing.find_broker_address_in_publish(queue.broker_name)
        if addr is None:
            raise RouteNotFound(
                f"broker {queue.broker_name} has no master now",
                topic=queue.topic,
                remedy="Start the master, or send to another broker",
            )
        return addr

    def _announce(self, addr: str) -> None:
        # The first send to a broker also sends the first heartbeat, instead of one up to 30 s later.
        self._announced_to |= {addr}
        self.client.heartbeat.wake()

    async def _refresh(self, topic: str, *, until: float, max_age: float = ROUTE_AGE) -> None:
        try:
            with trio.move_on_at(max(until, trio.current_time() + LATE_ROUTE)):
                await self.client.refresh_topic_route(topic, max_age=max_age)
        except Error as error:
            logger.info("no fresh route topic=%s error=%s", topic, error)
