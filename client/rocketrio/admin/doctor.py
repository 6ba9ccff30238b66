"""The rules of `admin.diagnose()`: what is wrong with a cluster, as numbered findings.

Each rule is a function of what was asked once (doctor_answers.py). Name servers, brokers and
replication are judged in health.py, members in group_check.py and progress in rocketrio_protocol.lag; those rules are
not repeated here.

Invariant: what is unknown leads to no finding, and is in `unknown` or `not_judged`: it is never well.
Answers to: nothing in Apache's tools.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from rocketrio.admin.cluster_status import UNKNOWN_STATES, BrokerStatus
from rocketrio.admin.doctor_answers import DoctorAnswers
from rocketrio.admin.health import Finding, Severity, health_of, number_of, worst_first
from rocketrio.admin.lag_values import GroupLag
from rocketrio_protocol.bodies.topics import Permission, TopicConfig
from rocketrio_protocol.lag import LOSING_PART, Verdict, duration
from rocketrio_protocol.names import RETRY_PREFIX, SCHEDULE_TOPIC
from rocketrio_protocol.remoting.ports import is_loopback, split_addr
from rocketrio_protocol.times import age_ms

DAY_MS: Final = 86_400_000
NAMES_SHOWN: Final = 5

CODES: Final[Mapping[str, str]] = {
    "R01": "Name servers know different brokers.",
    "R02": "A registered broker does not answer at its address.",
    "R03": "A name has two masters.",
    "R04": "A topic is on no master.",
    "R05": "A name server does not answer.",
    "R06": "A name has no master.",
    "R07": "Name servers and a broker disagree about the queues of a topic.",
    "R08": "A broker lacks topics that RocketMQ needs.",
    "B01": "A broker reports a problem.",
    "B02": "A master takes no writes.",
    "H01": "A slave is missing, or does not follow.",
    "H02": "A slave is behind.",
    "H03": "Sends are not as safe as was asked for.",
    "H04": "Anyone who reaches the port of replication gets the log.",
    "H05": "A slave has messages that its master lacks.",
    "S01": "A disk fills.",
    "S02": "Messages will be deleted unread.",
    "S03": "A broker cannot keep up with its own log.",
    "S04": "Clocks differ.",
    "G01": "The members of a group subscribe differently.",
    "G02": "A group has more members than queues.",
    "G03": "A group stands still.",
    "G04": "The retry topic of a group grows.",
    "G05": "The members of a group have different clients.",
    "G06": "Several members have one client id.",
    "G07": "A queue has no owner.",
    "G08": "A queue has several owners.",
    "G09": "A member of a group did not answer.",
    "G10": "A group has no members.",
    "G11": "A group falls behind.",
    "G12": "A group went back.",
    "G13": "Commits of a member are dropped.",
    "G14": "A group is ahead of the end.",
    "T01": "Transactions were given up.",
    "C01": "Settings of a master and its slave differ.",
    "C02": "Brokers create topics automatically.",
    "C03": "A broker has another role than its settings say.",
    "V01": "Brokers have different versions.",
}
"""What each code means."""

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


def diagnosis_of(answers: DoctorAnswers) -> Diagnosis:
    """Return what is wrong."""
    found = [
        *health_of(answers.cluster).findings,
        *missing_slaves(answers),
        *topics_without_master(answers),
        *routes_that_differ(answers),
        *system_topics_missing(answers),
        *open_replication_ports(answers),
        *unread_at_the_end_of_retention(answers),
        *groups_that_do_not_keep_up(answers),
        *retry_topics_that_grow(answers),
        *(one for check in answers.groups for one in check.findings if one.code != "G10"),
        *transactions_given_up(answers),
        *settings_that_differ(answers),
        *topics_created_automatically(answers),
    ]
    rows = () if answers.lag is None else answers.lag.rows
    undecided = {f"lag of {_group(row)}": row.judgement.why for row in rows if row.needs_samples}
    return Diagnosis(
        worst_first(found),
        dict(sorted({**answers.unknown, **undecided}.items())),
        dict(_not_judged(answers)),
        len(answers.cluster.brokers),
        len({row.group for row in rows}),
    )


def _not_judged(answers: DoctorAnswers) -> Iterator[tuple[str, str]]:
    silent = set() if answers.lag is None else set(answers.lag.silent)
    for row in () if answers.lag is None else answers.lag.rows:
        if row.verdict == Verdict.UNKNOWN and not (silent or row.needs_samples):
            yield f"lag of {_group(row)}", row.judgement.why
    for one in answers.cluster.brokers:
        if one.clock_ahead is None and one.state not in UNKNOWN_STATES:
            yield f"clock of {_where(one)}", "its version reports none"


# ------------------------------------------------------------------------------------------ slaves


def missing_slaves(answers: DoctorAnswers) -> Iterator[Finding]:
    """H01: a slave that was stopped is not registered any more, so only a comparison shows that it is missing.

    A synchronous master without a slave is a finding of health.py already.
    """
    slaves: dict[tuple[str, str], int] = defaultdict(int)
    for one in answers.cluster.brokers:
        slaves[one.cluster, one.broker_name] += one.role == "slave"
    most = max(slaves.values(), default=0)
    wanted = min(most, 1) if answers.slaves_wanted is None else answers.slaves_wanted
    for one in answers.cluster.brokers:
        count = slaves[one.cluster, one.broker_name]
        is_known = one.role == "sync-master" and count == 0
        if one.role != "slave" and count < wanted and not is_known:
            has = "no slave, and other names have some"
            if answers.slaves_wanted is not None:
                has = f"{count} of {wanted} slaves"
            yield Finding(
                "H01",
                Severity.WARNING,
                _where(one),
                f"has {has}",
                "Start the missing slave: if this broker is lost, so are its messages",
            )


# ------------------------------------------------------------------------------------------ routes


def topics_without_master(answers: DoctorAnswers) -> Iterator[Finding]:
    """R04: name servers know the topic, and all masters answered that they do not store it."""
    silent = any(
        one.state in UNKNOWN_STATES or one.broker_name not in answers.topics
        for one in answers.cluster.brokers
        if one.role != "slave"
    )
    if silent or not answers.topics:
        return
    stored = {topic for topics in answers.topics.values() for topic in topics}
    lost = sorted(topic for topic in answers.listed if topic not in stored)
    if lost:
        yield Finding(
            "R04",
            Severity.ERROR,
            _some(lost),
            "is on no master: it takes no messages" if len(lost) == 1 else "are on no master",
            "Start the broker that stores them, or delete the topics",
        )


def routes_that_differ(answers: DoctorAnswers) -> Iterator[Finding]:
    """R07: clients see other queues or permissions than the broker has: it was drained, or its registration is old."""
    different: dict[tuple[str, str], list[str]] = defaultdict(list)
    for topic, route in sorted(answers.routes.items()):
        for queues in [] if route is None else route.queue_datas:
            config = answers.topics.get(queues.broker_name, {}).get(topic)
            if config is None:
                continue
            shown = _queues(queues.read_queue_nums, queues.write_queue_nums, queues.perm)
            own = _queues(config.read_queue_nums, config.write_queue_nums, config.perm)
            if shown != own:
                what = f"name servers say {shown}, and the broker {own}"
                different[queues.broker_name, what].append(topic)
    for (name, what), topics in sorted(different.items()):
        yield Finding(
            "R07",
            Severity.WARNING,
            f"{name}: {_some(topics)}",
            what,
            f"If it was drained: `rocketrio broker undrain {name}`; otherwise check that it registers",
        )


def _queues(readable: int, writable: int, perm: int) -> str:
    may = ("r" if perm & Permission.READ else "") + ("w" if perm & Permission.WRITE else "")
    return f"{readable} to read, {writable} to write, {may or 'no'} permission"


def system_topics_missing(answers: DoctorAnswers) -> Iterator[Finding]:
    """R08: delays, resets and tools need these topics."""
    for one in answers.cluster.brokers:
        topics: Mapping[str, TopicConfig] | None = answers.topics.get(one.broker_name)
        if one.role == "slave" or topics is None:
            continue
        missing = [
            name for name in (one.cluster, one.broker_name, SCHEDULE_TOPIC) if name not in topics
        ]
        if missing:
            yield Finding(
                "R08",
                Severity.WARNING,
                _where(one),
                f"has no topic {_some(missing)}",
                "Restart it: it creates them when it starts",
            )


# -------------------------------------------------------------------------------- brokers, storage


def open_replication_ports(answers: DoctorAnswers) -> Iterator[Finding]:
    """H04: a rocketrio broker says whether the other end of replication must prove something; Apache's have none."""
    for one in answers.cluster.brokers:
        settings = answers.settings.get(one.address, {})
        host = settings.get("brokerIP2") or split_addr(one.address)[0]
        port = settings.get("haListenPort", "0")
        is_rocketrio = "rocketrioReplication" in settings
        guarded = settings.get("haSecretFile") or settings.get("haTlsAuthorityFile")
        if is_rocketrio and not guarded and not is_loopback(f"{host}:{port}"):
            yield Finding(
                "H04",
                Severity.WARNING,
                _where(one),
                "lets anyone who reaches its replication port copy the log",
                "Set ha_secret_file or ha_tls_authority_file on all members",
            )


