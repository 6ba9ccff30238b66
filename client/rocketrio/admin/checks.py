"""Judges one side of a cluster for programs that watch it, such as Nagios, Icinga and cron: `rocketrio check`.

Each function takes what the cluster answered and returns a result: a status, a sentence, and the numbers behind it with
their thresholds. They wait for nothing; the command asks the cluster.

Invariant: what could not be asked is unknown, or critical where silence is the fault itself; it is never ok.
Answers to: the exit codes and the output of the Monitoring Plugins Development Guidelines.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

import attrs

from rocketrio.admin.broker_numbers import size_of
from rocketrio.admin.cluster_status import (
    NO_WRITES,
    NOT_CONNECTED,
    NOT_REACHABLE,
    REFUSED,
    BrokerStatus,
)
from rocketrio.admin.doctor import (
    routes_that_differ,
    system_topics_missing,
    topics_without_master,
)
from rocketrio.admin.doctor_answers import DoctorAnswers
from rocketrio.admin.health import (
    BYTES_BEHIND,
    PUT_OK,
    ClusterAnswers,
    Severity,
    health_of,
    number_of,
)
from rocketrio.admin.lag_values import LagReport
from rocketrio.admin.transactions import Transactions
from rocketrio.counts import counted
from rocketrio_protocol.errors import Error
from rocketrio_protocol.lag import Verdict, lag_of
from rocketrio_protocol.log_lines import printable
from rocketrio_protocol.times import age_ms


class Status(IntEnum):
    """The status of a check; the number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_WORSE: Final = (Status.OK, Status.UNKNOWN, Status.WARNING, Status.CRITICAL)
"""From good to bad: what is known to be bad counts before what is unknown."""


@attrs.frozen
class Thresholds:
    """From which value on a number is a warning, and from which it is critical.

    If `critical` is below `warning`, small numbers are bad: a value at or below a threshold reaches it.
    """

    warning: float
    critical: float

    def status(self, value: float | None) -> Status:
        """Return the status of a value; one that no broker reported is unknown."""
        if value is None:
            return Status.UNKNOWN
        sign = -1 if self.critical < self.warning else 1
        if sign * value >= sign * self.critical:
            return Status.CRITICAL
        return Status.WARNING if sign * value >= sign * self.warning else Status.OK


@attrs.frozen
class Value:
    """A number behind a result."""

    name: str
    """It consists of letters, digits and `_`."""
    value: float | None
    """None if no broker reported it; then it is left out of the output, and never 0."""
    unit: str = ""
    """`s`, `ms`, `B`, `%` or nothing."""
    thresholds: Thresholds | None = None
    labels: Mapping[str, str] = attrs.Factory(dict)
    """What the number is about, as `{"broker": "broker-a"}`."""


@attrs.frozen
class CheckResult:
    """The result of a check."""

    name: str
    status: Status
    text: str
    """What is wrong, or that nothing is."""
    values: Sequence[Value] = ()


def joined(
    name: str, found: Iterable[tuple[Status, str]], well: str, values: Sequence[Value] = ()
) -> CheckResult:
    """Return one result for several findings: the worst status, and what is wrong, the worst first."""
    wrong = [one for one in found if one[0] is not Status.OK]
    wrong.sort(key=lambda one: -_WORSE.index(one[0]))
    status = wrong[0][0] if wrong else Status.OK
    return CheckResult(name, status, "; ".join(text for _, text in wrong) or well, values)


def check_connection(answers: ClusterAnswers) -> CheckResult:
    """Judge whether all name servers answer, and whether they know the same brokers."""
    servers = answers.name_servers
    silent = {name: one for name, one in servers.items() if isinstance(one, Error)}
    all_silent = len(silent) == len(servers)
    found = [
        (Status.CRITICAL if all_silent else Status.WARNING, f"{name} does not answer: {one.what}")
        for name, one in silent.items()
    ]
    found += [
        (Status.WARNING, f"{one.where} {one.what}")
        for one in health_of(attrs.evolve(answers, brokers=())).findings
        if one.code == "R01"
    ]
    values = [Value("name_servers", len(servers)), Value("silent_name_servers", len(silent))]
    return joined(
        "connection", found, f"{counted(len(servers), 'name server')} answered alike", values
    )


