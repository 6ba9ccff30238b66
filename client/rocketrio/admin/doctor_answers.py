"""Asks a cluster for everything that `admin.diagnose()` judges, once, and only by requests that read.

Invariant: what could not be asked is in `unknown`, with the reason.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import attrs
import msgspec
import trio

from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.cluster_status import UNKNOWN_STATES, BrokerStatus
from rocketrio.admin.group_check import GroupCheck, check_group
from rocketrio.admin.health import ClusterAnswers, health_of
from rocketrio.admin.lag import lag_report
from rocketrio.admin.lag_values import LagReport
from rocketrio.admin.lag_window import LagWindow
from rocketrio.admin.transactions import Transactions, ask_transactions
from rocketrio.client import ClientInstance
from rocketrio_protocol.bodies.route import TopicRouteData
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.errors import Error, GroupNotExistError
from rocketrio_protocol.names import is_system_topic

GROUPS_ASKED: Final = 200
"""The groups whose members are asked; those that are behind come first."""
TOPICS_ASKED: Final = 2_000
"""The topics whose routes are asked for."""
PARALLEL_GROUPS: Final = 4
PARALLEL_ROUTES: Final = 16

_LAG: Final = "lag of groups"
_LAG_AT: Final = "lag at "

T = TypeVar("T")


@attrs.frozen
class DoctorAnswers:
    """What a cluster answered."""

    cluster: ClusterAnswers
    now_ms: int
    settings: Mapping[str, Mapping[str, str]] = attrs.Factory(dict)
    """The settings of brokers under Java's names, by address."""
    topics: Mapping[str, Mapping[str, TopicConfig]] = attrs.Factory(dict)
    """The topics of masters that answered, by broker name."""
    listed: Sequence[str] = ()
    """The topics that name servers know."""
    routes: Mapping[str, TopicRouteData | None] = attrs.Factory(dict)
    """The routes of topics that are not RocketMQ's own; None if no name server knows the topic any more."""
    lag: LagReport | None = None
    groups: Sequence[GroupCheck] = ()
    transactions: Mapping[str, Transactions] = attrs.Factory(dict)
    """By broker name."""
    unknown: Mapping[str, str] = attrs.Factory(dict)
    """What could not be asked, and why."""
    slaves_wanted: int | None = None
    """How many slaves each name should have; None if the caller did not say."""

    def with_lag(self, lag: LagReport) -> "DoctorAnswers":
        """Return the answers with a later report on the lag of groups."""
        kept = {what: why for what, why in self.unknown.items() if not what.startswith(_LAG_AT)}
        return attrs.evolve(self, lag=lag, unknown=kept | _silent(lag))

    def without_later_lag(self, error: Error) -> "DoctorAnswers":
        """Return the answers with the reason why groups could not be watched."""
        return attrs.evolve(self, unknown={**self.unknown, _LAG: error.what})


