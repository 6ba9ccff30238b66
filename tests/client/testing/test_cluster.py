"""Clusters for tests: what is reached from where, and the faults."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio
from tests.support.clients import open_client
from trio.testing import MockClock

from rocketrio import Error, Message, NotReachableError, open_consumer, open_producer
from rocketrio.ports import current_ports
from rocketrio.testing import (
    ClusterInThread,
    EmbeddedCluster,
    open_cluster,
    open_cluster_in_thread,
)
from rocketrio_protocol.errors import BrokerError, ConfigError
from rocketrio_protocol.remoting.tcp import dial_tcp


async def send(cluster: EmbeddedCluster | ClusterInThread) -> str:
    async with open_producer(name_servers=cluster.name_servers, retries=0) as producer:
        return (await producer.send(Message("orders", b"{}"))).status.name


async def test_clients_of_the_block_reach_it_and_later_ones_the_network(
    autojump_clock: MockClock,
) -> None:
    assert current_ports.get().dial is dial_tcp
    async with open_cluster() as cluster:
        assert current_ports.get().wall_clock is cluster.wall_clock
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, cluster)  # A child task reaches it too.
    assert current_ports.get().dial is dial_tcp


async def test_client_opened_with_other_ports_leaves_those_of_the_block(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster() as cluster:
        ports, host = current_ports.get(), cluster.dial_from("10.0.0.7")
        async with open_client(name_servers=cluster.name_servers, dial=host) as client:
            assert client.client_id.startswith("10.0.0.7@")
            assert current_ports.get() is ports


async def test_silent_master_is_not_reached_until_it_is_healed(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster:
        assert await send(cluster) == "SEND_OK"
        cluster.silence(cluster.master)
        with pytest.raises(NotReachableError):
            await send(cluster)
        cluster.heal()
        assert await send(cluster) == "SEND_OK"


@pytest.mark.slow
async def test_partition_from_clients_leaves_replication(autojump_clock: MockClock) -> None:
    async with open_cluster(slaves=1, role="sync-master") as cluster:
        cluster.partition(cluster.master, cluster.slaves[0])
        assert await send(cluster) != "SEND_OK"
        cluster.heal()
        await trio.sleep(60)
        cluster.partition(cluster.slaves[0])
        assert await send(cluster) == "SEND_OK"
        cluster.heal()
        cluster.partition(cluster.master)
        async with open_consumer(
            "orders", group="billing", name_servers=cluster.name_servers
        ) as consumer:
            assert (await consumer.receive()).body == b"{}"


async def test_full_disk_refuses_new_topics_until_it_is_freed(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster:
        cluster.master.fill_disk()
        with pytest.raises(BrokerError, match="No space left"):
            await send(cluster)
        cluster.master.free_disk()
        assert await send(cluster) == "SEND_OK"


async def test_faults_of_a_memory_cluster_are_refused_on_real_ports_and_files(
    tmp_path: Path,
) -> None:
    async with open_cluster(root=tmp_path) as cluster:
        with pytest.raises(ConfigError, match=r"partitioned.*Omit network= and root="):
            cluster.partition(cluster.master)
        with pytest.raises(ConfigError, match=r"disk in memory.*Omit root="):
            cluster.master.fill_disk()


def test_cluster_in_a_thread_serves_other_runs_and_stops_with_its_block() -> None:
    with open_cluster_in_thread(slaves=1) as cluster:
        assert trio.run(send, cluster) == "SEND_OK"
        cluster.kill_master()
        with pytest.raises(Error):
            trio.run(send, cluster)
        cluster.restart_master()
        assert trio.run(send, cluster) == "SEND_OK"
        cluster.call(lambda running: running.slaves[0].kill())
    assert not [thread for thread in threading.enumerate() if "rocketmq" in thread.name]
    with pytest.raises(trio.RunFinishedError):
        cluster.kill_master()


def test_cluster_in_a_thread_that_cannot_start_raises_the_reason() -> None:
    with (
        pytest.raises(TypeError, match="no_such_setting"),
        open_cluster_in_thread(no_such_setting=1),
    ):
        pass


def test_cluster_in_a_thread_raises_at_the_end_what_broke_it() -> None:
    async def break_it(cluster: EmbeddedCluster) -> None:
        async def fail() -> None:
            raise ValueError("broken")

        cluster.nursery.start_soon(fail)
        await trio.lowlevel.checkpoint()

    with pytest.raises(ValueError, match="broken"), open_cluster_in_thread() as cluster:
        cluster.call(break_it)


def test_import_of_the_client_does_not_import_the_broker() -> None:
    program = "import sys, rocketrio; assert 'rocketrio_broker' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
