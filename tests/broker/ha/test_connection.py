"""The master's end: where it begins, what it sends when, whom it drops."""

import logging
from contextlib import suppress

import pytest
import trio
from tests.support.replication import (
    FILE_SIZE,
    OTHER_SLAVE,
    REPORT,
    SLAVE,
    Transfer,
    fill,
    log_bytes,
    master,
)
from trio.testing import MockClock

from rocketrio_broker.ha.config import HAConfig
from rocketrio_protocol.errors import NotReachableError


async def test_nothing_is_sent_before_the_first_report(autojump_clock: MockClock) -> None:
    async with master(messages=5) as ours:
        peer = await ours.raw_slave()
        with trio.move_on_after(19.9) as waiting:
            await peer.read(1)
        assert waiting.cancelled_caught


async def test_empty_slave_gets_everything_from_the_first_byte(autojump_clock: MockClock) -> None:
    async with master(messages=500) as ours:
        end = ours.store.max_physical_offset
        assert end > 4 * FILE_SIZE
        peer = await ours.raw_slave()
        await peer.report(0)
        transfers = await peer.read_log(end)
        assert b"".join(transfer.body for transfer in transfers) == log_bytes(ours.store)


async def test_no_transfer_crosses_a_file_or_leaves_a_gap(autojump_clock: MockClock) -> None:
    async with master(messages=500, config=HAConfig(transfer_batch_size=5000)) as ours:
        peer = await ours.raw_slave()
        await peer.report(0)
        transfers = await peer.read_log(ours.store.max_physical_offset)
        position = 0
        for transfer in transfers:
            last = transfer.offset + len(transfer.body) - 1
            assert transfer.offset == position
            assert transfer.offset // FILE_SIZE == last // FILE_SIZE
            assert len(transfer.body) <= 5000
            position = last + 1


async def test_empty_slave_can_begin_at_the_last_file(autojump_clock: MockClock) -> None:
    async with master(messages=500, config=HAConfig(full_history_start=False)) as ours:
        end = ours.store.max_physical_offset
        peer = await ours.raw_slave()
        await peer.report(0)
        (only,) = await peer.read_log(end)
        assert only.offset == end - end % FILE_SIZE


async def test_slave_gets_what_follows_its_report(autojump_clock: MockClock) -> None:
    async with master(messages=20) as ours:
        end = ours.store.max_physical_offset
        peer = await ours.raw_slave()
        await peer.report(777)
        assert await peer.read_transfer() == Transfer(0.0, 777, log_bytes(ours.store, 777))
        assert ours.service.connections[0].slave_request_offset == 777
        await peer.report(end)
        await trio.testing.wait_all_tasks_blocked()
        assert ours.service.connections[0].slave_ack_offset == end


async def test_append_reaches_the_slave_at_once(autojump_clock: MockClock) -> None:
    async with master() as ours:
        peer = await ours.raw_slave()
        await peer.report(0)
        await trio.sleep(3)
        end = fill(ours.store, 1)
        assert await peer.read_transfer() == Transfer(3.0, 0, log_bytes(ours.store))
        # It is counted once it is sent, not once it was received.
        await trio.testing.wait_all_tasks_blocked()
        assert end == ours.service.connections[0].statistics().bytes_sent


async def test_appends_close_together_travel_together(autojump_clock: MockClock) -> None:
    async with master(config=HAConfig(transfer_pause=0.01)) as ours:
        peer = await ours.raw_slave()
        await peer.report(0)
        sizes: list[int] = []
        for _ in range(10):
            fill(ours.store, 1)
            await trio.sleep(0.001)
        while sum(sizes) < ours.store.max_physical_offset:
            transfer = await peer.read_transfer()
            assert transfer is not None
            sizes.append(len(transfer.body))
        assert len(sizes) == 2
        assert sizes[1] == 9 * sizes[0]


