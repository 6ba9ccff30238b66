"""A slave that acknowledges what its disk has, against a master whose every byte the test decides."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.held_disk import HeldDisk
from tests.support.replication import (
    MASTER,
    MASTER_HA,
    RawPeer,
    Slave,
    slave,
    some_log,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.history import FIRST_ADDRESS
from rocketrio_broker.testing.memory_network import MemoryNetwork

DISK = HAConfig(acknowledge="disk")


@asynccontextmanager
async def followed(disk: HeldDisk) -> AsyncGenerator[tuple[RawPeer, Slave]]:
    """A raw master's end of the connection, and the slave at the other end."""
    network = MemoryNetwork()
    listener = await network.host(MASTER).listen(MASTER_HA)
    async with slave(network, disk=disk, config=DISK) as ours:
        try:
            yield RawPeer(await listener.accept()), ours
        finally:
            disk.release()


async def test_nothing_is_reported_before_the_disk_has_it(autojump_clock: MockClock) -> None:
    log, disk = await some_log(10), HeldDisk()
    async with followed(disk) as (peer, ours):
        assert await peer.read_report() == 0
        disk.hold()
        await peer.send_transfer(0, log)
        await trio.sleep(1)
        assert ours.store.max_physical_offset == len(log)
        disk.release()
        assert await peer.read_report() == len(log)
        assert trio.current_time() == 1.0
        assert ours.store.flushed.value == len(log)


async def test_slave_flushes_at_once_and_not_on_the_period(autojump_clock: MockClock) -> None:
    log = await some_log(10)
    async with followed(HeldDisk()) as (peer, _):
        assert await peer.read_report() == 0
        await trio.sleep(0.1)  # The period is half a second.
        await peer.send_transfer(0, log)
        assert await peer.read_report() == len(log)
        assert trio.current_time() == pytest.approx(0.1)


async def test_what_arrives_during_a_flush_shares_the_next(autojump_clock: MockClock) -> None:
    log, disk = await some_log(10), HeldDisk()
    async with followed(disk) as (peer, _):
        assert await peer.read_report() == 0
        disk.hold()
        for start in range(0, len(log), 100):
            await peer.send_transfer(start, log[start : start + 100])
            await wait_all_tasks_blocked()
        disk.release()
        reports = []
        while not reports or reports[-1] < len(log):
            reports.append(await peer.read_report())
        assert len(reports) <= 2


async def test_slave_with_a_busy_disk_is_distinguished_from_a_dead_one(
    autojump_clock: MockClock,
) -> None:
    """It goes on saying what it had every five seconds."""
    log, disk = await some_log(10), HeldDisk()
    async with followed(disk) as (peer, _):
        assert await peer.read_report() == 0
        disk.hold()
        await peer.send_transfer(0, log)
        times = []
        for _ in range(3):
            assert await peer.read_report() == 0
            times.append(trio.current_time())
        assert times == [5.0, 10.0, 15.0]


async def test_all_that_is_compared_is_on_the_disk(autojump_clock: MockClock) -> None:
    """The slave asks once its disk has everything, so that what turns out equal may be reported at once."""
    disk = HeldDisk()
    network = MemoryNetwork()
    listener = await network.host(MASTER).listen(MASTER_HA)
    async with slave(network, disk=disk, config=DISK, master_addr=None) as ours:
        log = await some_log(10)
        ours.store.append_raw(0, log)
        disk.hold()
        ours.address.update(MASTER_HA)
        peer = RawPeer(await listener.accept())
        with trio.move_on_after(3) as waiting:
            await peer.read_report()
        assert waiting.cancelled_caught
        disk.release()
        assert await peer.read_report() == FIRST_ADDRESS
        await peer.send_transfer(FIRST_ADDRESS, log[FIRST_ADDRESS:])
        assert await peer.read_report() == len(log)
        assert trio.current_time() == 3.0


async def test_nothing_but_what_is_compared_is_reported(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    listener = await network.host(MASTER).listen(MASTER_HA)
    async with slave(network, disk=HeldDisk(), config=DISK, master_addr=None) as ours:
        log = await some_log(10)
        ours.store.append_raw(0, log)
        ours.address.update(MASTER_HA)
        peer = RawPeer(await listener.accept())
        assert await peer.read_report() == FIRST_ADDRESS
        await peer.send_transfer(FIRST_ADDRESS, log[FIRST_ADDRESS:500])
        for _ in range(3):
            assert await peer.read_report() == 500
        assert trio.current_time() == 15.0


async def test_a_silent_master_is_left_all_the_same(autojump_clock: MockClock) -> None:
    async with followed(HeldDisk()) as (peer, ours):
        assert await peer.wait_ended() == 20.0
        assert "sent nothing" in (ours.client.statistics().last_problem or "")
