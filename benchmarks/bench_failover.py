"""How long it takes when a broker is lost: reads elsewhere, a slave that takes over, a slave built again.

`python benchmarks/bench_failover.py [--rounds N] [--size MIB] [--folder DIR]`. All brokers are processes of their own.

    failover.stop, .kill   from SIGSTOP or kill -9 of the master to the first message that our consumer has from the
                           slave: its buffer is full and no pull is under way when the master goes
    promotion              from the order to become master (71001), the old one being dead, to the first stored message
    rebuild                from the start of a slave's process without data to the last byte of the master's log, queues
                           and index built; beside it, in the same run, a plain copy of the same files, and one of the
                           same bytes through a loopback socket that only counts them at the other end
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs
import trio
from bench_replication import MIB, fill, plain_copy
from processes import started

from rocketrio import (
    ClientInstance,
    Consumer,
    Message,
    MessageQueue,
    Prefetch,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.disk import RealDisk
from rocketrio_broker.store.message_store import open_message_store
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.route import ClusterInfo, KVTable
from rocketrio_protocol.commands.admin import (
    ChangeBrokerRoleRequestHeader,
    GetBrokerRuntimeInfoRequestHeader,
)
from rocketrio_protocol.commands.cluster import GetBrokerClusterInfoRequestHeader
from rocketrio_protocol.commands.send import SendMessageRequestHeaderV2
from rocketrio_protocol.remoting.pool import ChannelPool, check, open_channel_pool
from rocketrio_protocol.remoting.ports import SystemWallClock
from rocketrio_protocol.remoting.tcp import dial_tcp

TOPIC: Final = "bench"
QUEUE: Final = MessageQueue(TOPIC, "broker-a", 0)
BUFFER: Final = 32  # messages that the consumer has when the master goes
MESSAGES: Final = 1_000
FILE_SIZE: Final = 256 * MIB
LIMIT: Final = 60.0
REBUILD_LIMIT: Final = 1_200.0
LOOK: Final = 0.02
"""Seconds between looks at how far a slave is."""


def show(name: str, value: float, unit: str, **details: object) -> None:
    print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, **details}), flush=True)


@attrs.frozen
class Running:
    """A broker process."""

    process: "subprocess.Popen[str]"
    address: str
    ha_address: str

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@contextmanager
def running(data: Path, *options: str) -> Iterator[Running]:
    """Killed at the end: its data is thrown away."""
    listen = ("--listen", "127.0.0.1:0", "--ha-listen", "127.0.0.1:0")
    with started("run", *listen, "--data", str(data), *options, ended_by=signal.SIGKILL) as (
        process,
        ready,
    ):
        yield Running(process, ready["address"], ready["ha_address"])


# --- what the brokers are asked ----------------------------------------------------------------


async def runtime_info(pool: ChannelPool, addr: str) -> dict[str, str]:
    answer = check(await pool.call(addr, GetBrokerRuntimeInfoRequestHeader()), "Runtime info")
    return fastjson.loads(answer.body, KVTable, what="runtime info").table


async def wait_listed(pool: ChannelPool, name_server: str, count: int) -> None:
    with trio.fail_after(LIMIT):
        while True:
            answer = await pool.call(name_server, GetBrokerClusterInfoRequestHeader())
            info = fastjson.loads(answer.body, ClusterInfo, what="cluster info")
            broker = info.broker_addr_table.get("broker-a")
            if broker is not None and len(broker.broker_addrs) == count:
                return
            await trio.sleep(LOOK)


async def wait_built(pool: ChannelPool, addr: str, end: int) -> float:
    """Until it has the whole log, and everything that is built from it; when it had the log."""
    has_log = None
    while True:
        info = await runtime_info(pool, addr)
        if int(info["commitLogMaxOffset"]) >= end:
            has_log = has_log or time.perf_counter()
            if not int(info["dispatchBehindBytes"]):
                return has_log
        await trio.sleep(LOOK)


# --- reads elsewhere, and promotion ------------------------------------------------------------


async def measure_loss(name_server: str, folder: Path, how: str) -> tuple[float, float]:
    """Seconds to the first message from the slave, and those of the slave's promotion."""
    named = ("--namesrv", name_server)
    with ExitStack() as stack:
        master = stack.enter_context(running(folder / "master", *named))
        slave = stack.enter_context(
            running(folder / "slave", "--role", "slave", "--id", "1", *named)
        )
        async with open_channel_pool(dial_tcp) as pool:
            await wait_listed(pool, name_server, 2)
            async with open_client(name_servers=[name_server]) as client:
                await send_some(client)
                end = int((await runtime_info(pool, master.address))["commitLogMaxOffset"])
                with trio.fail_after(LIMIT):
                    await wait_built(pool, slave.address, end)
                read = await read_elsewhere(client, master, slave, how)
            master.process.kill()  # Also a stopped one.
            master.process.wait()
            return read, await promote(pool, slave)


