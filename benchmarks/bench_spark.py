"""Reading a topic with Spark: `python benchmarks/bench_spark.py [PART ...] [--small]`, rows/s.

    reader      the reader in one process, without Spark
    batch       batch jobs on local[2], in turn with a source that yields ready batches from memory, which is what Spark
                allows on this machine at this moment, and with one that makes rows one by one
    backfill    history read from a slave: how much each broker gave, and how much the master took meanwhile

The cluster runs in a process of its own on the same machine. Beside Apache's limit of 32 messages an answer stands the
same with answers of 1024. All parts without a name; `batch` and `backfill` need Java.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import trio
from arguments import Chosen, chosen_parts
from processes import Cluster, cluster
from spark_parts.control import generator_source, row_source
from spark_parts.fixtures import Writer, fill, report, session

from rocketrio import open_admin
from rocketrio.admin.topics import Served

PARTS = ("reader", "batch", "backfill")
ROUNDS = 3
CHOICES = {"all": None, "keys,tags,body": "keys,tags,body", "body": "body"}
LARGE_ANSWERS = (
    "store.max_transfer_count_on_message_in_memory=1024",
    "store.max_transfer_bytes_on_message_in_memory=1048576",
)
SMALL_MEMORY = (
    "slave_read_enable=true",
    "store.access_message_in_memory_max_bytes=4000000",
    "store.max_transfer_count_on_message_in_disk=1024",
    "store.max_transfer_bytes_on_message_in_disk=1048576",
)
ROW_BY_ROW_SHARE = 10
"""The row-by-row source reads a tenth: it takes ten times as long."""
MASTER = "local[2]"
COUNTED_WITHIN = 30.0
"""Seconds until brokers have counted what they gave: they take samples of ten."""

Sizes = tuple[tuple[int, int], ...]
"""Bytes of a body, and rows."""


def rates(works: dict[str, Callable[[], int]]) -> dict[str, float]:
    """Rows a second of each, the median of some rounds in turn after one that does not count."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(ROUNDS + 1):
        for name, work in works.items():
            started = time.perf_counter()
            rows = work()
            if round_:
                found[name].append(rows / (time.perf_counter() - started))
    return {name: statistics.median(values) for name, values in found.items()}


def topic_of(size: int) -> str:
    return f"bench{size}"


def read_options(addresses: Cluster, size: int, columns: str | None) -> dict[str, str]:
    options = {"nameServer": addresses.name_server, "subscribe": topic_of(size)}
    return options if columns is None else {**options, "columns": columns}


# --------------------------------------------------------------------------------------- in one process


def read_here(options: dict[str, str]) -> int:
    """All partitions one after the other, in this process."""
    from rocketrio.spark.source import RocketMQDataSource

    source = RocketMQDataSource(options)
    reader: Any = source.reader(source.schema())
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def reader_cases(addresses: Cluster, sizes: Sizes, answer: int) -> None:
    """The reader without Spark."""
    for size, _ in sizes:
        for name, columns in CHOICES.items():
            work = partial(read_here, read_options(addresses, size, columns))
            rate = rates({"reader": work})["reader"]
            report("reader", rate, "rows/s", body=size, columns=name, answer=answer)


# --------------------------------------------------------------------------------------------- in Spark


def count_bytes(frame: Any) -> int:
    """An aggregate that touches every row."""
    from pyspark.sql.functions import count, length
    from pyspark.sql.functions import sum as sum_of

    row = frame.agg(sum_of(length("body")), count("*")).first()
    return int(row[1])


