"""The rules of `rocketrio check`, by what a cluster answered."""

import attrs
import pytest
from tests.support.snapshots import FIRES, MASTER, SLAVE, WELL, master, slave

from rocketrio.admin.cluster_status import NO_WRITES, NOT_REACHABLE
from rocketrio.admin.diagnosis.checks import (
    CheckResult,
    CheckValue,
    check_brokers,
    check_certificates,
    check_connection,
    check_dead_letters,
    check_disks,
    check_lag,
    check_replication,
    check_routes,
    check_transactions,
    days_left,
    free_bytes,
    log_age,
    nagios_line,
    unsafe_sends,
)
from rocketrio.admin.diagnosis.snapshot import Snapshot
from rocketrio.admin.lag_values import GroupLag, LagReport
from rocketrio.admin.transactions import Transactions
from rocketrio.thresholds import Limits, Status
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo
from rocketrio_protocol.errors import Error
from rocketrio_protocol.lag import Judgement, Verdict

WHOLE = ClusterInfo({"broker-a": BrokerData("c", "broker-a", {0: "h:1", 1: "h:2"})}, {})
PART = ClusterInfo({"broker-a": BrokerData("c", "broker-a", {0: "h:1"})}, {})
AWAY = Error("no answer")
SECONDS = Limits(10, 60)
PERCENT = Limits(75, 85)
WAIT = Limits(100, 500)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, Status.UNKNOWN), (9.9, Status.OK), (10, Status.WARNING), (60, Status.CRITICAL),
    ],
)  # fmt: skip
def test_threshold_is_reached_from_its_value_on(value: float | None, expected: Status) -> None:
    assert Limits(10, 60).status(value) is expected


@pytest.mark.parametrize(
    ("value", "expected"), [(31, Status.OK), (30, Status.WARNING), (7, Status.CRITICAL)]
)
def test_smaller_critical_threshold_means_that_small_numbers_are_bad(
    value: float, expected: Status
) -> None:
    assert Limits(30, 7).status(value) is expected


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ({"n:1": WHOLE, "n:2": WHOLE}, Status.OK),
        ({"n:1": WHOLE, "n:2": PART}, Status.WARNING),
        ({"n:1": WHOLE, "n:2": AWAY}, Status.WARNING),
        ({"n:1": AWAY, "n:2": AWAY}, Status.CRITICAL),
    ],
)
def test_connection_by_name_servers(
    servers: dict[str, ClusterInfo | Error], expected: Status
) -> None:
    assert check_connection(Snapshot(servers, ())).status is expected


def test_broker_that_takes_no_writes_or_is_silent_is_critical() -> None:
    runtimes = {"h:1": {"sendThreadPoolQueueHeadWaitTimeMills": "3"}}
    well = check_brokers(Snapshot({}, [MASTER], runtimes), (), WAIT)
    assert (well.status, well.values[0].value) == (Status.OK, 3.0)
    for changed in (master(state=NO_WRITES, problem="disk full"), master(state=NOT_REACHABLE)):
        found = check_brokers(Snapshot({}, [changed], runtimes), (), WAIT)
        assert found.status is Status.CRITICAL


def test_name_without_a_master_is_critical() -> None:
    runtimes = {"h:2": {"sendThreadPoolQueueHeadWaitTimeMills": "0"}}
    found = check_brokers(Snapshot({}, [SLAVE], runtimes), (), WAIT)
    assert (found.status, "no master" in found.text) == (Status.CRITICAL, True)


def test_sends_that_wait_reach_thresholds() -> None:
    runtimes = {"h:1": {"sendThreadPoolQueueHeadWaitTimeMills": "120"}}
    found = check_brokers(Snapshot({}, [MASTER], runtimes), (), WAIT)
    assert found.status is Status.WARNING
    assert "120 ms" in found.text


def test_broker_that_reports_nothing_is_unknown() -> None:
    assert check_brokers(Snapshot({}, [MASTER]), (), WAIT).status is Status.UNKNOWN
    assert check_disks(Snapshot({}, [MASTER]), (), PERCENT).status is Status.UNKNOWN


def test_name_that_is_not_registered_is_critical() -> None:
    for found in (
        check_brokers(Snapshot({}, [MASTER]), ("broker-z",), WAIT),
        check_disks(Snapshot({}, [MASTER]), ("broker-z",), PERCENT),
        check_replication(Snapshot({}, [MASTER, SLAVE]), ("broker-z",), SECONDS),
        check_replication(Snapshot({}, []), (), SECONDS),
    ):
        assert found.status is Status.CRITICAL


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seconds_behind": 0.0, "bytes_behind": 0}, Status.OK),
        ({"seconds_behind": 12.0}, Status.WARNING),
        ({"seconds_behind": 312.0}, Status.CRITICAL),
        ({"seconds_behind": None, "bytes_behind": 5}, Status.OK),
        ({"seconds_behind": None, "bytes_behind": 300 << 20}, Status.WARNING),
        ({"seconds_behind": None, "bytes_behind": None}, Status.UNKNOWN),
        ({"state": NOT_REACHABLE}, Status.CRITICAL),
        ({"seconds_behind": 0.0, "problem": "histories differ"}, Status.CRITICAL),
    ],
)
def test_replication_by_its_slave(changes: dict[str, object], expected: Status) -> None:
    assert (
        check_replication(Snapshot({}, [MASTER, slave(**changes)]), (), SECONDS).status is expected
    )