def check_brokers(
    answers: ClusterAnswers, names: Sequence[str], waiting: Thresholds
) -> CheckResult:
    """Judge whether brokers answer, take writes, and answer sends within a time.

    `waiting` is about the milliseconds that the first waiting send has waited (sendThreadPoolQueueHeadWaitTimeMills).
    """
    found: list[tuple[Status, str]] = _missing(answers.brokers, names)
    values: list[Value] = []
    for broker in _named(answers.brokers, names):
        where = f"{broker.broker_name} {broker.broker_id} ({broker.address})"
        if broker.state == NOT_REACHABLE:
            found.append((Status.CRITICAL, f"{where} does not answer"))
            continue
        if broker.state == REFUSED:
            found.append((Status.UNKNOWN, f"{where}: {broker.problem}"))
            continue
        if broker.state == NO_WRITES:
            found.append((Status.CRITICAL, f"{where} takes no writes: {broker.problem}"))
        runtime = answers.runtimes.get(broker.address)
        if runtime is None:
            found.append((Status.UNKNOWN, f"{where} did not report how long sends wait"))
            continue
        wait = number_of(runtime.get("sendThreadPoolQueueHeadWaitTimeMills"))
        values.append(Value("send_wait", wait, "ms", waiting, _labels(broker)))
        held = number_of(runtime.get("rocketrioWaitingAnswers"))
        values.append(Value("waiting_answers", held, "", None, _labels(broker)))
        if wait is not None:
            found.append((waiting.status(wait), f"{where} lets sends wait for {wait:.0f} ms"))
    members = _named(answers.brokers, names)
    for name in sorted({one.broker_name for one in members}):
        if all(one.role == "slave" for one in members if one.broker_name == name):
            found.append((Status.CRITICAL, f"{name} has no master: it takes no messages"))
    count = len(members)
    return joined(
        "broker", found, f"{counted(count, 'broker')}: each answers and takes writes", values
    )


def unsafe_sends(brokers: Sequence[BrokerStatus]) -> dict[str, int]:
    """Return how many sends each broker has answered with less safety than was asked for, by address.

    Apache's brokers do not report it, and are missing.
    """
    return {
        one.address: sum(count for status, count in one.answered.items() if status != PUT_OK)
        for one in brokers
        if one.answered is not None
    }


def check_replication(
    brokers: Sequence[BrokerStatus],
    names: Sequence[str],
    seconds: Thresholds,
    *,
    unsafe_before: Mapping[str, int] | None = None,
) -> CheckResult:
    """Judge whether slaves follow, how far they are behind, and whether sends were answered unsafe since then."""
    found: list[tuple[Status, str]] = _missing(brokers, names)
    values: list[Value] = []
    for broker in _named(brokers, names) if unsafe_before is not None else ():
        count = unsafe_sends([broker]).get(broker.address)
        if count is None:
            continue
        before = (unsafe_before or {}).get(broker.address, count)
        more = count - before if count >= before else count  # It has started again.
        values.append(Value("unsafe_sends", more, "", None, _labels(broker)))
        if more:
            where = f"{broker.broker_name} {broker.broker_id} ({broker.address})"
            found.append((Status.CRITICAL, f"{where} answered {more} sends as not safe"))
    slaves = [one for one in _named(brokers, names) if one.role == "slave"]
    for slave in slaves:
        where = f"{slave.broker_name}: slave {slave.broker_id} ({slave.address})"
        labels = _labels(slave)
        values.append(Value("behind_bytes", slave.bytes_behind, "B", None, labels))
        values.append(Value("behind_seconds", slave.seconds_behind, "s", seconds, labels))
        if slave.state == NOT_REACHABLE:
            found.append((Status.CRITICAL, f"{where} does not answer"))
        elif slave.state == REFUSED:
            found.append((Status.UNKNOWN, f"{where}: {slave.problem}"))
        elif slave.problem is not None or slave.state == NOT_CONNECTED:
            found.append(
                (Status.CRITICAL, f"{where} does not follow: {slave.problem or slave.state}")
            )
        elif slave.seconds_behind is not None:
            text = f"{where} is {slave.seconds_behind:.0f} s behind"
            found.append((seconds.status(slave.seconds_behind), text))
        elif slave.bytes_behind is None:
            found.append((Status.UNKNOWN, f"{where}: no broker reports how far it is behind"))
        elif slave.bytes_behind >= BYTES_BEHIND:
            found.append((Status.WARNING, f"{where} is {slave.bytes_behind >> 20} MiB behind"))
    for name in sorted({one.broker_name for one in _named(brokers, names)}):
        own = [one for one in brokers if one.broker_name == name]
        synchronous = any(one.role == "sync-master" for one in own)
        if synchronous and not any(one.role == "slave" for one in own):
            found.append((Status.CRITICAL, f"{name}: a synchronous master without a slave"))
    well = f"{len(slaves)} slaves follow" if slaves else "no slave is registered"
    return joined("replication", found, well, values)


