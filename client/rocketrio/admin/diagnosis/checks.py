"""Judges one side of a cluster for programs that watch it, such as Nagios, Icinga and cron: `rocketrio check`.

Each function takes a snapshot, or what else was asked, and returns a result: a status, a sentence, and the numbers
behind it with their limits. Where a rule of the diagnosis judges the same, the check is that rule with limits of the
caller; the others judge by limits of the caller alone. They wait for nothing; the command asks the cluster.

Invariant: what could not be asked is unknown, or critical where silence is the fault itself; it is never ok.
Answers to: the exit codes and the output of the Monitoring Plugins Development Guidelines.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from rocketrio.admin.broker_numbers import size_of
from rocketrio.admin.cluster_status import REFUSED, UNKNOWN_STATES, BrokerStatus
from rocketrio.admin.diagnosis import brokers, findings, health_of
from rocketrio.admin.diagnosis.groups import OF_VERDICT
from rocketrio.admin.diagnosis.rule import STATUS_OF, DiagnosisRule
from rocketrio.admin.diagnosis.snapshot import Snapshot, number_of
from rocketrio.admin.lag_values import LagReport
from rocketrio.admin.transactions import Transactions
from rocketrio.counts import counted
from rocketrio.thresholds import Limits, Status
from rocketrio_protocol.errors import Error
from rocketrio_protocol.lag import Verdict, lag_of
from rocketrio_protocol.log_lines import printable
from rocketrio_protocol.times import age_ms

_ROUTES: Final = (
    brokers.no_master,
    brokers.topics_without_master,
    brokers.routes_that_differ,
    brokers.system_topics_missing,
)
_WORSE: Final = (Status.OK, Status.UNKNOWN, Status.WARNING, Status.CRITICAL)
"""From good to bad: what is known to be bad counts before what is unknown."""


@attrs.frozen
class CheckValue:
    """A number behind a result."""

    name: str
    """It consists of letters, digits and `_`."""
    value: float | None
    """None if no broker reported it; then it is left out of the output, and never 0."""
    unit: str = ""
    """`s`, `ms`, `B`, `%` or nothing."""
    limits: Limits | None = None
    labels: Mapping[str, str] = attrs.Factory(dict)
    """What the number is about, as `{"broker": "broker-a"}`."""


@attrs.frozen
class CheckResult:
    """The result of a check."""

    name: str
    status: Status
    text: str
    """What is wrong, or that nothing is."""
    values: Sequence[CheckValue] = ()


@attrs.define
class _Check:
    """A check under way."""

    name: str
    found: list[tuple[Status, str]] = attrs.Factory(list)
    values: list[CheckValue] = attrs.Factory(list)

    def add(self, status: Status, text: str) -> None:
        self.found.append((status, text))

    def number(
        self,
        name: str,
        value: float | None,
        unit: str = "",
        limits: Limits | None = None,
        text: str | None = None,
        *,
        of: Mapping[str, str] = {},
    ) -> None:
        """Take a number; limits judge it if there is a text for it."""
        self.values.append(CheckValue(name, value, unit, limits, of))
        if limits is not None and text is not None:
            self.add(limits.status(value), text)

    def rules(
        self, seen: Snapshot, where: str, *rules: DiagnosisRule, limits: Limits | None = None
    ) -> bool:
        """Judge what rules find in a snapshot of one broker, which texts call `where`; return whether they apply."""
        cases = [(one, case) for one in rules for case in one.cases(seen)]
        for one, case in cases:
            # Here silence is the fault itself, of a slave too: nothing else is known of what was to be checked.
            status = Status.CRITICAL if one is brokers.unreachable else one.status(case, limits)
            self.add(status, f"{where} {case.brief or case.what}")
        return bool(cases)

    def members(self, seen: Snapshot, names: Sequence[str]) -> list[BrokerStatus]:
        """Return the brokers of these names, or all; a name without one is critical."""
        known = {one.broker_name for one in seen.brokers}
        if not names and not known:
            self.add(Status.CRITICAL, "no broker is registered")
        for name in names:
            if name not in known:
                self.add(Status.CRITICAL, f"{name} is not registered")
        return [one for one in seen.brokers if not names or one.broker_name in names]

    def result(self, well: str) -> CheckResult:
        """Return the worst status, and what is wrong, the worst first; `well` if nothing is."""
        wrong = [one for one in self.found if one[0] is not Status.OK]
        wrong.sort(key=lambda one: -_WORSE.index(one[0]))
        status = wrong[0][0] if wrong else Status.OK
        text = "; ".join(text for _, text in wrong) or well
        return CheckResult(self.name, status, text, self.values)


def check_connection(seen: Snapshot) -> CheckResult:
    """Judge whether all name servers answer, and whether they know the same brokers."""
    check = _Check("connection")
    servers = seen.name_servers
    silent = {name: one for name, one in servers.items() if isinstance(one, Error)}
    status = Status.CRITICAL if len(silent) == len(servers) else Status.WARNING
    for name, error in silent.items():
        check.add(status, f"{name} does not answer: {error.what}")
    for one in findings([brokers.name_servers_differ], seen):
        check.add(one.status, f"{one.where} {one.what}")
    check.number("name_servers", len(servers))
    check.number("silent_name_servers", len(silent))
    return check.result(f"{counted(len(servers), 'name server')} answered alike")


def check_brokers(seen: Snapshot, names: Sequence[str], waiting: Limits) -> CheckResult:
    """Judge whether brokers answer, take writes, and answer sends within a time.

    `waiting` is about the milliseconds that the first waiting send has waited (sendThreadPoolQueueHeadWaitTimeMills).
    """
    check = _Check("broker")
    members = check.members(seen, names)
    for one in members:
        where, runtime = one.where, seen.runtimes.get(one.address)
        check.rules(seen.of(one), where, brokers.unreachable, brokers.no_writes)
        if one.state == REFUSED:
            check.add(Status.UNKNOWN, f"{where}: {one.problem}")
        if one.state in UNKNOWN_STATES:
            continue
        if runtime is None:
            check.add(Status.UNKNOWN, f"{where} did not report how long sends wait")
            continue
        wait = number_of(runtime.get("sendThreadPoolQueueHeadWaitTimeMills"))
        text = None if wait is None else f"{where} lets sends wait for {wait:.0f} ms"
        check.number("send_wait", wait, "ms", waiting, text, of=_labels(one))
        held = number_of(runtime.get("rocketrioWaitingAnswers"))
        check.number("waiting_answers", held, of=_labels(one))
    for case in brokers.no_master.cases(seen.of(*members)):
        check.add(Status.CRITICAL, f"{case.where} {case.brief}")
    return check.result(f"{counted(len(members), 'broker')}: each answers and takes writes")


def unsafe_sends(seen: Snapshot) -> dict[str, int]:
    """Return how many sends each broker has answered with less safety than was asked for, by address.

    Apache's brokers do not report it, and are missing.
    """
    return {
        one.address: sum(
            count for status, count in one.answered.items() if status != brokers.PUT_OK
        )
        for one in seen.brokers
        if one.answered is not None
    }


def check_replication(
    seen: Snapshot,
    names: Sequence[str],
    seconds: Limits,
    *,
    unsafe_before: Mapping[str, int] | None = None,
) -> CheckResult:
    """Judge whether slaves follow, how far they are behind, and whether sends were answered unsafe since then."""
    check = _Check("replication")
    members = check.members(seen, names)
    unsafe = unsafe_sends(seen)
    for one in members:
        if unsafe_before is not None and one.address in unsafe:
            count = unsafe[one.address]
            before = unsafe_before.get(one.address, count)
            more = count - before if count >= before else count  # It has started again.
            check.number("unsafe_sends", more, of=_labels(one))
            if more:
                check.add(Status.CRITICAL, f"{one.where} answered {more} sends as not safe")
    slaves = [one for one in members if one.role == "slave"]
    for slave in slaves:
        where = f"{slave.broker_name}: slave {slave.broker_id} ({slave.address})"
        check.number("behind_bytes", slave.bytes_behind, "B", of=_labels(slave))
        check.number("behind_seconds", slave.seconds_behind, "s", seconds, of=_labels(slave))
        rules = brokers.unreachable, brokers.not_following, brokers.slave_behind
        is_known = check.rules(seen.of(slave), where, *rules, limits=seconds)
        if slave.state == REFUSED:
            check.add(Status.UNKNOWN, f"{where}: {slave.problem}")
        elif not is_known and slave.bytes_behind is None:
            check.add(Status.UNKNOWN, f"{where}: no broker reports how far it is behind")
    for name in sorted({one.broker_name for one in members}):
        if brokers.lacks_slave([one for one in members if one.broker_name == name]):
            check.add(Status.CRITICAL, f"{name}: a synchronous master without a slave")
    return check.result(f"{len(slaves)} slaves follow" if slaves else "no slave is registered")


def check_disks(
    seen: Snapshot, names: Sequence[str], percent: Limits, *, days: Limits | None = None
) -> CheckResult:
    """Judge how full the disks of brokers are, and with `days` how long they last at the rate of their own log."""
    check = _Check("disk")
    members = check.members(seen, names)
    for one in members:
        where, labels, runtime = one.where, _labels(one), seen.runtime(one)
        used, left = brokers.disk_used(seen, one), days_left(runtime, seen.now_ms)
        used_percent = None if used is None else round(used * 100, 1)
        age = None if seen.now_ms is None else log_age(runtime, seen.now_ms)
        room = f"{where}: how long its disk lasts is unknown before its log is a day old"
        if left is not None:
            room = f"{where} has room for {left:.1f} days at the rate of its log"
        check.number("disk_used", used_percent, "%", percent, of=labels)
        check.number("disk_free", free_bytes(runtime), "B", of=labels)
        check.number("oldest_message", age, "s", of=labels)
        check.number("days_left", left, "", days, room, of=labels)
        check.rules(seen.of(one), where, brokers.disk_fills, limits=percent)
    return check.result(f"{counted(len(members), 'broker')}: each disk has room")


_FREE: Final = re.compile(r"Free : ([0-9.]+ ?[KMGT]?i?B)")
_DAY: Final = 86_400.0


def free_bytes(runtime: Mapping[str, str]) -> float | None:
    """Return the free bytes of a broker's disk; None if it does not report them."""
    match = _FREE.search(runtime.get("commitLogDirCapacity", ""))
    return size_of(match[1]) if match else None


