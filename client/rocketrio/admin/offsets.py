"""The progress of groups: the bounds of queues, what a group has committed, and its deletion.

Invariant: a value that could not be read is None or an error, never zero.
Invariant: `committed_offsets` has the offsets of every master, or raises.
Invariant: a deletion leaves the settings of the group as they were.
Answers to: DefaultMQAdminExt (examineConsumeStats), CloneGroupOffsetCommand in spirit, DeleteSubscriptionGroupCommand
with `-r true`.
Unlike Java: offsets can be deleted without the group.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import trio

from rocketrio.admin.cluster_questions import in_parallel, readable_queues
from rocketrio.admin.groups import GroupAdmin
from rocketrio.cluster.api import NOT_FOUND
from rocketrio.counts import counted
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.bodies.stats import ConsumeStats
from rocketrio_protocol.errors import (
    AccessRefusedError,
    ConfigError,
    ConsumerNotOnlineError,
    Error,
    GroupNotExistError,
)
from rocketrio_protocol.lag import ahead_of, lag_of
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.tasks import ungrouped

R = TypeVar("R")

logger = logging.getLogger("rocketrio.admin")


@attrs.frozen
class QueueOffsets:
    """The bounds of a queue, and a group's progress in it."""

    queue: MessageQueue
    min_offset: int | None
    max_offset: int | None
    committed_offset: int | None
    stored_offset: int | None = None
    """Where the queue ends in the log, which a rocketrio broker may show later; None if the broker does not say."""

    @property
    def lag(self) -> int | None:
        """The number of messages that are stored and not committed; None unless both ends are known and in order."""
        return None if self.ahead else lag_of(self.committed_offset, self.reachable_end)

    @property
    def ahead(self) -> int:
        """The number of messages that the committed offset lies beyond the end; 0 if it does not, or is unknown.

        The topic was made again, or the log became shorter: until it is reset, the group skips messages or reads them
        again. After a change of masters a group may be beyond `max_offset` for a moment, but not beyond the log.
        """
        end = self.max_offset if self.stored_offset is None else self.stored_offset
        return ahead_of(self.committed_offset, end)

    @property
    def reachable_end(self) -> int | None:
        """The last offset at which the group may stand: the end, or beyond what readers see where it is in the log."""
        if self.max_offset is None or self.committed_offset is None or self.ahead:
            return self.max_offset
        return max(self.max_offset, self.committed_offset)


