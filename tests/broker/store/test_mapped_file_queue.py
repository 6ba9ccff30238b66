"""Files of the log on a disk that has no room for them."""

import pytest
from tests.support.failing_disk import FailingDisk
from tests.support.stores import ROOT, SMALL

from rocketrio_broker.store.disk import Buffer
from rocketrio_broker.store.mapped_file_queue import MappedFileQueue
from rocketrio_broker.testing.memory_disk import MemoryDisk

FOLDER = ROOT / "commitlog"
SIZE = SMALL.mapped_file_size_commit_log
STEPS = ("create", "truncate", "reserve", "fdatasync", "rename")


def made(disk: MemoryDisk) -> MappedFileQueue:
    disk.make_directory(FOLDER)
    queue = MappedFileQueue(disk, FOLDER, SIZE)
    queue.load()
    return queue


def names(disk: MemoryDisk) -> set[str]:
    return {path.name for path in disk.files}


@pytest.mark.parametrize("step", STEPS)
def test_file_that_cannot_be_made_leaves_nothing_behind(step: str) -> None:
    disk = FailingDisk()
    queue = made(disk)
    disk.fails_at = step
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            queue.add_file(0, SIZE)
    assert not queue.files
    assert names(disk) == set()
    assert disk.open_count == 0
    disk.fails_at = ""
    queue.add_file(0, SIZE)
    assert names(disk) == {"0" * 20}


@pytest.mark.parametrize("step", STEPS[:-1])
def test_file_that_cannot_be_made_ahead_leaves_nothing_behind(step: str) -> None:
    disk = FailingDisk()
    queue = made(disk)
    queue.add_file(0, SIZE)
    disk.fails_at = step
    with pytest.raises(OSError, match="No space"):
        queue.prepare(SIZE, SIZE)
    assert names(disk) == {"0" * 20}
    assert disk.open_count == 1


def test_prepared_file_that_cannot_be_named_is_kept_for_the_next_attempt() -> None:
    disk = FailingDisk()
    queue = made(disk)
    queue.keep_prepared(queue.prepare(0, SIZE))
    disk.fails_at = "rename"
    with pytest.raises(OSError, match="No space"):
        queue.add_file(0, SIZE)
    assert queue.has_prepared(0)
    disk.fails_at = ""
    queue.add_file(0, SIZE)
    assert names(disk) == {"0" * 20}
    queue.close()
    assert disk.open_count == 0


@pytest.mark.parametrize("left_over", ["commitlog.making", "commitlog.ahead"])
def test_file_that_a_crash_left_half_made_is_removed_at_the_start(left_over: str) -> None:
    disk = FailingDisk()
    disk.make_directory(FOLDER)
    half: Buffer = bytes(100)
    disk.open(ROOT / left_over, create=True).pwrite(half, 0)
    queue = made(disk)
    assert not queue.files
    queue.add_file(0, SIZE)
    assert names(disk) == {"0" * 20}
