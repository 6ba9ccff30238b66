"""One snapshot of a cluster: what its servers and members answered, which the rules of the diagnosis judge.

It is taken once, and only by requests that read. `Admin.snapshot` asks about name servers and brokers, which is enough
for `health` and most checks; `Admin.whole_snapshot` asks for everything.

Invariant: what could not be asked is in `unknown` with the reason, and is not in the other fields: it is never 0.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import attrs
import msgspec
import trio

from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.cluster_questions import ask_each
from rocketrio.admin.cluster_status import REFUSED, UNKNOWN_STATES, BrokerStatus
from rocketrio.admin.lag import LagWindow
from rocketrio.admin.lag_values import GroupLag, LagReport
from rocketrio.admin.transactions import Transactions, ask_transactions
from rocketrio.client import ClientInstance
from rocketrio.routing import subscribe_queues
from rocketrio_protocol.bodies.route import ClusterInfo, TopicRouteData
from rocketrio_protocol.bodies.running_info import ConsumerRunningInfo
from rocketrio_protocol.bodies.stats import Connection
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.errors import (
    AccessRefusedError,
    ConsumerNotOnlineError,
    Error,
    GroupNotExistError,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import RETRY_PREFIX, is_system_topic

GROUPS_ASKED: Final = 200
"""The groups whose members are asked; those that are behind come first."""
TOPICS_ASKED: Final = 2_000
"""The topics whose routes are asked for."""
PARALLEL_GROUPS: Final = 4
PARALLEL_ROUTES: Final = 16
PARALLEL_MEMBERS: Final = 16
"""The members of a group that are asked at the same time."""
REBALANCE_PAUSE: Final = 3.0
"""Seconds until members are asked again: while members join or leave, a queue may have no owner or two."""
BROADCASTING: Final = "BROADCASTING"
_GROUP_PROPERTY: Final = "consumerGroup"
"""The property of a member's report that is a name."""

_LAG: Final = "lag of groups"
_LAG_AT: Final = "lag at "

T = TypeVar("T")


# ------------------------------------------------------------------------------------------- values


@attrs.frozen
class GroupMembers:
    """What brokers and members of a group answered."""

    group: str
    model: str | None
    """`CLUSTERING` or `BROADCASTING`; None without members."""
    members: Mapping[str, Connection]
    """By client id, from all brokers that answered."""
    running: Mapping[str, ConsumerRunningInfo]
    """The state of each member that answered."""
    silent: Mapping[str, str]
    """Why the others did not answer: members by client id, brokers by address."""
    queues: Mapping[str, Sequence[MessageQueue]]
    """The queues of the topics that the members read; a topic without a route is missing."""
    shared_ids: Mapping[str, Sequence[str]] = attrs.Factory(dict)
    """Client ids with which more than one connection is open to one broker, and the addresses of these connections."""
    refused: frozenset[str] = frozenset()
    """Those of `silent` about which this account may not ask: nothing is wrong with them."""
    again: "GroupMembers | None" = None
    """What they answered a little later, if a queue had no owner or several."""

    def owners(self) -> dict[MessageQueue, list[str]] | None:
        """Return who owns each queue; None if members do not share queues, or if one did not report its own."""
        is_whole = not self.silent and len(self.running) == len(self.members)
        shares = self.model != BROADCASTING and not any(
            info.mq_pop_table for info in self.running.values()
        )
        found: dict[MessageQueue, list[str]] = {
            queue: [] for queues in self.queues.values() for queue in queues
        }
        owned = False
        for client_id, info in self.running.items():
            for queue, state in info.mq_table.items():
                if not state.droped:
                    owned = True
                    found.setdefault(queue, []).append(client_id)
        return found if is_whole and shares and owned else None


