"""Who writes and syncs what, and when."""

import attrs
import pytest
import trio
import trio.testing
from tests.support.failing_disk import FailingDisk
from tests.support.faulty_disk import FaultyDisk
from tests.support.stores import ROOT, SMALL, opened, put_of, read_all, stored

from rocketrio_broker.store import consume_queue, consume_queue_table, flush
from rocketrio_broker.store.checkpoint import read_checkpoint
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.consume_queue import TAIL_LIMIT
from rocketrio_broker.store.disk import Arguments, Result
from rocketrio_broker.store.flush import MAPPED_TAIL
from rocketrio_broker.store.mapped_file import RESERVE_SIZE
from rocketrio_broker.store.put_batch import mixed_entries
from rocketrio_broker.testing.memory_disk import MemoryDisk

CHECKPOINT = ROOT / "checkpoint"


def queue_bytes(disk: MemoryDisk) -> int:
    return sum(
        len(file.pread(file.size, 0).rstrip(b"\0"))
        for path, file in disk.files.items()
        if path.parent.name == "0"
    )


async def test_queue_entries_are_written_once_there_are_many(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "UNWRITTEN_LIMIT", 3 * 20)
    disk = MemoryDisk()
    async with opened(disk) as store:
        for queue_id in (0, 1):
            stored(store.append(put_of(queue_id=queue_id)))
        await trio.sleep(50)
        assert queue_bytes(disk) == 0
        stored(store.append(put_of(queue_id=2)))
        await trio.sleep(1.1)
        assert queue_bytes(disk) > 0
        assert not store.queue_table.unwritten


