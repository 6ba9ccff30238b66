"""An account in Spark: where its secret is not, and that queries do not share accounts (`spark/access.py`)."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trustme
from pyspark.sql.types import StructType
from tests.support.private_files import account_file
from tests.support.running_cluster import full_topics, running_cluster
from tests.support.tls import write_files
from trio.testing import MockClock

from rocketrio import Credentials, Error, Message, TlsOptions, open_producer
from rocketrio.spark.access import ClusterAccess, access_of
from rocketrio.spark.reading.options import parse_read_options
from rocketrio.spark.reading.reader import RocketMQBatchReader
from rocketrio.spark.runtime import SharedClients
from rocketrio.spark.streaming.options import parse_stream_options
from rocketrio.spark.writing.options import parse_write_options
from rocketrio_broker.embedded import EmbeddedCluster

MARKER = "markerofasecret"
TEXTS = {"accessKey": "someone", "secretKey": MARKER, "securityToken": f"{MARKER}-token"}
JOB_LIMIT = 400.0


def test_options_of_every_use_have_the_account_and_show_no_secret() -> None:
    given = {"nameServer": "h:1", **TEXTS}
    expected = Credentials("someone", MARKER, f"{MARKER}-token")
    for options, access in (
        (read := parse_read_options({**given, "subscribe": "t"}), read.access),
        (stream := parse_stream_options({**given, "subscribe": "t"}), stream.read.access),
        (write := parse_write_options(given, is_streaming=False), write.access),
    ):
        assert MARKER not in repr(options)
        assert access.client_options(("h:1",))["credentials"] == expected
        assert pickle.loads(pickle.dumps(access)) == access


def test_file_is_read_where_the_client_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    access = access_of({"credentialsFile": str(path)})
    provider = access.client_options(("h:1",))["credentials"]
    account_file(path, Credentials("someone", MARKER))
    assert callable(provider)
    assert provider() == Credentials("someone", MARKER)
    assert MARKER.encode() not in pickle.dumps(access)


def test_tls_of_every_use_reaches_the_client() -> None:
    files = {
        "tls.caFile": "ca",
        "tls.certFile": "cert",
        "tls.keyFile": "key",
        "tls.keyPasswordFile": "pass",
    }
    access = access_of({**files, "tls.checkHostName": "false"})
    assert access.client_options(("h:1",))["tls"] == TlsOptions(
        "ca", "cert", "key", check_host_name=False, key_password_file="pass"
    )
    assert access_of({"tls": "true"}).client_options(("h:1",))["tls"] is True
    assert access_of({"tls": "false"}).client_options(("h:1",))["tls"] is False
    assert parse_write_options({"tls": "true"}, is_streaming=False).access.tls is True
    assert access != access_of(files)  # So they share no client.


def test_without_options_the_environment_counts() -> None:
    assert access_of({}).client_options(("h:1",)) == {"name_servers": ("h:1",)}


async def test_queries_with_different_accounts_share_no_client(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, trio.open_nursery() as nursery:
        clients = SharedClients(nursery, cluster.dial)
        servers = tuple(cluster.name_servers)
        one, other = ClusterAccess("someone", MARKER), ClusterAccess("someone", "other-secret")
        first = await clients.client(servers, "a", one)
        assert await clients.client(servers, "b", ClusterAccess("someone", MARKER)) is first
        second = await clients.client(servers, "c", other)
        assert len({first, second, await clients.client(servers, "d")}) == 3
        assert second.account is not None
        assert second.account.credentials == Credentials("someone", "other-secret")
        nursery.cancel_scope.cancel()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_marker_is_in_nothing_that_spark_prints_or_keeps(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with running_cluster(tmp_path / "cluster", full_topics(orders=(2, 50))) as running:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.secret_job", running.name_server, "orders", str(home), MARKER],
            capture_output=True,
            text=True,
            timeout=JOB_LIMIT,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert "rows 100" in done.stdout
    for name in ("row", "half", "column", "task"):
        assert f"{name} failed" in done.stdout
    assert MARKER not in done.stdout
    assert MARKER not in done.stderr
    kept = [path for name in ("events", "checkpoint", "sink") for path in (home / name).rglob("*")]
    files = [path for path in kept if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if MARKER.encode() in path.read_bytes()] == []


@pytest.mark.real
@pytest.mark.slow
def test_driver_and_task_use_tls_and_check_the_servers_certificate(
    tmp_path: Path,
) -> None:
    files, other = write_files(tmp_path), tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    settings = (
        f"tls_certificate_file={files.certificate}",
        f"tls_key_file={files.key}",
        f"peer_tls_authority_file={files.authority}",
    )
    with running_cluster(tmp_path / "data", settings=settings) as running:
        trio.run(_send, running.name_server, files.authority)
        given = {"nameServer": running.name_server, "subscribe": "orders"}
        schema = StructType().add("body", "binary")
        reader = RocketMQBatchReader(
            parse_read_options({**given, "tls.caFile": str(files.authority)}), schema
        )
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert [row for batch in batches for row in batch.to_pylist()] == [{"body": b"secret"}]
        wrong = RocketMQBatchReader(parse_read_options({**given, "tls.caFile": str(other)}), schema)
        with pytest.raises(Error, match="certificate"):
            wrong.partitions()


async def _send(name_server: str, authority: Path) -> None:
    tls = TlsOptions(authority)
    async with open_producer(name_servers=[name_server], tls=tls) as producer:
        await producer.send(Message("orders", b"secret"))
