"""Rules about name servers, routes, brokers, replication, storage and settings.

Invariant: a number that no broker reported leads to no finding, and a broker that did not answer is one.
Answers to: nothing in Apache's tools; `mqadmin clusterList` and `haStatus` show some of the numbers.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rocketrio.admin.broker_numbers import size_of
from rocketrio.admin.cluster_status import (
    NO_WRITES,
    NOT_CONNECTED,
    NOT_REACHABLE,
    UNKNOWN_STATES,
    BrokerStatus,
)
from rocketrio.admin.diagnosis.rule import Case, rule
from rocketrio.admin.diagnosis.snapshot import Snapshot, number_of
from rocketrio.counts import counted
from rocketrio.thresholds import DISK_PERCENT, SECONDS_BEHIND, Limits, Severity
from rocketrio_protocol.bodies.topics import Permission, TopicConfig
from rocketrio_protocol.errors import AccessRefusedError, ConfigError, Error
from rocketrio_protocol.lag import duration
from rocketrio_protocol.names import SCHEDULE_TOPIC
from rocketrio_protocol.remoting.ports import is_loopback, split_addr
from rocketrio_protocol.times import age_ms

BYTES_BEHIND: Final = 256 << 20
"""A warning for a slave whose time is unknown: Apache's masters count it as away from here (haSlaveFallbehindMax)."""
DISPATCH_BEHIND: Final = 64 << 20
"""Bytes of the log that queues do not have yet: readers do not see them."""
FLUSH_BEHIND: Final = 256 << 20
"""Bytes of the log that are not on disk yet, as a power cut may lose them: seconds of a busy disk."""
CLOCKS_APART: Final = Limits(0.5, math.inf)
"""Seconds from which on ages of messages, delays and resets by time are noticeably wrong."""
PUT_OK: Final = "PUT_OK"
"""The status of a send that got everything for which it had to wait."""
DAY_MS: Final = 86_400_000
NAMES_SHOWN: Final = 5

_EQUAL_SETTINGS: Final = (
    "mappedFileSizeCommitLog",
    "maxMessageSize",
    "messageDelayLevel",
    "fileReservedTime",
    "enablePropertyFilter",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
    "transactionCheckMax",
    "aclEnable",
    "authenticationEnabled",
    "authorizationEnabled",
)
"""Settings that a slave needs as its master has them: it stores the same files, and may become master."""


# ------------------------------------------------------------------------- name servers and routes


@rule(
    "R01", "Name servers know different brokers.", "name_servers",
    advice="Check that these brokers have its address (namesrvAddr) and reach it",
)  # fmt: skip
def name_servers_differ(seen: Snapshot) -> Iterator[Case]:
    brokers = {
        address: {
            (name, broker_id, addr)
            for name, broker in answer.broker_addr_table.items()
            for broker_id, addr in broker.broker_addrs.items()
        }
        for address, answer in seen.name_servers.items()
        if not isinstance(answer, Error)
    }
    every = {one for known in brokers.values() for one in known}
    for address, known in brokers.items():
        missing = sorted(every - known)
        if missing:
            names = ", ".join(f"{name} {broker_id} at {addr}" for name, broker_id, addr in missing)
            what = f"does not know what other name servers know: {names}"
            yield Case(f"name server {address}", what)


@rule(
    "R02", "A registered broker does not answer at its address.", "brokers",
    advice="Check that it runs, and that its address can be reached from here",
    severity=Severity.ERROR,
)  # fmt: skip
def unreachable(seen: Snapshot) -> Iterator[Case]:
    for one in seen.brokers:
        if one.state == NOT_REACHABLE:
            yield Case(
                one.where,
                f"is registered and does not answer: {one.problem}",
                brief="does not answer",
                severity=Severity.WARNING if one.role == "slave" else None,
            )


