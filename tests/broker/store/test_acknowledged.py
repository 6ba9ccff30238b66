"""What slaves acknowledged: it outlives a kill at once, a power cut after a second, and is never forgotten too far."""

from pathlib import Path

import pytest
import trio
from tests.support.faulty_disk import FaultyDisk, PowerCutError
from tests.support.stores import ROOT
from trio.testing import MockClock

from rocketrio_broker.store.acknowledged import (
    ACKNOWLEDGED_FILE,
    SYNC_PERIOD,
    Acknowledged,
    Acknowledgement,
)

FILE = ROOT / ACKNOWLEDGED_FILE
BROKER = "10.0.0.11:10911"


def disk_with_root(fail_at: int | None = None) -> FaultyDisk:
    disk = FaultyDisk(fail_at)
    disk.make_directory(ROOT)
    return disk


def loaded(disk: FaultyDisk) -> Acknowledged:
    found = Acknowledged(ROOT, disk=disk)
    found.load()
    return found


async def begun(disk: FaultyDisk, start: int = 0) -> Acknowledged:
    """What a master knows that has begun an epoch."""
    known = loaded(disk)
    await known.begin_at(start)
    return known


def addresses(disk: FaultyDisk) -> dict[str, int]:
    return {name: one.address for name, one in loaded(disk).slaves.items()}


async def test_report_outlives_the_process_at_once() -> None:
    disk = disk_with_root()
    known = await begun(disk)
    known.join("a", BROKER)
    known.join("b", "")
    known.note("a", 100)
    known.note("a", 90)
    assert loaded(disk).slaves == {"a": Acknowledgement(100, BROKER), "b": Acknowledgement(0)}


async def test_what_a_killed_process_noted_survives_a_power_cut_after_the_next_start() -> None:
    """That broker may be a slave now, and never write the file again."""
    disk = disk_with_root()
    known = await begun(disk)
    known.join("a", BROKER)
    known.note("a", 100)
    loaded(disk)
    assert addresses(disk.after_cut(1, kept=0.0)) == {"a": 100}


async def test_nothing_is_noted_of_a_slave_that_has_not_joined_nor_before_an_epoch_begins() -> None:
    disk = disk_with_root()
    known = loaded(disk)
    known.join("a", BROKER)
    known.note("a", 100)
    assert not disk.exists(FILE)
    known = await begun(disk)
    known.note("a", 100)
    assert addresses(disk) == {}


async def test_slave_that_is_new_may_have_had_what_is_older_than_the_epoch() -> None:
    """The file that named it may be lost."""
    disk = disk_with_root()
    known = await begun(disk, 70)
    known.join("a", BROKER)
    assert addresses(disk) == {"a": 70}


@pytest.mark.parametrize("kept", [0.0, 0.5])
async def test_report_outlives_a_power_cut_after_a_period(
    autojump_clock: MockClock, kept: float
) -> None:
    disk = disk_with_root()
    known = await begun(disk)
    known.join("a", BROKER)
    async with trio.open_nursery() as nursery:
        await nursery.start(known.run)
        for address in range(10, 1000, 10):
            known.note("a", address)
            await trio.sleep(SYNC_PERIOD / 7)
            for seed in range(3):
                found = addresses(disk.after_cut(seed, kept))
                assert address - 80 <= found["a"] <= address
        nursery.cancel_scope.cancel()


async def test_epoch_begins_without_what_slaves_had_beyond_its_start() -> None:
    """The log had lost its end, and is written again from there."""
    disk = disk_with_root()
    known = await begun(disk)
    known.shown = 95
    known.join("a", BROKER)
    known.note("a", 100)
    await known.sync()
    known.note("a", 110)
    await known.begin_at(80)
    assert known.shown == 80
    assert addresses(disk) == addresses(disk.after_cut(1, 0.0)) == {"a": 80}


async def _story(disk: FaultyDisk, told: dict[str, int]) -> None:
    known = await begun(disk)
    for name in ("a", "b"):
        known.join(name, BROKER)
        for address in (10, 20):
            known.note(name, address)
            await known.sync()
            told[name] = address


async def test_power_cut_at_any_step_leaves_what_was_synced() -> None:
    whole = disk_with_root()
    await _story(whole, {})
    for fail_at in range(whole.operations):
        disk, told = disk_with_root(fail_at), dict[str, int]()
        with pytest.raises(PowerCutError):
            await _story(disk, told)
        found = addresses(disk.after_cut(seed=fail_at, kept=(fail_at % 3) / 2))
        assert all(found[name] >= address for name, address in told.items())


@pytest.mark.parametrize("content", [b"", b"x" * 8192, b"00000000 {}\n"])
async def test_damaged_file_is_logged_and_names_no_slave(
    caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    disk = disk_with_root()
    disk.put(FILE, content)
    known = loaded(disk)
    assert not known.slaves
    assert "acknowledged addresses damaged" in caplog.text
    await known.begin_at(0)
    known.join("a", BROKER)
    known.note("a", 7)
    assert addresses(disk) == {"a": 7}


async def test_of_two_places_the_whole_one_counts() -> None:
    disk = disk_with_root()
    known = await begun(disk)
    known.join("a", BROKER)
    await known.sync()
    known.note("a", 100)
    disk.open(FILE).pwrite(b"?", 4096 + 20)
    assert addresses(disk) == {"a": 0}
    disk.open(FILE).pwrite(b"?", 20)
    assert addresses(disk) == {}


async def test_too_many_slaves_count_as_unnamed_ones_and_none_as_having_less() -> None:
    disk = disk_with_root()
    known = await begun(disk)
    names = [f"slave {number:010}" for number in range(200)]
    for number, name in enumerate(names):
        known.join(name, BROKER)
        known.note(name, 1000 + number)
    assert 20 < len(addresses(disk)) < 200
    known.note(names[0], 5000)
    known.join(names[0], BROKER)
    assert addresses(disk)[names[0]] >= 5000


def test_file_lies_beside_the_log() -> None:
    assert Path("/data/rocketrioAcknowledged") == FILE
