from pathlib import Path

import pytest
from tests.broker.builders import read
from tests.golden.golden import VERSIONS, unpack_store
from tests.support.failing_disk import FailingDisk
from tests.support.faulty_disk import FaultyDisk

from rocketrio_broker.tables.config_file import ConfigFile, ConfigFileError
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies.offsets import ConsumerOffsetWrapper

MAIN = Path("/data/config/consumerOffset.json")
BACKUP = Path("/data/config/consumerOffset.json.bak")


def offsets(value: int) -> ConsumerOffsetWrapper:
    return ConsumerOffsetWrapper({"T@G": {0: value}})


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_what_was_written_is_loaded(disk: MemoryDisk) -> None:
    ConfigFile(MAIN, disk=disk).write(offsets(3))
    assert ConfigFile(MAIN, disk=disk).load(ConsumerOffsetWrapper) == offsets(3)


def test_nothing_is_loaded_where_nothing_was_written(disk: MemoryDisk) -> None:
    assert ConfigFile(MAIN, disk=disk).load(ConsumerOffsetWrapper) is None


def test_content_is_laid_out_as_java_lays_it_out(disk: MemoryDisk) -> None:
    ConfigFile(MAIN, disk=disk).write(ConsumerOffsetWrapper({"T@G": {0: 9, 1: 4}}))
    assert read(disk, MAIN) == b'{\n\t"offsetTable":{\n\t\t"T@G":{0:9,1:4\n\t\t}\n\t}\n}'


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b'{"offsetTable":{"T@',
        b"\x00" * 20,
        # What is read past in a peer's body, as Java does:
        b'{"offsetTable":{"T@G":{0:4,1:null}}}',
        b'{"offsetTable":{"T@\xb6":{0:4}}}',
        b'{"offsetTable":{"T@G":{0:4}}}\x00',
    ],
)
def test_backup_is_loaded_where_the_file_is_empty_or_torn(disk: MemoryDisk, damage: bytes) -> None:
    file = ConfigFile(MAIN, disk=disk)
    file.write(offsets(3))
    file.sync()
    file.write(offsets(4))
    disk.open(MAIN).truncate(0)
    disk.open(MAIN).pwrite(damage, 0)
    assert ConfigFile(MAIN, disk=disk).load(ConsumerOffsetWrapper) == offsets(3)


def test_file_that_cannot_be_read_never_becomes_the_backup(disk: MemoryDisk) -> None:
    """Not by a sync before the next write either: then the next power cut could take both."""
    file = ConfigFile(MAIN, disk=disk)
    file.write(offsets(3))
    file.sync()
    file.write(offsets(4))
    disk.open(MAIN).truncate(0)
    again = ConfigFile(MAIN, disk=disk)
    assert again.load(ConsumerOffsetWrapper) == offsets(3)
    again.sync()
    again.write(offsets(5))
    disk.open(MAIN).truncate(0)
    assert ConfigFile(MAIN, disk=disk).load(ConsumerOffsetWrapper) == offsets(3)
    again.write(offsets(6))
    again.sync()
    again.write(offsets(7))
    disk.open(MAIN).truncate(0)
    assert ConfigFile(MAIN, disk=disk).load(ConsumerOffsetWrapper) == offsets(6)


def test_backup_is_loaded_where_a_crash_came_between_the_two_renames(disk: MemoryDisk) -> None:
    file = ConfigFile(MAIN, disk=disk)
    file.write(offsets(3))
    file.sync()
    disk.rename(MAIN, BACKUP)
    assert ConfigFile(MAIN, disk=disk).load(ConsumerOffsetWrapper) == offsets(3)


def test_backup_only_ever_holds_what_has_reached_the_disk(disk: MemoryDisk) -> None:
    file = ConfigFile(MAIN, disk=disk)
    file.write(offsets(1))
    file.sync()
    for value in (2, 3, 4):
        file.write(offsets(value))
    assert b"{0:1" in read(disk, BACKUP)
    file.sync()
    file.write(offsets(5))
    assert b"{0:4" in read(disk, BACKUP)


