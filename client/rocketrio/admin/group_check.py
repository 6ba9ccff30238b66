"""What is wrong with the members of a group: `admin.check_group()`.

`group_findings` is a function of what brokers and members answered. How far the group is behind is not part of it, see
lag.py.

Invariant: owners of queues are judged only if every member reported its queues; a member that did not is a finding.
Answers to: ConsumerStatusSubCommand (`mqadmin consumerStatus`), which compares subscriptions and writes files.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import msgspec
import trio

from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.cluster_questions import ask_each
from rocketrio.admin.health import Finding, Severity
from rocketrio.client import ClientInstance
from rocketrio.counts import counted
from rocketrio.routing import subscribe_queues
from rocketrio_protocol.bodies.running_info import ConsumerRunningInfo
from rocketrio_protocol.bodies.stats import Connection
from rocketrio_protocol.errors import AccessRefusedError, ConsumerNotOnlineError, Error
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.versions import version_name

REBALANCE_PAUSE: Final = 3.0
"""Seconds until owners are looked at again: while members join or leave, a queue may have no owner or two."""
PARALLEL_MEMBERS: Final = 16
"""The members that are asked at the same time."""
QUEUES_SHOWN: Final = 3
BROADCASTING: Final = "BROADCASTING"
_GROUP_PROPERTY: Final = "consumerGroup"
"""The property of a member's report that is a name."""


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


@attrs.frozen
class GroupCheck:
    """What is wrong with a group's members, the worst first."""

    answers: GroupMembers
    findings: Sequence[Finding]


def group_findings(answers: GroupMembers) -> list[Finding]:
    """Return what is wrong, the worst first."""
    found = [
        *_silence(answers),
        *_subscriptions(answers),
        *_idle_members(answers),
        *_shared_ids(answers),
        *_owners(answers),
        *_dropped_commits(answers),
        *_versions(answers),
    ]
    return sorted(found, key=lambda one: (one.severity is not Severity.ERROR, one.code, one.where))


def _silence(answers: GroupMembers) -> Iterator[Finding]:
    if not answers.members and not answers.silent:
        yield Finding(
            "G10", Severity.WARNING, answers.group, "has no members", "Start one if it should read"
        )
    for who, why in answers.silent.items():
        if who in answers.refused:
            continue
        yield Finding(
            "G09",
            Severity.WARNING,
            f"{answers.group}: {who}",
            f"did not report its state: {why}",
            "Look at its log; what it reads is unknown",
        )


def _subscriptions(answers: GroupMembers) -> Iterator[Finding]:
    """Members must subscribe to the same: the broker keeps one subscription for the whole group."""
    by_topic: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for client_id, info in answers.running.items():
        for one in info.subscription_set:
            if not one.topic.startswith(RETRY_PREFIX):
                by_topic[one.topic][one.expression_type or "TAG", one.sub_string].append(client_id)
    for topic, expressions in sorted(by_topic.items()):
        readers = {member for members in expressions.values() for member in members}
        without = sorted(set(answers.running) - readers)
        if len(expressions) > 1 or without:
            parts = [
                f"{kind} {text!r} at {', '.join(sorted(members))}"
                for (kind, text), members in sorted(expressions.items())
            ]
            if without:
                parts.append(f"nothing at {', '.join(without)}")
            yield Finding(
                "G01",
                Severity.ERROR,
                f"{answers.group} in {topic}",
                f"its members subscribe differently: {'; '.join(parts)}",
                "Give all members the same subscription, or another group: messages are skipped",
            )


def _idle_members(answers: GroupMembers) -> Iterator[Finding]:
    if answers.model == BROADCASTING:
        return
    for topic, queues in sorted(answers.queues.items()):
        idle = len(answers.members) - len(queues)
        if idle > 0:
            yield Finding(
                "G02",
                Severity.WARNING,
                f"{answers.group} in {topic}",
                f"has {counted(len(answers.members), 'member')} for {counted(len(queues), 'queue')};"
                f" {idle} get no messages",
                "Give the topic more queues, or stop some members",
            )


def _shared_ids(answers: GroupMembers) -> Iterator[Finding]:
    for client_id, addresses in sorted(answers.shared_ids.items()):
        yield Finding(
            "G06",
            Severity.ERROR,
            f"{answers.group}: {client_id}",
            f"several connections have this client id: {', '.join(addresses)}",
            "Give each member an id of its own (instance_name): members with one id read the same queues",
        )


