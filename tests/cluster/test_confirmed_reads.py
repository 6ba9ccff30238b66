"""What readers of a synchronous master see of messages that no slave has yet, to the virtual millisecond."""

from contextlib import suppress
from typing import Any

import pytest
import trio
from tests.cluster.synchronous import (
    OTHER_HOST,
    SLAVE_HOST,
    SYNC_FLUSH,
    TimedPair,
    after,
    synchronous,
)
from tests.support.caller import SUBSCRIPTION, SUSPEND, bodies

from rocketrio_broker.embedded import MASTER_HOST
from rocketrio_broker.store.read_gate import EVERYTHING
from rocketrio_protocol.bodies.stats import ConsumeStats
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    GetConsumeStatsRequestHeader,
)
from rocketrio_protocol.commands.offset import (
    GetMaxOffsetRequestHeader,
    SearchOffsetRequestHeader,
)
from rocketrio_protocol.commands.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.record.message_id import parse_offset_message_id

HELD = SUSPEND | SUBSCRIPTION
SLAVE_TIMEOUT = 3.0


async def max_offset(pair: TimedPair) -> int:
    answer = await pair.caller.pool.call(pair.addr, GetMaxOffsetRequestHeader("orders", 0))
    return int(answer.ext_fields["offset"])


async def held_pull(pair: TimedPair, offset: int, seconds: float = 30) -> tuple[list[bytes], float]:
    """What a pull that may wait gets, and when."""
    began = trio.current_time()
    answer = await pair.caller.pull(pair.addr, offset, suspend=seconds, sys_flag=HELD)
    return bodies(answer), round(trio.current_time() - began, 6)


def shown_until(pair: TimedPair) -> int:
    return pair.master.store.read_gate.end.value


async def test_readers_see_a_message_when_the_slave_has_said_so() -> None:
    async with synchronous() as pair, trio.open_nursery() as nursery:
        pair.network.delay(MASTER_HOST, SLAVE_HOST, 0.5)  # There and back.
        nursery.start_soon(pair.timed, b"second")
        assert await held_pull(pair, 1) == ([b"second"], 1.0)


async def test_pipelined_messages_are_shown_as_far_as_they_are_acknowledged() -> None:
    async with synchronous() as pair, trio.open_nursery() as nursery:
        pair.network.delay(MASTER_HOST, SLAVE_HOST, 0.5)
        nursery.start_soon(pair.timed, b"second")
        nursery.start_soon(after, 0.4, pair.timed, b"third")
        assert await held_pull(pair, 1) == ([b"second"], 1.0)
        assert await held_pull(pair, 2) == ([b"third"], 0.4)


async def test_what_no_slave_has_is_in_no_answer() -> None:
    async with synchronous() as pair, trio.open_nursery() as nursery:
        call = pair.caller.pool.call
        pair.part_slave()
        answers: list[RemotingCommand] = []

        async def send() -> None:
            answers.append(await pair.caller.send(pair.addr, b"second", properties="KEYS\x01k\x02"))

        end = pair.master.store.max_physical_offset
        nursery.start_soon(send)
        await trio.sleep(1)
        store = pair.master.store
        assert store.next_queue_offset("orders", 0) == 2
        pulled = await pair.caller.pull(pair.addr, 1)
        assert pulled.code == ResponseCode.PULL_NOT_FOUND
        assert pulled.ext_fields["nextBeginOffset"] == "1"
        assert pulled.ext_fields["maxOffset"] == "1"
        # From its beginning the queue ends before it, for every kind of read.
        for expression in ("*", "blue || green"):
            pulled = await pair.caller.pull(pair.addr, 0, expression=expression)
            assert int(pulled.ext_fields["nextBeginOffset"]) == 1
        assert await max_offset(pair) == 1
        found = await call(pair.addr, SearchOffsetRequestHeader("orders", 0, 2**50))
        assert found.ext_fields["offset"] == "0"
        query = QueryMessageRequestHeader("orders", "k", 32, 0, 2**50)
        assert (await call(pair.addr, query)).code == ResponseCode.QUERY_NOT_FOUND
        view = await call(pair.addr, ViewMessageRequestHeader(end))
        assert view.code == ResponseCode.SYSTEM_ERROR
        await trio.sleep(3)
        (answer,) = answers
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert bodies(await pair.caller.pull(pair.addr, 1)) == [b"second"]
        assert await max_offset(pair) == 2
        assert (await call(pair.addr, query)).code == ResponseCode.SUCCESS
        _, _, offset = parse_offset_message_id(answer.ext_fields["msgId"])
        view = await call(pair.addr, ViewMessageRequestHeader(offset))
        assert view.code == ResponseCode.SUCCESS


