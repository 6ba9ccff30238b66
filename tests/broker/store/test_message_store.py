"""The store as a whole: opening, closing, flushing, replicating."""

import errno
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from tests.support.clocks import SettableClock
from tests.support.failing_disk import FailingDisk
from tests.support.held_disk import HeldDisk
from tests.support.stores import ROOT, SMALL, body_of, opened, put_of, read_all, stored

from rocketrio_broker.store.disk import InlineDisk, RealDisk
from rocketrio_broker.store.errors import StoreDamagedError, StoreLockedError, SyncFailedError
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_batch import mixed_entries
from rocketrio_broker.store.put_message import PutStatus
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.record.encode import encode_padding

ABORT = ROOT / "abort"


def put_many(store: MessageStore, count: int, topic: str = "orders") -> None:
    for number in range(count):
        stored(store.append(put_of(b"%d" % number + bytes(300), topic, number % 2)))


async def test_clean_stop_removes_abort_and_next_start_reads_nothing_again() -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        assert ABORT in disk.files
        put_many(store, 100)
        expected = [read_all(store, "orders", queue_id) for queue_id in (0, 1)]
    assert ABORT not in disk.files
    assert all(path.name != "commitlog.ahead" for path in disk.files)
    async with opened(disk) as store:
        assert [read_all(store, "orders", queue_id) for queue_id in (0, 1)] == expected
        assert store.queues().keys() == {"orders"}
        assert store.next_queue_offset("orders", 0) == 50
        stored(store.append(put_of(b"more")))
        assert body_of(read_all(store, "orders")[-1]) == b"more"


async def test_body_of_the_context_gets_its_own_error_back() -> None:
    disk = MemoryDisk()

    async def fail() -> None:
        async with opened(disk) as store:
            put_many(store, 3)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fail()
    assert ABORT not in disk.files
    async with opened(disk) as store:
        assert store.next_queue_offset("orders", 0) == 2


async def test_cancelled_store_is_closed_cleanly() -> None:
    disk = MemoryDisk()
    with trio.CancelScope() as scope:
        async with opened(disk) as store:
            put_many(store, 3)
            scope.cancel()
            await trio.sleep_forever()
    assert ABORT not in disk.files


async def test_second_store_on_a_directory_is_refused() -> None:
    disk = MemoryDisk()
    async with opened(disk):
        with pytest.raises(StoreLockedError, match="in use by another broker"):
            async with opened(disk):
                pytest.fail("two stores on one directory")
    async with opened(disk):
        pass


async def test_closed_store_refuses_appends() -> None:
    async with opened(MemoryDisk()) as store:
        pass
    assert "closing" in store.append(put_of()).remark


async def test_other_file_sizes_are_refused() -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        put_many(store, 3)
    for wrong in (
        attrs.evolve(SMALL, mapped_file_size_commit_log=32 << 10),
        attrs.evolve(SMALL, mapped_file_size_consume_queue=200),
    ):
        with pytest.raises(StoreDamagedError, match="bytes instead of"):
            async with opened(disk, wrong):
                pytest.fail("opened with wrong sizes")
    async with opened(disk) as store:
        assert store.next_queue_offset("orders", 0) == 2


