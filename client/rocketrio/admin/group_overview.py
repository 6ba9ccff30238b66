"""A table of all groups, the members of one, and how they ask for messages (5.x: pull or pop).

Invariant: a lag that is unknown for one topic is unknown for the group.
Answers to: ConsumerProgressSubCommand without a group, ConsumerConnectionSubCommand, SetConsumeModeSubCommand.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import attrs

from rocketrio.admin.admin import Admin
from rocketrio.admin.admin_values import whole_sum
from rocketrio.admin.cluster_questions import in_parallel
from rocketrio.admin.diagnosis.snapshot import ask_members
from rocketrio.admin.lag_values import GroupLag
from rocketrio_protocol.bodies.heartbeat import SubscriptionData
from rocketrio_protocol.bodies.running_info import (
    PROP_CONSUMER_START_TIMESTAMP,
    ConsumerRunningInfo,
)
from rocketrio_protocol.bodies.stats import Connection
from rocketrio_protocol.errors import (
    AccessRefusedError,
    ConsumerNotOnlineError,
    Error,
    RequestCodeNotSupportedError,
    RouteNotFoundError,
)
from rocketrio_protocol.lag import Verdict
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.record.properties import decimal_value
from rocketrio_protocol.times import time_of

Mode = Literal["pull", "pop"]


@attrs.frozen
class GroupOverview:
    """One group of a cluster."""

    group: str
    model: str | None
    """`CLUSTERING` or `BROADCASTING`; None without members, or if they are unknown."""
    members: int | None
    """None if no broker could report them."""
    topics: Sequence[str]
    """Where it has committed, without its retry topic."""
    lag: int | None
    verdict: Verdict
    why: str


def overviews_of(groups: Iterable[str], rows: Iterable[GroupLag]) -> list[GroupOverview]:
    """Return one value for each group from its rows by topic, the worst first; models are not in rows."""
    by_group: dict[str, list[GroupLag]] = defaultdict(list)
    for row in rows:
        by_group[row.group].append(row)
    found = []
    for group in sorted({*groups, *by_group}):
        own = by_group[group]
        topics = [row.topic for row in own if row.topic is not None]
        named = [topic for topic in topics if not topic.startswith(RETRY_PREFIX)]
        known = [row.members for row in own if row.members is not None]
        worst = max(own, key=lambda row: row.verdict.severity, default=None)
        found.append(
            GroupOverview(
                group,
                None,
                max(known, default=None),
                sorted(named),
                whole_sum(row.lag for row in own) if topics else None,
                Verdict.UNKNOWN if worst is None else worst.verdict,
                "it has committed nothing" if worst is None else worst.judgement.why,
            )
        )
    return sorted(found, key=lambda one: (-one.verdict.severity, one.group))


async def group_overviews(
    admin: Admin, *, include_system: bool = False
) -> tuple[list[GroupOverview], Mapping[str, str]]:
    """Return all groups, the worst first, and why brokers did not answer, by name.

    The verdicts are those of the brokers' last minute. Raises RouteNotFoundError without a master.
    """
    report = await admin.lag(seconds=0)
    answering = {
        name: addr for name, addr in (await admin.masters()).items() if name not in report.silent
    }
    names = await admin.groups(include_system=include_system, masters=answering)
    rows = [row for row in report.rows if row.group in names]
    refused: dict[str, str] = {}

    async def with_members(one: GroupOverview) -> GroupOverview:
        try:
            found = await admin.consumer_connections(one.group, masters=answering)
        except ConsumerNotOnlineError:
            return attrs.evolve(one, members=None if report.silent else 0)
        except Error as error:
            if isinstance(error, AccessRefusedError):
                refused[one.group] = error.what
            return one
        return attrs.evolve(one, model=found.message_model, members=len(found.connection_set))

    found = await in_parallel(overviews_of(names, rows), with_members)
    return found, {**{f"group {name}": why for name, why in refused.items()}, **report.silent}


# ------------------------------------------------------------------------------------------- members


@attrs.frozen
class GroupMember:
    """One member of a group, with what it reports of itself."""

    client_id: str
    address: str
    language: str
    version: int
    """The number of the protocol's version, as 407 for 4.9.7."""
    since: datetime | None
    """When it was started, by its own clock. None if it did not report its state, as for the next two."""
    queues: Sequence[MessageQueue] | None
    """The queues that it owns, also those of the retry topic."""
    subscriptions: Sequence[SubscriptionData] | None


async def group_members(admin: Admin, group: str) -> tuple[list[GroupMember], Mapping[str, str]]:
    """Return the members of a group with their queues and subscriptions, and why others did not report them.

    Brokers ask each member, which takes up to ten seconds if one is silent. Raises RouteNotFoundError without a master.
    """
    found = await ask_members(admin.client, admin.calls, await admin.masters(), group)
    members = [
        member_of(connection, found.running.get(client_id))
        for client_id, connection in sorted(found.members.items())
    ]
    return members, found.silent


def member_of(connection: Connection, info: ConsumerRunningInfo | None) -> GroupMember:
    """Return a member from its connection and what it reported."""
    since = queues = subscriptions = None
    if info is not None:
        started = decimal_value(info.properties.get(PROP_CONSUMER_START_TIMESTAMP))
        since = None if started is None else time_of(started)
        queues = sorted(queue for queue, state in info.mq_table.items() if not state.droped)
        subscriptions = sorted(info.subscription_set, key=lambda one: one.topic)
    return GroupMember(
        connection.client_id, connection.client_addr, connection.language, connection.version,
        since, queues, subscriptions,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------- modes


@attrs.frozen
class ModeChange:
    """How members of a group get the messages of a topic of one broker."""

    broker_name: str
    before: str | None
    """`pull` or `pop`; None if the broker reports no mode, which means pull."""
    after: str


async def set_mode(
    admin: Admin,
    group: str,
    topic: str,
    mode: Mode,
    *,
    share_queues: int = 0,
    dry_run: bool = False,
) -> list[ModeChange]:
    """Have members of a group ask for a topic by pull or by pop, at all its masters; with `dry_run` change nothing.

    In pop mode, `share_queues` is how many more members share the queues of one. Raises RequestCodeNotSupportedError
    from brokers that do not know pop (rocketrio's, and Apache's before 5.0), RouteNotFoundError.
    """
    await admin.client.refresh_topic_route(topic)
    route = await admin.client.topic_route(topic)
    masters = await admin.masters()
    wrapped = admin.client.namespace.wrapped
    changes = []
    for name in sorted(broker.broker_name for broker in route.broker_datas):
        if name not in masters:
            raise RouteNotFoundError(f"broker {name} has no master now", topic=topic)
        addr = masters[name]
        try:
            modes = await admin.calls.request_modes(addr)
            before = modes.get(wrapped(topic), {}).get(wrapped(group))
            if not dry_run:
                await admin.calls.set_request_mode(
                    addr, wrapped(group), wrapped(topic), mode, share_queues
                )
        except RequestCodeNotSupportedError as error:
            raise RequestCodeNotSupportedError(
                f"the broker at {addr} has one mode only, pull: it does not know pop",
                broker_addr=addr,
                remedy="Pop is a feature of Apache's brokers 5.0 and later",
            ) from error
        changes.append(ModeChange(name, before, mode))
    return changes
