"""Measures the cost of the read gate: the time from send to receive and the rate of sends, with the gate and without.

`python benchmarks/bench_gate.py [--rounds N] [--only WORD]`. Masters with a slave each, of both kinds, take turns,
because a shared machine changes its speed within seconds; the ratio is the median of those of the turns. Producer,
consumer and clock are one process of their own.

    receive   one message at a time, of 128 B: from before its send until the consumer's loop has it
    sends     64 in flight, 128 B each, while the consumer reads them
    sync      a synchronous master, whose gate a benchmark alone can leave open
    async     an asynchronous one, where `ha_confirmed_reads` closes it
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio
from processes import BROKER, started

from rocketrio import Message, MessageQueue, open_admin, open_client, open_consumer, open_producer

BODY_SIZE: Final = 128
IN_FLIGHT: Final = 64
RECEIVES: Final = 300
SENDS: Final = 8_000
ROUNDS: Final = 5
TOPIC: Final = "bench"

_WITHOUT_GATE: Final = (
    "-c",
    "from rocketrio_broker import cli;"
    "from rocketrio_broker.settings import config;"
    "config.BrokerConfig.gates_readers = property(lambda config: False);"
    "cli.main()",
)


@attrs.frozen
class Kind:
    """A master, and whether its readers wait for its slave."""

    role: str
    gated: bool

    @property
    def name(self) -> str:
        return f"{self.role}{'-gated' if self.gated else ''}"

    @property
    def program(self) -> tuple[str, ...]:
        return BROKER if self.gated else _WITHOUT_GATE


KINDS: Final = tuple(Kind(role, gated) for role in ("sync", "async") for gated in (False, True))


@attrs.frozen
class Figures:
    """One turn."""

    p50_us: float
    p99_us: float
    per_second: float


async def run_clients(name_server: str, broker: str) -> None:
    """Producer and consumer, in a process of their own: prints the figures of a turn."""
    queue = MessageQueue(TOPIC, broker, 0)
    body = bytes(BODY_SIZE)
    async with open_client(name_servers=[name_server]) as client:
        async with open_admin(client=client) as admin:
            await admin.create_topic(TOPIC)
        consuming = open_consumer(group=f"bench-{time.time_ns()}", queues=[queue], client=client)
        async with open_producer(client=client) as producer, consuming as consumer:
            await producer.send(Message(TOPIC, body), queue=queue)
            received, more = 0, trio.Event()

            async def receive() -> None:
                nonlocal received, more
                async for _ in consumer:
                    received += 1
                    more.set()

            async def receive_one(after: int) -> None:
                nonlocal more
                while received == after:
                    more = trio.Event()
                    await more.wait()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                while not received:  # Its first pull comes when it has found the end of the queue.
                    await producer.send(Message(TOPIC, body), queue=queue)
                    await trio.sleep(0.1)
                await trio.sleep(0.5)
                times = []
                for _ in range(RECEIVES):
                    before, began = received, time.perf_counter()
                    nursery.start_soon(partial(producer.send, Message(TOPIC, body), queue=queue))
                    await receive_one(before)
                    times.append(time.perf_counter() - began)
                left = SENDS

                async def send() -> None:
                    nonlocal left
                    while left > 0:
                        left -= 1
                        await producer.send(Message(TOPIC, body), queue=queue)

                began = time.perf_counter()
                async with trio.open_nursery() as sending:
                    for _ in range(IN_FLIGHT):
                        sending.start_soon(send)
                per_second = SENDS / (time.perf_counter() - began)
                nursery.cancel_scope.cancel()
    times.sort()
    p50, p99 = (round(times[int(len(times) * part)] * 1e6, 1) for part in (0.5, 0.99))
    print(json.dumps([p50, p99, per_second]))


@contextmanager
def running_pair(folder: Path, name_server: str, kind: Kind) -> Iterator[None]:
    """A master of this kind and its slave, until the block ends."""
    named = ("--role", f"{kind.role}-master", "--name", kind.name, "--namesrv", name_server)
    gate = ("--set", f"ha_confirmed_reads={str(kind.gated).lower()}")
    with running_broker(folder / kind.name, kind, *named, *gate) as ha_address:
        follow = ("--role", "slave", "--id", "1", "--set", f"ha_master_address={ha_address}")
        with running_broker(folder / f"{kind.name}-slave", kind, *follow):
            yield


@contextmanager
def running_broker(folder: Path, kind: Kind, *options: str) -> Iterator[str]:
    """A broker; where it serves slaves."""
    folder.mkdir()
    run = ("run", "--listen", "127.0.0.1:0", "--data", str(folder / "data"))
    with started(*run, *options, program=kind.program) as (_, ready):
        yield ready["ha_address"]


def turn(name_server: str, kind: Kind) -> Figures:
    command = [sys.executable, __file__, "--clients", name_server, "--broker", kind.name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Figures(*json.loads(done.stdout))


def bench(rounds: int, only: str | None) -> None:
    """Both roles, or one."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gate-")))
        for role in ("sync", "async"):
            if only not in (None, role):
                continue
            kinds = [kind for kind in KINDS if kind.role == role]
            with ExitStack() as pairs:
                # A name server of their own: clients find one broker, and send to it alone.
                servers = {}
                for kind in kinds:
                    _, ready = pairs.enter_context(started("namesrv", "--listen", "127.0.0.1:0"))
                    servers[kind] = ready["address"]
                    pairs.enter_context(running_pair(folder, ready["address"], kind))
                results: dict[Kind, list[Figures]] = {kind: [] for kind in kinds}
                for number in range(rounds + 1):
                    for kind in kinds if number % 2 else reversed(kinds):
                        figures = turn(servers[kind], kind)
                        if number:  # The first one warms up.
                            results[kind].append(figures)
                tell(role, *results.values())


def tell(role: str, without: list[Figures], gated: list[Figures]) -> None:
    for name, runs in ((role, without), (f"{role}-gated", gated)):
        p50, p99 = (
            statistics.median(getattr(run, each) for run in runs) for each in ("p50_us", "p99_us")
        )
        rate = round(statistics.median(run.per_second for run in runs))
        print(json.dumps({"name": f"receive.{name}", "value": p50, "unit": "us", "p99_us": p99}))
        print(json.dumps({"name": f"sends.{name}", "value": rate, "unit": "messages/s"}))
    for name, member in (("receive", "p50_us"), ("sends", "per_second")):
        ratios = [
            getattr(with_gate, member) / getattr(open_gate, member)
            for open_gate, with_gate in zip(without, gated, strict=True)
        ]
        value = round(statistics.median(ratios), 3)
        print(
            json.dumps({"name": f"{name}.{role}.gated_of_open", "value": value, "unit": "ratio"}),
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each kind")
    parser.add_argument("--only", help="sync or async")
    parser.add_argument("--clients", help=argparse.SUPPRESS)
    parser.add_argument("--broker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.clients:
        trio.run(run_clients, arguments.clients, arguments.broker)
    else:
        bench(arguments.rounds, arguments.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
