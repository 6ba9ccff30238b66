"""Spark Connect: a server in processes of its own, and clients that have no rocketrio."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from tests.support.processes import free_port
from tests.support.quick_start import JAVA_OPTIONS, quick_home
from tests.support.running_cluster import Running, cluster_of_orders, numbered

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUEUES, COUNT = 2, 200
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
JOB = Path(__file__).with_name("connect_job.py")
TIME_LIMIT = 400.0
"""Seconds for a client; the first one waits for the server's start, too."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    data = tmp_path_factory.mktemp("cluster")
    with cluster_of_orders(data, QUEUES, COUNT, empty=("written", "streamed")) as running:
        yield running


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose Python has rocketrio."""
    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    quick_home(tmp_path_factory.mktemp("spark"))
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--class", SERVER, "--master", "local[2]", "--name", "connect"),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--driver-java-options", JAVA_OPTIONS),
        *("--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.sql.shuffle.partitions=2"),
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        try:
            yield f"sc://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # with its JVM and Python workers


def client(kind: str, remote: str, cluster: Running, topic: str, folder: Path) -> object:
    done = subprocess.run(
        [sys.executable, str(JOB), kind, remote, cluster.name_server, topic, str(folder)],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(results[0].removeprefix("RESULT "))


def _bytes() -> list[list[int]]:
    return [[q, sum(len(m.body) for m in numbered(q, COUNT))] for q in range(QUEUES)]


@pytest.mark.parametrize("kind", ["read", "helper"])
def test_a_batch_is_read_by_the_server(
    remote: str, cluster: Running, tmp_path: Path, kind: str
) -> None:
    assert client(kind, remote, cluster, "orders", tmp_path) == _bytes()


def test_wrong_option_is_reported_to_the_client(
    remote: str, cluster: Running, tmp_path: Path
) -> None:
    said = str(client("wrong", remote, cluster, "orders", tmp_path))
    assert "[ROCKETMQ_OPTION] unknown option 'subscribed'; did you mean subscribe?" in said


def test_a_stream_is_read_by_the_server(remote: str, cluster: Running, tmp_path: Path) -> None:
    assert client("stream", remote, cluster, "orders", tmp_path) == _bytes()


@pytest.mark.parametrize(("kind", "letter"), [("write", "w"), ("stream-write", "s")])
def test_rows_are_written_by_the_server(
    remote: str, cluster: Running, tmp_path: Path, kind: str, letter: str
) -> None:
    topic = "written" if kind == "write" else "streamed"
    written = client(kind, remote, cluster, topic, tmp_path)
    assert written == [f"{letter}{number}" for number in range(10)]
