"""Reads the dead letters of a group, which it could not handle, and sends them again.

Sending a message again copies it; the dead-letter topic keeps the original until retention deletes it.

Answers to: DLQMessageController of the dashboard; RocketMQ reference, section 2.8.
Unlike Java: by default only the group gets the message again, by its retry topic, and not every reader of the topic.
"""

import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

import attrs
import trio

from rocketrio.admin.browse import pages_of
from rocketrio.admin.cluster_questions import readable_queues, registered_brokers
from rocketrio.admin.resend_journal import Journal, key_of
from rocketrio.client import ClientInstance
from rocketrio.consuming.hand_out import check_batch
from rocketrio.consuming.redelivered import redelivered
from rocketrio.limits import VIEW_MAX_MESSAGES
from rocketrio.producing.produce import open_producer
from rocketrio.producing.producer import Producer, send_copy
from rocketrio.producing.send_result import SendResult
from rocketrio.producing.sender import SEND_RETRIES
from rocketrio_protocol.errors import (
    BrokerError,
    ConfigError,
    Error,
    LocalProtocolError,
    NotReachableError,
    RouteNotFoundError,
)
from rocketrio_protocol.lag import lag_of
from rocketrio_protocol.message import Message, MessageAgain, MessageExt, MessageQueue
from rocketrio_protocol.names import dead_letter_topic, retry_topic
from rocketrio_protocol.record.properties import (
    FIELD_PROPERTIES,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
)
from rocketrio_protocol.times import nearest_time

ResendTo: TypeAlias = Literal["group", "topic"]

Chooses = Callable[[MessageExt], bool]

OF_THE_LAST_TIME: Final = frozenset(
    {
        *FIELD_PROPERTIES,
        PROPERTY_REAL_TOPIC,
        PROPERTY_REAL_QUEUE_ID,
        PROPERTY_TRANSACTION_PREPARED,
    }
)
"""Properties that a message sent again does not take over: it gets new ones, or none."""

LAST_HOUR: Final = timedelta(hours=1)


@attrs.frozen
class DeadLetterCount:
    """How many dead letters a group has."""

    group: str
    messages: int | None
    """None if it is unknown, as the others then."""
    oldest: datetime | None
    """When the oldest and the newest that are kept were stored; None also without any."""
    newest: datetime | None
    last_hour: int | None
    """How many came in the last hour. Brokers before 5.0 may count one more, see `Admin.reset_to_time`."""
    problem: str | None = None
    """Why it is unknown."""


@attrs.frozen
class Resent:
    """The result for one dead letter."""

    message: MessageExt
    outcome: str
    """`sent`; `would be sent` in a dry run; `sent before` or `doubtful` by the journal; `unreadable`, see `body_error`
    of the message: it is not sent."""