def log_age(runtime: Mapping[str, str], now_ms: int) -> float | None:
    """Return the seconds since the first message of a broker's log was stored; None if unknown, or if it is empty."""
    began = number_of(runtime.get("earliestMessageTimeStamp"))
    return None if began is None or began <= 0 else age_ms(began, now_ms) / 1000


def days_left(runtime: Mapping[str, str], now_ms: int | None) -> float | None:
    """Return how long the free bytes last if the log goes on to grow as it has since its first message.

    None before the log is a day old, because its rate says little then.
    """
    free = free_bytes(runtime)
    age = None if now_ms is None else log_age(runtime, now_ms)
    begin, end = (number_of(runtime.get(f"commitLog{one}Offset")) for one in ("Min", "Max"))
    if free is None or age is None or age < _DAY or begin is None or end is None or end <= begin:
        return None
    return free / ((end - begin) / (age / _DAY))


def check_lag(
    report: LagReport, messages: Limits | None = None, age: Limits | None = None
) -> CheckResult:
    """Judge how groups keep up: by the verdicts, and by limits on messages and seconds if they are given.

    A verdict that is unknown only because it needs more samples leaves the judgement to the limits.
    """
    check = _Check("lag")
    open_verdicts: list[str] = []
    for row in report.rows:
        where, labels = row.name, {"group": row.group, "topic": row.topic or ""}
        if row.needs_samples and (messages or age):
            open_verdicts.append(where)
        else:
            status = _verdict_status(row.verdict)
            check.add(status, f"{where} is {row.verdict}: {row.judgement.why}")
        unread = "unknown" if row.lag is None else f"{row.lag:,}"
        text = f"{where} has {unread} unread messages"
        check.number("lag", row.lag, "", messages, text, of=labels)
        oldest = "unknown" if row.oldest_seconds is None else f"{row.oldest_seconds:.0f} s"
        text = f"{where}: the oldest unread message's age is {oldest}"
        check.number("oldest_unread", row.oldest_seconds, "s", age, text, of=labels)
    for name, why in report.silent.items():
        check.add(Status.UNKNOWN, f"{name} did not answer: {why}")
    well = "each keeps up"
    if open_verdicts:
        them = ", ".join(open_verdicts)
        well = f"each is within the thresholds; only a window shows whether {them} keeps up"
    return check.result(f"{counted(len(report.rows), 'pair')} of group and topic: {well}")