def check_disks(
    answers: ClusterAnswers,
    names: Sequence[str],
    percent: Thresholds,
    *,
    days: Thresholds | None = None,
    now_ms: int | None = None,
) -> CheckResult:
    """Judge how full the disks of brokers are, and with `days` how long they last at the rate of their own log."""
    found: list[tuple[Status, str]] = _missing(answers.brokers, names)
    values: list[Value] = []
    for broker in _named(answers.brokers, names):
        where = f"{broker.broker_name} {broker.broker_id} ({broker.address})"
        runtime = answers.runtimes.get(broker.address, {})
        ratio = number_of(runtime.get("commitLogDiskRatio"))
        used = None if ratio is None or ratio < 0 else round(ratio * 100, 1)
        values.append(Value("disk_used", used, "%", percent, _labels(broker)))
        free = free_bytes(runtime)
        age = None if now_ms is None else log_age(runtime, now_ms)
        left = days_left(runtime, now_ms)
        values.append(Value("disk_free", free, "B", None, _labels(broker)))
        values.append(Value("oldest_message", age, "s", None, _labels(broker)))
        values.append(Value("days_left", left, "", days, _labels(broker)))
        if days is not None and left is not None:
            text = f"{where} has room for {left:.1f} days at the rate of its log"
            found.append((days.status(left), text))
        elif days is not None:
            text = f"{where}: how long its disk lasts is unknown before its log is a day old"
            found.append((Status.UNKNOWN, text))
        if ratio is None or ratio < 0:
            found.append((Status.UNKNOWN, f"{where} did not report how full its disk is"))
            continue
        found.append((percent.status(ratio * 100), f"{where} has a disk that is {ratio:.0%} full"))
    count = len(_named(answers.brokers, names))
    return joined("disk", found, f"{counted(count, 'broker')}: each disk has room", values)


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


_OF_VERDICT: Final = {
    Verdict.OK: Status.OK,
    Verdict.UNKNOWN: Status.UNKNOWN,
    Verdict.BEHIND: Status.WARNING,
    Verdict.REWOUND: Status.WARNING,
    Verdict.STALLED: Status.CRITICAL,
    Verdict.STOPPED: Status.CRITICAL,
    Verdict.AHEAD: Status.CRITICAL,
    Verdict.LOSING: Status.CRITICAL,
}