@attrs.frozen
class Snapshot:
    """What a cluster answered."""

    name_servers: Mapping[str, ClusterInfo | Error]
    """By address."""
    brokers: Sequence[BrokerStatus]
    runtimes: Mapping[str, Mapping[str, str]] = attrs.Factory(dict)
    """The runtime information of brokers, by address."""
    now_ms: int | None = None
    """When it was taken, epoch ms."""
    settings: Mapping[str, Mapping[str, str]] = attrs.Factory(dict)
    """The settings of brokers under Java's names, by address."""
    topics: Mapping[str, Mapping[str, TopicConfig]] = attrs.Factory(dict)
    """The topics of masters that answered, by broker name."""
    listed: Sequence[str] = ()
    """The topics that name servers know."""
    routes: Mapping[str, TopicRouteData | None] = attrs.Factory(dict)
    """The routes of topics that are not RocketMQ's own; None if no name server knows the topic any more."""
    lag: LagReport | None = None
    groups: Sequence[GroupMembers] = ()
    transactions: Mapping[str, Transactions] = attrs.Factory(dict)
    """By broker name."""
    slaves_wanted: int | None = None
    """How many slaves each name should have; None if the caller did not say."""
    unknown: Mapping[str, str] = attrs.Factory(dict)
    """What else could not be asked, and why."""

    @property
    def masters(self) -> list[BrokerStatus]:
        """The brokers that are no slaves."""
        return [one for one in self.brokers if one.role != "slave"]

    @property
    def lag_rows(self) -> Sequence[GroupLag]:
        """The progress of groups; nothing if it is unknown."""
        return () if self.lag is None else self.lag.rows

    @property
    def silent(self) -> dict[str, str]:
        """Why brokers and name servers did not answer, by address: what else is wrong there is unknown."""
        servers = {
            address: answer.what
            for address, answer in self.name_servers.items()
            if isinstance(answer, Error)
        }
        return servers | {
            one.address: one.problem or one.state
            for one in self.brokers
            if one.state in UNKNOWN_STATES
        }

    @property
    def refused(self) -> frozenset[str]:
        """Those of `silent` that answer, but not to this account."""
        return frozenset(
            {one.address for one in self.brokers if one.state == REFUSED}
            | {
                address
                for address, answer in self.name_servers.items()
                if isinstance(answer, AccessRefusedError)
            }
        )

    def runtime(self, one: BrokerStatus) -> Mapping[str, str]:
        """Return what a broker reported about itself; nothing if it did not."""
        return self.runtimes.get(one.address, {})

    def of(self, *brokers: BrokerStatus) -> "Snapshot":
        """Return the snapshot as if there were only these brokers."""
        return attrs.evolve(self, brokers=brokers)

    def with_lag(self, lag: LagReport) -> "Snapshot":
        """Return the snapshot with a later report on the lag of groups."""
        kept = {what: why for what, why in self.unknown.items() if not what.startswith(_LAG_AT)}
        return attrs.evolve(self, lag=lag, unknown=kept | _silent(lag))

    def without_later_lag(self, error: Error) -> "Snapshot":
        """Return the snapshot with the reason why groups could not be watched."""
        return attrs.evolve(self, unknown={**self.unknown, _LAG: error.what})

    def with_clocks(self, found: Mapping[str, float | Error]) -> "Snapshot":
        """Return the snapshot with the clocks of masters that reported none, by broker name."""
        brokers = []
        unknown = dict(self.unknown)
        for one in self.brokers:
            ahead = found.get(one.broker_name)
            if one.role != "slave" and one.clock_ahead is None:
                if isinstance(ahead, Error):
                    unknown[f"clock of {one.broker_name}"] = ahead.what
                elif ahead is not None:
                    one = attrs.evolve(one, clock_ahead=ahead)
            brokers.append(one)
        return attrs.evolve(self, brokers=brokers, unknown=unknown)


