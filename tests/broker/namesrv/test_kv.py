from pathlib import Path

import pytest
import trio
from tests.broker.builders import config_file
from tests.support.failing_disk import FailingDisk

from rocketrio_broker.namesrv.kv import (
    ENTRIES_LIMIT,
    FILE_SIZE_LIMIT,
    SIZE_LIMIT,
    VALUE_SIZE_LIMIT,
    WRITE_RATE,
    KVConfigFullError,
    KVConfigManager,
)
from rocketrio_broker.tables.config_file import ConfigFileError
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.errors import ConfigError

PATH = Path("/data/config/kvConfig.json")


def loaded(disk: MemoryDisk) -> KVConfigManager:
    table = KVConfigManager(file=config_file(PATH.name, disk))
    table.load()
    return table


async def test_values_survive_a_restart(autojump_clock: trio.testing.MockClock) -> None:
    disk = MemoryDisk()
    first = loaded(disk)
    await first.put("N", "k", "v")
    await first.put("N", "gone", "v")
    await first.delete("N", "gone")
    again = loaded(disk)
    assert again.value("N", "k") == "v"
    assert again.value("N", "gone") is None
    assert again.namespace_json("N") == b'{"table":{"k":"v"}}'


async def test_keys_that_were_never_put_are_not_found() -> None:
    table = KVConfigManager()
    table.load()
    await table.delete("N", "k")
    assert table.value("N", "k") is None
    assert table.namespace_json("N") is None


async def test_an_answered_change_is_in_the_file_and_what_is_read_is_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    table = loaded(disk)
    await table.put("N", "k", "old")
    assert table.namespace_json("N") == b'{"table":{"k":"old"}}'
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.put, "N", "k", "new")
        await trio.testing.wait_all_tasks_blocked()
        assert table.value("N", "k") == loaded(disk).value("N", "k")
    assert loaded(disk).value("N", "k") == "new"
    assert table.namespace_json("N") == b'{"table":{"k":"new"}}'


async def test_many_changes_are_written_together_and_at_a_limited_rate(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = FailingDisk()
    table = loaded(disk)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(1_000):
            nursery.start_soon(table.put, "N", str(number), "v" * 1000)
    assert loaded(disk).value("N", "999") == "v" * 1000
    assert disk.steps["rename", PATH] <= 3
    for number in range(10):
        await table.put("N", str(number), "w")
    # A million bytes each time.
    assert trio.current_time() - start > 9 * 1_000_000 / WRITE_RATE


async def test_a_change_that_the_disk_cannot_hold_is_not_made(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    table = loaded(disk)
    await table.put("N", "k", "old")
    disk.is_full = True
    failures = []

    async def fail(value: str) -> None:
        with pytest.raises(ConfigFileError) as failure:
            await table.put("N", "k", value)
        failures.append(failure)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail, "a")
        nursery.start_soon(fail, "b")
    assert len(failures) == 2
    disk.is_full = False
    await table.put("N", "other", "v")
    assert loaded(disk).namespace_json("N") == b'{"table":{"k":"old","other":"v"}}'


async def test_neither_entries_nor_bytes_nor_namespaces_grow_without_end() -> None:
    table = KVConfigManager()
    with pytest.raises(KVConfigFullError, match=str(VALUE_SIZE_LIMIT)):
        await table.put("N", "k", "v" * (VALUE_SIZE_LIMIT + 1))
    with pytest.raises(KVConfigFullError, match="namespace and key"):
        await table.put("N", "k" * 600, "v")
    largest = "v" * VALUE_SIZE_LIMIT
    for number in range(SIZE_LIMIT // VALUE_SIZE_LIMIT - 1):
        await table.put(str(number), "k", largest)
    await table.put("0", "k", largest)  # What is replaced makes room.
    with pytest.raises(KVConfigFullError, match="full"):
        await table.put("N", "k", largest)
    await table.delete("0", "k")
    assert table.namespace_json("0") is None
    await table.put("N", "k", largest)


@pytest.mark.slow
async def test_all_entries_fit_one_answer_whatever_is_in_them() -> None:
    table = KVConfigManager()
    with pytest.raises(KVConfigFullError, match="full"):  # noqa: PT012
        for number in range(ENTRIES_LIMIT):
            await table.put("N", str(number), "\x01" * VALUE_SIZE_LIMIT)
    body = table.namespace_json("N")
    assert body is not None
    assert len(body) <= SIZE_LIMIT


@pytest.mark.slow
async def test_entries_that_wait_to_be_written_count(
    autojump_clock: trio.testing.MockClock,
) -> None:
    table = loaded(MemoryDisk())
    for start in range(0, ENTRIES_LIMIT, 1_000):
        async with trio.open_nursery() as nursery:
            for number in range(start, start + 1_000):
                nursery.start_soon(table.put, "N", str(number), "")
    with pytest.raises(KVConfigFullError, match=str(ENTRIES_LIMIT)):
        await table.put("N", "one more", "")
    await table.put("N", "0", "changed")


async def test_file_larger_than_a_name_server_writes_is_not_read() -> None:
    disk = MemoryDisk()
    disk.make_directory(PATH.parent)
    disk.open(PATH, create=True).truncate(FILE_SIZE_LIMIT + 1)
    with pytest.raises(ConfigError, match="move the file away"):
        loaded(disk)


async def test_what_is_too_much_in_a_file_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    config_file(PATH.name, disk).write_bytes(
        b'{"configTable":{"N":{"large":"%s","k":"v"}}}' % (b"v" * (VALUE_SIZE_LIMIT + 1))
    )
    table = loaded(disk)
    assert table.value("N", "k") == "v"
    assert table.value("N", "large") is None
    assert "left out" in caplog.text
