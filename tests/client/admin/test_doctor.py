"""The rules of the doctor: each code fires on what it is for, and is silent otherwise; what is unknown adds nothing."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.client.admin.brokers import MASTER, SLAVE
from tests.client.admin.group_members import member, state
from tests.client.admin.test_group_check import WELL as WELL_GROUP
from tests.support.clients import client_of
from trio.testing import MockClock

from rocketrio import Message, open_admin, open_consumer, open_producer
from rocketrio.admin import CODES, Diagnosis, GroupLag, LagReport, QueueLag, Severity, Transactions
from rocketrio.admin.cluster_status import NOT_REACHABLE
from rocketrio.admin.diagnosis import RULES, checks, diagnosis_of
from rocketrio.admin.diagnosis.brokers import (
    BYTES_BEHIND,
    DAY_MS,
    DISK_PERCENT,
    SECONDS_BEHIND,
)
from rocketrio.admin.diagnosis.snapshot import GroupMembers, Snapshot
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.errors import Error, GroupNotExistError
from rocketrio_protocol.lag import Judgement, Owner, Verdict
from rocketrio_protocol.message import MessageQueue

DOCTOR_PAGE: Final = (Path(__file__).parents[3] / "docs/doctor.md").read_text()
NOW: Final = 1_700_000_000_000
ROUTE: Final = TopicRouteData([], [QueueData("broker-a", 4, 4, 6)])
SETTINGS: Final = {
    "rocketrioReplication": "1",
    "haSecretFile": "/run/ha.secret",
    "brokerIP2": "10.0.0.1",
    "haListenPort": "10912",
    "fileReservedTime": "72",
    "mappedFileSizeCommitLog": "1073741824",
    "autoCreateTopicEnable": "false",
}
TOPICS: Final = {
    name: TopicConfig(name, 4, 4) for name in ("c", "broker-a", "SCHEDULE_TOPIC_XXXX", "orders")
}
INFO: Final = ClusterInfo({"broker-a": BrokerData("c", "broker-a", {0: "h:1", 1: "h:2"})}, {})


def row(verdict: Verdict, topic: str = "orders", **changes: Any) -> GroupLag:
    judgement = Judgement(verdict, "queue 3 of broker-a stands at 7", 5)
    judgement = attrs.evolve(judgement, **changes.pop("judgement", {}))
    queue = MessageQueue(topic, "broker-a", 3)
    queues = [QueueLag(queue, 7, 12, Owner.A_MEMBER, 4.0, judgement)]
    whole = GroupLag("billing", topic, judgement, 1, 4.0, queues, "window")
    return attrs.evolve(whole, **changes)


def report(*rows: GroupLag, silent: Mapping[str, str] | None = None) -> LagReport:
    return LagReport(rows, len(rows), silent or {}, 60.0, 13)


CLOCKED: Final = tuple(attrs.evolve(one, clock_ahead=0.0) for one in (MASTER, SLAVE))
WELL: Final = Snapshot(
    {"n:1": INFO},
    CLOCKED,
    {"h:1": {}, "h:2": {}},
    NOW,
    settings={"h:1": SETTINGS, "h:2": SETTINGS},
    topics={"broker-a": TOPICS},
    listed=list(TOPICS),
    routes={"orders": ROUTE},
    lag=report(row(Verdict.OK, judgement={"lag": 0})),
    groups=[WELL_GROUP],
    transactions={"broker-a": Transactions(0, 3, NOW - DAY_MS)},
)


def changed(**changes: Any) -> Snapshot:
    return attrs.evolve(WELL, **changes)


def with_settings(address: str, **changes: str) -> Snapshot:
    new = {**SETTINGS, **changes}
    return changed(settings={**WELL.settings, address: {k: v for k, v in new.items() if v}})


def with_topics(*names: str) -> Snapshot:
    return changed(topics={"broker-a": {name: TOPICS[name] for name in names}}, listed=names)


def with_lag(*rows: GroupLag) -> Snapshot:
    return changed(lag=report(*rows))


def with_group(members: GroupMembers) -> Snapshot:
    return changed(groups=[members])


def with_route(*queues: QueueData) -> Snapshot:
    return changed(routes={"orders": TopicRouteData([], list(queues))})


def codes(seen: Snapshot) -> list[str]:
    return [one.code for one in diagnosis_of(seen).findings]


def test_cluster_that_is_well_has_no_finding_and_nothing_unknown() -> None:
    assert diagnosis_of(WELL) == Diagnosis([], {}, {}, 2, 1)


RETRY: Final = "%RETRY%billing"
QUEUES: Final = WELL_GROUP.queues["orders"]
FIRES: Final[dict[str, Snapshot]] = {
    "R01": changed(
        name_servers={
            "n:1": INFO,
            "n:2": ClusterInfo({"broker-a": BrokerData("c", "broker-a", {0: "h:1"})}, {}),
        }
    ),
    "R02": changed(brokers=(CLOCKED[0], attrs.evolve(SLAVE, state=NOT_REACHABLE))),
    "R03": changed(brokers=(*CLOCKED, attrs.evolve(CLOCKED[0], address="h:3"))),
    "R04": changed(listed=[*TOPICS, "lost"]),
    "R05": changed(name_servers={"n:1": INFO, "n:2": Error("no answer")}),
    "R06": changed(brokers=(CLOCKED[1],)),
    "R07": with_route(QueueData("broker-a", 4, 4, 4)),
    "R08": with_topics("c", "broker-a", "orders"),
    "H01": changed(brokers=(CLOCKED[0],)),
    "H02": changed(brokers=(CLOCKED[0], attrs.evolve(CLOCKED[1], seconds_behind=61.0))),
    "H04": with_settings("h:2", haSecretFile=""),
    "S01": changed(runtimes={"h:1": {"commitLogDiskRatio": "0.9"}, "h:2": {}}),
    "S02": with_lag(row(Verdict.LOSING)),
    "S03": changed(runtimes={"h:1": {"dispatchBehindBytes": str(1 << 30)}, "h:2": {}}),
    "S04": changed(brokers=(attrs.evolve(CLOCKED[0], clock_ahead=0.6), CLOCKED[1])),
    "G01": with_group(
        attrs.evolve(
            WELL_GROUP,
            running={"a": state(QUEUES[0]), "b": state(QUEUES[1], tags="paid")},
        )
    ),
    "G02": with_group(
        attrs.evolve(
            WELL_GROUP,
            members={name: member(name) for name in "abc"},
            running={"a": state(QUEUES[0]), "b": state(QUEUES[1]), "c": state()},
        )
    ),
    "G03": with_lag(row(Verdict.STALLED)),
    "G04": with_lag(
        row(Verdict.BEHIND, RETRY, judgement={"in_per_second": 2.0, "out_per_second": 1.0})
    ),
    "G05": with_group(attrs.evolve(WELL_GROUP, members={"a": member("a"), "b": member("b", 500)})),
    "G06": with_group(attrs.evolve(WELL_GROUP, shared_ids={"a": ["10.0.0.1:1", "10.0.0.2:1"]})),
    "G11": with_lag(row(Verdict.BEHIND)),
    "G12": with_lag(row(Verdict.REWOUND)),
    "G14": with_lag(row(Verdict.AHEAD)),
    "T01": changed(transactions={"broker-a": Transactions(0, 3, NOW - DAY_MS + 1)}),
    "C01": with_settings("h:2", mappedFileSizeCommitLog="1048576"),
    "C02": with_settings("h:1", autoCreateTopicEnable="true"),
    "V01": changed(
        runtimes={"h:1": {"brokerVersionDesc": "V4_9_7"}, "h:2": {"brokerVersionDesc": "V5_3_3"}}
    ),
}


@pytest.mark.parametrize("code", FIRES)
def test_code_fires_alone(code: str) -> None:
    # A setting that differs from the master's is a finding too, where the rule looks at the master alone.
    assert [one for one in codes(FIRES[code]) if (code, one) != ("C02", "C01")] == [code]


SILENT: Final[dict[str, Snapshot]] = {
    "R04 while a master is silent": attrs.evolve(
        changed(brokers=(attrs.evolve(CLOCKED[0], state=NOT_REACHABLE), CLOCKED[1])),
        listed=[*TOPICS, "lost"],
    ),
    "R04 while the topics of a master are unknown": changed(listed=["lost"], topics={}),
    "R07 of a broker whose topics are unknown": attrs.evolve(
        with_route(QueueData("broker-b", 1, 1, 4)), listed=list(TOPICS)
    ),
    "R07 of a topic that is gone": changed(routes={"orders": None}),
    "H04 of a port that only this machine reaches": with_settings(
        "h:1", haSecretFile="", brokerIP2="127.0.0.1"
    ),
    "H04 with certificates": with_settings("h:1", haSecretFile="", haTlsAuthorityFile="/ca.pem"),
    "H04 of Apache's": with_settings("h:1", haSecretFile="", rocketrioReplication=""),
    "S02 below 80 % of retention": with_lag(
        row(Verdict.OK, oldest_seconds=0.79 * 72 * 3600, judgement={"lag": 1})
    ),
    "G04 of retries that are handled": with_lag(
        row(Verdict.OK, RETRY, judgement={"in_per_second": 2.0, "out_per_second": 2.0})
    ),
    "G04 of another topic": with_lag(
        row(Verdict.OK, judgement={"in_per_second": 2.0, "out_per_second": 0.0})
    ),
    "T01 without transactions": changed(transactions={"broker-a": Transactions(9, 0, None)}),
    "C01 with a setting that one does not report": with_settings("h:2", mappedFileSizeCommitLog=""),
}


@pytest.mark.parametrize("what", SILENT)
def test_code_is_silent(what: str) -> None:
    assert what[:3] not in codes(SILENT[what])


OTHER: Final = attrs.evolve(CLOCKED[0], broker_name="broker-b", address="h:9", role="async-master")


@pytest.mark.parametrize(
    ("brokers", "wanted", "where"),
    [
        ((*CLOCKED, OTHER), None, ["broker-b 0 (h:9)"]),
        ((*CLOCKED, OTHER), 1, ["broker-b 0 (h:9)"]),
        ((*CLOCKED, OTHER), 0, []),
        ((OTHER,), None, []),
        ((OTHER,), 1, ["broker-b 0 (h:9)"]),
        (CLOCKED, 1, []),
        (CLOCKED, 2, ["broker-a 0 (h:1)"]),
    ],
)
def test_slave_that_is_not_registered_is_missing_beside_others_or_if_the_user_says_so(
    brokers: Any, wanted: int | None, where: list[str]
) -> None:
    answers = attrs.evolve(changed(brokers=brokers), slaves_wanted=wanted)
    answers = attrs.evolve(answers, topics={}, listed=())
    found = diagnosis_of(answers).findings
    assert [(one.code, one.where) for one in found] == [("H01", each) for each in where]


def test_message_as_old_as_retention_is_found_before_anything_was_deleted() -> None:
    old = row(Verdict.OK, oldest_seconds=0.8 * 72 * 3600, judgement={"lag": 1})
    (one,) = diagnosis_of(with_lag(old)).findings
    assert (one.code, one.severity) == ("S02", Severity.WARNING)
    assert "58 h" in one.what
    assert "3 days" in one.what


def test_drained_broker_is_one_finding_that_names_its_topics() -> None:
    topics = {f"t{number}": TopicConfig(f"t{number}", 4, 4) for number in range(9)}
    drained = TopicRouteData([], [QueueData("broker-a", 4, 4, 4)])
    answers = changed(
        topics={"broker-a": {**TOPICS, **topics}}, routes=dict.fromkeys(topics, drained)
    )
    (one,) = diagnosis_of(answers).findings
    assert one.where == "broker-a: t0, t1, t2, t3, t4 and 4 more"


def test_group_whose_lag_cannot_be_judged_is_neither_well_nor_a_finding() -> None:
    found = diagnosis_of(with_lag(row(Verdict.UNKNOWN)))
    assert (found.findings, list(found.not_judged)) == ([], ["lag of billing in orders"])
    apache = changed(brokers=(attrs.evolve(CLOCKED[0], clock_ahead=None), CLOCKED[1]))
    assert list(diagnosis_of(apache).not_judged) == ["clock of broker-a 0 (h:1)"]


def test_verdict_that_needs_more_samples_is_not_known_until_a_later_report_has_it() -> None:
    answers = changed(
        lag=report(row(Verdict.UNKNOWN, source="counters"), silent={"broker-b": "away"}),
        unknown={"lag at broker-b": "away", "topics of broker-b": "away"},
    )
    found = diagnosis_of(answers)
    assert (found.findings, found.not_judged) == ([], {})
    assert list(found.unknown) == [
        "lag at broker-b", "lag of billing in orders", "topics of broker-b"
    ]  # fmt: skip
    later = diagnosis_of(answers.with_lag(report(row(Verdict.STOPPED))))
    assert [one.code for one in later.findings] == ["G03"]
    assert list(later.unknown) == ["topics of broker-b"]


ALL_WRONG: Final = Snapshot(
    FIRES["S04"].name_servers,
    FIRES["S04"].brokers,
    FIRES["V01"].runtimes,
    NOW,
    {"h:1": FIRES["C02"].settings["h:1"], "h:2": FIRES["H04"].settings["h:2"]},
    FIRES["R08"].topics,
    FIRES["R04"].listed,
    FIRES["R07"].routes,
    report(*(one.lag.rows[0] for code in ("S02", "G03", "G04") if (one := FIRES[code]).lag)),
    FIRES["G01"].groups,
    FIRES["T01"].transactions,
)
PARTS: Final = ("settings", "topics", "routes", "groups", "transactions")


@given(st.sets(st.sampled_from([*PARTS, "lag", "runtimes", "clocks"])))
def test_what_is_unknown_never_adds_a_finding(unknown: set[str]) -> None:
    whole = diagnosis_of(ALL_WRONG)
    answers = attrs.evolve(ALL_WRONG, **{name: {} for name in unknown & set(PARTS)})
    if "lag" in unknown:
        answers = attrs.evolve(answers, lag=None)
    if "runtimes" in unknown:
        answers = attrs.evolve(answers, runtimes={})
    if "clocks" in unknown:
        brokers = [attrs.evolve(one, clock_ahead=None) for one in answers.brokers]
        answers = attrs.evolve(answers, brokers=brokers)
    found = diagnosis_of(answers)
    assert set(found.findings) <= set(whole.findings)
    assert bool(unknown) == (found != whole)


@pytest.mark.parametrize("code", FIRES)
def test_rule_reads_only_what_it_says_that_it_needs(code: str) -> None:
    whole = FIRES[code]
    found = False
    for one in (each for each in RULES if each.code == code):
        needed = {name: getattr(whole, name) for name in one.needs}
        alone = Snapshot(**{"name_servers": {}, "brokers": (), **needed})
        assert list(one.findings(alone)) == list(one.findings(whole))
        found |= bool(list(one.findings(whole)))
    assert found


def test_manual_explains_each_code_in_the_words_of_its_rule() -> None:
    sections = dict(re.findall(r"^### (\w\d\d)\n\n(.+)$", DOCTOR_PAGE, re.MULTILINE))
    assert set(sections) == set(CODES)
    for code, meaning in CODES.items():
        assert sections[code].startswith(f"*{meaning.removesuffix('.')}"), code


def test_manual_has_the_limits_of_rules_and_checks() -> None:
    disk, behind = DISK_PERCENT, SECONDS_BEHIND
    assert f"{disk.warning:g} % are a warning, {disk.critical:g} % an error" in DOCTOR_PAGE
    assert (
        f"{behind.warning:g} seconds are a warning and {behind.critical:g} an error" in DOCTOR_PAGE
    )
    assert f"{BYTES_BEHIND >> 20} MiB are a warning" in DOCTOR_PAGE
    page = (Path(__file__).parents[3] / "docs/monitoring.md").read_text()
    for limits, text in (
        (checks.SEND_WAIT, "ms (`--wait`)"),
        (behind, "s (`--seconds`)"),
        (disk, "% (`--percent`)"),
        (checks.DEAD_LETTERS, "(`--new`)"),
        (checks.GIVEN_UP, "(`--given-up`)"),
        (checks.CERTIFICATE_DAYS, "days (`--days`)"),
        (checks.ROUNDTRIP_MS, "ms (`--milliseconds`)"),
    ):
        assert f"| {limits.warning:g} / {limits.critical:,g} {text}" in page


# ------------------------------------------------------------------------------ clusters in memory


def found_codes(found: Diagnosis) -> set[str]:
    # Members of a cluster in memory have no files, and so no secret.
    return {one.code for one in found.findings} - {"H04"}


async def test_cluster_in_memory(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster(slaves=1, auto_create_topic_enable=False) as cluster,
        client_of(cluster) as client,
        open_admin(client=client) as admin,
        open_producer(client=client) as producer,
    ):
        await admin.create_topic("orders", queues=2)
        await trio.sleep(40)
        found = await admin.diagnose()
        assert (found_codes(found), found.unknown, found.not_judged) == (set(), {}, {}), found
        with pytest.raises(GroupNotExistError):
            await admin.diagnose("no-group")

        async with open_consumer("orders", group="billing", client=client) as consumer:
            await producer.send(Message("orders", b"1"))
            await consumer.receive()
            await consumer.commit()
            found = await admin.diagnose()
            assert (found_codes(found), found.groups) == (set(), 1), found
            for _ in range(2):
                await producer.send(Message("orders", b"2"))
            found = await admin.diagnose()
            assert found_codes(found) == {"G03"}, found
            assert "is stalled" in found.findings[0].what
        found = await admin.diagnose("billing")
        assert found_codes(found) == {"G03"}, found
        assert "is stopped" in found.findings[0].what

        await admin.drain("broker-a")
        assert found_codes(await admin.diagnose(seconds=0)) >= {"R07"}
        await admin.undrain("broker-a")
        assert "R07" not in found_codes(await admin.diagnose(seconds=0))

        cluster.silence(cluster.slaves[0])
        found = await admin.diagnose(seconds=0)
        assert "R02" in found_codes(found)
        assert cluster.slaves[0].broker.address in found.unknown
