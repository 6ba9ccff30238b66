"""Lines of commits between two snapshots; test_manager.py shows what they are for."""

from pathlib import Path

import pytest
from tests.broker.builders import read

from rocketrio_broker.offsets.journal import Entry, OffsetJournal
from rocketrio_broker.offsets.version import Generation, Version
from rocketrio_broker.testing.memory_disk import MemoryDisk

FOLDER = Path("/data/config")
KEY = ("T", "G")


def opened(disk: MemoryDisk) -> OffsetJournal:
    journal = OffsetJournal(FOLDER, disk=disk)
    journal.open()
    return journal


def kept(disk: MemoryDisk) -> list[Entry]:
    return list(OffsetJournal(FOLDER, disk=disk).load())


def lines(disk: MemoryDisk) -> list[int]:
    return [
        read(disk, FOLDER / f"rocketrioOffsets.{number}.log").count(b"\n") for number in range(2)
    ]


def test_a_line_is_read_as_it_was_written() -> None:
    disk = MemoryDisk()
    version = Version(7, Generation(1, 2), 9)
    opened(disk).append(('orders "1"', "G"), 3, version)
    assert kept(disk) == [(('orders "1"', "G"), 3, version, "")]


def test_line_of_another_epoch_than_the_snapshot_s_names_it() -> None:
    disk = MemoryDisk()
    opened(disk).append(KEY, 0, Version(7), "2.9.b.a")
    opened(disk).append(KEY, 0, Version(8))
    assert kept(disk) == [(KEY, 0, Version(7), "2.9.b.a"), (KEY, 0, Version(8), "")]
    assert read(disk, FOLDER / "rocketrioOffsets.0.log").splitlines() == [
        b'["T","G",0,"0.0",7,-1,"2.9.b.a"]',
        b'["T","G",0,"0.0",8,-1]',
    ]


def test_a_snapshot_s_lines_go_only_when_it_is_on_the_disk() -> None:
    disk = MemoryDisk()
    journal = opened(disk)
    journal.append(KEY, 0, Version(1))
    journal.rotate()
    journal.append(KEY, 0, Version(2))
    journal.rotate()  # The first snapshot is not on the disk yet: nothing can be written over.
    journal.append(KEY, 0, Version(3))
    assert lines(disk) == [1, 2]
    journal.clear_old()
    assert lines(disk) == [0, 2]
    journal.rotate()
    journal.append(KEY, 0, Version(4))
    assert lines(disk) == [1, 2]


def test_reopened_journal_continues_after_what_a_kill_left() -> None:
    disk = MemoryDisk()
    opened(disk).append(KEY, 0, Version(1))
    opened(disk).append(KEY, 0, Version(2))
    assert [version.offset for _, _, version, _ in kept(disk)] == [1, 2]


def test_nothing_is_left_when_all_is_covered() -> None:
    disk = MemoryDisk()
    journal = opened(disk)
    journal.append(KEY, 0, Version(1))
    journal.close(is_covered=True)
    journal.append(KEY, 0, Version(2))
    assert lines(disk) == [0, 0]


@pytest.mark.parametrize(
    "line",
    [
        b"[\xff",
        b"",
        b"\0\0\0",
        b'["T","G",0,"1000000000000001.0",2,-1]',
        b'["T","G",0,"one",2,-1]',
        b'["T","G",0,"0.0",9223372036854775808,-1]',
        b'["T","G",2147483648,"0.0",2,-1]',
        b'["T","G",0,"0.0"]',
    ],
)
def test_load_skips_a_damaged_line_and_keeps_those_around_it(
    line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    journal = opened(disk)
    journal.append(KEY, 0, Version(1))
    file = disk.open(FOLDER / "rocketrioOffsets.0.log")
    file.pwrite(line + b"\n", file.size)
    file.close()
    journal = opened(disk)
    journal.append(KEY, 0, Version(3))
    journal.rotate()
    journal.append(KEY, 1, Version(4))
    assert [version.offset for _, _, version, _ in kept(disk)] == [1, 3, 4]
    assert "offset journal damaged" in caplog.text
    assert "lines=1 of=3" in caplog.text


def test_full_disk_is_logged_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    journal = opened(disk)
    disk.is_full = True
    for offset in (1, 2):
        journal.append(KEY, 0, Version(offset))
    assert caplog.text.count("commits not in the offset journal") == 1
