"""What the store's tests share: small files, one message, one opened store."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.clocks import SettableClock

from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.message_store import MessageStore, open_message_store
from rocketrio_broker.store.put_message import AppendResult, PutMessage, PutStatus
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.record.layout import pack_host

ROOT = Path("/data")
HOST = pack_host("127.0.0.1", 10911)
SMALL = StoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=31,
    max_index_num=200,
)


def put_of(
    body: bytes = b"body", topic: str = "orders", queue_id: int = 0, **more: Any
) -> PutMessage:
    values: dict[str, Any] = {
        "born_time_ms": 1_600_000_000_000,
        "born_host": HOST,
        "store_host": HOST,
        **more,
    }
    return PutMessage(topic=topic, queue_id=queue_id, body=body, **values)


def stored(result: AppendResult) -> AppendResult:
    assert result.status is PutStatus.PUT_OK, result
    return result


@asynccontextmanager
async def opened(
    disk: Disk,
    config: StoreConfig = SMALL,
    *,
    root: Path = ROOT,
    clock: SettableClock | None = None,
) -> AsyncGenerator[MessageStore]:
    async with open_message_store(
        config, root, disk=disk, wall_clock=clock or SettableClock()
    ) as store:
        yield store


def kill(disk: MemoryDisk) -> None:
    """Leave a closed store's files as if its broker had been killed after its checkpoint."""
    disk.open(ROOT / "abort", create=True)


def crash(disk: MemoryDisk, checkpoint: bytes = bytes(512)) -> None:
    """Leave a closed store's files as if its broker had been killed, with this as its last checkpoint."""
    kill(disk)
    disk.open(ROOT / "checkpoint").pwrite(checkpoint, 0)


def read_all(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    """Every record of a queue, through `get_message` as a consumer would."""
    bounds = store.queue_bounds(topic, queue_id)
    if bounds is None:
        return []
    offset, end = bounds
    records: list[bytes] = []
    while offset < end:
        result = store.get_message(topic, queue_id, offset, 32)
        assert result.next_begin_offset > offset, result
        offset = result.next_begin_offset
        for buffer in result.buffers:
            position = 0
            while position < len(buffer):
                size = int.from_bytes(buffer[position : position + 4])
                records.append(bytes(buffer[position : position + size]))
                position += size
    return records


def read_queues(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    """Every record of every queue, by topic and queue id."""
    return {key: read_all(store, *key) for key in store.queue_table.by_key}


def remove(disk: MemoryDisk, path: Path) -> None:
    """Take a file or a folder off the disk."""
    for one in [one for one in disk.files if path in (one, *one.parents)]:
        disk.unlink(one)
    disk.directories = {one for one in disk.directories if path not in (one, *one.parents)}


def body_of(record: bytes) -> bytes:
    """The body of a record with IPv4 hosts."""
    size = int.from_bytes(record[84:88])
    return record[88 : 88 + size]


# The sizes the recorded brokers ran with.
APACHE = StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=6000,
    max_hash_slot_num=997,
    max_index_num=4000,
    file_reserved_time=1e6,
)
