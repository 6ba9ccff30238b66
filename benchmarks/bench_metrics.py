"""What metrics cost: CPU of sends with and without them, and one page of a large broker.

    send    two brokers, one with metrics, take turns; 64 in flight on one connection, 128 B bodies
    count   one send's counting alone, with and without them: what of the line above is no noise
    page    1,000 topics of 8 queues, 2,000 groups with lag on every queue: CPU, size, and the longest part

To hold: sends cost at most 2 % more; the page takes less than 300 ms of CPU and 10 MB, and a part less than 5 ms.
"""

import argparse
import gc
import json
import statistics
import sys
import tempfile
import zlib
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from timeit import repeat

import trio
from bench_broker import running_broker
from load_generator import LoadGenerator, NoCompilerError, load_generator, send_frame

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.metrics.broker_stats_manager import BrokerStatsManager
from rocketrio_broker.metrics.certificates import Certificates
from rocketrio_broker.metrics.counts import CountedStats
from rocketrio_broker.metrics.event_counts import EventCounts
from rocketrio_broker.metrics.loop_delay import LoopDelay
from rocketrio_broker.metrics.page import MetricsPage
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.put_message import PutMessage
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig, TopicConfig
from rocketrio_protocol.lag import SAMPLE_EVERY
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.remoting.http_server import COMPRESSION_LEVEL

GROUPS_OF_A_TOPIC = 2


def tell(name: str, value: float, unit: str, **more: float) -> None:
    print(
        json.dumps({"name": f"metrics.{name}", "value": round(value, 3), "unit": unit, **more}),
        flush=True,
    )


def bench_sends(generator: LoadGenerator, *, rounds: int, count: int) -> None:
    """Compare the CPU of sends in pairs of rounds, as a busy machine makes both rounds of a pair slower."""
    frame = send_frame(128)
    with (
        running_broker(generator) as without,
        running_broker(generator, "metrics_listen=127.0.0.1:0") as with_,
    ):
        for broker in (without, with_):
            broker.run(frame, count=count, in_flight=64)  # warm
        costs = []
        for number in range(rounds):
            order = (without, with_) if number % 2 else (with_, without)
            took = {broker: broker.run(frame, count=count, in_flight=64).cpu_us for broker in order}
            costs.append((took[without], took[with_]))
    tell("send_without", statistics.median(before for before, _ in costs), "us")
    tell("send_with", statistics.median(after for _, after in costs), "us")
    ratios = [after / before for before, after in costs]
    tell("send_cost", 100 * (statistics.median(ratios) - 1), "%", rounds=rounds)


def bench_count() -> None:
    properties = (
        "KEYS\x01order-1\x02UNIQ_KEY\x017F0000010A2B18B4AAC2000000000000\x02WAIT\x01true\x02"
    )
    for name, stats in (
        ("without", BrokerStatsManager(lambda: "C")),
        ("with", CountedStats(lambda: "C")),
    ):
        put = partial(stats.put, "orders", 1, 250, properties)
        took = min(repeat(put, number=20_000, repeat=40, timer=thread_time)) / 20_000
        tell(f"count_{name}", took * 1e9, "ns")


async def bench_page(*, topics: int, queues: int, messages: int) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-metrics-") as folder:
        async with EmbeddedCluster(root=Path(folder), metrics_listen="127.0.0.1:0") as cluster:
            state = cluster.master.broker.state
            await fill(state, topics=topics, queues=queues, messages=messages)
            page = MetricsPage(
                state,
                connections=lambda: 0,
                loop=LoopDelay(),
                events=EventCounts(),
                certificates=Certificates(state),
            )
            for name in ("first", "next", "third", "judged"):
                read(page, name)
                if name in ("next", "third"):
                    await trio.sleep(SAMPLE_EVERY)  # A verdict needs three samples.


async def fill(state: BrokerState, *, topics: int, queues: int, messages: int) -> None:
    host = pack_host("10.0.0.1", 1)
    for number in range(topics):
        topic = f"topic-{number:04}"
        state.topics.update(TopicConfig(topic, read_queue_nums=queues, write_queue_nums=queues))
        for queue_id in range(queues):
            for _ in range(messages):
                put = PutMessage(
                    topic=topic, queue_id=queue_id, flag=0, sys_flag=0, body=b"x" * 100, properties=b"",
                    born_time_ms=1, born_host=host, store_host=host,
                )  # fmt: skip
                assert state.store.append(put).message_count == 1
        state.stats.put(topic, messages * queues, 100 * messages * queues)
        for which in range(GROUPS_OF_A_TOPIC):
            group = f"group-{number:04}-{which}"
            state.groups.update(SubscriptionGroupConfig(group))
            state.stats.got(topic, group, 1, 100)
            for queue_id in range(queues):
                state.consumer_offsets.commit_offset(group, topic, queue_id, which)
        await trio.lowlevel.checkpoint()


def read(page: MetricsPage, name: str) -> None:
    """Make the page as the server does, and measure its parts."""
    gc.collect()
    packer = zlib.compressobj(COMPRESSION_LEVEL)
    size = packed = parts = 0
    longest = 0.0
    begin = cpu = thread_time()
    wall = perf_counter()
    for part in page.parts():
        size += len(part)
        packed += len(packer.compress(part))
        now = thread_time()
        longest, cpu = max(longest, now - cpu), now
        parts += 1
    tell(
        f"page_{name}",
        1000 * (thread_time() - begin),
        "ms of CPU",
        seconds=round(perf_counter() - wall, 3),
    )
    tell(f"page_{name}_part", 1000 * longest, "ms of CPU", parts=parts)
    tell(f"page_{name}_size", size / 1e6, "MB", packed=round(packed / 1e6, 3))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--messages", type=int, default=3, help="in each queue")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--count", type=int, default=40_000, help="sends in a round")
    chosen = parser.parse_args()
    trio.run(
        lambda: bench_page(topics=chosen.topics, queues=chosen.queues, messages=chosen.messages)
    )
    bench_count()
    try:
        with load_generator() as generator:
            bench_sends(generator, rounds=chosen.rounds, count=chosen.count)
    except NoCompilerError as error:
        print(f"bench_metrics: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
