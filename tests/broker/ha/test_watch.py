"""Lines for people about slaves that stay behind and sends that slaves did not acknowledge."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.caller import Caller, caller_of
from trio.testing import MockClock

from rocketrio_broker.embedded import MASTER_HOST, EmbeddedCluster
from rocketrio_broker.ha.watch import CHECK_INTERVAL
from rocketrio_broker.settings.config import MasterRole

SLAVE_HOST = "10.0.0.11"


@asynccontextmanager
async def pair(role: MasterRole) -> AsyncGenerator[tuple[EmbeddedCluster, Caller]]:
    async with (
        EmbeddedCluster(slaves=1, role=role, ha_housekeeping_interval=60.0) as cluster,
        caller_of(cluster) as caller,
    ):
        await trio.sleep(1)
        await caller.send(cluster.master.broker.address, b"first")
        await trio.sleep(1)
        yield cluster, caller


def told(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


@pytest.mark.slow
async def test_slave_that_stays_behind_and_catches_up_is_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rocketrio_broker.ha")
    async with pair("async-master") as (cluster, caller):
        cluster.memory_network.partition(MASTER_HOST, SLAVE_HOST)
        await caller.send(cluster.master.broker.address, b"missed")
        await trio.sleep(CHECK_INTERVAL)
        assert not told(caplog, "stays behind"), "it may be on its way"
        await trio.sleep(CHECK_INTERVAL)
        cluster.memory_network.heal()
        await trio.sleep(1)
        [line] = told(caplog, "slave stays behind")
        [slave] = cluster.master.broker.ha_service.connections
        assert f"slave={slave.addr} bytes=" in line
        assert " seconds=10 " in line
        await trio.sleep(CHECK_INTERVAL)
        [line] = told(caplog, "slave has caught up")
        assert f"offset={cluster.master.broker.store.max_physical_offset} seconds=20" in line
        await trio.sleep(10 * CHECK_INTERVAL)
        assert len(told(caplog, "slave stays behind")) == 1


@pytest.mark.slow
async def test_sends_that_slaves_did_not_acknowledge_are_counted(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rocketrio_broker.ha")
    async with pair("sync-master") as (cluster, caller):
        addr = cluster.master.broker.address
        await cluster.slaves[0].kill()
        await trio.sleep(1)
        for _ in range(3):
            await caller.send(addr, b"alone")
        await trio.sleep(CHECK_INTERVAL)
        [line] = told(caplog, "without the required replication")
        assert "seconds=10 unsafe=slave_not_available:3 safe=" in line
        await cluster.slaves[0].start()
        await trio.sleep(CHECK_INTERVAL)
        assert not told(caplog, "safe again"), "nothing was sent"
        await caller.send(addr, b"together")
        await trio.sleep(CHECK_INTERVAL)
        assert told(caplog, "sends are replicated as required again")
        assert len(told(caplog, "without the required replication")) == 1
