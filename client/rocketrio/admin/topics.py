"""Topics: their settings, permissions and counts, a table of all of them, and the groups that read one.

Invariant: a number that a broker did not report is None, and so is a sum with such a part.
Invariant: a change is complete when every broker concerned has confirmed it; an error names the first that did not.
Answers to: UpdateTopicSubCommand, UpdateTopicPermSubCommand, StatsAllSubCommand (for one group and by broker too),
TopicListSubCommand.
Unlike Java: a permission is changed on all brokers that have the topic, or on one; the former one is returned.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import attrs
import msgspec
import trio

from rocketrio.admin.admin_calls import Period
from rocketrio.admin.cluster_questions import ask_each, in_parallel, registered_brokers, whole_sum
from rocketrio.admin.offsets import OffsetAdmin, QueueOffsets
from rocketrio.limits import DEFAULT_TOPIC_QUEUE_NUMS, MAX_QUEUES
from rocketrio.routing import FindBrokerResult, subscribe_queues
from rocketrio.routing.queues import broker_names
from rocketrio_protocol.bodies.route import TopicRouteData
from rocketrio_protocol.bodies.stats import TopicStatsTable
from rocketrio_protocol.bodies.topics import Permission, TopicConfig
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import (
    AccessRefusedError,
    BrokerError,
    ConfigError,
    ConsumerNotOnlineError,
    Error,
    NoBrokerRegisteredError,
    NotAuthorizedError,
    NotReachableError,
    RequestCodeNotSupportedError,
    RouteNotFoundError,
    TopicNotExistError,
)
from rocketrio_protocol.lag import lag_of
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import is_system_topic, topic_name_problem
from rocketrio_protocol.remoting.tasks import ungrouped
from rocketrio_protocol.times import time_of

MESSAGE_TYPE: Final = "message.type"
"""The attribute of RocketMQ 5 that says which messages a topic has."""

TYPE_WITHOUT_ATTRIBUTE: Final = "normal"

logger = logging.getLogger("rocketrio.admin")


@attrs.frozen
class TopicDescription:
    """One topic."""

    topic: str
    route: TopicRouteData
    queues: list[QueueOffsets]
    attributes: dict[str, dict[str, str] | None]
    """Attributes by broker name; None if a broker did not answer, or is of RocketMQ 4, which has none."""


@attrs.frozen
class PermissionChange:
    """The permission of a topic on one broker."""

    broker_name: str
    before: int
    after: int
    """Equal to `before` if nothing was to be done."""


@attrs.frozen
class TopicCount:
    """The counts of brokers for a topic, or for one group of a topic."""

    topic: str
    group: str | None
    """The group that read it; None for what was stored."""
    messages: int | None
    bytes: int | None
    messages_today: int | None
    """In the last 24 hours, as far as brokers count so long. Each number is None if a broker did not answer."""


@attrs.frozen
class Served:
    """How much of a topic one broker has served to a group."""

    broker_name: str
    broker_id: int
    address: str
    messages: int | None
    bytes: int | None
    """The size of the stored records. Both are None if the broker could not be asked."""


@attrs.frozen
class TopicOverview:
    """One topic of a cluster."""

    topic: str
    queues: int | None
    """To read, on all brokers that answered; None if none of them has it, and others did not answer."""
    permission: int | None
    """The permissions of clients on any of its brokers; None as for `queues`."""
    brokers: Sequence[str]
    message_type: str | None
    """`normal`, `fifo`, `delay`, `transaction` or `mixed`; None if no broker reports attributes."""
    messages: int | None
    """How many it has. None if a broker that has the topic did not answer, as for the next three."""
    per_second: float | None
    """Messages stored in a second, by the brokers' last minute."""
    last_stored: datetime | None
    """When the newest message was stored; None also if there is none."""
    groups: Sequence[str] | None
    """The groups that have committed offsets in it."""


@attrs.frozen
class TopicReader:
    """A group that reads a topic."""

    group: str
    model: str | None
    """`CLUSTERING` or `BROADCASTING`; None without members, or if they are unknown."""
    members: int | None
    """None if no broker could report them."""
    lag: int | None
    verdict: str
    why: str


