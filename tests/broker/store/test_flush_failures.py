"""Disks that refuse a write or a sync: what waits for the next round, and what ends the store."""

import attrs
import pytest
import trio
from tests.support.failing_disk import FailingDisk
from tests.support.stores import ROOT, SMALL, opened, put_of, read_all, stored

from rocketrio_broker.store.checkpoint import read_checkpoint
from rocketrio_broker.store.errors import NotClosedError, NotOpenedError, SyncFailedError

CHECKPOINT = ROOT / "checkpoint"


@pytest.mark.parametrize(
    ("fails_at", "word"),
    [("pwrite", "consumequeue"), ("pwrite", "checkpoint"), ("fdatasync", "checkpoint")],
)
async def test_full_disk_during_a_checkpoint_delays_it(
    fails_at: str, word: str, autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    config = attrs.evolve(SMALL, flush_consume_queue_thorough_interval=2.0)
    async with opened(disk, config) as store:
        end = stored(store.append(put_of())).end_offset
        stored(store.append(put_of(queue_id=1)))
        disk.fails_at, disk.where = fails_at, f"*{word}*"
        await trio.sleep(60)
        assert store.writable
        assert len(read_all(store, "orders")) == 1
        positions = read_checkpoint(disk, CHECKPOINT).positions
        assert fails_at == "fdatasync" or positions is None or positions.queue_position < end
        disk.fails_at = ""
        await trio.sleep(5)
        positions = read_checkpoint(disk, CHECKPOINT).positions
        assert positions is not None
        assert positions.queue_position == store.max_physical_offset
    assert [record.levelname for record in caplog.records if record.levelno > 20] == ["WARNING"] * 2


async def test_queue_that_cannot_be_written_holds_no_other_up(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk = FailingDisk()
    async with opened(disk) as store:
        for topic in ("a-bad-one", "orders"):
            stored(store.append(put_of(topic=topic)))
        disk.fails_at, disk.where = "pwrite", "*a-bad-one*"
        await trio.sleep(62)
        assert [bool(queue.unwritten_size) for queue in store.queue_table] == [True, False]
        disk.fails_at = ""
        await trio.sleep(2)
        assert [bool(queue.unwritten_size) for queue in store.queue_table] == [False, False]


@pytest.mark.parametrize("word", ["commitlog", "consumequeue", "index"])
async def test_sync_that_fails_ends_the_store_and_leaves_it_as_crashed(
    word: str, autojump_clock: trio.abc.Clock
) -> None:
    disk = FailingDisk()
    config = attrs.evolve(SMALL, flush_consume_queue_thorough_interval=2.0)

    async def run() -> None:
        async with opened(disk, config) as store:
            stored(store.append(put_of(properties=b"KEYS\1k")))
            disk.fails_at, disk.where = "fdatasync", f"*{word}*"
            await trio.sleep_forever()

    with pytest.raises(SyncFailedError, match=r"a sync failed: .*No space.*recovery finds"):
        await run()
    assert ROOT / "abort" in disk.files
    disk.fails_at = ""
    async with opened(disk, config) as store:
        assert len(read_all(store, "orders")) == 1


async def test_stop_on_a_full_disk_is_reported_and_loses_nothing(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk = FailingDisk()

    async def run() -> None:
        async with opened(disk) as store:
            stored(store.append(put_of()))
            disk.fails_at, disk.where = "pwrite", "*consumequeue*"

    with pytest.raises(NotClosedError, match=r"/data was not closed: .*No space"):
        await run()
    assert ROOT / "abort" in disk.files
    with pytest.raises(NotOpenedError, match=r"/data was not opened: .*No space"):
        await run()
    disk.fails_at = ""
    async with opened(disk) as store:
        assert len(read_all(store, "orders")) == 1