def _owners(answers: GroupMembers) -> Iterator[Finding]:
    is_whole = not answers.silent and len(answers.running) == len(answers.members)
    shares = answers.model != BROADCASTING and not any(
        info.mq_pop_table for info in answers.running.values()
    )
    owners: dict[MessageQueue, list[str]] = defaultdict(list)
    for client_id, info in answers.running.items():
        for queue, state in info.mq_table.items():
            if not state.droped:
                owners[queue].append(client_id)
    if not is_whole or not shares or not owners:
        return
    for topic, queues in sorted(answers.queues.items()):
        for queue in queues:
            where = f"{answers.group} in {topic}, queue {queue.queue_id} of {queue.broker_name}"
            if not owners[queue]:
                yield Finding(
                    "G07",
                    Severity.ERROR,
                    where,
                    "no member owns it",
                    "Check that all members see each other: the same brokers, group and client ids",
                )
            elif len(owners[queue]) > 1:
                yield Finding(
                    "G08",
                    Severity.ERROR,
                    where,
                    f"several members own it: {', '.join(sorted(owners[queue]))}",
                    "Check that no two members have one client id, and that all use one strategy",
                )


def _dropped_commits(answers: GroupMembers) -> Iterator[Finding]:
    """Find members whose commits are dropped; one alone is that of a queue that has just moved, or was just reset."""
    for client_id, info in sorted(answers.running.items()):
        dropped = {
            queue: count
            for queue, state in sorted(info.mq_table.items())
            if isinstance(count := state.rocketrio_dropped_commits, int) and count > 1
        }
        if dropped:
            parts = [f"{count} in a row of {queue}" for queue, count in dropped.items()]
            yield Finding(
                "G13",
                Severity.ERROR,
                f"{answers.group}: {client_id}",
                f"brokers drop its commits: {'; '.join(parts[:QUEUES_SHOWN])}"
                + (f" and {len(parts) - QUEUES_SHOWN} more" if len(parts) > QUEUES_SHOWN else ""),
                "Its log says why. After a reset of a running group, start it again, or let it seek",
            )


def _versions(answers: GroupMembers) -> Iterator[Finding]:
    kinds: dict[tuple[str, int], list[str]] = defaultdict(list)
    for client_id, member in answers.members.items():
        kinds[member.language, member.version].append(client_id)
    if len(kinds) > 1:
        parts = [
            f"{language} {version_name(version)} at {', '.join(sorted(members))}"
            for (language, version), members in sorted(kinds.items())
        ]
        yield Finding(
            "G05",
            Severity.WARNING,
            answers.group,
            f"its members have different clients: {'; '.join(parts)}",
            "Finish the upgrade: strategies may differ between versions",
        )


async def check_group(
    client: ClientInstance, calls: AdminCalls, masters: Mapping[str, str], group: str
) -> GroupCheck:
    """Ask the masters and the members of a group, and judge what they answer."""
    answers = await ask_members(client, calls, masters, group)
    found = group_findings(answers)
    if any(one.code in ("G07", "G08") for one in found):
        await trio.sleep(REBALANCE_PAUSE)
        again = group_findings(await ask_members(client, calls, masters, group))
        where = {(one.code, one.where) for one in again}
        found = [
            one for one in found if one.code not in ("G07", "G08") or (one.code, one.where) in where
        ]
    return GroupCheck(answers, found)


async def ask_members(
    client: ClientInstance, calls: AdminCalls, masters: Mapping[str, str], group: str
) -> GroupMembers:
    """Return what the masters and the members of a group answer; what does not answer is in `silent`."""
    members: dict[str, Connection] = {}
    places: dict[str, str] = {}
    models: set[str] = set()
    shared_ids: dict[str, Sequence[str]] = {}
    silent: dict[str, str] = {}
    answers, failed = await ask_each(
        {addr: addr for addr in masters.values()},
        lambda addr: calls.consumer_connections(addr, group),
    )
    silent.update(
        (addr, error.what)
        for addr, error in failed.items()
        if not isinstance(error, ConsumerNotOnlineError)
    )
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
    model = sorted(models)[0] if models else None
    return GroupMembers(
        group, model, members, running, silent, queues, shared_ids, frozenset(refused)
    )


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
