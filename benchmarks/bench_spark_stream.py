"""Reading a topic with Spark as a stream: `python benchmarks/bench_spark_stream.py [PART ...] [--small]`.

    floor       ms of the smallest micro-batches, of a hundred messages, of a topic of one queue and of sixteen, without
                the wait for the next poll; beside them a source of the JVM's own: what Spark costs without Python
    throughput  rows/s of large ones: AvailableNow queries over a full topic into Spark's no-op sink, by the time of
                their batches

Both without a name. Needs Java.
"""

import statistics
import sys
import tempfile
import time
from typing import Any

import trio
from arguments import chosen_parts
from processes import cluster
from spark_parts.fixtures import fill, report, session

from rocketrio import Message, open_admin, open_producer

PARTS = ("floor", "throughput")
ROUNDS = 3
CHOICES = {"all": None, "keys,tags,body": "keys,tags,body", "body": "body"}
LARGE_ANSWERS = (
    "store.max_transfer_count_on_message_in_memory=1024",
    "store.max_transfer_bytes_on_message_in_memory=1048576",
)
ROWS_A_BATCH = 100
MASTER = "local[2]"
STARTS = 5
"""Spark gives the Python process of a stream ten seconds to start, which a busy machine may not."""


def started(frame: Any, folder: str, **trigger: Any) -> Any:
    """A query into nothing."""
    for _ in range(STARTS):
        writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
        query = (writer.trigger(**trigger) if trigger else writer).start()
        while query.isActive and query.lastProgress is None:
            time.sleep(0.01)
        if "failed to connect back" not in str(query.exception()):
            break
    return query


def stream(spark: Any, name_server: str, topic: str, **options: str) -> Any:
    """The topic as a stream."""
    reader = spark.readStream.format("rocketmq").option("nameServer", name_server)
    return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()


def batch_seconds(progress: Any) -> float:
    """What a batch took without waiting for its data."""
    took = progress["durationMs"]
    return float(took["triggerExecution"] - took["latestOffset"]) / 1000


def throughput(spark: Any, name_server: str, size: int, rows: int, rounds: int) -> None:
    """Rows/s of batches of half the topic."""
    for name, columns in CHOICES.items():
        options = {"maxOffsetsPerTrigger": str(rows // 2), "minPartitions": "2"}
        if columns is not None:
            options["columns"] = columns
        rates: list[float] = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                frame = stream(spark, name_server, f"bench{size}", **options)
                query = started(frame, folder, availableNow=True)
                query.awaitTermination()
                full = [found for found in query.recentProgress if found["numInputRows"]]
                rates += [found["numInputRows"] / batch_seconds(found) for found in full[1:]]
        rate = statistics.median(rates)
        report("spark stream", rate, "rows/s", body=size, columns=name, master=MASTER)


def floor(spark: Any, name_server: str, topic: str, queues: int, batches: int) -> None:
    """How long the smallest batches take, and how old messages are when they are done."""
    with tempfile.TemporaryDirectory() as folder:
        frame = stream(
            spark, name_server, topic, offsetPollIntervalMs="10", columns="queue_id,body"
        )
        query = started(frame, folder)
        for batch in range(1, batches + 1):
            trio.run(send, name_server, topic)
            while query.isActive and rows_of(query) < batch * ROWS_A_BATCH:
                time.sleep(0.005)
        query.stop()
    report_floor("spark stream floor", query, queues=queues)


def rows_of(query: Any) -> int:
    """How many it has read."""
    return sum(progress["numInputRows"] for progress in query.recentProgress)


async def send(name_server: str, topic: str) -> None:
    """A hundred messages at once."""
    async with open_producer(name_servers=name_server) as producer, trio.open_nursery() as nursery:
        for _ in range(ROWS_A_BATCH):
            nursery.start_soon(producer.send, Message(topic, b"x" * 100))


def control_floor(spark: Any, batches: int) -> None:
    """The same of a source that is Spark's own."""
    with tempfile.TemporaryDirectory() as folder:
        reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_A_BATCH)
        query = started(reader.option("numPartitions", 1).load(), folder)
        while query.isActive and len(query.recentProgress) < batches:
            time.sleep(0.05)
        query.stop()
    report_floor("spark control floor", query, queues=0)


def report_floor(name: str, query: Any, *, queues: int) -> None:
    """The median of the later half: batches get faster as the JVM warms up."""
    found = [batch_seconds(p) * 1000 for p in query.recentProgress if p["numInputRows"]]
    late = found[len(found) // 2 :]
    report(name, statistics.median(late), "ms", queues=queues, batches=len(late), master=MASTER)


async def prepare(name_server: str) -> None:
    """The topics of the floor."""
    async with open_admin(name_servers=name_server) as admin:
        await admin.create_topic("floor1", queues=1)
        await admin.create_topic("floor16", queues=16)


def main() -> int:
    """All cases."""
    chosen = chosen_parts(__doc__, PARTS, with_java=PARTS)
    if not chosen.parts:
        return 0
    small = chosen.small
    sizes = ((100, 20_000),) if small else ((100, 1_000_000), (1024, 200_000))
    queue_counts = (16,) if small else (1, 16)
    batches = 6 if small else 60
    with cluster(LARGE_ANSWERS) as addresses:
        if "floor" in chosen:
            trio.run(prepare, addresses.name_server)
        if "throughput" in chosen:
            for size, rows in sizes:
                trio.run(fill, addresses.master, f"bench{size}", rows, size)
        with session() as spark:
            if "floor" in chosen:
                control_floor(spark, batches)
                for queues in queue_counts:
                    floor(spark, addresses.name_server, f"floor{queues}", queues, batches)
            if "throughput" in chosen:
                for size, rows in sizes:
                    throughput(spark, addresses.name_server, size, rows, 1 if small else ROUNDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
