"""Sends to a synchronous master against sends to an asynchronous one, each with a slave, both served in turn.

`python benchmarks/bench_synchronous.py [--rounds N] [--only WORD]`. The two kinds take turns, because a shared machine
changes its speed within seconds; the ratio is the median of those of the turns.

    client   our producer in a process of its own, as users have it: master, slave and client share the machine
    load     `load.c`, which costs nothing itself: all that is left is the brokers, and the way to the slave and back
    single   1, 16 and 64 in flight on one connection, 128 B bodies
    batch    100 messages of 128 B a request, 1, 16 and 64 requests in flight

Held: with our client and 64 in flight a synchronous master keeps 80 % of the asynchronous rate with singles, 70 % with
batches (Apache 5.3.3 with its client on the same two cores: 94 % and 71 %).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs
import trio
from load_generator import (
    Load,
    LoadGenerator,
    Measured,
    NoCompilerError,
    RunningBroker,
    batch_frame,
    load_generator,
    send_frame,
)
from peers.figures import cpu_seconds
from peers.our_client import check_safe
from processes import started

from rocketrio import Message, MessageQueue, Producer, open_admin, open_client, open_producer

BATCH: Final = 100
BODY_SIZE: Final = 128
ROUNDS: Final = 5
TOPIC: Final = "bench"


@attrs.frozen
class Work:
    """One kind of load."""

    name: str
    frame: bytes
    messages: int
    in_flight: int
    requests: int
    held: float
    """The least share of the asynchronous rate, with our client and 64 in flight."""
    client_share: float = 0.25
    """How many of the requests our client sends, which takes longer for each."""


WORKS: Final = (
    *(
        Work(f"single_{in_flight}", send_frame(BODY_SIZE), 1, in_flight, requests, 0.8)
        for in_flight, requests in ((1, 2_000), (16, 16_000), (64, 40_000))
    ),
    *(
        Work(f"batch_{in_flight}", batch_frame(BATCH, BODY_SIZE), BATCH, in_flight, requests, 0.7)
        for in_flight, requests in ((1, 300), (16, 1_500), (64, 2_000))
    ),
)


@attrs.frozen
class Pair:
    """A master with its slave."""

    role: str
    name_server: str
    master: RunningBroker
    slave: RunningBroker

    def run(self, by: str, work: Work) -> tuple[Measured, float]:
        """The load as the master sees it, and the slave's CPU µs a request."""
        before = cpu_seconds(self.slave.process.pid)
        if by == "load":
            measured = self.master.run(work.frame, count=work.requests, in_flight=work.in_flight)
        else:
            measured = self._run_client(work)
        spent = cpu_seconds(self.slave.process.pid) - before
        return measured, spent / measured.load.requests * 1e6

    def _run_client(self, work: Work) -> Measured:
        count = max(int(work.requests * work.client_share), work.in_flight)
        command = [
            *(sys.executable, __file__, "--producer", self.name_server, "--broker", self.role),
            *("--count", count, "--in-flight", work.in_flight, "--batch", work.messages),
        ]
        before = cpu_seconds(self.master.process.pid)
        done = subprocess.run(
            list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True
        )
        seconds, p50, p99 = json.loads(done.stdout)
        cpu = (cpu_seconds(self.master.process.pid) - before) / count
        return Measured(Load(count, seconds, 0, 0, p50, p99), cpu * 1e6)


async def run_producer(
    name_server: str, broker: str, count: int, in_flight: int, batch: int
) -> None:
    """Our client's part, in a process of its own: prints seconds, p50 and p99 in µs."""
    times: list[float] = []
    left = count
    queue = MessageQueue(TOPIC, broker, 0)
    messages = [Message(TOPIC, bytes(BODY_SIZE)) for _ in range(batch)]

    async def send(producer: Producer) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            started = time.perf_counter()
            if batch == 1:
                check_safe(await producer.send(messages[0], queue=queue))
            else:
                check_safe(await producer.send_batch(messages, queue=queue))
            times.append(time.perf_counter() - started)

    async with open_client(name_servers=[name_server]) as client:
        async with open_admin(client=client) as admin:
            await admin.create_topic(TOPIC)
        async with open_producer(client=client) as producer:
            await producer.send(messages[0], queue=queue)  # The connection stands.
            started = time.perf_counter()
            async with trio.open_nursery() as nursery:
                for _ in range(in_flight):
                    nursery.start_soon(send, producer)
            seconds = time.perf_counter() - started
    times.sort()
    p50, p99 = (round(times[int(len(times) * part)] * 1e6, 1) for part in (0.5, 0.99))
    print(json.dumps([seconds, p50, p99]))


