"""The rules of the doctor: each code fires on what it is for, and is silent otherwise; what is unknown adds nothing."""

import re
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clients import client_of
from tests.support.snapshots import (
    ALL_WRONG,
    CLOCKED,
    FIRES,
    RETRY,
    TOPICS,
    WELL,
    changed,
    report,
    row,
    with_lag,
    with_route,
    with_settings,
)
from trio.testing import MockClock

from rocketrio import Message, open_admin, open_consumer, open_producer
from rocketrio.admin import CODES, Diagnosis, Severity, Transactions
from rocketrio.admin.cluster_status import NOT_REACHABLE
from rocketrio.admin.diagnosis import RULES, diagnosis_of
from rocketrio.admin.diagnosis.brokers import BYTES_BEHIND
from rocketrio.admin.diagnosis.snapshot import Snapshot
from rocketrio.thresholds import (
    CERTIFICATE_DAYS,
    DEAD_LETTERS,
    DISK_PERCENT,
    GIVEN_UP,
    ROUNDTRIP_MS,
    SECONDS_BEHIND,
    SEND_WAIT,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.route import QueueData, TopicRouteData
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.errors import GroupNotExistError
from rocketrio_protocol.lag import Verdict

DOCTOR_PAGE: Final = (Path(__file__).parents[4] / "docs/doctor.md").read_text()


def codes(seen: Snapshot) -> list[str]:
    return [one.code for one in diagnosis_of(seen).findings]


def test_cluster_that_is_well_has_no_finding_and_nothing_unknown() -> None:
    assert diagnosis_of(WELL) == Diagnosis([], {}, {}, 2, 1)


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
    "H04 of an address that is none": with_settings("h:2", haSecretFile="", haListenPort="x"),
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
    page = (Path(__file__).parents[4] / "docs/monitoring.md").read_text()
    for limits, text in (
        (SEND_WAIT, "ms (`--wait`)"),
        (behind, "s (`--seconds`)"),
        (disk, "% (`--percent`)"),
        (DEAD_LETTERS, "(`--new`)"),
        (GIVEN_UP, "(`--given-up`)"),
        (CERTIFICATE_DAYS, "days (`--days`)"),
        (ROUNDTRIP_MS, "ms (`--milliseconds`)"),
    ):
        assert f"| {limits.warning:g} / {limits.critical:,g} {text}" in page


# ------------------------------------------------------------------------------ clusters in memory


def found_codes(found: Diagnosis) -> set[str]:
    # Members of a cluster in memory have no files, and so no secret.
    return {one.code for one in found.findings} - {"H04"}


@pytest.mark.slow
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