@rule(
    "R03", "A name has two masters.", "brokers",
    advice="Stop one of them: messages are stored in two histories", severity=Severity.ERROR,
)  # fmt: skip
def two_masters(seen: Snapshot) -> Iterator[Case]:
    for name, members in _by_name(seen):
        leading = [one for one in members if _leads(one)]
        if len(leading) > 1:
            addresses = ", ".join(one.address for one in leading)
            yield Case(name, f"has {len(leading)} masters: {addresses}")


@rule(
    "R04", "A topic is on no master.", "brokers", "listed", "topics",
    advice="Start the broker that stores them, or delete the topics", severity=Severity.ERROR,
)  # fmt: skip
def topics_without_master(seen: Snapshot) -> Iterator[Case]:
    """Find topics that name servers know, and of which all masters answered that they do not store them."""
    silent = any(
        one.state in UNKNOWN_STATES or one.broker_name not in seen.topics for one in seen.masters
    )
    if silent or not seen.topics:
        return
    stored = {topic for topics in seen.topics.values() for topic in topics}
    lost = sorted(topic for topic in seen.listed if topic not in stored)
    if lost:
        is_one = len(lost) == 1
        yield Case(
            _some(lost),
            "is on no master: it takes no messages" if is_one else "are on no master",
        )


@rule(
    "R05", "A name server does not answer.", "name_servers",
    advice="Start it, or take it off the lists of clients and brokers",
)  # fmt: skip
def silent_name_servers(seen: Snapshot) -> Iterator[Case]:
    """Find name servers that do not answer; one that refuses the account does."""
    for address, answer in seen.name_servers.items():
        if isinstance(answer, Error) and not isinstance(answer, AccessRefusedError):
            yield Case(f"name server {address}", f"does not answer: {answer.what}")


@rule(
    "R06", "A name has no master.", "brokers",
    advice="Start its master, or make the slave with the longest log master",
    severity=Severity.ERROR,
)  # fmt: skip
def no_master(seen: Snapshot) -> Iterator[Case]:
    """Find names of which only slaves are registered."""
    for name, members in _by_name(seen):
        if all(one.role == "slave" for one in members):
            brief = "has no master: it takes no messages"
            yield Case(name, f"{brief} and no commits", brief=brief)


@rule(
    "R07", "Name servers and a broker disagree about the queues of a topic.", "routes", "topics"
)  # fmt: skip
def routes_that_differ(seen: Snapshot) -> Iterator[Case]:
    """Find routes with other queues or permissions than the broker has: it was drained, or its registration is old."""
    different: dict[tuple[str, str], list[str]] = defaultdict(list)
    for topic, route in sorted(seen.routes.items()):
        for queues in [] if route is None else route.queue_datas:
            config = seen.topics.get(queues.broker_name, {}).get(topic)
            if config is None:
                continue
            shown = _queues(queues.read_queue_nums, queues.write_queue_nums, queues.perm)
            own = _queues(config.read_queue_nums, config.write_queue_nums, config.perm)
            if shown != own:
                what = f"name servers say {shown}, and the broker {own}"
                different[queues.broker_name, what].append(topic)
    for (name, what), topics in sorted(different.items()):
        undrain = f"`rocketrio broker undrain {name}`"
        advice = f"If it was drained: {undrain}; otherwise check that it registers"
        yield Case(f"{name}: {_some(topics)}", what, advice=advice)


@rule(
    "R08", "A broker lacks topics that RocketMQ needs.", "brokers", "topics",
    advice="Restart it: it creates them when it starts",
)  # fmt: skip
def system_topics_missing(seen: Snapshot) -> Iterator[Case]:
    """Find masters without the topics that delays, resets and tools need."""
    for one in seen.masters:
        topics: Mapping[str, TopicConfig] | None = seen.topics.get(one.broker_name)
        needed = (one.cluster, one.broker_name, SCHEDULE_TOPIC)
        missing = [] if topics is None else [name for name in needed if name not in topics]
        if missing:
            yield Case(one.where, f"has no topic {_some(missing)}")


# ------------------------------------------------------------------------- brokers and replication


@rule("B01", "A broker reports a problem.", "brokers", advice="See the broker's log")
def problem_reported(seen: Snapshot) -> Iterator[Case]:
    for one in _answering(seen.masters):
        if one.state != NO_WRITES and one.problem is not None:
            yield Case(one.where, one.problem)


