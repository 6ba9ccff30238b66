"""Run by `test_full_tmpfs.py` in a mount namespace of its own: a store on a tmpfs that gets full, and room again.

Prints a line a step; a process that touches a hole of a mapped file there dies with SIGBUS instead.
"""

import sys
from contextlib import suppress
from pathlib import Path

import trio

from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.store.errors import NotClosedError, NotOpenedError
from rocketrio_broker.store.message_store import MessageStore, open_message_store
from rocketrio_broker.store.put_message import PutMessage, PutStatus
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.remoting.ports import SystemWallClock

HOST = pack_host("127.0.0.1", 10911)
CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=4000,
    max_hash_slot_num=5000,
    max_index_num=500,
    clean_file_forcibly_enable=False,
    disk_space_warning_level_ratio=100,
)


def put(store: MessageStore, count: int) -> int:
    """How many of them were stored."""
    stored = 0
    for number in range(count):
        result = store.append(
            PutMessage(
                topic="orders",
                queue_id=0,
                body=b"x" * 200,
                properties=b"KEYS\1k%d" % number,
                born_time_ms=1,
                born_host=HOST,
                store_host=HOST,
            )
        )
        stored += result.status is PutStatus.PUT_OK
    return stored


def fill(path: Path) -> None:
    """Take the last block."""
    with path.open("ab", buffering=0) as file:
        for size in (1 << 16, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


async def main(root: Path) -> None:
    def opened() -> "trio.abc.AsyncResource":
        return open_message_store(  # type: ignore[return-value]
            CONFIG, root / "store", disk=InlineDisk(), wall_clock=SystemWallClock()
        )

    filler = root / "filler"
    # Whether the last checkpoint and the start find room is chance. Where they do not they say so, and lose nothing.
    with suppress(NotClosedError):
        async with opened() as store:
            assert put(store, 300) == 300
            await trio.sleep(0.3)
            fill(filler)
            print("stored on a full disk", put(store, 20_000), flush=True)
            await trio.sleep(0.5)
            found = store.query_message("orders", "k7", 32, 0, 1 << 62)
            print("found", len(found.buffers), flush=True)
            filler.unlink()
            await trio.sleep(1.5)
            assert put(store, 300) == 300
            end = store.max_physical_offset
            await trio.sleep(0.5)
            fill(filler)
    print("closed on a full disk", flush=True)
    with suppress(NotOpenedError, NotClosedError):
        async with opened() as store:
            print("opened on a full disk", flush=True)
            put(store, 5000)
            await trio.sleep(0.5)
    filler.unlink()
    async with opened() as store:
        assert store.max_physical_offset >= end
        assert put(store, 300) == 300
        await trio.sleep(0.5)
    print("done", flush=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
