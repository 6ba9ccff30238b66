"""What it costs to ask for the lag of every group: broker and client share this process, so both are in each figure.

`python benchmarks/bench_lag.py [--topics N --groups N]`. Every group has one topic of 8 queues; one in ten is behind.

    lag.sample      seconds for one sample of all groups
    lag.judge       seconds to judge a full window of 13 samples, without details
    lag.once        seconds for `rocketrio lag --once --worst 20`, with the details of 20 rows
    lag.exporter    seconds for a round of `rocketrio exporter` with its page; later rounds come every 15 s
    lag.memory      MiB that a full window holds

To hold, with 1,000 topics, 2,000 groups and 8 queues each: 3 s for lag.once.
"""

import argparse
import json
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from rocketrio import Message, open_admin, open_client, open_producer
from rocketrio.admin.admin import Admin
from rocketrio.admin.lag import LagWindow
from rocketrio.exporter.names import page_of
from rocketrio.exporter.rounds import Rounds
from rocketrio.limits import EXPORTER_NAMES
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.offsets.version import Commit
from rocketrio_protocol.bodies.topics import TopicConfig

TOPICS: Final = 1_000
GROUPS: Final = 2_000
QUEUES: Final = 8
MESSAGES: Final = 10
"""In each queue."""
SAMPLES: Final = 13
ROUNDS: Final = 3
SECONDS_LIMIT: Final = 3.0


def show(name: str, value: float, unit: str, **details: object) -> None:
    print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, **details}), flush=True)


async def fill(cluster: EmbeddedCluster, admin: Admin, topics: int, groups: int) -> None:
    """Create topics with messages, and groups that have committed; one in ten is behind in each queue."""
    [addr] = (await admin.masters(None)).values()
    for number in range(topics):
        await admin.calls.update_topic(addr, TopicConfig(f"bench-{number}", QUEUES, QUEUES))
    async with open_producer(client=admin.client) as producer:
        for number in range(topics):
            messages = [Message(f"bench-{number}", b"x") for _ in range(MESSAGES)]
            for queue in await producer.queues(f"bench-{number}"):
                await producer.send_batch(messages, queue=queue)
    offsets = cluster.master.broker.state.consumer_offsets
    for number in range(groups):
        await admin.calls.update_group(addr, {"groupName": f"group-{number}"})
        committed = Commit(MESSAGES // 2 if number % 10 == 0 else MESSAGES, is_reset=True)
        for queue_id in range(QUEUES):
            topic = f"bench-{number % topics}"
            offsets.commit_version(f"group-{number}", topic, queue_id, committed)


async def timed(name: str, work: Callable[[], Awaitable[object]], **details: object) -> None:
    """Show the shortest time of some rounds, and the CPU time of the round with the least."""
    times, cpu = [], []
    for _ in range(ROUNDS):
        began, cpu_began = time.perf_counter(), time.process_time()
        await work()
        times.append(time.perf_counter() - began)
        cpu.append(time.process_time() - cpu_began)
    show(name, min(times), "s", cpu_s=round(min(cpu), 3), **details)


async def measure(topics: int, groups: int) -> None:
    async with (
        EmbeddedCluster(network="loopback") as cluster,
        open_client(name_servers=cluster.name_servers) as client,
        open_admin(client=client) as admin,
    ):
        await fill(cluster, admin, topics, groups)
        full: LagWindow = admin.lag_window()
        await timed("lag.sample", full.sample)
        await timed("lag.once", lambda: admin.lag(seconds=0, worst=20), hold=SECONDS_LIMIT)
        rounds = Rounds(admin)

        async def exported() -> None:
            pieces = page_of(await rounds.next(), EXPORTER_NAMES)
            show("lag.page", sum(map(len, pieces)) / 1e6, "MB")

        await timed("lag.exporter", exported)
        tracemalloc.start()
        window = admin.lag_window()
        for _ in range(SAMPLES):
            await window.sample()
        show("lag.memory", tracemalloc.get_traced_memory()[0] / 2**20, "MiB")
        tracemalloc.stop()
        await timed("lag.judge", lambda: window.report(worst=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--groups", type=int, default=GROUPS)
    chosen = parser.parse_args()
    trio.run(measure, chosen.topics, chosen.groups)


if __name__ == "__main__":
    main()
