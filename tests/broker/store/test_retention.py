from functools import partial
from typing import Any

import attrs
import pytest
import trio
from tests.support.clocks import SettableClock
from tests.support.stores import SMALL, opened, put_of, read_all, stored

from rocketrio_broker.offsets.manager import count_unread
from rocketrio_broker.offsets.table import OffsetTable
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.store import acknowledged, clock_watch, consume_queue_table
from rocketrio_broker.store.clock_watch import SETTLES_AFTER
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_batch import mixed_entries
from rocketrio_broker.store.put_message import PutStatus
from rocketrio_broker.store.retention import count_deletable
from rocketrio_broker.testing.memory_disk import MemoryDisk

HOUR_MS = 3_600_000
NOW = 1000 * HOUR_MS
CONFIG = StoreConfig(file_reserved_time=72.0, delete_when="04;16")
RARELY: dict[str, Any] = {
    "clean_resource_interval": 60.0,
    "flush_interval_commit_log": 600.0,
    "flush_interval_consume_queue": 600.0,
}
"""For tests that last days."""


@pytest.fixture
def looks_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks each second at clocks and acknowledgements would be most of what such a test does."""
    monkeypatch.setattr(clock_watch, "CHECK_INTERVAL", RARELY["clean_resource_interval"])
    monkeypatch.setattr(acknowledged, "SYNC_PERIOD", RARELY["clean_resource_interval"])


def deletable(ages_hours: list[float], *, hour: int = 12, used: float = 10.0) -> int:
    times = [int(NOW - age * HOUR_MS) for age in ages_hours]
    return count_deletable(times, now_ms=NOW, hour=hour, used_percent=used, config=CONFIG)


@pytest.mark.parametrize(
    ("ages", "hour", "used", "count"),
    [
        ([100, 80, 72, 71, 1], 4, 10.0, 3),
        ([100, 80, 72, 71, 1], 16, 10.0, 3),
        ([100, 80, 72, 71, 1], 12, 10.0, 0),
        ([100, 80, 71, 1], 12, 75.0, 0),
        ([100, 80, 71, 1], 12, 75.1, 2),
        ([100, 80, 71, 1], 12, 85.1, 4),
        ([100] * 30, 4, 10.0, 10),
        ([1] * 30, 4, 99.0, 10),
        ([], 4, 99.0, 0),
    ],
)
def test_which_files_go(ages: list[float], hour: int, used: float, count: int) -> None:
    assert deletable(ages, hour=hour, used=used) == count


def test_young_files_stay_when_force_is_forbidden() -> None:
    config = attrs.evolve(CONFIG, clean_file_forcibly_enable=False)
    times = [NOW - HOUR_MS] * 3
    assert not count_deletable(times, now_ms=NOW, hour=4, used_percent=99.0, config=config)


async def fill(store: MessageStore, clock: SettableClock, count: int = 200) -> None:
    for number in range(count):
        clock.now += 60_000
        stored(
            store.append(put_of(bytes(700), queue_id=number % 2, properties=b"KEYS\1k%d" % number))
        )
    store.key_index.build_all()
    await store.checkpoint()


@pytest.mark.slow
@pytest.mark.usefixtures("looks_rarely")
async def test_old_files_go_with_the_queue_and_index_files_that_named_them(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk, clock = MemoryDisk(), SettableClock()
    config = attrs.evolve(SMALL, max_index_num=30, **RARELY)
    async with opened(disk, config, clock=clock) as store:
        await fill(store, clock)
        before = {folder: names(disk, folder) for folder in ("commitlog", "0", "index")}
        clock.now += 71 * HOUR_MS
        disk.used = 0.8
        await trio.sleep(SETTLES_AFTER - 60)
        assert store.min_physical_offset == 0
        await trio.sleep(3720)
        assert store.min_physical_offset > 0
        for folder, files in before.items():
            left = names(disk, folder)
            assert 0 < len(left) < len(files)
            assert left == files[-len(left) :]
        for queue_id in (0, 1):
            bounds = store.queue_bounds("orders", queue_id)
            assert bounds is not None
            assert bounds[0] > 0
            assert len(read_all(store, "orders", queue_id)) == bounds[1] - bounds[0]
        assert store.earliest_message_time() is not None
        assert not store.query_message("orders", "k0", 32, 0, 1 << 62).buffers
        assert len(store.query_message("orders", "k199", 32, 0, 1 << 62).buffers) == 1
    async with opened(disk, attrs.evolve(SMALL, max_index_num=30), clock=clock) as store:
        assert store.queue_bounds("orders", 0) is not None


def names(disk: MemoryDisk, folder: str) -> list[str]:
    return sorted(path.name for path in disk.files if path.parent.name == folder)


async def test_the_last_file_stays_however_full_the_disk(autojump_clock: trio.abc.Clock) -> None:
    disk, clock = MemoryDisk(), SettableClock()
    async with opened(disk, clock=clock) as store:
        await fill(store, clock)
        disk.used = 0.99
        await trio.sleep(500)
        assert len(store.commit_log.files.files) == 1
        assert read_all(store, "orders")


async def test_nothing_goes_that_a_recovery_would_need(autojump_clock: trio.abc.Clock) -> None:
    disk, clock = MemoryDisk(), SettableClock()
    config = attrs.evolve(SMALL, flush_consume_queue_thorough_interval=1e6)
    async with opened(disk, config, clock=clock) as store:
        for _ in range(200):
            stored(store.append(put_of(bytes(700))))
        disk.used = 0.99
        await trio.sleep(100)
        assert store.min_physical_offset == 0
        await store.checkpoint()
        await trio.sleep(100)
        assert store.min_physical_offset > 0


async def test_nearly_full_disk_refuses_until_there_is_room(autojump_clock: trio.abc.Clock) -> None:
    disk = MemoryDisk()
    disk.used = 0.91
    async with opened(disk) as store:
        assert not store.writable
        refused = store.append(put_of())
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "91.0 % full" in refused.remark
        assert store.append_batch(put_of(), mixed_entries([(0, b"", b"")])).status is refused.status
        disk.used = 0.9
        await trio.sleep(11)
        assert store.writable
        stored(store.append(put_of()))


@pytest.mark.parametrize("later", [0.0, 0.01])
async def test_two_concurrent_passes_delete_only_what_one_would(
    later: float, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queue_table, "QUEUES_A_STEP", 1)
    disk, clock = MemoryDisk(), SettableClock()
    async with opened(disk, clock=clock) as store:
        await fill(store, clock)
        third = store.commit_log.files.files[3].start_offset
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store._retention.delete_files, 3)
            await trio.sleep(later)  # The second takes what the first has not got to.
            nursery.start_soon(store._retention.delete_files, 2 if later else 3)
        assert store.min_physical_offset == third


async def test_queues_show_nothing_that_is_gone_while_many_give_up_a_file(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do so in steps, between which others have their turn."""
    monkeypatch.setattr(consume_queue_table, "QUEUES_A_STEP", 1)
    disk, clock = MemoryDisk(), SettableClock()
    async with opened(disk, clock=clock) as store:
        await fill(store, clock)
        keys = list(store.queue_table.by_key)
        lows, turns = set(), 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store._retention.delete_files, 3)
            while len(store.commit_log.files.files) > 3 and turns < 1000:
                for topic, queue_id in keys:
                    bounds = store.queue_bounds(topic, queue_id)
                    assert bounds is not None
                    lows.add((queue_id, bounds[0]))
                    found = store.get_message(topic, queue_id, bounds[0], 1)
                    assert found.message_count == 1
                turns += 1
                await trio.lowlevel.checkpoint()
                if turns % 10 == 0:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert len(lows) > 4


