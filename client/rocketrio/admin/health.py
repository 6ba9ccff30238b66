"""What is wrong with a cluster's name servers, brokers and replication: `admin.health()`.

`findings` is a function of what name servers and brokers answered; only `ask` waits. Lag is not part of it (lag.py),
because a verdict on lag needs a window.

Invariant: a number that no broker reported leads to no finding, and a broker that did not answer is one.
Answers to: nothing in Apache's tools; `mqadmin clusterList` and `haStatus` show some of the numbers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import attrs

from rocketrio.admin.broker_numbers import size_of
from rocketrio.admin.cluster_status import (
    NO_WRITES,
    NOT_CONNECTED,
    NOT_REACHABLE,
    REFUSED,
    UNKNOWN_STATES,
    BrokerStatus,
)
from rocketrio.counts import counted
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.errors import AccessRefusedError, Error
from rocketrio_protocol.lag import duration

SECONDS_BEHIND: Final = (10.0, 60.0)
"""How far behind a slave is a warning, and how far an error."""
BYTES_BEHIND: Final = 256 << 20
"""The same for a slave whose time is unknown: Apache's masters count it as away from here (haSlaveFallbehindMax)."""
DISK_RATIO: Final = (0.75, 0.85)
"""How full a disk is a warning, and how full an error: at 0.85 brokers delete log files early, or refuse messages."""
DISPATCH_BEHIND: Final = 64 << 20
"""Bytes of the log that queues do not have yet: readers do not see them."""
FLUSH_BEHIND: Final = 256 << 20
"""Bytes of the log that are not on disk yet, as a power cut may lose them: seconds of a busy disk."""
CLOCK_AHEAD: Final = 0.5
"""Seconds between two clocks from which on ages of messages, delays and resets by time are noticeably wrong."""
PUT_OK: Final = "PUT_OK"
"""The status of a send that got everything for which it had to wait."""


class Severity(StrEnum):
    """How bad a finding is."""

    WARNING = "warning"
    ERROR = "error"


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


