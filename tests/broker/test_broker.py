"""How a broker is put together: ports, roles, what it refuses to start with."""

from pathlib import Path

import pytest
import trio
from tests.support.caller import caller_of
from trio.testing import MockClock

from rocketrio_broker.broker import open_broker
from rocketrio_broker.embedded import SMALL_STORE, EmbeddedCluster, fast_address
from rocketrio_broker.processors import NOT_BUILT_YET
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.codes import PROTOCOL_VERSION, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.ports import split_addr


def config(**fields: object) -> BrokerConfig:
    return BrokerConfig(data=Path("/data"), store=SMALL_STORE, **fields)  # type: ignore[arg-type]


async def refusal(broker: BrokerConfig) -> ConfigError:
    host = MemoryNetwork().host("10.0.0.10")
    with pytest.raises(ConfigError) as error:
        async with open_broker(broker, disk=MemoryDisk(), dial=host.dial, listen=host.listen):
            pass
    return error.value


async def test_address_that_cannot_be_dialled_is_refused(autojump_clock: MockClock) -> None:
    error = await refusal(config(listen="0.0.0.0:10911"))
    assert "0.0.0.0:10911" in str(error)
    assert "address" in error.advice


async def test_broker_on_all_addresses_registers_the_configured_one(
    autojump_clock: MockClock,
) -> None:
    host = MemoryNetwork().host("10.0.0.10")
    broker = config(listen="0.0.0.0:10911", address="10.0.0.10:10911")
    async with open_broker(broker, disk=MemoryDisk(), dial=host.dial, listen=host.listen) as ours:
        assert (ours.address, ours.ha_address) == ("10.0.0.10:10911", "10.0.0.10:10912")


async def test_broker_whose_name_server_is_down_logs_it_and_serves_after_ha_return_wait(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    host = MemoryNetwork().host("10.0.0.10")
    broker = config(listen="10.0.0.10:10911", namesrv="10.0.0.9:9876")
    async with trio.open_nursery() as nursery:

        async def serve(*, task_status: trio.TaskStatus[None]) -> None:
            async with open_broker(broker, disk=MemoryDisk(), dial=host.dial, listen=host.listen):
                task_status.started()
                await trio.sleep_forever()

        async def look() -> None:
            await trio.sleep(1)
            assert "not serving yet" in caplog.text
            assert "unreachable=name server 10.0.0.9:9876" in caplog.text

        began = trio.current_time()
        nursery.start_soon(look)
        await nursery.start(serve)
        assert trio.current_time() - began < broker.ha_return_wait + 1
        nursery.cancel_scope.cancel()


async def test_taken_port_is_an_error_and_frees_the_others(autojump_clock: MockClock) -> None:
    host = MemoryNetwork().host("10.0.0.10")
    taken = await host.listen("10.0.0.10:10909")
    broker = config(listen="10.0.0.10:10911")
    with pytest.raises(ConfigError, match="10909"):
        async with open_broker(broker, disk=MemoryDisk(), dial=host.dial, listen=host.listen):
            pass
    taken.close()
    async with open_broker(broker, disk=MemoryDisk(), dial=host.dial, listen=host.listen) as ours:
        assert ours.address == "10.0.0.10:10911"


async def test_connections_of_one_host_are_limited_by_a_setting(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    host, crowd, other = (network.host(f"10.0.0.{number}") for number in (10, 11, 12))
    broker = config(listen="10.0.0.10:10911", host_connection_limit=2)
    async with open_broker(broker, disk=MemoryDisk(), dial=host.dial, listen=host.listen) as ours:
        own = ours.statistics().connections
        for dial in (crowd.dial, crowd.dial, crowd.dial, other.dial):
            await dial(ours.address)
        await trio.sleep(1)
        assert ours.statistics().connections == own + 3


@pytest.mark.real
async def test_free_ports_leave_the_one_two_below_free(tmp_path: Path) -> None:
    async with EmbeddedCluster(network="loopback") as cluster:
        address = cluster.master.broker.address
        fast = fast_address(address)
        assert split_addr(fast)[1] == split_addr(address)[1] - 2
        async with caller_of(cluster) as caller:
            assert (await caller.send(fast, b"x")).code == ResponseCode.SUCCESS


async def test_unbuilt_codes_have_no_processor(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        for code in sorted(NOT_BUILT_YET):
            answer = await caller.pool.call(
                cluster.master.broker.address, RemotingCommand(code, ext_fields={})
            )
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, code
            assert answer.remark == f" request type {int(code)} not supported"


async def test_every_answer_has_a_version_that_clients_understand(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        for answer in (await caller.send(addr, b"x"), await caller.pull(addr, 0)):
            assert answer.version == PROTOCOL_VERSION == 407


async def test_statistics_report_role_store_and_connections(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        await caller.send(cluster.master.broker.address, b"x")
        await trio.sleep(1)
        master = cluster.master.broker.statistics()
        slave = cluster.slaves[0].broker.statistics()
        assert (master.role, slave.role) == ("async-master", "slave")
        assert master.store.put_message_times == 1
        assert master.slave is None
        assert slave.slave is not None
        assert slave.store.max_physical_offset == master.store.max_physical_offset
        assert len(master.ha.connections) == 1


DAMAGED_FILES = {
    "topics.json": b'{"topicConfigTable":{"T":{"topicName":"T"},"../x":{"topicName":"../x"},"U":7,'
    b'"V":{"topicName":"V","readQueueNums":-1},"W":{"topicName":"X"}}}',
    "subscriptionGroup.json": b'{"subscriptionGroupTable":{"G":{"groupName":"G"},"H":[],'
    b'"a@b":{"groupName":"a@b"}},"dataVersion":{"counter":1e400}}',
    "rocketrioOffsets.json": b'{"offsetTable":{"T@G":{0:5,1:"x"},"U":{0:1},"V@G":{-1:99999999999999999999}},'
    b'"rocketrioVersions":{"generations":{"T@G":{0:"999999999999999999.1000000000000000000"}}}}',
    "rocketrioOffsets.0.log": b'["T","G",0,"1.1","x",0]\n\xff\n["T","G",2,"0.1",9,-1]\n["T","G"',
    "slaves.json": b'{"slaves":["10.0.0.7:10911",7,"nowhere","\\n:-1",null]}',
    "delayOffset.json": b'{"offsetTable":{1:"x",2:-5,99:3,3:4}}',
    "rocketrioQueueLocks.json": b'{"locks":[7,{"group":"G","clientId":"c",'
    b'"queue":{"topic":"T","brokerName":"broker-a","queueId":0}},{"group":"H"}]}',
}


async def test_start_skips_damaged_entries_of_every_file(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    host, disk = MemoryNetwork().host("10.0.0.10"), MemoryDisk()
    folder = Path("/data/config")
    disk.make_directory(folder)
    for name, data in DAMAGED_FILES.items():
        disk.open(folder / name, create=True).pwrite(data, 0)
    async with open_broker(config(), disk=disk, dial=host.dial, listen=host.listen) as ours:
        await trio.sleep(60)
        state = ours.state
        topics, groups = state.topics.topic_config_table, state.groups.subscription_group_table
        assert "T" in topics
        assert not {"../x", "U", "V", "W", "X"} & set(topics)
        assert "G" in groups
        assert not {"H", "a@b"} & set(groups)
        # Lowered to the end of a log that is empty here; the damaged ones between them were skipped.
        assert state.consumer_offsets.query_offsets("G", "T") == {0: 0, 2: 0}
    for name in ("topics.json", "subscriptionGroup.json", "rocketrioOffsets.json", "slaves.json"):
        assert f"table entries skipped table={name}" in caplog.text