def check_lag(
    report: LagReport, messages: Thresholds | None = None, age: Thresholds | None = None
) -> CheckResult:
    """Judge how groups keep up: by the verdicts, and by thresholds on messages and seconds if they are given.

    A verdict that is unknown only because it needs more samples leaves the judgement to the thresholds.
    """
    found: list[tuple[Status, str]] = []
    values: list[Value] = []
    open_verdicts: list[str] = []
    for row in report.rows:
        where = row.group if row.topic is None else f"{row.group} in {row.topic}"
        labels = {"group": row.group, "topic": row.topic or ""}
        verdict = _OF_VERDICT[row.verdict], f"{where} is {row.verdict}: {row.judgement.why}"
        if row.needs_samples and (messages or age):
            open_verdicts.append(where)
        else:
            found.append(verdict)
        values.append(Value("lag", row.lag, "", messages, labels))
        values.append(Value("oldest_unread", row.oldest_seconds, "s", age, labels))
        if messages is not None:
            lag = "unknown" if row.lag is None else f"{row.lag:,}"
            found.append((messages.status(row.lag), f"{where} has {lag} unread messages"))
        if age is not None:
            oldest = row.oldest_seconds
            shown = "unknown" if oldest is None else f"{oldest:.0f} s"
            found.append(
                (age.status(oldest), f"{where}: the oldest unread message's age is {shown}")
            )
    found += [
        (Status.UNKNOWN, f"{name} did not answer: {why}") for name, why in report.silent.items()
    ]
    count = f"{counted(len(report.rows), 'pair')} of group and topic"
    well = f"{count}: each keeps up"
    if open_verdicts:
        them = ", ".join(open_verdicts)
        well = (
            f"{count}: each is within the thresholds; only a window shows whether {them} keeps up"
        )
    return joined("lag", found, well, values)


def check_errors(answers: ClusterAnswers) -> CheckResult:
    """Judge all that `admin.health()` finds: errors are critical."""
    health = health_of(answers)
    found = [
        (
            Status.CRITICAL if one.severity is Severity.ERROR else Status.WARNING,
            f"{one.where} {one.what} ({one.code})",
        )
        for one in health.findings
    ]
    found += [
        (Status.UNKNOWN, f"{address}: {why}")
        for address, why in health.silent.items()
        if address in health.refused
    ]
    values = [Value("findings", len(health.findings))]
    return joined(
        "health", found, f"nothing is wrong with {counted(health.brokers, 'broker')}", values
    )


def check_dead_letters(
    counts: Mapping[str, int], before: Mapping[str, int] | None, new: Thresholds
) -> CheckResult:
    """Judge how many dead letters groups have got since `before`; all of them count without it."""
    found: list[tuple[Status, str]] = []
    values: list[Value] = []
    for group, count in counts.items():
        more = lag_of(0 if before is None else before.get(group, 0), count)
        values.append(Value("dead_letters", more, "", new, {"group": group}))
        found.append(
            (
                new.status(more),
                f"{group} has {counted(more, 'dead letter' if before is None else 'new dead letter')}",
            )
        )
    return joined(
        "dead-letters", found, f"no new dead letters in {counted(len(counts), 'group')}", values
    )


def check_transactions(
    found: Mapping[str, Transactions],
    before: Mapping[str, int] | None,
    given_up: Thresholds,
    open_limits: Thresholds | None = None,
) -> CheckResult:
    """Judge how many transactions brokers have given up since `before` (all without it), and how many are open."""
    judged: list[tuple[Status, str]] = []
    values: list[Value] = []
    for name, one in found.items():
        last = 0 if before is None else before.get(name, one.given_up)
        more = lag_of(last, one.given_up)
        labels = {"broker": name}
        values.append(Value("given_up", more, "", given_up, labels))
        values.append(Value("open", one.open, "", open_limits, labels))
        judged.append((given_up.status(more), f"{name} gave up {counted(more, 'transaction')}"))
        if open_limits is not None:
            judged.append(
                (open_limits.status(one.open), f"{name} has {counted(one.open, 'open one')}")
            )
    return joined(
        "transactions",
        judged,
        f"{counted(len(found), 'broker')}: none gave up a transaction",
        values,
    )