async def test_flushed_waits_for_fdatasync_and_one_sync_covers_all_before_it(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk = HeldDisk("_flush_files")
    async with opened(disk, attrs.evolve(SMALL, flush_disk_type="sync")) as store:
        disk.hold()
        ends = [stored(store.append(put_of())).end_offset for _ in range(3)]
        await trio.sleep(100)
        assert store.flushed.value == 0
        reached: list[int] = []

        async def wait(end: int) -> None:
            await store.wait_flushed(end)
            reached.append(end)

        async with trio.open_nursery() as nursery:
            for end in ends:
                nursery.start_soon(wait, end)
            await trio.testing.wait_all_tasks_blocked()
            # This one comes while the sync is under way, which therefore does not cover it.
            late = stored(store.append(put_of())).end_offset
            disk.release()
            disk.hold()
        assert sorted(reached) == ends
        assert store.flushed.value == ends[-1]
        disk.release()
        await store.wait_flushed(late)


async def test_asynchronous_flush_comes_half_a_second_after_what_it_waits_for(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with opened(MemoryDisk()) as store:
        await trio.sleep(0.9)
        for _ in range(3):
            stored(store.append(put_of()))
            start = trio.current_time()
            await trio.sleep(0.2)
            end = stored(store.append(put_of())).end_offset
            await trio.sleep(0.2)
            assert store.flushed.value < end
            await store.wait_flushed(end)
            assert trio.current_time() - start == pytest.approx(0.5)


async def test_failing_sync_ends_the_store_and_leaves_abort() -> None:
    disk = FailingDisk(where="*commitlog*", error=errno.EIO)
    stores: list[MessageStore] = []

    async def put_until_it_fails() -> None:
        async with opened(disk, attrs.evolve(SMALL, flush_disk_type="sync")) as store:
            stores.append(store)
            stored(store.append(put_of()))
            disk.fails_at = "fdatasync"
            await trio.sleep_forever()

    with pytest.raises(SyncFailedError, match="Input/output"):
        await put_until_it_fails()
    assert not stores[0].writable
    assert ABORT in disk.files


async def test_arrivals_are_reported_once(autojump_clock: trio.abc.Clock) -> None:
    async with opened(MemoryDisk()) as store:
        put_many(store, 4)
        assert store.take_arrivals() == {("orders", 0), ("orders", 1)}
        assert store.take_arrivals() == set()


# --- replication ---------------------------------------------------------------------------------


async def replicate(source: MessageStore, target: MessageStore, step: int) -> None:
    offset = target.max_physical_offset
    while (data := source.read_log(offset, step)) is not None:
        target.append_raw(offset, data)
        offset += len(data)
    await target.dispatched.wait_reached(source.max_physical_offset)


@pytest.mark.parametrize("step", [1000, 77, 1 << 20])
async def test_slave_builds_the_same_queues_from_any_chunks(
    step: int, autojump_clock: trio.abc.Clock
) -> None:
    masters, slaves = MemoryDisk(), MemoryDisk()
    async with opened(masters) as master, opened(slaves) as slave:
        slave.begin_replication()
        for _ in range(3):
            put_many(master, 40)
            await replicate(master, slave, step)
            assert slave.take_arrivals() == {("orders", 0), ("orders", 1)}
        for queue_id in (0, 1):
            assert read_all(slave, "orders", queue_id) == read_all(master, "orders", queue_id)
    for path, file in masters.files.items():
        if path.parts[2] in ("commitlog", "consumequeue"):
            assert slaves.files[path].pread(1 << 20, 0) == file.pread(1 << 20, 0)


async def test_unfinished_record_waits_and_is_cut_at_promotion(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with opened(MemoryDisk()) as master, opened(MemoryDisk()) as slave:
        slave.begin_replication()
        put_many(master, 2)
        data = master.read_log(0, 1 << 20)
        assert data is not None
        slave.append_raw(0, data[:-1])
        await trio.sleep(10)
        assert slave.dispatched.value == len(data) // 2
        assert slave.queue_bounds("orders", 1) is None
        slave.end_replication()
        assert slave.max_physical_offset == len(data) // 2
        assert stored(slave.append(put_of(b"own", queue_id=1))).queue_offset == 0


async def test_unfinished_record_is_cut_by_a_restart(autojump_clock: trio.abc.Clock) -> None:
    disk = MemoryDisk()
    async with opened(MemoryDisk()) as master:
        put_many(master, 2)
        data = master.read_log(0, 1 << 20)
        assert data is not None
        async with opened(disk) as slave:
            slave.begin_replication()
            slave.append_raw(0, data[:-5])
        async with opened(disk) as slave:
            slave.begin_replication()
            assert slave.max_physical_offset == len(data) // 2
            await replicate(master, slave, 1000)
            assert len(read_all(slave, "orders", 1)) == 1


@pytest.mark.parametrize("late", [False, True])
async def test_slave_may_begin_at_any_address(late: bool, autojump_clock: trio.abc.Clock) -> None:
    disk = MemoryDisk()
    async with opened(MemoryDisk()) as master:
        put_many(master, 120)
        begin = SMALL.mapped_file_size_commit_log
        if late:
            entry = master.queue_table.by_key["orders", 0].entry(40)
            assert entry is not None
            begin = entry[0]
        for restart in (True, False):
            async with opened(disk) as slave:
                slave.begin_replication()
                offset = begin if restart else slave.max_physical_offset
                while (data := master.read_log(offset, 1000)) is not None:
                    slave.append_raw(offset, data)
                    offset += len(data)
                await slave.dispatched.wait_reached(master.max_physical_offset)
                assert slave.min_physical_offset == begin
                for queue_id in (0, 1):
                    bounds = slave.queue_bounds("orders", queue_id)
                    assert bounds is not None
                    assert bounds[0] > 0
                    everything = read_all(master, "orders", queue_id)
                    assert read_all(slave, "orders", queue_id) == everything[bounds[0] :]
            if restart:
                put_many(master, 10)


async def test_nothing_is_stored_behind_bytes_that_make_no_record() -> None:
    async with opened(MemoryDisk()) as store:
        store.begin_replication()
        store.append_raw(0, b"\xff" * 100)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(StoreDamagedError, match="damaged at 0"):
            store.append_raw(100, b"\xff" * 100)
        assert store.max_physical_offset == 100


async def test_truncate_forgets_queue_entries_and_keys() -> None:
    async with opened(MemoryDisk()) as store:
        results = [
            stored(store.append(put_of(bytes(500), properties=b"KEYS\1k%d" % number)))
            for number in range(100)
        ]
        assert len(store.query_message("orders", "k99", 9, 0, 1 << 62).buffers) == 1
        store.truncate_to(results[40].physical_offset)
        assert store.max_physical_offset == results[40].physical_offset
        assert store.next_queue_offset("orders", 0) == 40
        assert not store.query_message("orders", "k40", 9, 0, 1 << 62).buffers
        assert len(store.query_message("orders", "k39", 9, 0, 1 << 62).buffers) == 1
        again = stored(store.append(put_of(b"new", properties=b"KEYS\1k40")))
        assert again.queue_offset == 40
        assert len(store.query_message("orders", "k40", 9, 0, 1 << 62).buffers) == 1


async def test_padding_with_garbage_is_copied_as_it_is() -> None:
    disk = MemoryDisk()
    rest = SMALL.mapped_file_size_commit_log
    async with opened(disk) as store:
        store.begin_replication()
        data = encode_padding(rest) + b"g" * (rest - 8)
        store.append_raw(0, data)
        assert store.max_physical_offset == rest
        assert store.read_log(0, rest) == data


# --- the real disk ---------------------------------------------------------------------------------


@pytest.mark.real
async def test_real_disk_end_to_end(tmp_path: Path) -> None:
    config = attrs.evolve(SMALL, flush_disk_type="sync", mapped_file_size_commit_log=64 << 10)
    for life in range(2):
        async with opened(RealDisk(), config, root=tmp_path, clock=SettableClock()) as store:
            for number in range(300):
                end = stored(store.append(put_of(b"%d" % number + bytes(500)))).end_offset
                if number % 50 == 0:
                    await store.wait_flushed(end)
            assert len(read_all(store, "orders")) == 300 * (life + 1)
            with pytest.raises(StoreLockedError):
                async with opened(InlineDisk(), config, root=tmp_path):
                    pytest.fail("two stores on one directory")


async def test_readers_of_a_log_that_was_cut_see_only_what_is_left(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with opened(MemoryDisk()) as store:
        ends = [stored(store.append(put_of())).end_offset for _ in range(3)]
        store.read_gate.set_reported(ends[2])
        store.truncate_to(ends[0])
        stored(store.append(put_of()))
        assert store.queue_bounds("orders", 0) == (0, 1)
        assert store.read_gate.end.value == ends[0]
        store.read_gate.open()
        store.truncate_to(ends[0])
        assert not store.read_gate.is_gating


async def test_files_and_folders_that_no_broker_names_so_are_passed_over() -> None:
    """Python takes more for digits than the names of files are made of."""
    disk = MemoryDisk()
    async with opened(disk) as store:
        put_many(store, 4)
        expected = read_all(store, "orders")
    for name in ("commitlog", "index", "consumequeue/orders/0"):
        digits = 17 if name == "index" else 20
        for character in ("²", "٣"):
            disk.open(ROOT / name / (digits * character), create=True).close()
    for folder in ("²", "٣", "4294967296", "9" * 200):
        disk.make_directory(ROOT / "consumequeue" / "orders" / folder)
    async with opened(disk) as store:
        assert read_all(store, "orders") == expected
        assert set(store.queues()["orders"]) == {0, 1}


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [("../x", 0), ("/abs", 0), ("..", 0), ("a\0b", 0), ("orders", -1), ("orders", 1 << 31)],
)
async def test_append_to_a_queue_that_can_have_no_folder_is_refused(
    topic: str, queue_id: int
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        files = set(disk.files)
        put, batch = put_of(b"x", topic, queue_id), mixed_entries([(0, b"x", b"")])
        for result in (store.append(put), store.append_batch(put, batch)):
            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert "there can be no queue" in result.remark
        assert set(disk.files) == files
        with pytest.raises(ValueError, match="no queue"):
            store.queue_table.queue(topic, queue_id)