@attrs.frozen(order=True)
class CommittedOffset:
    """A group's progress in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


class OffsetAdmin(GroupAdmin):
    """The methods of `Admin` about the progress of groups."""

    __slots__ = ()

    async def offsets(self, topic: str, group: str) -> list[QueueOffsets]:
        """Return the bounds of every queue and the group's committed offsets.

        A number that no broker could report is None, as is the committed offset of a group without one. Brokers before
        5.0 answer 0 instead if the queue's first messages are still in memory. Raises RouteNotFoundError, and
        ConfigError without queues.
        """
        return await self._bounds(await readable_queues(self.client, topic), group)

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return a group's progress, combined from all masters. Raises BrokerError if one refuses."""
        short = self.client.namespace.unwrapped
        stats = ConsumeStats()
        answers = await in_parallel(
            list((await self.masters()).values()),
            lambda addr: self.calls.consume_stats(addr, group, topic),
        )
        for found in answers:
            for queue, progress in found.offset_table.items():
                stats.offset_table[attrs.evolve(queue, topic=short(queue.topic))] = progress
            stats.consume_tps += found.consume_tps
        return stats

    async def topics_of_group(self, group: str) -> list[str]:
        """Return the topics in which a group has committed offsets, with its retry topic."""
        space = self.client.namespace
        found = await in_parallel(list((await self.masters()).values()), self.calls.all_offsets)
        wrapped = space.wrapped(group)
        return sorted(
            {
                space.unwrapped(topic)
                for table in found
                for owner, topic in table
                if owner == wrapped
            }
        )

    async def committed_offsets(self, group: str) -> list[CommittedOffset]:
        """Return all committed offsets of a group, also those in its retry topic, in the order of queues.

        Raises GroupNotExistError if no master knows the group, and the error of the first master that does not answer.
        """
        space = self.client.namespace
        found: list[CommittedOffset] = []
        is_known = False
        for name, addr in (await self.masters()).items():
            table = await self.calls.all_offsets(addr)
            is_known = is_known or space.wrapped(group) in await self.calls.groups(addr)
            found += offsets_in(table, space.wrapped(group), name)
        if not found and not is_known:
            raise GroupNotExistError(
                f"no master knows the group {group!r}",
                remedy="`rocketrio group list` shows the groups",
            )
        return sorted(attrs.evolve(one, topic=space.unwrapped(one.topic)) for one in found)

    async def delete_offsets(self, group: str, *, dry_run: bool = False) -> list[CommittedOffset]:
        """Delete all committed offsets of a group without members; return what was committed. With `dry_run` keep them.

        Members that start later begin where new groups do. Each master deletes the group with its offsets, and gets its
        settings back at once: a cancel waits for that. Raises ConfigError if the group has members, GroupNotExistError,
        and the error of the first master that refuses.
        """
        found = await self.committed_offsets(group)
        try:
            members = (await self.consumer_connections(group)).connection_set
        except ConsumerNotOnlineError:
            members = []
        if members:
            raise ConfigError(
                f"{group} has {counted(len(members), 'member')}, which would commit again",
                remedy="Stop them first; `rocketrio group members` lists them",
            )
        if dry_run:
            return found
        long_name = self.client.namespace.wrapped(group)
        for addr in (await self.masters()).values():
            settings = (await self.calls.groups(addr)).get(long_name)
            if settings is None:
                continue
            with trio.CancelScope(shield=True):
                await self.calls.delete_group(addr, group, with_offsets=True)
                await self.calls.update_group(addr, _new_again(settings, group))
        return found

    async def _bounds(
        self, queues: Sequence[MessageQueue], group: str | None = None
    ) -> list[QueueOffsets]:
        found = await of_each(queues, lambda queue: self._queue_offsets(queue, group))
        return [found[queue] for queue in queues]

    async def _queue_offsets(self, queue: MessageQueue, group: str | None) -> QueueOffsets:
        api = self.client.api

        async def ask_min(broker: FindBrokerResult) -> int:
            return await api.min_offset(broker.addr, queue)

        stored: int | None = None

        async def ask_max(broker: FindBrokerResult) -> int:
            nonlocal stored
            end = await api.queue_end(broker.addr, queue)
            stored = end.stored_offset
            return end.max_offset

        async def ask_committed() -> int | None:
            return None if group is None else await self._committed_offset(queue, group)

        questions: list[Callable[[], Awaitable[int | None]]] = [
            lambda: self._number(queue, ask_min),
            lambda: self._number(queue, ask_max),
            ask_committed,
        ]
        first, end, committed = await in_parallel(questions, lambda ask: ask())
        # Both numbers were asked for at once, and may have grown between.
        if ahead_of(committed, stored):
            end = await self._number(queue, ask_max)
        return QueueOffsets(queue, first, end, committed, stored)

    async def _committed_offset(self, queue: MessageQueue, group: str) -> int | None:
        async def ask(broker: FindBrokerResult) -> int | None:
            offset = await self.client.api.query_consumer_offset(
                broker.addr, group, queue, zero_if_young=False
            )
            return None if offset is NOT_FOUND else offset

        return await self._number(queue, ask, insist_on_master=True)

    async def _number(
        self,
        queue: MessageQueue,
        ask: Callable[[FindBrokerResult], Awaitable[int | None]],
        *,
        insist_on_master: bool = False,
    ) -> int | None:
        """Return the number that a broker reports, or None if none answers. Raises AccessRefusedError."""
        try:
            return await self.client.ask_broker(queue, ask, insist_on_master=insist_on_master)
        except AccessRefusedError:
            raise
        except Error as error:
            logger.warning("offset unknown queue=%s error=%s", queue, error)
            return None


async def of_each(
    queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[R]]
) -> dict[MessageQueue, R]:
    """Ask about all queues at once, so that silent brokers cost the time of one question."""
    found: dict[MessageQueue, R] = {}

    async def one(queue: MessageQueue) -> None:
        found[queue] = await ask(queue)

    wanted = list(queues)
    with ungrouped():
        async with trio.open_nursery() as nursery:
            for queue in wanted:
                nursery.start_soon(one, queue)
    return {queue: found[queue] for queue in wanted}


def offsets_in(
    table: Mapping[tuple[str, str], Mapping[int, int]], group: str, broker_name: str
) -> list[CommittedOffset]:
    """Return a group's offsets from a broker's table by group and topic, then by queue."""
    return [
        CommittedOffset(topic, broker_name, queue_id, offset)
        for (owner, topic), offsets in table.items()
        if owner == group
        for queue_id, offset in offsets.items()
    ]


def _new_again(settings: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Return settings as a broker takes them for a new group: attributes are sent as changes."""
    attributes = {f"+{name}": value for name, value in (settings.get("attributes") or {}).items()}
    return {**settings, "groupName": group, "attributes": attributes}
