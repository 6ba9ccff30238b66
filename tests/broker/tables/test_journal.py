from pathlib import Path

import pytest
from tests.broker.builders import read
from tests.support.faulty_disk import FaultyDisk

from rocketrio_broker.tables.journal import TableJournal
from rocketrio_broker.testing.memory_disk import MemoryDisk

PATH = Path("/data/config/topics.json.journal")
BASE, OTHER = 17, 18


def journal_on(disk: MemoryDisk) -> TableJournal:
    disk.make_directory(PATH.parent)
    return TableJournal(PATH, disk=disk)


def test_what_was_appended_is_loaded_in_its_order() -> None:
    disk = MemoryDisk()
    journal = journal_on(disk)
    for number in range(3):
        journal.append(b'["%d"]' % number, BASE)
    assert journal.size(BASE) == len(read(disk, PATH))
    assert journal_on(disk).load(BASE) == [b'["0"]', b'["1"]', b'["2"]']


def test_nothing_is_loaded_without_a_journal() -> None:
    journal = journal_on(MemoryDisk())
    assert not journal.exists
    assert journal.load(BASE) == []
    journal.sync()


def test_lines_count_only_behind_the_content_that_they_continue() -> None:
    disk = MemoryDisk()
    journal_on(disk).append(b"[]", BASE)
    assert journal_on(disk).load(OTHER) == []


def test_lines_that_continue_other_content_replace_those_before() -> None:
    disk = MemoryDisk()
    journal = journal_on(disk)
    for _ in range(5):
        journal.append(b"[1]", BASE)
    journal.append(b"[2]", OTHER)
    assert journal.size(BASE) == 0
    assert journal_on(disk).load(OTHER) == [b"[2]"]
    assert len(read(disk, PATH).splitlines()) == 1


@pytest.mark.parametrize("damage", [b"", b"\0" * 9, b"00000000 [1]", b"[1]", b"\xff"])
def test_a_damaged_line_costs_itself_alone(damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    journal = journal_on(disk)
    for number in range(3):
        journal.append(b"[%d]" % number, BASE)
    first, _, last = read(disk, PATH).splitlines()
    file = disk.open(PATH)
    file.truncate(0)
    file.pwrite(b"\n".join([first, damage, last, b""]), 0)
    assert journal_on(disk).load(BASE) == [b"[0]", b"[2]"]
    assert "lines=1 of=3" in caplog.text


def test_each_byte_that_changes_is_seen() -> None:
    disk = MemoryDisk()
    journal_on(disk).append(b'["T"]', BASE)
    data = read(disk, PATH)
    for position in range(len(data)):
        for bit in (1, 128):
            disk.open(PATH).pwrite(
                data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :], 0
            )
            assert journal_on(disk).load(BASE) == []


def test_what_a_kill_cut_short_is_passed_over_silently(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    journal = journal_on(disk)
    journal.append(b"[0]", BASE)
    size = journal.size(BASE)
    journal.append(b"[1]", BASE)
    for end in range(size, journal.size(BASE)):
        disk.open(PATH).truncate(size)
        disk.open(PATH).pwrite(read(disk, PATH)[:end], 0)
        assert journal_on(disk).load(BASE) == [b"[0]"]
    assert not caplog.records


def test_what_could_not_be_appended_is_not_there_and_nothing_else_is_lost() -> None:
    disk = MemoryDisk()
    journal = journal_on(disk)
    journal.append(b"[0]", BASE)
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        journal.append(b"[1]", BASE)
    disk.is_full = False
    journal.append(b"[2]", BASE)
    assert journal_on(disk).load(BASE) == [b"[0]", b"[2]"]


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_synced_lines_outlive_a_power_cut(kept: float) -> None:
    disk = FaultyDisk()
    journal = journal_on(disk)
    journal.append(b"[0]", BASE)
    journal.sync()
    journal.append(b"[1]", BASE)
    for seed in range(20):
        found = journal_on(disk.after_cut(seed=seed, kept=kept)).load(BASE)
        assert found[:1] == [b"[0]"]
    journal.sync()
    for seed in range(20):
        assert journal_on(disk.after_cut(seed=seed, kept=kept)).load(BASE) == [b"[0]", b"[1]"]


def test_lines_of_an_earlier_run_are_synced_too() -> None:
    disk = FaultyDisk()
    journal_on(disk).append(b"[0]", BASE)
    later = journal_on(disk)
    later.sync()
    assert journal_on(disk.after_cut(seed=1, kept=0.0)).load(BASE) == [b"[0]"]
    operations = disk.operations
    later.sync()
    assert disk.operations == operations


def test_a_journal_that_was_removed_is_gone() -> None:
    disk = MemoryDisk()
    journal = journal_on(disk)
    journal.append(b"[0]", BASE)
    journal.remove()
    assert not journal.exists
    journal.append(b"[1]", BASE)
    assert journal_on(disk).load(BASE) == [b"[1]"]
