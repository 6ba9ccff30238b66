"""How far a long copy is: its numbers, when a line of it is due, and what a slave says while it copies."""

import logging

import pytest
import trio
from tests.support.replication import Slave, fill, slave
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.copy_progress import CHECK_INTERVAL, LOG_INTERVAL, CopyMeter, CopyWatch
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.bodies.route import KVTable
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.headers import RequestHeader

MB = 1_000_000
END = 19_733
"""Where a hundred messages end, padding of the first file included."""


def test_numbers_of_a_copy() -> None:
    meter = CopyMeter(0.0, 100 * MB, 600 * MB)
    progress = meter.measure(10.0, 200 * MB, 0)
    assert (progress.copied, progress.total) == (100 * MB, 500 * MB)
    assert progress.share == pytest.approx(0.2)
    assert progress.rate == pytest.approx(10 * MB)
    assert progress.seconds_left == pytest.approx(40)
    assert str(progress) == "copied=100000000 of=500000000 percent=20 rate=10.0MB/s left=40s"


def test_rate_is_that_of_the_last_seconds() -> None:
    meter = CopyMeter(0.0, 0, 1000 * MB)
    for second in range(1, 30):
        progress = meter.measure(float(second), min(second, 15) * MB, 0)
    assert progress.rate == 0
    assert progress.seconds_left is None
    assert "left=unknown" in str(progress)


def test_copy_of_an_empty_log_counts_from_where_the_master_begins() -> None:
    meter = CopyMeter(0.0, 0, 1000 * MB)
    assert meter.measure(1.0, 0, 0).copied == 0
    assert meter.measure(2.0, 910 * MB, 900 * MB).copied == 10 * MB
    assert meter.measure(3.0, 920 * MB, 900 * MB).total == 100 * MB


def test_line_comes_every_ten_seconds_or_five_percent() -> None:
    meter = CopyMeter(0.0, 0, 1000 * MB)
    told = []
    for second in range(1, 61):
        position = second * MB if second <= 40 else (40 + (second - 40) * 20) * MB
        progress = meter.measure(float(second), position, 0)
        if meter.is_line_due(float(second), progress):
            told.append(second)
    # A percent in ten seconds at first, then two percent a second.
    assert told == [10, 20, 30, 40, 43, 46, 49, 52, 55, 58]


class Answers:
    """A master that says how long its log is, or does not answer."""

    def __init__(self) -> None:
        self.end: int | None = None
        self.asked = 0

    async def __call__(
        self, addr: str, request: RequestHeader, body: bytes = b"", *, timeout: float = 3.0
    ) -> RemotingCommand:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        if self.end is None:
            raise NotReachableError("no answer", broker_addr=addr)
        table = KVTable({"commitLogMaxOffset": str(self.end)})
        return RemotingCommand(code=0, body=table.to_json())


async def copying(ours: Slave, answers: Answers, nursery: trio.Nursery) -> CopyWatch:
    watch = CopyWatch(ours.client, ours.store, call=answers, master=MasterAddress("10.0.0.1:10911"))
    await nursery.start(watch.run)
    return watch


async def test_slave_reports_the_position_of_its_copy(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answers = Answers()
    async with slave(MemoryNetwork(), master_addr=None) as ours, trio.open_nursery() as nursery:
        ours.store.end_replication()
        watch = await copying(ours, answers, nursery)
        answers.end = END
        ours.client.connected.advance(1)
        for _ in range(99):
            await trio.sleep(1)
            fill(ours.store, 1)
        assert watch.progress is not None
        assert watch.progress.total == END
        assert 0.9 < watch.progress.share < 1
        assert watch.progress.seconds_left is not None
        assert watch.progress.seconds_left < 5
        assert answers.asked == 10
        fill(ours.store, 1)
        await trio.sleep(2)
        assert watch.progress is None
        assert f"copied from the master bytes={END}" in caplog.text
        assert 10 <= caplog.text.count("percent=") <= 25
        nursery.cancel_scope.cancel()


async def test_master_that_answers_later_is_asked_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its address may be learnt after its replication port was configured, and it may be busy."""
    caplog.set_level(logging.INFO)
    answers, address = Answers(), MasterAddress()
    async with slave(MemoryNetwork(), master_addr=None) as ours, trio.open_nursery() as nursery:
        watch = CopyWatch(ours.client, ours.store, call=answers, master=address)
        await nursery.start(watch.run)
        ours.client.connected.advance(1)
        await wait_all_tasks_blocked()
        assert answers.asked == 0
        address.update("10.0.0.1:10911")
        await trio.sleep(1)
        assert answers.asked == 1
        answers.end = END
        await trio.sleep(LOG_INTERVAL + CHECK_INTERVAL)
        assert f"copying from the master begin=0 bytes={END}" in caplog.text
        nursery.cancel_scope.cancel()


async def test_short_way_and_silent_master_are_no_copy(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answers = Answers()
    async with slave(MemoryNetwork(), master_addr=None) as ours, trio.open_nursery() as nursery:
        ours.store.end_replication()
        watch = await copying(ours, answers, nursery)
        for end in (None, 1000):
            answers.end = end
            ours.client.connected.advance(ours.client.connected.value + 1)
            await wait_all_tasks_blocked()
            assert watch.progress is None
        assert answers.asked == 2
        fill(ours.store, 100)  # within a second
        await trio.sleep(5)
        assert watch.progress is None
        assert "copying from the master" not in caplog.text
        nursery.cancel_scope.cancel()


async def test_slave_that_refuses_to_follow_copies_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answers = Answers()
    answers.end = END
    async with slave(MemoryNetwork(), master_addr=None) as ours, trio.open_nursery() as nursery:
        watch = await copying(ours, answers, nursery)
        ours.client.connected.advance(1)
        await wait_all_tasks_blocked()
        # A moment after it has connected: the logs were compared.
        ours.client.state = HAClientState.DIVERGED
        await trio.sleep(60)
        assert watch.progress is None
        assert "copying from the master" not in caplog.text
        nursery.cancel_scope.cancel()