async def test_a_reader_between_what_is_shown_and_the_end_is_not_moved() -> None:
    """It saw more at the master before this one, or its offset was copied from there."""
    async with synchronous() as pair, trio.open_nursery() as nursery:
        pair.part_slave()
        for number in range(5):
            nursery.start_soon(pair.timed, b"%d" % number)
        await trio.sleep(0.1)
        for offset in (1, 3, 6):
            pulled = await pair.caller.pull(pair.addr, offset)
            assert pulled.code == ResponseCode.PULL_NOT_FOUND
            assert pulled.ext_fields["nextBeginOffset"] == str(offset)
        beyond = await pair.caller.pull(pair.addr, 7)
        assert beyond.code == ResponseCode.PULL_OFFSET_MOVED
        await pair.caller.commit(pair.addr, 4)
        stats = await pair.caller.pool.call(
            pair.addr, GetConsumeStatsRequestHeader("billing", "orders")
        )
        table = ConsumeStats.from_json(stats.body)
        assert table.total_diff == 0
        assert all(
            each.broker_offset >= each.consumer_offset for each in table.offset_table.values()
        )
        found, took = await held_pull(pair, 4)
        assert len(found) == 2
        assert 2.9 <= took < 3.5


@pytest.mark.parametrize("store", [None, SYNC_FLUSH], ids=["async flush", "sync flush"])
async def test_after_slave_timeout_readers_see_what_the_masters_disk_has(store: Any) -> None:
    settings = {} if store is None else {"store": store}
    async with synchronous(**settings) as pair, trio.open_nursery() as nursery:
        pair.part_slave()
        nursery.start_soon(pair.timed, b"second")
        found, took = await held_pull(pair, 1)
        assert found == [b"second"]
        assert SLAVE_TIMEOUT <= took <= SLAVE_TIMEOUT + 0.5
        # From then on sends do not wait for slaves, only for the disk.
        nursery.start_soon(pair.timed, b"third")
        found, took = await held_pull(pair, 2)
        assert found == [b"third"]
        assert took <= 0.5
        keeper = pair.master.state.gate_keeper
        assert keeper.is_disk_confirming
        # And when the slave has caught up, for the slave again.
        pair.network.heal()
        await pair.reported()
        assert not keeper.is_disk_confirming
        pair.network.delay(MASTER_HOST, SLAVE_HOST, 0.5)
        nursery.start_soon(pair.timed, b"fourth")
        assert await held_pull(pair, 3) == ([b"fourth"], 1.0)


@pytest.mark.slow
async def test_readers_wait_for_slaves_if_configured() -> None:
    async with synchronous(ha_unconfirmed_reads="wait") as pair:
        pair.part_slave()
        await pair.timed(b"second")
        await trio.sleep(60)
        assert await max_offset(pair) == 1
        own = await pair.caller.own_status(pair.addr)
        assert own.shown_offset == shown_until(pair) < own.max_offset
        assert own.shown_by == "nobody"
        pair.network.heal()
        assert (await held_pull(pair, 1))[0] == [b"second"]
        pair.part_slave()
        await pair.timed(b"third")
        await pair.configure(pair.first, b"haUnconfirmedReads=serve\n")
        assert (await held_pull(pair, 2))[0] == [b"third"]


