"""Which ids a master knows to be live: by introduction, by the list, and when neither says so."""

import attrs
import pytest
import trio
from tests.support.caller import Caller, bodies, caller_of
from trio.testing import MockClock

from rocketrio_broker.embedded import SMALL_STORE, EmbeddedCluster
from rocketrio_broker.ha.config import SLAVES_LIMIT
from rocketrio_broker.ha.live_slaves import LiveSlaves
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.registration import (
    RegisterBrokerBody,
    body_crc32,
    encode_register_body,
)
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import (
    GetAllConsumerOffsetRequestHeader,
    UpdateAndCreateSubscriptionGroupRequestHeader,
)
from rocketrio_protocol.commands.cluster import RegisterBrokerRequestHeader
from rocketrio_protocol.ha.stream import encode_report

NAMED = 9


@attrs.define
class FakeConnection:
    addr: str
    slave_request_offset: int | None = 0
    slave_ack_offset: int = 1000
    member: str = ""


def ids(slaves: LiveSlaves, end: int = 1000) -> list[int]:
    return sorted(slaves.ids(NAMED, max_physical_offset=end))


def test_identified_slave_is_live_while_it_is_connected() -> None:
    connections = [FakeConnection("10.0.0.11:5000")]
    slaves = LiveSlaves()
    slaves.watch(connections)
    slaves.introduce(1, "10.0.0.11:5000")
    slaves.introduce(2, "10.0.0.12:5000")
    assert ids(slaves) == [1]
    connections.append(FakeConnection("10.0.0.12:5000"))
    assert ids(slaves) == [1, 2]
    connections.clear()
    assert ids(slaves) == []


def test_slave_counts_from_its_first_report_on_and_not_while_far_behind() -> None:
    connection = FakeConnection("10.0.0.11:5000", slave_request_offset=None)
    slaves = LiveSlaves(slave_fallbehind_max=500)
    slaves.watch([connection])
    slaves.introduce(1, connection.addr)
    assert ids(slaves) == []
    connection.slave_request_offset = 0
    assert ids(slaves) == [1]
    assert ids(slaves, end=1500) == []


def test_common_offset_counts_only_slaves_that_could_take_over() -> None:
    slaves = LiveSlaves(slave_fallbehind_max=500)
    assert slaves.common_offset(max_physical_offset=2000) == 2000
    addrs = ("10.0.0.11:1", "10.0.0.12:1", "10.0.0.13:1")
    offsets = (1900, 1700, 1500)
    slaves.watch(
        [
            FakeConnection(addr, slave_ack_offset=offset)
            for addr, offset in zip(addrs, offsets, strict=True)
        ]
    )
    assert slaves.common_offset(max_physical_offset=2000) == 1700


def test_stranger_is_named_by_the_list_of_the_name_servers() -> None:
    slaves = LiveSlaves()
    slaves.watch([FakeConnection("10.0.0.12:5000")])
    slaves.list_slaves({0: "10.0.0.10:10911", 1: "10.0.0.11:10911", 2: "10.0.0.12:10911"})
    assert ids(slaves) == [2]
    assert slaves.unnamed() == []


def test_unlisted_connection_may_be_the_named_slave() -> None:
    slaves = LiveSlaves()
    slaves.watch([FakeConnection("10.0.0.13:5000")])
    assert ids(slaves) == [NAMED]
    assert [connection.addr for connection in slaves.unnamed()] == ["10.0.0.13:5000"]


def test_listed_slave_that_introduced_itself_and_left_is_not_taken_for_a_neighbour() -> None:
    slaves = LiveSlaves()
    slaves.watch([FakeConnection("10.0.0.11:6000")])
    slaves.introduce(1, "10.0.0.11:5000")
    slaves.list_slaves({1: "10.0.0.11:10911", 2: "10.0.0.11:20911"})
    assert ids(slaves) == [2]


def test_table_of_names_has_a_limit() -> None:
    slaves = LiveSlaves()
    slaves.watch([FakeConnection(f"10.0.0.11:{id_}") for id_ in range(1, SLAVES_LIMIT + 2)])
    for id_ in range(1, SLAVES_LIMIT + 2):
        slaves.introduce(id_, f"10.0.0.11:{id_}")
    assert SLAVES_LIMIT + 1 in ids(slaves)
    assert 1 not in ids(slaves)


def test_report_at_the_client_port_counts_for_a_connected_slave_that_reports_nothing() -> None:
    nameless, named = FakeConnection("10.0.0.11:5000"), FakeConnection("10.0.0.12:5000", member="m")
    slaves = LiveSlaves()
    slaves.watch([nameless, named])
    slaves.introduce(2, named.addr)
    for number in range(SLAVES_LIMIT):
        slaves.note_reported(1000 + number, f"10.0.0.66:{number}")
    slaves.note_reported(3, named.addr)
    slaves.note_reported(2, "10.0.0.66:5000")
    assert slaves.introduced() == {2}
    slaves.note_reported(2, nameless.addr)
    assert slaves.id_of(named.addr) == 2
    slaves.note_reported(1, nameless.addr)
    assert ids(slaves) == [1, 2]


# ------------------------------------------------------------------------------------ whole clusters

SLOW_READER = attrs.evolve(SMALL_STORE, access_message_in_memory_max_bytes=10_000)


