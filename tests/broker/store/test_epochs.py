"""The epoch file: what it keeps over crashes, and what it does not believe."""

from pathlib import Path

import pytest
from tests.broker.epoch_lines import begin, epoch, fill
from tests.support.faulty_disk import FaultyDisk, PowerCutError
from tests.support.stores import ROOT, opened
from trio.testing import MockClock

from rocketrio_broker.store.epochs import ANONYMOUS, EPOCH_FILE, JOINED_LIMIT
from rocketrio_broker.testing.memory_disk import MemoryDisk

FILE = ROOT / EPOCH_FILE


async def test_lines_are_there_after_a_clean_stop_and_the_name_stays(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        epochs = await begin(store)
        await epochs.open(epoch(store, 1))
        fill(store)
        await epochs.open(epoch(store, 2))
        await epochs.join("slave", 1)
        await epochs.promise(9)
        lines = epochs.lines
    async with opened(disk) as store:
        epochs = await begin(store, "another")
        assert epochs.lines == lines
        assert epochs.lines[-1].joined == {"slave": 1}
        assert (epochs.member, epochs.highest, epochs.whole_above) == ("me", 9, 0)


async def test_slaves_of_an_own_epoch_that_comes_back_from_another_broker_are_not_known(
    autojump_clock: MockClock,
) -> None:
    """It had lost the epoch's bytes, or their line, and that broker had them."""
    async with opened(MemoryDisk()) as store:
        epochs = await begin(store)
        await epochs.open(epoch(store, 1))
        await epochs.join("slave", 1)
        fill(store)
        lost, other = epoch(store, 2), epoch(store, 3, member="other")
        await epochs.adopt([*epochs.to_send(), lost, other])
        assert [line.joined for line in epochs.lines] == [{"slave": 1}, {ANONYMOUS: 2}, {}]
        assert [line.key for line in epochs.lines] == [(1, "id1", 0), lost.key, other.key]


async def test_end_of_own_part_is_where_other_brokers_went_on(autojump_clock: MockClock) -> None:
    async with opened(MemoryDisk()) as store:
        epochs = await begin(store)
        fill(store)
        assert epochs.end_of_own == store.max_physical_offset  # No epoch is known.
        begun = store.max_physical_offset
        await epochs.adopt([epoch(store, 1, member="other")])
        fill(store)
        assert epochs.end_of_own == begun
        await epochs.open(epoch(store, 2))
        fill(store)
        begun = store.max_physical_offset
        assert epochs.end_of_own == begun
        lines = [epoch(store, number, member="other") for number in (3, 4)]
        await epochs.adopt([*epochs.lines, *lines])
        fill(store)
        assert epochs.end_of_own == begun


async def test_epoch_without_a_byte_makes_room_for_the_next(autojump_clock: MockClock) -> None:
    async with opened(MemoryDisk()) as store:
        epochs = await begin(store)
        await epochs.open(epoch(store, 1))
        await epochs.open(epoch(store, 2))
        assert [line.number for line in epochs.lines] == [2]


async def test_log_that_another_program_went_on_with_is_of_no_known_epoch(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        await (await begin(store)).open(epoch(store, 1))
        fill(store)
    file = disk.open(FILE)
    content = file.pread(file.size, 0)
    async with opened(disk) as store:
        fill(store)
    # What wrote here knew nothing of the file.
    file = disk.open(FILE)
    file.truncate(0)
    file.pwrite(content, 0)
    async with opened(disk) as store:
        epochs = await begin(store)
        assert not epochs.lines
        assert (epochs.highest, epochs.whole_above) == (1, 1)


async def test_power_cut_may_have_taken_what_was_reported_and_a_kill_not(
    autojump_clock: MockClock,
) -> None:
    for boot, whole_above in (("1", 0), ("2", 1)):
        disk = MemoryDisk()
        with pytest.raises(RuntimeError):
            await _killed(disk)
        disk.boot = boot
        async with opened(disk) as store:
            assert (await begin(store)).whole_above == whole_above


async def _killed(disk: MemoryDisk) -> None:
    async with opened(disk) as store:
        await (await begin(store)).open(epoch(store, 1))
        store.epochs.close = _crash  # type: ignore[method-assign]


async def _crash() -> None:
    raise RuntimeError("killed")


@pytest.mark.parametrize("damaged", [0, 1, 2])
async def test_damaged_line_makes_what_is_before_it_unknown(
    autojump_clock: MockClock, damaged: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        epochs = await begin(store)
        await epochs.open(epoch(store, 1))
        fill(store)
        await epochs.open(epoch(store, 2))
        fill(store)
    file = disk.open(FILE)
    lines = file.pread(file.size, 0).splitlines(keepends=True)
    lines[damaged] = lines[damaged].replace(b'"', b"'", 1)
    file.pwrite(b"".join(lines), 0)
    async with opened(disk) as store:
        epochs = await begin(store, "new")
        assert "epochs damaged" in caplog.text
        assert [line.number for line in epochs.lines] == {0: [1, 2], 1: [2], 2: []}[damaged]
        assert epochs.member == ("new" if damaged == 0 else "me")


async def test_file_without_its_last_line_names_no_epoch(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the bytes of the last epoch would belong to the one before it."""
    disk = MemoryDisk()
    async with opened(disk) as store:
        epochs = await begin(store)
        for number in (1, 2):
            await epochs.open(epoch(store, number))
            fill(store)
    file = disk.open(FILE)
    lines = file.pread(file.size, 0).splitlines(keepends=True)
    file.truncate(len(b"".join(lines[:-1])))
    async with opened(disk) as store:
        assert not (await begin(store)).lines
        assert "epochs damaged file=/data/rocketrioEpochs lines=3" in caplog.text


async def test_lines_of_deleted_files_go(autojump_clock: MockClock) -> None:
    async with opened(MemoryDisk()) as store:
        epochs = await begin(store)
        for number in range(1, 4):
            await epochs.open(epoch(store, number))
            fill(store, 150)
        store.commit_log.files.remove_first()
        store.commit_log.files.remove_first()
        await epochs.open(epoch(store, 4))
        first = store.min_physical_offset
        assert [line.number for line in epochs.lines if line.start <= first] == [
            epochs.lines[0].number
        ]


async def _story(disk: FaultyDisk, told: list[int]) -> None:
    async with opened(disk) as store:
        epochs = await begin(store)
        for number in range(1, 4):
            await epochs.open(epoch(store, number))
            told.append(number)
            fill(store, 2)
            await store.flush()


@pytest.mark.slow
async def test_power_cut_at_any_step_leaves_the_lines_of_before_or_after(
    autojump_clock: MockClock,
) -> None:
    whole = FaultyDisk()
    await _story(whole, [])
    for fail_at in range(whole.operations):
        disk, told = FaultyDisk(fail_at), list[int]()
        with pytest.raises((PowerCutError, BaseExceptionGroup)):
            await _story(disk, told)
        found = disk.after_cut(seed=fail_at, kept=(fail_at % 3) / 2)
        async with opened(found) as store:
            epochs = await begin(store)
            numbers = [line.number for line in epochs.lines]
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) >= len(told)
            assert not told or epochs.member == "me"


def test_file_lies_beside_the_log() -> None:
    assert Path("/data/rocketrioEpochs") == FILE


async def test_names_of_slaves_are_limited_and_later_slaves_count_unnamed(
    autojump_clock: MockClock,
) -> None:
    async with opened(MemoryDisk()) as store:
        epochs = await begin(store)
        await epochs.open(epoch(store, 1))
        for number in range(JOINED_LIMIT + 5):
            await epochs.join(f"slave {number}", 1)
        await epochs.join("slave 0", 7)
        joined = epochs.lines[-1].joined
        assert len(joined) == JOINED_LIMIT + 1
        assert (joined[ANONYMOUS], joined["slave 0"]) == (1, 7)
