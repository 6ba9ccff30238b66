"""A client of RocketMQ 5 (gRPC) that sends to our broker through Apache's proxy, which checks the types of messages."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio

from rocketrio import open_admin, open_consumer
from tests.interop.apache import JVM_OPTIONS
from tests.interop.jars import UnavailableError, cache_folder, fetch_jars
from tests.interop.java_sources import compiled
from tests.interop.proxy import ApacheProxy, proxy_jars
from tests.support.ours import OurBroker, OurNameServer

pytestmark = pytest.mark.interop

CLIENT_VERSION = "5.0.7"
SOURCES = Path(__file__).parent / "grpc"
SEND_LIMIT = 60.0
"""Seconds for one program: a JVM's start, a route, a send."""


def client_jars() -> Path:
    """The folder with the jars of Apache's gRPC client. Raises `UnavailableError` without Maven Central."""
    folder = cache_folder() / f"client-java-{CLIENT_VERSION}"
    if not folder.exists():
        fetch_jars([f"org.apache.rocketmq:rocketmq-client-java:{CLIENT_VERSION}"], folder)
    return folder


@attrs.frozen
class Behind:
    """A name server with our only broker, and a proxy before them."""

    names: str
    proxy: str

    def send(self, topic: str, kind: str) -> str:
        """What one program printed."""
        jars = client_jars()
        classes = compiled(f"grpc-{CLIENT_VERSION}", sorted(SOURCES.glob("*.java")), f"{jars}/*")
        done = subprocess.run(
            ["java", *JVM_OPTIONS, "-Xmx128m", "-cp", f"{classes}:{jars}/*", "Sends", self.proxy, topic, kind],
            check=False, capture_output=True, text=True, timeout=SEND_LIMIT,
        )  # fmt: skip
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    folder = tmp_path_factory.mktemp("grpc")
    try:
        proxy_jars()
        client_jars()
    except UnavailableError as error:
        pytest.skip(f"interop: skipped: {error}")
    with (
        OurNameServer(folder / "names") as names,
        OurBroker(folder / "broker", names.address),
        ApacheProxy(folder / "proxy", names.address, checks_types=True) as proxy,
    ):
        yield Behind(names.address, f"127.0.0.1:{proxy.grpc_port}")


async def made(behind: Behind, topic: str, message_type: str) -> None:
    async with open_admin(name_servers=[behind.names]) as admin:
        await admin.create_topic(topic, queues=1, attributes={"message.type": message_type})


async def bodies(behind: Behind, topic: str) -> list[bytes]:
    """The first message, and what comes within a second after it."""
    found: list[bytes] = []
    async with open_consumer(
        topic, group=f"of-{topic}", name_servers=[behind.names], start_from="earliest"
    ) as consumer:
        with trio.move_on_after(30) as patience:
            async for message in consumer:
                found.append(bytes(message.body))
                patience.deadline = trio.current_time() + 1
    return found


@pytest.mark.parametrize(("message_type", "kind"), [("FIFO", "fifo"), ("NORMAL", "normal")])
async def test_proxy_takes_messages_of_the_type_that_their_topic_declares(
    behind: Behind, message_type: str, kind: str
) -> None:
    topic = f"typed-{message_type}"
    await made(behind, topic, message_type)
    other = {"fifo": "normal", "normal": "fifo"}[kind]
    assert behind.send(topic, kind).strip().endswith("sent")
    refused = behind.send(topic, other)
    assert "message type" in refused, refused
    assert await bodies(behind, topic) == [kind.encode()]


async def test_transactions_are_ended_through_the_proxy(behind: Behind) -> None:
    await made(behind, "paid", "TRANSACTION")
    for kind in ("rollback", "commit"):
        told = behind.send("paid", kind)
        assert "sent" in told, told
    assert await bodies(behind, "paid") == [b"commit"]
