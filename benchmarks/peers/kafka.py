"""A Kafka broker (one node, KRaft) as a child process, and the jars of Spark's Kafka source."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.jars import UnavailableError, cache_folder, fetch_jars, require_java
from tests.interop.java_sources import compiled
from tests.support.processes import Process, free_port

from peers.java import SOURCES

KAFKA_VERSION = "3.9.1"
MEMORY = ("-Xms512m", "-Xmx512m")
"""Kafka's own script gives 1 GiB; half of it leaves room for Spark and changes nothing here."""
FORMAT_LIMIT = 60.0
"""Seconds until a data folder is made."""
COMMONS_POOL_VERSION = "2.12.1"
STAND_INS = tuple(
    SOURCES / f"{name}.java"
    for name in ("KafkaConfigUpdater", "KafkaTokenUtil$", "KafkaRedactionUtil$")
)
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions={partitions}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def kafka_jars() -> Path:
    """The broker's jars. Raises UnavailableError."""
    require_java()
    folder = cache_folder().parent / "kafka" / KAFKA_VERSION
    if not folder.exists():
        fetch_jars([f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}"], folder)
    return folder


def spark_class_path(spark_version: str, spark_jars: Path) -> str:
    """What Spark's driver needs beside its own jars to read Kafka. Raises UnavailableError.

    Maven Central does not have the source of every release: the first one of the same line is as good.
    """
    line = ".".join([*spark_version.split(".")[:2], "0"])
    reason = UnavailableError("")
    for version in dict.fromkeys([spark_version, line]):
        folder = cache_folder().parent / "spark-kafka" / version
        if not folder.exists():
            wanted = [
                f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",
                f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}",
                f"org.apache.commons:commons-pool2:{COMMONS_POOL_VERSION}",
            ]
            try:
                fetch_jars(wanted, folder, alone=True)
            except UnavailableError as error:
                reason = error
                continue
        stand_ins = compiled("spark-kafka-stand-ins", STAND_INS, f"{spark_jars}/*")
        return ":".join([*map(str, sorted(folder.glob("*.jar"))), str(stand_ins)])
    raise reason


@contextmanager
def kafka_broker(folder: Path, *, partitions: int) -> Iterator[tuple[str, int]]:
    """Its address and process id, once it listens; topics come into being when they are written to."""
    port, controller = free_port(), free_port()
    config = folder / "server.properties"
    folder.mkdir(parents=True)
    data = folder / "data"
    config.write_text(
        _SETTINGS.format(port=port, controller=controller, data=data, partitions=partitions)
    )
    java = ["java", *MEMORY, "-cp", f"{kafka_jars()}/*"]
    storage: list[str | Path] = [
        "kafka.tools.StorageTool",
        "format",
        "-t",
        _CLUSTER_ID,
        "-c",
        config,
    ]
    formatting = Process.start("kafka format", [*java, *storage], log=folder / "format.log")
    deadline = time.monotonic() + FORMAT_LIMIT
    while formatting.is_running and time.monotonic() < deadline:
        time.sleep(0.1)
    formatting.kill()
    if "Formatting" not in formatting.tail():
        raise RuntimeError(f"no Kafka storage:\n{formatting.tail()}")
    log = folder / "out.log"
    process = Process.start("kafka", [*java, "kafka.Kafka", config], log=log, cwd=folder)
    try:
        process.wait_until(lambda: _listens(port), "listening")
        yield f"127.0.0.1:{port}", process.pid
    finally:
        process.kill()


def _listens(port: int) -> bool:
    """Whether the port is open; clients wait for the rest themselves."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
