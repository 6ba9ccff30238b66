"""A last record whose properties a crash damaged ends the log; odd properties anywhere else stay."""

from pathlib import Path

import pytest
from tests.golden.golden import unpack_store
from tests.support.failing_disk import FailingDisk
from tests.support.stores import APACHE, ROOT, SMALL, crash, kill, opened, put_of, read_all, stored

from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.store.errors import NotOpenedError
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.record.decode import RecordStatus, scan_record
from rocketrio_protocol.record.properties import can_be_properties

FILE_SIZE = SMALL.mapped_file_size_commit_log
PROPERTIES = b"KEYS\1k\2TAGS\1t\2CLUSTER\1DefaultCluster"


async def written(disk: MemoryDisk, *properties: bytes, body: bytes = b"body") -> list[bytes]:
    """Put records with these properties into a store that is then killed; the records."""
    async with opened(disk) as store:
        for text in properties:
            stored(store.append(put_of(body, properties=text)))
        records = read_all(store, "orders")
    crash(disk)
    return records


def damage(disk: MemoryDisk, data: bytes, address: int) -> None:
    path = ROOT / "commitlog" / f"{address // FILE_SIZE * FILE_SIZE:020d}"
    disk.open(path).pwrite(data, address % FILE_SIZE)


def cut_files(disk: MemoryDisk) -> dict[str, bytes]:
    folder = ROOT / "cut"
    names = disk.list_directory(folder)
    return {name: disk.open(folder / name).pread(1 << 20, 0) for name in names}


def offsets(store: MessageStore) -> tuple[int, int]:
    return store.max_physical_offset, store.next_queue_offset("orders", 0)