async def send_some(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        await admin.create_topic(TOPIC, queues=1)
    await client.refresh_topic_route(TOPIC)
    async with open_producer(client=client) as producer:
        for _ in range(MESSAGES // 100):
            await producer.send_batch([Message(TOPIC, bytes(128)) for _ in range(100)], queue=QUEUE)


async def read_elsewhere(
    client: ClientInstance, master: Running, slave: Running, how: str
) -> float:
    async with open_consumer(
        TOPIC,
        group="readers",
        start_from="earliest",
        queues=[QUEUE],
        client=client,
        prefetch=Prefetch(batch_size=BUFFER, queue_messages=BUFFER),
        auto_commit=False,
    ) as consumer:
        await consumer.receive()
        await trio.sleep(0.5)  # The buffer is full, and no pull is under way.
        buffered = sum(consumer.statistics().queues[QUEUE].pulls.values()) * BUFFER - 1
        master.signal(signal.SIGSTOP if how == "stop" else signal.SIGKILL)
        started = time.perf_counter()
        with trio.fail_after(LIMIT):
            for _ in range(buffered + 1):
                await consumer.receive()
        seconds = time.perf_counter() - started
        check_source(consumer, slave)
    return seconds


def check_source(consumer: Consumer, slave: Running) -> None:
    pulled_from = consumer.statistics().queues[QUEUE].pulled_from
    if pulled_from != slave.address:
        raise SystemExit(f"read from {pulled_from}, not from the slave at {slave.address}")


async def promote(pool: ChannelPool, slave: Running) -> float:
    """From the order to the first message that is stored."""
    started = time.perf_counter()
    order = ChangeBrokerRoleRequestHeader("async-master", 0)
    check(await pool.call(slave.address, order, timeout=LIMIT), "The change of role")
    send = SendMessageRequestHeaderV2("g", TOPIC, "TBW102", 4, 0, 0, 1_700_000_000_000, 0, "")
    check(await pool.call(slave.address, send, b"first", timeout=LIMIT), "The first message")
    return time.perf_counter() - started


def measure_losses(name_server: str, folder: Path, rounds: int) -> None:
    reads: dict[str, list[float]] = {"stop": [], "kill": []}
    promotions = []
    for number in range(rounds):
        for how, seconds in reads.items():
            home = folder / f"{how}-{number}"
            home.mkdir()
            read, promotion = trio.run(measure_loss, name_server, home, how)
            seconds.append(read)
            promotions.append(promotion)
            shutil.rmtree(home)
    for name, values in (
        *((f"failover.{how}", s) for how, s in reads.items()),
        ("promotion", promotions),
    ):
        show(
            name, statistics.median(values), "s",
            best=round(min(values), 4), worst=round(max(values), 4), rounds=len(values),
        )  # fmt: skip


# --- a slave built again -----------------------------------------------------------------------


async def write_log(folder: Path, size: int) -> tuple[int, float]:
    """A master's data of about `size` bytes: the log's end, and the seconds of a plain copy through a socket."""
    config = StoreConfig(mapped_file_size_commit_log=FILE_SIZE)
    async with open_message_store(
        config, folder, disk=RealDisk(), wall_clock=SystemWallClock()
    ) as store:
        await fill(store, size)
        return store.max_physical_offset, plain_copy(store, MIB)


def copy_files(source: Path, target: Path, end: int) -> float:
    """Seconds to copy the log's files up to its end; what lies behind was only made room for."""
    target.mkdir()
    started = time.perf_counter()
    for path in sorted(source.iterdir()):
        left = min(end - int(path.name), path.stat().st_size)
        if left > 0:
            with path.open("rb") as log, (target / path.name).open("wb") as copy:
                while left > 0:
                    left -= os.sendfile(copy.fileno(), log.fileno(), None, min(left, MIB))
    return time.perf_counter() - started


async def rebuild(master: Running, folder: Path, end: int) -> tuple[float, float, float]:
    """Seconds from the start of the process, and from when it is ready: to the last byte of the log, and to all."""
    settings = (
        f"ha_master_address={master.ha_address}",
        f"store.mapped_file_size_commit_log={FILE_SIZE}",
    )
    options = (word for setting in settings for word in ("--set", setting))
    started = time.perf_counter()
    with running(folder, "--role", "slave", "--id", "1", *options) as slave:
        ready = time.perf_counter()
        async with open_channel_pool(dial_tcp) as pool:
            with trio.fail_after(REBUILD_LIMIT):
                has_log = await wait_built(pool, slave.address, end)
        done = time.perf_counter()
    return done - started, has_log - ready, done - ready


def measure_rebuild(folder: Path, size: int) -> None:
    end, loopback = trio.run(write_log, folder / "master", size)
    file_copy = copy_files(folder / "master" / "commitlog", folder / "copy", end)
    shutil.rmtree(folder / "copy")
    with running(
        folder / "master", "--set", f"store.mapped_file_size_commit_log={FILE_SIZE}"
    ) as master:
        seconds, log, serving = trio.run(rebuild, master, folder / "slave", end)
    show("rebuild.loopback_copy", loopback, "s", bytes=end, MB_per_s=round(end / loopback / 1e6, 1))
    show("rebuild.file_copy", file_copy, "s", bytes=end, MB_per_s=round(end / file_copy / 1e6, 1))
    show(
        "rebuild", seconds, "s",
        bytes=end,
        from_ready_s=round(serving, 3),
        log_s=round(log, 3),
        MB_per_s=round(end / serving / 1e6, 1),
        of_loopback_copy=round(loopback / serving, 3),
        of_file_copy=round(file_copy / serving, 3),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="brokers lost in each way")
    parser.add_argument(
        "--size", type=int, default=1024, help="MiB of the log that a slave is built from"
    )
    parser.add_argument("--folder", type=Path, help="where the data is made, and removed again")
    arguments = parser.parse_args()
    show("load_average", os.getloadavg()[0], "processes")
    with (
        tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-failover-") as folder,
        started("namesrv", "--listen", "127.0.0.1:0") as (_, ready),
    ):
        measure_losses(ready["address"], Path(folder), arguments.rounds)
        measure_rebuild(Path(folder), arguments.size * MIB)


if __name__ == "__main__":
    main()
