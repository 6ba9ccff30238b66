"""Reads what a cluster has, plans what files want of it, and carries that out; declared.py has the rules.

Invariant: a plan that does not hold any more changes nothing.
Invariant: what a broker did not take over is reported as such, not as done.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import msgspec
import trio

from rocketrio.admin.cluster_questions import registered_brokers
from rocketrio.admin.declared import (
    ATTRIBUTE,
    BROKER,
    EVERYWHERE,
    EXISTS,
    KINDS,
    ApplyPlan,
    Change,
    DeclaredPlace,
    Field,
    Kind,
    State,
    differences,
    group_fields,
    perm_number,
    refuse_system_things,
    settings_fields,
    spread,
    still_holds,
    topic_fields,
    value_there,
)
from rocketrio.admin.name_servers import ORDER_NAMESPACE, NameServerAdmin
from rocketrio.admin.reset_plan import PlanChangedError
from rocketrio.admin.topics import TopicAdmin
from rocketrio.limits import DEFAULT_TOPIC_QUEUE_NUMS
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.bodies.topics import Permission, SubscriptionGroupConfig, TopicConfig
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error
from rocketrio_protocol.names import is_system_group, is_system_topic


@attrs.frozen
class ClusterBrokers:
    """Where the brokers of a cluster are."""

    masters: Mapping[str, str]
    """Addresses by broker name."""
    brokers: Mapping[str, str]
    """Addresses of all, by `name/id`."""
    owners: frozenset[str]
    """The names of clusters and brokers: each has a topic of its own."""

    @classmethod
    def of(cls, info: ClusterInfo) -> "ClusterBrokers":
        """Return what name servers know."""
        table = info.broker_addr_table
        return cls(
            {
                name: one.broker_addrs[MASTER_ID]
                for name, one in sorted(table.items())
                if MASTER_ID in one.broker_addrs
            },
            {
                f"{name}/{number}": addr
                for name, one in sorted(table.items())
                for number, addr in sorted(one.broker_addrs.items())
            },
            frozenset({*table, *info.cluster_addr_table}),
        )


class DeclaredAdmin(TopicAdmin, NameServerAdmin):
    """The methods of `Admin` about a cluster as files declare it."""

    __slots__ = ()

    async def read_state(
        self, kinds: Collection[Kind] = KINDS, *, namespaces: Collection[str] = ()
    ) -> dict[DeclaredPlace, dict[str, Field]]:
        """Return the topics, groups, settings and texts of a cluster, without those of RocketMQ itself.

        Texts are those of ORDER_TOPIC_CONFIG and of `namespaces`: name servers do not list their namespaces. Raises
        NotReachableError or BrokerError for the first broker that does not answer: a part would look like the whole.
        """
        cluster = ClusterBrokers.of(await registered_brokers(self.client))
        found: dict[DeclaredPlace, dict[str, Field]] = {}
        async with trio.open_nursery() as nursery:
            for name, addr in cluster.masters.items():
                if "topics" in kinds:
                    nursery.start_soon(self._read_topics, cluster, name, addr, found)
                if "groups" in kinds:
                    nursery.start_soon(self._read_groups, name, addr, found)
            if "settings" in kinds:
                for name, addr in cluster.brokers.items():
                    nursery.start_soon(self._read_settings, name, addr, found)
            if "kv" in kinds:
                for namespace in {ORDER_NAMESPACE, *namespaces}:
                    nursery.start_soon(self._read_texts, namespace, found)
        return dict(sorted(found.items()))

    async def _read_topics(
        self,
        cluster: ClusterBrokers,
        name: str,
        addr: str,
        found: dict[DeclaredPlace, dict[str, Field]],
    ) -> None:
        space = self.client.namespace
        for long_name, config in (await self.calls.topics(addr)).items():
            for topic in space.known([long_name]):
                if not is_system_topic(topic, cluster.owners):
                    found[DeclaredPlace("topics", topic, name)] = topic_fields(config)

    async def _read_groups(
        self, name: str, addr: str, found: dict[DeclaredPlace, dict[str, Field]]
    ) -> None:
        space = self.client.namespace
        for long_name, settings in (await self.calls.groups(addr)).items():
            for group in space.known([long_name]):
                if not is_system_group(group):
                    found[DeclaredPlace("groups", group, name)] = group_fields(settings)

    async def _read_settings(
        self, name: str, addr: str, found: dict[DeclaredPlace, dict[str, Field]]
    ) -> None:
        found[DeclaredPlace("settings", BROKER, name)] = settings_fields(
            await self.calls.broker_config(addr)
        )

    async def _read_texts(
        self, namespace: str, found: dict[DeclaredPlace, dict[str, Field]]
    ) -> None:
        for one in (await self.name_server_texts(namespace)).values():
            if isinstance(one, Error):
                raise one
            for key, value in one.items():
                found[DeclaredPlace("kv", f"{namespace}/{key}", EVERYWHERE)] = {"value": value}

    async def plan_state(
        self, wanted: Mapping[DeclaredPlace, dict[str, Field]], *, prune: bool = False
    ) -> ApplyPlan:
        """Return what would change if everything wanted became so; nothing is changed.

        With `prune` topics, groups and texts that are not wanted are removed, of kinds of which something is. Raises
        ConfigError for a topic or group of RocketMQ itself, and what `read_state` raises.
        """
        cluster = ClusterBrokers.of(await registered_brokers(self.client))
        refuse_system_things(wanted, cluster.owners)
        everywhere, unknown = spread(wanted, cluster.masters, cluster.brokers)
        now = await self._now(wanted)
        return ApplyPlan(differences(now, everywhere, prune=prune), unknown)

    async def _now(self, places: Iterable[DeclaredPlace]) -> State:
        places = list(places)
        kinds = {place.kind for place in places}
        namespaces = {place.name.partition("/")[0] for place in places if place.kind == "kv"}
        return await self.read_state(kinds, namespaces=namespaces)

    async def apply_state(self, plan: ApplyPlan) -> dict[Change, str]:
        """Carry out a plan; return the changes that were not done, and why.

        Raises PlanChangedError, and changes nothing, if something is not any more as the plan says. After a cancel any
        of the changes may be done; a new plan shows which are left.
        """
        now = await self._now([one.place for one in plan.changes])
        changed = still_holds(plan.changes, now)
        if changed is not None:
            known = now.get(changed.place)
            value = "missing" if known is None else known.get(changed.field, "there")
            where = f" on {changed.place.at}" if changed.place.at else ""
            raise PlanChangedError(
                f"{changed.place.name}{where}: {changed.field or 'it'} is {value} now, not {changed.before}"
            )
        work = _Work(self, ClusterBrokers.of(await registered_brokers(self.client)))
        failed: dict[Change, str] = {}
        for changes in _steps(plan.changes):
            try:
                await work.do(changes[0].place, changes)
            except Error as error:
                failed |= dict.fromkeys(changes, str(error))
        after = await self._now([one.place for one in plan.changes])
        left = {
            (one.place, one.field): one
            for one in plan.changes
            if one not in failed and not _is_done(one, after)
        }
        return failed | dict.fromkeys(left.values(), "the broker took it without effect")


def _steps(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Yield the changes that one request makes: all of a thing at one place, but each setting alone."""
    by_place: dict[tuple[DeclaredPlace, str], list[Change]] = defaultdict(list)
    for one in changes:
        alone = one.field if one.place.kind == "settings" else ""
        by_place[one.place, alone].append(one)
    yield from by_place.values()


