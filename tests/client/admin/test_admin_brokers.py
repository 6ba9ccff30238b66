"""Brokers of a cluster in memory: how they stand to each other, their roles and settings."""

import pytest
import trio

from rocketrio import ClientInstance, Message, NotReachableError, open_admin, open_producer
from rocketrio.admin.brokers import _is_same
from rocketrio.admin.cluster_status import (
    NO_WRITES,
    NOT_REACHABLE,
    TAKES_WRITES,
    BrokerStatus,
)
from rocketrio_broker.embedded import MASTER_HOST, EmbeddedCluster
from rocketrio_broker.store.refusals import Refuser
from rocketrio_protocol.errors import BrokerError, ConfigError

SLAVE_HOST = "10.0.0.11"


async def until_level(client: ClientInstance) -> list[BrokerStatus]:
    async with open_admin(client=client) as admin:
        with trio.fail_after(60):
            while True:
                found = await admin.status()
                if len(found) == 2 and found[1].bytes_behind == 0:
                    return found
                await trio.sleep(0.1)


@pytest.mark.usefixtures("slave")
async def test_status_of_a_pair(client: ClientInstance, cluster: EmbeddedCluster) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b"x"))
    master, slave = await until_level(client)
    running = cluster.master.broker
    assert (master.role, master.state, master.follows) == ("async-master", TAKES_WRITES, None)
    assert (slave.role, slave.state) == ("slave", "following")
    assert slave.follows == running.ha_address
    assert slave.max_physical_offset == master.max_physical_offset
    assert slave.max_physical_offset
    assert (slave.seconds_behind, slave.acknowledges, slave.problem) == (0, "memory", None)


@pytest.mark.usefixtures("slave")
async def test_a_silent_slave_and_one_that_is_gone(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer, open_admin(client=client) as admin:
        await producer.send(Message("orders", b"x"))
        await until_level(client)
        cluster.memory_network.partition(MASTER_HOST, SLAVE_HOST)
        await producer.send(Message("orders", b"y"))
        await trio.sleep(4)
        slave = (await admin.status())[1]
        assert slave.bytes_behind
        assert slave.seconds_behind == pytest.approx(4, abs=0.5)
        await cluster.slaves[0].kill()
        found = await admin.status()
        assert [one.state for one in found][:1] == [TAKES_WRITES]
        assert all(one.state == NOT_REACHABLE and one.problem for one in found[1:])


async def test_role_changes_and_a_master_that_takes_no_writes(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    addr = cluster.master.broker.address
    async with open_admin(client=client) as admin:
        await admin.change_role(addr, "sync-master", 0)
        assert (await admin.status())[0].role == "sync-master"
        with pytest.raises(ConfigError, match="a master has id 0"):
            await admin.change_role(addr, "slave", 0)
        with pytest.raises(BrokerError, match="not change its role while it runs"):
            await admin.change_role(cluster.name_server.addr, "slave", 1)
        cluster.master.broker.store.refusals.refuse(Refuser.STANDING, "another broker is master")
        master = (await admin.status(also=[addr]))[0]
        assert (master.state, master.problem) == (NO_WRITES, "another broker is master")
        with pytest.raises(NotReachableError):
            await admin.status(also=["10.0.0.99:10911"])


async def test_settings_change_while_the_broker_runs(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    addr = cluster.master.broker.address
    async with open_admin(client=client) as admin:
        after = await admin.change_settings(addr, {"slaveReadEnable": "False"})
        assert after["slaveReadEnable"] == "false"
        assert not cluster.master.broker.config.slave_read_enable
        with pytest.raises(BrokerError, match="slaveReadEnable"):
            await admin.change_settings(addr, {"slaveReadEnabled": "true"})


def test_settings_are_compared_by_value() -> None:
    assert _is_same("40", "40.0")
    assert _is_same("True", "true")
    assert not _is_same("x", None)
    assert not _is_same("1", "true")
