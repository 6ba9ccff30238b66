"""Files of queues that are lost, emptied, shortened or zeroed between two runs: a start makes their entries again."""

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio
from tests.support.further import every_other
from tests.support.stores import (
    HOST,
    ROOT,
    SMALL,
    kill,
    opened,
    put_of,
    read_all,
    read_queues,
    remove,
    stored,
)

from rocketrio_broker.store.deletion import deletion_record
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.queue_bounds import BOUNDS_FILE
from rocketrio_broker.testing.memory_disk import MemoryDisk

QUEUES = ROOT / "consumequeue"
TOPIC = QUEUES / "orders"
ENTRIES_A_FILE = SMALL.mapped_file_size_consume_queue // 20
COUNT = 3 * ENTRIES_A_FILE + 5
"""Messages of each queue: three whole files and a part."""
LACKS = "queue lacks entries"


async def filled(disk: MemoryDisk, count: int = COUNT) -> dict[tuple[str, int], list[bytes]]:
    async with opened(disk) as store:
        for number in range(count):
            for topic, queue_id in (("orders", 0), ("orders", 1), ("payments", 0)):
                stored(store.append(put_of(b"%d" % number, topic, queue_id)))
        return read_queues(store)


def zero(disk: MemoryDisk, path: Path) -> None:
    disk.open(path).pwrite(bytes(SMALL.mapped_file_size_consume_queue), 0)


def zero_the_end(disk: MemoryDisk, path: Path) -> None:
    disk.open(path).clear_from(60)


def empty(disk: MemoryDisk, path: Path) -> None:
    disk.open(path).truncate(0)


def shorten(disk: MemoryDisk, path: Path) -> None:
    disk.open(path).truncate(50)


def overwrite(disk: MemoryDisk, path: Path) -> None:
    disk.open(path).pwrite(b"\xa7" * 100, 0)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("file", every_other(range(4)))
@pytest.mark.parametrize("damage", [remove, zero, zero_the_end, empty, shorten, overwrite])
async def test_damaged_file_is_noticed_and_made_again(
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[MemoryDisk, Path], None],
    file: int,
    is_killed: bool,
) -> None:
    disk = MemoryDisk()
    expected = await filled(disk)
    damage(disk, TOPIC / "1" / f"{400 * file:020d}")
    if is_killed:
        kill(disk)
    async with opened(disk) as store:
        assert read_queues(store) == expected
        first, end = ENTRIES_A_FILE * file, COUNT
        assert f"{LACKS}, they are made from the log again topic=orders queue_id=1" in caplog.text
        assert f"from={first} to={end} queues=1" in caplog.text
        assert stored(store.append(put_of(b"next", queue_id=1))).queue_offset == COUNT
    caplog.clear()
    async with opened(disk) as store:
        assert len(read_all(store, "orders", 1)) == COUNT + 1
        assert LACKS not in caplog.text


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("folder", [TOPIC / "1", TOPIC, QUEUES], ids=["queue", "topic", "all"])
async def test_lost_folder_is_noticed_and_made_again(
    caplog: pytest.LogCaptureFixture, folder: Path, is_killed: bool
) -> None:
    disk = MemoryDisk()
    expected = await filled(disk)
    remove(disk, folder)
    if is_killed:
        kill(disk)
    async with opened(disk) as store:
        assert read_queues(store) == expected
        assert LACKS in caplog.text
        assert stored(store.append(put_of(b"next", queue_id=1))).queue_offset == COUNT


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("folder", [None, TOPIC / "1", TOPIC / "1" / f"{0:020d}"])
@pytest.mark.parametrize("damage", [remove, empty, shorten, overwrite])
async def test_lost_table_of_queues_hides_nothing_that_is_lost_with_it(
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[MemoryDisk, Path], None],
    folder: Path | None,
    is_killed: bool,
) -> None:
    disk = MemoryDisk()
    expected = await filled(disk)
    damage(disk, ROOT / BOUNDS_FILE)
    if folder is not None:
        remove(disk, folder)
    if is_killed:
        kill(disk)
    async with opened(disk) as store:
        assert read_queues(store) == expected
        assert "queue table missing or damaged" in caplog.text


async def test_checkpoint_that_is_lost_with_a_folder_hides_nothing() -> None:
    disk = MemoryDisk()
    expected = await filled(disk)
    disk.unlink(ROOT / "checkpoint")
    remove(disk, TOPIC / "1")
    async with opened(disk) as store:
        assert read_queues(store) == expected