@attrs.frozen
class DeadLetters:
    """The dead letters of one group; returned by `Admin.dead_letters`."""

    client: ClientInstance
    group: str

    @property
    def topic(self) -> str:
        """The topic that holds them."""
        return dead_letter_topic(self.group)

    async def messages(
        self, *, since: datetime | None = None, max_messages: int = VIEW_MAX_MESSAGES
    ) -> list[MessageExt]:
        """Return the oldest dead letters, or the oldest that were stored at `since` or later; none is removed.

        The `topic` of each is the one to which it was first sent. The list is empty for a group without dead letters.
        Raises NotReachableError, BrokerError, RouteNotFoundError while no broker is registered, and ConfigError if the
        topic may not be read.
        """
        check_batch(max_messages)
        found: list[MessageExt] = []
        async with aclosing(self.pages(since=since)) as pages:
            async for page in pages:
                found += page
                if len(found) >= max_messages:
                    break
        return found[:max_messages]

    async def pages(self, *, since: datetime | None = None) -> AsyncGenerator[list[MessageExt]]:
        """Yield all dead letters that exist at the start, list by list; otherwise like `messages`."""
        ends = {queue: await self.client.max_offset(queue) for queue in await self._queues()}
        for queue, end in ends.items():
            start = await self._start(queue, since)
            async with aclosing(pages_of(self.client, queue, start, end)) as pages:
                async for page in pages:
                    yield [redelivered(message) for message in page]

    async def count(self) -> int:
        """Return how many dead letters there are; raises what `messages` raises."""
        counts = [
            lag_of(await self.client.min_offset(queue), await self.client.max_offset(queue))
            for queue in await self._queues()
        ]
        return sum(count or 0 for count in counts)

    async def counted(self) -> DeadLetterCount:
        """Return how many there are, since when, and how many are new; raises nothing that a broker is to blame for."""
        hour_ago = nearest_time(self.client.wall_clock.now_ms()) - LAST_HOUR
        messages = last_hour = 0
        times: list[datetime] = []
        try:
            for queue in await self._queues():
                first = await self.client.min_offset(queue)
                end = await self.client.max_offset(queue)
                if first >= end:
                    continue
                messages += end - first
                # An offset beyond the end is of a message that came since then: none of these is so new.
                last_hour += lag_of(await self.client.offset_at(queue, hour_ago), end) or 0
                for start in {first, end - 1}:
                    async with aclosing(pages_of(self.client, queue, start, start + 1)) as pages:
                        times += [message.store_time async for page in pages for message in page]
        except (NotReachableError, BrokerError, RouteNotFoundError, ConfigError) as error:
            return DeadLetterCount(self.group, None, None, None, None, error.what)
        return DeadLetterCount(
            self.group, messages, min(times, default=None), max(times, default=None), last_hour
        )

    async def ever(self) -> int:
        """Return how many dead letters there have ever been, with those that retention has deleted."""
        return sum([await self.client.max_offset(queue) for queue in await self._queues()])

    async def _queues(self) -> list[MessageQueue]:
        try:
            return await readable_queues(self.client, self.topic)
        except RouteNotFoundError:
            await registered_brokers(self.client)  # Without brokers the answer is unknown.
            return []

    async def _start(self, queue: MessageQueue, since: datetime | None) -> int:
        if since is None:
            return await self.client.min_offset(queue)
        return await self.client.offset_at(queue, since)

    async def resend(
        self, messages: Iterable[MessageExt], *, to: ResendTo = "group"
    ) -> list[SendResult]:
        """Send dead letters again, one after the other: to the group alone, or to the topic from which they came.

        Each has no retries yet, and keeps its id, keys, tags and properties. Raises the error of the first that could
        not be sent; those before it are sent. A message that is sent twice is stored twice.
        """
        results = []
        async with open_producer(client=self.client) as producer:
            for message in messages:
                results.append(await send_copy(producer, self.copy(message, to)))
        return results

    def copy(self, message: MessageExt, to: ResendTo) -> Message:
        """Return a dead letter as it is sent again."""
        properties = {
            name: value
            for name, value in message.properties.items()
            if name not in OF_THE_LAST_TIME
        }
        topic = message.topic
        if to == "group":
            properties.setdefault(PROPERTY_RETRY_TOPIC, topic)
            topic = retry_topic(self.group)
        else:
            properties.pop(PROPERTY_RETRY_TOPIC, None)
            properties.pop(PROPERTY_ORIGIN_MESSAGE_ID, None)
        return MessageAgain(
            topic,
            message.body,
            keys=message.keys,
            tags=message.tags,
            properties=properties,
            flag=message.flag,
        )

    async def resend_all(
        self,
        messages: Iterable[MessageExt] | None = None,
        *,
        report: Callable[[Resent], None],
        to: ResendTo = "group",
        since: datetime | None = None,
        where: Chooses | None = None,
        rate: float | None = None,
        journal: Journal | None = None,
        dry_run: bool = False,
    ) -> None:
        """Send dead letters again, all of them or `messages`, one after the other; `report` gets what became of each.

        `since` and `where` choose among them, `rate` limits the messages a second. With a `journal` those that it names
        are omitted, and so are those whose body cannot be read. Raises the error of the first that could not be sent;
        it is doubtful then if no broker answered. After a cancel the message under way is finished first.
        """
        if rate is not None and not rate > 0:
            raise ConfigError(f"rate={rate} is not a number of messages a second")
        if journal is not None:
            journal.begin(json.dumps({"resend": self.group, "to": to}), dry_run=dry_run)
        next_at = trio.current_time()
        # A second try after a timeout could store the message twice.
        retries = SEND_RETRIES if journal is None else 0
        async with (
            open_producer(client=self.client, retries=retries) as producer,
            aclosing(self._chosen(messages, since, where)) as chosen,
        ):
            async for message in chosen:
                known = None if journal is None else _known(journal, key_of(message))
                if known is None and message.body_error is not None:
                    known = "unreadable"
                if known is not None or dry_run:
                    report(Resent(message, known or "would be sent"))
                    continue
                if rate is not None:
                    await trio.sleep_until(next_at)
                    next_at = max(next_at, trio.current_time() - 1) + 1 / rate
                await trio.lowlevel.checkpoint()
                # A cancel in the middle would leave the message doubtful; a send ends within its timeout.
                with trio.CancelScope(shield=journal is not None):
                    await self._send(producer, message, to, journal)
                report(Resent(message, "sent"))

    async def _send(
        self,
        producer: Producer,
        message: MessageExt,
        to: ResendTo,
        journal: Journal | None,
    ) -> None:
        if journal is None:
            await send_copy(producer, self.copy(message, to))
            return
        journal.write("sending", key_of(message))
        try:
            await send_copy(producer, self.copy(message, to))
        except (BrokerError, LocalProtocolError):
            journal.write("refused", key_of(message))
            raise
        journal.write("sent", key_of(message))

    async def _chosen(
        self,
        messages: Iterable[MessageExt] | None,
        since: datetime | None,
        where: Chooses | None,
    ) -> AsyncGenerator[MessageExt]:
        if messages is not None:
            for message in messages:
                if where is None or where(message):
                    yield message
            return
        async with aclosing(self.pages(since=since)) as pages:
            async for page in pages:
                for message in page:
                    if where is None or where(message):
                        yield message


def _known(journal: Journal, key: str) -> str | None:
    if key in journal.state.finished:
        return "sent before"
    return "doubtful" if key in journal.state.doubtful else None


def chooses(where: str) -> Chooses:
    """Return a function that checks messages by an SQL92 expression over their properties. Raises ConfigError."""
    # The parser takes as long to import as all else that a command needs.
    from rocketrio_protocol.filter.sql92 import compile_sql92

    try:
        matches = compile_sql92(where)
    except Error as error:
        raise ConfigError(f"{where!r} is not an SQL92 expression: {error.what}") from error
    return lambda message: matches(message.stored_properties)