async def test_appends_that_readers_wait_for_travel_at_once(autojump_clock: MockClock) -> None:
    async with master(config=HAConfig(transfer_pause=1)) as ours:
        ours.store.read_gate.begin(0)
        peer = await ours.raw_slave()
        await peer.report(0)
        await trio.sleep(3)
        for _ in range(2):
            fill(ours.store, 1)
            transfer = await peer.read_transfer()
            assert transfer is not None
            assert transfer.time == 3.0


async def test_idle_master_sends_a_heartbeat_every_five_seconds(autojump_clock: MockClock) -> None:
    async with master(messages=3) as ours:
        end = ours.store.max_physical_offset
        peer = await ours.raw_slave()
        await peer.report(end)
        beats = []
        for _ in range(3):
            beats.append(await peer.read_transfer())
            await peer.report(end)
        assert beats == [Transfer(time, end, b"") for time in (5.0, 10.0, 15.0)]


async def test_transfer_puts_the_heartbeat_off(autojump_clock: MockClock) -> None:
    async with master() as ours:
        peer = await ours.raw_slave()
        await peer.report(0)
        await trio.sleep(4)
        end = fill(ours.store, 1)
        assert (await peer.read_log(end))[0].time == 4.0
        assert await peer.read_transfer() == Transfer(9.0, end, b"")


