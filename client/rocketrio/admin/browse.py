"""Reads the messages of a topic for people: without a group, and without committing anything.

A page is what one pull returned. The messages of several queues have no common order, so `first` and `last` put them in
the order of storing.

Answers to: PrintMessageSubCommand and PrintMessageByQueueCommand (`mqadmin printMsg`, `printMsgByQueue`).
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import Final, TypeAlias

import attrs
import trio

from rocketrio.admin.cluster_questions import readable_queues
from rocketrio.client import ClientInstance
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.pull_result import PullStatus
from rocketrio.queue_positions import FIRST, LAST, AtOffset, AtTime, FromFirst, FromLast, Place
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.times import nearest_time

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group that every broker has for tools that only read."""
PAGE_MESSAGES: Final = 1000
"""The messages that one pull asks for."""
Where: TypeAlias = Place | datetime | None
FOLLOW_PAGES: Final = 1
"""The pages that wait for their reader in the channel of `follow`."""


async def pages_of(
    client: ClientInstance, queue: MessageQueue, start: int, end: int
) -> AsyncGenerator[list[MessageExt]]:
    """Yield the messages of a queue from one offset to another; those that retention has deleted are left out."""
    pulls = PullAPIWrapper(client, TOOLS_GROUP)
    while start < end:
        wanted = min(PAGE_MESSAGES, end - start)
        result = await pulls.pull_kernel(queue, start, max_messages=wanted, suspend_timeout=0)
        page = [message for message in result.messages() if message.queue_offset < end]
        if page:
            yield page
        if result.status is PullStatus.NO_NEW_MSG or result.next_begin_offset <= start:
            return
        start = result.next_begin_offset


@attrs.frozen
class Found:
    """Messages in the order of storing, and how many there are in all."""

    messages: Sequence[MessageExt]
    in_all: int
    """The offsets of the range; deleted messages within it count too."""


@attrs.frozen
class TopicMessages:
    """The messages of one topic; returned by `Admin.messages`."""

    client: ClientInstance
    topic: str
    broker_name: str | None = None
    queue_id: int | None = None
    """Only those of this broker and this queue, if they are given.

    A start or end is a place, see queue_positions.py, or a time. Each method raises RouteNotFoundError,
    NotReachableError, and ConfigError for a queue that the topic lacks.
    """

    async def first(self, count: int, *, since: Where = None, until: Where = None) -> Found:
        """Return the oldest messages, of those at `since` or later and before `until`."""
        return await self._found(count, since, until, is_last=False)

    async def last(self, count: int, *, since: Where = None, until: Where = None) -> Found:
        """Return the newest messages, of those at `since` or later and before `until`."""
        return await self._found(count, since, until, is_last=True)

    async def _found(self, count: int, since: Where, until: Where, *, is_last: bool) -> Found:
        found: list[MessageExt] = []
        in_all = 0
        for queue in await self._queues():
            start = await self.offset_of(queue, FIRST if since is None else since)
            end = await self.offset_of(queue, LAST if until is None else until)
            in_all += max(0, end - start)  # A range that ends before it begins is empty.
            if is_last:
                start = max(start, end - count)
            else:
                end = min(end, start + count)
            async with aclosing(pages_of(self.client, queue, start, end)) as pages:
                async for page in pages:
                    found += page
        found.sort(key=lambda message: (message.store_time_ms, message.physical_offset))
        return Found(found[-count:] if is_last else found[:count], in_all)

    async def at(self, offset: int, count: int) -> list[MessageExt]:
        """Return up to `count` messages from an offset on, of the queue that was named."""
        (queue,) = await self._queues()
        found: list[MessageExt] = []
        end = min(offset + count, await self.client.max_offset(queue))
        async with aclosing(pages_of(self.client, queue, offset, end)) as pages:
            async for page in pages:
                found += page
        return found

    @asynccontextmanager
    async def follow(
        self, *, since: Where = None
    ) -> AsyncGenerator[trio.MemoryReceiveChannel[list[MessageExt]]]:
        """Open a channel of the messages that are stored from now on, or of those since `since` first.

        Each list is of one queue, in its order. A cancel loses nothing that was not received: nothing is committed.
        """
        starts = {
            queue: await self.offset_of(queue, LAST if since is None else since)
            for queue in await self._queues()
        }
        sender, pages = trio.open_memory_channel[list[MessageExt]](FOLLOW_PAGES)
        pulls = PullAPIWrapper(self.client, TOOLS_GROUP)

        async def read(queue: MessageQueue, offset: int) -> None:
            while True:
                result = await pulls.pull_kernel(queue, offset, max_messages=PAGE_MESSAGES)
                page = list(result.messages())
                if page:
                    await sender.send(page)
                offset = result.next_begin_offset

        async with background_nursery() as nursery:
            for queue, offset in starts.items():
                nursery.start_soon(read, queue, offset)
            yield pages

    async def _queues(self) -> list[MessageQueue]:
        found = [
            queue
            for queue in await readable_queues(self.client, self.topic)
            if self.broker_name in (None, queue.broker_name)
            and self.queue_id in (None, queue.queue_id)
        ]
        if not found:
            where = f"{self.broker_name or 'any broker'}, queue {self.queue_id}"
            raise ConfigError(
                f"{self.topic} has no such queue: {where}",
                remedy=f"`rocketrio topic show {self.topic}` lists its queues",
            )
        return found

    async def offset_of(self, queue: MessageQueue, where: Place | datetime) -> int:
        """Return the offset of a place, within the bounds of the queue."""
        match where:
            case datetime():
                return await self.client.offset_at(queue, where)
            case AtTime(time_ms):
                return await self.client.offset_at(queue, nearest_time(time_ms))
        first, end = await self.client.min_offset(queue), await self.client.max_offset(queue)
        match where:
            case FromFirst(messages):
                offset = first + messages
            case FromLast(messages):
                offset = end - messages
            case AtOffset(offset):
                pass
        return max(first, min(offset, end))
