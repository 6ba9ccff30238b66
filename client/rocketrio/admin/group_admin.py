"""Administration of consumer groups: their settings, their progress, and their members.

Invariant: a value that could not be read is None or an error, never zero.
Invariant: a reset to a time is computed for all queues before the first one is changed.
Answers to: DefaultMQAdminExt (createAndUpdateSubscriptionGroupConfig, resetOffsetByTimestamp, examineConsumeStats,
examineConsumerConnectionInfo, queryTopicConsumeByWho).
Unlike Java: settings of a group are changed one by one, and a reset by time can be shown before it is done.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict, Unpack

import attrs
import msgspec
import trio

from rocketrio.admin.admin_values import OffsetReset, QueueOffsets
from rocketrio.admin.broker_admin import BrokerAdmin
from rocketrio.admin.cluster_questions import readable_queues
from rocketrio.cluster.api import NOT_FOUND
from rocketrio.consuming.offset_store import check_offset
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.bodies.stats import ConsumerConnection, ConsumeStats, ProducerConnection
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.errors import BrokerError, ConfigError, Error, GroupNotExist, NotReachable
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, group_name_problem

_HIDDEN_GROUPS: Final = frozenset(SYSTEM_GROUPS)

logger = logging.getLogger("rocketrio.admin")


class GroupSettings(TypedDict, total=False):
    """The settings of a group that can be changed, with RocketMQ's names and meanings (SubscriptionGroupConfig)."""

    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    retry_queue_nums: int
    retry_max_times: int
    broker_id: int
    which_broker_when_consume_slowly: int
    notify_consumer_ids_changed_enable: bool


