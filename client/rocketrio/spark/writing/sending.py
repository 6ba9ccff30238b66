"""Sends the rows of one task in the loop: several backlogs have requests under way, each until a broker has stored it.

    Spark's thread                       the loop
    reads a record batch                 asks for the next one while less than two windows wait
    encodes it by columns, passes it     sends, receives acknowledgements, sends again
    ... the end                          waits until all are acknowledged, then returns the totals

Invariant: the task ends when every request was acknowledged; the first request that cannot be stored ends it at once.
Answers to: KafkaStreamDataWriter, which waits for all of its acknowledgements before it commits.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import trio

from rocketrio.client import ClientInstance
from rocketrio.producing.publish_route import PublishRoutes
from rocketrio.producing.send_result import RETRY_CODES, SendResult, SendStatus
from rocketrio.producing.sender import MessageSender
from rocketrio.spark.access import ClusterAccess
from rocketrio.spark.errors import (
    AccessDeniedError,
    BrokerUnreachableError,
    NotStoredError,
    RowError,
    SparkSourceError,
    TopicNotFoundError,
)
from rocketrio.spark.runtime import Handover
from rocketrio.spark.writing.backlog import Backlog, QueueBacklog, Request, counted
from rocketrio.spark.writing.options import WriteOptions
from rocketrio.spark.writing.rows import Rows
from rocketrio.spark.writing.written import Written
from rocketrio_protocol.errors import (
    AccessRefusedError,
    Error,
    MessageIllegalError,
    NotReachableError,
    RouteNotFoundError,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.record.message_id import UniqueIdGenerator

RETRY_PAUSE: Final = 0.2
"""Seconds before a request is sent again, doubled each time, as for reads."""
MAX_RETRY_PAUSE: Final = 5.0
_WINDOWS: Final = 2
"""The number of windows of `maxInFlight` batches that may wait here, so that the next request is always ready."""

FindClient: TypeAlias = Callable[[Sequence[str], ClusterAccess], Awaitable[ClientInstance]]
"""Returns the client of some name servers, like ProcessRuntime.client."""

logger = logging.getLogger("rocketrio.spark.write")


class Wanted:
    """The loop's request for a record batch: what Spark's thread needs to encode one, and where to pass it."""

    def __init__(self, sender: "Sender", unique_ids: UniqueIdGenerator) -> None:
        self.unique_ids = unique_ids
        self._sender = sender
        self._token = trio.lowlevel.current_trio_token()

    def give(self, encoded: Sequence[Rows]) -> None:
        """Pass rows to the loop; call this in Spark's thread."""
        self._token.run_sync_soon(self._sender.given, encoded)

    def end(self) -> None:
        """Report that there are no more rows; call this in Spark's thread."""
        self._token.run_sync_soon(self._sender.given, None)