def _is_done(change: Change, now: State) -> bool:
    known = now.get(change.place)
    if change.field == EXISTS:
        return (known is None) is (change.after is None)
    value = None if known is None else value_there(change.place, known, change.field)
    return _is_same(value, change.after)


def _is_same(one: Field | None, other: Field | None) -> bool:
    try:
        return one == other or float(str(one)) == float(str(other))
    except ValueError:
        return False


@attrs.frozen
class _Work:
    admin: DeclaredAdmin
    cluster: ClusterBrokers

    async def do(self, place: DeclaredPlace, changes: Sequence[Change]) -> None:
        """Do all changes of one thing at one place."""
        if place.kind == "kv":
            await self._text(place, changes)
        elif place.kind == "settings":
            new = {one.field: str(one.after) for one in changes}
            await self.admin.calls.update_broker_config(self.cluster.brokers[place.at], new)
        elif changes[0].field == EXISTS and changes[0].after is None:
            await self._remove(place)
        elif place.kind == "topics":
            await self._topic(place, changes)
        else:
            await self._group(place, changes)

    async def _text(self, place: DeclaredPlace, changes: Sequence[Change]) -> None:
        namespace, _, key = place.name.partition("/")
        for one in changes:
            if one.after is None:
                failures = await self.admin.delete_name_server_text(namespace, key)
            else:
                failures = await self.admin.put_name_server_text(namespace, key, str(one.after))
            for error in failures.values():
                raise error

    async def _remove(self, place: DeclaredPlace) -> None:
        addr = self.cluster.masters[place.at]
        if place.kind == "groups":
            await self.admin.calls.delete_group(addr, place.name, with_offsets=True)
            return
        route = await self.admin.client.name_servers.topic_route(place.name)
        others = {one.broker_name for one in route.broker_datas} - {place.at} if route else set()
        if others:
            await self.admin.calls.delete_topic(addr, place.name)
        else:
            await self.admin.delete_topic(place.name)

    async def _topic(self, place: DeclaredPlace, changes: Sequence[Change]) -> None:
        addr = self.cluster.masters[place.at]
        long_name = self.admin.client.namespace.wrapped(place.name)
        new = TopicConfig(long_name, DEFAULT_TOPIC_QUEUE_NUMS, DEFAULT_TOPIC_QUEUE_NUMS)
        known = (await self.admin.calls.topics(addr)).get(long_name, new)
        fields = {one.field: one.after for one in changes if one.field != EXISTS}
        attributes = {
            name.removeprefix(ATTRIBUTE): None if value is None else str(value)
            for name, value in fields.items()
            if name.startswith(ATTRIBUTE)
        }
        values: dict[str, Any] = {
            "read_queue_nums": fields.get("readQueueNums", known.read_queue_nums),
            "write_queue_nums": fields.get("writeQueueNums", known.write_queue_nums),
            "order": fields.get("order", known.order),
        }
        if "perm" in fields:
            rest = known.perm & ~int(Permission.READ | Permission.WRITE)
            values["perm"] = perm_number(str(fields["perm"])) | rest
        config = msgspec.structs.replace(known, topic_name=place.name, **values)
        await self.admin.calls.update_topic(addr, config, attributes)

    async def _group(self, place: DeclaredPlace, changes: Sequence[Change]) -> None:
        addr = self.cluster.masters[place.at]
        long_name = self.admin.client.namespace.wrapped(place.name)
        known = (await self.admin.calls.groups(addr)).get(long_name, {})
        config = msgspec.convert({"groupName": place.name, **known}, SubscriptionGroupConfig)
        fields = {one.field: one.after for one in changes if one.field != EXISTS}
        whole = {**known, **msgspec.to_builtins(config), **fields}
        # Attributes are sent as changes, and there are none here.
        await self.admin.calls.update_group(addr, {**whole, "attributes": {}})
