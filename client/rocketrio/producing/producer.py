"""The object that a user holds: sends messages one at a time, many as one batch, or without waiting for an answer.

Answers to: DefaultMQProducer.
Unlike Java: one `send` with keyword arguments; and an unknown topic can be an error instead of being created.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta

import attrs

from rocketrio.arguments import seconds, whole_number
from rocketrio.client import ClientInstance
from rocketrio.live import Live
from rocketrio.producing.delays import level_for, level_until
from rocketrio.producing.observed import observed_batch, observed_oneway, observed_send
from rocketrio.producing.pipeline import BATCH_MAX_BYTES, PENDING_LIMIT, SendPipeline
from rocketrio.producing.request_reply import REQUEST_TIMEOUT, reply, request
from rocketrio.producing.send_result import SendResult
from rocketrio.producing.sender import MessageSender
from rocketrio.producing.transaction import Transaction, transaction
from rocketrio.producing.transaction_checks import TransactionChecks
from rocketrio_protocol.errors import (
    ConfigError,
)
from rocketrio_protocol.message import Message, MessageExt, MessageQueue
from rocketrio_protocol.remoting.tasks import background_nursery


@attrs.define(eq=False, repr=False)
class Producer(Live):
    """The producer of one group, made by `open_producer`. Any number of tasks may use it concurrently."""

    _sender: MessageSender
    _checks: TransactionChecks | None = None
    """None without `check_transaction`."""

    def __repr__(self) -> str:
        return f"<Producer group={self.group} client={self.client.client_id}>"

    @property
    def client(self) -> ClientInstance:
        """The client whose connections it uses."""
        return self._sender.client

    @property
    def group(self) -> str:
        """The producer group."""
        return self._sender.group

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
        all, RouteNotFoundError without a broker for the topic, BrokerError if brokers refuse it, NotReachableError and
        RequestTimeoutError if none answers in time: then it may have been stored nevertheless, as after a cancel.
        """
        sender = self._sender
        if sender.hooks is not None:
            return await observed_send(sender, message, sharding_key, queue, timeout)
        return await sender.send(sender.encode(message), sharding_key, queue, timeout)

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
        sender = self._sender
        if sender.hooks is not None:
            return await observed_batch(sender, messages, sharding_key, queue, timeout)
        return await sender.send(sender.encode_batch(messages), sharding_key, queue, timeout)

    async def send_oneway(
        self,
        message: Message,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send without requesting an answer: fast, but it is not known whether the message is stored."""
        sender = self._sender
        if sender.hooks is not None:
            await observed_oneway(sender, message, sharding_key, queue)
        else:
            await sender.send_oneway(sender.encode(message), sharding_key, queue)

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
        MessagesNotStoredError if any message was not stored. An exception in the block, or a cancel, drops the messages
        that have no answer yet. Raises ConfigError for numbers that are out of range.
        """
        seconds("linger", linger, may_be_0=True)
        whole_number("batch_size", batch_size, least=1)
        whole_number("pending_limit", pending_limit, least=1)
        async with background_nursery() as nursery:
            pipeline = SendPipeline(
                self._sender,
                nursery,
                linger=linger,
                batch_size=min(batch_size, self._sender.max_message_size),
                pending_limit=pending_limit,
            )
            opened = self._sender.client.open_pipelines
            opened.append(pipeline)
            try:
                yield pipeline
                await pipeline.flush()
            finally:
                pipeline.close()
                opened.remove(pipeline)
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
        the end of the block delivers it, unless `transaction.rollback()` decided otherwise. After
        `transaction.leave_open()` neither decides: use it where it is unknown whether the work was committed. Needs
        `open_producer(check_transaction=...)`, which is called as long as the broker has received no decision.

        The broker may already ask while the block runs, after 6 s by default: not here, but in another process of the
        group. Property CHECK_IMMUNITY_TIME_IN_SECONDS of the message gives it more time.

        A cancel inside the block decides nothing, because it is unknown how far the work got: the broker asks. A cancel
        after the block waits up to three seconds until the decision is sent. If the process dies, or the broker cannot
        be reached at the end, the broker asks too: then nothing is raised.

        Raises as `send`; TransactionNotBegunError if the message is not stored as safely as the broker's modes require;
        LocalProtocolError for a delayed message. At the end BrokerError if the broker refuses the decision: the work
        was done, and the message is not delivered.
        """
        if self._checks is None:
            raise ConfigError(
                "transactions need open_producer(check_transaction=...): the broker asks it for lost decisions"
            )
        return transaction(
            self._sender,
            self._checks,
            message,
            sharding_key=sharding_key,
            queue=queue,
            timeout=timeout,
        )

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
        RequestTimeoutError without a reply in time. After that, and after a cancel, the message may still be stored and
        handled; a late reply is dropped.
        """
        return await request(
            self._sender, message, sharding_key=sharding_key, queue=queue, timeout=timeout
        )

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
        reply, usually because the requester has gone; NotReachableError. If the requester merely stopped waiting, no
        error is reported. A cancel leaves open whether the reply was pushed.
        """
        await reply(self._sender, asked, body, properties=properties or {}, timeout=timeout)

    def delayed(self, message: Message, until: timedelta | datetime) -> Message:
        """Return a copy of `message` that consumers get after a delay, or at an aware time, never sooner.

        RocketMQ's brokers delay by levels, 1 s to 2 h, so it may arrive later: the delay is the shortest level that is
        long enough, counted from when the broker stores it. Raises LocalProtocolError beyond the longest level.
        """
        if isinstance(until, datetime):
            level = level_until(until, self.client.wall_clock.now_ms(), self._sender.delay_levels)
        else:
            level = level_for(until, self._sender.delay_levels)
        return attrs.evolve(message, delay_level=level)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of a topic go to. Raises RouteNotFoundError, NotReachableError."""
        return list(await self._sender.routes.queues(topic))


async def send_copy(producer: Producer, copy: Message) -> SendResult:
    """Send a copy of a stored message as `Producer.send`; hooks treat it as a new send of the same message."""
    sender = producer._sender
    if sender.hooks is None:
        return await producer.send(copy)
    return await observed_send(sender, copy, None, None, None, is_copy=True)