@rule(
    "B02", "A master takes no writes.", "brokers",
    advice="Remove this reason", severity=Severity.ERROR,
)  # fmt: skip
def no_writes(seen: Snapshot) -> Iterator[Case]:
    for one in seen.masters:
        if one.state == NO_WRITES:
            yield Case(one.where, f"takes no writes: {one.problem}")


_LINK: Final = "Check the network to its master, and what both log"


@rule(
    "H01", "A slave is missing, or does not follow.", "brokers",
    advice=_LINK, severity=Severity.ERROR,
)  # fmt: skip
def not_following(seen: Snapshot) -> Iterator[Case]:
    for one in _answering(seen.brokers):
        if one.role == "slave" and not _follows(one):
            yield Case(one.where, f"does not follow: {one.problem or one.state}")
    for _, members in _by_name(seen):
        for one in members if lacks_slave(members) else ():
            if one.role == "sync-master" and _leads(one):
                what = "is a synchronous master without a slave"
                yield Case(one.where, what, advice="Start a slave of its name")


@rule(
    "H01", "A slave is missing, or does not follow.", "brokers", "slaves_wanted",
    advice="Start the missing slave: if this broker is lost, so are its messages",
)  # fmt: skip
def missing_slaves(seen: Snapshot) -> Iterator[Case]:
    """Find masters with fewer slaves than the user wants, or than others have: a stopped slave is not registered.

    A synchronous master without a slave is a case of `not_following` already.
    """
    slaves: dict[tuple[str, str], int] = defaultdict(int)
    for one in seen.brokers:
        slaves[one.cluster, one.broker_name] += one.role == "slave"
    most = max(slaves.values(), default=0)
    wanted = min(most, 1) if seen.slaves_wanted is None else seen.slaves_wanted
    for one in seen.masters:
        count = slaves[one.cluster, one.broker_name]
        is_known = one.role == "sync-master" and count == 0
        if count < wanted and not is_known:
            has = "no slave, and other names have some"
            if seen.slaves_wanted is not None:
                has = f"{count} of {wanted} slaves"
            yield Case(one.where, f"has {has}")


@rule("H02", "A slave is behind.", "brokers", advice=_LINK, limits=SECONDS_BEHIND)
def slave_behind(seen: Snapshot) -> Iterator[Case]:
    """Judge the seconds that slaves are behind, and the bytes where no broker reports seconds."""
    for one in _answering(seen.brokers):
        if one.role != "slave" or not _follows(one):
            continue
        where, seconds, size = one.where, one.seconds_behind, one.bytes_behind
        if seconds is not None:
            what = f"is {duration(seconds)} behind its master"
            yield Case(where, what, seconds, seconds=seconds, brief=f"is {seconds:.0f} s behind")
        elif size is not None and size >= BYTES_BEHIND:
            brief = f"is {size >> 20} MiB behind"
            yield Case(where, f"{brief} its master", brief=brief, severity=Severity.WARNING)


@rule(
    "H03", "Sends are not as safe as was asked for.", "brokers",
    advice="The message is not where it has to be: check slaves and disk", severity=Severity.ERROR,
)  # fmt: skip
def unsafe_send(seen: Snapshot) -> Iterator[Case]:
    for one in _answering(seen.brokers):
        if one.last_wait is not None and one.last_wait.status != PUT_OK:
            what = f"answered the last send that had to wait with {one.last_wait.status}"
            yield Case(one.where, what)