async def test_silent_slave_is_dropped_after_housekeeping(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Heartbeats go out all the while: each direction has its own clock."""
    async with master() as ours:
        peer = await ours.raw_slave()
        await trio.sleep(1)
        await peer.report(0)
        assert await peer.wait_ended() == 21.0
        assert ours.service.connections == []
        assert "reported nothing for 20 s" in caplog.text


async def test_slave_that_never_reports_is_dropped(autojump_clock: MockClock) -> None:
    async with master() as ours:
        peer = await ours.raw_slave()
        assert await peer.wait_ended() == 20.0


async def test_slave_that_sends_parts_of_a_report_counts_as_silent(
    autojump_clock: MockClock,
) -> None:
    async with master() as ours:
        peer = await ours.raw_slave()
        for byte in REPORT.pack(0)[:5]:
            await peer.transport.send_all(bytes([byte]))
            await trio.sleep(3)
        assert await peer.wait_ended() == 20.0


async def test_slave_that_reports_is_kept_for_ten_minutes(autojump_clock: MockClock) -> None:
    async with master() as ours:
        peer = await ours.raw_slave()
        with trio.move_on_after(600):
            while True:
                await peer.report(0)
                await trio.sleep(15)
        assert len(ours.service.connections) == 1


async def test_slave_that_takes_nothing_is_dropped_though_it_reports(
    autojump_clock: MockClock,
) -> None:
    async with master(messages=4000) as ours:
        assert ours.store.max_physical_offset > 512 * 1024
        peer = await ours.raw_slave()
        dropped_at = None
        for _ in range(10):
            with suppress(NotReachableError):
                await peer.report(0)
            await trio.sleep(4)
            if not ours.service.connections and dropped_at is None:
                dropped_at = trio.current_time()
        assert dropped_at == 24.0


async def test_slave_on_a_slow_link_is_fed_for_as_long_as_it_takes(
    autojump_clock: MockClock,
) -> None:
    """One transfer may take longer than a slave may be silent."""
    async with master(messages=4000, file_size=1 << 20) as ours:
        end = ours.store.max_physical_offset
        peer = await ours.raw_slave()
        await peer.report(0)
        received = 0
        while received < end:
            received += len(await peer.read(min(8192, end - received)))
            await peer.report(max(0, received - 1000))
            await trio.sleep(0.5)
        assert trio.current_time() > 30
        assert len(ours.service.connections) == 1


async def test_split_report_is_one_report(autojump_clock: MockClock) -> None:
    async with master(messages=20) as ours:
        peer = await ours.raw_slave()
        for byte in REPORT.pack(300):
            await peer.transport.send_all(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()
        transfer = await peer.read_transfer()
        assert transfer is not None
        assert transfer.offset == 300


@pytest.mark.parametrize("first", [True, False], ids=["first report", "later report"])
async def test_slave_that_has_more_than_the_master_is_refused(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, first: bool
) -> None:
    async with master(messages=20) as ours:
        end = ours.store.max_physical_offset
        peer = await ours.raw_slave()
        if not first:
            await peer.report(0)
            await peer.read_log(end)
        await peer.report(end + 1)
        assert await peer.wait_ended() == 0.0
        assert f"has bytes up to {end + 1}, this master's log ends at {end}" in caplog.text
        assert "empty the slave's data directory" in caplog.text
        assert str(end + 1) in (ours.service.statistics().last_refusal or "")


async def test_slave_that_comes_back_with_the_same_problem_is_one_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with master(messages=20) as ours:
        for offset in (99_999, 99_999, -5):
            peer = await ours.raw_slave()
            await peer.report(offset)
            await peer.wait_ended()
            fill(ours.store, 1)
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 2


@pytest.mark.slow
async def test_slave_that_claims_what_it_was_not_sent_is_dropped(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its acknowledgement would be a false one."""
    async with master(messages=4000) as ours:
        peer = await ours.raw_slave()
        await peer.report(0)
        await trio.testing.wait_all_tasks_blocked()
        connection = ours.service.connections[0]
        await peer.report(ours.store.max_physical_offset)
        await peer.wait_ended()
        assert connection.slave_ack_offset == 0
        assert "was sent none beyond" in caplog.text


async def test_slave_that_takes_back_what_it_acknowledged_is_dropped(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its log was cut: what it had counts no longer, and it goes on elsewhere than the master would."""
    async with master(messages=20) as ours:
        end = ours.store.max_physical_offset
        peer = await ours.raw_slave()
        await peer.report(0)
        await peer.read_log(end)
        for _ in range(2):
            await peer.report(end)
            await trio.testing.wait_all_tasks_blocked()
            assert ours.service.connections[0].slave_ack_offset == end
        await peer.report(300)
        await peer.wait_ended()
        assert not ours.service.connections
        assert ours.service.group_transfer.replicated.value == 0
        assert f"The slave reported 300 after {end}: its log was cut" in caplog.text


async def test_slave_that_needs_deleted_bytes_is_refused_with_that_reason(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with master(messages=500) as ours:
        ours.store.commit_log.files.remove_first()
        assert ours.store.min_physical_offset == FILE_SIZE
        peer = await ours.raw_slave()
        await peer.report(500)
        assert await peer.wait_ended() == 0.0
        assert f"needs the log from 500 on, this master's begins at {FILE_SIZE}" in caplog.text
        assert "raise file_reserved_time" in caplog.text


async def test_empty_slave_begins_where_the_log_begins_now(autojump_clock: MockClock) -> None:
    async with master(messages=500) as ours:
        ours.store.commit_log.files.remove_first()
        peer = await ours.raw_slave()
        await peer.report(0)
        transfer = await peer.read_transfer()
        assert transfer is not None
        assert transfer.offset == FILE_SIZE


async def test_negative_report_ends_only_its_connection(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with master(messages=20) as ours:
        good = await ours.raw_slave(SLAVE)
        bad = await ours.raw_slave(OTHER_SLAVE)
        await bad.report(-5)
        await bad.wait_ended()
        await good.report(0)
        await good.read_log(ours.store.max_physical_offset)
        assert "reported the offset -5" in caplog.text


async def test_slow_slave_does_not_slow_another(autojump_clock: MockClock) -> None:
    async with master(messages=4000) as ours:
        slow = await ours.raw_slave(OTHER_SLAVE)
        await slow.report(0)
        await trio.testing.wait_all_tasks_blocked()
        fast = await ours.raw_slave(SLAVE)
        await fast.report(0)
        await fast.read_log(ours.store.max_physical_offset)
        assert trio.current_time() < 0.1
        assert len(ours.service.connections) == 2


async def test_leaving_slave_is_logged_with_what_it_had(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with master(messages=3) as ours:
        peer = await ours.raw_slave()
        await peer.report(0)
        await (
            trio.testing.wait_all_tasks_blocked()
        )  # It has sent what it has: only the end is left to see.
        await peer.transport.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert ours.service.connections == []
        assert "ack_offset=0 reason=The slave closed the connection" in caplog.text