def _verdict_status(verdict: Verdict) -> Status:
    broken = OF_VERDICT.get(verdict)
    if broken is not None:
        return STATUS_OF[broken.severity]
    return Status.OK if verdict == Verdict.OK else Status.UNKNOWN


def check_errors(seen: Snapshot) -> CheckResult:
    """Judge all that `admin.health()` finds: errors are critical."""
    check = _Check("health")
    health = health_of(seen)
    for one in health.findings:
        check.add(one.status, f"{one.where} {one.what} ({one.code})")
    for address, why in health.silent.items():
        if address in health.refused:
            check.add(Status.UNKNOWN, f"{address}: {why}")
    check.number("findings", len(health.findings))
    return check.result(f"nothing is wrong with {counted(health.brokers, 'broker')}")


def check_dead_letters(
    counts: Mapping[str, int], before: Mapping[str, int] | None, new: Limits
) -> CheckResult:
    """Judge how many dead letters groups have got since `before`; all of them count without it."""
    check = _Check("dead-letters")
    noun = "dead letter" if before is None else "new dead letter"
    for group, count in counts.items():
        more = lag_of(0 if before is None else before.get(group, 0), count)
        text = f"{group} has {counted(more, noun)}"
        check.number("dead_letters", more, "", new, text, of={"group": group})
    return check.result(f"no new dead letters in {counted(len(counts), 'group')}")


