"""Replication between two stores in two processes, against a plain copy of the same bytes over the same loopback.

`python benchmarks/bench_replication.py [--size MIB] [--folder DIR]`. The plain copy sends the master's log from its
mapping through one socket and only counts at the other end; replication writes it into the slave's log, files made on
the way, builds queues and index beside it, and acknowledges. CPU seconds depend less on what else the machine does.
"""

import argparse
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio
from processes import child

from rocketrio_broker.ha.client import RECEIVE_SIZE, HAClient
from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.service import HAService
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.disk import RealDisk
from rocketrio_broker.store.message_store import MessageStore, open_message_store
from rocketrio_broker.store.put_message import PutMessage
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.remoting.ports import SystemWallClock
from rocketrio_protocol.remoting.tcp import dial_tcp, listen_tcp

HOST: Final = pack_host("127.0.0.1", 10911)
BODY_SIZE: Final = 1024
MIB: Final = 1 << 20
TIME_LIMIT: Final = 120


def show(name: str, value: float, unit: str, **details: object) -> None:
    print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, **details}), flush=True)


def append_some(store: MessageStore, count: int) -> None:
    body = os.urandom(BODY_SIZE)
    for number in range(count):
        store.append(
            PutMessage(
                topic="bench",
                queue_id=number % 4,
                body=body,
                born_time_ms=1_600_000_000_000,
                born_host=HOST,
                store_host=HOST,
            )
        )


async def fill(store: MessageStore, size: int) -> None:
    while store.max_physical_offset < size:
        append_some(store, 1000)
        await trio.lowlevel.checkpoint()


# --- the other process -----------------------------------------------------------------------


async def run_slave(addr: str, root: Path, end: int) -> None:
    """Follow until `end`, then print the CPU seconds it took."""
    config = StoreConfig(mapped_file_size_commit_log=256 * MIB)
    async with open_message_store(
        config, root, disk=RealDisk(), wall_clock=SystemWallClock()
    ) as store:
        store.begin_replication()
        client = HAClient(
            store, address=MasterAddress(addr), dial=dial_tcp, wall_clock=SystemWallClock()
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            await client.connected.wait_reached(1)
            cpu_started = time.process_time()
            await store.appended.wait_reached(end)
            print(time.process_time() - cpu_started, flush=True)
            await store.dispatched.wait_reached(end)
            nursery.cancel_scope.cancel()


def run_sink(port: int, end: int) -> None:
    """Read `end` bytes from a socket into one buffer."""
    buffer = memoryview(bytearray(RECEIVE_SIZE))
    with socket.create_connection(("127.0.0.1", port)) as sock:
        received = 0
        while received < end:
            received += sock.recv_into(buffer)
        sock.sendall(b"!")


@contextmanager
def other_process(*arguments: object) -> Iterator["subprocess.Popen[str]"]:
    with child(__file__, *map(str, arguments)) as process:
        try:
            yield process
        finally:
            process.kill()


# --- the measures ----------------------------------------------------------------------------


def plain_copy(store: MessageStore, block_size: int) -> float:
    """Seconds to send the whole log as it is."""
    end = store.max_physical_offset
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        other_process("--sink", server.getsockname()[1], "--end", end),
        server.accept()[0] as sock,
    ):
        started = time.perf_counter()
        position = 0
        while (block := store.read_log(position, block_size)) is not None:
            sock.sendall(block)
            position += len(block)
        sock.recv(1)
        return time.perf_counter() - started


async def replicate(
    store: MessageStore, root: Path, config: HAConfig
) -> tuple[float, float, float]:
    """Wall seconds until the slave has reported the whole log, and CPU seconds of master and slave."""
    listener = await listen_tcp("127.0.0.1:0")
    service = HAService(store, listener, wall_clock=SystemWallClock(), config=config)
    end = store.max_physical_offset
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        with other_process("--slave", listener.addr, "--end", end, "--root", root) as process:
            await service.accepted.wait_reached(1)
            started, cpu_started = time.perf_counter(), time.process_time()
            with trio.fail_after(TIME_LIMIT):
                await service.connections[0].acknowledged.wait_reached(end)
            wall, cpu = time.perf_counter() - started, time.process_time() - cpu_started
            assert process.stdout is not None
            slave_cpu = float(process.stdout.readline())
        nursery.cancel_scope.cancel()
    return wall, cpu, slave_cpu


async def measure(size: int, folder: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=256 * MIB)
    async with open_message_store(
        config, folder / "master", disk=RealDisk(), wall_clock=SystemWallClock()
    ) as store:
        await fill(store, size)
        end = store.max_physical_offset
        for block_size in (32 * 1024, HAConfig().transfer_batch_size):
            copy_wall = plain_copy(store, block_size)
            copy_rate = end / copy_wall / 1e6
            show("loopback_copy", copy_rate, "MB/s", block_size=block_size, bytes=end)
            ha = HAConfig(transfer_batch_size=block_size)
            root = folder / f"slave-{block_size}"
            wall, cpu, slave_cpu = await replicate(store, root, ha)
            rate = end / wall / 1e6
            show(
                "replication",
                rate,
                "MB/s",
                block_size=block_size,
                of_loopback_copy=round(rate / copy_rate, 3),
                master_cpu_s=round(cpu, 3),
                slave_cpu_s=round(slave_cpu, 3),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512, help="MiB to replicate")
    parser.add_argument("--folder", type=Path, help="where the stores are made, and removed again")
    parser.add_argument("--slave", help=argparse.SUPPRESS)
    parser.add_argument("--sink", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--end", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.slave:
        trio.run(run_slave, arguments.slave, arguments.root, arguments.end)
    elif arguments.sink:
        run_sink(arguments.sink, arguments.end)
    else:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            trio.run(measure, arguments.size * MIB, Path(folder))


if __name__ == "__main__":
    main()