def unread_at_the_end_of_retention(answers: DoctorAnswers) -> Iterator[Finding]:
    """S02: the oldest unread message is about as old as messages get."""
    kept: dict[str, float] = {}
    for one in answers.cluster.brokers:
        hours = number_of(answers.settings.get(one.address, {}).get("fileReservedTime"))
        if hours is not None and one.role != "slave":
            kept[one.broker_name] = hours * 3600
    for row in () if answers.lag is None else answers.lag.rows:
        limits = [
            kept[one.queue.broker_name] for one in row.queues if one.queue.broker_name in kept
        ]
        advice = "Let the group read faster, or raise fileReservedTime and make room"
        if row.verdict == Verdict.LOSING:
            yield Finding("S02", Severity.ERROR, _group(row), row.judgement.why, advice)
        elif limits and (row.oldest_seconds or 0.0) >= LOSING_PART * min(limits):
            yield Finding(
                "S02",
                Severity.WARNING,
                _group(row),
                f"has an unread message that is {duration(row.oldest_seconds or 0.0)} old, and "
                f"messages are kept for {duration(min(limits))}",
                advice,
                row.oldest_seconds,
            )


# ------------------------------------------------------------------------------------------ groups

_OF_VERDICT: Final = {
    Verdict.STALLED: (
        "G03",
        Severity.ERROR,
        "See what its members do: `rocketrio group stacks`, and their logs",
    ),
    Verdict.STOPPED: ("G03", Severity.ERROR, "Start its members, or delete the group"),
    Verdict.BEHIND: ("G11", Severity.WARNING, "Start more members, or make handlers faster"),
    Verdict.REWOUND: ("G12", Severity.WARNING, "Find out what set it back: see its members' logs"),
    Verdict.AHEAD: (
        "G14",
        Severity.ERROR,
        "Stop its members, and `rocketrio offsets reset`: to `first`, or to where it shall read on",
    ),
}