async def test_queue_entries_are_written_with_the_checkpoint(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        stored(store.append(put_of()))
        await trio.sleep(59)
        assert queue_bytes(disk) == 0
        await trio.sleep(2)
        assert queue_bytes(disk) > 0


async def test_a_long_tail_is_written_at_once() -> None:
    disk = MemoryDisk()
    config = attrs.evolve(SMALL, mapped_file_size_commit_log=1 << 20)
    async with opened(disk, config) as store:
        for _ in range(TAIL_LIMIT // 20 // 50):
            stored(store.append_batch(put_of(), mixed_entries([(0, b"", b"")] * 50)))
        assert queue_bytes(disk) > TAIL_LIMIT * 0.9


async def test_full_disk_for_queue_entries_is_survived(autojump_clock: trio.abc.Clock) -> None:
    disk = FailingDisk()
    async with opened(disk) as store:
        disk.fails_at = "make_directory"
        stored(store.append(put_of()))
        await trio.sleep(65)
        assert store.get_message("orders", 0, 0, 32).message_count == 1
        assert queue_bytes(disk) == 0
        disk.fails_at = ""
        await trio.sleep(1.5)
        assert queue_bytes(disk) > 0


async def test_checkpoint_is_written_every_minute_and_covers_what_is_synced(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk = FaultyDisk()
    async with opened(disk) as store:
        end = stored(store.append(put_of(properties=b"KEYS\1k"))).end_offset
        await trio.sleep(59)
        assert read_checkpoint(disk, CHECKPOINT).queue_timestamp_ms == 0
        await trio.sleep(3)
        checkpoint = read_checkpoint(disk, CHECKPOINT)
        assert checkpoint.queue_timestamp_ms == 1_700_000_000_000
        assert checkpoint.index_timestamp_ms == 1_700_000_000_000
        assert checkpoint.positions is not None
        assert checkpoint.positions.queue_position == end
        assert checkpoint.positions.index_position == end
        assert store.flushed.value == end
        lost = disk.after_cut(seed=0, kept=0.0)
    async with opened(lost) as store:
        assert store.max_physical_offset == end
        assert store.next_queue_offset("orders", 0) == 1


class SlowDisk(FaultyDisk):
    """The next work of the function `slow` waits for `gate`, and no other."""

    slow = ""
    gate: trio.Event | None = None

    async def run(self, work, *arguments: *Arguments) -> Result:  # type: ignore[no-untyped-def]
        if self.gate is not None and getattr(work, "__name__", "") == self.slow:
            gate, self.gate = self.gate, None
            await gate.wait()
        return await super().run(work, *arguments)


async def test_second_checkpoint_excludes_what_the_first_has_yet_to_sync() -> None:
    disk = SlowDisk()
    async with opened(disk) as store:
        end = stored(store.append(put_of())).end_offset
        disk.slow, disk.gate = "sync_files", (gate := trio.Event())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.checkpoint)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(store.checkpoint)
            await trio.testing.wait_all_tasks_blocked()
            early = read_checkpoint(disk, CHECKPOINT).positions
            gate.set()
        assert early is None or early.queue_position < end
        positions = read_checkpoint(disk, CHECKPOINT).positions
        assert positions is not None
        assert positions.queue_position == end


async def test_cancelled_checkpoint_leaves_nothing_unsynced_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever the cancel comes, even between two steps."""
    monkeypatch.setattr(consume_queue_table, "QUEUES_A_STEP", 1)
    for turns in range(20):
        disk = FaultyDisk()
        async with opened(disk) as store:
            for number in range(3):
                stored(store.append(put_of(topic=f"t{number}")))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.checkpoint)
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            await store.checkpoint()
            lost = disk.after_cut(seed=turns, kept=0.0)
        async with opened(lost) as store:
            for number in range(3):
                assert store.get_message(f"t{number}", 0, 0, 32).message_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 64])
async def test_checkpoint_excludes_entries_that_came_after_their_file_was_checked(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queue_table, "QUEUES_A_STEP", 1)
    monkeypatch.setattr(consume_queue_table, "ONE_BY_ONE_LIMIT", limit)
    monkeypatch.setattr(consume_queue, "TAIL_LIMIT", 20)
    for turns in range(20):
        disk = FaultyDisk()
        async with opened(disk) as store:
            for number in range(3):
                stored(store.append(put_of(topic=f"t{number}")))
            await store.checkpoint()
            stored(store.append(put_of(topic="t0")))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.checkpoint)
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                for number in range(3):
                    stored(store.append(put_of(topic=f"t{number}")))
            await store.flush()
            lost = disk.after_cut(seed=turns, kept=0.0)
        async with opened(lost) as store:
            for number, count in enumerate((3, 2, 2)):
                assert len(read_all(store, f"t{number}")) == count


async def test_checkpoint_of_many_queues_leaves_none_unsynced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consume_queue_table, "ONE_BY_ONE_LIMIT", 4)
    async with opened(MemoryDisk()) as store:
        for number in range(20):
            stored(store.append(put_of(topic=f"t{number}")))
        await store.checkpoint()
        assert not store.queue_table.has_unsynced
        assert not any(queue.has_unsynced for queue in store.queue_table)


async def test_checkpoint_excludes_what_was_cut_meanwhile() -> None:
    disk = SlowDisk()
    async with opened(disk) as store:
        first = stored(store.append(put_of()))
        stored(store.append(put_of()))
        disk.slow, disk.gate = "sync_files", (gate := trio.Event())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.checkpoint)
            await trio.testing.wait_all_tasks_blocked()
            store.truncate_to(first.end_offset)
            gate.set()
        positions = read_checkpoint(disk, CHECKPOINT).positions
        assert positions is not None
        assert positions.queue_position <= first.end_offset


async def test_old_pages_are_given_back_and_the_end_stays_mapped(
    autojump_clock: trio.abc.Clock,
) -> None:
    forgotten: list[tuple[int, int]] = []

    class NotingDisk(MemoryDisk):
        def open(self, path, *, create: bool = False):  # type: ignore[no-untyped-def]
            return _Noting(super().open(path, create=create), forgotten)

    config = StoreConfig(mapped_file_size_commit_log=256 << 20)
    async with opened(NotingDisk(), config) as store:
        for _ in range(12):
            stored(store.append(put_of(bytes(4 << 20))))
        await trio.sleep(2)
        end = store.max_physical_offset - MAPPED_TAIL
        assert forgotten == [(0, end // 4096 * 4096)]
        stored(store.append(put_of(bytes(4 << 20))))
        await trio.sleep(2)
        assert forgotten[1] == (-(-end // 4096) * 4096, (end + (4 << 20)) // 4096 * 4096)


class _Noting:
    """A file whose given-back pages are seen."""

    def __init__(self, file: object, forgotten: list[tuple[int, int]]) -> None:
        self._file = file
        self._forgotten = forgotten

    def forget_pages(self, start: int, end: int) -> None:
        self._forgotten.append((start, end))

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


@pytest.mark.parametrize("cancelled_at", ["sync_files", "_flush_files", "sync"])
async def test_cancel_before_a_sync_does_not_lose_it(
    cancelled_at: str, autojump_clock: trio.abc.Clock
) -> None:
    """What is to be synced is taken off a list first; a stop just then must not leave it unsynced."""
    scope = trio.CancelScope()

    class CancellingDisk(FaultyDisk):
        async def run(self, work, *arguments: *Arguments) -> Result:  # type: ignore[no-untyped-def]
            if trio.current_time() > start + 1 and getattr(work, "__name__", "") == cancelled_at:
                scope.cancel()
            return await super().run(work, *arguments)

    start = trio.current_time()
    count = 0
    disk = CancellingDisk()
    config = attrs.evolve(SMALL, flush_consume_queue_thorough_interval=2.0)
    with scope:
        async with opened(disk, config) as store:
            for _ in range(50):
                count += 1
                stored(store.append(put_of(bytes(1000), properties=b"KEYS\1k")))
                await trio.sleep(0.1)
    assert scope.cancelled_caught
    async with opened(disk.after_cut(seed=0, kept=0.0), config) as store:
        assert store.next_queue_offset("orders", 0) == count
        assert len(store.query_message("orders", "k", 64, 0, 1 << 62).buffers) == count


@pytest.mark.slow
async def test_disk_space_is_taken_ahead_of_the_appends(autojump_clock: trio.abc.Clock) -> None:
    size = 2
    reserved: list[tuple[int, int]] = []

    class CountingDisk(MemoryDisk):
        def open(self, path, *, create: bool = False):  # type: ignore[no-untyped-def]
            file = super().open(path, create=create)
            if path.name.startswith("commitlog.") or path.parent.name == "commitlog":
                whole = file.reserve

                def reserve(offset: int, length: int) -> None:
                    reserved.append((offset, length))
                    whole(offset, length)

                return _Reserving(file, reserve)
            return file

    config = StoreConfig(mapped_file_size_commit_log=size * RESERVE_SIZE)
    async with opened(CountingDisk(), config) as store:
        for _ in range(size * 8):
            stored(store.append(put_of(bytes(4 << 20))))
            await trio.sleep(0.01)
            last = store.commit_log.files.files[-1]
            position = store.max_physical_offset - last.start_offset
            ahead = min(position + RESERVE_SIZE // 2 - (4 << 20), last.size)
            assert last.reserved >= ahead
        assert len(store.commit_log.files.files) >= 2
        assert all(length <= RESERVE_SIZE + (5 << 20) for _, length in reserved)


class _Reserving:
    """A file whose reservations are seen."""

    def __init__(self, file: object, reserve: object) -> None:
        self._file = file
        self.reserve = reserve

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


async def test_every_queue_file_written_since_the_last_checkpoint_is_synced() -> None:
    disk = FaultyDisk()
    async with opened(disk) as store:
        for count in (100, *[20] * 10):  # five files of 20 entries, then one at a time
            for _ in range(count):
                stored(store.append(put_of()))
            await store.checkpoint()
        lost = disk.after_cut(seed=0, kept=0.0)
    async with opened(lost) as store:
        assert store.queue_bounds("orders", 0) == (0, 300)
        assert len(read_all(store, "orders")) == 300


async def test_a_sync_waits_for_the_one_that_makes_the_new_files_name_safe() -> None:
    disk = SlowDisk()
    async with opened(disk) as store:
        disk.slow, disk.gate = "_flush_files", (gate := trio.Event())
        stored(store.append(put_of()))  # in a new file
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store._flush.flush)
            await trio.testing.wait_all_tasks_blocked()
            second = stored(store.append(put_of()))
            nursery.start_soon(store._flush.flush)
            await trio.testing.wait_all_tasks_blocked()
            flushed_early = store.flushed.value
            gate.set()
        assert flushed_early == 0
        assert store.flushed.value == second.end_offset


async def test_what_is_asked_for_is_flushed_at_once(autojump_clock: trio.abc.Clock) -> None:
    async with opened(MemoryDisk()) as store:
        await trio.sleep(0.1)
        stored(store.append(put_of()))
        store.flush_soon()
        await trio.testing.wait_all_tasks_blocked()
        assert store.flushed.value == store.max_physical_offset
        stored(store.append(put_of()))
        await trio.testing.wait_all_tasks_blocked()
        assert store.flushed.value < store.max_physical_offset


async def test_a_log_that_was_cut_is_flushed_when_asked_for_again(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with opened(MemoryDisk()) as store:
        first = stored(store.append(put_of())).end_offset
        stored(store.append(put_of()))
        store.flush_soon()
        store.truncate_to(first)
        await trio.testing.wait_all_tasks_blocked()
        assert store.flushed.value == first
        stored(store.append(put_of()))
        await trio.testing.wait_all_tasks_blocked()
        assert store.flushed.value == first
        store.flush_soon()
        await trio.testing.wait_all_tasks_blocked()
        assert store.flushed.value == store.max_physical_offset