@rule(
    "H04", "Anyone who reaches the port of replication gets the log.", "brokers", "settings",
    advice="Set ha_secret_file or ha_tls_authority_file on all members",
)  # fmt: skip
def open_replication_ports(seen: Snapshot) -> Iterator[Case]:
    """Find brokers without a guard: a rocketrio broker says whether it has one; Apache's have none."""
    for one in seen.brokers:
        settings = seen.settings.get(one.address, {})
        guarded = settings.get("haSecretFile") or settings.get("haTlsAuthorityFile")
        if "rocketrioReplication" not in settings or guarded:
            continue
        try:
            host = settings.get("brokerIP2") or split_addr(one.address)[0]
            is_open = not is_loopback(f"{host}:{settings.get('haListenPort', '0')}")
        except ConfigError:
            continue  # What a broker reports may not be an address: who reaches it is unknown then.
        if is_open:
            yield Case(one.where, "lets anyone who reaches its replication port copy the log")


@rule(
    "H05", "A slave has messages that its master lacks.", "brokers",
    advice="Look at them with `rocketrio broker cut`, and decide",
)  # fmt: skip
def beyond_the_master(seen: Snapshot) -> Iterator[Case]:
    for one in _answering(seen.brokers):
        if one.beyond is not None:
            messages = counted(one.beyond.messages, "message")
            yield Case(one.where, f"has {messages} that its master lacks")


# ------------------------------------------------------------------------------ storage and clocks


@rule(
    "S01", "A disk fills.", "brokers", "runtimes",
    advice="Free some of it, or shorten the time that messages are kept (fileReservedTime)",
    limits=DISK_PERCENT,
)  # fmt: skip
def disk_fills(seen: Snapshot) -> Iterator[Case]:
    for one in seen.brokers:
        used = disk_used(seen, one)
        if used is None:
            yield Case(one.where, "did not report how full its disk is")
        else:
            yield Case(one.where, f"has a disk that is {used:.0%} full", used * 100)


@rule("S03", "A broker cannot keep up with its own log.", "brokers", "runtimes")
def behind_its_log(seen: Snapshot) -> Iterator[Case]:
    for one in seen.brokers:
        runtime = seen.runtime(one)
        behind = number_of(runtime.get("dispatchBehindBytes")) or 0
        if behind >= DISPATCH_BEHIND:
            what = f"has stored {int(behind) >> 20} MiB that readers do not see yet"
            yield Case(one.where, what, advice="Check the load of its disk and processor")
        unflushed = size_of(runtime.get("remainHowManyDataToFlush")) or 0
        if unflushed >= FLUSH_BEHIND:
            what = f"has stored {unflushed >> 20} MiB that are not on its disk yet"
            advice = "Check the load of its disk: a power cut loses them here"
            yield Case(one.where, what, advice=advice)


@rule(
    "S04", "Clocks differ.", "brokers", advice="Check that both synchronize their clocks (NTP)",
    limits=CLOCKS_APART,
)  # fmt: skip
def clocks_differ(seen: Snapshot) -> Iterator[Case]:
    for one in _answering(seen.brokers):
        ahead = one.clock_ahead
        if ahead is not None:
            way = "ahead of" if ahead > 0 else "behind"
            what = f"has a clock that is {abs(ahead):.1f} s {way} this machine's"
            yield Case(one.where, what, abs(ahead))


# ------------------------------------------------------------- transactions, settings and versions


@rule(
    "T01", "Transactions were given up.", "transactions", "now_ms",
    advice="Check that producers of the group run and answer; see TRANS_CHECK_MAX_TIME_TOPIC",
)  # fmt: skip
def transactions_given_up(seen: Snapshot) -> Iterator[Case]:
    """Find transactions that no producer decided within the last day, however often it was asked."""
    for name, one in sorted(seen.transactions.items()):
        if one.last_given_up_ms is None or seen.now_ms is None:
            continue
        if seen.now_ms - one.last_given_up_ms < DAY_MS:
            ago = duration(age_ms(one.last_given_up_ms, seen.now_ms) / 1000)
            yield Case(name, f"has given up {one.given_up:,} transactions, the last one {ago} ago")


