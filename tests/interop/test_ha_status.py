"""The HA status across products: Java's command reads ours, our admin reads what Apache's brokers tell."""

import subprocess
from pathlib import Path

import pytest
import trio

from rocketrio import open_admin
from rocketrio.admin.cluster_status import CONNECTED, TAKES_WRITES, BrokerStatus
from rocketrio_protocol.errors import BrokerError, RequestCodeNotSupportedError
from tests.interop.conftest import OnApache, OnOurs
from tests.interop.jars import apache_jars
from tests.support.commit_logs import wait_caught_up

pytestmark = pytest.mark.interop

COMMAND_LIMIT = 60.0
LEVEL_LIMIT = 30.0
"""Seconds until a slave has said that it is level: Apache's report every 5."""
TRIES = 3


def mqadmin(*arguments: str, home: Path) -> str:
    """What 5.3.3's tool prints; 4.9.7's has no such command."""
    command = [
        *("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Duser.home={home}"),
        *("-cp", f"{apache_jars('5.3.3')}/*"),
        *("org.apache.rocketmq.tools.command.MQAdminStartup", *arguments),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=COMMAND_LIMIT, check=True
    )
    return done.stdout


def status_of(broker: str, home: Path) -> list[str]:
    """The words of the status; the tool gives up after five seconds, which a busy machine needs to start it."""
    for _ in range(TRIES):
        told = mqadmin("haStatus", "-b", broker, home=home).split()
        if any(word.startswith("#") for word in told):
            return told
    raise AssertionError(f"no status but {' '.join(told)}")


def one_message_everywhere(cluster: OnApache | OnOurs) -> int:
    """Where both logs end then."""
    java, master = cluster.java, cluster.master.address
    java.create_topic("status", at=master)
    java.call("send", topic="status", broker="broker-a", queue_id=0, body="x")
    return wait_caught_up(master, cluster.slave.address)


def test_java_reads_the_status_of_our_master(on_ours: OnOurs, tmp_path: Path) -> None:
    end = one_message_everywhere(on_ours)
    told = status_of(on_ours.master.address, tmp_path)
    assert told[told.index("#MasterCommitLogMaxOffset") + 1] == str(end)
    assert told[told.index("#SlaveNum") + 1] == "1"
    assert told[told.index("#InSyncSlaveNum") + 1] == "1"
    assert told[-6].startswith("127.0.0.1:")


def test_java_reads_the_status_of_our_slave(on_apache: OnApache, tmp_path: Path) -> None:
    end = one_message_everywhere(on_apache)
    told = status_of(on_apache.slave.address, tmp_path)
    assert told[told.index("#MasterAddr") + 1] == on_apache.master.ha_address
    assert told[told.index("#CommitLogMaxOffset") + 1] == str(end)


async def level_status(name_server: str) -> tuple[BrokerStatus, BrokerStatus]:
    async with open_admin(name_servers=[name_server]) as admin:
        with trio.fail_after(LEVEL_LIMIT):
            while True:
                master, slave = await admin.status()
                if slave.bytes_behind == 0:
                    return master, slave
                await trio.sleep(0.2)


async def test_our_slave_of_an_apache_master(on_apache: OnApache) -> None:
    master, slave = await level_status(on_apache.name_server)
    assert (master.role, master.problem) == ("async-master", None)
    assert (slave.role, slave.state) == ("slave", "following")
    assert slave.follows == on_apache.master.ha_address
    assert master.max_physical_offset == slave.max_physical_offset
    assert (slave.acknowledges, slave.problem) == ("memory", None)


async def test_an_apache_slave_of_our_master(on_ours: OnOurs) -> None:
    master, slave = await level_status(on_ours.name_server)
    assert (master.role, master.state) == ("async-master", TAKES_WRITES)
    assert (slave.role, slave.state) == ("slave", CONNECTED)
    assert slave.seconds_behind == 0
    assert slave.max_physical_offset == master.max_physical_offset


async def test_an_apache_broker_does_not_change_its_role(on_apache: OnApache) -> None:
    async with open_admin(name_servers=[on_apache.name_server]) as admin:
        with pytest.raises(RequestCodeNotSupportedError, match="does not change its role"):
            await admin.change_role(on_apache.master.address, "sync-master", 0)


async def test_an_apache_broker_changes_settings_and_takes_unknown_ones_in_silence(
    on_apache: OnApache,
) -> None:
    addr = on_apache.master.address
    async with open_admin(name_servers=[on_apache.name_server]) as admin:
        after = await admin.change_settings(addr, {"maxTransferCountOnMessageInMemory": "33"})
        assert after["maxTransferCountOnMessageInMemory"] == "33"
        with pytest.raises(BrokerError, match="without effect"):
            await admin.change_settings(addr, {"noSuchSetting": "1"})
        await admin.change_settings(addr, {"maxTransferCountOnMessageInMemory": "32"})
