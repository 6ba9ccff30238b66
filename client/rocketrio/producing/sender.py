"""Sends encoded messages for one producer group: chooses the queue, and tries again at other brokers.

Invariant: a message with a key or a given queue goes to that queue or nowhere.
Invariant: a message counts as stored only when a master has confirmed it.
Answers to: DefaultMQProducerImpl.sendDefaultImpl.
Unlike Java: a short pause between attempts at the same broker.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from math import inf
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.hooks import Hooks
from rocketrio.limits import MAX_MESSAGE_SIZE
from rocketrio.producing.delays import DELAY_LEVELS, check_level
from rocketrio.producing.outgoing import (
    Outgoing,
    check_topic,
    encode_messages,
    encode_single,
)
from rocketrio.producing.publish_route import PublishRoutes, queue_for_key
from rocketrio.producing.send_request import SendRequest
from rocketrio.producing.send_result import SendResult, is_worth_another_broker, read_send_result
from rocketrio.producing.slow_brokers import SlowBrokers
from rocketrio.tracing.trace import Traces
from rocketrio_protocol.errors import (
    BrokerError,
    ClosedError,
    ConfigError,
    Error,
    NotReachableError,
    RouteNotFoundError,
    ServiceNotAvailableError,
)
from rocketrio_protocol.message import Message, MessageQueue
from rocketrio_protocol.record.compression import COMPRESS_BODY_OVER

SEND_TIMEOUT: Final = 3.0  # sendMsgTimeout: all attempts together
SEND_RETRIES: Final = 2  # retryTimesWhenSendFailed
SAME_BROKER_PAUSE: Final = 0.1
"""Seconds before the second attempt at a broker that failed; the third attempt waits twice as long."""
ROUTE_AGE: Final = 1.0
"""Seconds for which a route counts as fresh after a failed send: many sends that fail together refresh it once."""
LATE_ROUTE: Final = 0.2
"""Seconds to refresh the route after a send whose time is over, for the benefit of the next send."""

logger = logging.getLogger("rocketrio.producer")


@attrs.define(eq=False)
class MessageSender:
    """The sends of one producer group with one set of settings."""

    client: ClientInstance
    group: str
    routes: PublishRoutes
    timeout: float = SEND_TIMEOUT
    retries: int = SEND_RETRIES
    max_message_size: int = MAX_MESSAGE_SIZE
    compress_over: int = COMPRESS_BODY_OVER
    delay_levels: tuple[timedelta, ...] = DELAY_LEVELS
    traces: Traces | None = None
    """Set only with `open_client(trace=...)`."""
    hooks: Hooks | None = None
    """Set only if they were installed before the client was opened."""
    is_closed: bool = False
    """Whether the producer's block was left."""
    _slow_brokers: SlowBrokers | None = attrs.field(init=False)
    _announced_to: frozenset[str] = frozenset()

    def __attrs_post_init__(self) -> None:
        self._slow_brokers = self.routes.slow_brokers

    # ------------------------------------------------------------------------------------ encoding

    def encode(self, message: Message) -> Outgoing:
        """Encode a message to be sent alone. Raises ClosedError, or LocalProtocolError if brokers would refuse it."""
        if self.is_closed:
            raise self._closed()
        if not isinstance(message, Message):
            raise ConfigError(
                f"message must be a Message, not {type(message).__name__}: Message(topic, body)"
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

    def encode_batch(self, messages: Sequence[Message]) -> Outgoing:
        """Encode messages of one topic to be stored together. Raises ClosedError, LocalProtocolError."""
        if self.is_closed:
            raise self._closed()
        for topic in {message.topic for message in messages}:
            check_topic(topic)
        return encode_messages(
            messages,
            unique_ids=self.client.unique_ids.take(len(messages)),
            max_message_size=self.max_message_size,
        )

    def _closed(self) -> ClosedError:
        return ClosedError(f"the producer of group {self.group} is closed")

    # ------------------------------------------------------------------------------------- sending

    async def send(
        self,
        outgoing: Outgoing,
        sharding_key: str | None,
        queue: MessageQueue | None,
        timeout: float | None,
    ) -> SendResult:
        """Send to the chosen queue, or to any with `retries`; the arguments are those of `Producer.send`."""
        started = trio.current_time()
        if timeout is None:
            timeout = self.timeout
        if queue is not None or sharding_key is not None:
            chosen = await self._chosen(outgoing.topic, sharding_key, queue, timeout)
            # One queue, and no retry elsewhere: the messages of a key would
            # be read in another order than they were sent.
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
            except (BrokerError, NotReachableError, RouteNotFoundError) as error:
                is_last = attempt == self.retries or trio.current_time() >= started + timeout
                # Also after a lost answer, so that the message may be stored
                # twice: only a confirmation counts as stored.
                if is_last or not is_worth_another_broker(error):
                    raise
                logger.info("send tries again queue=%s error=%s", target, error)
                last_broker = target.broker_name
        raise AssertionError("the last attempt returns or raises")

    async def send_oneway(
        self, outgoing: Outgoing, sharding_key: str | None, queue: MessageQueue | None
    ) -> None:
        """Send to the chosen queue, or to the next one, without requesting an answer."""
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
            if client.faults.has_any:
                client.mark_reachable(addr)
            if self._slow_brokers is not None:
                now = trio.current_time()
                self._slow_brokers.answered(queue.broker_name, latency=now - started, now=now)
            # Raises for every answer that does not confirm that the message is stored.
            result = read_send_result(answer, queue, outgoing.message_ids, addr=addr)
            if self.traces is not None:
                spent = trio.current_time() - started
                self.traces.sent(
                    outgoing, result, answer, group=self.group, addr=addr, seconds=spent
                )
            return result
        except Error as error:
            if isinstance(error, NotReachableError):
                client.mark_unreachable(addr, spent=trio.current_time() - started)
            if self._slow_brokers is not None and error.retryable:
                self._slow_brokers.failed(queue.broker_name, now=trio.current_time())
            if error.stale_route:
                until = started + timeout
                is_refused = isinstance(error, ServiceNotAvailableError)
                # A route received since this send began is fresh enough, because the refusal came later.
                age = trio.current_time() - started if is_refused else ROUTE_AGE
                await self._refresh(queue.topic, until=until, max_age=min(age, ROUTE_AGE))
                master = client.routing.find_broker_address_in_publish(queue.broker_name)
                left = until - trio.current_time()
                if is_refused and not is_second and left > 0 and master not in (None, addr):
                    return await self.send_to(queue, outgoing, left, addr=master, is_second=True)
            raise

    async def master_of(self, queue: MessageQueue, *, until: float = inf) -> str:
        """Return the master's address.

        Raises RouteNotFoundError if a fresh route lacks it, or none arrived by `until`.
        """
        routing = self.client.routing
        addr = routing.find_broker_address_in_publish(queue.broker_name)
        if addr is None:
            await self._refresh(queue.topic, until=until)
            addr = routing.find_broker_address_in_publish(queue.broker_name)
        if addr is None:
            raise RouteNotFoundError(
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

    async def _chosen(
        self, topic: str, sharding_key: str | None, queue: MessageQueue | None, timeout: float
    ) -> MessageQueue:
        if queue is None:
            assert sharding_key is not None
            until = trio.current_time() + timeout
            return queue_for_key(sharding_key, await self.routes.keyed_queues(topic, until=until))
        if queue.topic != topic or sharding_key is not None:
            raise ConfigError(
                f"{queue} is not a queue of {topic!r}, or sharding_key= is also given"
            )
        return queue
