"""A synchronous master's process is killed or stopped under load, its slave takes over, and it comes back as slave."""

from contextlib import suppress

import pytest
import trio
from tests.support import wire
from tests.support.caller import Caller, accepted
from tests.support.load import Load, numbers_in, ready, stopped
from tests.support.ours import OurBroker, OurNameServer, OurPair, our_pair_fixture
from tests.support.waiting import HANGS, eventually

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

pytestmark = [pytest.mark.real, pytest.mark.slow]

SETTINGS = ("ha_divergent_tail=cut", "slave_timeout=1")


KNOWN_AFTER = 10.0

pair = our_pair_fixture(role="sync-master", settings=SETTINGS)
"""Each story leaves the two with their roles changed."""


async def return_as_slave(pair: OurPair) -> None:
    """The slave has become master, and the old one, which is dead, follows it."""
    pair.master, pair.slave = pair.slave, pair.master
    pair.slave.role, pair.slave.broker_id = "slave", 1
    await ready(pair.slave)


async def known_as_slave(master: OurBroker, slave: OurBroker) -> None:
    """The master will believe a name server that this one took over; of a stranger it does not.

    It asks the name server who its slaves are a moment after one has connected. The file may be of an earlier time.
    """
    path = master.store / "config" / "slaves.json"
    await eventually(lambda: path.exists() and slave.address in path.read_text(), HANGS)
    await trio.sleep(KNOWN_AFTER)


async def promote(caller: Caller, broker: OurBroker) -> None:
    accepted(await caller.change_role(broker.address, "sync-master", 0))


async def offset_becomes(caller: Caller, addr: str, offset: int, *, queue_id: int) -> None:
    seen = -1
    with trio.move_on_after(HANGS):
        while seen != offset:
            before, seen = seen, await caller.committed(addr, queue_id=queue_id)
            assert seen >= before
            await trio.sleep(0.1)
    assert seen == offset


async def call_until_acknowledged(caller: Caller, addr: str) -> None:
    """A slave follows this master."""
    answers: list[int] = []
    with trio.move_on_after(HANGS):
        while ResponseCode.SUCCESS not in answers:
            answers.append((await caller.send(addr, b"is anybody there?")).code)
            await trio.sleep(0.1)
    assert ResponseCode.SUCCESS in answers


def listed(name_server: OurNameServer) -> dict[str, str]:
    table = wire.ask(name_server.address, wire.GET_BROKER_CLUSTER_INFO).json()["brokerAddrTable"]
    return dict(table.get("broker-a", {}).get("brokerAddrs", {}))


async def test_killed_master_s_slave_takes_over_and_has_all_that_was_acknowledged(
    pair: OurPair,
) -> None:
    """With the name server killed at the same time: the change of role asks it again until it is back."""
    old, new = pair.master, pair.slave
    load = Load(old.address)
    async with open_channel_pool(dial_tcp) as pool, trio.open_nursery() as nursery:
        call = Caller(pool)
        nursery.start_soon(load.run)
        await load.continues(100)
        await call.commit(old.address, 7, queue_id=1)
        await offset_becomes(call, new.address, 7, queue_id=1)
        await call.commit(old.address, 5, queue_id=2)  # This one it may not know in time.
        old.kill()
        assert pair.name_server.process is not None
        pair.name_server.process.kill()
        assert await call.committed(new.address, queue_id=1) == 7

        await call.commit(new.address, 9, queue_id=1)
        async with trio.open_nursery() as promotion:
            promotion.start_soon(promote, call, new)
            await trio.sleep(0.5)
            pair.name_server.start()
        assert await call.committed(new.address, queue_id=1) == 9
        load.addr = new.address

        async def is_listed() -> bool:
            return await trio.to_thread.run_sync(listed, pair.name_server) == {"0": new.address}

        await eventually(is_listed, HANGS)

        await return_as_slave(pair)
        await call_until_acknowledged(call, new.address)
        await load.continues(100)  # With the old one for its slave.
        nursery.cancel_scope.cancel()

    await trio.to_thread.run_sync(pair.assert_same_logs)
    assert load.acknowledged <= numbers_in(new.store)
    assert listed(pair.name_server) == {"0": new.address, "1": old.address}
    async with open_channel_pool(dial_tcp) as pool:
        call = Caller(pool)
        await offset_becomes(call, new.address, 5, queue_id=2)
        for broker in (new, old):
            assert await call.committed(broker.address, queue_id=1) == 9


async def test_tail_that_no_slave_acknowledged_is_put_aside_by_the_returning_master(
    pair: OurPair,
) -> None:
    old, new = pair.master, pair.slave
    async with open_channel_pool(dial_tcp) as pool:
        call = Caller(pool)
        await call_until_acknowledged(call, old.address)
        acknowledged = wire.max_physical_offset(old.address)
        new.kill()
        answers = [(await call.send(old.address, b"nobody else has this")).code for _ in range(3)]
        assert ResponseCode.SUCCESS not in answers
        assert wire.max_physical_offset(old.address) > acknowledged
        old.kill()

        new.role, new.broker_id = "slave", 1
        await ready(new)
        await promote(call, new)
        assert wire.max_physical_offset(new.address) == acknowledged
        await call.send(new.address, b"another history")
        await return_as_slave(pair)
        await call_until_acknowledged(call, new.address)
    await trio.to_thread.run_sync(pair.assert_same_logs)
    [cut] = (old.store / "cut").iterdir()
    assert cut.read_bytes().count(b"nobody else has this") == 3


async def test_stopped_process_is_replaced_within_the_stop_and_acknowledges_nothing_afterwards(
    pair: OurPair,
) -> None:
    """SIGSTOP: its connections stand, and nothing answers on them. The name server is not restarted."""
    old, new = pair.master, pair.slave
    load = Load(old.address)
    late: list[int] = []
    async with open_channel_pool(dial_tcp) as pool, trio.open_nursery() as nursery:
        call = Caller(pool)
        await call_until_acknowledged(call, old.address)
        await known_as_slave(old, new)
        nursery.start_soon(load.run)
        await load.continues(100)

        async def send_to_the_stopped_one() -> None:
            with suppress(Error):
                late.append((await call.send(old.address, b"too late", timeout=HANGS)).code)

        with stopped(old):
            for _ in range(5):
                nursery.start_soon(send_to_the_stopped_one)
            await promote(call, new)
            assert await trio.to_thread.run_sync(listed, pair.name_server) == {"0": new.address}
            load.addr = new.address
        await call_until_acknowledged(call, new.address)
        await load.continues(100)  # With the old one for its slave.
        nursery.cancel_scope.cancel()

    pair.master, pair.slave = new, old
    await trio.to_thread.run_sync(pair.assert_same_logs)
    assert load.acknowledged <= numbers_in(new.store)
    assert ResponseCode.SUCCESS not in late
    assert set(listed(pair.name_server).values()) == {new.address, old.address}