class Sender:
    """Sends the rows of one task; `run` is a producer for `ProcessRuntime.blocks`."""

    def __init__(self, client: FindClient, options: WriteOptions) -> None:
        self._client = client
        self._options = options
        self.written = Written()
        """What was acknowledged so far; complete when `run` has returned."""
        self._backlog = Backlog(options.send_batch_size, options.max_in_flight)
        self._room = options.send_batch_size * options.max_in_flight * _WINDOWS
        self._queues: dict[str, list[MessageQueue]] = {}
        self._in_flight = 0
        self._news = trio.Event()
        self._given: list[Rows] = []
        self._is_waiting = False
        self._has_ended = False
        self._messages: MessageSender

    def given(self, encoded: Sequence[Rows] | None) -> None:
        """Take the rows that Spark's thread passed, or None for the end; runs in the loop."""
        self._is_waiting = False
        if encoded is None:
            self._has_ended = True
        else:
            self._given += encoded
        self._news.set()

    async def run(self, handover: Handover[Wanted]) -> None:
        """Ask for rows and send them until the end was passed and all are acknowledged. Raises SparkSourceError."""
        client = await self._client(self._options.name_servers, self._options.access)
        self._messages = _message_sender(client, self._options)
        wanted = Wanted(self, _unique_ids(client))
        async with trio.open_nursery() as nursery:
            while True:
                if self._may_want_more:
                    self._is_waiting = True
                    await handover.put(wanted)
                rows, self._given = self._given, []
                for each in rows:
                    await self._find_queues(each.topics)
                    await self._add(each, client)
                self._start_sending(nursery)
                if self._has_ended and not self._in_flight and not self._given:
                    return
                if not self._given and not self._may_want_more:
                    self._news = trio.Event()
                    await self._news.wait()

    @property
    def _may_want_more(self) -> bool:
        is_room = self._backlog.waiting_size < self._room
        return is_room and not self._is_waiting and not self._has_ended

    def _start_sending(self, nursery: trio.Nursery) -> None:
        while self._in_flight < self._options.max_in_flight:
            found = self._backlog.next_request()
            if found is None:
                return
            self._in_flight += 1
            nursery.start_soon(self._send, *found)

    async def _send(self, backlog: QueueBacklog, request: Request) -> None:
        result = await self._stored(backlog, request)
        self.written.add(result, request.count, request.size)
        self._in_flight -= 1
        self._backlog.answered(backlog)
        self._news.set()

    # ------------------------------------------------------------------------------ one request

    async def _stored(self, backlog: QueueBacklog, request: Request) -> SendResult:
        """Send the request, repeatedly if necessary; return where it is stored. Raises SparkSourceError."""
        options, messages = self._options, self._messages
        last_broker: str | None = None
        attempt = 0
        while True:
            failure: Error | None = None
            try:
                queue = backlog.queue or await messages.routes.next_queue(
                    backlog.topic,
                    last_broker=last_broker,
                    until=trio.current_time() + options.send_timeout,
                )
                last_broker = queue.broker_name
                result = await messages.send_to(queue, request.outgoing, options.send_timeout)
            except Error as error:
                failure = error
                if attempt >= options.send_retries or not _may_pass(error):
                    raise self._not_stored(backlog, request, error, attempt) from error
            else:
                if result.status is SendStatus.SEND_OK:
                    return result
                if attempt >= options.send_retries:
                    return self._unsafe(backlog, request, result)
            attempt += 1
            self.written.retries += 1
            logger.info(
                "sent again topic=%s broker=%s rows=%d attempt=%d error=%s",
                backlog.topic, last_broker, request.count, attempt, failure or result.status.value,
            )  # fmt: skip
            await trio.sleep(_pause(attempt))

    def _unsafe(self, backlog: QueueBacklog, request: Request, result: SendResult) -> SendResult:
        """Count messages that only a master has after all attempts. Raises NotStoredError if that is not enough."""
        if self._options.require_safe_store:
            raise NotStoredError(
                f"{request.named()} stored in {result.queue}, but not safely: the broker says"
                f" {result.status.value}{self._sent_before()}",
                remedy="See its disk and slaves; or set requireSafeStore=false to take that for written",
            )
        self.written.unsafe_rows += request.count
        return result

    def _not_stored(
        self, backlog: QueueBacklog, request: Request, error: Error, attempts: int
    ) -> SparkSourceError:
        where = f" for {backlog.queue or f'topic {backlog.topic}'}"
        text = (
            f"{request.named(where)} not stored after {counted(attempts + 1, 'attempt')}:"
            f" {error}{self._sent_before()}"
        )
        if isinstance(error, NotReachableError | RouteNotFoundError):
            return BrokerUnreachableError(text)
        if isinstance(error, AccessRefusedError):
            return AccessDeniedError(text)
        if isinstance(error, MessageIllegalError) and request.count > 1:
            return NotStoredError(
                text, remedy="Or lower sendBatchBytes, where the broker takes less at once"
            )
        return NotStoredError(text)

    def _sent_before(self) -> str:
        if not self.written.rows:
            return ""
        return (
            f". Before that, {counted(self.written.rows, 'row')} of this task were stored, and stay"
        )

    # ----------------------------------------------------------------------------------- routes

    async def _add(self, rows: Rows, client: ClientInstance) -> None:
        """Add rows to the backlog. Raises RowError if a row names a queue that fresh routes do not have either."""
        try:
            self._backlog.add(rows, self._queues)
        except RowError:
            before = {topic: self._queues[topic] for topic in rows.topics}
            await self._find_queues_again(rows.topics, client)
            if all(self._queues[topic] == queues for topic, queues in before.items()):
                raise
            self._backlog.add(rows, self._queues)

    async def _find_queues_again(self, topics: Sequence[str], client: ClientInstance) -> None:
        """Replace the queues of topics by those of fresh routes: a known route may be half a minute old."""
        for topic in topics:
            try:
                await client.refresh_topic_route(topic)
            except Error as error:
                logger.info("route not refreshed topic=%s error=%s", topic, error)
            else:
                del self._queues[topic]
        await self._find_queues(topics)

    async def _find_queues(self, topics: Sequence[str]) -> None:
        """Find the queues over which each topic's keys are spread; they stay the same while no row names others."""
        for topic in topics:
            attempt = 0
            while topic not in self._queues:
                until = trio.current_time() + self._options.send_timeout
                try:
                    queues = await self._messages.routes.keyed_queues(topic, until=until)
                except Error as error:
                    is_missing = isinstance(error, RouteNotFoundError)
                    if is_missing and not self._options.auto_create_topic:
                        raise TopicNotFoundError(
                            f"topic {topic} cannot be written: {error}",
                            remedy="Create it, or leave autoCreateTopic=true",
                        ) from error
                    if isinstance(error, AccessRefusedError):
                        raise AccessDeniedError.because(
                            error, f"topic {topic} cannot be written"
                        ) from error
                    if attempt >= self._options.send_retries or not _may_pass(error):
                        raise BrokerUnreachableError.because(
                            error, f"topic {topic} cannot be written"
                        ) from error
                    attempt += 1
                    await trio.sleep(_pause(attempt))
                else:
                    self._queues[topic] = sorted(queues)


def _pause(attempt: int) -> float:
    return float(min(RETRY_PAUSE * 2 ** (attempt - 1), MAX_RETRY_PAUSE))


def _may_pass(error: Error) -> bool:
    """Return True if the same request may succeed a little later, or at another broker."""
    return not isinstance(error, AccessRefusedError) and (
        error.retryable or isinstance(error, RouteNotFoundError) or error.code in RETRY_CODES
    )


def _message_sender(client: ClientInstance, options: WriteOptions) -> MessageSender:
    # Tasks share the client: the group stays registered while it is open, and no task unregisters it.
    client.heartbeat.producers.setdefault(options.producer_group, 1)
    return MessageSender(
        client,
        options.producer_group,
        PublishRoutes(client, options.auto_create_topic),
        timeout=options.send_timeout,
        retries=0,
        max_message_size=options.max_message_size,
        compress_over=options.compress_over,
    )


def _unique_ids(client: ClientInstance) -> UniqueIdGenerator:
    """Return an id generator for Spark's thread, which must not share the client's generator with the loop."""
    return UniqueIdGenerator(
        ip=client.client_id.partition("@")[0],  # as open_client makes it
        process_id=os.getpid(),
        wall_clock_ms=client.wall_clock.now_ms,
        instance_hash=client.rng.getrandbits(32),
    )
