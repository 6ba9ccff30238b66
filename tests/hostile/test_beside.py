"""A producer and a consumer beside each attack: every message arrives, soon, and the servers stay as small as they say.

Real processes. What others feel is judged against the same seconds without an attack, for machines differ.
"""

import os
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio

from rocketrio import Message, open_admin, open_consumer, open_producer
from tests.hostile.attacks import ATTACKS, TOPIC
from tests.support.ours import OurBroker, OurNameServer
from tests.support.processes import Process, free_port

ROOT: Final = Path(__file__).parents[2]
pytestmark = [pytest.mark.real, pytest.mark.slow]

SECONDS: Final = 4.0
RATE: Final = 50
"""Messages a second: calm enough to see each pause."""
LATENCY_LIMIT: Final = 0.1
"""Seconds from before the send to the consumer's loop, of 99 in 100."""
NOISE: Final = 4.0
"""How often the calm latency an attacked one may be where the machine itself is slower than the limit."""
ARRIVAL_LIMIT: Final = 30.0
"""Seconds after which a message that has not come counts as lost."""
FILLING: Final = 400
"""Messages of 16 KiB in the topic of the attacks."""
MEMORY_LIMIT: Final = 600 << 20
"""Bytes of a server's memory after all attacks: 256 MiB of unfinished frames, and what it needs itself."""


@attrs.frozen
class Cluster:
    """A name server and a master."""

    names: OurNameServer
    broker: OurBroker
    metrics_port: int


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home, port = tmp_path_factory.mktemp("hostile"), free_port()
    with (
        OurNameServer(home / "names") as names,
        OurBroker(
            home / "broker", names.address, settings=(f"metrics_listen=127.0.0.1:{port}",)
        ) as broker,
    ):
        trio.run(fill, names.address)
        yield Cluster(names, broker, port)


async def fill(name_server: str) -> None:
    """Make the topic that the attacks are about, with something to read in each of its queues."""
    async with (
        open_admin(name_servers=[name_server]) as admin,
        open_producer(name_servers=[name_server]) as producer,
    ):
        await admin.create_topic(TOPIC, queues=4)
        for number in range(FILLING):
            await producer.send(Message(TOPIC, bytes(16 << 10), tags=f"t{number % 3}"))


async def latencies(cluster: Cluster, topic: str, seconds: float) -> list[float]:
    """Of each message of some seconds, sorted; fails where one does not arrive."""
    servers = [cluster.names.address]
    sent: dict[bytes, float] = {}
    took: dict[bytes, float] = {}
    async with open_admin(name_servers=servers) as admin:
        await admin.create_topic(topic, queues=4)
    async with (
        open_producer(name_servers=servers) as producer,
        open_consumer(
            topic, group="workers", start_from="earliest", name_servers=servers
        ) as consumer,
    ):

        async def produce() -> None:
            begin = trio.current_time()
            for number in range(int(seconds * RATE)):
                await trio.sleep_until(begin + number / RATE)
                body = b"%d" % number
                sent[body] = trio.current_time()
                await producer.send(Message(topic, body))

        with trio.fail_after(seconds + ARRIVAL_LIMIT):
            await producer.send(Message(topic, b"first"))
            await consumer.receive_batch(1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                while len(took) < int(seconds * RATE):
                    for message in await consumer.receive_batch(100):
                        took.setdefault(message.body, trio.current_time() - sent[message.body])
    return sorted(took.values())


def p99(values: list[float]) -> float:
    return values[len(values) * 99 // 100]


@pytest.fixture(scope="module")
def calm(cluster: Cluster) -> float:
    """What 99 in 100 take without an attack."""
    return p99(trio.run(latencies, cluster, "calm", SECONDS))


@pytest.mark.parametrize("name", ATTACKS)
def test_honest_clients_are_not_disturbed_by_an_attack(
    cluster: Cluster, calm: float, name: str, tmp_path: Path
) -> None:
    addresses = cluster.broker.address, cluster.names.address, str(cluster.broker.port + 1)
    words = [name, *addresses, str(cluster.metrics_port), str(SECONDS + 2)]
    argv = [sys.executable, "-m", "tests.hostile.attacks", *words]
    attacker = Process.start(name, argv, log=tmp_path / "attacker.log", cwd=ROOT)
    try:
        took = trio.run(latencies, cluster, f"beside_{name}", SECONDS)
        assert attacker.is_running, attacker.tail()
        if name.startswith("metrics"):
            for _ in range(5):
                assert "rocketrio_broker_takes_writes" in page(cluster.metrics_port)
    finally:
        attacker.kill()
    assert p99(took) < max(LATENCY_LIMIT, NOISE * calm), (
        f"calm {calm:.3f} s, attacked {p99(took):.3f} s, worst {took[-1]:.3f} s"
    )


def page(port: int) -> str:
    """The page of metrics, asked for by another host than the attacker's."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5, source_address=("127.0.0.2", 0))
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.read().decode()


def test_servers_are_as_small_as_they_say(cluster: Cluster) -> None:
    """After all attacks."""
    for server in (cluster.names, cluster.broker):
        assert resident(server.running.pid) < MEMORY_LIMIT


def resident(pid: int) -> int:
    """Bytes of a process in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
