"""Which slaves confirm, how far readers see by them, and how long they wait."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import trio
import trio.testing
from trio.testing import MockClock

from rocketrio_broker.ha.gate_keeper import LEVEL_WITHIN, GateKeeper
from rocketrio_broker.ha.group_transfer import GroupTransferService
from rocketrio_broker.store.read_gate import EVERYTHING, ReadGate
from rocketrio_broker.waiting.watermark import Watermark

A, B, C = "10.0.0.11:1", "10.0.0.12:1", "10.0.0.13:1"


@attrs.define
class Master:
    """A log without bytes, and its readers' gate."""

    gate: ReadGate
    appended: Watermark
    flushed: Watermark
    keeper: GateKeeper
    transfer: GroupTransferService
    serves: bool = True

    def report(self, slave: str, address: int) -> int:
        self.transfer.slave_reported(slave, address, is_first=False)
        return self.gate.end.value


@asynccontextmanager
async def leading(
    end: int = 1000, *, in_sync_slaves: int = 1, gate: int = EVERYTHING
) -> AsyncGenerator[Master]:
    read_gate, appended, flushed = ReadGate(), Watermark(end), Watermark(end)
    read_gate.set_reported(gate)
    keeper = GateKeeper(
        read_gate,
        appended,
        flushed,
        timeout=3.0,
        in_sync_slaves=in_sync_slaves,
        serves_unconfirmed=lambda: made.serves,
    )
    transfer = GroupTransferService(
        is_required=True,
        in_sync_slaves=in_sync_slaves,
        max_physical_offset=end,
        gate_keeper=keeper,
    )
    made = Master(read_gate, appended, flushed, keeper, transfer)
    keeper.begin()
    async with trio.open_nursery() as nursery:
        await nursery.start(keeper.run)
        yield made
        nursery.cancel_scope.cancel()


async def test_a_role_begins_with_what_was_shown(autojump_clock: MockClock) -> None:
    async with leading(1000) as master:  # Nothing was hidden before.
        assert master.gate.end.value == 1000
    async with leading(1000, gate=800) as master:
        assert master.gate.end.value == 800
    async with leading(1000, gate=1200) as master:  # Its own log is shorter.
        assert master.gate.end.value == 1000


async def test_the_gate_follows_level_slaves_and_never_goes_back(autojump_clock: MockClock) -> None:
    async with leading() as master:
        assert master.report(A, 1000) == 1000
        master.appended.advance(2000)
        assert master.report(A, 1500) == 1500
        master.transfer.slave_left(A)
        assert master.report(B, 1200) == 1500  # Not level, and behind what is shown.
        assert master.report(B, 2000) == 2000


async def test_as_many_slaves_confirm_as_must_have_a_message(autojump_clock: MockClock) -> None:
    async with leading(in_sync_slaves=2) as master:
        master.report(A, 1000)
        master.report(B, 1000)
        master.report(C, 0)
        master.appended.advance(3000)
        assert master.report(A, 3000) == 1000
        assert master.report(C, 900) == 1000
        assert master.report(B, 2000) == 2000
        assert master.keeper.level == {A, B}


async def test_a_slave_that_is_still_copying_confirms_nothing(autojump_clock: MockClock) -> None:
    async with leading(10_000, gate=0) as master:
        assert master.report(A, 0) == 0
        for address in range(1000, 6000, 1000):
            await trio.sleep(LEVEL_WITHIN / 4)
            assert master.report(A, address) == 0
        master.appended.advance(11_000)
        # What was the end when it came it has now, but that took too long; the next end is another.
        assert master.report(A, 10_000) == 0
        await trio.sleep(LEVEL_WITHIN / 2)
        master.appended.advance(12_000)
        assert master.report(A, 11_000) == 11_000


async def test_readers_see_what_the_disk_has_until_slaves_have_it_again(
    autojump_clock: MockClock,
) -> None:
    async with leading() as master:
        master.report(A, 1000)
        await trio.sleep(100)  # No task waits for anything.
        master.appended.advance(2000)
        master.flushed.advance(1800)
        await trio.sleep(2.9)
        assert master.gate.end.value == 1000
        await trio.sleep(0.2)
        assert master.gate.end.value == 1800
        assert master.keeper.statistics().by == "disk"
        master.flushed.advance(2000)
        await trio.testing.wait_all_tasks_blocked()
        assert master.gate.end.value == 2000
        # It was level before, which does not count any more.
        assert master.report(A, 1500) == 2000
        assert master.keeper.is_disk_confirming
        assert master.report(A, 2000) == 2000
        assert not master.keeper.is_disk_confirming
        master.appended.advance(3000)
        master.flushed.advance(3000)
        await trio.sleep(1)
        assert master.gate.end.value == 2000
        assert master.report(A, 3000) == 3000


async def test_slave_that_progresses_restarts_the_wait(autojump_clock: MockClock) -> None:
    async with leading() as master:
        master.report(A, 1000)
        for end in range(2000, 12_000, 1000):
            master.appended.advance(end)
            master.flushed.advance(end)
            await trio.sleep(2)
            assert master.report(A, end - 500) == end - 500
            assert not master.keeper.is_disk_confirming
        await trio.sleep(3.1)
        assert master.keeper.is_disk_confirming


async def test_readers_that_wait_for_slaves_never_see_what_only_the_disk_has(
    autojump_clock: MockClock,
) -> None:
    async with leading() as master:
        master.serves = False
        master.appended.advance(2000)
        master.flushed.advance(2000)
        await trio.sleep(100)
        assert master.gate.end.value == 1000
        assert master.keeper.statistics().by == "nobody"
        master.serves = True
        await trio.sleep(4)
        assert master.gate.end.value == 2000


async def test_a_slaves_gate_is_its_masters_business(autojump_clock: MockClock) -> None:
    async with leading() as master:
        master.keeper.follow()
        master.appended.advance(2000)
        master.flushed.advance(2000)
        await trio.sleep(10)
        assert master.gate.end.value == 1000
        assert master.report(A, 2000) == 1000
        master.gate.set_reported(1500)
        assert (master.keeper.statistics().end, master.keeper.statistics().by) == (1500, "master")
        master.keeper.leave_open()
        assert not master.gate.is_gating
