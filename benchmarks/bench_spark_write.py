"""Writing a DataFrame to a topic: `python benchmarks/bench_spark_write.py [PART ...] [--small]`.

    encoder     CPU time a row of making messages of rows, without sending them
    task        one task in this process: rows/s, and CPU time a row beside the broker's
    job         Spark jobs on local[2], in turn with Spark's no-op sink and with a Python sink that drops its record
                batches, which is what the API allows

The cluster runs in a process of its own on the same machine, and takes its share of it. All parts without a name; `job`
needs Java.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from arguments import chosen_parts
from processes import cluster
from spark_parts.fixtures import report, session

from rocketrio.spark.writing.options import SEND_BATCH_BYTES, WriteOptions
from rocketrio.spark.writing.rows import RowEncoder
from rocketrio.spark.writing.schema import WriteColumns
from rocketrio.spark.writing.stamps import TaskStamp
from rocketrio.spark.writing.writer import write_rows
from rocketrio_protocol.record.message_id import UniqueIdGenerator

PARTS = ("encoder", "task", "job")
ROWS_PER_BATCH = 10_000  # as Spark hands them over (maxRecordsPerBatch)
ROUNDS = 3
CASES: dict[str, tuple[str, ...]] = {
    "body": ("body",),
    "body, keys, tags": ("body", "keys", "tags"),
    "body, keys, tags, 5 properties": ("body", "keys", "tags", "properties"),
}


def record_batch(columns: tuple[str, ...], body_size: int) -> Any:
    """Rows as Spark hands them to a task."""
    numbers = range(ROWS_PER_BATCH)
    made: dict[str, Callable[[], Any]] = {
        "body": lambda: pa.array([b"x" * body_size for _ in numbers], pa.binary()),
        "keys": lambda: pa.array([f"order-{number:08d}" for number in numbers]),
        "tags": lambda: pa.array(["red" if number % 2 else "blue" for number in numbers]),
        "properties": lambda: pa.array(
            [[(f"name-{n}", f"value-{number % 97}") for n in range(5)] for number in numbers],
            pa.map_(pa.string(), pa.string()),
        ),
    }
    return pa.RecordBatch.from_pydict({name: made[name]() for name in columns})


def write_columns(columns: tuple[str, ...]) -> WriteColumns:
    """Where they are."""
    return WriteColumns(**{name: place for place, name in enumerate(columns)})


def encoder_cases(repetitions: int) -> None:
    """CPU time of making messages of rows, without sending them."""
    options = WriteOptions(("unused:1",), topic="bench")
    for size in (100, 1024):
        for name, columns in CASES.items():
            batch = record_batch(columns, size)
            for stamp in (None, TaskStamp("0b3f9a52", "17", 3)):
                ids = UniqueIdGenerator(
                    ip="10.0.0.1", process_id=1, wall_clock_ms=lambda: 0, instance_hash=1
                )
                encoder = RowEncoder(write_columns(columns), options, ids, 3, stamp)
                best = min(cpu_time(partial(encoder.encode, batch)) for _ in range(repetitions))
                report(
                    "spark write: encoding", best / ROWS_PER_BATCH * 1e6, "us CPU/row",
                    body=size, columns=name, stamps=stamp is not None,
                )  # fmt: skip


def cpu_time(work: Callable[[], object]) -> float:
    """Seconds of this process."""
    started = time.process_time()
    work()
    return time.process_time() - started


def task_cases(name_server: str, rows: int, batch_sizes: tuple[int, ...]) -> None:
    """One task in this process: what it sends, and what it costs beside the broker."""
    for size in (100, 1024):
        for name, columns in CASES.items():
            batch = record_batch(columns, size)
            for batch_bytes in batch_sizes:
                options = WriteOptions((name_server,), topic="bench", send_batch_size=batch_bytes)
                rates, spent = [], []
                for _ in range(ROUNDS):
                    batches = iter([batch] * (rows // ROWS_PER_BATCH))
                    stamp = TaskStamp("q", "", 0)
                    started, cpu = time.perf_counter(), time.process_time()
                    written = write_rows(batches, options, write_columns(columns), stamp).written
                    rates.append(written.rows / (time.perf_counter() - started))
                    spent.append((time.process_time() - cpu) / written.rows * 1e6)
                params = {"body": size, "columns": name, "sendBatchBytes": batch_bytes}
                report("spark write: one task", max(rates), "rows/s", **params)
                report("spark write: one task", min(spent), "us CPU/row", **params)


def dropping_sink() -> Any:
    """A Python sink that takes record batches and does nothing with them."""
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    class Writer(DataSourceArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Dropping(DataSource):
        @classmethod
        def name(cls) -> str:
            return "dropping"

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
            return Writer()

    return Dropping


def job_cases(spark: Any, name_server: str, rows: int) -> None:
    """Whole jobs, each in turn."""
    spark.dataSource.register(dropping_sink())
    for size, share in ((100, 1), (1024, 4)):
        frame = spark.range(0, rows // share, numPartitions=2)
        body, keys = f"repeat('x', {size}) AS body", "concat('order-', id) AS keys"
        tags = "if(id % 2 = 0, 'red', 'blue') AS tags"
        keyed = "concat('customer-', id % 1000) AS sharding_key"
        jobs: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
            "no-op sink": ("noop", (body, keys, tags), {}),
            "Python sink that drops": ("dropping", (body, keys, tags), {}),
            "rocketmq, body": ("rocketmq", (body,), {}),
            "rocketmq, body, keys, tags": ("rocketmq", (body, keys, tags), {}),
            "rocketmq, dedupProperties": ("rocketmq", (body, keys, tags), {"dedupProperties": "true"}),
            "rocketmq, sharding_key": ("rocketmq", (body, keys, tags, keyed), {}),
        }  # fmt: skip
        rates: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(ROUNDS + 1):
            for name, (form, columns, given) in jobs.items():
                writer = frame.selectExpr(*columns).write.format(form).mode("append")
                if form == "rocketmq":
                    writer = writer.options(nameServer=name_server, topic="bench", **given)
                started = time.perf_counter()
                writer.save()
                rates[name].append(rows // share / (time.perf_counter() - started))
        for name, found in rates.items():  # The first round warms up.
            report(
                "spark write: local[2]", statistics.median(found[1:]), "rows/s", body=size, sink=name
            )  # fmt: skip


def main() -> int:
    """All cases."""
    chosen = chosen_parts(__doc__, PARTS, with_java=("job",))
    small = chosen.small
    if "encoder" in chosen:
        encoder_cases(3 if small else 20)
    if not {"task", "job"} & chosen.parts:
        return 0
    with cluster() as addresses:
        sizes = (SEND_BATCH_BYTES,) if small else (128 * 1024, SEND_BATCH_BYTES, 1024 * 1024)
        if "task" in chosen:
            task_cases(addresses.name_server, 20_000 if small else 200_000, sizes)
        if "job" in chosen:
            with session() as spark:
                job_cases(spark, addresses.name_server, 40_000 if small else 400_000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
