"""A table on file: whatever was answered is there again, whole, from a journal, or after a crash at any step."""

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from tests.broker.builders import config_file, read
from tests.support.clocks import SettableClock
from tests.support.faulty_disk import FaultyDisk, FaultyOpenFile, PowerCutError

from rocketrio_broker.store.disk import Arguments, Result
from rocketrio_broker.tables import versioned_table
from rocketrio_broker.tables.config_file import ConfigFileError, TableFullError
from rocketrio_broker.tables.versioned_table import VersionedTable, _joined_table, _newer_version
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)

MAIN = Path("/data/config/topics.json")
BACKUP = Path("/data/config/topics.json.bak")
JOURNAL = Path("/data/config/topics.json.journal")


def table_on(disk: MemoryDisk, **entries: TopicConfig) -> VersionedTable[TopicConfig]:
    return VersionedTable(
        TopicConfigSerializeWrapper,
        entries,
        file=config_file(MAIN.name, disk),
        possible=lambda table: {name: each for name, each in table.items() if name != "bad"},
        wall_clock=SettableClock(),
    )


def loaded(disk: MemoryDisk) -> VersionedTable[TopicConfig]:
    table = table_on(disk)
    table.load()
    return table


def put(table: VersionedTable[TopicConfig], *names: str, queues: int = 4) -> None:
    table.put({name: TopicConfig(name, queues, queues) for name in names})


def in_file(disk: MemoryDisk) -> list[str]:
    return list(json.loads(read(disk, MAIN))["topicConfigTable"])


def test_the_first_change_is_in_the_file_and_the_next_ones_in_the_journal() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T")
    assert in_file(disk) == ["T"]
    assert not disk.exists(JOURNAL)
    put(table, "U", "V")
    put(table, "T", queues=1)
    assert table.remove("V")
    assert not table.remove("V")
    assert in_file(disk) == ["T"]
    again = loaded(disk)
    assert again.entries == {"T": TopicConfig("T", 1, 1), "U": TopicConfig("U", 4, 4)}
    assert again.entries == table.entries
    assert again.data_version == table.data_version


def test_start_with_a_whole_file_continues_with_a_journal() -> None:
    disk = MemoryDisk()
    first = table_on(disk)
    put(first, "T")
    first.close()
    before = read(disk, MAIN)
    put(loaded(disk), "U")
    assert read(disk, MAIN) == before
    assert list(loaded(disk).entries) == ["T", "U"]


def test_a_run_that_finds_a_journal_begins_with_a_whole_file() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T")
    put(table, "U")
    disk.open(JOURNAL).pwrite(b"00000000 cut short", disk.open(JOURNAL).size)
    again = loaded(disk)
    put(again, "V")
    assert in_file(disk) == ["T", "U", "V"]
    assert not disk.exists(JOURNAL)
    put(again, "W")
    assert list(loaded(disk).entries) == ["T", "U", "V", "W"]


def test_a_long_journal_becomes_a_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versioned_table, "JOURNAL_LIMIT", 2_000)
    disk = MemoryDisk()
    table = table_on(disk)
    sizes = []
    for number in range(100):
        put(table, f"T{number}")
        sizes.append(disk.open(JOURNAL).size if disk.exists(JOURNAL) else 0)
        assert loaded(disk).entries == table.entries
    assert max(sizes) < 2_500
    assert 5 < sizes.count(0) < 15


def test_close_leaves_a_whole_file_and_no_journal() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T")
    put(table, "U")
    table.close()
    assert in_file(disk) == ["T", "U"]
    assert not disk.exists(JOURNAL)
    assert json.loads(read(disk, MAIN))["dataVersion"]["counter"] == 2


def test_a_close_without_changes_leaves_the_file_of_another_program_as_it_is() -> None:
    disk = MemoryDisk()
    config_file(MAIN.name, disk).write_bytes(b'{"topicConfigTable":{"T":{"topicName":"T"}}}')
    table = loaded(disk)
    table.close()
    assert read(disk, MAIN) == b'{"topicConfigTable":{"T":{"topicName":"T"}}}'