async def fill(caller: Caller, addr: str) -> None:
    for _ in range(20):
        await caller.send(addr, bytes(1000))


async def suggestion(caller: Caller, addr: str, offset: int = 0, group: str = "billing") -> int:
    answer = await caller.pull(addr, offset, group=group, max_messages=1)
    assert bodies(answer)
    return int(answer.ext_fields["suggestWhichBrokerId"])


async def test_dead_slave_is_replaced_by_another_and_by_the_master(
    autojump_clock: MockClock,
) -> None:
    async with (
        EmbeddedCluster(slaves=2, store=SLOW_READER, slave_read_enable=True) as cluster,
        caller_of(cluster) as caller,
    ):
        master = cluster.master.broker
        await fill(caller, master.address)
        await trio.sleep(2)
        assert sorted(master.state.live_slaves.ids(NAMED, max_physical_offset=0)) == [1, 2]
        assert await suggestion(caller, master.address) == 1
        await cluster.slaves[0].kill()
        await trio.sleep(0.1)
        assert await suggestion(caller, master.address) == 2
        await cluster.slaves[1].kill()
        await trio.sleep(0.1)
        assert await suggestion(caller, master.address) == 0
        await cluster.slaves[0].start()
        await trio.sleep(2)
        assert await suggestion(caller, master.address) == 1


@pytest.mark.slow
async def test_live_slaves_follow_a_change_of_roles(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster(slaves=2, store=SLOW_READER, slave_read_enable=True) as cluster,
        caller_of(cluster) as caller,
    ):
        await fill(caller, cluster.master.broker.address)
        await trio.sleep(11)  # The tables are copied.
        await cluster.master.stop()
        successor = cluster.slaves[0].broker
        await successor.roles.service.change("async-master", 0)
        await trio.sleep(
            40
        )  # The other slave learns the new master's address with its next registration.
        assert list(successor.state.live_slaves.ids(NAMED, max_physical_offset=0)) == [2]
        assert await suggestion(caller, successor.address) == 2
        await successor.roles.service.change("slave", 1)
        assert await suggestion(caller, successor.address) == 1  # A slave keeps its readers.


async def test_group_settings_change_the_suggestion_at_run_time(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster(slaves=2, store=SLOW_READER, slave_read_enable=True) as cluster,
        caller_of(cluster) as caller,
    ):
        addr = cluster.master.broker.address
        await fill(caller, addr)
        await trio.sleep(2)
        assert [await suggestion(caller, addr, offset) for offset in (0, 19)] == [1, 0]
        group = SubscriptionGroupConfig("billing", broker_id=1, which_broker_when_consume_slowly=2)
        answer = await caller.pool.call(
            addr, UpdateAndCreateSubscriptionGroupRequestHeader(), fastjson.dumps(group)
        )
        assert answer.code == ResponseCode.SUCCESS
        assert [await suggestion(caller, addr, offset) for offset in (0, 19)] == [2, 1]
        assert await suggestion(caller, addr, 0, group="another") == 1
        await trio.sleep(11)  # The slaves have copied it: who reads at the first one moves too.
        assert await suggestion(caller, cluster.slaves[0].broker.address) == 2


async def register_slave(cluster: EmbeddedCluster, caller: Caller, addr: str) -> None:
    """As id 2, for as long as the caller's connection stands."""
    master = cluster.master.broker
    body = encode_register_body(RegisterBrokerBody(master.state.topics.registered_wrapper()))
    header = RegisterBrokerRequestHeader(
        "broker-a", addr, "DefaultCluster", "", 2, body_crc32=body_crc32(body)
    )
    answer = await caller.pool.call(cluster.name_servers[0], header, body)
    assert answer.code == ResponseCode.SUCCESS


async def test_slave_that_does_not_identify_itself_is_found_in_the_list(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        master = cluster.master.broker
        slaves = master.state.live_slaves
        await register_slave(cluster, caller, "10.0.0.77:10911")
        transport = await cluster.dial_from("10.0.0.77")(master.ha_address)
        await transport.send_all(encode_report(0))
        await trio.sleep(0.9)
        assert slaves.ids(NAMED, max_physical_offset=0) == {NAMED}
        await trio.sleep(0.2)
        assert slaves.ids(NAMED, max_physical_offset=0) == {2}
        await transport.aclose()
        await trio.sleep(0.1)
        assert slaves.ids(NAMED, max_physical_offset=0) == set()


async def test_slave_that_registers_late_is_found_later(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        master = cluster.master.broker
        slaves = master.state.live_slaves
        transport = await cluster.dial_from("10.0.0.77")(master.ha_address)
        await transport.send_all(encode_report(0))
        await trio.sleep(2)
        await register_slave(cluster, caller, "10.0.0.77:10911")
        assert slaves.ids(NAMED, max_physical_offset=0) == {NAMED}
        await trio.sleep(9.1)  # Ten seconds after the first look.
        assert slaves.ids(NAMED, max_physical_offset=0) == {2}


async def test_offset_queries_of_other_clients_introduce_no_slave(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await caller.pool.call(addr, GetAllConsumerOffsetRequestHeader())
        await caller.pool.call(addr, GetAllConsumerOffsetRequestHeader(broker_id=1))
        slaves = cluster.master.broker.state.live_slaves
        assert slaves == LiveSlaves(connections=slaves._connections)
