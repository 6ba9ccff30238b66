"""Replication between real processes that are killed with -9 while messages come in."""

import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio
from tests.cluster.support import Caller
from tests.interop import wire
from tests.interop.commit_log import digest, wait_caught_up
from tests.interop.ours import OurBroker, OurNameServer

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

pytestmark = [pytest.mark.real, pytest.mark.slow]

SENDERS = 8
NUMBER = re.compile(rb"#(\d+)#x")
PAYLOAD = b"x" * 2000
"""Some hundred of them fill a commit-log file of 1 MiB, so that the kill also meets the making of files."""


@attrs.define
class Pair:
    """A master and its slave as processes."""

    name_server: OurNameServer
    master: OurBroker
    slave: OurBroker


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with OurNameServer(tmp_path / "namesrv") as name_server:
        master = OurBroker(tmp_path / "master", name_server.address)
        slave = OurBroker(tmp_path / "slave", name_server.address, role="slave", broker_id=1)
        with master, slave:
            yield Pair(name_server, master, slave)


async def ready(broker: OurBroker) -> None:
    """Start it from this thread, with whose end it would die, and wait in another."""
    broker.start()
    await trio.to_thread.run_sync(broker.wait_ready)


@attrs.define
class Load:
    """Sends until told to stop; counts what was acknowledged."""

    addr: str
    acknowledged: set[int] = attrs.field(factory=set)
    _next: int = 0

    async def run(self) -> None:
        async with open_channel_pool(dial_tcp) as pool, trio.open_nursery() as nursery:
            for queue_id in range(SENDERS):
                nursery.start_soon(self._send, Caller(pool), queue_id % 4)

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


async def loaded(load: Load, seconds: float) -> None:
    """Some time under load."""
    with trio.move_on_after(seconds):
        await load.run()


def assert_same_logs(pair: Pair, end: int) -> None:
    assert digest(pair.slave.store, end) == digest(pair.master.store, end)


async def test_slave_killed_under_load_ends_with_the_same_log(pair: Pair) -> None:
    load = Load(pair.master.address)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        for _ in range(3):
            await trio.sleep(0.7)
            pair.slave.kill()
            await trio.sleep(0.3)
            await ready(pair.slave)
        nursery.cancel_scope.cancel()
    assert len(load.acknowledged) > 100
    end = await trio.to_thread.run_sync(wait_caught_up, pair.master.address, pair.slave.address)
    assert end > 1 << 20
    assert_same_logs(pair, end)


async def test_master_killed_under_load_is_followed_again(pair: Pair) -> None:
    """What was acknowledged survives in the page cache; the slave goes on where both logs agree."""
    load = Load(pair.master.address)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        for _ in range(3):
            await trio.sleep(0.7)
            pair.master.kill()
            await trio.sleep(0.3)
            await ready(pair.master)
        await trio.sleep(0.5)
        nursery.cancel_scope.cancel()
    end = await trio.to_thread.run_sync(wait_caught_up, pair.master.address, pair.slave.address)
    assert_same_logs(pair, end)
    files = sorted((pair.slave.store / "commitlog").iterdir())
    copied = {int(number) for path in files for number in NUMBER.findall(path.read_bytes())}
    lost = load.acknowledged - copied
    assert not lost
    assert len(load.acknowledged) > 100


async def test_clean_stop_and_start_of_both(pair: Pair) -> None:
    load = Load(pair.master.address)
    await loaded(load, 0.5)
    await trio.to_thread.run_sync(wait_caught_up, pair.master.address, pair.slave.address)
    for broker in (pair.slave, pair.master):
        await trio.to_thread.run_sync(broker.stop)
    for broker in (pair.master, pair.slave):
        await ready(broker)
    await loaded(load, 0.3)
    end = await trio.to_thread.run_sync(wait_caught_up, pair.master.address, pair.slave.address)
    assert_same_logs(pair, end)
    topics = wire.ask(pair.slave.address, wire.GET_ALL_TOPIC_CONFIG).body
    assert b'"orders"' in topics
