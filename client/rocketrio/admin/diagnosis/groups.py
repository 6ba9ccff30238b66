"""Rules about groups: how their members share queues, and how they keep up.

Verdicts on progress come from rocketrio_protocol.lag, whose rules are not repeated here.

Invariant: owners of queues are judged only if every member reported its queues; a member that did not is a finding.
Answers to: ConsumerStatusSubCommand (`mqadmin consumerStatus`), which compares subscriptions and writes files.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from rocketrio.admin.diagnosis.rule import Case, DiagnosisRule, rule
from rocketrio.admin.diagnosis.snapshot import BROADCASTING, Snapshot, number_of
from rocketrio.admin.lag_values import GroupLag
from rocketrio.counts import counted
from rocketrio.thresholds import Severity
from rocketrio_protocol.lag import LOSING_PART, Verdict, duration
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.versions import version_name

QUEUES_SHOWN: Final = 3

# ------------------------------------------------------------------------------------------ members


@rule(
    "G01", "The members of a group subscribe differently.", "groups",
    advice="Give all members the same subscription, or another group: messages are skipped",
    severity=Severity.ERROR,
)  # fmt: skip
def subscriptions_differ(seen: Snapshot) -> Iterator[Case]:
    """Compare subscriptions: the broker keeps one for the whole group."""
    for group in seen.groups:
        topics: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
        for client_id, info in group.running.items():
            for one in info.subscription_set:
                if not one.topic.startswith(RETRY_PREFIX):
                    expression = one.expression_type or "TAG", one.sub_string
                    topics[one.topic][expression].append(client_id)
        for topic, expressions in sorted(topics.items()):
            readers = {member for members in expressions.values() for member in members}
            without = sorted(set(group.running) - readers)
            if len(expressions) > 1 or without:
                parts = [
                    f"{kind} {text!r} at {', '.join(sorted(members))}"
                    for (kind, text), members in sorted(expressions.items())
                ]
                if without:
                    parts.append(f"nothing at {', '.join(without)}")
                what = f"its members subscribe differently: {'; '.join(parts)}"
                yield Case(f"{group.group} in {topic}", what)


@rule(
    "G02", "A group has more members than queues.", "groups",
    advice="Give the topic more queues, or stop some members",
)  # fmt: skip
def idle_members(seen: Snapshot) -> Iterator[Case]:
    for group in seen.groups:
        for topic, queues in sorted(group.queues.items()):
            idle = len(group.members) - len(queues)
            if idle > 0 and group.model != BROADCASTING:
                members = counted(len(group.members), "member")
                what = f"has {members} for {counted(len(queues), 'queue')}; {idle} get no messages"
                yield Case(f"{group.group} in {topic}", what)


@rule(
    "G05", "The members of a group have different clients.", "groups",
    advice="Finish the upgrade: strategies may differ between versions",
)  # fmt: skip
def clients_differ(seen: Snapshot) -> Iterator[Case]:
    for group in seen.groups:
        kinds: dict[tuple[str, int], list[str]] = defaultdict(list)
        for client_id, member in group.members.items():
            kinds[member.language, member.version].append(client_id)
        if len(kinds) > 1:
            parts = [
                f"{language} {version_name(version)} at {', '.join(sorted(members))}"
                for (language, version), members in sorted(kinds.items())
            ]
            yield Case(group.group, f"its members have different clients: {'; '.join(parts)}")


@rule(
    "G06", "Several members have one client id.", "groups",
    advice="Give each member an id of its own (instance_name): members with one id read the same queues",
    severity=Severity.ERROR,
)  # fmt: skip
def shared_ids(seen: Snapshot) -> Iterator[Case]:
    for group in seen.groups:
        for client_id, addresses in sorted(group.shared_ids.items()):
            what = f"several connections have this client id: {', '.join(addresses)}"
            yield Case(f"{group.group}: {client_id}", what)


@rule(
    "G07", "A queue has no owner.", "groups", severity=Severity.ERROR,
    advice="Check that all members see each other: the same brokers, group and client ids",
)  # fmt: skip
def no_owner(seen: Snapshot) -> Iterator[Case]:
    for where, owners in _owners(seen):
        if not owners:
            yield Case(where, "no member owns it")


@rule(
    "G08", "A queue has several owners.", "groups", severity=Severity.ERROR,
    advice="Check that no two members have one client id, and that all use one strategy",
)  # fmt: skip
def several_owners(seen: Snapshot) -> Iterator[Case]:
    for where, owners in _owners(seen):
        if len(owners) > 1:
            yield Case(where, f"several members own it: {', '.join(sorted(owners))}")


def _owners(seen: Snapshot) -> Iterator[tuple[str, list[str]]]:
    """Yield the owners of each queue; if members were asked twice, only of one that had as many the second time."""
    for group in seen.groups:
        owners = group.owners()
        if owners is None:
            continue
        again = owners if group.again is None else group.again.owners() or {}
        for topic, queues in sorted(group.queues.items()):
            for queue in queues:
                # None, one and several are the three cases: who owns it may have changed.
                if queue in again and min(len(owners[queue]), 2) == min(len(again[queue]), 2):
                    where = (
                        f"{group.group} in {topic}, queue {queue.queue_id} of {queue.broker_name}"
                    )
                    yield where, owners[queue]


@rule(
    "G09", "A member of a group did not answer.", "groups",
    advice="Look at its log; what it reads is unknown",
)  # fmt: skip
def silent_members(seen: Snapshot) -> Iterator[Case]:
    """Find members and brokers that reported nothing; one that may not be asked is no fault."""
    for group in seen.groups:
        for who, why in group.silent.items():
            if who not in group.refused:
                yield Case(f"{group.group}: {who}", f"did not report its state: {why}")


@rule("G10", "A group has no members.", "groups", advice="Start one if it should read")
def no_members(seen: Snapshot) -> Iterator[Case]:
    for group in seen.groups:
        if not group.members and not group.silent:
            yield Case(group.group, "has no members")


@rule(
    "G13", "Commits of a member are dropped.", "groups", severity=Severity.ERROR,
    advice="Its log says why. After a reset of a running group, start it again, or let it seek",
)  # fmt: skip
def dropped_commits(seen: Snapshot) -> Iterator[Case]:
    """Find members whose commits are dropped; one alone is that of a queue that has just moved, or was just reset."""
    for group in seen.groups:
        for client_id, info in sorted(group.running.items()):
            parts = [
                f"{count} in a row of {queue}"
                for queue, state in sorted(info.mq_table.items())
                if isinstance(count := state.rocketrio_dropped_commits, int) and count > 1
            ]
            if parts:
                more = len(parts) - QUEUES_SHOWN
                what = f"brokers drop its commits: {'; '.join(parts[:QUEUES_SHOWN])}"
                what += f" and {more} more" if more > 0 else ""
                yield Case(f"{group.group}: {client_id}", what)


# ----------------------------------------------------------------------------------------- progress


@rule("G03", "A group stands still.", "lag", severity=Severity.ERROR)
def stands_still(seen: Snapshot) -> Iterator[Case]:
    yield from _with_verdict(
        seen, Verdict.STALLED, "See what its members do: `rocketrio group stacks`, and their logs"
    )
    yield from _with_verdict(seen, Verdict.STOPPED, "Start its members, or delete the group")


@rule(
    "G04", "The retry topic of a group grows.", "lag",
    advice="Find out why handlers fail; messages become dead letters in the end",
)  # fmt: skip
def retries_grow(seen: Snapshot) -> Iterator[Case]:
    for row in seen.lag_rows:
        if _retries_grow(row):
            lag = "unknown" if row.lag is None else f"{row.lag:,}"
            rate = f"{row.judgement.in_per_second:.1f} messages per second"
            yield Case(row.name, f"gets {rate}, and {lag} wait there")


@rule("G11", "A group falls behind.", "lag")
def falls_behind(seen: Snapshot) -> Iterator[Case]:
    return _with_verdict(seen, Verdict.BEHIND, "Start more members, or make handlers faster")


@rule("G12", "A group went back.", "lag")
def went_back(seen: Snapshot) -> Iterator[Case]:
    return _with_verdict(seen, Verdict.REWOUND, "Find out what set it back: see its members' logs")


@rule("G14", "A group is ahead of the end.", "lag", severity=Severity.ERROR)
def beyond_the_end(seen: Snapshot) -> Iterator[Case]:
    return _with_verdict(
        seen,
        Verdict.AHEAD,
        "Stop its members, and `rocketrio offsets reset`: to `first`, or to where it shall read on",
    )


@rule(
    "S02", "Messages will be deleted unread.", "lag", "brokers", "settings",
    advice="Let the group read faster, or raise fileReservedTime and make room",
    severity=Severity.ERROR,
)  # fmt: skip
def deleted_unread(seen: Snapshot) -> Iterator[Case]:
    kept: dict[str, float] = {}
    for one in seen.masters:
        hours = number_of(seen.settings.get(one.address, {}).get("fileReservedTime"))
        if hours is not None:
            kept[one.broker_name] = hours * 3600
    for row in seen.lag_rows:
        limits = [
            kept[one.queue.broker_name] for one in row.queues if one.queue.broker_name in kept
        ]
        age = row.oldest_seconds or 0.0
        if row.verdict == Verdict.LOSING:
            yield Case(row.name, row.judgement.why)
        elif limits and age >= LOSING_PART * min(limits):
            what = (
                f"has an unread message that is {duration(age)} old, and messages are kept for "
                f"{duration(min(limits))}"
            )
            seconds = row.oldest_seconds
            yield Case(row.name, what, seconds=seconds, severity=Severity.WARNING)


OF_VERDICT: Final[Mapping[Verdict, DiagnosisRule]] = {
    Verdict.BEHIND: falls_behind,
    Verdict.REWOUND: went_back,
    Verdict.STALLED: stands_still,
    Verdict.STOPPED: stands_still,
    Verdict.AHEAD: beyond_the_end,
    Verdict.LOSING: deleted_unread,
}
"""The rule that each bad verdict breaks."""


def _with_verdict(seen: Snapshot, verdict: Verdict, advice: str) -> Iterator[Case]:
    for row in seen.lag_rows:
        # A retry topic that grows has a rule of its own.
        if row.verdict == verdict and not _retries_grow(row):
            what = f"is {verdict}: {row.judgement.why}"
            yield Case(row.name, what, seconds=row.judgement.stands_for, advice=advice)


def _retries_grow(row: GroupLag) -> bool:
    if row.topic is None or not row.topic.startswith(RETRY_PREFIX) or not row.lag_at_least:
        return False
    into, out = row.judgement.in_per_second, row.judgement.out_per_second
    return into is not None and into > (out or 0.0)