@rule(
    "C01", "Settings of a master and its slave differ.", "brokers", "settings",
    advice="Make them equal",
)  # fmt: skip
def settings_that_differ(seen: Snapshot) -> Iterator[Case]:
    """Compare slaves with their masters: a slave stores the master's files, and may take its place."""
    masters = {
        one.broker_name: seen.settings[one.address]
        for one in seen.masters
        if one.address in seen.settings
    }
    for one in seen.brokers:
        own, master = seen.settings.get(one.address), masters.get(one.broker_name)
        if one.role != "slave" or own is None or master is None:
            continue
        different = [
            f"{name} is {own[name]}, at the master {master[name]}"
            for name in _EQUAL_SETTINGS
            if name in own and name in master and own[name] != master[name]
        ]
        if different:
            yield Case(one.where, "; ".join(different))


@rule(
    "C02", "Brokers create topics automatically.", "brokers", "settings",
    advice="In production set autoCreateTopicEnable=false; or omit this finding with --ignore C02",
)  # fmt: skip
def topics_created_automatically(seen: Snapshot) -> Iterator[Case]:
    """Find masters on which a misspelt topic is created, with the queues of one broker."""
    names = {
        one.broker_name
        for one in seen.masters
        if seen.settings.get(one.address, {}).get("autoCreateTopicEnable") == "true"
    }
    if names:
        what = "creates a topic when a message is sent to an unknown one, misspelt or not"
        yield Case(_some(sorted(names)), what)


@rule(
    "C03", "A broker has another role than its settings say.", "brokers",
    advice="Correct its settings, or it returns to them when it is set up again",
)  # fmt: skip
def other_role(seen: Snapshot) -> Iterator[Case]:
    """Find brokers that an order, or the return to the cluster, gave another role."""
    for one in _answering(seen.brokers):
        if not one.is_as_configured:
            what = f"is {one.role} {one.broker_id}, and its settings say {one.configured}"
            yield Case(one.where, what)


@rule(
    "V01", "Brokers have different versions.", "brokers", "runtimes", advice="Finish the upgrade"
)  # fmt: skip
def versions_differ(seen: Snapshot) -> Iterator[Case]:
    versions: dict[str, set[str]] = defaultdict(set)
    for one in seen.brokers:
        version = seen.runtime(one).get("brokerVersionDesc")
        if version:
            versions[version].add(one.broker_name)
    if len(versions) > 1:
        parts = [
            f"{version} on {', '.join(sorted(on))}" for version, on in sorted(versions.items())
        ]
        yield Case("cluster", f"brokers announce different versions: {'; '.join(parts)}")


# ------------------------------------------------------------------------------------------ helpers


def disk_used(seen: Snapshot, one: BrokerStatus) -> float | None:
    """Return the part of a broker's disk that is full, from 0 to 1; None if it does not report it, or -1."""
    ratio = number_of(seen.runtime(one).get("commitLogDiskRatio"))
    return None if ratio is None or ratio < 0 else ratio


def lacks_slave(members: Sequence[BrokerStatus]) -> bool:
    """Return whether a master of a name waits for slaves, and no slave of the name is registered."""
    roles = {one.role for one in members}
    return "sync-master" in roles and "slave" not in roles


def _by_name(seen: Snapshot) -> list[tuple[str, list[BrokerStatus]]]:
    """Return the brokers of each name."""
    found: dict[tuple[str, str], list[BrokerStatus]] = defaultdict(list)
    for one in seen.brokers:
        found[one.cluster, one.broker_name].append(one)
    return [(name, members) for (_, name), members in found.items()]


def _answering(brokers: Sequence[BrokerStatus]) -> list[BrokerStatus]:
    return [one for one in brokers if one.state not in UNKNOWN_STATES]


def _leads(one: BrokerStatus) -> bool:
    return one.role != "slave" and one.state not in (NO_WRITES, *UNKNOWN_STATES)


def _follows(slave: BrokerStatus) -> bool:
    return slave.problem is None and slave.state != NOT_CONNECTED


def _queues(readable: int, writable: int, perm: int) -> str:
    may = ("r" if perm & Permission.READ else "") + ("w" if perm & Permission.WRITE else "")
    return f"{readable} to read, {writable} to write, {may or 'no'} permission"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    left = len(names) - NAMES_SHOWN
    return f"{shown} and {left} more" if left > 0 else shown
