"""What is wrong with a cluster, by what its servers answered."""

import attrs
import pytest
import trio
from tests.support.snapshots import MASTER, SLAVE, master, slave

from rocketrio import ClientInstance, open_admin
from rocketrio.admin import Health
from rocketrio.admin.broker_numbers import size_of
from rocketrio.admin.cluster_status import (
    NO_WRITES,
    NOT_CONNECTED,
    NOT_REACHABLE,
    BrokerStatus,
    clock_ahead,
)
from rocketrio.admin.diagnosis import health_of
from rocketrio.admin.diagnosis.brokers import BYTES_BEHIND
from rocketrio.admin.diagnosis.snapshot import Snapshot
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo
from rocketrio_protocol.errors import Error
from rocketrio_protocol.ha.status import BeyondBoundary, LastWait

PAIR = (MASTER, SLAVE)


def found(*brokers: BrokerStatus, **runtimes: dict[str, str]) -> list[tuple[str, str]]:
    seen = Snapshot({}, brokers, {f"h:{key[1:]}": one for key, one in runtimes.items()})
    return [(one.code, one.severity.value) for one in health_of(seen).findings]


def test_pair_that_follows_is_well_though_much_is_unknown() -> None:
    assert health_of(Snapshot({}, PAIR)) == Health([], 2, {})


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (slave(seconds_behind=9.0), []),
        (slave(seconds_behind=10.0), [("H02", "warning")]),
        (slave(seconds_behind=60.0), [("H02", "error")]),
        (slave(bytes_behind=BYTES_BEHIND), [("H02", "warning")]),
        (slave(bytes_behind=BYTES_BEHIND, seconds_behind=1.0), []),
        (slave(bytes_behind=BYTES_BEHIND - 1), []),
        (slave(state=NOT_CONNECTED), [("H01", "error")]),
        (slave(problem="it is ahead of its master"), [("H01", "error")]),
        (slave(state=NOT_REACHABLE, problem="away"), [("R02", "warning")]),
        (slave(configured="slave 2"), [("C03", "warning")]),
        (slave(clock_ahead=0.49), []),
        (slave(clock_ahead=-0.5), [("S04", "warning")]),
        (slave(beyond=BeyondBoundary(start=1, end=2, messages=3)), [("H05", "warning")]),
    ],
)
def test_slave_with_a_problem_is_a_finding(
    changed: BrokerStatus, expected: list[tuple[str, str]]
) -> None:
    assert found(MASTER, changed) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (master(state=NO_WRITES, problem="disk full"), [("B02", "error")]),
        (master(state=NOT_REACHABLE, problem="away"), [("R02", "error")]),
        (master(problem="its clock jumped"), [("B01", "warning")]),
        (
            master(last_wait=LastWait(status="FLUSH_SLAVE_TIMEOUT", end_offset=1)),
            [("H03", "error")],
        ),
        (master(last_wait=LastWait(status="PUT_OK", end_offset=1)), []),
    ],
)
def test_master_with_a_problem_is_a_finding(
    changed: BrokerStatus, expected: list[tuple[str, str]]
) -> None:
    assert found(changed, SLAVE) == expected


def test_names_have_one_master() -> None:
    second = master(broker_id=2, address="h:3")
    assert found(SLAVE) == [("R06", "error")]
    assert found(*PAIR, second) == [("R03", "error")]
    assert found(*PAIR, attrs.evolve(second, state=NO_WRITES, problem="stands aside")) == [
        ("B02", "error")
    ]


def test_synchronous_master_needs_a_slave() -> None:
    assert found(MASTER) == [("H01", "error")]
    assert found(master(role="async-master")) == []


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        ("0.74", []),
        ("0.75", [("S01", "warning")]),
        ("0.85", [("S01", "error")]),
        ("-1.0", []),
        ("x", []),
    ],
)
def test_disk_that_fills_is_a_finding(ratio: str, expected: list[tuple[str, str]]) -> None:
    assert found(*PAIR, h1={"commitLogDiskRatio": ratio}) == expected


def test_queues_that_are_behind_the_log_are_a_finding() -> None:
    assert found(*PAIR, h1={"dispatchBehindBytes": str(64 << 20)}) == [("S03", "warning")]
    assert found(*PAIR, h1={"dispatchBehindBytes": "100"}) == []


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0 B", 0.0), ("512 B", 512.0), ("1.5 KiB", 1536.0), ("300.0 MiB", 300.0 * (1 << 20)),
        ("2 GiB", 2.0 * (1 << 30)), ("", None), ("much", None), (None, None), ("1.2.3 B", None),
    ],
)  # fmt: skip
def test_size_of_a_text(text: str | None, size: float | None) -> None:
    assert size_of(text) == size


def test_log_that_is_not_on_disk_is_a_finding() -> None:
    assert found(*PAIR, h1={"remainHowManyDataToFlush": "300.0 MiB"}) == [("S03", "warning")]
    assert found(*PAIR, h1={"remainHowManyDataToFlush": f"{1 << 20} B"}) == []


@pytest.mark.parametrize(
    ("now_ms", "ahead"), [(1_000, 0.0), (2_000, 0.0), (2_600, 0.6), (300, -0.7)]
)
def test_clock_is_ahead_only_if_the_time_of_the_answer_does_not_explain_it(
    now_ms: int, ahead: float
) -> None:
    assert clock_ahead(now_ms, 1_000, 2_000) == pytest.approx(ahead)


def test_different_versions_are_a_finding() -> None:
    old, new = {"brokerVersionDesc": "V4_9_7"}, {"brokerVersionDesc": "V5_3_3"}
    assert found(*PAIR, h1=old, h2=new) == [("V01", "warning")]
    assert found(*PAIR, h1=old, h2=old) == []
    assert found(*PAIR, h1=old) == []


def test_name_servers_that_are_silent_or_differ_are_findings() -> None:
    whole = ClusterInfo({"broker-a": BrokerData("c", "broker-a", {0: "h:1", 1: "h:2"})}, {})
    part = ClusterInfo({"broker-a": BrokerData("c", "broker-a", {0: "h:1"})}, {})
    servers: dict[str, ClusterInfo | Error] = {
        "n:1": whole, "n:2": part, "n:3": Error("no answer")
    }  # fmt: skip
    health = health_of(Snapshot(servers, PAIR))
    assert [(one.code, one.where) for one in health.findings] == [
        ("R01", "name server n:2"),
        ("R05", "name server n:3"),
    ]
    assert "broker-a 1 at h:2" in health.findings[0].what
    assert health.silent == {"n:3": "no answer"}


def test_errors_come_first() -> None:
    codes = [
        code
        for code, _ in found(MASTER, slave(state=NOT_CONNECTED), h1={"commitLogDiskRatio": "0.8"})
    ]
    assert codes == ["H01", "S01"]


@pytest.mark.usefixtures("slave")
async def test_cluster_in_memory_is_well_until_its_slave_is_killed(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_admin(client=client) as admin:
        await trio.sleep(30)
        health = await admin.health()
        assert health.is_well, health
        assert health.brokers == 2
        cluster.silence(cluster.slaves[0])
        await trio.sleep(5)
        health = await admin.health()
        assert [one.code for one in health.findings] == ["R02"]
        assert list(health.silent) == [cluster.slaves[0].broker.address]