class TopicAdmin(OffsetAdmin):
    """The methods of `Admin` about topics."""

    __slots__ = ()

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
        except NotAuthorizedError:
            # A rocketrio broker: a right on this topic suffices to read its settings alone.
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

    async def set_topic_permission(
        self,
        topic: str,
        permission: Permission,
        *,
        broker_name: str | None = None,
        dry_run: bool = False,
    ) -> list[PermissionChange]:
        """Set what clients may do with a topic, on all masters that have it or on one; with `dry_run` change nothing.

        Clients see it within 30 seconds. Raises RouteNotFoundError if none of them has the topic, BrokerError for the
        first that refuses; those before it have changed.
        """
        masters = await self.masters()
        if broker_name is not None and broker_name not in masters:
            raise RouteNotFoundError(
                f"broker {broker_name!r} has no master; known names: {', '.join(sorted(masters))}"
            )
        long_name = self.client.namespace.wrapped(topic)
        known: dict[str, TopicConfig] = {}
        for name, addr in sorted(masters.items()):
            if broker_name in (None, name):
                config = (await self.calls.topics(addr)).get(long_name)
                if config is not None:
                    known[name] = config
        if not known:
            raise RouteNotFoundError(
                f"{broker_name or 'every master'} lacks the topic",
                topic=topic,
                remedy="`rocketrio topic show` says which brokers have it",
            )
        changes = []
        for name, config in known.items():
            if config.perm != permission and not dry_run:
                changed = msgspec.structs.replace(config, topic_name=topic, perm=int(permission))
                await self.calls.update_topic(masters[name], changed)
            changes.append(PermissionChange(name, int(config.perm), int(permission)))
        return changes

    async def topic_counts(
        self, topics: Sequence[str], *, period: Period = "minute"
    ) -> list[TopicCount]:
        """Return what was stored in topics, and what each group has read, in the last minute, hour or day.

        Brokers count in samples of ten seconds, so the last ones may be missing; Apache's hours and days contain
        finished periods only. Slaves are not asked: what groups read there is in `served`. Raises RouteNotFoundError
        for an unknown topic, NotReachableError or BrokerError if a broker does not say which groups read a topic.
        """
        return await self._counts(topics, period, self.groups_of, silent={})

    async def topic_counts_and_failures(
        self, topics: Sequence[str], *, period: Period = "minute"
    ) -> tuple[list[TopicCount], dict[str, str]]:
        """Return the counts as `topic_counts` does, as far as brokers answer, and why others did not, by broker name.

        Groups that only a silent broker knows are missing. Raises RouteNotFoundError for an unknown topic.
        """
        silent: dict[str, str] = {}

        async def groups_of(topic: str) -> list[str]:
            groups, failed = await self.groups_of_and_failures(topic)
            silent.update((name, error.what) for name, error in failed.items())
            return groups

        return await self._counts(topics, period, groups_of, silent), silent

    async def _counts(
        self,
        topics: Sequence[str],
        period: Period,
        groups_of: Callable[[str], Awaitable[list[str]]],
        silent: dict[str, str],
    ) -> list[TopicCount]:
        """Return the counts, and note in `silent` which brokers did not answer."""
        masters = await self.masters()
        wanted: list[tuple[str, str | None, list[str]]] = []
        for topic in topics:
            await self.client.refresh_topic_route(topic)
            names = broker_names(await self.client.topic_route(topic))
            wanted.append((topic, None, names))
            wanted += [(topic, group, names) for group in await groups_of(topic)]
        wrapped = self.client.namespace.wrapped

        async def count(row: tuple[str, str | None, list[str]]) -> TopicCount:
            topic, group, names = row
            key = wrapped(topic) if group is None else f"{wrapped(topic)}@{wrapped(group)}"
            nums = "TOPIC_PUT_NUMS" if group is None else "GROUP_GET_NUMS"
            size = "TOPIC_PUT_SIZE" if group is None else "GROUP_GET_SIZE"

            async def summed(what: str, period: Period) -> int | None:
                counts = [await self._counted(masters, name, what, key, period) for name in names]
                silent.update(
                    (name, one)
                    for name, one in zip(names, counts, strict=True)
                    if isinstance(one, str)
                )
                return whole_sum(None if isinstance(one, str) else one for one in counts)

            return TopicCount(
                topic, group, await summed(nums, period), await summed(size, period),
                await summed(nums, "day"),
            )  # fmt: skip

        return await in_parallel(wanted, count)

    async def _counted(
        self, masters: Mapping[str, str], broker: str, what: str, key: str, period: Period
    ) -> int | str:
        """Return what a broker has counted, or why it did not answer."""
        if broker not in masters:
            return "it has no master now"
        try:
            return (await self.calls.counted(masters[broker], what, key, period)).sum
        except Error as error:
            return error.what

    async def served(self, topic: str, group: str, *, period: Period = "minute") -> list[Served]:
        """Return how much of `topic` each registered broker has served to `group` in the last minute, hour or day.

        Brokers count in samples of ten seconds, so reads of the last ten seconds may be missing. With Apache's brokers
        ask for the minute; their hours and days contain finished periods only.

        Raises NotReachableError without a name server.
        """
        found: list[Served] = []
        key = f"{topic}@{group}"

        async def ask(name: str, broker_id: int, addr: str) -> None:
            messages = await self._sum(addr, "GROUP_GET_NUMS", key, period)
            size = await self._sum(addr, "GROUP_GET_SIZE", key, period)
            found.append(Served(name, broker_id, addr, messages, size))

        with ungrouped():
            async with trio.open_nursery() as nursery:
                for name, broker in (await self.cluster_info()).broker_addr_table.items():
                    for broker_id, addr in broker.broker_addrs.items():
                        nursery.start_soon(ask, name, broker_id, addr)
        return sorted(found, key=lambda one: (one.broker_name, one.broker_id))

    async def _sum(self, addr: str, name: str, key: str, period: Period) -> int | None:
        try:
            return (await self.calls.counted(addr, name, key, period)).sum
        except NotReachableError:
            return None

    async def topic_overviews(
        self, *, include_system: bool = False
    ) -> tuple[list[TopicOverview], dict[str, str]]:
        """Return all topics with what brokers know of them, and why brokers did not answer, by name.

        Each master is asked for its topics and offsets once, and twice for each of its topics. Raises
        RouteNotFoundError while no broker is registered.
        """
        names = set(await self.topics(include_system=include_system))
        masters = await self.masters()
        known = self.client.namespace.known
        configs: dict[str, dict[str, TopicConfig]] = defaultdict(dict)
        readers: dict[str, set[str]] = defaultdict(set)

        async def ask(addr: str) -> tuple[Mapping[str, TopicConfig], Iterable[tuple[str, str]]]:
            return await self.calls.topics(addr), await self.calls.all_offsets(addr)

        answers, failed = await ask_each(masters, ask)
        refused: dict[str, str] = {}
        silent = {name: error.what for name, error in failed.items()}
        for name, (topics, offsets) in answers.items():
            for long_name, config in topics.items():
                for topic in known([long_name]):
                    if topic in names:
                        configs[topic][name] = config
            for group, long_name in offsets:
                for topic in known([long_name]):
                    readers[topic].update(known([group]))

        async def overview(topic: str) -> TopicOverview:
            stats: list[TopicStatsTable | None] = []
            stored: list[int | None] = []
            key = self.client.namespace.wrapped(topic)
            for name in configs[topic]:
                try:
                    stats.append(await self.calls.topic_stats(masters[name], topic))
                except Error as error:
                    stats.append(None)
                    if isinstance(error, AccessRefusedError):
                        refused[name] = error.what
                count = await self._counted(masters, name, "TOPIC_PUT_NUMS", key, "minute")
                stored.append(None if isinstance(count, str) else count)
            here = configs[topic]
            groups = None if silent else sorted(readers[topic])
            return overview_of(topic, here, stats, None if silent else whole_sum(stored), groups)

        found = await in_parallel(sorted(names), overview)
        if silent:
            found = [attrs.evolve(one, messages=None, last_stored=None) for one in found]
            found = [
                one if one.brokers else attrs.evolve(one, queues=None, permission=None)
                for one in found
            ]
        return found, refused | silent

    async def readers_of(self, topic: str) -> list[str]:
        """Return the groups that read a topic. Raises RouteNotFoundError."""
        names = await self.groups_of(topic)
        # Brokers of 5.3 list the topic in place of groups with members.
        if topic in names and topic not in await self.groups(include_system=True):
            names.remove(topic)
        return names

    async def topic_readers(self, topic: str) -> list[TopicReader]:
        """Return the groups that read a topic, with their lag and the verdict on it by the brokers' last minute.

        Brokers of 5.3 do not report groups that have members but have never committed. Raises RouteNotFoundError.
        """
        groups = await self.readers_of(topic)
        if not groups:
            return []
        report = await self.lag(*groups, topic=topic, seconds=0)
        rows = {row.group: row for row in report.rows}
        answering = {
            name: addr for name, addr in (await self.masters()).items() if name not in report.silent
        }

        async def reader(group: str) -> TopicReader:
            model, members = None, None
            try:
                found = await self.consumer_connections(group, masters=answering)
                model, members = found.message_model, len(found.connection_set)
            except ConsumerNotOnlineError:
                members = None if report.silent else 0
            except Error:
                members = None
            row = rows.get(group)
            if row is None:
                return TopicReader(
                    group, model, members, None, "unknown", "nothing is committed in this topic"
                )
            return TopicReader(group, model, members, row.lag, row.verdict.value, row.judgement.why)

        return await in_parallel(groups, reader)


