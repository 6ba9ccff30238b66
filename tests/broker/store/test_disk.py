"""The same behaviour of every disk, so that what holds in memory holds on the real one."""

import errno
import stat
from pathlib import Path

import pytest
import trio

from rocketrio_broker.store.disk import Disk, InlineDisk, OSFile, RealDisk
from rocketrio_broker.testing.memory_disk import MemoryDisk


@pytest.fixture(params=[InlineDisk, MemoryDisk], ids=["inline", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    made: Disk = request.param()
    made.make_directory(tmp_path)
    return made


def test_bytes_written_and_mapped_are_the_same_bytes(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a", create=True)
    file.truncate(8192)
    mapping = file.map()
    mapping[10:14] = b"abcd"
    assert disk.open(tmp_path / "a").pread(6, 9) == b"\0abcd\0"
    file.pwrite(b"XY", 11)
    assert mapping[10:14] == b"aXYd"
    assert file.size == 8192


def test_read_beyond_the_end_is_short(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a", create=True)
    file.pwrite(b"abc", 0)
    assert file.pread(10, 1) == b"bc"
    assert file.pread(10, 3) == b""


def test_missing_file_is_an_error_and_missing_folder_is_empty(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(tmp_path / "none")
    assert disk.list_directory(tmp_path / "none") == []
    disk.unlink(tmp_path / "none")


def test_clear_from_leaves_the_length(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a", create=True)
    file.truncate(3 << 20)
    mapping = file.map()
    mapping[100:200] = b"x" * 100
    mapping[2 << 20 : (2 << 20) + 3] = b"end"
    file.clear_from(150)
    assert file.size == 3 << 20
    assert mapping[100:150] == b"x" * 50
    assert not any(mapping[150:])


def test_mapping_outlives_close_and_unlink(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a", create=True)
    file.truncate(4096)
    view = memoryview(file.map())
    view[0:3] = b"abc"
    file.close()
    disk.unlink(tmp_path / "a")
    assert view[0:3] == b"abc"


def test_rename_replaces_an_existing_file(disk: Disk, tmp_path: Path) -> None:
    disk.open(tmp_path / "a", create=True).pwrite(b"new", 0)
    disk.open(tmp_path / "b", create=True).pwrite(b"old!", 0)
    disk.rename(tmp_path / "a", tmp_path / "b")
    disk.sync_directory(tmp_path)
    assert disk.list_directory(tmp_path) == ["b"]
    assert disk.open(tmp_path / "b").pread(9, 0) == b"new"


def test_only_an_empty_folder_is_removed(disk: Disk, tmp_path: Path) -> None:
    disk.make_directory(tmp_path / "x" / "y")
    disk.remove_directory(tmp_path / "x")
    assert disk.is_directory(tmp_path / "x")
    disk.remove_directory(tmp_path / "x" / "y")
    disk.remove_directory(tmp_path / "x")
    assert not disk.exists(tmp_path / "x")


def test_lock_keeps_a_second_one_out_and_holds_the_word_lock(disk: Disk, tmp_path: Path) -> None:
    lock = disk.lock(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        disk.lock(tmp_path / "lock")
    assert disk.open(tmp_path / "lock").pread(9, 0) == b"lock"
    lock.release()
    disk.lock(tmp_path / "lock").release()


def test_numbers_of_the_machine_make_sense(disk: Disk, tmp_path: Path) -> None:
    total, free = disk.capacity(tmp_path)
    assert 0 <= free <= total
    assert 0 <= disk.used_ratio(tmp_path) <= 1
    assert disk.physical_memory() > 1 << 20


def test_reserving_beyond_the_disk_is_an_error(tmp_path: Path) -> None:
    file = InlineDisk().open(tmp_path / "a", create=True)
    with pytest.raises(OSError, match=r"space|large") as caught:
        file.reserve(0, 1 << 50)
    assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)


def test_a_file_closed_during_its_sync_needs_none(tmp_path: Path) -> None:
    file = InlineDisk().open(tmp_path / "a", create=True)
    file.close()
    file.fdatasync()
    assert isinstance(file, OSFile)


@pytest.mark.real
async def test_real_disk_blocks_in_a_thread_not_in_the_loop() -> None:
    import threading

    loop = threading.get_ident()
    assert await RealDisk().run(threading.get_ident) != loop
    assert await InlineDisk().run(threading.get_ident) == loop
    await trio.lowlevel.checkpoint()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_is_made_only_this_user_can_read(usual_umask: None, tmp_path: Path) -> None:
    disk = InlineDisk()
    folder = tmp_path / "made" / "on" / "the way"
    disk.make_directory(folder)
    disk.make_directory(folder)
    disk.open(folder / "file", create=True).close()
    disk.lock(folder / "lock").release()
    made = [path for path in (tmp_path / "made").rglob("*") if path.is_dir()]
    assert {mode_of(path) for path in (tmp_path / "made", *made)} == {0o700}
    assert {mode_of(folder / name) for name in ("file", "lock")} == {0o600}


def test_make_directory_keeps_a_folder_and_refuses_a_file(tmp_path: Path) -> None:
    disk = InlineDisk()
    (tmp_path / "old").mkdir(0o755)
    (tmp_path / "old").chmod(0o755)
    disk.make_directory(tmp_path / "old" / "new")
    assert mode_of(tmp_path / "old") == 0o755
    assert [disk.is_open_to_others(tmp_path / name) for name in ("old", "old/new")] == [True, False]
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        disk.make_directory(tmp_path / "file")


def test_file_is_not_opened_through_a_link(tmp_path: Path) -> None:
    disk = InlineDisk()
    (tmp_path / "elsewhere").write_text("what is there")
    for name, target in (("link", "elsewhere"), ("dangling", "nothing")):
        (tmp_path / name).symlink_to(tmp_path / target)
        for create in (False, True):
            with pytest.raises(OSError, match="symbolic links"):
                disk.open(tmp_path / name, create=create)
        with pytest.raises(OSError, match="symbolic links"):
            disk.lock(tmp_path / name)
    assert (tmp_path / "elsewhere").read_text() == "what is there"
    assert not (tmp_path / "nothing").exists()
    assert disk.links_in(tmp_path) == ["dangling", "link"]
    assert disk.links_in(tmp_path / "elsewhere") == disk.links_in(tmp_path / "nothing") == []


@pytest.mark.parametrize("name", ["x", "x/y/z"])
def test_folder_that_the_system_makes_for_no_one_is_one_error(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="/proc/x"):
        InlineDisk().make_directory(Path("/proc") / name)