def link_of(code: str) -> str:
    """Return the place in the manual that says more about a code."""
    return f"docs/doctor.md#{code.lower()}"


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with errors first."""
    return sorted(
        findings, key=lambda one: (one.severity is not Severity.ERROR, one.where, one.code)
    )


@attrs.frozen
class Health:
    """What is wrong with a cluster, the worst first."""

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


@attrs.frozen
class ClusterAnswers:
    """What name servers and brokers answered."""

    name_servers: Mapping[str, ClusterInfo | Error]
    """By address."""
    brokers: Sequence[BrokerStatus]
    runtimes: Mapping[str, Mapping[str, str]] = attrs.Factory(dict)
    """The runtime information of brokers, by address."""


def health_of(answers: ClusterAnswers) -> Health:
    """Return what is wrong, the worst first."""
    found = [
        *_name_servers(answers.name_servers),
        *_names(answers),
        *(finding for broker in answers.brokers for finding in _broker(broker)),
        *(
            finding
            for broker in answers.brokers
            for finding in _runtime(_where(broker), answers.runtimes.get(broker.address, {}))
        ),
        *_versions(answers),
    ]
    silent = {
        address: answer.what
        for address, answer in answers.name_servers.items()
        if isinstance(answer, Error)
    }
    silent |= {
        broker.address: broker.problem or broker.state
        for broker in answers.brokers
        if broker.state in UNKNOWN_STATES
    }
    refused = {one.address for one in answers.brokers if one.state == REFUSED} | {
        address
        for address, answer in answers.name_servers.items()
        if isinstance(answer, AccessRefusedError)
    }
    return Health(worst_first(found), len(answers.brokers), silent, frozenset(refused))


# ------------------------------------------------------------------------------------------- rules


def _name_servers(answers: Mapping[str, ClusterInfo | Error]) -> Iterator[Finding]:
    brokers: dict[str, set[tuple[str, int, str]]] = {}
    for address, answer in answers.items():
        if isinstance(answer, AccessRefusedError):
            continue
        if isinstance(answer, Error):
            yield Finding(
                "R05",
                Severity.WARNING,
                f"name server {address}",
                f"does not answer: {answer.what}",
                "Start it, or take it off the lists of clients and brokers",
            )
        else:
            brokers[address] = {
                (name, broker_id, addr)
                for name, broker in answer.broker_addr_table.items()
                for broker_id, addr in broker.broker_addrs.items()
            }
    every = {one for known in brokers.values() for one in known}
    for address, known in brokers.items():
        missing = sorted(every - known)
        if missing:
            names = ", ".join(f"{name} {broker_id} at {addr}" for name, broker_id, addr in missing)
            yield Finding(
                "R01",
                Severity.WARNING,
                f"name server {address}",
                f"does not know what other name servers know: {names}",
                "Check that these brokers have its address (namesrvAddr) and reach it",
            )


def _names(answers: ClusterAnswers) -> Iterator[Finding]:
    """Yield what is wrong with the brokers of one name together."""
    by_name: dict[tuple[str, str], list[BrokerStatus]] = defaultdict(list)
    for broker in answers.brokers:
        by_name[broker.cluster, broker.broker_name].append(broker)
    for (_, name), members in by_name.items():
        masters = [one for one in members if one.role != "slave"]
        leading = [one for one in masters if one.state not in (NO_WRITES, *UNKNOWN_STATES)]
        if not masters:
            yield Finding(
                "R06",
                Severity.ERROR,
                name,
                "has no master: it takes no messages and no commits",
                "Start its master, or make the slave with the longest log master",
            )
        if len(leading) > 1:
            addresses = ", ".join(one.address for one in leading)
            yield Finding(
                "R03",
                Severity.ERROR,
                name,
                f"has {len(leading)} masters: {addresses}",
                "Stop one of them: messages are stored in two histories",
            )
        for master in leading:
            if master.role == "sync-master" and not any(one.role == "slave" for one in members):
                yield Finding(
                    "H01",
                    Severity.ERROR,
                    _where(master),
                    "is a synchronous master without a slave",
                    "Start a slave of its name",
                )


def _broker(one: BrokerStatus) -> Iterator[Finding]:
    where = _where(one)
    if one.state == NOT_REACHABLE:
        is_slave = one.role == "slave"
        yield Finding(
            "R02",
            Severity.WARNING if is_slave else Severity.ERROR,
            where,
            f"is registered and does not answer: {one.problem}",
            "Check that it runs, and that its address can be reached from here",
        )
        return
    if one.state == REFUSED:
        return
    if one.role == "slave":
        yield from _slave(one)
    elif one.state == NO_WRITES:
        yield Finding(
            "B02", Severity.ERROR, where, f"takes no writes: {one.problem}", "Remove this reason"
        )
    elif one.problem is not None:
        yield Finding("B01", Severity.WARNING, where, one.problem, "See the broker's log")
    if one.last_wait is not None and one.last_wait.status != PUT_OK:
        yield Finding(
            "H03",
            Severity.ERROR,
            where,
            f"answered the last send that had to wait with {one.last_wait.status}",
            "The message is not where it has to be: check slaves and disk",
        )
    if one.beyond is not None:
        yield Finding(
            "H05",
            Severity.WARNING,
            where,
            f"has {counted(one.beyond.messages, 'message')} that its master lacks",
            "Look at them with `rocketrio broker cut`, and decide",
        )
    if not one.is_as_configured:
        yield Finding(
            "C03",
            Severity.WARNING,
            where,
            f"is {one.role} {one.broker_id}, and its settings say {one.configured}",
            "Correct its settings, or it returns to them when it is set up again",
        )
    if one.clock_ahead is not None and abs(one.clock_ahead) >= CLOCK_AHEAD:
        way = "ahead of" if one.clock_ahead > 0 else "behind"
        yield Finding(
            "S04",
            Severity.WARNING,
            where,
            f"has a clock that is {abs(one.clock_ahead):.1f} s {way} this machine's",
            "Check that both synchronize their clocks (NTP)",
        )


def _slave(one: BrokerStatus) -> Iterator[Finding]:
    where, advice = _where(one), "Check the network to its master, and what both log"
    if one.problem is not None or one.state == NOT_CONNECTED:
        what = one.problem or one.state
        yield Finding("H01", Severity.ERROR, where, f"does not follow: {what}", advice)
    elif one.seconds_behind is not None and one.seconds_behind >= SECONDS_BEHIND[0]:
        yield Finding(
            "H02",
            Severity.ERROR if one.seconds_behind >= SECONDS_BEHIND[1] else Severity.WARNING,
            where,
            f"is {duration(one.seconds_behind)} behind its master",
            advice,
            one.seconds_behind,
        )
    elif one.seconds_behind is None and (one.bytes_behind or 0) >= BYTES_BEHIND:
        what = f"is {(one.bytes_behind or 0) >> 20} MiB behind its master"
        yield Finding("H02", Severity.WARNING, where, what, advice)


def _runtime(where: str, runtime: Mapping[str, str]) -> Iterator[Finding]:
    disk = number_of(runtime.get("commitLogDiskRatio"))
    if disk is not None and disk >= DISK_RATIO[0]:
        yield Finding(
            "S01",
            Severity.ERROR if disk >= DISK_RATIO[1] else Severity.WARNING,
            where,
            f"has a disk that is {disk:.0%} full",
            "Free some of it, or shorten the time that messages are kept (fileReservedTime)",
        )
    behind = number_of(runtime.get("dispatchBehindBytes"))
    if behind is not None and behind >= DISPATCH_BEHIND:
        yield Finding(
            "S03",
            Severity.WARNING,
            where,
            f"has stored {int(behind) >> 20} MiB that readers do not see yet",
            "Check the load of its disk and processor",
        )
    unflushed = size_of(runtime.get("remainHowManyDataToFlush"))
    if unflushed is not None and unflushed >= FLUSH_BEHIND:
        yield Finding(
            "S03",
            Severity.WARNING,
            where,
            f"has stored {int(unflushed) >> 20} MiB that are not on its disk yet",
            "Check the load of its disk: a power cut loses them here",
        )


def _versions(answers: ClusterAnswers) -> Iterator[Finding]:
    versions: dict[str, list[str]] = defaultdict(list)
    for broker in answers.brokers:
        version = answers.runtimes.get(broker.address, {}).get("brokerVersionDesc")
        if version:
            versions[version].append(broker.broker_name)
    if len(versions) > 1:
        what = "; ".join(
            f"{version} on {', '.join(sorted(set(names)))}"
            for version, names in sorted(versions.items())
        )
        yield Finding(
            "V01",
            Severity.WARNING,
            "cluster",
            f"brokers announce different versions: {what}",
            "Finish the upgrade",
        )


def _where(broker: BrokerStatus) -> str:
    return f"{broker.broker_name} {broker.broker_id} ({broker.address})"


def number_of(text: str | None) -> float | None:
    """Return a number that a broker reported as text; None if it reported none, or no number."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
