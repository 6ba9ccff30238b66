"""Administration of topics beside `Admin.create_topic`: permissions, counts, and a table of all topics.

Invariant: a number that a broker did not report is None, and so is a sum with such a part.
Answers to: UpdateTopicPermSubCommand, UpdateOrderConfCommand, StatsAllSubCommand, TopicListSubCommand.
Unlike Java: a permission is changed on all brokers that have the topic, or on one; the former one is returned.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs
import msgspec

from rocketrio.admin.admin import Admin
from rocketrio.admin.admin_calls import Period
from rocketrio.admin.admin_values import whole_sum
from rocketrio.admin.cluster_questions import ask_each, in_parallel
from rocketrio.routing.queues import broker_names
from rocketrio_protocol.bodies.stats import TopicStatsTable
from rocketrio_protocol.bodies.topics import Permission, TopicConfig
from rocketrio_protocol.errors import (
    AccessRefusedError,
    ConsumerNotOnlineError,
    Error,
    RouteNotFoundError,
)
from rocketrio_protocol.lag import lag_of
from rocketrio_protocol.times import time_of

MESSAGE_TYPE: Final = "message.type"
"""The attribute of RocketMQ 5 that says which messages a topic has."""
TYPE_WITHOUT_ATTRIBUTE: Final = "normal"


# -------------------------------------------------------------------------------------- permissions


@attrs.frozen
class PermissionChange:
    """The permission of a topic on one broker."""

    broker_name: str
    before: int
    after: int
    """Equal to `before` if nothing was to be done."""


async def set_permission(
    admin: Admin,
    topic: str,
    permission: Permission,
    *,
    broker_name: str | None = None,
    dry_run: bool = False,
) -> list[PermissionChange]:
    """Set what clients may do with a topic, on all masters that have it or on one; with `dry_run` change nothing.

    Clients see it within 30 seconds. Raises RouteNotFoundError if none of them has the topic, BrokerError for the first
    that refuses; those before it have changed.
    """
    masters = await admin.masters()
    if broker_name is not None and broker_name not in masters:
        raise RouteNotFoundError(
            f"broker {broker_name!r} has no master; known names: {', '.join(sorted(masters))}"
        )
    long_name = admin.client.namespace.wrapped(topic)
    known: dict[str, TopicConfig] = {}
    for name, addr in sorted(masters.items()):
        if broker_name in (None, name):
            config = (await admin.calls.topics(addr)).get(long_name)
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
            await admin.calls.update_topic(masters[name], changed)
        changes.append(PermissionChange(name, int(config.perm), int(permission)))
    return changes


# ------------------------------------------------------------------------------------------- counts


@attrs.frozen
class TopicCount:
    """What brokers have counted for a topic, or of a topic for one group."""

    topic: str
    group: str | None
    """The group that read it; None for what was stored."""
    messages: int | None
    bytes: int | None
    messages_today: int | None
    """In the last 24 hours, as far as brokers count so long. Each number is None if a broker did not answer."""


async def topic_counts(
    admin: Admin, topics: Sequence[str], *, period: Period = "minute"
) -> list[TopicCount]:
    """Return what was stored in topics, and what each group has read, in the last minute, hour or day.

    Brokers count in samples of ten seconds, so the last ones may be missing; Apache's hours and days contain finished
    periods only. Slaves are not asked: what groups read there is in `served`. Raises RouteNotFoundError for an unknown
    topic, NotReachableError or BrokerError if a broker does not say which groups read a topic.
    """
    return await _counts(admin, topics, period, admin.groups_of, silent={})


async def topic_counts_and_failures(
    admin: Admin, topics: Sequence[str], *, period: Period = "minute"
) -> tuple[list[TopicCount], dict[str, str]]:
    """Return the counts as `topic_counts` does, as far as brokers answer, and why others did not, by broker name.

    Groups that only a silent broker knows are missing. Raises RouteNotFoundError for an unknown topic.
    """
    silent: dict[str, str] = {}

    async def groups_of(topic: str) -> list[str]:
        groups, failed = await admin.groups_of_and_failures(topic)
        silent.update((name, error.what) for name, error in failed.items())
        return groups

    return await _counts(admin, topics, period, groups_of, silent), silent


async def _counts(
    admin: Admin,
    topics: Sequence[str],
    period: Period,
    groups_of: Callable[[str], Awaitable[list[str]]],
    silent: dict[str, str],
) -> list[TopicCount]:
    """Return the counts, and note in `silent` which brokers did not answer."""
    masters = await admin.masters()
    wanted: list[tuple[str, str | None, list[str]]] = []
    for topic in topics:
        await admin.client.refresh_topic_route(topic)
        names = broker_names(await admin.client.topic_route(topic))
        wanted.append((topic, None, names))
        wanted += [(topic, group, names) for group in await groups_of(topic)]
    wrapped = admin.client.namespace.wrapped

    async def count(row: tuple[str, str | None, list[str]]) -> TopicCount:
        topic, group, names = row
        key = wrapped(topic) if group is None else f"{wrapped(topic)}@{wrapped(group)}"
        nums = "TOPIC_PUT_NUMS" if group is None else "GROUP_GET_NUMS"
        size = "TOPIC_PUT_SIZE" if group is None else "GROUP_GET_SIZE"

        async def summed(what: str, period: Period) -> int | None:
            counts = [await _counted(admin, masters, name, what, key, period) for name in names]
            silent.update(
                (name, one) for name, one in zip(names, counts, strict=True) if isinstance(one, str)
            )
            return whole_sum(None if isinstance(one, str) else one for one in counts)

        return TopicCount(
            topic, group, await summed(nums, period), await summed(size, period),
            await summed(nums, "day"),
        )  # fmt: skip

    return await in_parallel(wanted, count)


async def _counted(
    admin: Admin, masters: Mapping[str, str], broker: str, what: str, key: str, period: Period
) -> int | str:
    """Return what a broker has counted, or why it did not answer."""
    if broker not in masters:
        return "it has no master now"
    try:
        return (await admin.calls.counted(masters[broker], what, key, period)).sum
    except Error as error:
        return error.what


# ----------------------------------------------------------------------------------------- overview


@attrs.frozen
class TopicOverview:
    """One topic of a cluster."""

    topic: str
    queues: int | None
    """To read, on all brokers that answered; None if none of them has it, and others did not answer."""
    permission: int | None
    """What clients may do on any of its brokers; None as for `queues`."""
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


async def topic_overviews(
    admin: Admin, *, include_system: bool = False
) -> tuple[list[TopicOverview], dict[str, str]]:
    """Return all topics with what brokers know of them, and why brokers did not answer, by name.

    Each master is asked for its topics and offsets once, and twice for each of its topics. Raises RouteNotFoundError
    while no broker is registered.
    """
    names = set(await admin.topics(include_system=include_system))
    masters = await admin.masters()
    known = admin.client.namespace.known
    configs: dict[str, dict[str, TopicConfig]] = defaultdict(dict)
    readers: dict[str, set[str]] = defaultdict(set)

    async def ask(addr: str) -> tuple[Mapping[str, TopicConfig], Iterable[tuple[str, str]]]:
        return await admin.calls.topics(addr), await admin.calls.all_offsets(addr)

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
        key = admin.client.namespace.wrapped(topic)
        for name in configs[topic]:
            try:
                stats.append(await admin.calls.topic_stats(masters[name], topic))
            except Error as error:
                stats.append(None)
                if isinstance(error, AccessRefusedError):
                    refused[name] = error.what
            count = await _counted(admin, masters, name, "TOPIC_PUT_NUMS", key, "minute")
            stored.append(None if isinstance(count, str) else count)
        here = configs[topic]
        groups = None if silent else sorted(readers[topic])
        return overview_of(topic, here, stats, None if silent else whole_sum(stored), groups)

    found = await in_parallel(sorted(names), overview)
    if silent:
        found = [attrs.evolve(one, messages=None, last_stored=None) for one in found]
        found = [
            one if one.brokers else attrs.evolve(one, queues=None, permission=None) for one in found
        ]
    return found, refused | silent


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


# --------------------------------------------------------------------------------- groups of a topic


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


async def readers_of(admin: Admin, topic: str) -> list[str]:
    """Return the groups that read a topic. Raises RouteNotFoundError."""
    names = await admin.groups_of(topic)
    # Brokers of 5.3 list the topic in place of groups with members.
    if topic in names and topic not in await admin.groups(include_system=True):
        names.remove(topic)
    return names


async def topic_readers(admin: Admin, topic: str) -> list[TopicReader]:
    """Return the groups that read a topic, with their lag and the verdict on it by the brokers' last minute.

    Brokers of 5.3 do not report groups that have members but have never committed. Raises RouteNotFoundError.
    """
    groups = await readers_of(admin, topic)
    if not groups:
        return []
    report = await admin.lag(*groups, topic=topic, seconds=0)
    rows = {row.group: row for row in report.rows}
    answering = {
        name: addr for name, addr in (await admin.masters()).items() if name not in report.silent
    }

    async def reader(group: str) -> TopicReader:
        model, members = None, None
        try:
            found = await admin.consumer_connections(group, masters=answering)
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