def test_synchronous_master_without_slave_is_critical() -> None:
    assert check_replication(Snapshot({}, [MASTER]), (), SECONDS).status is Status.CRITICAL
    alone = check_replication(Snapshot({}, [master(role="async-master")]), (), SECONDS)
    assert (alone.status, alone.text) == (Status.OK, "no slave is registered")


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [("0.5", Status.OK), ("0.8", Status.WARNING), ("0.9", Status.CRITICAL), ("-1", Status.UNKNOWN)],
)
def test_disk_by_what_its_broker_reports(ratio: str, expected: Status) -> None:
    seen = Snapshot({}, [MASTER], {"h:1": {"commitLogDiskRatio": ratio}})
    assert check_disks(seen, (), PERCENT).status is expected


def row(verdict: Verdict, lag: int | None, oldest: float | None = None) -> GroupLag:
    judgement = Judgement(verdict, "queue 3 stands", lag)
    return GroupLag("billing", "orders", judgement, 1, oldest, [], "window")


def report(*rows: GroupLag, silent: dict[str, str] | None = None) -> LagReport:
    return LagReport(rows, len(rows), silent or {}, 60.0, 13)


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Verdict.OK, Status.OK),
        (Verdict.UNKNOWN, Status.UNKNOWN),
        (Verdict.BEHIND, Status.WARNING),
        (Verdict.REWOUND, Status.WARNING),
        (Verdict.STALLED, Status.CRITICAL),
        (Verdict.STOPPED, Status.CRITICAL),
        (Verdict.LOSING, Status.CRITICAL),
    ],
)
def test_lag_by_its_verdict(verdict: Verdict, expected: Status) -> None:
    assert check_lag(report(row(verdict, 7))).status is expected


def test_lag_of_a_silent_broker_is_unknown_unless_something_is_worse() -> None:
    away = {"broker-b": "away"}
    assert check_lag(report(row(Verdict.OK, 0), silent=away)).status is Status.UNKNOWN
    assert check_lag(report(row(Verdict.BEHIND, 7), silent=away)).status is Status.WARNING


def test_lag_by_thresholds() -> None:
    well = row(Verdict.OK, 700, 90.0)
    assert check_lag(report(well)).status is Status.OK
    assert check_lag(report(well), Limits(100, 1_000)).status is Status.WARNING
    assert check_lag(report(well), None, Limits(30, 60)).status is Status.CRITICAL
    assert check_lag(report(row(Verdict.OK, None)), Limits(1, 2)).status is Status.UNKNOWN


def test_dead_letters_count_since_the_last_check() -> None:
    limits = Limits(1, 100)
    assert check_dead_letters({"billing": 7}, None, limits).status is Status.WARNING
    assert check_dead_letters({"billing": 7}, {"billing": 7}, limits).status is Status.OK
    assert check_dead_letters({"billing": 107}, {"billing": 7}, limits).status is Status.CRITICAL
    fell = check_dead_letters({"billing": 3}, {"billing": 7}, limits)
    assert (fell.status, [value.value for value in fell.values]) == (Status.UNKNOWN, [None])
    assert "an unknown number of new dead letters" in fell.text


def test_nagios_line_has_the_known_values_and_one_bar() -> None:
    values = [
        CheckValue("behind", 312.0, "s", SECONDS, {"broker": "broker-a"}),
        CheckValue("days", 5, "", Limits(30, 7)),
        CheckValue("lag", None),
    ]
    result = CheckResult("replication", Status.CRITICAL, "a|b\nc", values)
    assert nagios_line(result) == (
        "CRITICAL replication: a/b c | behind_broker-a=312s;10;60 days=5;30:;7:"
    )
    assert nagios_line(attrs.evolve(result, values=())) == "CRITICAL replication: a/b c"


# ------------------------------------------------------------------ transactions, certificates, routes


@pytest.mark.parametrize(
    ("given_up", "before", "expected", "new"),
    [
        (0, None, Status.OK, 0),
        (1, None, Status.WARNING, 1),
        (100, None, Status.CRITICAL, 100),
        (7, 7, Status.OK, 0),
        (8, 7, Status.WARNING, 1),
        (
            3,
            7,
            Status.UNKNOWN,
            None,
        ),  # Made again, or a shorter log: it is not known how many are new.
    ],
)
def test_transactions_that_were_given_up_since_the_last_check(
    given_up: int, before: int | None, expected: Status, new: int | None
) -> None:
    found = {"a": Transactions(5, given_up, None)}
    kept = None if before is None else {"a": before}
    result = check_transactions(found, kept, Limits(1, 100))
    assert result.status is expected
    assert [value.value for value in result.values] == [new, 5]


