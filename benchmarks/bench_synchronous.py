"""Sends to a synchronous master against sends to an asynchronous one, each with a slave, both served in turn.

`python benchmarks/bench_synchronous.py [--rounds N]`. The load is `load.c`, so that only the brokers' own cost is
measured; master, slave and load share the machine. Each figure is the best of several rounds in which the two kinds
take turns, because a shared machine changes its speed within seconds.

    single   1, 16 and 64 in flight on one connection, 128 B bodies
    batch    100 messages of 128 B a request, 1, 16 and 64 requests in flight

Held: with 64 in flight a synchronous master keeps 80 % of the asynchronous rate with singles and 70 % with batches
(Apache 5.3.3 on two cores: 94 % and 71 %).
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs
from bench_broker import Load, RunningBroker, batch_frame, send_frame

BATCH: Final = 100
BODY_SIZE: Final = 128
ROUNDS: Final = 3
STOP_TIMEOUT: Final = 30.0


@attrs.frozen
class Work:
    """One kind of load."""

    name: str
    frame: bytes
    messages: int
    in_flight: int
    requests: int
    held: float
    """The least share of the asynchronous rate."""


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
    master: RunningBroker
    slave: RunningBroker

    def run(self, work: Work) -> tuple[Load, float]:
        """The load as the master sees it, and the slave's CPU µs a request."""
        before = self.slave.cpu_seconds()
        load = self.master.run(work.frame, count=work.requests, in_flight=work.in_flight)
        return load, (self.slave.cpu_seconds() - before) / load.requests * 1e6


def start(folder: Path, loader: Path, *options: str) -> tuple[RunningBroker, str]:
    """A broker and where it serves slaves."""
    folder.mkdir()
    command = [
        *(sys.executable, "-m", "rocketrio_broker.cli", "run", "--listen", "127.0.0.1:0"),
        *("--data", str(folder / "data"), "--log-level", "error", *options),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready = dict(part.partition("=")[::2] for part in process.stdout.readline().split())
    if "address" not in ready:
        raise SystemExit(f"the broker did not start: {command}")
    host, port = ready["address"].split(":")
    return RunningBroker(process, host, int(port), loader, folder), ready["ha_address"]


@contextmanager
def running_pair(folder: Path, loader: Path, role: str) -> Iterator[Pair]:
    """A master of this role and its slave, until the block ends."""
    started: list[RunningBroker] = []
    try:
        master, ha_address = start(folder / role, loader, "--role", role)
        started.append(master)
        follow = ("--role", "slave", "--id", "1", "--set", f"ha_master_address={ha_address}")
        slave, _ = start(folder / f"{role}-slave", loader, *follow)
        started.append(slave)
        yield Pair(role, master, slave)
    finally:
        for broker in started:
            broker.process.send_signal(signal.SIGTERM)
        for broker in started:
            broker.process.wait(timeout=STOP_TIMEOUT)


def tell(role: str, work: Work, best: Load, slave_cpu_us: float) -> float:
    rate = best.requests * work.messages / best.seconds
    line = {
        "name": f"{role}.{work.name}",
        "value": round(rate),
        "unit": "messages/s",
        "p50_us": best.p50_us,
        "p99_us": best.p99_us,
        "cpu_us": round(best.cpu_us / work.messages, 2),
        "slave_cpu_us": round(slave_cpu_us / work.messages, 2),
        "failed": best.failed,
    }
    print(json.dumps(line), flush=True)
    return rate


def compare(pairs: Sequence[Pair], work: Work, rounds: int) -> None:
    """Both kinds in turn; the best of each, and what the one is of the other."""
    results: dict[str, list[tuple[Load, float]]] = {pair.role: [] for pair in pairs}
    for number in range(rounds):
        for pair in pairs if number % 2 else reversed(pairs):
            results[pair.role].append(pair.run(work))
    best = {
        role: min(runs, key=lambda run: run[0].seconds / run[0].requests)
        for role, runs in results.items()
    }
    rates = {role: tell(role, work, *run) for role, run in best.items()}
    share = rates["sync-master"] / rates["async-master"]
    line = {"name": f"sync_of_async.{work.name}", "value": round(share, 3), "unit": "ratio"}
    print(json.dumps({**line, "held": work.held if work.in_flight == 64 else None}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each kind of load")
    parser.add_argument("--only", help="a part of the name of the loads to run, such as single")
    arguments = parser.parse_args()
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print("bench_synchronous needs a C compiler for its load: install gcc", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-sync-")))
        loader = folder / "load"
        source = Path(__file__).with_name("load.c")
        subprocess.run([compiler, "-O2", "-o", loader, source], check=True)
        pairs = [
            stack.enter_context(running_pair(folder, loader, role))
            for role in ("async-master", "sync-master")
        ]
        for pair in pairs:
            pair.master.run(WORKS[0].frame, count=5_000, in_flight=16)  # warm
        for work in WORKS:
            if arguments.only is None or arguments.only in work.name:
                compare(pairs, work, arguments.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
