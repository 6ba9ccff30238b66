"""A cluster in a process of its own, and many messages in it at once: what the Spark tests read."""

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from tests.support.caller import Caller, accepted
from tests.support.processes import die_with_parent

from rocketrio_protocol.commands.send import AUTO_CREATE_TOPIC_KEY, SendBatchMessageRequestHeader
from rocketrio_protocol.message import Message
from rocketrio_protocol.record.batch import encode_batch
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool
from rocketrio_protocol.remoting.ports import Dial
from rocketrio_protocol.remoting.tcp import dial_tcp

BATCH = 200
BORN_MS = 1_700_000_000_000
STOP_TIMEOUT = 20.0
"""Seconds that a cluster may take to stop."""


@attrs.frozen
class Running:
    """A cluster that serves."""

    name_server: str
    master: str
    slaves: tuple[str, ...]

    def fill(self, *fills: "Fill") -> None:
        """Put topics and messages into the cluster, from a test without trio."""
        trio.run(self._fill, fills)

    async def _fill(self, fills: "tuple[Fill, ...]") -> None:
        async with channel_pool() as pool:
            for fill in fills:
                await fill(pool, self)


Fill = Callable[[ChannelPool, Running], Awaitable[None]]
"""Puts topics and messages into a cluster."""


@contextmanager
def running_cluster(
    data: Path,
    *fills: Fill,
    slaves: int = 0,
    settings: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
) -> Iterator[Running]:
    """Run `rocketrio-broker cluster`, filled, until the end of the block."""
    command = [
        str(Path(sys.executable).with_name("rocketrio-broker")), "cluster", "--log-level", "error",
        "--listen", "127.0.0.1:0", "--data", str(data), "--slaves", str(slaves),
    ]  # fmt: skip
    command += [word for setting in settings for word in ("--set", setting)] + list(options)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    ) as process:
        try:
            assert process.stdout is not None
            found: dict[str, list[str]] = {}
            for _ in range(2 + slaves):
                words = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
                found.setdefault(words["role"], []).append(words["address"])
            running = Running(
                found["namesrv"][0], found["master"][0], tuple(found.get("slave", ()))
            )
            running.fill(*fills)
            yield running
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            finally:
                process.kill()


def cluster_fixture(*fills: Fill, settings: tuple[str, ...] = ()) -> Any:
    """Make a fixture of a filled cluster for the tests of one file."""

    @pytest.fixture(scope="module")
    def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
        data = tmp_path_factory.mktemp("cluster")
        with running_cluster(data, *fills, settings=settings) as running:
            yield running

    return cluster


@asynccontextmanager
async def channel_pool(dial: Dial = dial_tcp) -> AsyncIterator[ChannelPool]:
    """Open a pool of connections, by default over TCP."""
    async with open_channel_pool(dial) as pool:
        yield pool


async def create_topic(pool: ChannelPool, addr: str, topic: str, queues: int) -> None:
    """Create a topic at one broker."""
    await Caller(pool).create_topic(addr, topic, queues)


async def load_queue(
    pool: ChannelPool, addr: str, topic: str, queue_id: int, messages: list[Message]
) -> None:
    """Put messages into one queue, in their order."""
    for at in range(0, len(messages), BATCH):
        entries = [
            (m.flag, m.body, m.encoded_properties(unique_key=f"U{queue_id}-{at + place}").encode())
            for place, m in enumerate(messages[at : at + BATCH])
        ]
        header = SendBatchMessageRequestHeader(
            "loader", topic, AUTO_CREATE_TOPIC_KEY, 4, queue_id, 0, BORN_MS + at, 0, batch=True
        )
        accepted(await pool.call(addr, header, encode_batch(entries), timeout=30))


async def full_topic(
    pool: ChannelPool, addr: str, topic: str, queues: int, count: int, *, body_size: int = 0
) -> None:
    """Make a new topic with `count` numbered messages in each queue."""
    await create_topic(pool, addr, topic, queues)
    for queue_id in range(queues):
        messages = numbered(queue_id, count, body_size=body_size)
        await load_queue(pool, addr, topic, queue_id, messages)


def load_topic(addr: str, topic: str, queues: int, count: int, *, body_size: int = 0) -> None:
    """Make a new topic with numbered messages, from a test without trio."""

    async def load() -> None:
        async with channel_pool() as pool:
            await full_topic(pool, addr, topic, queues, count, body_size=body_size)

    trio.run(load)


def full_topics(**topics: tuple[int, int]) -> Fill:
    """Make topics: the number of queues of each, and the number of messages in each queue."""

    async def fill(pool: ChannelPool, running: Running) -> None:
        for topic, (queues, count) in topics.items():
            await full_topic(pool, running.master, topic, queues, count)

    return fill


def numbered(queue_id: int, count: int, *, body_size: int = 0) -> list[Message]:
    """Messages that say where they are."""
    return [
        Message(
            "",
            f"{queue_id}/{number}".encode().ljust(body_size, b"."),
            keys=f"key-{queue_id}-{number}",
            tags="even" if number % 2 == 0 else "odd",
            properties={"number": str(number)},
        )
        for number in range(count)
    ]