def test_a_close_after_a_crash_leaves_a_whole_file() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T")
    put(table, "U")
    loaded(disk).close()
    assert in_file(disk) == ["T", "U"]
    assert not disk.exists(JOURNAL)


def test_a_journal_does_not_count_behind_a_file_of_another_program(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T")
    put(table, "U")
    config_file(MAIN.name, disk).write_bytes(b'{"topicConfigTable":{"A":{"topicName":"A"}}}')
    assert list(loaded(disk).entries) == ["A"]
    assert "lines=1 of=1" in caplog.text


def test_a_journal_counts_behind_the_backup_that_it_continues() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T")
    put(table, "U")
    disk.rename(MAIN, BACKUP)
    again = loaded(disk)
    assert list(again.entries) == ["T", "U"]
    put(again, "V")
    assert in_file(disk) == ["T", "U", "V"]


def test_the_first_change_of_a_run_that_found_the_backup_alone_heals_the_file() -> None:
    disk = MemoryDisk()
    put(table_on(disk), "T")
    disk.rename(MAIN, BACKUP)
    put(loaded(disk), "U")
    assert in_file(disk) == ["T", "U"]


def test_a_damaged_line_costs_what_it_says() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    for name in ("T", "U", "V", "W"):
        put(table, name)
    lines = read(disk, JOURNAL).splitlines(keepends=True)
    middle = len(lines[0]) + len(lines[1]) // 2
    disk.open(JOURNAL).pwrite(b"#", middle)
    again = loaded(disk)
    assert list(again.entries) == ["T", "U", "W"]
    assert again.data_version == table.data_version


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{",
        b"[7,[]]",
        b'[{"topicConfigTable":7},[]]',
        b'[{"topicConfigTable":{"U":7}},[]]',
        b'[{"topicConfigTable":{"bad":{"topicName":"bad"}}},["unknown"]]',
    ],
)
def test_whole_line_with_invalid_content_is_skipped(line: bytes) -> None:
    disk = MemoryDisk()
    put(table_on(disk), "T")
    table = loaded(disk)
    assert table._base is not None
    table._journal.append(line, table._base)
    put(table, "V")
    assert list(loaded(disk).entries) == ["T", "V"]


def test_entries_that_cannot_be_are_left_out() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T", "bad")
    put(table, "bad")
    assert list(loaded(disk).entries) == ["T"]


def test_entries_that_the_table_has_without_a_file_stay() -> None:
    disk = MemoryDisk()
    put(table_on(disk), "T")
    table = table_on(disk, SELF=TopicConfig("SELF"))
    table.load()
    assert list(table.entries) == ["SELF", "T"]


def test_another_broker_s_table_replaces_file_and_journal() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T")
    put(table, "U")
    entries = table.entries
    copy = {"A": TopicConfig("A"), "bad": TopicConfig("bad")}
    assert table.replace(DataVersion(9, 1), copy)
    assert not table.replace(DataVersion(9, 1), copy)
    assert table.entries is entries
    assert in_file(disk) == list(entries) == ["A"]
    assert list(loaded(disk).entries) == ["A"]
    put(table, "B")
    assert list(loaded(disk).entries) == ["A", "B"]
    assert table.data_version.counter == 10


def test_a_table_is_joined_under_a_version_above_both() -> None:
    table = table_on(MemoryDisk())
    put(table, "T")
    assert table.join(DataVersion(5, 1), {"A": TopicConfig("A"), "B": TopicConfig("B")}) == 2
    assert table.data_version.counter == 6
    assert table.join(DataVersion(5, 1), {"A": TopicConfig("A")}) is None


def test_an_equal_table_that_has_seen_more_changes_leaves_its_version() -> None:
    table = table_on(MemoryDisk())
    put(table, "T")
    assert table.join(DataVersion(8, 1), dict(table.entries)) == 0
    assert table.data_version.counter == 9
    assert table.join(DataVersion(8, 1), dict(table.entries)) is None


def test_a_new_version_of_the_same_table_is_kept() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T")
    put(table, "U")
    table.touch()
    assert loaded(disk).data_version == table.data_version == DataVersion(3, 1_700_000_000_000)
    assert list(loaded(disk).entries) == ["T", "U"]


# ---------------------------------------------------------------------------------- what has changed