def overview_of(
    topic: str,
    configs: Mapping[str, TopicConfig],
    stats: Iterable[TopicStatsTable | None],
    stored_in_minute: int | None,
    groups: Sequence[str] | None,
) -> TopicOverview:
    """Return what brokers together say of a topic."""
    permission, types = 0, set()
    for config in configs.values():
        permission |= int(config.perm)
        types.add(config.attributes.get(MESSAGE_TYPE, TYPE_WITHOUT_ATTRIBUTE).lower())
    messages: list[int | None] = []
    last_ms = 0
    for table in stats:
        if table is None:
            messages.append(None)
            continue
        for one in table.offset_table.values():
            # -1 is the beginning of a queue that never had a message.
            messages.append(lag_of(max(0, one.min_offset), one.max_offset))
            last_ms = max(last_ms, one.last_update_timestamp)
    total = whole_sum(messages)
    return TopicOverview(
        topic,
        queues=sum(config.read_queue_nums for config in configs.values()),
        permission=permission,
        brokers=sorted(configs),
        message_type=", ".join(sorted(types)) if types else None,
        messages=total,
        per_second=None if stored_in_minute is None else stored_in_minute / 60,
        last_stored=None if total is None else time_of(last_ms),
        groups=groups,
    )


def permission_text(permission: int) -> str:
    """Return a permission as commands and files write it: `rw`, `r`, `w` or `none`."""
    text = "r" if permission & Permission.READ else ""
    return text + ("w" if permission & Permission.WRITE else "") or "none"