def batch_cases(spark: Any, addresses: Cluster, sizes: Sizes, answer: int) -> None:
    """Ours, the API's limit and row by row, in turn."""
    spark.dataSource.register(generator_source())
    spark.dataSource.register(row_source())
    for size, rows in sizes:
        for name, columns in CHOICES.items():
            options = read_options(addresses, size, columns)
            ours = spark.read.format("rocketmq").options(**options, minPartitions="2").load()
            limit = spark.read.format("generator").options(rows=str(rows), size=str(size))
            share = rows // ROW_BY_ROW_SHARE // 2
            end = f'{{"{topic_of(size)}":{{"broker-a":{{"0":{share},"1":{share}}}}}}}'
            slow = spark.read.format("rows").options(**options, endingOffsets=end)
            found = rates(
                {
                    "spark batch": partial(count_bytes, ours),
                    "spark generator": partial(count_bytes, limit.schema(ours.schema).load()),
                    "spark row by row": partial(count_bytes, slow.schema(ours.schema).load()),
                }
            )
            params = {"body": size, "columns": name, "answer": answer, "master": MASTER}
            for what, rate in found.items():
                report(what, rate, "rows/s", **params)
            batch = found["spark batch"]
            report("of the API's limit", 100 * batch / found["spark generator"], "%", **params)
            report("over row by row", batch / found["spark row by row"], "times", **params)


def backfill_case(spark: Any, rows: int) -> None:
    """History read with readFrom=auto while the master takes writes: bytes by broker."""
    with cluster(SMALL_MEMORY, slaves=1) as addresses:
        trio.run(fill, addresses.master, topic_of(1024), rows, 1024)
        time.sleep(2)  # the slave copies it
        end = f'{{"{topic_of(1024)}":{{"broker-a":{{"0":{rows // 2 - 3000},"1":{rows // 2 - 3000}}}}}}}'
        options = read_options(addresses, 1024, "queue_offset,body")
        frame = spark.read.format("rocketmq").options(
            **options, endingOffsets=end, consumerGroup="backfill", minPartitions="8"
        )
        with Writer(addresses.name_server, topic_of(1024), 1024) as writer:
            started = time.perf_counter()
            count = count_bytes(frame.load())
            seconds = time.perf_counter() - started
        report("spark backfill", count / seconds, "rows/s", body=1024, master=MASTER)
        report("sent meanwhile", writer.sent / seconds, "messages/s", body=1024)
        for share in trio.run(shares, addresses.name_server, count):
            role = "slave" if share.broker_id else "master"
            report("served to the backfill", share.bytes or 0, "bytes", broker=role)


async def shares(name_server: str, count: int) -> list[Served]:
    """What each broker gave, once it is `count` messages or COUNTED_WITHIN is over."""
    found: list[Served] = []
    async with open_admin(name_servers=name_server) as admin:
        with trio.move_on_after(COUNTED_WITHIN):
            while True:
                found = await admin.served(topic_of(1024), "backfill")
                if sum(share.messages or 0 for share in found) >= count:
                    return found
                await trio.sleep(1)
    return found


def read_cases(
    chosen: Chosen, sizes: tuple[tuple[int, int], ...], settings: tuple[str, ...], answer: int
) -> None:
    """Both ways of reading all sizes, of a cluster whose answers have this number of messages."""
    with cluster(settings) as addresses:
        for size, rows in sizes:
            trio.run(fill, addresses.master, topic_of(size), rows, size)
        time.sleep(1)  # the last messages reach their queues
        if "reader" in chosen:
            reader_cases(addresses, sizes, answer)
        if "batch" in chosen:
            with session() as spark:
                batch_cases(spark, addresses, sizes, answer)


def main() -> int:
    """All cases."""
    chosen = chosen_parts(__doc__, PARTS, with_java=("batch", "backfill"))
    small = chosen.small
    sizes = ((100, 20_000 if small else 500_000), (1024, 10_000 if small else 200_000))
    if "reader" in chosen or "batch" in chosen:
        read_cases(chosen, sizes, (), 32)
        read_cases(chosen, sizes, LARGE_ANSWERS, 1024)
    if "backfill" in chosen:
        with session() as spark:
            backfill_case(spark, sizes[1][1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
