"""Who follows whom and how far behind, put together from what each broker says."""

import re
from pathlib import Path

import attrs
import msgspec

from rocketrio.admin.cluster_status import (
    CONNECTED,
    NO_WRITES,
    NOT_CONNECTED,
    NOT_REACHABLE,
    REFUSED,
    TAKES_WRITES,
    BrokerAnswers,
    BrokerDescription,
    cluster_status,
)
from rocketrio_broker.ha.client import HAClientState
from rocketrio_protocol.ha.status import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
    OwnStatus,
)


def broker(broker_id: int, *, host: str = "h", end: int | None = None) -> BrokerDescription:
    runtime = {} if end is None else {"commitLogMaxOffset": str(end)}
    role = {"brokerRole": "SLAVE" if broker_id else "SYNC_MASTER"}
    return BrokerDescription.of("c", "a", broker_id, f"{host}:{10911 + broker_id}", runtime, role)


def master_of(*connections: HAConnectionRuntimeInfo, end: int = 1000) -> BrokerAnswers:
    info = HARuntimeInfo(
        master=True, master_commit_log_max_offset=end, ha_connection_info=list(connections)
    )
    return BrokerAnswers(broker(0), info)


def test_without_the_ha_request_the_ends_of_the_logs_decide() -> None:
    one, other = cluster_status(
        [BrokerAnswers(broker(1, end=700)), BrokerAnswers(broker(0, end=1000))]
    )
    assert (one.broker_id, one.role, one.state, one.max_physical_offset) == (
        0,
        "sync-master",
        None,
        1000,
    )
    assert (other.broker_id, other.role, other.bytes_behind) == (1, "slave", 300)
    assert (other.state, other.follows, other.seconds_behind, other.seconds_left) == (None,) * 4


def test_slave_with_more_than_its_master_is_not_level_with_it() -> None:
    """The master compares at one moment. Without it, a slave that answered later may have received more by then."""
    connection = HAConnectionRuntimeInfo(addr="h2:40000", slave_ack_offset=1500, diff=-500)
    slave = BrokerAnswers(broker(1, host="h2", end=1500))
    assert cluster_status([master_of(connection), slave])[1].bytes_behind is None
    assert cluster_status([BrokerAnswers(broker(0, end=1000)), slave])[1].bytes_behind == 0


def test_an_apache_slave_is_known_by_its_host() -> None:
    connection = HAConnectionRuntimeInfo(
        addr="h2:40000", slave_ack_offset=990, diff=10, transferred_byte_in_second=5
    )
    theirs = HARuntimeInfo(
        ha_client_runtime_info=HAClientRuntimeInfo(master_addr="h:10912", max_offset=995)
    )
    slave = BrokerAnswers(broker(1, host="h2"), theirs)
    found = cluster_status([master_of(connection), slave])[1]
    assert (found.state, found.bytes_behind, found.follows) == (CONNECTED, 10, "h:10912")
    assert (found.max_physical_offset, found.seconds_left) == (995, None)
    found = cluster_status([master_of(), slave])[1]
    assert (found.state, found.bytes_behind) == (NOT_CONNECTED, 5)


def test_two_slaves_of_one_host_are_not_guessed_at() -> None:
    connections = [HAConnectionRuntimeInfo(addr=f"h2:{port}", diff=1) for port in (1, 2)]
    slaves = [BrokerAnswers(broker(id_, host="h2", end=900)) for id_ in (1, 2)]
    found = cluster_status([master_of(*connections), *slaves])
    assert [one.bytes_behind for one in found[1:]] == [100, 100]
    named = attrs.evolve(
        slaves[1],
        ha=HARuntimeInfo(ha_client_runtime_info=HAClientRuntimeInfo(rocketrio_local_addr="h2:2")),
    )
    connections[1].diff = 7
    found = cluster_status([master_of(*connections), slaves[0], named])
    assert [one.bytes_behind for one in found[1:]] == [1, 7], "one is known, so is the other"


def test_slave_is_known_by_the_id_it_reported() -> None:
    connection = HAConnectionRuntimeInfo(addr="nat:1", diff=3, rocketrio_broker_id=2)
    found = cluster_status([master_of(connection), BrokerAnswers(broker(2, end=0))])
    assert found[1].bytes_behind == 3


def test_unreachable_broker_has_the_reason_as_its_problem() -> None:
    found = cluster_status([BrokerAnswers(broker(0), problem="no answer")])[0]
    assert (found.state, found.problem, found.max_physical_offset) == (
        NOT_REACHABLE,
        "no answer",
        None,
    )


