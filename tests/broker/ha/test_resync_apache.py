"""A slave of a master that says nothing of where its log begins or ends, as Apache's: heartbeats have to do."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.replication import (
    FILE_SIZE,
    MASTER,
    MASTER_HA,
    RECORD,
    RawPeer,
    Slave,
    disk_with,
    log_bytes,
    slave,
)
from tests.support.stores import opened
from trio.testing import MockClock

from rocketrio_broker.ha import resync
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.testing.memory_network import MemoryNetwork


@asynccontextmanager
async def apache_like(disk: MemoryDisk) -> AsyncGenerator[tuple[list[int], Slave]]:
    """A master that sends heartbeats for whatever address it has nothing at, and the first reports it gets."""
    asked: list[int] = []
    network = MemoryNetwork()
    async with opened(disk) as store, trio.open_nursery() as nursery:
        listener = await network.host(MASTER).listen(MASTER_HA)

        async def serve(peer: RawPeer) -> None:
            at = await peer.read_report() or 0
            asked.append(at)
            with trio.CancelScope() as scope:
                nursery.start_soon(close_with, peer, scope)
                while True:
                    block = store.read_log(at, 32 << 10) or b""
                    await peer.send_transfer(at, bytes(block))
                    at += len(block)
                    if not block:
                        await trio.sleep(5)

        async def close_with(peer: RawPeer, scope: trio.CancelScope) -> None:
            await peer.wait_ended()
            scope.cancel()

        async def accept() -> None:
            while True:
                nursery.start_soon(serve, RawPeer(await listener.accept()))

        nursery.start_soon(accept)
        async with slave(network, disk=await disk_with(600)) as ours:
            yield asked, ours
        nursery.cancel_scope.cancel()


async def test_apache_master_that_begins_in_the_last_file_of_a_slave_is_followed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync, "WINDOWS", (20_000, 40_000))
    last_file = 600 * RECORD // FILE_SIZE * FILE_SIZE
    async with apache_like(await disk_with(700, begin=last_file)) as (asked, ours):
        with trio.fail_after(60):
            await ours.wait_end(700 * RECORD)
        assert asked[-1] == last_file
        assert len(asked) == 4
        assert 0 not in asked


async def test_apache_master_that_begins_later_is_refused_with_a_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with apache_like(MemoryDisk()) as (_, ours):
        before = log_bytes(ours.store)
        await trio.sleep(120)
        assert log_bytes(ours.store) == before
        assert "has nothing that lies in this slave's log" in caplog.text
        assert ours.client.state is HAClientState.MISSING_HISTORY