@attrs.define
class _Doctor:
    """Asks the questions, and keeps why some were not answered."""

    client: ClientInstance
    calls: AdminCalls
    cluster: ClusterAnswers
    unknown: dict[str, str]
    settings: dict[str, Mapping[str, str]] = attrs.Factory(dict)
    topics: dict[str, Mapping[str, TopicConfig]] = attrs.Factory(dict)
    transactions: dict[str, Transactions] = attrs.Factory(dict)
    routes: dict[str, TopicRouteData | None] = attrs.Factory(dict)
    groups: list[GroupCheck] = attrs.Factory(list)

    async def ask(self, what: str, question: Awaitable[T]) -> T | None:
        """Return the answer, or None."""
        try:
            return await question
        except GroupNotExistError:
            raise
        except Error as error:
            self.unknown[what] = error.what
            return None

    async def ask_broker(self, one: BrokerStatus) -> None:
        where, addr = f"{one.broker_name} {one.broker_id} ({one.address})", one.address
        settings = await self.ask(f"settings of {where}", self.calls.broker_config(addr))
        if settings is not None:
            self.settings[addr] = settings
        if addr not in self.cluster.runtimes:
            self.unknown[f"runtime of {where}"] = "it did not answer"
        if one.role == "slave":
            return
        topics = await self.ask(f"topics of {where}", self.calls.topics(addr))
        if topics is not None:
            space = self.client.namespace
            self.topics[one.broker_name] = {
                short: msgspec.structs.replace(config, topic_name=short)
                for name, config in topics.items()
                for short in space.known([name])
            }
        transactions = await self.ask(
            f"transactions of {where}", ask_transactions(self.calls, addr)
        )
        if transactions is not None:
            self.transactions[one.broker_name] = transactions

    async def ask_routes(self, listed: Sequence[str]) -> None:
        names = {name for one in self.cluster.brokers for name in (one.cluster, one.broker_name)}
        wanted = sorted(topic for topic in listed if not is_system_topic(topic, names))

        async def ask(topic: str) -> None:
            what = f"route of {topic}"
            route = await self.ask(what, self.client.name_servers.topic_route(topic))
            if what not in self.unknown:
                self.routes[topic] = route

        await _each(PARALLEL_ROUTES, wanted[:TOPICS_ASKED], ask)
        if len(wanted) > TOPICS_ASKED:
            what = f"routes of {len(wanted) - TOPICS_ASKED:,} topics"
            self.unknown[what] = f"only the first {TOPICS_ASKED:,} are asked for"

    async def ask_groups(self, lag: LagReport) -> None:
        """Ask the members of the groups that have any; the groups that are behind come first."""
        wanted = list(dict.fromkeys(row.group for row in lag.rows if row.members != 0))
        masters = {
            one.broker_name: one.address
            for one in self.cluster.brokers
            if one.role != "slave" and one.state not in UNKNOWN_STATES
        }

        async def ask(group: str) -> None:
            question = check_group(self.client, self.calls, masters, group)
            found = await self.ask(f"members of {group}", question)
            if found is not None and (found.answers.members or found.answers.silent):
                self.groups.append(found)
                for who in found.answers.refused:
                    self.unknown[f"members of {group} at {who}"] = found.answers.silent[who]

        await _each(PARALLEL_GROUPS, wanted[:GROUPS_ASKED], ask)
        if len(wanted) > GROUPS_ASKED:
            what = f"members of {len(wanted) - GROUPS_ASKED:,} groups"
            self.unknown[what] = f"only those of {GROUPS_ASKED} groups are asked; name others"


async def ask_routes(
    client: ClientInstance, calls: AdminCalls, cluster: ClusterAnswers
) -> DoctorAnswers:
    """Ask for topics, their routes and the settings of brokers, and for nothing about groups."""
    doctor = _Doctor(client, calls, cluster, dict(health_of(cluster).silent))
    return await _asked(doctor, None)


async def ask_doctor(
    client: ClientInstance, calls: AdminCalls, cluster: ClusterAnswers, window: LagWindow
) -> DoctorAnswers:
    """Ask for everything that `cluster` does not say; the window's samples are taken here.

    Raises GroupNotExistError if no broker knows a group that was named.
    """
    doctor = _Doctor(client, calls, cluster, dict(health_of(cluster).silent))
    return await _asked(doctor, window)


async def _asked(doctor: _Doctor, window: LagWindow | None) -> DoctorAnswers:
    client, cluster = doctor.client, doctor.cluster
    async with trio.open_nursery() as nursery:
        for one in cluster.brokers:
            if one.state not in UNKNOWN_STATES:
                nursery.start_soon(doctor.ask_broker, one)
    listed = await doctor.ask("topics of name servers", client.name_servers.topics())
    listed = client.namespace.known(listed or [])
    await doctor.ask_routes(listed)

    async def ask_lag(window: LagWindow) -> LagReport:
        await window.run()
        return await lag_report(window)

    lag = None if window is None else await doctor.ask(_LAG, ask_lag(window))
    if lag is not None:
        doctor.unknown |= _silent(lag)
        await doctor.ask_groups(lag)
    return DoctorAnswers(
        cluster,
        client.wall_clock.now_ms(),
        doctor.settings,
        doctor.topics,
        listed,
        doctor.routes,
        lag,
        sorted(doctor.groups, key=lambda one: one.answers.group),
        doctor.transactions,
        doctor.unknown,
    )


def _silent(lag: LagReport) -> dict[str, str]:
    return {f"{_LAG_AT}{name}": why for name, why in lag.silent.items()}


async def _each(parallel: int, items: Sequence[str], ask: Callable[[str], Awaitable[None]]) -> None:
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await ask(item)

    async with trio.open_nursery() as nursery:
        for _ in range(min(parallel, len(items))):
            nursery.start_soon(work)