def test_number_of_open_transactions_that_contradicts_itself_is_unknown() -> None:
    found = {"a": Transactions(None, 0, None)}
    result = check_transactions(found, None, Limits(1, 100), Limits(5, 50))
    assert result.status is Status.UNKNOWN
    assert check_transactions(found, None, Limits(1, 100)).status is Status.OK


def test_open_transactions_count_only_with_thresholds() -> None:
    found = {"a": Transactions(5, 0, None)}
    assert check_transactions(found, None, Limits(1, 100)).status is Status.OK
    result = check_transactions(found, None, Limits(1, 100), Limits(5, 50))
    assert result.status is Status.WARNING


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("days", "expected"),
    [(31, Status.OK), (30, Status.WARNING), (7, Status.CRITICAL), (-1, Status.CRITICAL)],
)
def test_certificate_that_ends_soon(days: int, expected: Status) -> None:
    found = check_certificates({"n:1": days * DAY_MS}, 0, Limits(30, 7))
    assert found.status is expected


def test_server_that_shows_no_certificate_is_unknown_and_an_ending_one_is_worse() -> None:
    limits = Limits(30, 7)
    assert check_certificates({"n:1": AWAY}, 0, limits).status is Status.UNKNOWN
    found = check_certificates({"n:1": AWAY, "n:2": 8 * DAY_MS}, 0, limits)
    assert found.status is Status.WARNING


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("R04", Status.CRITICAL), ("R06", Status.CRITICAL), ("R07", Status.WARNING),
        ("R08", Status.WARNING), ("S01", Status.OK), ("G03", Status.OK),
    ],
)  # fmt: skip
def test_routes_by_the_rules_of_the_doctor(code: str, expected: Status) -> None:
    assert check_routes(FIRES[code]).status is expected
    unknown = attrs.evolve(WELL, unknown={"route of orders": "no answer"})
    assert check_routes(unknown).status is Status.UNKNOWN


def test_sends_answered_unsafe_since_the_last_check_are_critical() -> None:
    now = [
        master(answered={"PUT_OK": 9, "FLUSH_SLAVE_TIMEOUT": 2, "SLAVE_NOT_AVAILABLE": 1}),
        SLAVE,
    ]
    assert unsafe_sends(Snapshot({}, now)) == {"h:1": 3}

    def status(before: dict[str, int] | None) -> Status:
        return check_replication(Snapshot({}, now), (), SECONDS, unsafe_before=before).status

    known = attrs.evolve(SLAVE, seconds_behind=0.0)
    now[1] = known
    assert status(None) is Status.OK
    assert status({"h:1": 3}) is Status.OK
    assert status({}) is Status.OK  # The first check knows of nothing before.
    assert status({"h:1": 2}) is Status.CRITICAL
    assert status({"h:1": 4}) is Status.CRITICAL  # It has started again.


RUNTIME = {
    "commitLogDiskRatio": "0.50",
    "commitLogDirCapacity": "Total : 100.0 GiB, Free : 50.0 GiB.",
    "commitLogMinOffset": "0",
    "commitLogMaxOffset": str(20 << 30),
    "earliestMessageTimeStamp": str(DAY_MS),
}


def test_disk_lasts_as_long_as_the_rate_of_the_log_says() -> None:
    assert free_bytes(RUNTIME) == 50 << 30
    assert log_age(RUNTIME, 3 * DAY_MS) == 2 * 86_400
    assert days_left(RUNTIME, 3 * DAY_MS) == pytest.approx(5.0)
    assert days_left(RUNTIME, DAY_MS + DAY_MS // 2) is None
    for name in ("commitLogDirCapacity", "commitLogMaxOffset", "earliestMessageTimeStamp"):
        without = {key: value for key, value in RUNTIME.items() if key != name}
        assert days_left(without, 3 * DAY_MS) is None
    assert days_left({**RUNTIME, "earliestMessageTimeStamp": "-1"}, 3 * DAY_MS) is None


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (None, Status.OK), (Limits(4, 1), Status.OK), (Limits(7, 2), Status.WARNING),
        (Limits(9, 6), Status.CRITICAL),
    ],
)  # fmt: skip
def test_disk_that_is_full_soon(days: Limits | None, expected: Status) -> None:
    seen = Snapshot({}, [MASTER], {"h:1": RUNTIME}, 3 * DAY_MS)
    assert check_disks(seen, (), PERCENT, days=days).status is expected
    young = check_disks(attrs.evolve(seen, now_ms=DAY_MS), (), PERCENT, days=Limits(7, 2))
    assert young.status is Status.UNKNOWN
