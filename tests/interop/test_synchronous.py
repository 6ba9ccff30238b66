"""A synchronous put on a master of one product is let go by a slave of the other."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.interop.java_client import JavaClient
from tests.support import wire
from tests.support.commit_logs import wait_caught_up
from tests.support.ours import OurBroker, OurNameServer, assert_same_logs
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

QUEUE: dict[str, Any] = {"topic": "synchronous", "broker": "broker-a", "queue_id": 0}
ONE_SLAVE = {"inSyncReplicas": "2", "totalReplicas": "2"}
"""5.3.3 counts the master too, and with its default of 1 waits for no slave."""


@attrs.frozen
class Mixed:
    """A synchronous master, a slave of the other product that is not started yet, and Apache's client."""

    master: ApacheBroker | OurBroker
    slave: ApacheBroker | OurBroker
    java: JavaClient

    def send(self, body: str) -> str:
        """The status that Apache's client tells."""
        status: str = self.java.call("send", body=body, **QUEUE)["status"]
        return status

    def make_topic(self) -> None:
        self.java.create_topic("synchronous", at=self.master.address)


@pytest.fixture
def our_master(version: str, tmp_path: Path) -> Iterator[Mixed]:
    with ExitStack() as stack:
        names = stack.enter_context(OurNameServer(tmp_path / "namesrv"))
        master = OurBroker(tmp_path / "master", names.address, role="sync-master")
        slave = ApacheBroker(version, tmp_path / "slave", names.address, role="SLAVE", broker_id=1)
        stack.enter_context(master)
        stack.push(slave)
        java = stack.enter_context(JavaClient(version, names.address, tmp_path / "java"))
        yield Mixed(master, slave, java)


@pytest.fixture
def apache_master(version: str, tmp_path: Path) -> Iterator[Mixed]:
    with ExitStack() as stack:
        names = stack.enter_context(ApacheNameServer(version, tmp_path / "namesrv"))
        master = ApacheBroker(
            version,
            tmp_path / "master",
            names.address,
            role="SYNC_MASTER",
            settings=ONE_SLAVE if version.startswith("5") else {},
        )
        slave = OurBroker(tmp_path / "slave", names.address, role="slave", broker_id=1)
        stack.enter_context(master)
        stack.push(slave)
        java = stack.enter_context(JavaClient(version, names.address, tmp_path / "java"))
        yield Mixed(master, slave, java)


def test_put_on_our_master_is_released_by_an_apache_slave(our_master: Mixed) -> None:
    master, slave = our_master.master, our_master.slave
    our_master.make_topic()
    assert our_master.send("alone") == "SLAVE_NOT_AVAILABLE"
    slave.restart()
    wait_caught_up(master.address, slave.address)
    for number in range(20):
        assert our_master.send(f"together-{number}") == "SEND_OK"
        # The answer came because the slave has it.
        assert wire.max_physical_offset(slave.address) == wire.max_physical_offset(master.address)
    table = wire.runtime_info(master.address)
    assert (table["rocketrioPutOk"], table["rocketrioSlaveNotAvailable"]) == ("20", "1")
    slave.kill()
    wait_until(
        lambda: our_master.send("alone again") == "SLAVE_NOT_AVAILABLE", "the slave is missed"
    )
    slave.restart()
    assert_same_logs(master, slave)


def test_put_on_an_apache_master_is_released_by_our_slave(
    apache_master: Mixed, version: str
) -> None:
    master, slave = apache_master.master, apache_master.slave
    without_slave = "FLUSH_SLAVE_TIMEOUT" if version.startswith("5") else "SLAVE_NOT_AVAILABLE"
    apache_master.make_topic()
    assert apache_master.send("alone") == without_slave
    slave.restart()
    wait_caught_up(master.address, slave.address)
    for number in range(20):
        assert apache_master.send(f"together-{number}") == "SEND_OK"
        assert wire.max_physical_offset(slave.address) == wire.max_physical_offset(master.address)
    slave.kill()
    wait_until(lambda: apache_master.send("alone again") == without_slave, "the slave is missed")
