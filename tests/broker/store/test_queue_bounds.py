"""What a start takes from the recorded bounds of queues."""

from tests.support.stores import ROOT, kill, opened, put_of, read_all, stored

from rocketrio_broker.store.queue_bounds import BOUNDS_FILE
from rocketrio_broker.testing.memory_disk import MemoryDisk

TOPICS = [f"t{number}" for number in range(20)]


async def filled(disk: MemoryDisk, rounds: int = 3) -> None:
    async with opened(disk) as store:
        for number in range(rounds):
            for topic in TOPICS:
                stored(store.append(put_of(b"%d" % number, topic)))


async def test_after_a_kill_newer_entries_are_made_again() -> None:
    disk = MemoryDisk()
    await filled(disk)
    async with opened(disk) as store:
        await store.checkpoint()
        stored(store.append(put_of(b"late", "t7")))
        store.queue_table.by_key["t7", 0].write_tail()
        bounds = disk.open(ROOT / BOUNDS_FILE)
        before = bounds.pread(bounds.size, 0)
        checkpoint = disk.open(ROOT / "checkpoint").pread(512, 0)
    # As it was when the process was killed.
    disk.open(ROOT / "checkpoint").pwrite(checkpoint, 0)
    disk.unlink(ROOT / BOUNDS_FILE)
    disk.open(ROOT / BOUNDS_FILE, create=True).pwrite(before, 0)
    kill(disk)
    async with opened(disk) as store:
        assert len(read_all(store, "t7")) == 4


async def test_what_was_written_beyond_the_bounds_and_lost_in_the_log_is_wiped_at_the_next_write() -> (
    None
):
    disk = MemoryDisk()
    await filled(disk)
    path = ROOT / "consumequeue" / "t1" / "0" / f"{0:020d}"
    # Two entries that no message belongs to: the power went before their messages were on the disk.
    disk.open(path).pwrite(b"\x01" * 40, 3 * 20)
    kill(disk)
    async with opened(disk) as store:
        assert store.queue_bounds("t1", 0) == (0, 3)
        assert stored(store.append(put_of(b"3", "t1"))).queue_offset == 3
    assert not any(disk.open(path).pread(1000, 4 * 20))
    disk.unlink(ROOT / BOUNDS_FILE)
    async with opened(disk) as store:
        assert store.queue_bounds("t1", 0) == (0, 4)


async def test_bounds_are_ignored_if_damaged_or_if_another_broker_wrote_since() -> None:
    for damage in ("trailer", "bounds"):
        disk = MemoryDisk()
        await filled(disk)
        if damage == "trailer":
            disk.open(ROOT / "checkpoint").pwrite(bytes(256), 256)
        else:
            disk.open(ROOT / BOUNDS_FILE).pwrite(b"}", 40)
        async with opened(disk) as store:
            assert all(len(read_all(store, topic)) == 3 for topic in TOPICS)