def test_names_that_changed_are_known_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versioned_table, "RECENT_CHANGES", 3)
    table = table_on(MemoryDisk())
    put(table, "A")
    assert table.changed_since(0) == {"A"}
    put(table, "B", "C")
    table.remove("A")
    assert table.changed_since(0) == {"A", "B", "C"}
    assert table.changed_since(1) == {"A", "B", "C"}
    assert table.changed_since(2) == {"A"}
    assert table.changed_since(table.changes.value) == set()
    put(table, "D")
    assert table.changed_since(0) is None
    assert table.changed_since(1) == {"A", "B", "C", "D"}


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.touch(),
        lambda table: table.replace(DataVersion(9, 1), {"A": TopicConfig("A")}),
        lambda table: table.join(DataVersion(9, 1), {"A": TopicConfig("A")}),
    ],
)
def test_after_a_change_of_all_the_names_are_not_known(
    change: Callable[[VersionedTable[TopicConfig]], object],
) -> None:
    table = table_on(MemoryDisk())
    put(table, "T")
    change(table)
    put(table, "U")
    assert table.changed_since(0) is None
    assert table.changed_since(1) is None
    assert table.changed_since(2) == {"U"}


# -------------------------------------------------------------------------------------------- limits


def test_a_table_has_room_for_what_it_has_and_for_new_names_up_to_its_limit() -> None:
    table = table_on(MemoryDisk())
    put(table, "A", "B")
    table.check_room(["B", "C"], limit=3, setting="topics_limit")
    table.check_room(["A", "B"], limit=1, setting="topics_limit")
    with pytest.raises(TableFullError, match="2 entries already; topics_limit is 2"):
        table.check_room(["C"], limit=2, setting="topics_limit")


def test_requests_do_not_make_the_file_larger_than_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = 20_000
    monkeypatch.setattr(versioned_table, "TABLE_SIZE_LIMIT", limit)
    disk = MemoryDisk()
    table = table_on(disk)

    def fill() -> None:
        for number in itertools.count():
            put(table, f"T{number}")

    with pytest.raises(TableFullError, match="20000 is the limit"):
        fill()
    before = dict(table.entries)
    assert loaded(disk).entries == before
    put(table, "T0", queues=2)  # Not larger than it was.
    assert table.remove("T1")
    table.close()
    assert limit * 0.9 < len(read(disk, MAIN)) <= limit
    assert len(table.entries) == len(before) - 1


def test_a_copy_may_be_larger_than_the_limit_and_then_only_shrink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versioned_table, "TABLE_SIZE_LIMIT", 200)
    disk = MemoryDisk()
    table = table_on(disk)
    table.replace(DataVersion(9, 1), {name: TopicConfig(name) for name in "ABC"})
    for one in (table, loaded(disk)):
        with pytest.raises(TableFullError):
            put(one, "D")
        assert list(one.entries) == ["A", "B", "C"]
    assert table.remove("A")
    put(table, "B", queues=1)
    assert list(loaded(disk).entries) == ["B", "C"]


# ------------------------------------------------------------------------------------------- crashes


def test_a_full_disk_refuses_the_change_and_the_next_one_is_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T")
    put(table, "U")
    version = table.data_version
    disk.is_full = True
    for _ in range(3):
        with pytest.raises(ConfigFileError, match=r"topics\.json cannot be written: \[Errno 28\]"):
            put(table, "V")
        with pytest.raises(ConfigFileError, match=r"topics\.json cannot be written: \[Errno 28\]"):
            table.remove("T")
    assert list(table.entries) == ["T", "U"]
    assert table.data_version == version
    assert list(loaded(disk).entries) == ["T", "U"]
    disk.is_full = False
    put(table, "W")
    assert list(loaded(disk).entries) == ["T", "U", "W"]
    messages = [each for each in caplog.messages if "skipped" not in each]
    assert messages == [
        f"config file not written file={MAIN} error=[Errno 28] No space left on device",
        f"config file can be written again file={MAIN}",
    ]


