"""The message store: CPU µs to append and to get, log bytes a second when flushing, seconds to recover a GiB.

To hold: append with CRC 0.85-1.3 (128 B) and 1.2-2.3 µs (1 KiB) for the bare log, 32 per pull
430-620 k/s with the network, 1024 contiguous 4.2-7.1 M/s; recovery per GiB 8.2 s (128 B) and 2.5 s (1 KiB).
The data goes to a temporary folder and is removed.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import trio

from rocketrio_broker.store.checkpoint import Checkpoint, Positions, write_checkpoint
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.disk import RealDisk
from rocketrio_broker.store.message_store import MessageStore, open_message_store
from rocketrio_broker.store.put_batch import mixed_entries
from rocketrio_broker.store.put_message import PutMessage
from rocketrio_broker.store.reput import ReputMessageService
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.remoting.ports import SystemWallClock

HOST = pack_host("127.0.0.1", 10911)
PROPERTIES = b"UNIQ_KEY\x017F000001000018B4AAC2%012X\x02TAGS\x01A\x02"
CONFIG = StoreConfig(
    mapped_file_size_commit_log=256 << 20,
    max_transfer_count_on_message_in_memory=1024,
    max_transfer_bytes_on_message_in_memory=64 << 20,
)
SIZES = (128, 1024)
ROUNDS = 5


def report(name: str, value: float, unit: str, **more: object) -> None:
    print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, **more}), flush=True)


def best_cpu_us(work: Callable[[], int]) -> float:
    """The best of a few rounds, in CPU µs for each thing `work` says it did."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        count = work()
        best = min(best, (time.process_time() - start) / count * 1e6)
    return best


def put_of(body: bytes, queue_id: int = 0, number: int = 0) -> PutMessage:
    return PutMessage(
        topic="bench",
        queue_id=queue_id,
        body=body,
        properties=PROPERTIES % number,
        born_time_ms=1_700_000_000_000,
        born_host=HOST,
        store_host=HOST,
    )


def append(store: MessageStore, size: int, count: int) -> None:
    body = bytes(size)

    def singles() -> int:
        for _ in range(count):
            store.append(put_of(body))
        return count

    report("append.single", best_cpu_us(singles), "us", body=size)
    entries: list[tuple[int, bytes, bytes]] = [(0, body, PROPERTIES % 0)] * 32
    common = put_of(b"")
    common.properties = b""

    def batches() -> int:
        for _ in range(count // 32):
            store.append_batch(common, mixed_entries(entries))
        return count // 32 * 32

    report("append.batch32", best_cpu_us(batches), "us", body=size)


def get(store: MessageStore, size: int, per_get: int, count: int) -> None:
    bounds = store.queue_bounds("bench", 0)
    assert bounds is not None
    start = bounds[1] - count

    def gets() -> int:
        taken = 0
        while taken < count:
            taken += store.get_message("bench", 0, start + taken, per_get).message_count
        return taken

    report("get.contiguous", best_cpu_us(gets), "us", body=size, per_get=per_get)


def get_interleaved(store: MessageStore, size: int, count: int) -> None:
    body = bytes(size)
    for number in range(count * 8):
        store.append(put_of(body, 1 + number % 8))

    def gets() -> int:
        taken = 0
        while taken < count:
            taken += store.get_message("bench", 1, taken, 1024).message_count
        return taken

    report("get.interleaved", best_cpu_us(gets), "us", body=size, per_get=1024)


async def index(store: MessageStore, size: int) -> None:
    """What the background index costs for each message."""
    count = 20_000
    store.key_index.build_all()
    for number in range(count):
        store.append(put_of(bytes(size), number % 4, number))
    start = time.process_time()
    store.key_index.build_all()
    report("index.message", (time.process_time() - start) / count * 1e6, "us", body=size)


async def replicate(master: MessageStore, size: int, count: int) -> None:
    """What a slave pays for a message beside copying its bytes, by transfers of this number of messages."""
    for per_transfer in (1, 32, 256, 2048):
        start = master.max_physical_offset
        for number in range(count):
            master.append(put_of(bytes(size), number % 4, number))
        step = (master.max_physical_offset - start) // count * per_transfer
        with tempfile.TemporaryDirectory() as folder:
            disk, clock = RealDisk(), SystemWallClock()
            slave = MessageStore(CONFIG, Path(folder), disk=disk, wall_clock=clock)
            slave.directory.take()
            slave.recover()
            reput = ReputMessageService(slave.commit_log, slave.dispatcher, slave.dispatched)
            spent = 0.0
            at = start
            while (data := master.read_log(at, step)) is not None:
                slave.append_raw(at, data)
                at += len(data)
                before = time.process_time()
                reput.dispatch_all()
                spent += time.process_time() - before
            slave.release()
        report("dispatch.message", spent / count * 1e6, "us", body=size, per_transfer=per_transfer)


async def measure(size: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        disk, clock = RealDisk(), SystemWallClock()
        async with open_message_store(CONFIG, Path(folder), disk=disk, wall_clock=clock) as store:
            await trio.sleep(0.05)
            append(store, size, count)
            for per_get in (32, 1024):
                get(store, size, per_get, count)
            get_interleaved(store, size, max(count // 8, 1024))
            await index(store, size)
            await replicate(store, size, min(count, 20_000))
            start = time.perf_counter()
            await store.wait_flushed(store.max_physical_offset)
            report("flush.all", time.perf_counter() - start, "s", bytes=store.max_physical_offset)


async def recover(size: int, log_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        disk, clock = RealDisk(), SystemWallClock()
        body = bytes(size)
        async with open_message_store(CONFIG, root, disk=disk, wall_clock=clock) as store:
            while store.max_physical_offset < log_bytes:
                for number in range(100):
                    store.append(put_of(body, number % 4, store.max_physical_offset))
                await trio.lowlevel.checkpoint()
            end = store.max_physical_offset
        start = time.perf_counter()
        async with open_message_store(CONFIG, root, disk=disk, wall_clock=clock):
            report("recover.clean", time.perf_counter() - start, "s", body=size, bytes=end)
        # As after a crash of a broker that has synced no queue yet: the whole log is read again.
        nothing = Checkpoint(positions=Positions(0, 0, 0))
        write_checkpoint(disk, root / "checkpoint", nothing)
        (root / "abort").touch()
        start_cpu, start = time.process_time(), time.perf_counter()
        async with open_message_store(CONFIG, root, disk=disk, wall_clock=clock):
            scale = (1 << 30) / end
            wall, cpu = time.perf_counter() - start, time.process_time() - start_cpu
            report("recover.all_per_gib", wall * scale, "s", body=size, cpu=round(cpu * scale, 2))


def main() -> None:
    """`--small` keeps it under a few seconds, for the test suite."""
    small = "--small" in sys.argv
    for size in SIZES:
        trio.run(measure, size, 2_000 if small else 60_000)
    for size in SIZES:
        trio.run(recover, size, (4 << 20) if small else (128 << 20))


if __name__ == "__main__":
    main()
