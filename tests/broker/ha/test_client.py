"""The slave's end, against a master whose every byte the test decides."""

import itertools
import logging

import pytest
import trio
from tests.support.failing_disk import FailingDisk
from tests.support.replication import (
    FILE_SIZE,
    HEADER,
    MASTER,
    MASTER_HA,
    RawPeer,
    Slave,
    fill,
    followed,
    log_bytes,
    master,
    slave,
    some_log,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.history import FIRST_ADDRESS
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.ha.stream import TRANSFER_SIZE_LIMIT


async def settled(ours: Slave) -> int:
    await wait_all_tasks_blocked()
    return ours.store.max_physical_offset


async def test_reports_at_once_and_every_five_seconds(autojump_clock: MockClock) -> None:
    async with followed() as (theirs, _):
        peer = await theirs.accept()
        times = []
        for _ in range(4):
            assert await peer.read_report() == 0
            times.append(trio.current_time())
        assert times == [0.0, 5.0, 10.0, 15.0]


async def test_silent_master_is_left_after_housekeeping(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        assert await peer.wait_ended() == 20.0
        assert "sent nothing for 20 s" in caplog.text
        assert ours.client.state is HAClientState.PAUSING
        assert "sent nothing" in (ours.client.statistics().last_problem or "")


async def test_silence_ends_between_two_reports_too(autojump_clock: MockClock) -> None:
    async with followed(config=HAConfig(housekeeping_interval=7)) as (theirs, _):
        peer = await theirs.accept()
        assert await peer.wait_ended() == 7.0


async def test_heartbeats_keep_a_master_for_ten_minutes(autojump_clock: MockClock) -> None:
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        with trio.move_on_after(600):
            while True:
                await peer.send_transfer(0)
                await trio.sleep(19)
        assert ours.client.state is HAClientState.FOLLOWING
        assert ours.client.statistics().connection_count == 1


async def test_transfer_is_appended_and_reported(autojump_clock: MockClock) -> None:
    log = await some_log(20)
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        assert await peer.read_report() == 0
        await peer.send_transfer(0, log[:1000])
        assert await peer.read_report() == 1000
        await peer.send_transfer(1000, log[1000:])
        assert await peer.read_report() == len(log)
        assert trio.current_time() == 0.0
        assert log_bytes(ours.store) == log


async def test_idle_report_comes_five_seconds_after_the_last(autojump_clock: MockClock) -> None:
    log = await some_log(5)
    async with followed() as (theirs, _):
        peer = await theirs.accept()
        await peer.read_report()
        await trio.sleep(3)
        await peer.send_transfer(0, log)
        assert await peer.read_report() == len(log)
        assert await peer.read_report() == len(log)
        assert trio.current_time() == 8.0


async def test_many_transfers_in_one_read_are_reported_once(autojump_clock: MockClock) -> None:
    log = await some_log(20)
    async with followed() as (theirs, _):
        peer = await theirs.accept()
        await peer.read_report()
        pieces = [(start, log[start : start + 100]) for start in range(0, len(log), 100)]
        await peer.transport.send_all(
            b"".join(HEADER.pack(start, len(piece)) + piece for start, piece in pieces)
        )
        assert await peer.read_report() == len(log)
        with trio.move_on_after(4.9) as waiting:
            await peer.read_report()
        assert waiting.cancelled_caught


async def test_any_split_gives_the_same_log(autojump_clock: MockClock) -> None:
    log = await some_log(20)
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        stream = b"".join(
            HEADER.pack(start, len(log[start : start + 700])) + log[start : start + 700]
            for start in range(0, len(log), 700)
        )
        for position in range(0, len(stream), 97):
            await peer.transport.send_all(stream[position : position + 97])
            await wait_all_tasks_blocked()
        assert log_bytes(ours.store) == log


async def test_part_of_a_transfer_is_kept_when_the_connection_breaks(
    autojump_clock: MockClock,
) -> None:
    log = await some_log(20)
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        await peer.transport.send_all(HEADER.pack(0, len(log)) + log[:1234])
        assert await settled(ours) == 1234
        theirs.network.cut(MASTER)
        again = await theirs.accept()
        # What it has is compared first, and nothing reported before.
        assert await again.read_report() == FIRST_ADDRESS
        await again.send_transfer(FIRST_ADDRESS, log[FIRST_ADDRESS:])
        assert await again.read_report() == len(log)
        assert log_bytes(ours.store) == log


async def test_empty_log_begins_wherever_the_master_does(autojump_clock: MockClock) -> None:
    """Apache's masters begin at the last file for an empty slave."""
    log = await some_log(400)
    start = 2 * FILE_SIZE
    assert len(log) > start
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        await peer.send_transfer(start, log[start : start + 5000])
        await ours.wait_end(start + 5000)
        assert ours.store.min_physical_offset == start
        assert log_bytes(ours.store) == log[start : start + 5000]


@pytest.mark.parametrize("body", [b"", b"x" * 10], ids=["heartbeat", "transfer"])
@pytest.mark.parametrize("distance", [-1, 1])
async def test_master_that_sends_from_elsewhere_is_left(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, distance: int, body: bytes
) -> None:
    log = await some_log(5)
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        await peer.send_transfer(0, log)
        await peer.send_transfer(len(log) + distance, body)
        assert await peer.wait_ended() == 0.0
        assert log_bytes(ours.store) == log
        assert (
            f"sends from {len(log) + distance}, this slave's log ends at {len(log)}" in caplog.text
        )


@pytest.mark.parametrize("size", [-1, TRANSFER_SIZE_LIMIT + 1, 2**31 - 1])
async def test_hostile_size_ends_the_connection(autojump_clock: MockClock, size: int) -> None:
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        await peer.transport.send_all(HEADER.pack(0, size))
        assert await peer.wait_ended() == 0.0
        assert ours.store.max_physical_offset == 0
        assert str(size) in (ours.client.statistics().last_problem or "")


async def test_master_with_other_file_size_is_left(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        await peer.send_transfer(0, bytes(FILE_SIZE + 1))
        assert await peer.wait_ended() == 0.0
        assert ours.store.max_physical_offset == 0
        assert "Set mapped_file_size_commit_log" in caplog.text


async def test_pauses_between_attempts_grow_until_a_success(
    autojump_clock: MockClock,
) -> None:
    async with followed() as (theirs, _):
        times = []
        for attempt in range(8):
            peer = await theirs.accept()
            times.append(trio.current_time())
            if attempt == 6:
                await peer.send_transfer(0)
                await wait_all_tasks_blocked()
            await peer.transport.aclose()
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert gaps == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 0.5]


async def test_slave_without_a_masters_address_waits_for_it(autojump_clock: MockClock) -> None:
    async with followed(master_addr=None) as (theirs, ours):
        await trio.sleep(100)
        assert ours.client.state is HAClientState.WAITING_FOR_ADDRESS
        ours.address.update(MASTER_HA)
        peer = await theirs.accept()
        assert await peer.read_report() == 0
        assert trio.current_time() == 100.0


async def test_follows_a_changed_address_at_once(autojump_clock: MockClock) -> None:
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        elsewhere = await theirs.network.host("10.0.0.7").listen("10.0.0.7:10912")
        ours.address.update("10.0.0.7:10912")
        new_peer = RawPeer(await elsewhere.accept())
        assert await new_peer.read_report() == 0
        assert await peer.read_report() == 0
        assert await peer.read_report() is None
        assert trio.current_time() == 0.0


async def test_unknown_address_changes_nothing(autojump_clock: MockClock) -> None:
    """A name server that has just started knows no master."""
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        ours.address.update(None)
        await peer.read_report()
        assert await peer.read_report() == 0
        assert trio.current_time() == 5.0


async def test_same_problem_again_is_logged_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        theirs.network.refuse(MASTER_HA)
        await peer.transport.aclose()
        await trio.sleep(60)
        assert caplog.text.count("replication interrupted") == 2
        assert "refused" in (ours.client.statistics().last_problem or "")
        theirs.network.heal()
        peer = await theirs.accept()
        await peer.send_transfer(0)
        await wait_all_tasks_blocked()
        assert caplog.text.count("replication continues") == 1
        assert ours.client.statistics().last_problem is None


async def test_full_disk_is_reported_and_tried_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = await some_log(5)

    disk = FailingDisk("create", "*commitlog*")
    async with followed(disk=disk) as (theirs, ours):
        peer = await theirs.accept()
        await peer.send_transfer(0, log)
        await peer.wait_ended()
        assert "cannot take what the master sends: [Errno 28] No space left" in caplog.text
        assert "Make room" in caplog.text
        assert ours.store.max_physical_offset == 0
        disk.fails_at = ""
        peer = await theirs.accept()
        assert await peer.read_report() == 0
        await peer.send_transfer(0, log)
        await ours.wait_end(len(log))


async def test_full_disk_is_one_warning_and_ever_longer_pauses(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What is here already is compared well each time; that is no progress."""
    caplog.set_level(logging.INFO)

    disk = FailingDisk(where="*commitlog*")
    network = MemoryNetwork()
    async with master(network=network) as leader, slave(network, disk=disk) as ours:
        await ours.wait_end(fill(leader.store, 10))
        disk.fails_at = "create"
        fill(leader.store, 300)
        await trio.sleep(1)
        assert 0 < ours.store.max_physical_offset < leader.store.max_physical_offset
        await trio.sleep(59)
        assert caplog.text.count("replication interrupted") == 1
        assert "replication continues" not in caplog.text
        assert "Make room" in (ours.client.statistics().last_problem or "")
        assert leader.service.accepted.value < 20
        disk.fails_at = ""
        await ours.wait_end(leader.store.max_physical_offset)
        assert caplog.text.count("replication continues") == 1


async def test_statistics_report_the_position_of_the_master(autojump_clock: MockClock) -> None:
    log = await some_log(5)
    async with followed() as (theirs, ours):
        peer = await theirs.accept()
        await peer.transport.send_all(HEADER.pack(0, len(log)) + log[:100])
        await wait_all_tasks_blocked()
        numbers = ours.client.statistics()
        assert numbers.state is HAClientState.FOLLOWING
        assert numbers.master_ha_addr == MASTER_HA
        assert numbers.max_physical_offset == numbers.bytes_received == 100
        assert numbers.master_offset == len(log)
