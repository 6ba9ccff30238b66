"""A thousand idle connections leave the store the descriptors that it needs.

A real broker that may have 1,024, as many services may.
"""

import resource
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import trio

from rocketrio import Message, SendStatus, open_admin, open_producer
from tests.support.ours import OurBroker, OurNameServer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

ALLOWED: Final = 1024
HOSTS: Final = 3
CONNECTIONS: Final = 400
"""Of each host, on each of the broker's two ports for clients in turn."""
NEW_QUEUES: Final = 64
MESSAGE_SIZE: Final = 64 << 10
MESSAGES: Final = 60


@pytest.fixture(autouse=True)
def own_descriptors() -> Iterator[None]:
    """Permit this process as many as its connections need: a login shell often has 1,024."""
    needed = HOSTS * CONNECTIONS + ALLOWED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"this process may have {hard} file descriptors, and needs {needed}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OurBroker]:
    """Run a broker with few descriptors, and its name server."""
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        pytest.skip("prlimit of util-linux is not installed")
    few = (prlimit, f"--nofile={ALLOWED}:{ALLOWED}")
    with (
        OurNameServer(tmp_path / "names") as names,
        OurBroker(tmp_path / "broker", names.address, prefix=few) as broker,
    ):
        yield broker


def descriptors(broker: OurBroker) -> int:
    """Return how many descriptors the broker has open."""
    return len(list(Path(f"/proc/{broker.running.pid}/fd").iterdir()))


async def work(name_server: str) -> None:
    """Make a topic with many queues, and fill several files of the log, as a client that comes now."""
    async with (
        open_admin(name_servers=[name_server]) as admin,
        open_producer(name_servers=[name_server]) as producer,
    ):
        await admin.create_topic("fresh", queues=NEW_QUEUES)
        for number in range(MESSAGES):
            result = await producer.send(Message("fresh", bytes(MESSAGE_SIZE) + b"%d" % number))
            assert result.status is SendStatus.SEND_OK


def test_idle_connections_leave_the_store_what_it_needs(broker: OurBroker) -> None:
    port = broker.port
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            for host in range(HOSTS):
                idle = stack.enter_context(socket.socket())
                idle.bind((f"127.0.1.{host + 1}", 0))
                idle.connect(("127.0.0.1", port if number % 2 else port - 2))
        wait_until(lambda: descriptors(broker) >= ALLOWED // 2, "crowded")
        trio.run(work, broker.name_server)
        assert descriptors(broker) < ALLOWED - 100
    log = broker.running.log.read_text()
    assert "this process may have few file descriptors" in log
    assert "Too many open files" not in log
