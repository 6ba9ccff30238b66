"""Administration of a cluster: topics, messages, groups, their progress and resets, and brokers.

Invariant: a value that could not be read is None or an error, never zero.
Invariant: a change is complete when every broker concerned has confirmed it; an error names the first that did not.
Invariant: a reset is computed for all queues before the first one is changed; a plan that does not hold any more
changes nothing, and a reset that was not seen at its target is reported as such, not as done.
Answers to: DefaultMQAdminExt, ResetOffsetByTimeCommand, SkipAccumulationSubCommand.
Unlike Java: statistics come from a slave while the master is away, which shows only in that they are there at all.
Unlike Java: settings of a group are changed one by one. A reset by a plan is read back, because Apache's members may
commit their old offsets after it.
Unlike Java: the HA status covers the whole cluster, and a request changes the role of a rocketrio broker.
"""

import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Final, TypeVar, Unpack

import attrs
import msgspec
import trio

from rocketrio.admin.access_admin import AccessAdmin
from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.admin_values import (
    BrokerDescription,
    HandOver,
    OffsetReset,
    QueueOffsets,
    TopicDescription,
)
from rocketrio.admin.browse import TopicMessages
from rocketrio.admin.cluster_questions import in_parallel, readable_queues, registered_brokers
from rocketrio.admin.cluster_status import (
    UNKNOWN_STATES,
    BrokerAnswers,
    BrokerStatus,
    clock_ahead,
    cluster_status,
)
from rocketrio.admin.dead_letters import DeadLetters
from rocketrio.admin.diagnosis import (
    Diagnosis,
    GroupCheck,
    Health,
    diagnosis_of,
    group_findings,
    health_of,
)
from rocketrio.admin.diagnosis.snapshot import Snapshot, ask_twice, completed
from rocketrio.admin.drain import (
    CHECK_EVERY,
    Held,
    WritePermission,
    ask_held,
    master_of,
    set_writable,
    unread_at,
    wait_quiet,
)
from rocketrio.admin.events import EventFeed
from rocketrio.admin.groups import GroupAdmin
from rocketrio.admin.name_servers import NameServerAdmin
from rocketrio.admin.reset_plan import (
    PlanChangedError,
    QueueNow,
    QueueReset,
    ResetPlan,
    Target,
    Way,
    planned,
)
from rocketrio.admin.transactions import Transactions, ask_transactions
from rocketrio.arguments import epoch_ms
from rocketrio.client import ClientInstance
from rocketrio.cluster.api import NOT_FOUND
from rocketrio.connect import ClientOptions, given_or_own
from rocketrio.consuming.offset_store import check_offset
from rocketrio.counts import counted
from rocketrio.limits import DEFAULT_TOPIC_QUEUE_NUMS, MAX_QUEUES
from rocketrio.routing import FindBrokerResult, subscribe_queues
from rocketrio.routing.queues import broker_names
from rocketrio_protocol.bodies.log_check import LogCheckStatus
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.bodies.stats import ConsumeStats
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.admin import (
    ChangeBrokerRoleRequestHeader,
    HandOverRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketrio_protocol.commands.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketrio_protocol.errors import (
    AccessRefusedError,
    BrokerError,
    ConfigError,
    ConsumerNotOnlineError,
    Error,
    LocalProtocolError,
    NoBrokerRegisteredError,
    NotAuthorizedError,
    NotReachableError,
    QueryNotFoundError,
    RemoteProtocolError,
    RequestCodeNotSupportedError,
    RouteNotFoundError,
    TopicNotExistError,
)
from rocketrio_protocol.ha.status import HARuntimeInfo
from rocketrio_protocol.lag import WINDOW, ahead_of
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.names import is_system_topic, topic_name_problem
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.record.properties import decimal_value
from rocketrio_protocol.remoting.ports import join_addr
from rocketrio_protocol.remoting.tasks import every, ungrouped

QUERY_MAX_MESSAGES: Final = 32  # defaultQueryMaxNum
CHECK_POLL_INTERVAL: Final = 1.0
"""Seconds between two requests for the progress of a log check."""
HAND_OVER_TIMEOUT: Final = 20.0
"""Seconds: a broker needs at most eleven, if the slave does not answer."""
ROLE_TIMEOUT: Final = 70.0
"""Seconds that a change of role may take: a rocketrio broker answers within 60."""
_END_OF_TIME: Final = 2**63 - 1
READ_BACK_TIMEOUT: Final = 20.0
"""Seconds until members have moved after a reset: Java's wait 10 s, and commit every 5 s."""
READ_BACK_EVERY: Final = 0.1
"""Seconds between two looks. Java's may have read all again, and say so, at any time of the 5 s after they moved."""
SETTLE_TIME: Final = 10.0
"""Seconds after which a commit that was not undone stays: twice the period of commits."""

R = TypeVar("R")

logger = logging.getLogger("rocketrio.admin")


@asynccontextmanager
async def open_admin(
    *, client: ClientInstance | None = None, **client_options: Unpack[ClientOptions]
) -> AsyncGenerator["Admin"]:
    """Open an admin for the length of the block; it uses `client`, or opens one with the other arguments."""
    async with given_or_own(client, client_options, open_admin) as used:
        yield Admin(used, AdminCalls(used.api))


class Admin(GroupAdmin, NameServerAdmin):
    """The administration of a cluster; `open_admin` creates it.

    Every method raises NotReachableError without a name server.
    """

    __slots__ = ()

    # ---------------------------------------------------------------------------------------- topics

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        cluster: str | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str | None] | None = None,
        dry_run: bool = False,
    ) -> dict[str, TopicConfig]:
        """Create or change a topic on every master (of one cluster); return its new settings by broker name.

        Settings that are not given stay as a broker has them; a new topic gets 4 queues to read and to write,
        unordered. With fewer queues than before, the messages of the others are hidden. `attributes` are those of
        RocketMQ 5, for example `{"message.type": "FIFO"}`; None removes one. With `dry_run` nothing is changed.

        Raises ConfigError for an invalid name or number, RouteNotFoundError without such a master, NotReachableError
        before any change if one does not answer, BrokerError if one refuses. When it returns, the name servers know the
        topic.
        """
        problem = topic_name_problem(topic)
        if problem is None and queues is not None and not 1 <= queues <= MAX_QUEUES:
            problem = f"queues={queues} is not between 1 and {MAX_QUEUES}"
        for name, value in (attributes or {}).items():
            if not name or set("+-=,") & set(name) or set("=,") & set(value or ""):
                problem = (
                    f"the attribute {name}={value} cannot be: its name is empty or has one of + - = , in it, "
                    "or its value one of = ,"
                )
        if problem is not None:
            raise ConfigError(problem)
        long_name = self.client.namespace.wrapped(topic)
        given: dict[str, Any] = {
            "read_queue_nums": queues,
            "write_queue_nums": queues,
            "perm": perm,
            "order": order,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        new = TopicConfig(long_name, DEFAULT_TOPIC_QUEUE_NUMS, DEFAULT_TOPIC_QUEUE_NUMS)
        made: dict[str, TopicConfig] = {}
        masters = sorted((await self.masters(cluster)).items())
        there = await in_parallel(masters, lambda master: self._topic_at(master[1], topic))
        for (broker_name, addr), found in zip(masters, there, strict=True):
            known = found or new
            config = msgspec.structs.replace(known, topic_name=topic, **changes)
            if dry_run:
                kept = {**(known.attributes or {}), **(attributes or {})}
                wanted = {name: value for name, value in kept.items() if value is not None}
                made[broker_name] = msgspec.structs.replace(config, attributes=wanted)
                continue
            await self.calls.update_topic(addr, config, attributes or {})
            if attributes:
                config = await self._with_attributes(addr, config)
            made[broker_name] = config
        return made

    async def _topic_at(self, addr: str, topic: str) -> TopicConfig | None:
        try:
            return (await self.calls.topics(addr)).get(self.client.namespace.wrapped(topic))
        except (
            NotAuthorizedError
        ):  # A rocketrio broker: a right on this topic suffices to read its settings alone.
            with suppress(TopicNotExistError):
                return await self.calls.topic(addr, topic)
            return None

    async def _with_attributes(self, addr: str, config: TopicConfig) -> TopicConfig:
        """Return the settings as the broker keeps them: brokers of RocketMQ 4 ignore attributes silently."""
        try:
            kept = await self.calls.topic(addr, config.topic_name)
        except RequestCodeNotSupportedError as error:
            raise ConfigError(
                f"the broker {addr} runs RocketMQ 4, which has no topic attributes",
                remedy="Omit the attributes, or name a cluster of RocketMQ 5 or rocketrio brokers",
            ) from error
        return msgspec.structs.replace(config, attributes=kept.attributes)

    async def delete_topic(self, topic: str) -> list[str]:
        """Remove a topic from its brokers and from all name servers; return the broker names.

        Raises RouteNotFoundError if no name server knows it.
        """
        # The client's stored route may be old: it may name a former master.
        route = await self.client.name_servers.topic_route(topic)
        if route is None:
            error = await self.client.name_servers.unknown_topic(topic)
            if isinstance(error, NoBrokerRegisteredError):
                raise error
            raise RouteNotFoundError(
                error.what,
                topic=topic,
                remedy="`rocketrio topic list` shows what there is to delete",
            )
        for broker in route.broker_datas:
            master = broker.broker_addrs.get(MASTER_ID)
            if master is None:
                raise RouteNotFoundError(
                    f"broker {broker.broker_name} has no master now, and only a master deletes topics",
                    topic=topic,
                    remedy="Start it and delete again",
                )
            await self.calls.delete_topic(master, topic)
            for broker_id, addr in broker.broker_addrs.items():
                if broker_id != MASTER_ID:
                    await self._delete_on_slave(addr, topic)
        await self.client.name_servers.delete_topic(topic)
        self.client.routing.topic_route_table.pop(topic, None)
        return broker_names(route)

    async def _delete_on_slave(self, addr: str, topic: str) -> None:
        # Apache's 4.9 slaves refuse it and copy the deletion from the master; slaves of other versions need it.
        try:
            await self.calls.delete_topic(addr, topic)
        except (BrokerError, NotReachableError) as error:
            logger.info("slave keeps topic=%s addr=%s error=%s", topic, addr, error)

    async def topics(self, *, include_system: bool = False) -> list[str]:
        """Return the names of all topics, of one namespace; topics of RocketMQ itself and of groups only if requested.

        Raises RouteNotFoundError while no broker is registered.
        """
        info = await registered_brokers(self.client)
        names = self.client.namespace.known(await self.client.name_servers.topics())
        if include_system:
            return sorted(names)
        owners = {*info.cluster_addr_table, *info.broker_addr_table}
        return sorted(name for name in names if not is_system_topic(name, owners))

    async def topic(self, topic: str) -> TopicDescription:
        """Return where a topic is stored, and the bounds of its queues. Raises RouteNotFoundError."""
        await self.client.refresh_topic_route(topic)
        route = await self.client.topic_route(topic)
        bounds: list[QueueOffsets] = []
        attributes: dict[str, dict[str, str] | None] = {}

        async def ask_bounds() -> None:
            bounds.extend(await self._bounds(subscribe_queues(topic, route)))

        async def ask_attributes(name: str) -> None:
            attributes[name] = await self._attributes(topic, name)

        with ungrouped():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask_bounds)
                for name in broker_names(route):
                    nursery.start_soon(ask_attributes, name)
        return TopicDescription(
            topic, route, bounds, {name: attributes[name] for name in broker_names(route)}
        )

    async def _attributes(self, topic: str, broker_name: str) -> dict[str, str] | None:
        async def ask(at: FindBrokerResult) -> dict[str, str]:
            return (await self.calls.topic(at.addr, topic)).attributes

        try:
            return await self.client.ask_broker(MessageQueue(topic, broker_name, 0), ask)
        except Error as error:
            logger.info("attributes unknown topic=%s broker=%s error=%s", topic, broker_name, error)
            return None

    # -------------------------------------------------------------------------------------- messages

    def messages(
        self, topic: str, *, broker_name: str | None = None, queue_id: int | None = None
    ) -> TopicMessages:
        """Return the messages of a topic, or of some queues of it, see browse.py."""
        return TopicMessages(self.client, topic, broker_name, queue_id)

    def dead_letters(self, group: str) -> DeadLetters:
        """Return the dead letters of a consumer group, see dead_letters.py."""
        return DeadLetters(self.client, group)

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """Return the message whose place the offset id names. Raises LocalProtocolError, BrokerError.

        Its `broker_name` is empty if no broker is registered with the address in the id.
        """
        ip, port, physical_offset = parse_offset_message_id(offset_message_id)
        if not 0 < port < 65_536:
            raise LocalProtocolError(
                f"{offset_message_id!r} does not name a broker",
                remedy="Take `offset_message_id`; by its producer's id `query_message` finds a message",
            )
        addr = join_addr(ip, port)
        what = f"no message at physical offset {physical_offset}"
        messages = await self.calls.read(addr, ViewMessageRequestHeader(physical_offset), what)
        if len(messages) != 1:
            raise RemoteProtocolError(f"{what}: {len(messages)} came", broker_addr=addr)
        [found] = messages
        with suppress(Error):
            found.broker_name = await self._name_at(addr)
        return self.client.namespace.message(found)

    async def _name_at(self, addr: str) -> str:
        for name, broker in (await self.cluster_info()).broker_addr_table.items():
            if addr in broker.broker_addrs.values():
                return name
        return ""

    async def query_message(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = QUERY_MAX_MESSAGES,
        begin_time: datetime | None = None,
        end_time: datetime | None = None,
        is_unique_id: bool = False,
    ) -> list[MessageExt]:
        """Return the messages with a key, or with a producer's id, in the order of storing; empty if there are none.

        With `begin_time` or `end_time`, aware datetimes, only messages stored then or later, or then or earlier. Raises
        RouteNotFoundError, NotReachableError if a broker cannot be asked, and ConfigError for a time without a zone.
        """
        begin_ms = 0 if begin_time is None else epoch_ms("begin_time", begin_time)
        end_ms = None if end_time is None else epoch_ms("end_time", end_time)
        route = await self.client.topic_route(topic)

        # `_UNIQUE_KEY_QUERY` is never sent: it only means "at most 32", and servers disagree whether it is signed.
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=max(max_messages, QUERY_MAX_MESSAGES) if is_unique_id else max_messages,
            begin_timestamp=begin_ms,
            end_timestamp=_END_OF_TIME if end_ms is None else end_ms,
        )

        async def ask_broker(name: str) -> list[MessageExt]:
            async def ask(at: FindBrokerResult) -> list[MessageExt]:
                messages = await self.calls.read(at.addr, header, f"no message with key {key!r}")
                for message in messages:
                    message.broker_name = name
                return messages

            try:
                return await self.client.ask_broker(MessageQueue(topic, name, 0), ask)
            except QueryNotFoundError:
                return []

        answers = await in_parallel(broker_names(route), ask_broker)
        found = [message for answer in answers for message in answer]
        found.sort(key=lambda message: (message.store_time_ms, message.physical_offset))
        found = [self.client.namespace.message(message) for message in found]
        # A broker finds keys by their hash, so other keys may be among the answers.
        if is_unique_id:
            return [message for message in found if message.message_id == key]
        return [message for message in found if key in message.keys.split(" ")]

    # ---------------------------------------------------------------------------------------- groups

    async def check_group(self, group: str) -> GroupCheck:
        """Return what is wrong with the members of a group: subscriptions, owners of queues, versions.

        Brokers and members that do not answer are findings. Raises NoBrokerRegisteredError, NotReachableError without
        a name server, and GroupNotExistError if no broker knows the group.
        """
        await self.group(group)
        members = await ask_twice(self.client, self.calls, await self.masters(), group)
        return GroupCheck(members, group_findings(members))

    # -------------------------------------------------------------------------------------- progress

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

    async def _bounds(
        self, queues: Sequence[MessageQueue], group: str | None = None
    ) -> list[QueueOffsets]:
        found = await _of_each(queues, lambda queue: self._queue_offsets(queue, group))
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

    # ---------------------------------------------------------------------------------------- resets

    async def reset_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Set a group's offsets queue by queue, back or forward; they replace what its members committed anywhere.

        Running members keep their position. For a queue that was set back, or had no offset, they commit nothing more
        until a member takes it over again and starts at the new offset: stop them first, or let them `seek`. For an
        Apache broker a reset is an ordinary commit, which the next commit of a running member overwrites. Raises
        NotReachableError or BrokerError for the first queue that could not be reset, ConfigError for a number that is
        not an offset. After a cancel any of the queues may be reset.
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
        when_ms = epoch_ms("when", when)
        found = await self.offsets(topic, group)
        resets = []
        for one in found:

            async def search(broker: FindBrokerResult, queue: MessageQueue = one.queue) -> int:
                return await self.client.api.search_offset(broker.addr, queue, when_ms)

            target = await self.client.ask_broker(one.queue, search, insist_on_master=True)
            resets.append(OffsetReset(one.queue, one.committed_offset, target))
        if not dry_run:
            await self.reset_offsets(group, {reset.queue: reset.target_offset for reset in resets})
        return resets

    async def plan_reset(
        self,
        group: str,
        topics: Sequence[str],
        target: Target,
        *,
        queues: Collection[MessageQueue] | None = None,
        offline: bool = False,
    ) -> ResetPlan:
        """Return what a reset of the group on these topics would do; nothing is changed.

        `queues` limits it. `offline` commits offsets even if the group has members, which may undo that. Raises
        ConfigError for a target outside a queue, one that members would undo, and a broadcasting group;
        NotReachableError if a number is unknown.
        """
        members = await self._members_to_reset(group)
        places = [
            await self._place(one, target)
            for topic in topics
            for one in await self.offsets(topic, group)
            if queues is None or one.queue in queues
        ]
        plan = planned(group, members, target, places, offline=offline)
        if plan.way is Way.ONLINE and queues is not None:
            raise ConfigError(
                f"{group} has {counted(members, 'member')}, and brokers direct members in all queues of a topic",
                remedy="Stop them first, or reset all queues",
            )
        return plan

    async def _members_to_reset(self, group: str) -> int:
        try:
            found = await self.consumer_connections(group)
        except ConsumerNotOnlineError:
            await self.group(group)  # Raises GroupNotExistError.
            return 0
        if found.message_model == "BROADCASTING":
            raise ConfigError(
                f"the members of {group} keep their offsets themselves (broadcasting)"
            )
        return len(found.connection_set)

    async def _place(self, found: QueueOffsets, target: Target) -> QueueNow:
        queue, time_ms = found.queue, target.time_ms
        end = found.reachable_end
        if found.min_offset is None or end is None:
            raise Error(f"the bounds of {queue} are unknown; nothing was reset")
        at_time = None
        if time_ms is not None:

            async def search(broker: FindBrokerResult) -> int:
                return await self.client.api.search_offset(broker.addr, queue, time_ms)

            at_time = await self.client.ask_broker(queue, search, insist_on_master=True)
        return QueueNow(queue, found.min_offset, end, found.committed_offset, at_time)

    async def _committed(
        self, group: str, queues: Sequence[MessageQueue]
    ) -> dict[MessageQueue, int | None]:
        return await _of_each(queues, lambda queue: self._committed_offset(queue, group))

    async def apply_reset(self, plan: ResetPlan) -> ResetPlan:
        """Carry out a plan; return it with what was committed `after`, and the way of each queue.

        With members this takes up to half a minute, until they have moved. Raises PlanChangedError if members came or
        left, or offsets without members moved, NotReachableError and BrokerError for the first queue that failed. After
        a cancel any of the queues may be reset.
        """
        await self._check_plan(plan)
        if plan.way is Way.OFFLINE:
            await self.reset_offsets(plan.group, _targets(plan.queues))
            if plan.members:
                await trio.sleep(SETTLE_TIME)
            return await self._read_back(plan)
        await self._direct_members(plan)
        done = await self._moved(plan)
        left = [one for one in done.queues if not one.has_arrived]
        if not left:
            return done
        logger.info("members did not move group=%s queues=%d", plan.group, len(left))
        await self.reset_offsets(plan.group, _targets(left))
        await trio.sleep(SETTLE_TIME)
        rest = await self._read_back(
            attrs.evolve(plan, queues=[attrs.evolve(one, way=Way.BOTH) for one in left])
        )
        again = {one.queue: one for one in rest.queues}
        return attrs.evolve(plan, queues=[again.get(one.queue, one) for one in done.queues])

    async def _moved(self, plan: ResetPlan) -> ResetPlan:
        """Return the plan with what was committed for each queue when a member had moved it, or last if none did.

        A member that has read everything again may commit the former offset a moment later: what arrived stays so.
        """
        found = {one.queue: one for one in plan.queues}
        with trio.move_on_after(READ_BACK_TIMEOUT):
            while left := [one.queue for one in found.values() if not one.has_arrived]:
                await trio.sleep(READ_BACK_EVERY)
                for queue, offset in (await self._committed(plan.group, left)).items():
                    found[queue] = attrs.evolve(found[queue], after=offset)
        return attrs.evolve(plan, queues=list(found.values()))

    async def _check_plan(self, plan: ResetPlan) -> None:
        members = await self._members_to_reset(plan.group)
        if bool(members) != bool(plan.members):
            raise PlanChangedError(
                f"{plan.group} had {counted(plan.members, 'member')}, and has {members} now"
            )
        if members:
            return
        now = await self._committed(plan.group, [one.queue for one in plan.queues])
        for one in plan.queues:
            if now[one.queue] != one.from_offset:
                raise PlanChangedError(
                    f"{one.queue} was at {_text(one.from_offset)}, and is at {_text(now[one.queue])} now"
                )

    async def _direct_members(self, plan: ResetPlan) -> None:
        assert plan.time_ms is not None
        masters = await self.masters()
        places = dict.fromkeys((one.queue.broker_name, one.queue.topic) for one in plan.queues)
        for name, topic in places:
            # Without force brokers move no queue forward.
            header = ResetOffsetRequestHeader(topic, plan.group, plan.time_ms, is_force=True)
            what = f"{topic} not reset"
            try:
                await self.client.api.call(
                    masters[name], header, what=what, topic=topic, timeout=self.calls.timeout
                )
            except BrokerError as error:
                # Members of a broker may be none: its queues are committed for them afterwards.
                logger.info("members not directed broker=%s error=%s", name, error)

    async def _read_back(self, plan: ResetPlan) -> ResetPlan:
        found: Mapping[MessageQueue, int | None] = await self._committed(
            plan.group, [one.queue for one in plan.queues]
        )
        queues = [attrs.evolve(one, after=found[one.queue]) for one in plan.queues]
        return attrs.evolve(plan, queues=queues)

    # --------------------------------------------------------------------------------------- brokers

    async def brokers(self) -> list[BrokerDescription]:
        """Return every registered broker, master or slave; what it does not report is None."""
        info = await self.cluster_info()
        found: list[BrokerDescription] = []

        async def describe(cluster: str, name: str, broker_id: int, addr: str) -> None:
            found.append(await self._describe(cluster, name, broker_id, addr))

        with ungrouped():
            async with trio.open_nursery() as nursery:
                for name, broker in info.broker_addr_table.items():
                    for broker_id, addr in broker.broker_addrs.items():
                        nursery.start_soon(describe, broker.cluster, name, broker_id, addr)
        return sorted(
            found, key=lambda broker: (broker.cluster, broker.broker_name, broker.broker_id)
        )

    async def _describe(
        self, cluster: str, name: str, broker_id: int, addr: str
    ) -> BrokerDescription:
        runtime: dict[str, str] = {}
        config: dict[str, str] = {}
        try:
            runtime = await self.calls.runtime_info(addr)
            config = await self.calls.broker_config(addr)
        except AccessRefusedError:
            raise
        except Error as error:
            logger.warning("broker does not tell all addr=%s error=%s", addr, error)
        return BrokerDescription.of(cluster, name, broker_id, addr, runtime, config)

    async def status(self, *, also: Sequence[str] = ()) -> list[BrokerStatus]:
        """Return the replication state of the registered brokers: who follows whom, how far behind, what is wrong.

        `also` are addresses of further brokers, which may not be registered, such as a second master that takes no
        writes. A registered broker that cannot be asked is in the list, with the reason in `problem`; a broker of
        `also` that cannot be asked is an error, NotReachableError or BrokerError.
        """
        listed = _listed([await self.cluster_info()])
        for addr in also:
            if addr not in listed:
                config = await self.calls.broker_config(addr)
                names = config.get("brokerClusterName", ""), config.get("brokerName", "")
                listed[addr] = (*names, decimal_value(config.get("brokerId")) or MASTER_ID)
        return await self._status(listed)

    async def _status(self, listed: Mapping[str, tuple[str, str, int]]) -> list[BrokerStatus]:
        found: list[BrokerAnswers] = []

        async def ask(cluster: str, name: str, broker_id: int, addr: str) -> None:
            found.append(await self._answers(cluster, name, broker_id, addr))

        with ungrouped():
            async with trio.open_nursery() as nursery:
                for addr, names_and_id in listed.items():
                    nursery.start_soon(ask, *names_and_id, addr)
        return cluster_status(found)

    async def _answers(self, cluster: str, name: str, broker_id: int, addr: str) -> BrokerAnswers:
        ha: HARuntimeInfo | None = None
        asked_ms = answered_ms = self.client.wall_clock.now_ms()
        try:
            ha = await self.calls.ha_status(addr)
            answered_ms = self.client.wall_clock.now_ms()
        except (NotReachableError, AccessRefusedError) as error:
            unknown = BrokerDescription.of(cluster, name, broker_id, addr, {}, {})
            is_refused = isinstance(error, AccessRefusedError)
            return BrokerAnswers(unknown, problem=str(error), is_refused=is_refused)
        except Error as error:
            logger.warning("no HA status addr=%s error=%s", addr, error)
        now_ms = ha.rocketrio.now if ha is not None and ha.rocketrio is not None else None
        ahead = None if now_ms is None else clock_ahead(now_ms, asked_ms, answered_ms)
        described = await self._describe(cluster, name, broker_id, addr)
        return BrokerAnswers(described, ha, clock_ahead=ahead)

    async def health(self) -> Health:
        """Return what is wrong with the name servers, the brokers and their replication.

        A server that does not answer is a finding. Raises NotReachableError only if no name server answers.
        """
        return health_of(await self.snapshot())

    async def snapshot(self) -> Snapshot:
        """Return what name servers and brokers answer about themselves: what `health` and most checks judge.

        The brokers are all that any name server knows. Raises NotReachableError only if no name server answers.
        """
        runtimes: dict[str, dict[str, str]] = {}

        async def ask(addr: str) -> None:
            try:
                runtimes[addr] = await self.calls.runtime_info(addr)
            except Error as error:
                logger.info("runtime unknown addr=%s error=%s", addr, error)

        servers = await self.client.name_servers.cluster_info_of_each()
        known = [one for one in servers.values() if isinstance(one, ClusterInfo)]
        statuses = await self._status(_listed(known or [await self.cluster_info()]))
        async with trio.open_nursery() as nursery:
            for one in statuses:
                if one.state not in UNKNOWN_STATES:
                    nursery.start_soon(ask, one.address)
        return Snapshot(servers, statuses, runtimes, self.client.wall_clock.now_ms())

    def events(self, *, since: datetime | None = None, kinds: Sequence[str] = ()) -> EventFeed:
        """Return the feed of the brokers' events: the last ones (up to 1,000 of a broker), and those that follow.

        Only events at `since` or later are returned, and only those of the `kinds` "role", "replication", "disk" and so
        on; docs/logs.md lists them. Topics and groups have the names that brokers know, with namespaces.
        """
        since_ms = 0 if since is None else epoch_ms("since", since)
        return EventFeed(self.client, self.calls, since_ms, kinds)

    async def change_role(
        self, addr: str, role: str, broker_id: int, *, accept_loss: bool = False
    ) -> None:
        """Make the rocketrio broker at an address `async-master`, `sync-master` (id 0) or `slave` (id 1 or higher).

        A slave that lacks more than 4 MiB of what its master had, and cannot get it from any broker, becomes master
        only with `accept_loss`; otherwise ServiceNotAvailableError says how much that is.

        Returns once it serves in that role and the name servers show it. Raises ConfigError for an impossible pair of
        role and id, RequestCodeNotSupportedError for an Apache broker, SystemBusyError if it takes longer than a minute
        (the broker continues to try), NotReachableError. After a cancel either role is possible.
        """
        if (role == "slave") == (broker_id == MASTER_ID):
            raise ConfigError(f"{role} with id {broker_id}: a master has id 0, a slave any other")
        try:
            header = ChangeBrokerRoleRequestHeader(role, broker_id, accept_loss)
            what = f"role not changed to {role} with id {broker_id}"
            await self.calls.ask(addr, header, what, timeout=ROLE_TIMEOUT)
        except RequestCodeNotSupportedError as error:
            raise RequestCodeNotSupportedError(
                f"The broker at {addr} does not change its role while it runs: Apache's cannot",
                broker_addr=addr,
                remedy="Set brokerRole and brokerId in its file and restart it",
            ) from error

    async def check_log(
        self, addr: str, *, rate: int | None = None
    ) -> AsyncGenerator[LogCheckStatus]:
        """Make the rocketrio broker at an address check its whole log, a slave against its master.

        Yields the progress about once a second; the last value, which is not running any more, is the result. `rate` is
        in bytes a second. Raises RequestCodeNotSupportedError for an Apache broker, NotReachableError, and BrokerError
        if the log was cut or the broker restarted meanwhile. After a cancel the broker continues the check.
        """
        before = await self.calls.check_log(addr)
        status = await self.calls.check_log(addr, start=True, rate=rate)
        while status.is_running or status.number <= before.number:
            await trio.sleep(CHECK_POLL_INTERVAL)
            status = await self.calls.check_log(addr)
            if status.number < before.number:
                raise BrokerError(
                    "The broker was restarted while it checked its log",
                    broker_addr=addr,
                    remedy="Begin again",
                )
            if status.is_running and status.number > before.number:
                yield status
        if status.position < status.end:
            raise BrokerError(
                f"The check ended at {status.position} of {status.end}: the log was cut meanwhile",
                broker_addr=addr,
                remedy="Begin again",
            )
        yield status

    async def broker_addresses(self, name: str) -> list[str]:
        """Return the addresses of all brokers of a name, the master first. Raises RouteNotFoundError."""
        info = await self.cluster_info()
        broker = info.broker_addr_table.get(name)
        if broker is None or not broker.broker_addrs:
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            raise RouteNotFoundError(
                f"no broker {name!r} is registered; known names: {known}",
                remedy="Start it, or write HOST:PORT",
            )
        return [addr for _, addr in sorted(broker.broker_addrs.items())]

    async def hand_over(
        self, name: str, *, to: int | None = None, dry_run: bool = False
    ) -> HandOver:
        """Make the master of a broker name change places with a slave: `to`, or the one that has most of the log.

        Sends wait meanwhile, usually less than a second, and no message or offset is lost. With `dry_run` nothing
        changes. Raises RouteNotFoundError for a name that has no master; ServiceNotAvailableError with the reason if
        the slave is Apache's, is behind or does not follow; RequestCodeNotSupportedError for an Apache master. After a
        cancel or NotReachableError `status` shows which broker is master.
        """
        info = await self.cluster_info()
        broker = info.broker_addr_table.get(name)
        if broker is None or MASTER_ID not in broker.broker_addrs:
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            missing = "is not registered" if broker is None else "has no master now"
            raise RouteNotFoundError(
                f"broker {name!r} {missing}; registered brokers: {known}",
                remedy="Check the name and the name servers",
            )
        addr = broker.broker_addrs[MASTER_ID]
        try:
            header = HandOverRequestHeader(to, dry_run)
            done = await self.calls.ask(addr, header, "not handed over", timeout=HAND_OVER_TIMEOUT)
        except RequestCodeNotSupportedError as error:
            raise RequestCodeNotSupportedError(
                f"The master of {name} at {addr} does not hand over: it is Apache's, or older",
                broker_addr=addr,
                remedy="Stop it, and start a slave as master",
            ) from error
        return HandOver(
            broker_name=name,
            old_address=addr,
            new_address=done.broker_addr,
            slave_id=done.broker_id,
            bytes_behind=done.log_end_offset - done.slave_ack_offset if dry_run else 0,
            seconds=None if dry_run else done.millis / 1000,
        )

    async def drain(self, name: str) -> WritePermission:
        """Have name servers tell producers that the broker of this name takes no messages; see drain.py.

        Raises RouteNotFoundError for a name that is not registered, NotReachableError if no name server answers.
        """
        return await set_writable(self.client, name, writable=False)

    async def undrain(self, name: str) -> WritePermission:
        """Take back what `drain` did; otherwise like it."""
        return await set_writable(self.client, name, writable=True)

    async def wait_quiet(self, name: str) -> None:
        """Wait until the master of this name has stored nothing for 35 seconds: no producer uses it any more.

        Raises RouteNotFoundError if it has no master, NotReachableError if the master does not answer.
        """
        await wait_quiet(self.client, self.calls, name)

    async def wait_drained(self, name: str) -> None:
        """Drain a broker, and wait until groups have read all of it and nothing more can come.

        Every round drains: a name server that restarted has let producers write again. Then the broker must store
        nothing for 35 seconds, have no delayed message and no open transaction, and each group must have read
        everything. Dead letters do not count. A server that goes away meanwhile is waited for. Raises what `drain`
        raises at first, and BrokerError.
        """
        await self.drain(name)
        async for _ in every(CHECK_EVERY):
            with suppress(NotReachableError, RouteNotFoundError):
                await self.drain(name)
                await self.wait_quiet(name)
                held, report = await self.held(name), await self.lag(seconds=0)
                if not held.comes_later and not unread_at(report, name):
                    return

    async def held(self, name: str) -> Held:
        """Return what the master of this name stores that groups cannot read: delayed and half messages, dead letters.

        Raises RouteNotFoundError if it has no master, NotReachableError or BrokerError if the master does not answer.
        """
        return await ask_held(self.calls, await master_of(self.client, name))

    async def change_settings(self, addr: str, settings: Mapping[str, str]) -> dict[str, str]:
        """Change settings of a running broker, under Java's names, until its next start; return all its settings.

        Raises BrokerError if the broker refuses one, or accepts one without effect, as Apache's do with unknown names.
        """
        await self.calls.update_broker_config(addr, settings)
        after = await self.calls.broker_config(addr)
        for name, value in settings.items():
            if not _is_same(value, after.get(name)):
                raise BrokerError(
                    f"The broker took {name}={value} without effect: it is {after.get(name, 'unknown')}",
                    broker_addr=addr,
                    remedy="Check the name, or set it in the broker's file and restart it",
                )
        return after

    async def diagnose(
        self, *groups: str, seconds: float = WINDOW, slaves: int | None = None
    ) -> Diagnosis:
        """Return everything that is wrong with the cluster and its groups, by requests that read.

        `groups` limits what is said of groups; `seconds` is the window of their lag, as in `lag`; `slaves` is how many
        each master should have, because a slave that was stopped is not registered any more. What could not be asked is
        in `unknown`, and never counts as well.

        Raises NotReachableError only if no name server answers, NoBrokerRegisteredError, and GroupNotExistError if no
        broker knows a group that was named.
        """
        return diagnosis_of(await self.whole_snapshot(*groups, seconds=seconds, slaves=slaves))

    async def whole_snapshot(
        self, *groups: str, seconds: float = WINDOW, slaves: int | None = None
    ) -> Snapshot:
        """Return what `diagnose` judges; otherwise like it."""
        await registered_brokers(self.client)
        window = self.lag_window(*groups, seconds=seconds)
        seen = await completed(self.client, self.calls, await self.snapshot(), window)
        return attrs.evolve(seen, slaves_wanted=slaves)

    async def transactions(self) -> dict[str, Transactions]:
        """Return how many transactions each master has open, and has given up, by broker name.

        Raises NotReachableError or BrokerError for the first that does not answer.
        """
        masters = await self.masters()
        answers = await in_parallel(
            list(masters.values()), lambda addr: ask_transactions(self.calls, addr)
        )
        return dict(zip(masters, answers, strict=True))

    def access(
        self,
        *,
        cluster: str | None = None,
        broker_addr: str | None = None,
        plain_passwords: bool = False,
    ) -> AccessAdmin:
        """Return the users and rights of all brokers, of one cluster's or of one broker, see access_admin.py.

        With `plain_passwords` passwords are also sent over connections without TLS to other machines: name servers say
        where brokers are, and an open one lists any host.
        """
        return AccessAdmin(self.client, self.calls, cluster, broker_addr, plain_passwords)


async def _of_each(
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


def _targets(queues: Iterable[QueueReset]) -> dict[MessageQueue, int]:
    return {one.queue: one.to_offset for one in queues}


def _text(offset: int | None) -> str:
    return "nothing" if offset is None else str(offset)


def _listed(infos: Iterable[ClusterInfo]) -> dict[str, tuple[str, str, int]]:
    """Return the cluster, name and id of each broker that name servers know, by address."""
    return {
        addr: (broker.cluster, name, broker_id)
        for info in infos
        for name, broker in info.broker_addr_table.items()
        for broker_id, addr in broker.broker_addrs.items()
    }


def _is_same(value: str, found: str | None) -> bool:
    """Return True if two texts of a setting mean the same value."""
    if found is None:
        return False
    try:
        return float(value) == float(found)
    except ValueError:
        return value.strip().lower() == found.lower()