@contextmanager
def running_broker(
    folder: Path, generator: LoadGenerator, *options: str
) -> Iterator[tuple[RunningBroker, str]]:
    """A broker and where it serves slaves."""
    folder.mkdir()
    data = ("--data", str(folder / "data"))
    with started("run", "--listen", "127.0.0.1:0", *data, *options) as (process, ready):
        yield RunningBroker(process, ready["address"], generator), ready["ha_address"]


@contextmanager
def running_pair(
    folder: Path, generator: LoadGenerator, name_server: str, role: str
) -> Iterator[Pair]:
    """A master of this role and its slave, until the block ends."""
    named = ("--role", role, "--name", role, "--namesrv", name_server)
    with running_broker(folder / role, generator, *named) as (master, ha_address):
        follow = ("--role", "slave", "--id", "1", "--set", f"ha_master_address={ha_address}")
        with running_broker(folder / f"{role}-slave", generator, *follow) as (slave, _):
            yield Pair(role, name_server, master, slave)


def tell(by: str, role: str, work: Work, measured: Measured, slave_cpu_us: float) -> None:
    best = measured.load
    rate = best.requests * work.messages / best.seconds
    line = {
        "name": f"{by}.{role}.{work.name}",
        "value": round(rate),
        "unit": "messages/s",
        "p50_us": best.p50_us,
        "p99_us": best.p99_us,
        "cpu_us": round(measured.cpu_us / work.messages, 2),
        "slave_cpu_us": round(slave_cpu_us / work.messages, 2),
        "failed": best.failed,
    }
    print(json.dumps(line), flush=True)


def compare(pairs: Sequence[Pair], by: str, work: Work, rounds: int) -> None:
    """Both kinds in turn; the best of each, and what the one is of the other."""
    results: dict[str, list[tuple[Measured, float]]] = {pair.role: [] for pair in pairs}
    for number in range(rounds):
        for pair in pairs if number % 2 else reversed(pairs):
            results[pair.role].append(pair.run(by, work))
    rates = {
        role: [run.load.requests / run.load.seconds for run, _ in runs]
        for role, runs in results.items()
    }
    for role, runs in results.items():
        tell(by, role, work, *min(runs, key=lambda run: run[0].load.seconds / run[0].load.requests))
    shares = [
        synchronous / asynchronous
        for asynchronous, synchronous in zip(
            rates["async-master"], rates["sync-master"], strict=True
        )
    ]
    line = {
        "name": f"{by}.sync_of_async.{work.name}",
        "value": round(statistics.median(shares), 3),
        "unit": "ratio",
        "of_the_best": round(max(rates["sync-master"]) / max(rates["async-master"]), 3),
        "held": work.held if by == "client" and work.in_flight == 64 else None,
    }
    print(json.dumps(line), flush=True)


def bench(rounds: int, only: str | None) -> None:
    """All kinds of load, or those with this in their names."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-sync-")))
        generator = stack.enter_context(load_generator())
        _, ready = stack.enter_context(started("namesrv", "--listen", "127.0.0.1:0"))
        pairs = [
            stack.enter_context(running_pair(folder, generator, ready["address"], role))
            for role in ("async-master", "sync-master")
        ]
        for pair in pairs:
            pair.master.run(WORKS[0].frame, count=5_000, in_flight=16)  # warm
        for by in ("client", "load"):
            for work in WORKS:
                if only is None or only in f"{by}.{work.name}":
                    compare(pairs, by, work, rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each kind of load")
    parser.add_argument("--only", help="a part of the name of the loads to run, such as single")
    parser.add_argument("--producer", help=argparse.SUPPRESS)
    parser.add_argument("--broker", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--in-flight", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.producer:
        load = (arguments.broker, arguments.count, arguments.in_flight, arguments.batch)
        trio.run(run_producer, arguments.producer, *load)
        return 0
    try:
        bench(arguments.rounds, arguments.only)
    except NoCompilerError as error:
        print(f"bench_synchronous: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