def check_certificates(
    ends_ms: Mapping[str, int | Error], now_ms: int, days: Thresholds
) -> CheckResult:
    """Judge how long the certificates are valid that servers show; `ends_ms` has the end of each, by name."""
    judged: list[tuple[Status, str]] = []
    values: list[Value] = []
    for name, end in ends_ms.items():
        if isinstance(end, Error):
            judged.append((Status.UNKNOWN, f"{name} shows no certificate: {end.what}"))
            continue
        left = (end - now_ms) / 86_400_000
        text = f"the certificate of {name} " + (
            f"ends in {left:.0f} days" if left > 0 else "has ended"
        )
        values.append(Value("days_left", round(left, 2), "", days, {"server": name}))
        judged.append((days.status(left), text))
    return joined("certificate", judged, f"{len(values)} certificates are valid", values)


def check_routes(answers: DoctorAnswers) -> CheckResult:
    """Judge whether clients find all topics, with the queues that brokers have: R04, R06, R07 and R08 of the doctor."""
    findings = [
        *(one for one in health_of(answers.cluster).findings if one.code == "R06"),
        *topics_without_master(answers),
        *routes_that_differ(answers),
        *system_topics_missing(answers),
    ]
    found = [
        (
            Status.CRITICAL if one.severity is Severity.ERROR else Status.WARNING,
            f"{one.where}: {one.what} ({one.code})",
        )
        for one in findings
    ]
    found += [(Status.UNKNOWN, f"{what}: {why}") for what, why in answers.unknown.items()]
    values = [Value("topics", len(answers.routes)), Value("findings", len(findings))]
    return joined(
        "routes",
        found,
        f"{counted(len(answers.routes), 'topic')}: brokers have each where routes say",
        values,
    )


def check_roundtrip(topic: str, milliseconds: float, limits: Thresholds) -> CheckResult:
    """Judge the time from a send to the receipt of the message."""
    text = f"a message through {topic} took {milliseconds:.0f} ms"
    value = Value("roundtrip", round(milliseconds, 1), "ms", limits, {"topic": topic})
    return CheckResult("roundtrip", limits.status(milliseconds), text, [value])


# -------------------------------------------------------------------------------------- output


def nagios_line(result: CheckResult) -> str:
    """Return a result as a line for Nagios: status, check, text, and the known values after `|`."""
    shown = [_performance(value) for value in result.values if value.value is not None]
    text = " ".join(result.text.replace("|", "/").split())
    line = f"{result.status.name} {result.name}: {text}"
    return printable(f"{line} | {' '.join(shown)}" if shown else line)


def _performance(value: Value) -> str:
    label = "_".join((value.name, *value.labels.values()))
    label = label.replace("'", "").replace("=", "_")
    label = f"'{label}'" if set(label) & set(" %") else label
    limits = value.thresholds
    bounds = (
        ""
        if limits is None
        else f";{_limit(limits, limits.warning)};{_limit(limits, limits.critical)}"
    )
    unit = "" if value.unit == "" else value.unit
    return f"{label}={value.value:g}{unit}{bounds}"


def _limit(limits: Thresholds, bound: float) -> str:
    """Return a threshold as a range of good values: `10` is 0 to 10, `10:` is 10 and more."""
    return f"{bound:g}:" if limits.critical < limits.warning else f"{bound:g}"


def _labels(broker: BrokerStatus) -> dict[str, str]:
    return {"broker": broker.broker_name, "id": str(broker.broker_id)}


def _named(brokers: Sequence[BrokerStatus], names: Sequence[str]) -> list[BrokerStatus]:
    return [one for one in brokers if not names or one.broker_name in names]


def _missing(brokers: Sequence[BrokerStatus], names: Sequence[str]) -> list[tuple[Status, str]]:
    known = {one.broker_name for one in brokers}
    if not names and not known:
        return [(Status.CRITICAL, "no broker is registered")]
    return [(Status.CRITICAL, f"{name} is not registered") for name in names if name not in known]