async def test_two_of_three_slaves_confirm() -> None:
    async with synchronous(slaves=2, in_sync_slaves=2) as pair, trio.open_nursery() as nursery:
        pair.network.delay(MASTER_HOST, OTHER_HOST, 0.5)
        nursery.start_soon(pair.timed, b"second")
        assert await held_pull(pair, 1) == ([b"second"], 1.0)


@pytest.mark.slow
async def test_a_slave_that_copies_for_long_confirms_nothing() -> None:
    """One that left comes back, with much to get: readers go by the disk until it is level, and never back."""
    async with synchronous(slaves=1) as pair, trio.open_nursery() as nursery:
        store = pair.master.store
        keeper = pair.master.state.gate_keeper
        pair.part_slave()
        with trio.move_on_after(10):
            while True:
                await pair.timed(bytes(1000))
        assert keeper.is_disk_confirming
        seen = shown_until(pair)
        pair.network.heal()
        pair.network.delay(
            MASTER_HOST, SLAVE_HOST, 2.0
        )  # What is the end here it has four seconds later.

        async def load() -> None:
            while True:
                nursery.start_soon(pair.timed, bytes(100))
                await trio.sleep(0.5)

        nursery.start_soon(load)
        for _ in range(60):
            await trio.sleep(1)
            assert shown_until(pair) >= seen
            seen = shown_until(pair)
            assert store.max_physical_offset - seen < 1000
            assert keeper.is_disk_confirming
        pair.network.delay(MASTER_HOST, SLAVE_HOST, 0.1)
        await trio.sleep(10)
        assert not keeper.is_disk_confirming
        nursery.cancel_scope.cancel()


async def test_asynchronous_master_gates_readers_if_configured() -> None:
    for confirmed, seconds in ((False, 0.0), (True, 1.0)):
        async with (
            synchronous(role="async-master", ha_confirmed_reads=confirmed) as pair,
            trio.open_nursery() as nursery,
        ):
            await held_pull(pair, 0)
            await trio.sleep(1)
            pair.network.delay(MASTER_HOST, SLAVE_HOST, 0.5)
            nursery.start_soon(pair.timed, b"second")
            assert await held_pull(pair, 1) == ([b"second"], seconds)


async def test_a_change_of_role_opens_and_closes_the_gate() -> None:
    async with synchronous() as pair:
        pair.part_slave()
        with trio.move_on_after(0.1):
            await pair.timed(b"second")
        assert await max_offset(pair) == 1
        await pair.promote(pair.first, "async-master")
        assert await max_offset(pair) == 2
        await pair.timed(b"third")
        await pair.promote(pair.first)
        assert await max_offset(pair) == 3
        with trio.move_on_after(0.1):
            await pair.timed(b"fourth")
        assert await max_offset(pair) == 3


async def test_what_was_not_shown_before_kill_is_not_shown_after_it() -> None:
    async with synchronous(ha_unconfirmed_reads="wait") as pair:
        await pair.master.store.checkpoint()  # As every minute: it says what was shown.
        pair.part_slave()
        await pair.timed(b"second")
        await pair.first.kill()
        await pair.first.start()
        assert pair.master.store.next_queue_offset("orders", 0) == 2
        assert await max_offset(pair) == 1
        pulled = await pair.caller.pull(pair.addr, 2)
        assert pulled.code == ResponseCode.PULL_NOT_FOUND
        pair.network.heal()
        assert (await held_pull(pair, 1))[0] == [b"second"]


