"""A power cut at any step while a former master cuts off messages that it had not acknowledged."""

import pytest
from tests.support.clocks import SettableClock
from tests.support.faulty_disk import FaultyDisk, PowerCutError
from tests.support.further import every_other
from tests.support.replication import fill, log_bytes
from tests.support.stores import ROOT, opened
from trio.testing import MockClock

from rocketrio_broker.ha.errors import BeyondBoundaryError
from rocketrio_broker.ha.resync import HistoryRules, Resync
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.ha.exchange import Epoch, Welcome

CUT = ROOT / "cut"


def epoch(store: MessageStore, number: int) -> Epoch:
    return Epoch(
        number=number, id=f"id{number}", start=store.max_physical_offset, member="me", mode="sync"
    )


async def begin(store: MessageStore) -> None:
    await store.epochs.begin(new_name=lambda: "me", reports_disk=False)


async def former_master() -> tuple[FaultyDisk, Welcome, bytes]:
    """A disk with two epochs of its own, what its successor says, and what has to be cut off."""
    disk = FaultyDisk()
    async with opened(disk) as store:
        await begin(store)
        await store.epochs.open(epoch(store, 1))
        boundary = fill(store, 20, size=1000)
        first = store.epochs.lines[0]
        fill(store, 4, size=1000)
        await store.epochs.open(epoch(store, 2))
        fill(store, 6, size=1000)
        tail = log_bytes(store, boundary)
    successor = Epoch(number=3, id="other", start=boundary, member="other", covers={"other": 0})
    welcome = Welcome(
        member="other", begin=0, end=boundary + 1000, highest=3, epochs=[first, successor]
    )
    return disk, welcome, tail


async def mend(store: MessageStore, welcome: Welcome) -> None:
    """What a slave does with what its master says, until it may follow."""
    resync = Resync(store, rules=HistoryRules, wall_clock=SettableClock())
    if store.max_physical_offset > welcome.epochs[1].start:
        with pytest.raises(BeyondBoundaryError) as raised:
            await resync.take_welcome(welcome, "10.0.0.2:10912")
        assert raised.value.why_kept is None
        assert await resync.resolve(raised.value)
    await resync.take_welcome(welcome, "10.0.0.2:10912")


async def cut(disk: FaultyDisk, welcome: Welcome) -> None:
    async with opened(disk) as store:
        await begin(store)
        store.begin_replication()
        await mend(store, welcome)


def kept_tails(disk: FaultyDisk) -> list[bytes]:
    tails = []
    for name in disk.list_directory(CUT):
        file = disk.open(CUT / name)
        tails.append(file.pread(file.size, 0))
    return tails


@pytest.mark.slow
@pytest.mark.parametrize("kept", every_other([0.0, 0.5, 1.0]))
async def test_power_cut_at_any_step_loses_nothing_and_is_gone_over_again(
    autojump_clock: MockClock, kept: float
) -> None:
    before, welcome, tail = await former_master()
    boundary = welcome.epochs[1].start
    whole = before.after_cut(seed=0, kept=1.0)
    await cut(whole, welcome)
    assert kept_tails(whole) == [tail]
    assert whole.operations > 20
    for fail_at in range(whole.operations):
        disk = before.after_cut(seed=0, kept=1.0)
        disk.fail_at = fail_at
        with pytest.raises((PowerCutError, BaseExceptionGroup)):
            await cut(disk, welcome)
        found = disk.after_cut(seed=fail_at, kept=kept)
        async with opened(found) as store:
            await begin(store)
            end = store.max_physical_offset
            assert end >= boundary
            # What is not in the log any more is in a file, and whole.
            assert end == boundary + len(tail) or tail in kept_tails(found)
            assert log_bytes(store)[boundary:] == tail[: end - boundary]
            store.begin_replication()
            await mend(store, welcome)
            assert store.max_physical_offset == boundary
            assert [line.number for line in store.epochs.lines] == [1, 3]
