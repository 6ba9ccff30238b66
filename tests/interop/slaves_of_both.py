"""A master of one product with a slave of each, and the same the other way round: what several stories run on.

    id 0   Apache or ours
    id 1   Apache's slave
    id 2   our slave

Readers count as behind memory as long as they are not level (`accessMessageInMemoryMaxRatio` 0), so that masters send
them to a slave. Our slave replicates through a relay, and Apache's too where the master is ours: it cuts connections
on an order.
Topics and groups are made before the slaves start: 5.3.3's copies them 3 s after its start, and then once a minute.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import trio

from rocketrio import open_admin
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.interop.java_client import JavaClient
from tests.support.ours import OurBroker, OurNameServer
from tests.support.relay import RelayProcess, relay_to
from tests.support.server import start_together

APACHE_SLAVE, OUR_SLAVE = 1, 2
CLIENTS = ("java", "ours")
NO_MEMORY = {"accessMessageInMemoryMaxRatio": "0"}
OUR_SETTINGS = ("slave_read_enable=true", "store.access_message_in_memory_max_bytes=0")
TOPICS = ("split", "killed", "loaded")
"""Of one queue each."""

Broker = ApacheBroker | OurBroker


@attrs.frozen
class Cluster:
    """What runs."""

    name_server: str
    master: Broker
    apache_slave: ApacheBroker
    our_slave: OurBroker
    link: RelayProcess
    """What slaves of the other product, at least, replicate through."""
    java: JavaClient

    @property
    def slaves(self) -> dict[int, Broker]:
        return {APACHE_SLAVE: self.apache_slave, OUR_SLAVE: self.our_slave}


def group_of(client: str, story: str, slave: int) -> str:
    """A group that is read from this slave when it is behind."""
    return f"{story}-{client}-{slave}"


async def _make_groups(name_server: str) -> None:
    async with open_admin(name_servers=[name_server]) as admin:
        for client in CLIENTS:
            for story in ("split", "killed"):
                for slave in (APACHE_SLAVE, OUR_SLAVE):
                    await admin.create_group(
                        group_of(client, story, slave), which_broker_when_consume_slowly=slave
                    )


@contextmanager
def slaves_of_both(version: str, folder: Path, *, master: str) -> Iterator[Cluster]:
    """A cluster whose master is "Apache" or "ours", for as long as the block runs."""
    with ExitStack() as stack:
        names: ApacheNameServer | OurNameServer
        leader: Broker
        if master == "Apache":
            names = stack.enter_context(ApacheNameServer(version, folder / "namesrv"))
            leader = ApacheBroker(version, folder / "master", names.address, settings=NO_MEMORY)
        else:
            names = stack.enter_context(OurNameServer(folder / "namesrv"))
            leader = OurBroker(folder / "master", names.address)
        link = stack.enter_context(relay_to(f"127.0.0.1:{leader.port + 1}"))
        if isinstance(leader, OurBroker):
            # 5.3.3 forgets the `haMasterAddress` of its slave's settings: the name server has the relay's address.
            leader.settings = (*OUR_SETTINGS, f"ha_address={link.address}")
        stack.enter_context(leader)
        java = stack.enter_context(JavaClient(version, names.address, folder / "java"))
        for topic in TOPICS:
            java.call("create_topic", address=leader.address, topic=topic, queues=1)
        trio.run(_make_groups, names.address)
        theirs = ApacheBroker(
            version,
            folder / "apache-slave",
            names.address,
            role="SLAVE",
            broker_id=APACHE_SLAVE,
            settings=NO_MEMORY,
        )
        ours = OurBroker(
            folder / "our-slave",
            names.address,
            role="slave",
            broker_id=OUR_SLAVE,
            settings=(*OUR_SETTINGS, f"ha_master_address={link.address}"),
        )
        start_together(stack, theirs, ours)
        for topic in TOPICS:
            java.until("publish_queues", topic=topic)
        yield Cluster(names.address, leader, theirs, ours, link, java)
