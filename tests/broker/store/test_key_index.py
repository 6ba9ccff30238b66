"""The index on a disk that has no room, and over stretches of the log; what it finds is in test_query.py."""

from pathlib import Path

import attrs
import pytest
import trio
from tests.broker.store.generated_logs import use_columns_from
from tests.support.clocks import SettableClock
from tests.support.stores import ROOT, SMALL, kill, opened, put_of, stored

from rocketrio_broker.store import key_index
from rocketrio_broker.store.disk import DiskFile
from rocketrio_broker.store.key_index import RETRY_INTERVAL, _file_name
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.testing.memory_disk import MemoryDisk, MemoryFile, MemoryOpenFile

BIG = attrs.evolve(SMALL, mapped_file_size_commit_log=1 << 20, max_index_num=100)
FAR = (1 << 63) - 1


class FullFile(MemoryOpenFile):
    """One that gets no more blocks while its disk is full."""

    def __init__(self, file: MemoryFile, disk: "FullDisk") -> None:
        super().__init__(file, disk)
        self._disk = disk

    def reserve(self, offset: int, size: int) -> None:
        self._disk.take(size)
        super().reserve(offset, size)


class FullDisk(MemoryDisk):
    """A disk on which the index finds room for `room` bytes only."""

    room = 1 << 40

    def take(self, size: int) -> None:
        if size > self.room:
            raise OSError(28, "No space left on device")
        self.room -= size

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        opened_file = super().open(path, create=create)
        if path.parent.name != "index":
            return opened_file
        return FullFile(self.files[path], self)


def put_keyed(store: MessageStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        properties = b"UNIQ_KEY\1%032X\2KEYS\1k%d\2TAGS\1a" % (number, number)
        stored(store.append(put_of(b"%d" % number, properties=properties)))


def found(store: MessageStore, number: int) -> int:
    return len(store.query_message("orders", f"k{number}", 32, 0, FAR).buffers)


def index_files(disk: MemoryDisk) -> dict[str, bytes]:
    return {
        path.name: disk.files[path].pread(1 << 20, 0)
        for path in sorted(disk.files)
        if path.parent.name == "index"
    }


async def test_full_disk_stops_only_the_index_until_there_is_room(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    disk, roomy = FullDisk(), MemoryDisk()
    for used in (disk, roomy):
        async with opened(used, BIG) as store:
            put_keyed(store, 0, 30)
            await trio.sleep(1)
            disk.room = 0
            put_keyed(store, 30, 300)
            await trio.sleep(3 * RETRY_INTERVAL)
            assert found(store, 3) == 1
            assert found(store, 299) == (used is roomy)
            assert store.get_message("orders", 0, 300, 32).message_count > 0
            put_keyed(store, 330, 1)
            disk.room = 1 << 40
            await trio.sleep(RETRY_INTERVAL + 1)
            assert [found(store, number) for number in range(331)] == [1] * 331
    assert index_files(disk) == index_files(roomy)
    assert len(index_files(disk)) == 7
    assert caplog.text.count("index stopped") == 1
    assert caplog.text.count("index resumed") == 1


async def test_clock_that_was_set_back_by_forty_days_holds_up_no_new_file(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the next file was looked for millisecond by millisecond, while the broker answered no request."""
    asked: list[int] = []

    def name_of(now_ms: int) -> str:
        asked.append(now_ms)
        assert len(asked) < 100
        return _file_name(now_ms)

    monkeypatch.setattr(key_index, "_file_name", name_of)
    disk, clock = MemoryDisk(), SettableClock()
    async with opened(disk, BIG, clock=clock) as store:
        clock.now += 40 * 24 * 3600 * 1000
        put_keyed(store, 0, 30)
        await trio.sleep(1)
        clock.now -= 40 * 24 * 3600 * 1000
        put_keyed(store, 30, 100)
        await trio.sleep(1)
        assert [found(store, number) for number in range(130)] == [1] * 130
    names = list(index_files(disk))
    assert len(names) == 3
    assert {len(name) for name in names} == {17}
    assert asked[-1] == clock.now
    async with opened(disk, BIG, clock=clock) as store:
        assert [found(store, number) for number in range(130)] == [1] * 130


@pytest.mark.parametrize("room", [0, 2500, 5000, 7500])
async def test_store_closes_and_opens_on_a_full_disk(room: int) -> None:
    """A step that needs several files takes all of them or none."""
    disk = FullDisk()
    async with opened(disk, BIG) as store:
        disk.room = room
        put_keyed(store, 0, 250)
        assert found(store, 7) == 0
    assert not index_files(disk)
    async with opened(disk, BIG) as store:
        assert found(store, 7) == 0
        put_keyed(store, 250, 1)
    disk.room = 1 << 40
    async with opened(disk, BIG) as store:
        assert [found(store, number) for number in range(251)] == [1] * 251


async def test_file_that_a_full_disk_cannot_repair_is_created_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FullDisk()
    async with opened(disk, BIG) as store:
        put_keyed(store, 0, 80)
    # As a crash of an Apache broker leaves it: no positions, and slots that cannot be trusted.
    kill(disk)
    disk.open(ROOT / "checkpoint").pwrite(bytes(512), 0)
    disk.room = 0
    async with opened(disk, BIG) as store:
        assert [found(store, 7), found(store, 79)] == [1, 0]  # the first file is full and whole
        disk.room = 1 << 40
        store.key_index.build_all()
        assert [found(store, number) for number in range(80)] == [1] * 80
    assert "index file dropped" in caplog.text


async def test_files_are_the_same_whether_built_in_columns_or_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disks = MemoryDisk(), MemoryDisk()
    for disk, few in zip(disks, (1, 1 << 30), strict=True):
        use_columns_from(monkeypatch, few)
        clock = SettableClock()
        async with opened(disk, BIG, clock=clock) as store:
            for number in range(0, 400, 50):
                put_keyed(store, number, 50)
                stored(store.append(put_of(sys_flag=12, properties=b"KEYS\1rolled-back")))
                store.key_index.build_some(7000)
                clock.now += 1500
    assert index_files(disks[0]) == index_files(disks[1])
    assert len(index_files(disks[0])) == 9