@attrs.define(eq=False)
class GroupAdmin(BrokerAdmin):
    """The part of `Admin` that concerns consumer groups."""

    # ------------------------------------------------------------------------------------- settings

    async def groups(self, *, include_system: bool = False) -> list[str]:
        """Return the names of the consumer groups that any master knows, of one namespace.

        Groups of RocketMQ's own tools are included only if requested.
        """
        names: set[str] = set()
        for addr in (await self._masters(None)).values():
            names.update(self.client.namespace.known(await self.calls.groups(addr)))
        if include_system:
            return sorted(names)
        return sorted(
            name
            for name in names
            if name not in _HIDDEN_GROUPS and not name.startswith(SYSTEM_GROUP_PREFIX)
        )

    async def group(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """Return a group's settings by broker name, for brokers that know it. Raises GroupNotExist if none does."""
        found: dict[str, SubscriptionGroupConfig] = {}
        for name, addr in (await self._masters(None)).items():
            settings = await self._settings(addr, group)
            if settings is not None:
                found[name] = msgspec.convert(
                    {**settings, "groupName": group}, SubscriptionGroupConfig
                )
        if not found:
            raise GroupNotExist(
                f"no master knows the group {group!r}",
                remedy="`rocketrio group list` shows the groups",
            )
        return found

    async def create_group(
        self, group: str, *, cluster: str | None = None, **settings: Unpack[GroupSettings]
    ) -> list[str]:
        """Create a group on every master (of one cluster), or change the given settings of it; return the broker names.

        Brokers create groups automatically with default settings, unless that is turned off. Raises ConfigError for an
        invalid name or number, RouteNotFound without such a master, BrokerError if one refuses.
        """
        problem = group_name_problem(group) or _settings_problem(settings)
        if problem is not None:
            raise ConfigError(problem)
        masters = await self._masters(cluster)
        for addr in masters.values():
            # Settings that only a newer broker knows stay as they are.
            known = await self._settings(addr, group) or {}
            config = msgspec.convert({"groupName": group, **known}, SubscriptionGroupConfig)
            changed = msgspec.to_builtins(msgspec.structs.replace(config, **settings))
            # Attributes are sent as changes, and there are none here.
            await self.calls.update_group(addr, {**known, **changed, "attributes": {}})
        return sorted(masters)

    async def _settings(self, addr: str, group: str) -> dict[str, Any] | None:
        # Brokers list groups under their long names.
        return (await self.calls.groups(addr)).get(self.client.namespace.wrapped(group))

    async def delete_group(self, group: str, *, with_offsets: bool = True) -> list[str]:
        """Remove a group and its commits from every master that knows it; return their broker names.

        Running members bring the group back with their next heartbeat: stop them first. Raises GroupNotExist,
        BrokerError.
        """
        holders = await self.group(group)
        masters = await self._masters(None)
        for name in holders:
            await self.calls.delete_group(masters[name], group, with_offsets=with_offsets)
        return sorted(holders)

    # ------------------------------------------------------------------------------------- progress

    async def offsets(self, topic: str, group: str) -> list[QueueOffsets]:
        """Return the bounds of every queue and the group's committed offsets. Raises RouteNotFound, ConfigError without
        queues.

        A number that no broker could report is None, as is the committed offset of a group without one. Brokers before
        5.0 answer 0 instead if the queue's first messages are still in memory.
        """
        return await self._bounds(await readable_queues(self.client, topic), group)

    async def reset_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Set a group's offsets queue by queue, back or forward; they replace what its members committed anywhere.

        Running members keep their position. For a queue that was set back they commit nothing more until a member takes
        it over again and starts at the new offset: stop them first, or let them `seek`. For an Apache broker a reset is
        an ordinary commit, which the next commit of a running member overwrites. Raises NotReachable or BrokerError for
        the first queue that could not be reset, ConfigError for a number that is not an offset. After a cancel any of
        the queues may be reset.
        """
        for queue, offset in offsets.items():
            check_offset(queue, offset)

            async def reset(
                broker: FindBrokerResult, queue: MessageQueue = queue, offset: int = offset
            ) -> None:
                await self.client.api.update_consumer_offset(
                    broker.addr, group, queue, offset, reset=True
                )

            await self.client.topic_route(queue.topic)
            await self.client.ask_broker(queue, reset, insist_on_master=True)

    async def reset_to_time(
        self, topic: str, group: str, when: datetime, *, dry_run: bool = False
    ) -> list[OffsetReset]:
        """Set a group to the first message of each queue stored at `when` (aware) or later; return what changed.

        With `dry_run` nothing is changed. Otherwise this works like `reset_offsets`, with the same errors; if the
        offset of a queue cannot be found, the error is raised before any queue is changed.
        """
        if when.tzinfo is None:
            raise ConfigError(f"{when} has no time zone; give an aware datetime")
        found = await self.offsets(topic, group)
        when_ms = int(when.timestamp() * 1000)
        resets = []
        for one in found:

            async def search(broker: FindBrokerResult, queue: MessageQueue = one.queue) -> int:
                return await self.client.api.search_offset(broker.addr, queue, when_ms)

            target = await self.client.ask_broker(one.queue, search, insist_on_master=True)
            resets.append(OffsetReset(one.queue, one.committed_offset, target))
        if not dry_run:
            await self.reset_offsets(group, {reset.queue: reset.target_offset for reset in resets})
        return resets

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return a group's progress, combined from all masters. Raises BrokerError if one refuses."""
        short = self.client.namespace.unwrapped
        stats = ConsumeStats()
        for addr in (await self._masters(None)).values():
            found = await self.calls.consume_stats(addr, group, topic)
            for queue, progress in found.offset_table.items():
                stats.offset_table[attrs.evolve(queue, topic=short(queue.topic))] = progress
            stats.consume_tps += found.consume_tps
        return stats

    # -------------------------------------------------------------------------------------- members

    async def groups_of(self, topic: str) -> list[str]:
        """Return the groups that consume a topic: those with members now, and those that committed offsets there.

        Brokers of 5.3 report the topic's own name in place of the groups with members.
        """
        await self.client.refresh_topic_route(topic)
        route = await self.client.topic_route(topic)
        names: set[str] = set()
        for broker in route.broker_datas:
            queue = MessageQueue(topic, broker.broker_name, 0)

            async def ask(at: FindBrokerResult) -> list[str]:
                return await self.calls.groups_of(at.addr, topic)

            names.update(await self.client.ask_broker(queue, ask))
        return sorted(map(self.client.namespace.unwrapped, names))

    async def consumer_connections(self, group: str) -> ConsumerConnection:
        """Return the members that are connected for a group, from the first master that knows any.

        Raises ConsumerNotOnline if no master knows a member, and NotReachable if one of them could not be asked.
        """
        failure: Error | None = None
        for addr in (await self._masters(None)).values():
            try:
                return self._short(await self.calls.consumer_connections(addr, group))
            except (BrokerError, NotReachable) as error:
                if not isinstance(failure, NotReachable):
                    failure = error
        assert failure is not None
        raise failure

    def _short(self, found: ConsumerConnection) -> ConsumerConnection:
        table = found.subscription_table
        found.subscription_table = {}
        for subscription in table.values():
            subscription.topic = self.client.namespace.unwrapped(subscription.topic)
            found.subscription_table[subscription.topic] = subscription
        return found

    async def producer_connections(self, group: str) -> ProducerConnection:
        """Return the clients that send for a producer group, from all masters. Raises BrokerError if none knows any."""
        failure: BrokerError | None = None
        found = ProducerConnection()
        for addr in (await self._masters(None)).values():
            try:
                answer = await self.calls.producer_connections(addr, group)
            except BrokerError as error:
                failure = error
                continue
            known = {connection.client_id for connection in found.connection_set}
            found.connection_set += [
                connection
                for connection in answer.connection_set
                if connection.client_id not in known
            ]
        if failure is not None and not found.connection_set:
            raise failure
        return found

    # --------------------------------------------------------------------------------------- queues

    async def _bounds(
        self, queues: Sequence[MessageQueue], group: str | None = None
    ) -> list[QueueOffsets]:
        found: dict[MessageQueue, QueueOffsets] = {}

        async def look(queue: MessageQueue) -> None:
            found[queue] = await self._queue_offsets(queue, group)

        async with trio.open_nursery() as nursery:
            for queue in queues:
                nursery.start_soon(look, queue)
        return [found[queue] for queue in queues]

    async def _queue_offsets(self, queue: MessageQueue, group: str | None) -> QueueOffsets:
        api = self.client.api

        async def ask_committed(broker: FindBrokerResult) -> int | None:
            assert group is not None
            offset = await api.query_consumer_offset(broker.addr, group, queue, zero_if_young=False)
            return None if offset is NOT_FOUND else offset

        async def ask_min(broker: FindBrokerResult) -> int | None:
            return await api.min_offset(broker.addr, queue)

        async def ask_max(broker: FindBrokerResult) -> int | None:
            return await api.max_offset(broker.addr, queue)

        questions = [ask_min, ask_max] + ([] if group is None else [ask_committed])
        answers: list[int | None] = [None, None, None]
        for index, question in enumerate(questions):
            try:
                answers[index] = await self.client.ask_broker(
                    queue, question, insist_on_master=question is ask_committed
                )
            except Error as error:
                logger.warning("offset unknown queue=%s error=%s", queue, error)
        return QueueOffsets(queue, *answers)


def _settings_problem(settings: GroupSettings) -> str | None:
    numbers = {name: number for name, number in settings.items() if isinstance(number, int)}
    for name, number in numbers.items():
        lowest = -1 if name == "retry_max_times" else 0
        if number < lowest:
            return f"{name}={number} is less than {lowest}"
    return None
