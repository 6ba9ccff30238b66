"""What is wrong with a cluster: one snapshot, and one list of rules, of which each command selects some.

    snapshot.py    what was asked once
    rule.py        what a rule is, and what it finds
    brokers.py     rules about name servers, routes, brokers, replication, storage, settings
    groups.py      rules about groups
    checks.py      `rocketrio check`: some rules with limits of the caller, and the numbers behind them
    admin.py       the methods of `Admin`, and what no request reports: certificates and clocks
    bundle.py      the archive of `rocketrio doctor --bundle`

Invariant: what is unknown leads to no finding, and is in `silent`, `unknown` or `not_judged`: it is never well.
Answers to: nothing in Apache's tools.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from rocketrio.admin.cluster_status import UNKNOWN_STATES
from rocketrio.admin.diagnosis import brokers, groups
from rocketrio.admin.diagnosis.rule import DiagnosisRule, Finding, worst_first
from rocketrio.admin.diagnosis.snapshot import GroupMembers, Snapshot
from rocketrio.thresholds import Severity
from rocketrio_protocol.lag import Verdict

RULES: Final[Sequence[DiagnosisRule]] = (
    brokers.name_servers_differ, brokers.unreachable, brokers.two_masters,
    brokers.topics_without_master, brokers.silent_name_servers, brokers.no_master,
    brokers.routes_that_differ, brokers.system_topics_missing,
    brokers.problem_reported, brokers.no_writes,
    brokers.not_following, brokers.missing_slaves, brokers.slave_behind, brokers.unsafe_send,
    brokers.open_replication_ports, brokers.beyond_the_master,
    brokers.disk_fills, groups.deleted_unread, brokers.behind_its_log, brokers.clocks_differ,
    groups.subscriptions_differ, groups.idle_members, groups.stands_still, groups.retries_grow,
    groups.clients_differ, groups.shared_ids, groups.no_owner, groups.several_owners,
    groups.silent_members, groups.no_members, groups.falls_behind, groups.went_back,
    groups.dropped_commits, groups.beyond_the_end,
    brokers.transactions_given_up,
    brokers.settings_that_differ, brokers.topics_created_automatically, brokers.other_role,
    brokers.versions_differ,
)  # fmt: skip
"""All rules, in the order of their codes."""

CODES: Final[Mapping[str, str]] = {one.code: one.meaning for one in RULES}
"""What each code means."""

_OF_SERVERS: Final = frozenset({"name_servers", "brokers", "runtimes"})
HEALTH: Final = tuple(one for one in RULES if one.needs <= _OF_SERVERS)
"""The rules for which the answers of servers about themselves suffice."""
OF_MEMBERS: Final = tuple(one for one in RULES if one.needs == {"groups"})
DOCTOR: Final = tuple(one for one in RULES if one is not groups.no_members)
"""All but one: a group without members is a fault only if something is unread, and then another rule finds it."""


def findings(rules: Iterable[DiagnosisRule], seen: Snapshot) -> list[Finding]:
    """Return what some rules find, the worst first."""
    return worst_first(found for one in rules for found in one.findings(seen))


# ------------------------------------------------------------------------------------------- health


@attrs.frozen
class Health:
    """What is wrong with name servers, brokers and replication, the worst first."""

    findings: Sequence[Finding]
    brokers: int
    """The number of registered brokers."""
    silent: Mapping[str, str]
    """Why brokers and name servers did not answer, by address: what else is wrong there is unknown."""
    refused: frozenset[str] = frozenset()
    """Those of `silent` that answer, but not to this account."""

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong; what may not be asked is never well."""
        return not self.findings and not self.refused


def health_of(seen: Snapshot) -> Health:
    """Return what is wrong with name servers, brokers and replication."""
    return Health(findings(HEALTH, seen), len(seen.brokers), seen.silent, seen.refused)


# -------------------------------------------------------------------------------------- group check


@attrs.frozen
class GroupCheck:
    """What is wrong with a group's members, the worst first."""

    answers: GroupMembers
    findings: Sequence[Finding]


def group_findings(members: GroupMembers) -> list[Finding]:
    """Return what is wrong with a group's members. How far the group is behind is not part of it."""
    found = findings(OF_MEMBERS, Snapshot({}, (), groups=[members]))
    return sorted(found, key=lambda one: (one.severity is not Severity.ERROR, one.code, one.where))


# ------------------------------------------------------------------------------------------- doctor


@attrs.frozen
class Diagnosis:
    """What is wrong with a cluster, the worst first."""

    findings: Sequence[Finding]
    unknown: Mapping[str, str]
    """What could not be asked, or needs more samples, and why: whether it is well is not known."""
    not_judged: Mapping[str, str]
    """What was asked and cannot be judged, and why."""
    brokers: int
    groups: int

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding."""
        return self.findings[0].severity if self.findings else None


def diagnosis_of(seen: Snapshot) -> Diagnosis:
    """Return everything that is wrong."""
    undecided = {
        f"lag of {row.name}": row.judgement.why for row in seen.lag_rows if row.needs_samples
    }
    return Diagnosis(
        findings(DOCTOR, seen),
        dict(sorted({**seen.unknown, **undecided}.items())),
        dict(_not_judged(seen)),
        len(seen.brokers),
        len({row.group for row in seen.lag_rows}),
    )


def _not_judged(seen: Snapshot) -> Iterator[tuple[str, str]]:
    is_whole = seen.lag is not None and not seen.lag.silent
    for row in seen.lag_rows if is_whole else ():
        if row.verdict == Verdict.UNKNOWN and not row.needs_samples:
            yield f"lag of {row.name}", row.judgement.why
    for one in seen.brokers:
        if one.clock_ahead is None and one.state not in UNKNOWN_STATES:
            yield f"clock of {one.where}", "its version reports none"