@pytest.mark.slow
async def test_slaves_show_what_their_master_says_is_confirmed() -> None:
    async with synchronous(slaves=2, in_sync_slaves=2, slave_read_enable=True) as pair:
        slave = pair.slave
        pair.part_slave(OTHER_HOST)
        with trio.move_on_after(1):
            await pair.timed(b"second")
        assert slave.store.next_queue_offset("orders", 0) == 2
        assert bodies(await pair.caller.pull(slave.address, 0)) == [b"first"]
        waiting = await pair.caller.pull(slave.address, 1)
        assert waiting.code == ResponseCode.PULL_NOT_FOUND
        with trio.fail_after(5):
            pulled = await pair.caller.pull(slave.address, 1, suspend=10, sys_flag=HELD)
        assert bodies(pulled) == [b"second"]
        # It shows no more when it comes back, before it hears from its master.
        pair.network.heal()
        await trio.sleep(10)
        pair.part_slave(OTHER_HOST)
        with trio.move_on_after(1):
            await pair.timed(b"third")
        await pair.first.kill()
        await trio.sleep(2)
        await pair.second.kill()
        slave = await pair.second.start()
        assert slave.store.next_queue_offset("orders", 0) == 3
        shown = bodies(await pair.caller.pull(slave.address, 0))
        assert shown in ([b"first"], [b"first", b"second"])


async def test_open_read_gate_is_reported_to_slaves() -> None:
    async with synchronous(slave_read_enable=True) as pair:
        slave = pair.slave
        assert slave.store.read_gate.is_gating
        await pair.promote(pair.first, "async-master")
        await pair.timed(b"second")
        with trio.fail_after(10):
            await slave.store.read_gate.end.wait_reached(EVERYTHING)
        assert bodies(await pair.caller.pull(slave.address, 0)) == [b"first", b"second"]


@pytest.mark.slow
async def test_what_was_shown_stays_when_another_takes_over() -> None:
    async with synchronous() as pair, trio.open_nursery() as nursery:
        pair.network.delay(MASTER_HOST, SLAVE_HOST, 0.25)
        shown: list[bytes] = []

        async def send(body: bytes) -> None:
            with suppress(Error):  # Those under way when the master dies.
                await pair.caller.send(pair.addr, body)

        async def load() -> None:
            for number in range(1000):
                nursery.start_soon(send, b"%d" % number)
                await trio.sleep(0.05)

        async def read() -> None:
            while True:
                shown.extend((await held_pull(pair, len(shown)))[0])

        with trio.move_on_after(5) as running:
            async with trio.open_nursery() as inner:
                inner.start_soon(load)
                inner.start_soon(read)
        assert running.cancelled_caught
        assert len(shown) > 50
        slave = pair.slave
        ends = pair.master.store.next_queue_offset("orders", 0)
        await pair.first.kill()
        assert slave.store.next_queue_offset("orders", 0) < ends
        await pair.promote(pair.second)
        await trio.sleep(10)
        kept = await pair.caller.read(slave.address)
        assert kept[: len(shown)] == shown
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_delayed_messages_are_delivered_once_they_are_confirmed() -> None:
    async with synchronous(ha_unconfirmed_reads="wait") as pair:
        store = pair.master.store
        pair.part_slave()
        await pair.timed(b"late", properties="DELAY\x011\x02")
        await trio.sleep(30)
        assert store.next_queue_offset("orders", 0) == 1
        pair.network.heal()
        assert (await held_pull(pair, 1))[0] == [b"late"]
        offsets = pair.master.state.delay_offsets
        assert offsets.offset_table == {1: 1}
        # Its progress is stored when the delivery is confirmed, not before.
        await trio.sleep(30)
        assert not offsets.has_unwritten
        assert (await pair.timed(b"later", properties="DELAY\x011\x02"))[0] == ResponseCode.SUCCESS
        pair.part_slave()
        await trio.sleep(30)
        assert offsets.offset_table == {1: 2}
        assert store.next_queue_offset("orders", 0) == 3
        assert offsets.has_unwritten
        pair.network.heal()
        await trio.sleep(30)
        assert not offsets.has_unwritten