def test_copied_part_and_time_left() -> None:
    client = HAClientRuntimeInfo(
        rocketrio_state="following", transferred_byte_in_second=50, rocketrio_local_addr="h:9"
    )
    slave = HARuntimeInfo(
        ha_client_runtime_info=client,
        rocketrio=OwnStatus(role="slave", broker_id=1, max_offset=250),
    )
    connection = HAConnectionRuntimeInfo(addr="h:9", diff=750)
    found = cluster_status([master_of(connection), BrokerAnswers(broker(1), slave)])[1]
    assert (found.copied, found.seconds_left) == (0.25, 15)
    client.rocketrio_copy_rate = 75
    assert slave.rocketrio is not None
    slave.rocketrio.min_offset = 0
    found = cluster_status([master_of(connection), BrokerAnswers(broker(1), slave)])[1]
    assert (found.copied, found.seconds_left) == (0.25, 10)
    slave.rocketrio.min_offset, slave.rocketrio.max_offset = 10_000, 10_250
    found = cluster_status([master_of(connection), BrokerAnswers(broker(1), slave)])[1]
    assert found.copied == 0.25, "of what there is: the master's first byte is no 0 either"


def test_a_second_master_is_none_though_it_is_listed_as_the_slave_it_was() -> None:
    own = OwnStatus(
        role="async-master", broker_id=0, refusal="a has another live master, at h:10911"
    )
    second = BrokerAnswers(broker(1), HARuntimeInfo(master=True, rocketrio=own))
    first, other = cluster_status([second, master_of()])
    assert (first.broker_id, first.state, first.problem) == (0, None, None)
    assert (other.broker_id, other.role, other.state, other.problem) == (
        1,
        "async-master",
        NO_WRITES,
        own.refusal,
    )


def test_problems_of_the_broker_are_listed_beside_those_of_replication() -> None:
    own = OwnStatus(role="sync-master", broker_id=0, problems=["the clock", "the disk"])
    info = HARuntimeInfo(master=True, rocketrio=own)
    assert cluster_status([BrokerAnswers(broker(0), info)])[0].problem == "the clock; the disk"
    info.rocketrio = msgspec.structs.replace(own, last_problem="a slave")
    assert (
        cluster_status([BrokerAnswers(broker(0), info)])[0].problem
        == "a slave; the clock; the disk"
    )


def test_problem_because_of_which_a_broker_refuses_messages_is_listed_once() -> None:
    own = OwnStatus(role="sync-master", broker_id=0, refusal="the log", problems=["the log", "x"])
    info = HARuntimeInfo(master=True, rocketrio=own)
    assert cluster_status([BrokerAnswers(broker(0), info)])[0].problem == "the log; x"


def test_master_followed_by_more_slaves_than_are_registered_has_a_problem() -> None:
    def problem(*ages: float | None, registered: int) -> str | None:
        connections = [
            HAConnectionRuntimeInfo(addr=f"h:{port}", rocketrio_report_age=age)
            for port, age in enumerate(ages)
        ]
        slaves = [BrokerAnswers(broker(id_ + 1, end=0)) for id_ in range(registered)]
        return cluster_status([master_of(*connections), *slaves])[0].problem

    found = problem(0.1, 3.0, registered=1)
    assert found is not None
    assert found.startswith("2 slaves follow it, and clients know only 1: two have one id")
    assert problem(0.1, 3.0, registered=2) is None
    assert problem(0.1, registered=2) is None
    assert problem(0.1, 12.0, registered=1) is None, "a connection that its slave has left"
    assert problem(None, None, registered=1) is None, "Apache's masters do not report it"


def test_state_has_an_id_for_programs() -> None:
    own = OwnStatus(role="sync-master", broker_id=0)
    writing = BrokerAnswers(broker(0), HARuntimeInfo(master=True, rocketrio=own))
    refusing = BrokerAnswers(
        broker(0),
        HARuntimeInfo(master=True, rocketrio=msgspec.structs.replace(own, refusal="disk full")),
    )
    connection = HAConnectionRuntimeInfo(addr="h:40000", slave_ack_offset=990, diff=10)
    apaches = BrokerAnswers(broker(1, end=990))
    states = {
        one.state: one.state_id
        for found in (
            cluster_status([writing, *(slave_in(state) for state in HAClientState)]),
            cluster_status([refusing, BrokerAnswers(broker(1), problem="no answer")]),
            cluster_status([master_of(connection), apaches]),
            cluster_status([master_of(), BrokerAnswers(broker(1), problem="no", is_refused=True)]),
            cluster_status([master_of(), apaches]),
        )
        for one in found
        if one.state is not None
    }
    assert states == {state.text: state.value for state in HAClientState} | {
        TAKES_WRITES: "takes_writes",
        NO_WRITES: "takes_no_writes",
        NOT_REACHABLE: "not_reachable",
        REFUSED: "access_refused",
        CONNECTED: "connected",
        NOT_CONNECTED: "not_connected",
    }
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    [named] = re.findall(r"Compare `state_id` in programs: (.+?)\n- ", page, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", named)) - {"state"} == set(states.values())


def slave_in(state: HAClientState) -> BrokerAnswers:
    client = HAClientRuntimeInfo(rocketrio_state=state.text, rocketrio_state_id=state.value)
    number = 1 + list(HAClientState).index(state)
    return BrokerAnswers(broker(number), HARuntimeInfo(ha_client_runtime_info=client))