def number_of(text: str | None) -> float | None:
    """Return a number that a broker reported as text; None if it reported none, or no number."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _silent(lag: LagReport) -> dict[str, str]:
    return {f"{_LAG_AT}{name}": why for name, why in lag.silent.items()}


# ------------------------------------------------------------------------------------------- asking


@attrs.define
class _Questions:
    """Asks what a snapshot of servers lacks, and keeps why some questions were not answered."""

    client: ClientInstance
    calls: AdminCalls
    seen: Snapshot
    unknown: dict[str, str]
    settings: dict[str, Mapping[str, str]] = attrs.Factory(dict)
    topics: dict[str, Mapping[str, TopicConfig]] = attrs.Factory(dict)
    transactions: dict[str, Transactions] = attrs.Factory(dict)
    routes: dict[str, TopicRouteData | None] = attrs.Factory(dict)
    groups: list[GroupMembers] = attrs.Factory(list)

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
        where, addr = one.where, one.address
        settings = await self.ask(f"settings of {where}", self.calls.broker_config(addr))
        if settings is not None:
            self.settings[addr] = settings
        if addr not in self.seen.runtimes:
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
        names = {name for one in self.seen.brokers for name in (one.cluster, one.broker_name)}
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
            for one in self.seen.masters
            if one.state not in UNKNOWN_STATES
        }

        async def ask(group: str) -> None:
            question = ask_twice(self.client, self.calls, masters, group)
            found = await self.ask(f"members of {group}", question)
            if found is not None and (found.members or found.silent):
                self.groups.append(found)
                for who in found.refused:
                    self.unknown[f"members of {group} at {who}"] = found.silent[who]

        await _each(PARALLEL_GROUPS, wanted[:GROUPS_ASKED], ask)
        if len(wanted) > GROUPS_ASKED:
            what = f"members of {len(wanted) - GROUPS_ASKED:,} groups"
            self.unknown[what] = f"only those of {GROUPS_ASKED} groups are asked; name others"


async def completed(
    client: ClientInstance, calls: AdminCalls, seen: Snapshot, window: LagWindow | None
) -> Snapshot:
    """Return a snapshot of servers with the answers to all other questions; those about groups need a window.

    The window's samples are taken here. Raises GroupNotExistError if no broker knows a group that was named.
    """
    questions = _Questions(client, calls, seen, seen.silent)
    async with trio.open_nursery() as nursery:
        for one in seen.brokers:
            if one.state not in UNKNOWN_STATES:
                nursery.start_soon(questions.ask_broker, one)
    found = await questions.ask("topics of name servers", client.name_servers.topics())
    listed = client.namespace.known(found or [])
    await questions.ask_routes(listed)

    async def ask_lag(window: LagWindow) -> LagReport:
        await window.run()
        return await window.report()

    lag = None if window is None else await questions.ask(_LAG, ask_lag(window))
    if lag is not None:
        questions.unknown |= _silent(lag)
        await questions.ask_groups(lag)
    return attrs.evolve(
        seen,
        now_ms=client.wall_clock.now_ms(),
        settings=questions.settings,
        topics=questions.topics,
        listed=listed,
        routes=questions.routes,
        lag=lag,
        groups=sorted(questions.groups, key=lambda one: one.group),
        transactions=questions.transactions,
        unknown=questions.unknown,
    )


async def _each(parallel: int, items: Sequence[str], ask: Callable[[str], Awaitable[None]]) -> None:
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await ask(item)

    async with trio.open_nursery() as nursery:
        for _ in range(min(parallel, len(items))):
            nursery.start_soon(work)


async def ask_twice(
    client: ClientInstance, calls: AdminCalls, masters: Mapping[str, str], group: str
) -> GroupMembers:
    """Ask about a group, and once more after a pause if a queue has no owner, or several."""
    found = await ask_members(client, calls, masters, group)
    owners = found.owners()
    queues = [queue for of_topic in found.queues.values() for queue in of_topic]
    if owners is None or all(len(owners[queue]) == 1 for queue in queues):
        return found
    await trio.sleep(REBALANCE_PAUSE)
    return attrs.evolve(found, again=await ask_members(client, calls, masters, group))


async def ask_members(
    client: ClientInstance, calls: AdminCalls, masters: Mapping[str, str], group: str
) -> GroupMembers:
    """Return what the masters and the members of a group answer; what does not answer is in `silent`."""
    members: dict[str, Connection] = {}
    places: dict[str, str] = {}
    models: set[str] = set()
    shared_ids: dict[str, Sequence[str]] = {}
    answers, failed = await ask_each(
        {addr: addr for addr in masters.values()},
        lambda addr: calls.consumer_connections(addr, group),
    )
    silent = {
        addr: error.what
        for addr, error in failed.items()
        if not isinstance(error, ConsumerNotOnlineError)
    }
    refused = {addr for addr, error in failed.items() if isinstance(error, AccessRefusedError)}
    for addr, found in answers.items():
        models.add(found.message_model)
        addresses: dict[str, list[str]] = defaultdict(list)
        for member in found.connection_set:
            addresses[member.client_id].append(member.client_addr)
            members.setdefault(member.client_id, member)
            places.setdefault(member.client_id, addr)
        shared_ids.update({one: sorted(at) for one, at in addresses.items() if len(at) > 1})
    running: dict[str, ConsumerRunningInfo] = {}
    limit = trio.Semaphore(PARALLEL_MEMBERS)

    async def ask(client_id: str, addr: str) -> None:
        async with limit:
            try:
                info = await calls.running_info(addr, group, client_id)
                running[client_id] = _with_short_names(info, client.namespace.unwrapped)
            except Error as error:
                silent[client_id] = error.what
                if isinstance(error, AccessRefusedError):
                    refused.add(client_id)

    async with trio.open_nursery() as nursery:
        for client_id, addr in places.items():
            nursery.start_soon(ask, client_id, addr)
    topics = {
        one.topic
        for info in running.values()
        for one in info.subscription_set
        if not one.topic.startswith(RETRY_PREFIX)
    }
    queues: dict[str, Sequence[MessageQueue]] = {}
    for topic in sorted(topics):
        route = await client.name_servers.topic_route(topic)
        if route is not None:
            queues[topic] = subscribe_queues(topic, route)
    return GroupMembers(
        group, min(models, default=None), members, running, silent, queues, shared_ids,
        frozenset(refused),
    )  # fmt: skip


def _with_short_names(
    info: ConsumerRunningInfo, short: Callable[[str], str]
) -> ConsumerRunningInfo:
    """Return what a member reported with the names that users know: members report those that brokers know."""

    def queue(found: MessageQueue) -> MessageQueue:
        return attrs.evolve(found, topic=short(found.topic))

    pops = info.mq_pop_table
    properties = dict(info.properties)
    if _GROUP_PROPERTY in properties:
        properties[_GROUP_PROPERTY] = short(properties[_GROUP_PROPERTY])
    return msgspec.structs.replace(
        info,
        properties=properties,
        subscription_set=[
            msgspec.structs.replace(one, topic=short(one.topic)) for one in info.subscription_set
        ],
        mq_table={queue(found): state for found, state in info.mq_table.items()},
        mq_pop_table=None if pops is None else {queue(found): pops[found] for found in pops},
        status_table={short(topic): status for topic, status in info.status_table.items()},
    )
