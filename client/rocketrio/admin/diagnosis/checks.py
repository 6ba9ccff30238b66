"""Judges one side of a cluster for programs that watch it, such as Nagios, Icinga and cron: `rocketrio check`.

Each function takes a snapshot, or what else was asked, and returns a result: a status, a sentence, and the numbers
behind it with their limits. Where a rule of the diagnosis judges the same, the check is that rule with limits of the
caller; the other limits are here. They wait for nothing; the command asks the cluster.

Invariant: what could not be asked is unknown, or critical where silence is the fault itself; it is never ok.
Answers to: the exit codes and the output of the Monitoring Plugins Development Guidelines.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from rocketrio.admin.broker_numbers import size_of
from rocketrio.admin.cluster_status import NOT_REACHABLE, REFUSED, BrokerStatus
from rocketrio.admin.diagnosis import brokers, findings, health_of
from rocketrio.admin.diagnosis.groups import OF_VERDICT
from rocketrio.admin.diagnosis.rule import STATUS_OF, Limits, Rule, Status
from rocketrio.admin.diagnosis.snapshot import Snapshot, number_of
from rocketrio.admin.lag_values import LagReport
from rocketrio.admin.transactions import Transactions
from rocketrio.counts import counted
from rocketrio_protocol.errors import Error
from rocketrio_protocol.lag import Verdict, lag_of
from rocketrio_protocol.log_lines import printable
from rocketrio_protocol.times import age_ms

SEND_WAIT: Final = Limits(100, 500)
"""Milliseconds that the first waiting send has waited."""
GIVEN_UP: Final = Limits(1, 100)
"""Transactions that no producer decided."""
DEAD_LETTERS: Final = Limits(1, 100)
CERTIFICATE_DAYS: Final = Limits(30, 7)
ROUNDTRIP_MS: Final = Limits(200, 1000)
_ROUTES: Final = (
    brokers.no_master,
    brokers.topics_without_master,
    brokers.routes_that_differ,
    brokers.system_topics_missing,
)
_WORSE: Final = (Status.OK, Status.UNKNOWN, Status.WARNING, Status.CRITICAL)
"""From good to bad: what is known to be bad counts before what is unknown."""

Judged = tuple[Status, str]


@attrs.frozen
class Value:
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
    values: Sequence[Value] = ()


def joined(
    name: str, found: Iterable[Judged], well: str, values: Sequence[Value] = ()
) -> CheckResult:
    """Return one result for several findings: the worst status, and what is wrong, the worst first."""
    wrong = [one for one in found if one[0] is not Status.OK]
    wrong.sort(key=lambda one: -_WORSE.index(one[0]))
    status = wrong[0][0] if wrong else Status.OK
    return CheckResult(name, status, "; ".join(text for _, text in wrong) or well, values)


def _judged(
    seen: Snapshot, where: str, *rules: Rule, limits: Limits | None = None
) -> Iterator[Judged]:
    """Judge what rules find in a snapshot of one broker, which the texts call `where`."""
    for one in rules:
        for case in one.cases(seen):
            # Here silence is the fault itself, of a slave too: nothing else is known of what was to be checked.
            status = Status.CRITICAL if one is brokers.unreachable else one.status(case, limits)
            yield status, f"{where} {case.brief or case.what}"


def check_connection(seen: Snapshot) -> CheckResult:
    """Judge whether all name servers answer, and whether they know the same brokers."""
    servers = seen.name_servers
    silent = {name: one for name, one in servers.items() if isinstance(one, Error)}
    all_silent = len(silent) == len(servers)
    found = [
        (Status.CRITICAL if all_silent else Status.WARNING, f"{name} does not answer: {one.what}")
        for name, one in silent.items()
    ]
    found += [
        (one.status, f"{one.where} {one.what}")
        for one in findings([brokers.name_servers_differ], seen)
    ]
    values = [Value("name_servers", len(servers)), Value("silent_name_servers", len(silent))]
    return joined(
        "connection", found, f"{counted(len(servers), 'name server')} answered alike", values
    )


def check_brokers(seen: Snapshot, names: Sequence[str], waiting: Limits) -> CheckResult:
    """Judge whether brokers answer, take writes, and answer sends within a time.

    `waiting` is about the milliseconds that the first waiting send has waited (sendThreadPoolQueueHeadWaitTimeMills).
    """
    found = _missing(seen, names)
    values: list[Value] = []
    members = _named(seen, names)
    for one in members:
        where = one.where
        found += _judged(seen.of(one), where, brokers.unreachable, brokers.no_writes)
        runtime = seen.runtimes.get(one.address)
        if one.state == REFUSED:
            found.append((Status.UNKNOWN, f"{where}: {one.problem}"))
        elif runtime is not None and one.state != NOT_REACHABLE:
            wait = number_of(runtime.get("sendThreadPoolQueueHeadWaitTimeMills"))
            values.append(Value("send_wait", wait, "ms", waiting, _labels(one)))
            held = number_of(runtime.get("rocketrioWaitingAnswers"))
            values.append(Value("waiting_answers", held, "", None, _labels(one)))
            if wait is not None:
                found.append((waiting.status(wait), f"{where} lets sends wait for {wait:.0f} ms"))
        elif one.state != NOT_REACHABLE:
            found.append((Status.UNKNOWN, f"{where} did not report how long sends wait"))
    for case in brokers.no_master.cases(seen.of(*members)):
        found.append((Status.CRITICAL, f"{case.where} {case.brief}"))
    well = f"{counted(len(members), 'broker')}: each answers and takes writes"
    return joined("broker", found, well, values)


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
    found = _missing(seen, names)
    values: list[Value] = []
    members = _named(seen, names)
    unsafe = {} if unsafe_before is None else unsafe_sends(seen)
    for one in members:
        if unsafe_before is not None and one.address in unsafe:
            count = unsafe[one.address]
            before = unsafe_before.get(one.address, count)
            more = count - before if count >= before else count  # It has started again.
            values.append(Value("unsafe_sends", more, "", None, _labels(one)))
            if more:
                found.append((Status.CRITICAL, f"{one.where} answered {more} sends as not safe"))
    slaves = [one for one in members if one.role == "slave"]
    for slave in slaves:
        where = f"{slave.broker_name}: slave {slave.broker_id} ({slave.address})"
        labels = _labels(slave)
        values.append(Value("behind_bytes", slave.bytes_behind, "B", None, labels))
        values.append(Value("behind_seconds", slave.seconds_behind, "s", seconds, labels))
        rules = brokers.unreachable, brokers.not_following, brokers.slave_behind
        judged = list(_judged(seen.of(slave), where, *rules, limits=seconds))
        found += judged
        if slave.state == REFUSED:
            found.append((Status.UNKNOWN, f"{where}: {slave.problem}"))
        elif not judged and slave.bytes_behind is None:
            found.append((Status.UNKNOWN, f"{where}: no broker reports how far it is behind"))
    for name in sorted({one.broker_name for one in members}):
        if brokers.lacks_slave([one for one in members if one.broker_name == name]):
            found.append((Status.CRITICAL, f"{name}: a synchronous master without a slave"))
    well = f"{len(slaves)} slaves follow" if slaves else "no slave is registered"
    return joined("replication", found, well, values)


def check_disks(
    seen: Snapshot, names: Sequence[str], percent: Limits, *, days: Limits | None = None
) -> CheckResult:
    """Judge how full the disks of brokers are, and with `days` how long they last at the rate of their own log."""
    found = _missing(seen, names)
    values: list[Value] = []
    members = _named(seen, names)
    for one in members:
        where, labels, runtime = one.where, _labels(one), seen.runtime(one)
        used = brokers.disk_used(seen, one)
        age = None if seen.now_ms is None else log_age(runtime, seen.now_ms)
        left = days_left(runtime, seen.now_ms)
        values += [
            Value(
                "disk_used", None if used is None else round(used * 100, 1), "%", percent, labels
            ),
            Value("disk_free", free_bytes(runtime), "B", None, labels),
            Value("oldest_message", age, "s", None, labels),
            Value("days_left", left, "", days, labels),
        ]
        if days is not None and left is not None:
            text = f"{where} has room for {left:.1f} days at the rate of its log"
            found.append((days.status(left), text))
        elif days is not None:
            text = f"{where}: how long its disk lasts is unknown before its log is a day old"
            found.append((Status.UNKNOWN, text))
        found += _judged(seen.of(one), where, brokers.disk_fills, limits=percent)
    well = f"{counted(len(members), 'broker')}: each disk has room"
    return joined("disk", found, well, values)


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
    found: list[Judged] = []
    values: list[Value] = []
    open_verdicts: list[str] = []
    for row in report.rows:
        where, labels = row.name, {"group": row.group, "topic": row.topic or ""}
        if row.needs_samples and (messages or age):
            open_verdicts.append(where)
        else:
            status = _verdict_status(row.verdict)
            found.append((status, f"{where} is {row.verdict}: {row.judgement.why}"))
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


def _verdict_status(verdict: Verdict) -> Status:
    broken = OF_VERDICT.get(verdict)
    if broken is not None:
        return STATUS_OF[broken.severity]
    return Status.OK if verdict == Verdict.OK else Status.UNKNOWN


def check_errors(seen: Snapshot) -> CheckResult:
    """Judge all that `admin.health()` finds: errors are critical."""
    health = health_of(seen)
    found = [(one.status, f"{one.where} {one.what} ({one.code})") for one in health.findings]
    found += [
        (Status.UNKNOWN, f"{address}: {why}")
        for address, why in health.silent.items()
        if address in health.refused
    ]
    well = f"nothing is wrong with {counted(health.brokers, 'broker')}"
    return joined("health", found, well, [Value("findings", len(health.findings))])


def check_dead_letters(
    counts: Mapping[str, int], before: Mapping[str, int] | None, new: Limits
) -> CheckResult:
    """Judge how many dead letters groups have got since `before`; all of them count without it."""
    found: list[Judged] = []
    values: list[Value] = []
    noun = "dead letter" if before is None else "new dead letter"
    for group, count in counts.items():
        more = lag_of(0 if before is None else before.get(group, 0), count)
        values.append(Value("dead_letters", more, "", new, {"group": group}))
        found.append((new.status(more), f"{group} has {counted(more, noun)}"))
    well = f"no new dead letters in {counted(len(counts), 'group')}"
    return joined("dead-letters", found, well, values)


def check_transactions(
    found: Mapping[str, Transactions],
    before: Mapping[str, int] | None,
    given_up: Limits,
    open_limits: Limits | None = None,
) -> CheckResult:
    """Judge how many transactions brokers have given up since `before` (all without it), and how many are open."""
    judged: list[Judged] = []
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
    well = f"{counted(len(found), 'broker')}: none gave up a transaction"
    return joined("transactions", judged, well, values)


def check_certificates(
    ends_ms: Mapping[str, int | Error], now_ms: int, days: Limits
) -> CheckResult:
    """Judge how long the certificates are valid that servers show; `ends_ms` has the end of each, by name."""
    judged: list[Judged] = []
    values: list[Value] = []
    for name, end in ends_ms.items():
        if isinstance(end, Error):
            judged.append((Status.UNKNOWN, f"{name} shows no certificate: {end.what}"))
            continue
        left = (end - now_ms) / 86_400_000
        text = f"ends in {left:.0f} days" if left > 0 else "has ended"
        values.append(Value("days_left", round(left, 2), "", days, {"server": name}))
        judged.append((days.status(left), f"the certificate of {name} {text}"))
    return joined("certificate", judged, f"{len(values)} certificates are valid", values)


def check_routes(seen: Snapshot) -> CheckResult:
    """Judge whether clients find all topics, with the queues that brokers have."""
    wrong = [one for each in _ROUTES for one in each.findings(seen)]
    found = [(one.status, f"{one.where}: {one.what} ({one.code})") for one in wrong]
    found += [(Status.UNKNOWN, f"{what}: {why}") for what, why in seen.unknown.items()]
    values = [Value("topics", len(seen.routes)), Value("findings", len(wrong))]
    well = f"{counted(len(seen.routes), 'topic')}: brokers have each where routes say"
    return joined("routes", found, well, values)


def check_roundtrip(topic: str, milliseconds: float, limits: Limits) -> CheckResult:
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


def _named(seen: Snapshot, names: Sequence[str]) -> list[BrokerStatus]:
    return [one for one in seen.brokers if not names or one.broker_name in names]


def _missing(seen: Snapshot, names: Sequence[str]) -> list[Judged]:
    known = {one.broker_name for one in seen.brokers}
    if not names and not known:
        return [(Status.CRITICAL, "no broker is registered")]
    return [(Status.CRITICAL, f"{name} is not registered") for name in names if name not in known]
