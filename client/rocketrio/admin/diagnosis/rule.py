"""What a rule of the diagnosis is, and what it finds.

A rule yields cases from a snapshot. Each case is judged by the rule's severity, by the rule's limits on its value, or,
for a check, by limits of the caller: that is the only difference between `health`, `doctor` and `check`.

Invariant: a case without the number that limits judge is unknown, which is no finding, and never ok.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import attrs

from rocketrio.thresholds import Limits, Severity, Status

if TYPE_CHECKING:
    from rocketrio.admin.diagnosis.snapshot import Snapshot


STATUS_OF: Final = {Severity.WARNING: Status.WARNING, Severity.ERROR: Status.CRITICAL}
_SEVERITY_OF: Final = {status: severity for severity, status in STATUS_OF.items()}


@attrs.frozen
class Finding:
    """One thing that is wrong."""

    code: str
    severity: Severity
    where: str
    what: str
    """One sentence."""
    advice: str
    seconds: float | None = None
    """For how long, if a broker reported it."""

    @property
    def link(self) -> str:
        """The place in the manual that says more about it."""
        return link_of(self.code)

    @property
    def status(self) -> Status:
        """Its status in a check."""
        return STATUS_OF[self.severity]


def link_of(code: str) -> str:
    """Return the place in the manual that says more about a code."""
    return f"docs/doctor.md#{code.lower()}"


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with errors first."""
    return sorted(
        findings, key=lambda one: (one.severity is not Severity.ERROR, one.where, one.code)
    )


@attrs.frozen
class Case:
    """One place to which a rule applies."""

    where: str
    what: str
    value: float | None = None
    """What the limits of the rule judge."""
    seconds: float | None = attrs.field(default=None, kw_only=True)
    brief: str | None = attrs.field(default=None, kw_only=True)
    """`what` in a check, whose line has room for less."""
    severity: Severity | None = attrs.field(default=None, kw_only=True)
    """If it is not judged as the rule's other cases are."""
    advice: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class DiagnosisRule:
    """One rule: what it is about, what it needs, and how its cases are judged."""

    code: str
    meaning: str
    needs: frozenset[str]
    """The fields of the snapshot that it reads."""
    advice: str
    severity: Severity
    limits: Limits | None
    cases: Callable[["Snapshot"], Iterator[Case]]

    def status(self, case: Case, limits: Limits | None = None) -> Status:
        """Judge a case; `limits` replace the rule's own, if it has any."""
        if case.severity is None and self.limits is not None:
            return (limits or self.limits).status(case.value)
        return STATUS_OF[case.severity or self.severity]

    def findings(self, seen: "Snapshot") -> Iterator[Finding]:
        """Yield what is wrong in a snapshot."""
        for case in self.cases(seen):
            severity = _SEVERITY_OF.get(self.status(case))
            if severity is not None:
                advice = case.advice or self.advice
                yield Finding(self.code, severity, case.where, case.what, advice, case.seconds)


def rule(
    code: str,
    meaning: str,
    *needs: str,
    advice: str = "",
    severity: Severity = Severity.WARNING,
    limits: Limits | None = None,
) -> Callable[[Callable[["Snapshot"], Iterator[Case]]], DiagnosisRule]:
    """Make a rule of a function that yields its cases. With `advice` empty each case has its own."""

    def make(cases: Callable[["Snapshot"], Iterator[Case]]) -> DiagnosisRule:
        return DiagnosisRule(code, meaning, frozenset(needs), advice, severity, limits, cases)

    return make