async def test_clock_that_jumps_ahead_deletes_nothing(autojump_clock: trio.abc.Clock) -> None:
    disk, clock = MemoryDisk(), SettableClock()
    async with opened(disk, clock=clock) as store:
        await fill(store, clock)
        disk.used = 0.8
        clock.now += 40 * 24 * HOUR_MS
        await trio.sleep(15)
        assert await store.delete_old_files() == 0
        clock.now -= 40 * 24 * HOUR_MS
        await trio.sleep(15)
    clock.now += 40 * 24 * HOUR_MS
    async with opened(disk, clock=clock) as store:
        await trio.sleep(15)
        assert store.min_physical_offset == 0
        # Who asks for it has looked at the clock.
        assert await store.delete_old_files() > 0


@pytest.mark.slow
@pytest.mark.usefixtures("looks_rarely")
async def test_files_with_times_in_the_future_are_as_old_as_they_are_known(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk, clock = MemoryDisk(), SettableClock()
    config = attrs.evolve(SMALL, file_reserved_time=2.0, **RARELY)
    async with opened(disk, config, clock=clock) as store:
        start_ms = clock.now
        clock.now += 400 * 24 * HOUR_MS
        await fill(store, clock)
        clock.now = start_ms
        disk.used = 0.8
        await trio.sleep(100)
        assert store.min_physical_offset == 0
        for _ in range(30):
            clock.now += HOUR_MS
            await trio.sleep(HOUR_MS / 1000)
        assert store.min_physical_offset > 0


async def test_files_deleted_early_are_logged_with_their_unread_messages(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    disk, clock = MemoryDisk(), SettableClock()
    offsets = OffsetTable()
    offsets.commit(("orders", "fast"), 0, 100)
    offsets.commit(("orders", "slow"), 0, 1)
    offsets.commit(("orders", "slow"), 1, 2)
    async with opened(disk, clock=clock) as store:
        store.watch_unread(partial(count_unread, offsets))
        await fill(store, clock)
        disk.used = 0.86
        await trio.sleep(15)
        disk.used = 0.5
        await trio.sleep(15)
        first, second = (store.queue_bounds("orders", queue_id) for queue_id in (0, 1))
        assert first is not None
        assert second is not None
        assert 0 < first[0] < 100
        unread = first[0] - 1 + second[0] - 2
        assert f"messages={first[0] + second[0]} unread={unread} groups=1" in caplog.text
        assert caplog.text.count("the oldest files are deleted before their time") == 1
        assert "disk" not in "".join(store.problems())


async def test_files_that_are_old_go_without_a_warning(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    disk, clock = MemoryDisk(), SettableClock()
    async with opened(disk, attrs.evolve(SMALL, file_reserved_time=0.0), clock=clock) as store:
        await fill(store, clock)
        disk.used = 0.8
        await trio.sleep(15)
        assert store.min_physical_offset > 0
        assert "deleted before time" not in caplog.text


@pytest.mark.parametrize(
    "settings",
    [{"store": StoreConfig(flush_disk_type="sync")}, {"ha_acknowledge": "disk"}],
)
async def test_where_messages_wait_for_disks_none_is_deleted_before_its_time(
    autojump_clock: trio.abc.Clock, settings: dict[str, Any]
) -> None:
    assert BrokerConfig().store_settings.clean_file_forcibly_enable
    forced = BrokerConfig(**settings).store_settings.clean_file_forcibly_enable
    disk, clock = MemoryDisk(), SettableClock()
    config = attrs.evolve(SMALL, clean_file_forcibly_enable=forced)
    async with opened(disk, config, clock=clock) as store:
        await fill(store, clock)
        disk.used = 0.89
        await trio.sleep(15)
        assert store.min_physical_offset == 0
        assert store.writable
        assert "nothing is deleted before its time" in store.problems()[-1]
        disk.used = 0.91
        await trio.sleep(15)
        assert not store.writable