@pytest.mark.parametrize("file_end", [False, True])
@pytest.mark.parametrize(
    "damage_of",
    [bytes(17), b"\0", b"\xb7", bytes(len(PROPERTIES)), b"X" * 22],
    ids=["17 zeros", "one zero", "garbage", "all zeros", "no names"],
)
async def test_last_record_with_torn_properties_is_cut_and_kept(
    damage_of: bytes, file_end: bool
) -> None:
    disk = MemoryDisk()
    body = b"body" if not file_end else bytes(FILE_SIZE // 3 - 400)
    records = await written(disk, PROPERTIES, PROPERTIES, PROPERTIES, body=body)
    end = sum(map(len, records))
    last = end - len(records[-1])
    damage(disk, damage_of, end - len(damage_of))
    async with opened(disk) as store:
        assert offsets(store) == (last, 2)
        assert read_all(store, "orders") == records[:-1]
        (kept,) = cut_files(disk).items()
        assert kept[0].startswith(f"{last:020d}-")
        torn = records[-1][: -len(damage_of)] + damage_of
        assert kept[1] == torn.rstrip(b"\0")
        # What comes next takes its place, whole.
        assert stored(store.append(put_of(b"next"))).physical_offset == last
    crash(disk)
    async with opened(disk) as store:
        assert store.next_queue_offset("orders", 0) == 3
        assert len(cut_files(disk)) == 1


async def test_whole_records_behind_a_tear_are_kept_too() -> None:
    """17 zeros over the end of a record and the head of the next: nothing behind can be reached any more."""
    disk = MemoryDisk()
    records = await written(disk, *[PROPERTIES] * 4)
    second = len(records[0]) + len(records[1])
    damage(disk, bytes(17), second - 8)
    async with opened(disk) as store:
        assert offsets(store) == (len(records[0]), 1)
        (kept,) = cut_files(disk).values()
        assert kept.endswith(records[2][9:] + records[3])


@pytest.mark.parametrize(
    "odd", [b"A\1b\0c\2D\1e", b"\0", b"no separator", b"\xff\1x", b"A\1b\2\2\2C\1d"]
)
async def test_odd_properties_before_a_whole_record_stay(odd: bytes) -> None:
    disk = MemoryDisk()
    records = await written(disk, PROPERTIES, odd, odd, PROPERTIES)
    async with opened(disk) as store:
        assert read_all(store, "orders") == records
        assert cut_files(disk) == {}


@pytest.mark.parametrize("is_killed", [False, True])
async def test_odd_last_record_stays_once_a_checkpoint_covers_it(is_killed: bool) -> None:
    disk = MemoryDisk()
    records = await written(disk, PROPERTIES, b"A\1b\0c")
    if not is_killed:
        disk.unlink(ROOT / "abort")
    async with opened(disk) as store:
        if not is_killed:
            assert read_all(store, "orders") == records
            # A checkpoint that rocketrio wrote vouches for it now.
            await store.checkpoint()
        else:
            assert read_all(store, "orders") == records[:-1]
    kill(disk)
    async with opened(disk) as store:
        assert read_all(store, "orders") == (records[:-1] if is_killed else records)


async def test_half_message_with_torn_properties_is_cut() -> None:
    """It has no queue entry that could name it."""
    disk = MemoryDisk()
    async with opened(disk) as store:
        stored(store.append(put_of(b"first", properties=PROPERTIES)))
        first_end = store.max_physical_offset
        stored(store.append(put_of(b"half", properties=PROPERTIES, sys_flag=4)))
        end = store.max_physical_offset
    crash(disk)
    damage(disk, bytes(17), end - 17)
    async with opened(disk) as store:
        assert offsets(store) == (first_end, 1)


async def test_nothing_is_cut_where_it_cannot_be_kept() -> None:
    disk = FailingDisk()
    records = await written(disk, PROPERTIES, PROPERTIES)
    end = sum(map(len, records))
    damage(disk, bytes(17), end - 17)
    disk.fails_at, disk.where = "make_directory", "*/cut"
    with pytest.raises(NotOpenedError, match="No space left"):
        async with opened(disk):
            pytest.fail("opened, and threw the torn record away")
    disk.fails_at = ""
    async with opened(disk):
        (kept,) = cut_files(disk).values()
        assert kept == records[-1][:-17]


async def test_what_was_written_after_the_crash_is_not_in_doubt() -> None:
    disk = MemoryDisk()
    records = await written(disk, PROPERTIES, PROPERTIES)
    end = sum(map(len, records))
    async with opened(disk) as store:
        assert store.doubtful_end == end
        stored(store.append(put_of(b"new")))
        assert store.doubtful_end == end
        store.truncate_to(len(records[0]))
        stored(store.append(put_of(b"in its place", properties=PROPERTIES * 3)))
        assert store.doubtful_end == len(records[0])
        assert store.max_physical_offset > end
    async with opened(disk) as store:
        assert store.doubtful_end == 0


async def test_real_directory_is_cut_the_same(tmp_path: Path) -> None:
    async with opened(InlineDisk(), root=tmp_path) as store:
        stored(store.append(put_of(b"first", properties=PROPERTIES)))
        first_end = store.max_physical_offset
        stored(store.append(put_of(b"second", properties=PROPERTIES)))
        end = store.max_physical_offset
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(end - 17)
        file.write(bytes(17))
    async with opened(InlineDisk(), root=tmp_path) as store:
        assert offsets(store) == (first_end, 1)
    (kept,) = (tmp_path / "cut").iterdir()
    assert kept.stat().st_size == end - first_end - 17


@pytest.mark.parametrize("run", ["4.9.7", "5.3.3"])
async def test_killed_directory_of_apaches_stays_whole_with_nul_in_properties(
    run: str, tmp_path: Path
) -> None:
    """In every record but the last: as a Java client may have sent them."""
    root = unpack_store(run, "master", tmp_path)  # type: ignore[arg-type]
    path = root / "commitlog" / f"{0:020d}"
    log = bytearray(path.read_bytes())
    at, last, odd = 0, 0, 0
    while (record := scan_record(log, at, len(log))).status is RecordStatus.RECORD:
        last, at = at, at + record.size
        if record.properties and (place := log.find(b"\1", at - len(record.properties), at)) > 0:
            log[place + 1] = 0
            odd += 1
    end = at
    log[last:end] = path.read_bytes()[last:end]
    path.write_bytes(log)
    assert odd > 20
    async with opened(InlineDisk(), APACHE, root=root) as store:
        assert store.max_physical_offset == end
        found = store.commit_log.read(0, end)
        assert found is not None
        assert bytes(found) == log[:end]
    assert not (root / "cut").exists()


@pytest.mark.parametrize(
    ("stored_bytes", "expected"),
    [
        (b"", True),
        (b"A\1b", True),
        (b"A\1b\2C\1d\2", True),
        (b"A\1", True),
        ("schlüssel\1größe\2".encode(), True),
        (b"A\1b\0", False),
        (b"A\1b\2C", False),
        (b"\1b", False),
        (b"A\1b\2\2", False),
        (b"A\1\xff", False),
    ],
)
def test_bytes_that_can_be_properties_are_recognized(stored_bytes: bytes, expected: bool) -> None:
    assert can_be_properties(stored_bytes) is expected
