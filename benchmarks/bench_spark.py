"""Reading a topic: rows/s of the reader in one process, and of a Spark batch job on local[2].

The cluster runs in a process of its own on the same machine. Each case is read three times, the last counts.
Beside Apache's limit of 32 messages an answer stands the same with answers of 1024. The control is a source that
yields one ready batch again and again: what Spark itself allows on this machine at this moment.
`small` as an argument makes it a matter of half a minute; without Java, or with `reader`, only the first part runs.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from rocketrio_protocol.batch import encode_batch
from rocketrio_protocol.commands.admin import CreateTopicRequestHeader
from rocketrio_protocol.commands.send import SendBatchMessageRequestHeader
from rocketrio_protocol.message import Message
from rocketrio_protocol.remoting.pool import ChannelPool, check, open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

QUEUES = 2
ROUNDS = 3
CHOICES = {"all": None, "keys,tags,body": "keys,tags,body", "body": "body"}
LARGE_ANSWERS = (
    "store.max_transfer_count_on_message_in_memory=1024",
    "store.max_transfer_bytes_on_message_in_memory=1048576",
)


def report(name: str, value: float, unit: str, **params: object) -> None:
    """One figure."""
    print(
        json.dumps({"name": name, "value": round(value), "unit": unit, "params": params}),
        flush=True,
    )


@contextmanager
def cluster(data: Path, settings: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """A cluster; its addresses by role."""
    command = [
        str(Path(sys.executable).with_name("rocketrio-broker")), "cluster", "--log-level", "error",
        "--listen", "127.0.0.1:0", "--data", str(data), "--slaves", "0",
        *(word for setting in settings for word in ("--set", setting)),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline().split() for _ in range(2)]
            words = [dict(word.split("=", 1) for word in line[1:]) for line in lines]
            yield {found["role"]: found["address"] for found in words}
        finally:
            process.terminate()


async def fill(addresses: dict[str, str], topic: str, rows: int, body_size: int) -> None:
    """Put messages with keys and tags into the topic."""
    async with open_channel_pool(dial_tcp) as pool:
        header = CreateTopicRequestHeader(
            topic, "TBW102", QUEUES, QUEUES, perm=6, topic_filter_type="SINGLE_TAG", order=False
        )
        check(await pool.call(addresses["master"], header, timeout=30), "no topic")
        async with trio.open_nursery() as nursery:
            for queue_id in range(QUEUES):
                nursery.start_soon(
                    fill_queue,
                    pool,
                    addresses["master"],
                    topic,
                    queue_id,
                    rows // QUEUES,
                    body_size,
                )


async def fill_queue(
    pool: ChannelPool, addr: str, topic: str, queue_id: int, rows: int, body_size: int
) -> None:
    """One queue, in batches of 250."""
    header = SendBatchMessageRequestHeader(
        "bench", topic, "TBW102", 4, queue_id, 0, 1_700_000_000_000, 0, properties="", batch=True
    )
    entries = []
    for number in range(250):
        message = Message(topic, b"x" * body_size, keys=f"order-{number:08d}", tags="red")
        properties = message.encoded_properties(unique_key=f"7F00000100002A139A5505D0{number:08X}")
        entries.append((0, message.body, properties.encode()))
    body = encode_batch(entries)
    for _ in range(rows // 250):
        check(await pool.call(addr, header, body, timeout=30), "not stored")


def timed(work: Callable[[], int]) -> float:
    """Rows a second of the last of some rounds."""
    rate = 0.0
    for _ in range(ROUNDS):
        started = time.perf_counter()
        rows = work()
        rate = rows / (time.perf_counter() - started)
    return rate


def read_here(options: dict[str, str]) -> int:
    """All partitions one after the other, in this process."""
    from rocketrio.spark.source import RocketMQDataSource

    source = RocketMQDataSource(options)
    reader: Any = source.reader(source.schema())
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


@contextmanager
def session() -> Iterator[Any]:
    """A Spark session whose workers run this interpreter."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def count_bytes(reader: Any) -> int:
    """An aggregate that touches every row."""
    from pyspark.sql.functions import count, length
    from pyspark.sql.functions import sum as sum_of

    row = reader.load().agg(sum_of(length("body")), count("*")).first()
    return int(row[1])


def control_source() -> Any:
    """A source that fetches and decodes nothing."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, rows: int, size: int) -> None:
            self.rows, self.size = rows, size

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(QUEUES)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import pyarrow

            body = pyarrow.array([b"x" * self.size] * 5000, pyarrow.binary())
            batch = pyarrow.RecordBatch.from_arrays([body], names=["body"])
            for _ in range(self.rows // QUEUES // 5000):
                yield batch

    class Control(DataSource):
        @classmethod
        def name(cls) -> str:
            return "control"

        def schema(self) -> str:
            return "body binary"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader(int(self.options["rows"]), int(self.options["size"]))

    return Control


def main() -> int:
    """All cases."""
    small = "small" in sys.argv
    with_spark = "reader" not in sys.argv
    has_java = shutil.which("java") is not None
    for settings, answer in (((), 32), (LARGE_ANSWERS, 1024)):
        with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), settings) as addresses:
            sizes = ((100, 20_000 if small else 500_000), (1024, 10_000 if small else 100_000))
            for size, rows in sizes:
                trio.run(fill, addresses, f"bench{size}", rows, size)
            time.sleep(1)  # the last messages reach their queues
            for size, _ in sizes:
                for name, columns in CHOICES.items():
                    options = {"nameServer": addresses["namesrv"], "subscribe": f"bench{size}"}
                    if columns is not None:
                        options["columns"] = columns
                    params = {"body": size, "columns": name, "answer": answer}
                    report(
                        "reader",
                        timed(partial(read_here, options)),
                        "rows/s",
                        **params,
                    )
            if with_spark and has_java:
                with session() as spark:
                    spark_cases(spark, addresses["namesrv"], sizes, answer)
    if with_spark and not has_java:
        print("no java: the Spark part was left out", file=sys.stderr)
    return 0


def spark_cases(spark: Any, name_server: str, sizes: Any, answer: int) -> None:
    """The same through Spark, with the control beside it."""
    spark.dataSource.register(control_source())
    for size, rows in sizes:
        for name, columns in CHOICES.items():
            reader = spark.read.format("rocketmq").option("nameServer", name_server)
            reader = reader.option("subscribe", f"bench{size}").option("minPartitions", "2")
            if columns is not None:
                reader = reader.option("columns", columns)
            rate = timed(partial(count_bytes, reader))
            report(
                "spark batch",
                rate,
                "rows/s",
                body=size,
                columns=name,
                answer=answer,
                master="local[2]",
            )
        control = spark.read.format("control").option("rows", str(rows)).option("size", str(size))
        rate = timed(partial(count_bytes, control))
        report("spark control", rate, "rows/s", body=size, columns="body", master="local[2]")


if __name__ == "__main__":
    sys.exit(main())
