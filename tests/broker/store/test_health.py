"""Damage in the log of an open store: what it refuses, what it goes on serving, what the next start makes of it."""

import logging
import random

import pytest
import trio
from tests.support.stores import ROOT, body_of, opened, put_of, read_all, stored
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.store.errors import LogDamagedError
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_message import PutStatus
from rocketrio_broker.testing.memory_disk import MemoryDisk

ABORT = ROOT / "abort"
MAGIC_AT = 4
QUEUE_OFFSET = range(20, 28)


async def log_of(messages: int) -> tuple[bytearray, list[int]]:
    """The bytes of a log in one file, and where each record begins."""
    async with opened(MemoryDisk()) as store:
        starts = [
            stored(store.append(put_of(b"%d" % number, properties=b"KEYS\1k"))).physical_offset
            for number in range(messages)
        ]
        view = store.read_log(0, 1 << 20)
        assert view is not None
        return bytearray(view), starts


def found(store: MessageStore) -> list[bytes]:
    return [body_of(record) for record in read_all(store, "orders")]


def keyed(store: MessageStore) -> int:
    return len(store.query_message("orders", "k", 64, 0, 1 << 62).buffers)


async def test_slave_serves_what_lies_before_damage_and_takes_nothing_more(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log, starts = await log_of(20)
    log[starts[12] + MAGIC_AT] ^= 0xFF
    async with opened(MemoryDisk()) as store:
        store.begin_replication()
        store.append_raw(0, log[:-10])
        await trio.sleep(1)
        assert store.health.damage is not None
        assert store.health.damage.physical_offset == starts[12]
        assert found(store) == [b"%d" % number for number in range(12)]
        assert keyed(store) == 12
        with pytest.raises(LogDamagedError, match="start the broker again"):
            store.append_raw(store.max_physical_offset, log[-10:])
        assert store.max_physical_offset == len(log) - 10
        await trio.sleep(300)
        assert found(store)[-1] == b"11"
        assert f"damaged at {starts[12]}" in store.runtime_info()["commitLogDamage"]
    lines = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(lines) == 1
    assert f"directory={ROOT} at={starts[12]}" in lines[0].getMessage()


async def test_next_start_cuts_the_damage_off_and_replication_continues(
    autojump_clock: MockClock,
) -> None:
    log, starts = await log_of(20)
    damaged = bytearray(log)
    damaged[starts[12] + MAGIC_AT] ^= 0xFF
    disk = MemoryDisk()
    async with opened(disk) as store:
        store.begin_replication()
        store.append_raw(0, damaged)
        await trio.sleep(120)  # a checkpoint comes in between
    assert ABORT in disk.files
    async with opened(disk) as store:
        store.begin_replication()
        assert store.max_physical_offset == starts[12]
        assert store.health.is_good
        store.append_raw(starts[12], log[starts[12] :])
        await wait_all_tasks_blocked()
        assert len(found(store)) == 20
        await trio.sleep(1)
        assert keyed(store) == 20
    assert ABORT not in disk.files


async def test_master_with_damage_refuses_sends_and_serves_reads(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        for number in range(20):
            stored(store.append(put_of(b"%d" % number)))
        # The disk or the memory lost bits, before the index has come there.
        at = store.queue_table.by_key["orders", 0].entry(12)
        assert at is not None
        store.commit_log.files.files[0].mapping[at[0] + MAGIC_AT] ^= 0xFF
        await trio.sleep(1)
        refused = store.append(put_of())
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert f"damaged at {at[0]}" in refused.remark
        assert not store.writable
        assert len(read_all(store, "orders")) == 20
        end = store.max_physical_offset
        assert store.read_log(0, 1 << 20) == store.commit_log.read(0, at[0])
        assert store.read_log(at[0], 1 << 20) is None
        assert store.read_log(at[0] + 1, 1 << 20) is not None
    assert ABORT in disk.files
    async with opened(disk) as store:
        # The stop had synced it all: a restart takes nothing away.
        assert store.max_physical_offset == end
        assert store.next_queue_offset("orders", 0) == 20
        await trio.sleep(1)
        assert "damaged" in store.refusal


async def test_cutting_the_damage_off_opens_the_store_again(autojump_clock: MockClock) -> None:
    log, starts = await log_of(20)
    log[starts[12] + MAGIC_AT] ^= 0xFF
    disk = MemoryDisk()
    async with opened(disk) as store:
        store.begin_replication()
        store.append_raw(0, log)
        await trio.sleep(1)
        store.end_replication()  # what it cannot read it gives up
        assert store.max_physical_offset == starts[12]
        stored(store.append(put_of(b"mine", properties=b"KEYS\1k")))
        await trio.sleep(1)
        assert len(found(store)) == 13
        assert keyed(store) == 13
    assert ABORT not in disk.files


@pytest.mark.parametrize("seed", range(10))
async def test_damaged_bytes_of_a_master_do_not_end_a_slave(
    seed: int, autojump_clock: MockClock
) -> None:
    """Bytes are wrong anywhere: what cannot be read is damage or no message of a queue, never a fault."""
    rng = random.Random(seed)
    log, starts = await log_of(40)
    first = len(log)
    for _ in range(rng.choice([1, 1, 3, 30])):
        at = rng.randrange(len(log))
        if at - max(start for start in starts if start <= at) in QUEUE_OFFSET:
            continue  # No checksum covers it, and a queue that jumps far ahead begins there.
        first = min(first, at)
        log[at] = rng.randrange(256)
    whole = sum(1 for start in starts[1:] if start <= first)
    disk = MemoryDisk()
    async with opened(disk) as store:
        store.begin_replication()
        for start in range(0, len(log), 700):
            try:
                store.append_raw(start, log[start : start + 700])
            except LogDamagedError:
                break
            await trio.sleep(rng.choice([0.0, 0.05]))
        await trio.sleep(70)
        assert found(store)[:whole] == [b"%d" % number for number in range(whole)]
    async with opened(disk) as store:
        assert found(store)[:whole] == [b"%d" % number for number in range(whole)]
