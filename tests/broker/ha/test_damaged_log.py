"""Damage on either end of replication: it stops there, is seen there, and is not copied."""

import logging

import pytest
import trio
from tests.support.replication import (
    HEADER,
    MASTER,
    MASTER_HA,
    OTHER_SLAVE,
    SLAVE,
    RawPeer,
    fill,
    log_bytes,
    master,
    slave,
    starts_of,
)
from tests.support.stores import opened, read_all
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.history import FIRST_ADDRESS
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.testing.memory_network import MemoryNetwork

RECORDS = 40


async def log_and_starts() -> tuple[bytearray, list[int]]:
    async with opened(MemoryDisk()) as store:
        fill(store, RECORDS)
        return bytearray(log_bytes(store)), starts_of(store)


async def test_slave_with_damage_stops_replicating_and_logs_why(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log, starts = await log_and_starts()
    log[starts[30] + 4] ^= 0xFF
    network = MemoryNetwork()
    listener = await network.host(MASTER).listen(MASTER_HA)
    async with slave(network) as ours:
        peer = RawPeer(await listener.accept())
        assert await peer.read_report() == 0
        await peer.send_transfer(0, bytes(log[:-50]))
        await peer.read_report()
        await wait_all_tasks_blocked()
        await peer.send_transfer(len(log) - 50, bytes(log[-50:]))
        await peer.wait_ended()
        assert ours.store.max_physical_offset == len(log) - 50
        # It goes on trying, without a connection: a report would claim what cannot be read.
        with trio.move_on_after(60):
            await listener.accept()
            pytest.fail("a slave that takes nothing connected")
        statistics = ours.client.statistics()
        assert f"damaged at {starts[30]}" in (statistics.last_problem or "")
        assert statistics.state is HAClientState.PAUSING
        assert len(read_all(ours.store, "orders")) == 30
    problems = [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ]
    assert len(problems) == 2
    assert all(f"damaged at {starts[30]}" in problem for problem in problems)
    assert "start the broker again" in problems[0]


async def test_damage_ends_a_quiet_connection_too(autojump_clock: MockClock) -> None:
    log, starts = await log_and_starts()
    log[starts[30] + 4] ^= 0xFF
    network = MemoryNetwork()
    listener = await network.host(MASTER).listen(MASTER_HA)
    async with slave(network) as ours:
        peer = RawPeer(await listener.accept())
        await peer.send_transfer(0, bytes(log))
        await wait_all_tasks_blocked()
        assert await peer.wait_ended() <= 5.0
        assert "damaged at" in (ours.client.statistics().last_problem or "")


@pytest.mark.parametrize(
    "nonsense",
    [b"\0" * 200, b"HTTP/1.1 400 Bad Request\r\n" * 8, b"\0\0\0\x08\xda\xa3\x20\xa7" * 9],
    ids=["zeros", "another protocol", "a record of 8 bytes"],
)
@pytest.mark.parametrize("begins_at", [0, 20], ids="after {} records".format)
async def test_bytes_that_are_not_a_record_are_not_appended(
    begins_at: int, nonsense: bytes, autojump_clock: MockClock
) -> None:
    log, starts = await log_and_starts()
    good = bytes(log[: starts[begins_at]])
    network = MemoryNetwork()
    listener = await network.host(MASTER).listen(MASTER_HA)
    async with slave(network) as ours:
        peer = RawPeer(await listener.accept())
        if good:
            await peer.send_transfer(0, good)
            await wait_all_tasks_blocked()
        await peer.send_transfer(len(good), nonsense)
        await peer.wait_ended()
        assert ours.store.max_physical_offset == len(good)
        assert ours.store.health.is_good
        assert "sends no record" in (ours.client.statistics().last_problem or "")
        # The right master is followed from there.
        peer = RawPeer(await listener.accept())
        asked = FIRST_ADDRESS if good else 0
        assert await peer.read_report() == asked
        await peer.transport.send_all(HEADER.pack(asked, len(log) - asked))
        await peer.transport.send_all(bytes(log[asked:]))
        await ours.wait_end(len(log))
        await wait_all_tasks_blocked()
        assert len(read_all(ours.store, "orders")) == RECORDS


async def test_slave_beyond_the_damage_continues(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What lies behind it cannot be compared, which is said."""
    disk = MemoryDisk()
    async with master(messages=RECORDS) as ours:
        async with slave(ours.network, disk=disk) as follower:
            await follower.wait_end(ours.store.max_physical_offset)
        at = starts_of(ours.store)[30]
        ours.store.commit_log.files.files[0].mapping[at + 4] ^= 0xFF
        await trio.sleep(1)
        ours.store.commit_log.append(await more_of_a_log())
        async with slave(ours.network, disk=disk) as follower:
            with trio.fail_after(60):
                await follower.wait_end(ours.store.max_physical_offset)
            assert follower.client.state is HAClientState.FOLLOWING
        assert f"hole={at}" in caplog.text


async def more_of_a_log() -> bytes:
    """Five records that follow the forty, as the disk of a damaged master may still have them."""
    async with opened(MemoryDisk()) as store:
        end = fill(store, RECORDS)
        fill(store, 5)
        return log_bytes(store, end)


async def test_master_sends_what_lies_before_its_damage_and_no_byte_of_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with master(messages=RECORDS) as ours:
        whole = log_bytes(ours.store)
        at = starts_of(ours.store)[30]
        ours.store.commit_log.files.files[0].mapping[at + 4] ^= 0xFF
        await trio.sleep(1)
        assert ours.store.health.damage is not None
        empty = await ours.raw_slave(SLAVE)
        await empty.report(0)
        sent = b"".join([transfer.body for transfer in await empty.read_log(at)])
        assert sent == whole[:at]
        await empty.report(at)
        await empty.wait_ended()
        assert f"from {at} on, where it is damaged" in (
            ours.service.statistics().last_refusal or ""
        )
        # A slave that is further gets the rest: it saves what this master may lose.
        further = await ours.raw_slave(OTHER_SLAVE)
        behind = starts_of(ours.store)[35]
        await further.report(behind)
        sent = b"".join([transfer.body for transfer in await further.read_log(len(whole))])
        assert sent == whole[behind:]