def test_what_is_written_during_a_sync_does_not_count_as_synced(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ConfigFile(MAIN, disk=disk)
    file.write(offsets(1))
    file.sync()
    file.write(offsets(2))
    # As when `sync` runs in a worker thread.
    monkeypatch.setattr(disk, "sync_directory", lambda path: file.write(offsets(3)))
    file.sync()
    file.write(offsets(4))
    assert b"{0:1" in read(disk, BACKUP)


@pytest.mark.parametrize("run", VERSIONS)
@pytest.mark.parametrize("main_is_there", [True, False])
def test_apache_files_are_read(run: str, main_is_there: bool, tmp_path: Path) -> None:
    from rocketrio_broker.store.disk import InlineDisk

    root = unpack_store(run, "master", tmp_path)
    path = root / "config" / "consumerOffset.json"
    if not main_is_there:
        path.write_bytes(b"")
    stored = ConfigFile(path, disk=InlineDisk()).load(ConsumerOffsetWrapper)
    assert stored is not None
    assert stored.offset_table["orders@pullers"] == {0: 3}


@pytest.mark.parametrize(
    ("step", "where"), [("create", "*"), ("rename", str(BACKUP)), ("rename", str(MAIN))]
)
def test_a_write_that_fails_names_the_file_and_changes_nothing(
    step: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk(where=where)
    file = ConfigFile(MAIN, disk=disk)
    file.write(offsets(1))
    file.sync()
    disk.fails_at = step
    for _ in range(3):
        with pytest.raises(
            ConfigFileError, match=r"consumerOffset\.json cannot be written: \[Errno 28"
        ):
            file.write(offsets(2))
    assert not disk.exists(MAIN.with_name(MAIN.name + ".tmp"))
    disk.fails_at = ""
    assert ConfigFile(MAIN, disk=disk).load(ConsumerOffsetWrapper) == offsets(1)
    file.write(offsets(3))
    assert ConfigFile(MAIN, disk=disk).load(ConsumerOffsetWrapper) == offsets(3)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_content_that_could_not_be_synced_is_written_again() -> None:
    """A sync that follows a failed one may succeed without having written anything."""
    disk = FailingDisk()
    file = ConfigFile(MAIN, disk=disk)
    file.write(offsets(1))
    file.write(offsets(2))
    disk.fails_at = "sync_directory"
    with pytest.raises(ConfigFileError, match="cannot be synced"):
        file.sync()
    disk.fails_at = ""
    before = disk.files[MAIN]
    file.renew()
    assert disk.files[MAIN] is not before
    file.sync()
    file.renew()
    assert ConfigFile(MAIN, disk=disk).load(ConsumerOffsetWrapper) == offsets(2)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0])
def test_power_cut_after_the_first_writes_leaves_no_unreadable_file(
    kept: float, count: int
) -> None:
    """A broker with messages does not start with an unreadable one, so no crash may leave it."""
    for seed in range(50):
        disk = FaultyDisk()
        file = ConfigFile(MAIN, disk=disk)
        for number in range(count):
            file.write(offsets(number))
        again = ConfigFile(MAIN, disk=disk.after_cut(seed, kept))
        found = again.load(ConsumerOffsetWrapper)
        assert found in [offsets(number) for number in range(count)] or not again.unreadable


@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0])
def test_power_cut_leaves_the_synced_content_or_a_later_one(kept: float) -> None:
    """However often it was written since: the synced one is moved aside, and both names may be on the disk or not."""
    for seed in range(50):
        disk = FaultyDisk()
        file = ConfigFile(MAIN, disk=disk)
        file.write(offsets(1))
        file.sync()
        written = [offsets(number) for number in range(2, 3 + seed % 3)]
        for content in written:
            file.write(content)
        found = ConfigFile(MAIN, disk=disk.after_cut(seed, kept)).load(ConsumerOffsetWrapper)
        assert found in [offsets(1), *written]