def check_transactions(
    found: Mapping[str, Transactions],
    before: Mapping[str, int] | None,
    given_up: Limits,
    open_limits: Limits | None = None,
) -> CheckResult:
    """Judge how many transactions brokers have given up since `before` (all without it), and how many are open."""
    check = _Check("transactions")
    for name, one in found.items():
        more = lag_of(0 if before is None else before.get(name, one.given_up), one.given_up)
        text = f"{name} gave up {counted(more, 'transaction')}"
        check.number("given_up", more, "", given_up, text, of={"broker": name})
        text = f"{name} has {counted(one.open, 'open one')}"
        check.number("open", one.open, "", open_limits, text, of={"broker": name})
    return check.result(f"{counted(len(found), 'broker')}: none gave up a transaction")


def check_certificates(
    ends_ms: Mapping[str, int | Error], now_ms: int, days: Limits
) -> CheckResult:
    """Judge how long the certificates are valid that servers show; `ends_ms` has the end of each, by name."""
    check = _Check("certificate")
    for name, end in ends_ms.items():
        if isinstance(end, Error):
            check.add(Status.UNKNOWN, f"{name} shows no certificate: {end.what}")
            continue
        left = (end - now_ms) / 86_400_000
        text = f"ends in {left:.0f} days" if left > 0 else "has ended"
        check.number("days_left", round(left, 2), "", days, of={"server": name})
        check.add(days.status(left), f"the certificate of {name} {text}")
    return check.result(f"{len(check.values)} certificates are valid")


def check_routes(seen: Snapshot) -> CheckResult:
    """Judge whether clients find all topics, with the queues that brokers have."""
    check = _Check("routes")
    wrong = [one for each in _ROUTES for one in each.findings(seen)]
    for one in wrong:
        check.add(one.status, f"{one.where}: {one.what} ({one.code})")
    for what, why in seen.unknown.items():
        check.add(Status.UNKNOWN, f"{what}: {why}")
    check.number("topics", len(seen.routes))
    check.number("findings", len(wrong))
    topics = counted(len(seen.routes), "topic")
    return check.result(f"{topics}: brokers have each where routes say")


def check_roundtrip(topic: str, milliseconds: float, limits: Limits) -> CheckResult:
    """Judge the time from a send to the receipt of the message."""
    text = f"a message through {topic} took {milliseconds:.0f} ms"
    value = CheckValue("roundtrip", round(milliseconds, 1), "ms", limits, {"topic": topic})
    return CheckResult("roundtrip", limits.status(milliseconds), text, [value])


# -------------------------------------------------------------------------------------- output


def nagios_line(result: CheckResult) -> str:
    """Return a result as a line for Nagios: status, check, text, and the known values after `|`."""
    shown = [_performance(value) for value in result.values if value.value is not None]
    text = " ".join(result.text.replace("|", "/").split())
    line = f"{result.status.name} {result.name}: {text}"
    return printable(f"{line} | {' '.join(shown)}" if shown else line)


def _performance(value: CheckValue) -> str:
    label = "_".join((value.name, *value.labels.values()))
    label = label.replace("'", "").replace("=", "_")
    label = f"'{label}'" if set(label) & set(" %") else label
    limits = value.limits
    bounds = (
        ""
        if limits is None
        else f";{_range(limits, limits.warning)};{_range(limits, limits.critical)}"
    )
    return f"{label}={value.value:g}{value.unit}{bounds}"


def _range(limits: Limits, bound: float) -> str:
    """Return a limit as a range of good values: `10` is 0 to 10, `10:` is 10 and more."""
    return f"{bound:g}:" if limits.critical < limits.warning else f"{bound:g}"


def _labels(broker: BrokerStatus) -> dict[str, str]:
    return {"broker": broker.broker_name, "id": str(broker.broker_id)}
