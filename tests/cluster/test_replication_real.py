"""Replication between real processes that are killed with -9 while messages come in."""

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio
from tests.cluster.load import Load, numbers_in, ready
from tests.interop import wire
from tests.interop.commit_log import digest, wait_caught_up
from tests.interop.ours import OurBroker, OurNameServer

pytestmark = [pytest.mark.real, pytest.mark.slow]


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
    lost = load.acknowledged - numbers_in(pair.slave.store)
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