@pytest.mark.parametrize("zeroed", [(0, 4_000), (20_000, 39_000), (76_000, 80_000), (0, 80_000)])
async def test_part_of_a_large_file_is_missed(zeroed: tuple[int, int]) -> None:
    """The pieces that a start reads are 200 entries each; this file has 4,000."""
    large = attrs.evolve(
        SMALL, mapped_file_size_consume_queue=160_000, mapped_file_size_commit_log=1 << 20
    )
    disk = MemoryDisk()
    async with opened(disk, large) as store:
        for number in range(4_000):
            stored(store.append(put_of(b"%d" % number)))
        expected = read_all(store, "orders")
    start, end = zeroed
    disk.open(TOPIC / "0" / f"{0:020d}").pwrite(bytes(end - start), start)
    async with opened(disk, large) as store:
        assert read_all(store, "orders") == expected


async def test_start_that_is_killed_during_the_rebuild_begins_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    expected = await filled(disk)
    remove(disk, TOPIC / "1")

    class PulledPlugError(Exception):
        pass

    def pull_the_plug(*_: object) -> None:
        raise PulledPlugError

    with monkeypatch.context() as patch:
        patch.setattr("rocketrio_broker.store.recovery._end_before_torn", pull_the_plug)
        patch.setattr("rocketrio_broker.store.commit_log.CommitLog.truncate", pull_the_plug)
        with pytest.raises(PulledPlugError):
            async with opened(disk):
                pytest.fail("opened")
    # The page cache was written back in part: a piece in the middle of a queue is not on the disk.
    disk.open(QUEUES / "payments" / "0" / f"{400:020d}").pwrite(bytes(100), 100)
    async with opened(disk) as store:
        assert read_queues(store) == expected


async def test_kill_after_a_deletion_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    """Neither of the topic that is gone nor of the one that has its name now."""
    disk = MemoryDisk()
    expected = await filled(disk)
    async with opened(disk) as store:
        checkpoint, bounds = content(disk, "checkpoint"), content(disk, BOUNDS_FILE)
        for topic in ("orders", "payments"):
            stored(store.append(deletion_record(topic, "1", host=HOST, now_ms=1)))
            store.delete_topic(topic)
        stored(store.append(put_of(b"reborn")))
    for name, data in (("checkpoint", checkpoint), (BOUNDS_FILE, bounds)):
        disk.unlink(ROOT / name)
        disk.open(ROOT / name, create=True).pwrite(data, 0)
    kill(disk)
    async with opened(disk) as store:
        assert {key: len(records) for key, records in read_queues(store).items()} == {
            ("orders", 0): 1
        }
    assert LACKS not in caplog.text
    assert len(expected) == 3


def content(disk: MemoryDisk, name: str) -> bytes:
    file = disk.open(ROOT / name)
    return file.pread(file.size, 0)


async def expire(store: MessageStore, disk: MemoryDisk) -> None:
    """Have the oldest files deleted, because the disk fills."""
    store.key_index.build_all()
    await store.checkpoint()
    disk.used = 0.87
    await store._retention.check_disk()
    assert await store.delete_old_files() > 1
    disk.used = 0.1


@pytest.mark.parametrize("is_killed", [False, True])
async def test_queue_whose_messages_are_all_expired_keeps_its_offsets(
    autojump_clock: trio.abc.Clock, is_killed: bool
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        for number in range(30):
            stored(store.append(put_of(b"%d" % number, "idle")))
        for _ in range(200):
            stored(store.append(put_of(bytes(400))))
        await expire(store, disk)
        assert store.queue_bounds("idle", 0) == (30, 30)
    remove(disk, QUEUES)
    if is_killed:
        kill(disk)
    async with opened(disk) as store:
        assert store.queue_bounds("idle", 0) == (30, 30)
        assert stored(store.append(put_of(b"next", "idle"))).queue_offset == 30
        low, high = store.queue_bounds("orders", 0) or (0, 0)
        assert 0 < low < high == 200


async def test_kill_right_after_files_expired_is_no_loss(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        for _ in range(200):
            stored(store.append(put_of(bytes(400))))
        await expire(store, disk)
        expected = read_queues(store)
        checkpoint, bounds = content(disk, "checkpoint"), content(disk, BOUNDS_FILE)
        assert len(disk.list_directory(TOPIC / "0")) < 10
    for name, data in (("checkpoint", checkpoint), (BOUNDS_FILE, bounds)):
        disk.unlink(ROOT / name)
        disk.open(ROOT / name, create=True).pwrite(data, 0)
    kill(disk)
    async with opened(disk) as store:
        assert read_queues(store) == expected
    assert LACKS not in caplog.text