def groups_that_do_not_keep_up(answers: DoctorAnswers) -> Iterator[Finding]:
    """G03, G11, G12, G14: what the verdict on a group's lag says."""
    for row in () if answers.lag is None else answers.lag.rows:
        if row.verdict in _OF_VERDICT and not _retries_grow(row):
            code, severity, advice = _OF_VERDICT[row.verdict]
            what = f"is {row.verdict}: {row.judgement.why}"
            yield Finding(code, severity, _group(row), what, advice, row.judgement.stands_for)


def retry_topics_that_grow(answers: DoctorAnswers) -> Iterator[Finding]:
    """G04: more messages are given back than the group handles again."""
    for row in () if answers.lag is None else answers.lag.rows:
        if _retries_grow(row):
            lag = "unknown" if row.lag is None else f"{row.lag:,}"
            yield Finding(
                "G04",
                Severity.WARNING,
                _group(row),
                f"gets {row.judgement.in_per_second:.1f} messages per second, and {lag} wait there",
                "Find out why handlers fail; messages become dead letters in the end",
            )


def _retries_grow(row: GroupLag) -> bool:
    if row.topic is None or not row.topic.startswith(RETRY_PREFIX) or not row.lag_at_least:
        return False
    into, out = row.judgement.in_per_second, row.judgement.out_per_second
    return into is not None and into > (out or 0.0)


def transactions_given_up(answers: DoctorAnswers) -> Iterator[Finding]:
    """T01: no producer decided a transaction within a day, however often it was asked."""
    for name, one in sorted(answers.transactions.items()):
        if one.last_given_up_ms is not None and answers.now_ms - one.last_given_up_ms < DAY_MS:
            yield Finding(
                "T01",
                Severity.WARNING,
                name,
                f"has given up {one.given_up:,} transactions, the last one "
                f"{duration(age_ms(one.last_given_up_ms, answers.now_ms) / 1000)} ago",
                "Check that producers of the group run and answer; see TRANS_CHECK_MAX_TIME_TOPIC",
            )


# ---------------------------------------------------------------------------------------- settings


def settings_that_differ(answers: DoctorAnswers) -> Iterator[Finding]:
    """C01: a slave stores the master's files, and may take its place."""
    masters = {
        one.broker_name: answers.settings[one.address]
        for one in answers.cluster.brokers
        if one.role != "slave" and one.address in answers.settings
    }
    for one in answers.cluster.brokers:
        own, master = answers.settings.get(one.address), masters.get(one.broker_name)
        if one.role != "slave" or own is None or master is None:
            continue
        different = [
            f"{name} is {own[name]}, at the master {master[name]}"
            for name in _EQUAL_SETTINGS
            if name in own and name in master and own[name] != master[name]
        ]
        if different:
            yield Finding(
                "C01", Severity.WARNING, _where(one), "; ".join(different), "Make them equal"
            )


def topics_created_automatically(answers: DoctorAnswers) -> Iterator[Finding]:
    """C02: a misspelt topic is created, with the queues of one broker."""
    names = sorted(
        {
            one.broker_name
            for one in answers.cluster.brokers
            if answers.settings.get(one.address, {}).get("autoCreateTopicEnable") == "true"
            and one.role != "slave"
        }
    )
    if names:
        yield Finding(
            "C02",
            Severity.WARNING,
            _some(names),
            "creates a topic when a message is sent to an unknown one, misspelt or not",
            "In production set autoCreateTopicEnable=false; or omit this finding with --ignore C02",
        )


def _where(one: BrokerStatus) -> str:
    return f"{one.broker_name} {one.broker_id} ({one.address})"


def _group(row: GroupLag) -> str:
    return row.group if row.topic is None else f"{row.group} in {row.topic}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    left = len(names) - NAMES_SHOWN
    return f"{shown} and {left} more" if left > 0 else shown
