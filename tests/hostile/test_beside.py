"""A producer and a consumer beside each attack: every message arrives, soon, and the servers stay as small as they say.

Real processes. Soon means: the servers have done little else meanwhile. The CPU time that both spend between a send and
its arrival is the work that they do for the attacker first; how busy the machine is does not change it.
"""

from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio

from rocketrio import Message, open_admin, open_consumer, open_producer
from tests.hostile.attackers import attacking, cpu_seconds, resident
from tests.hostile.attacks import ATTACKS, TOPIC
from tests.support.further import one_in
from tests.support.ours import OurBroker, OurNameServer
from tests.support.processes import free_port

pytestmark = [pytest.mark.real, pytest.mark.slow]

COUNT: Final = 150
"""Messages of an honest producer."""
PAUSE: Final = 0.02
"""Seconds between two sends: calm enough to see what each one waits for."""
WORK_LIMIT: Final = 0.1
"""Seconds of the servers' CPU time from before the send to the consumer's loop, of half of the messages."""
LONGEST_WORK: Final = 0.5
"""The same of 99 in 100: clients that a busy machine lets wait find that their servers have done more meanwhile."""
ARRIVAL_LIMIT: Final = 90.0
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


def work(cluster: Cluster) -> float:
    """Seconds of CPU time that the servers have spent so far."""
    return sum(cpu_seconds(server.running.pid) for server in (cluster.names, cluster.broker))


async def create(cluster: Cluster, topic: str) -> None:
    """Create a topic before an attack: one of them registers brokers that no command reaches."""
    async with open_admin(name_servers=[cluster.names.address]) as admin:
        await admin.create_topic(topic, queues=4)


async def works(cluster: Cluster, topic: str) -> list[float]:
    """What the servers did for each message and meanwhile, sorted; fails where one does not arrive."""
    servers = [cluster.names.address]
    sent: dict[bytes, float] = {}
    took: dict[bytes, float] = {}
    async with (
        open_producer(name_servers=servers, timeout=ARRIVAL_LIMIT) as producer,
        open_consumer(
            topic, group="workers", start_from="earliest", name_servers=servers
        ) as consumer,
    ):

        async def produce() -> None:
            for number in range(COUNT):
                await trio.sleep(PAUSE)
                body = b"%d" % number
                sent[body] = work(cluster)
                await producer.send(Message(topic, body))

        with trio.fail_after(ARRIVAL_LIMIT):
            await producer.send(Message(topic, b"first"))
            await consumer.receive_batch(1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                while len(took) < COUNT:
                    for message in await consumer.receive_batch(100):
                        took.setdefault(message.body, work(cluster) - sent[message.body])
    return sorted(took.values())


@pytest.mark.parametrize("name", one_in(3, ATTACKS))
def test_honest_clients_are_not_disturbed_by_an_attack(
    cluster: Cluster, name: str, tmp_path: Path
) -> None:
    addresses = cluster.broker.address, cluster.names.address, str(cluster.broker.port + 1)
    trio.run(create, cluster, f"beside_{name}")
    log = tmp_path / "attacker.log"
    with attacking("attacks", name, *addresses, cluster.metrics_port, log=log):
        took = trio.run(works, cluster, f"beside_{name}")
        if name.startswith("metrics"):
            for _ in range(5):
                assert "rocketrio_broker_takes_writes" in page(cluster.metrics_port)
    median, p99 = took[COUNT // 2], took[COUNT * 99 // 100]
    assert (median < WORK_LIMIT, p99 < LONGEST_WORK) == (True, True), (median, p99)


def page(port: int) -> str:
    """The page of metrics, asked for by another host than the attacker's."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60, source_address=("127.0.0.2", 0))
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.read().decode()


def test_servers_are_as_small_as_they_say(cluster: Cluster) -> None:
    """After all attacks."""
    for server in (cluster.names, cluster.broker):
        assert resident(server.running.pid) < MEMORY_LIMIT