def test_a_change_is_made_where_names_cannot_be_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T")
    put(table, "U")

    def failing(path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk, "sync_directory", failing)
    with pytest.raises(ConfigFileError, match=r"topics\.json cannot be synced"):
        table.sync()
    put(table, "V")
    put(table, "W")
    assert list(loaded(disk).entries) == ["T", "U", "V", "W"]
    assert disk.exists(JOURNAL)
    monkeypatch.undo()
    table.renew()
    table.sync()
    put(table, "X")
    assert list(loaded(disk).entries) == ["T", "U", "V", "W", "X"]


def test_a_journal_stays_until_the_file_is_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    disk.make_directory(MAIN.parent)
    table = table_on(disk)
    put(table, "T")
    put(table, "U")
    table.sync()

    def failing(path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk, "sync_directory", failing)
    table.touch()
    put(table, "V")
    put(table, "W")
    assert list(loaded(disk.after_cut(seed=1, kept=0.0)).entries) == ["T", "U"]
    assert list(loaded(disk.after_cut(seed=1, kept=1.0)).entries) == ["T", "U", "V", "W"]


def test_what_the_journal_could_not_sync_is_written_to_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sync that follows a failed one may succeed without having written anything."""
    disk = FaultyDisk()
    disk.make_directory(MAIN.parent)
    table = table_on(disk)
    put(table, "T")
    put(table, "U")

    def failing(self: FaultyOpenFile) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(FaultyOpenFile, "fdatasync", failing)
    with pytest.raises(ConfigFileError, match=r"topics\.json cannot be synced"):
        table.sync()
    with pytest.raises(ConfigFileError, match=r"topics\.json cannot be written"):
        put(table, "V")
    monkeypatch.undo()
    table.renew()
    table.sync()
    assert in_file(disk) == ["T", "U"]
    operations = disk.operations
    table.renew()
    table.sync()
    assert disk.operations == operations


class ActingDisk(FaultyDisk):
    """Does something when the n-th piece of work for a worker thread begins."""

    acts: dict[int, Callable[[], None]]
    works = 0

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        self.works += 1
        self.acts.get(self.works, lambda: None)()
        return await super().run(work, *arguments)


def folding(**acts: Callable[[VersionedTable[TopicConfig]], None]) -> ActingDisk:
    """Fold a table while other things happen, before its file is prepared (first) and before it is synced (second)."""
    disk = ActingDisk()
    disk.make_directory(MAIN.parent)
    table = table_on(disk)
    put(table, "T")
    put(table, "U")
    table.sync()
    numbers = {"first": 1, "second": 2}
    disk.acts = {numbers[name]: partial(act, table) for name, act in acts.items()}
    trio.run(table.fold)
    return disk


def test_a_fold_leaves_a_whole_file_and_no_journal() -> None:
    disk = folding()
    assert in_file(disk) == ["T", "U"]
    assert not disk.exists(JOURNAL)
    assert list(loaded(disk.after_cut(seed=1, kept=0.0)).entries) == ["T", "U"]
    assert sorted(path.name for path in disk.files) == ["topics.json", "topics.json.bak"]


def test_without_a_journal_a_fold_writes_nothing() -> None:
    disk = FaultyDisk()
    table = table_on(disk)
    put(table, "T")
    operations = disk.operations
    trio.run(table.fold)
    assert disk.operations == operations


def test_a_fold_that_a_change_overtakes_changes_nothing() -> None:
    disk = folding(first=lambda table: put(table, "V"))
    assert in_file(disk) == ["T"]
    assert list(loaded(disk).entries) == ["T", "U", "V"]
    assert not disk.exists(MAIN.with_name("topics.json.new"))


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_change_after_a_fold_has_its_file_in_place_is_kept(is_whole: bool) -> None:
    def change(table: VersionedTable[TopicConfig]) -> None:
        if is_whole:
            table.touch()
        put(table, "V")
        for seed in range(50):
            lost = table._file.disk.after_cut(seed=seed, kept=0.5)  # type: ignore[attr-defined]
            assert {"T", "U"} <= set(loaded(lost).entries)
        table.sync()

    disk = folding(second=change)
    for kept in (0.0, 1.0):
        assert list(loaded(disk.after_cut(seed=1, kept=kept)).entries) == ["T", "U", "V"]


def test_a_fold_on_a_full_disk_leaves_the_journal() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    put(table, "T")
    put(table, "U")
    disk.is_full = True
    with pytest.raises(ConfigFileError, match=r"topics\.json cannot be written: \[Errno 28\]"):
        trio.run(table.fold)
    assert list(loaded(disk).entries) == ["T", "U"]
    disk.is_full = False
    put(table, "V")
    trio.run(table.fold)
    assert in_file(disk) == ["T", "U", "V"]


def play(disk: FaultyDisk, made: list[str], synced: list[str]) -> None:
    """Two runs that make topics, of which the second one begins where the first was killed, and ends cleanly."""
    numbers = itertools.count()
    for _ in range(2):
        table = loaded(disk)
        for _ in range(3):
            for _ in range(3):
                name = f"T{next(numbers)}"
                put(table, name)
                made.append(name)
            table.sync()
            synced[:] = made
            name = f"T{next(numbers)}"
            put(table, name)
            made.append(name)
        trio.run(table.fold)
        synced[:] = made
        name = f"T{next(numbers)}"
        put(table, name)
        made.append(name)
    table.touch()
    table.close()
    synced[:] = made


def cut_at(operation: int) -> tuple[FaultyDisk, list[str], list[str]]:
    disk = FaultyDisk(fail_at=operation)
    disk.make_directory(MAIN.parent)
    made: list[str] = []
    synced: list[str] = []
    with pytest.raises(PowerCutError):
        play(disk, made, synced)
    disk.fail_at = None
    return disk, made, synced


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> range:
    """All operations of `play`, with a journal that is written whole more than once."""
    monkeypatch.setattr(versioned_table, "JOURNAL_LIMIT", 700)
    disk = FaultyDisk()
    disk.make_directory(MAIN.parent)
    play(disk, [], [])
    assert disk.operations > 80
    return range(disk.operations)


@pytest.mark.slow
def test_what_was_made_is_there_after_a_kill_at_any_operation(operations: range) -> None:
    for operation in operations:
        disk, made, _ = cut_at(operation)
        names = list(loaded(disk).entries)
        assert names in (made, [*made, f"T{len(made)}"]), operation


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.7, 1.0])
def test_what_was_synced_is_there_after_a_power_cut_at_any_operation(
    operations: range, kept: float
) -> None:
    for operation in operations:
        disk, made, synced = cut_at(operation)
        found = loaded(disk.after_cut(seed=operation, kept=kept))
        names = set(found.entries)
        assert set(synced) <= names, operation
        assert names <= {*made, f"T{len(made)}"}, operation
        put(found, "later")
        found.sync()


@pytest.mark.slow
def test_a_run_after_any_crash_keeps_what_it_found(operations: range) -> None:
    for operation in operations:
        disk, made, _ = cut_at(operation)
        again = loaded(disk)
        put(again, "A")
        put(again, "B")
        again.sync()
        for seed in range(3):
            found = loaded(disk.after_cut(seed=seed, kept=0.0))
            assert {*made, "A", "B"} <= set(found.entries), operation


OURS = {"only ours": 1, "both": 2}
THEIRS = {"only theirs": 3, "both": 4}
VERSION = DataVersion(counter=5, timestamp=1000)


def joined(counter: int, timestamp: int) -> dict[str, int]:
    return _joined_table(OURS, VERSION, THEIRS, DataVersion(counter=counter, timestamp=timestamp))


def test_join_with_an_older_table_adds_nothing() -> None:
    assert joined(4, 2000) == OURS


def test_join_with_a_newer_table_takes_its_entries_and_keeps_the_others() -> None:
    assert joined(6, 500) == {"only ours": 1, "both": 4, "only theirs": 3}


def test_join_of_tables_with_as_many_changes_prefers_the_later_one() -> None:
    assert joined(5, 2000) == {"only ours": 1, "both": 4, "only theirs": 3}
    assert joined(5, 500) == {"only ours": 1, "both": 2, "only theirs": 3}


def test_newer_version_is_the_one_with_more_changes() -> None:
    other = DataVersion(counter=6, timestamp=500)
    assert _newer_version(VERSION, other) is other
    assert _newer_version(other, VERSION) is other
