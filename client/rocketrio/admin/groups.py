"""Consumer groups: their settings, a table of all of them, the members of one, and how these ask for messages.

Invariant: a change is complete when every broker concerned has confirmed it; an error names the first that did not.
Invariant: a lag that is unknown for one topic is unknown for the group.
Answers to: ConsumerProgressSubCommand without a group, ConsumerConnectionSubCommand, SetConsumeModeSubCommand.
Unlike Java: settings of a group are changed one by one.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

import attrs
import msgspec

from rocketrio.admin.clients import ClientAdmin
from rocketrio.admin.cluster_questions import ask_each, in_parallel, whole_sum
from rocketrio.admin.diagnosis.snapshot import ask_members
from rocketrio.admin.lag import LagAdmin
from rocketrio.admin.lag_values import GroupLag
from rocketrio.routing import FindBrokerResult
from rocketrio.routing.queues import broker_names
from rocketrio_protocol.bodies.heartbeat import SubscriptionData
from rocketrio_protocol.bodies.inspection import MessageRequestMode
from rocketrio_protocol.bodies.running_info import (
    PROP_CONSUMER_START_TIMESTAMP,
    ConsumerRunningInfo,
)
from rocketrio_protocol.bodies.stats import Connection
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.commands.admin import (
    GetAllMessageRequestModeRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    SetMessageRequestModeRequestHeader,
)
from rocketrio_protocol.errors import (
    AccessRefusedError,
    ConfigError,
    ConsumerNotOnlineError,
    Error,
    GroupNotExistError,
    NotAuthorizedError,
    RequestCodeNotSupportedError,
    RouteNotFoundError,
)
from rocketrio_protocol.lag import Verdict
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import RETRY_PREFIX, group_name_problem, is_system_group
from rocketrio_protocol.record.properties import decimal_value
from rocketrio_protocol.times import time_of

Mode = Literal["pull", "pop"]


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


@attrs.frozen
class ModeChange:
    """How members of a group get the messages of a topic of one broker."""

    broker_name: str
    before: str | None
    """`pull` or `pop`; None if the broker reports no mode, which means pull."""
    after: str


class GroupAdmin(ClientAdmin, LagAdmin):
    """The methods of `Admin` about consumer groups."""

    __slots__ = ()

    async def groups(
        self, *, include_system: bool = False, masters: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return the names of the consumer groups that any master knows (of those given), of one namespace.

        Groups of RocketMQ's own tools are included only if requested. Raises NotReachableError or BrokerError for the
        first master that does not answer.
        """
        names, failed = await self.groups_and_failures(
            include_system=include_system, masters=masters
        )
        for error in failed.values():
            raise error
        return names

    async def groups_and_failures(
        self, *, include_system: bool = False, masters: Mapping[str, str] | None = None
    ) -> tuple[list[str], dict[str, Error]]:
        """Return the groups as `groups` does, and why masters did not answer, by broker name.

        Raises the error of the first master if none answers.
        """
        asked = await self.masters() if masters is None else masters
        answers, failed = await ask_each(asked, self.calls.groups)
        if failed and not answers:
            raise next(iter(failed.values()))
        names = {name for table in answers.values() for name in self.client.namespace.known(table)}
        return sorted(name for name in names if include_system or not is_system_group(name)), failed

    async def group(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """Return a group's settings by broker name, for brokers that know it.

        Raises GroupNotExistError if none does, NotReachableError or BrokerError for the first master that does not
        answer.
        """
        found, failed = await self.group_and_failures(group)
        for error in failed.values():
            raise error
        return found

    async def group_and_failures(
        self, group: str, *, masters: Mapping[str, str] | None = None
    ) -> tuple[dict[str, SubscriptionGroupConfig], dict[str, Error]]:
        """Return a group's settings as `group` does, and why masters (of those given) did not answer, by broker name.

        Raises GroupNotExistError if all answer and none knows the group; if none of some knows it, the error of the
        first that did not answer.
        """
        asked = await self.masters() if masters is None else masters
        answers, failed = await ask_each(asked, lambda addr: self._settings(addr, group))
        found = {
            name: msgspec.convert({**settings, "groupName": group}, SubscriptionGroupConfig)
            for name, settings in answers.items()
            if settings is not None
        }
        if not found:
            for error in failed.values():
                raise error
            raise GroupNotExistError(
                f"no master knows the group {group!r}",
                remedy="`rocketrio group list` shows the groups",
            )
        return found, failed

    async def create_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        dry_run: bool = False,
        **settings: Unpack[GroupSettings],
    ) -> list[str]:
        """Create a group on every master (of one cluster), or change the given settings of it; return the broker names.

        With `dry_run` nothing is changed. Brokers create groups automatically with default settings, unless that is
        turned off. Raises ConfigError for an invalid name or number, RouteNotFoundError without such a master,
        NotReachableError before any change if one does not answer, BrokerError if one refuses.
        """
        problem = group_name_problem(group) or _settings_problem(settings)
        if problem is not None:
            raise ConfigError(problem)
        masters = await self.masters(cluster)
        addrs = [] if dry_run else list(masters.values())
        there = await in_parallel(addrs, lambda addr: self._settings(addr, group))
        for addr, found in zip(addrs, there, strict=True):
            # Settings that only a newer broker knows stay as they are.
            known = found or {}
            config = msgspec.convert({"groupName": group, **known}, SubscriptionGroupConfig)
            changed = msgspec.to_builtins(msgspec.structs.replace(config, **settings))
            # Attributes are sent as changes, and there are none here.
            await self.calls.update_group(addr, {**known, **changed, "attributes": {}})
        return sorted(masters)

    async def _settings(self, addr: str, group: str) -> dict[str, Any] | None:
        # Brokers list groups under their long names.
        long_name = self.client.namespace.wrapped(group)
        try:
            return (await self.calls.groups(addr)).get(long_name)
        except NotAuthorizedError:
            # As for topics. Brokers of RocketMQ 5 would create a group that is asked for.
            with suppress(GroupNotExistError):
                header = GetSubscriptionGroupConfigRequestHeader(long_name)
                return await self.calls.read(addr, header, "group not read")
            return None

    async def delete_group(self, group: str, *, with_offsets: bool = True) -> list[str]:
        """Remove a group and its commits from every master that knows it; return their broker names.

        Running members bring the group back with their next heartbeat: stop them first. Raises GroupNotExistError,
        BrokerError.
        """
        masters = await self.masters()
        holders, failed = await self.group_and_failures(group, masters=masters)
        for error in failed.values():
            raise error
        for name in holders:
            await self.calls.delete_group(masters[name], group, with_offsets=with_offsets)
        return sorted(holders)

    async def groups_of(self, topic: str) -> list[str]:
        """Return the groups that consume a topic: those with members now, and those that committed offsets there.

        Brokers of 5.3 report the topic's own name in place of the groups with members. Raises RouteNotFoundError for an
        unknown topic, NotReachableError or BrokerError for the first broker that does not answer.
        """
        names, failed = await self.groups_of_and_failures(topic)
        for error in failed.values():
            raise error
        return names

    async def groups_of_and_failures(self, topic: str) -> tuple[list[str], dict[str, Error]]:
        """Return the groups as `groups_of` does, as far as brokers answer, and why others did not, by broker name."""
        await self.client.refresh_topic_route(topic)
        route = await self.client.topic_route(topic)

        async def ask(at: FindBrokerResult) -> list[str]:
            header = QueryTopicConsumeByWhoRequestHeader(topic)
            found = await self.calls.read(at.addr, header, "groups of the topic not read")
            return found.group_list

        answers, failed = await ask_each(
            {name: name for name in broker_names(route)},
            lambda name: self.client.ask_broker(MessageQueue(topic, name, 0), ask),
        )
        names = {name for answer in answers.values() for name in answer}
        return sorted(map(self.client.namespace.unwrapped, names)), failed

    async def group_overviews(
        self, *, include_system: bool = False
    ) -> tuple[list[GroupOverview], Mapping[str, str]]:
        """Return all groups, the worst first, and why brokers did not answer, by name.

        The verdicts are those of the brokers' last minute. Raises RouteNotFoundError without a master.
        """
        report = await self.lag(seconds=0)
        answering = {
            name: addr for name, addr in (await self.masters()).items() if name not in report.silent
        }
        names = await self.groups(include_system=include_system, masters=answering)
        rows = [row for row in report.rows if row.group in names]
        refused: dict[str, str] = {}

        async def with_members(one: GroupOverview) -> GroupOverview:
            try:
                found = await self.consumer_connections(one.group, masters=answering)
            except ConsumerNotOnlineError:
                return attrs.evolve(one, members=None if report.silent else 0)
            except Error as error:
                if isinstance(error, AccessRefusedError):
                    refused[one.group] = error.what
                return one
            return attrs.evolve(one, model=found.message_model, members=len(found.connection_set))

        found = await in_parallel(overviews_of(names, rows), with_members)
        return found, {**{f"group {name}": why for name, why in refused.items()}, **report.silent}

    async def group_members(self, group: str) -> tuple[list[GroupMember], Mapping[str, str]]:
        """Return the members of a group with their queues and subscriptions, and why others did not report them.

        Brokers ask each member, which takes up to ten seconds if one is silent. Raises RouteNotFoundError without a
        master.
        """
        found = await ask_members(self.client, self.calls, await self.masters(), group)
        members = [
            member_of(connection, found.running.get(client_id))
            for client_id, connection in sorted(found.members.items())
        ]
        return members, found.silent

    async def set_consume_mode(
        self,
        group: str,
        topic: str,
        mode: Mode,
        *,
        share_queues: int = 0,
        dry_run: bool = False,
    ) -> list[ModeChange]:
        """Have members of a group ask for a topic by pull or by pop, at all its masters; with `dry_run` change nothing.

        In pop mode, `share_queues` is how many more members share the queues of one. Raises
        RequestCodeNotSupportedError from brokers that do not know pop (rocketrio's, and Apache's before 5.0),
        RouteNotFoundError.
        """
        await self.client.refresh_topic_route(topic)
        route = await self.client.topic_route(topic)
        masters = await self.masters()
        wrapped = self.client.namespace.wrapped
        changes = []
        for name in sorted(broker.broker_name for broker in route.broker_datas):
            if name not in masters:
                raise RouteNotFoundError(f"broker {name} has no master now", topic=topic)
            addr = masters[name]
            try:
                known = await self.calls.read(
                    addr, GetAllMessageRequestModeRequestHeader(), "modes not read"
                )
                modes = known.message_request_mode_map.get(wrapped(topic), {})
                before = modes[wrapped(group)].mode.lower() if wrapped(group) in modes else None
                if not dry_run:
                    new = MessageRequestMode(
                        wrapped(topic), wrapped(group), mode.upper(), share_queues
                    )
                    await self.client.api.call(
                        addr,
                        SetMessageRequestModeRequestHeader(),
                        new.to_json(),
                        what=f"mode of {wrapped(group)} not changed",
                        topic=wrapped(topic),
                        timeout=self.calls.timeout,
                    )
            except RequestCodeNotSupportedError as error:
                raise RequestCodeNotSupportedError(
                    f"the broker at {addr} has one mode only, pull: it does not know pop",
                    broker_addr=addr,
                    remedy="Pop is a feature of Apache's brokers 5.0 and later",
                ) from error
            changes.append(ModeChange(name, before, mode))
        return changes


def _settings_problem(settings: GroupSettings) -> str | None:
    numbers = {name: number for name, number in settings.items() if isinstance(number, int)}
    for name, number in numbers.items():
        lowest = -1 if name == "retry_max_times" else 0
        if number < lowest:
            return f"{name}={number} is less than {lowest}"
    return None


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
