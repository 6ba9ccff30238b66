"""Real processes under load, for stories that kill and stop them: numbered messages, and which were acknowledged."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio
from tests.support.caller import Caller
from tests.support.ours import OurBroker
from tests.support.server import Server
from tests.support.waiting import eventually

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

SENDERS = 8
QUEUES = 4
CONTINUE_LIMIT = 90.0
"""Seconds after which a load without an acknowledgement fails the test."""
NUMBER = re.compile(rb"#(\d+)#x")
PAYLOAD = b"x" * 2000
"""Some hundred of them fill a commit-log file of 1 MiB, so that a kill also meets the making of files."""


async def ready(broker: OurBroker) -> None:
    """Start it from this thread, with whose end it would die, and wait in another."""
    broker.start()
    await trio.to_thread.run_sync(broker.wait_ready)


@contextmanager
def stopped(broker: Server) -> Iterator[None]:
    """SIGSTOP for the time of the block."""
    assert broker.process is not None
    os.kill(broker.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)


@attrs.define
class Load:
    """Sends until told to stop; counts what was acknowledged. Its address may change on the way."""

    addr: str
    acknowledged: set[int] = attrs.field(factory=set)
    _next: int = 0

    async def continues(self, count: int) -> None:
        """Wait until `count` more are acknowledged."""
        wanted = len(self.acknowledged) + count
        await eventually(lambda: len(self.acknowledged) >= wanted, CONTINUE_LIMIT)

    async def run(self) -> None:
        async with open_channel_pool(dial_tcp) as pool, trio.open_nursery() as nursery:
            for queue_id in range(SENDERS):
                nursery.start_soon(self._send, Caller(pool), queue_id % QUEUES)

    async def _send(self, caller: Caller, queue_id: int) -> None:
        while True:
            self._next += 1
            number = self._next
            body = b"#%d#%s" % (number, PAYLOAD)
            try:
                answer = await caller.send(self.addr, body, queue_id=queue_id, timeout=2.0)
            except Error:
                await trio.sleep(0.05)
                continue
            if answer.code == ResponseCode.SUCCESS:
                self.acknowledged.add(number)
            else:
                await trio.sleep(0.05)


def numbers_in(store: Path) -> set[int]:
    """Those of all messages in a commit log."""
    files = sorted((store / "commitlog").iterdir())
    return {int(number) for path in files for number in NUMBER.findall(path.read_bytes())}
