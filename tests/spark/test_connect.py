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
from tests.support.processes import die_with_parent, free_port
from tests.support.quick_start import quick_home
from tests.support.running_cluster import Running, cluster_fixture, full_topics, numbered

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUEUES, COUNT = 2, 200
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
JOB = Path(__file__).with_name("connect_job.py")
TIME_LIMIT = 400.0
"""Seconds for a client; the first one waits for the server's start, too."""


cluster = cluster_fixture(full_topics(orders=(QUEUES, COUNT), written=(2, 0), streamed=(2, 0)))


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
    ]
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(
            command,
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_parent,
        ) as process,
    ):
        try:
            yield f"sc://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # with its JVM and Python workers


def results(
    remote: str, cluster: Running, tmp_path_factory: pytest.TempPathFactory, *kinds: str
) -> dict[str, object]:
    """What one client found."""
    folder = tmp_path_factory.mktemp("client")
    done = subprocess.run(
        [sys.executable, str(JOB), remote, cluster.name_server, str(folder), *kinds],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    found: dict[str, object] = json.loads(lines[0].removeprefix("RESULT "))
    return found


@pytest.fixture(scope="module")
def client(
    remote: str, cluster: Running, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, object]:
    """What a client without rocketrio found, by the kind of its work."""
    kinds = ("read", "wrong", "stream", "write", "stream-write")
    return results(remote, cluster, tmp_path_factory, *kinds)


def _bytes() -> list[list[int]]:
    return [[q, sum(len(m.body) for m in numbered(q, COUNT))] for q in range(QUEUES)]


def test_a_batch_is_read_by_the_server(client: dict[str, object]) -> None:
    assert client["read"] == _bytes()


def test_helper_reads_through_the_server(
    remote: str, cluster: Running, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert results(remote, cluster, tmp_path_factory, "helper") == {"helper": _bytes()}


def test_wrong_option_is_reported_to_the_client(client: dict[str, object]) -> None:
    said = str(client["wrong"])
    assert "[ROCKETMQ_OPTION] unknown option 'subscribed'; did you mean subscribe?" in said


def test_a_stream_is_read_by_the_server(client: dict[str, object]) -> None:
    assert client["stream"] == _bytes()


@pytest.mark.parametrize(("kind", "letter"), [("write", "w"), ("stream-write", "s")])
def test_rows_are_written_by_the_server(client: dict[str, object], kind: str, letter: str) -> None:
    assert client[kind] == [f"{letter}{number}" for number in range(10)]
