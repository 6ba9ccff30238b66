"""Spark's Kafka source against ours in one session on local[2]: an aggregate over all rows, and a sink that drops them.

Both topics have four queues with the same keys and bodies. CPU is that of Spark, its Python workers and the broker.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio
from spark_parts.fixtures import session

from peers.clusters import our_master
from peers.figures import CpuMeter, Goal, Run, alternate, cpu_seconds, tell_rates
from peers.kafka import kafka_broker, spark_class_path
from rocketrio import Message, open_client, open_producer
from rocketrio.admin.admin import open_admin

QUEUES = 4
GOALS = {100: Goal(1, 1.5), 1024: Goal(1.8, 3)}
COLUMNS = {"all": None, "keys,tags,body": "keys,tags,body", "body": "body"}
"""By what stands in the line."""


@attrs.frozen
class Scale:
    """How much is read."""

    rounds: int
    warm_up: int
    rows: dict[int, int]
    """By size of the body."""


FULL = Scale(rounds=3, warm_up=1, rows={100: 2_000_000, 1024: 400_000})
SMALL = Scale(rounds=1, warm_up=0, rows={100: 4_000})


@attrs.frozen
class Sides:
    """A session, and both brokers."""

    session: Any
    kafka: str
    kafka_pid: int
    name_server: str
    our_pid: int

    def their_reader(self, topic: str) -> Any:
        reader = self.session.read.format("kafka").option("kafka.bootstrap.servers", self.kafka)
        return reader.option("subscribe", topic)

    def our_reader(self, topic: str, columns: str | None) -> Any:
        reader = self.session.read.format("rocketmq").option("nameServer", self.name_server)
        reader = reader.option("subscribe", topic)
        return reader if columns is None else reader.option("columns", columns)

    def timed(self, broker_pid: int, rows: int, job: Callable[[], None]) -> Run:
        """One job of Spark's."""
        spark: int = self.session.sparkContext._gateway.proc.pid
        workers = _below(spark)
        meter = CpuMeter({"broker": [broker_pid], "spark": [spark], "python": workers})
        started = time.perf_counter()
        job()
        taken = time.perf_counter() - started
        used = meter.used()
        used["python"] += cpu_seconds(*set(_below(spark)) - set(workers))
        return Run(rows, taken, used)


def measure(scale: Scale) -> None:
    """All lines. Raises UnavailableError where the Kafka side cannot be had."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    class_path = spark_class_path(pyspark.__version__, jars)
    with (
        tempfile.TemporaryDirectory(prefix="bench-peers-") as name,
        kafka_broker(Path(name) / "kafka", partitions=QUEUES) as (kafka, kafka_pid),
        our_master(Path(name) / "ours") as (name_server, master),
        _kafka_session(class_path, Path(name)) as spark,
    ):
        sides = Sides(spark, kafka, kafka_pid, name_server.address, master.pid)
        for size, rows in scale.rows.items():
            topic = f"rows-{size}"
            _fill_kafka(sides, topic, rows, size)
            trio.run(partial(_fill_ours, sides.name_server, topic, rows, size))
            for kind, job in (("aggregate", _aggregate), ("noop", _drop)):
                _compare(sides, scale, f"spark_{kind}_{size}", topic, rows, job, GOALS[size])


def _compare(
    sides: Sides,
    scale: Scale,
    name: str,
    topic: str,
    rows: int,
    job: Callable[[Any, str, int], None],
    goal: Goal,
) -> None:
    def theirs() -> Run:
        reader = sides.their_reader(topic)
        return sides.timed(sides.kafka_pid, rows, lambda: job(reader.load(), "value", rows))

    def ours(columns: str | None) -> Run:
        reader = sides.our_reader(topic, columns)
        return sides.timed(sides.our_pid, rows, lambda: job(reader.load(), "body", rows))

    work = {label: partial(ours, columns) for label, columns in COLUMNS.items()}
    runs = alternate(scale.rounds, {"kafka": theirs, **work}, warm_up=scale.warm_up)
    for label in COLUMNS:
        tell_rates(
            name, runs[label], runs["kafka"], of="rows/s", goal=goal, columns=label, rows=rows
        )


def _aggregate(frame: Any, body: str, rows: int) -> None:
    from pyspark.sql.functions import count, length
    from pyspark.sql.functions import sum as sum_of

    total, counted = frame.agg(sum_of(length(body)), count("*")).first()
    if counted != rows or not total:
        raise RuntimeError(f"{counted} rows of {rows}")


def _drop(frame: Any, body: str, rows: int) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _fill_kafka(sides: Sides, topic: str, rows: int, size: int) -> None:
    """With Spark's own sink; a key of 14 bytes, as ours."""
    from pyspark.sql.functions import expr

    frame = sides.session.range(rows).select(
        expr("format_string('order-%08d', id)").alias("key"),
        expr(f"repeat('x', {size})").alias("value"),
    )
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", sides.kafka)
    writer.option("topic", topic).save()


async def _fill_ours(name_server: str, topic: str, rows: int, size: int) -> None:
    body = b"x" * size
    async with (
        open_client(name_servers=[name_server]) as client,
        open_admin(client=client) as admin,
        open_producer(client=client) as producer,
    ):
        await admin.create_topic(topic, queues=QUEUES)
        async with producer.pipeline() as pipeline:
            for number in range(rows):
                await pipeline.send(Message(topic, body, keys=f"order-{number:08d}", tags="red"))


@contextmanager
def _kafka_session(class_path: str, folder: Path) -> Iterator[Any]:
    """A Spark session that can read Kafka; its JVM ends with it."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": class_path,
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    with ExitStack() as stack, session(settings) as spark:
        stack.callback(_end_jvm, spark.sparkContext._gateway)
        yield spark


def _end_jvm(gateway: Any) -> None:
    gateway.shutdown()
    gateway.proc.kill()
    gateway.proc.wait()


def _below(pid: int) -> list[int]:
    """All processes below this one: Spark's Python workers."""
    found: list[int] = []
    for parent in itertools.chain([pid], found):
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found
