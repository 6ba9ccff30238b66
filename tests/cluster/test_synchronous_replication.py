"""What a send to a synchronous master waits for, and its answer, to the virtual millisecond."""

from typing import Any

import attrs
import pytest
import trio
from tests.cluster.synchronous import OTHER_HOST, SLAVE_HOST, SYNC_FLUSH, after, held, synchronous
from tests.support.caller import SUBSCRIPTION, SUSPEND, bodies
from tests.support.held_disk import HeldDisk

from rocketrio_broker.embedded import MASTER_HOST
from rocketrio_broker.testing.memory_network import MemoryTransport
from rocketrio_protocol.bodies.route import KVTable
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import GetBrokerRuntimeInfoRequestHeader
from rocketrio_protocol.commands.send import SendMessageRequestHeaderV2
from rocketrio_protocol.record.batch import encode_batch

OK = ResponseCode.SUCCESS


# --- each status -------------------------------------------------------------------------------


async def test_the_answer_comes_when_the_slave_has_it() -> None:
    async with synchronous() as pair:
        pair.network.delay(MASTER_HOST, SLAVE_HOST, 0.5)  # There and back.
        assert await pair.timed() == (OK, 1.0)


async def test_an_asynchronous_master_answers_at_once() -> None:
    async with synchronous(role="async-master") as pair:
        pair.part_slave()
        assert await pair.timed() == (OK, 0.0)


async def test_without_a_slave_the_answer_is_there_at_once() -> None:
    async with synchronous(slaves=0) as pair:
        began = trio.current_time()
        answer = await pair.caller.send(pair.addr, b"alone")
        assert trio.current_time() == began
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert "too few slaves" in (answer.remark or "")
        assert "queueOffset" in answer.ext_fields
        pulled = await pair.caller.pull(pair.addr, 0, suspend=10, sys_flag=SUSPEND | SUBSCRIPTION)
        assert bodies(pulled) == [b"first", b"alone"]
        assert 3.0 <= trio.current_time() - began < 4.0  # slave_timeout, and a flush


@pytest.mark.parametrize(("settings", "seconds"), [({}, 3.0), ({"slave_timeout": 0.25}, 0.25)])
async def test_send_waits_for_a_silent_slave_as_long_as_configured(
    settings: dict[str, Any], seconds: float
) -> None:
    async with synchronous(**settings) as pair:
        pair.part_slave()
        assert await pair.timed() == (ResponseCode.FLUSH_SLAVE_TIMEOUT, seconds)
        await trio.sleep(3.0 - seconds)  # Readers wait for slaves so long, too.
        assert len(bodies(await pair.caller.pull(pair.addr, 0))) == 2


async def test_a_slave_too_far_behind_is_not_waited_for() -> None:
    async with synchronous(ha_slave_fallbehind_max=1000) as pair:
        pair.part_slave()
        assert await pair.timed(bytes(500)) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, 3.0)
        assert await pair.timed(bytes(500)) == (ResponseCode.SLAVE_NOT_AVAILABLE, 0.0)
        pair.network.heal()
        await pair.reported()
        assert await pair.timed() == (OK, 0.0)


async def test_a_slave_that_was_dropped_is_not_waited_for() -> None:
    async with synchronous() as pair:
        pair.part_slave()
        await trio.sleep(21)
        assert await pair.timed() == (ResponseCode.SLAVE_NOT_AVAILABLE, 0.0)


# --- several slaves ----------------------------------------------------------------------------


async def test_one_of_two_slaves_may_be_paused() -> None:
    async with synchronous(slaves=2) as pair:
        pair.part_slave(OTHER_HOST)
        for _ in range(5):
            assert await pair.timed() == (OK, 0.0)
            await trio.sleep(5)


async def test_two_slaves_can_be_required() -> None:
    async with synchronous(slaves=2, in_sync_slaves=2) as pair:
        pair.network.delay(MASTER_HOST, SLAVE_HOST, 0.1)
        pair.network.delay(MASTER_HOST, OTHER_HOST, 0.7)
        assert await pair.timed() == (OK, 1.4)
        pair.part_slave(OTHER_HOST)
        assert await pair.timed() == (ResponseCode.FLUSH_SLAVE_TIMEOUT, 3.0)


async def test_one_slave_is_too_few_where_two_are_required() -> None:
    async with synchronous(slaves=2, in_sync_slaves=2) as pair:
        await pair.cluster.slaves[1].kill()
        await trio.sleep(0.1)
        assert await pair.timed() == (ResponseCode.SLAVE_NOT_AVAILABLE, 0.0)


# --- a slave that comes and goes ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("healed_after", "expected"),
    [(1.0, (OK, 1.5)), (3.5, (ResponseCode.FLUSH_SLAVE_TIMEOUT, 3.0))],
    ids=["in time", "too late"],
)
async def test_a_slave_that_drops_during_the_wait_may_come_back(
    nursery: trio.Nursery, healed_after: float, expected: tuple[int, float]
) -> None:
    async with synchronous() as pair:
        pair.part_slave()
        nursery.start_soon(after, 0.2, pair.network.cut, MASTER_HOST, SLAVE_HOST)
        nursery.start_soon(after, healed_after, pair.network.heal)
        assert await pair.timed() == expected


async def test_what_a_slave_had_does_not_count_after_it_left(nursery: trio.Nursery) -> None:
    """The second slave is no further than before; the first one's number is not left behind."""
    async with synchronous(slaves=2) as pair:
        pair.part_slave(OTHER_HOST)
        assert await pair.timed() == (OK, 0.0)
        await pair.second.kill()
        await trio.sleep(0.1)
        assert await pair.timed() == (ResponseCode.FLUSH_SLAVE_TIMEOUT, 3.0)


# --- disk and slaves ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flush_seconds", "slave_seconds", "expected"),
    [
        (2.0, 0.0, (OK, 2.0)),
        (0.0, 2.0, (OK, 2.0)),
        (9.0, 0.0, (ResponseCode.FLUSH_DISK_TIMEOUT, 5.0)),
        (0.0, 9.0, (ResponseCode.FLUSH_SLAVE_TIMEOUT, 3.0)),
        (4.0, 9.0, (ResponseCode.FLUSH_SLAVE_TIMEOUT, 4.0)),
        (9.0, 9.0, (ResponseCode.FLUSH_SLAVE_TIMEOUT, 5.0)),
    ],
)
async def test_disk_and_slaves_are_waited_for_at_the_same_time(
    nursery: trio.Nursery, flush_seconds: float, slave_seconds: float, expected: tuple[int, float]
) -> None:
    async with synchronous(store=SYNC_FLUSH, make_disk=HeldDisk) as pair:
        disk = held(pair.first)
        if flush_seconds:
            disk.hold()
            nursery.start_soon(after, flush_seconds, disk.release)
        if slave_seconds:
            pair.part_slave()
            nursery.start_soon(after, slave_seconds, pair.network.heal)
        assert await pair.timed() == expected
        disk.release()


async def test_without_slaves_the_flush_is_waited_for(nursery: trio.Nursery) -> None:
    async with synchronous(slaves=0, store=SYNC_FLUSH, make_disk=HeldDisk) as pair:
        disk = held(pair.first)
        disk.hold()
        nursery.start_soon(after, 1.5, disk.release)
        assert await pair.timed() == (ResponseCode.SLAVE_NOT_AVAILABLE, 1.5)


async def test_memory_of_the_slave_is_enough_by_default() -> None:
    async with synchronous(make_disk=HeldDisk) as pair:
        disk = held(pair.second)
        disk.hold()
        assert await pair.timed() == (OK, 0.0)
        disk.release()


async def test_disk_of_the_slave_can_be_asked_for(nursery: trio.Nursery) -> None:
    async with synchronous(make_disk=HeldDisk, ha_acknowledge="disk") as pair:
        slave, disk = pair.second, held(pair.second)
        assert await pair.timed() == (OK, 0.0)
        disk.hold()
        nursery.start_soon(after, 2.0, disk.release)
        assert await pair.timed() == (OK, 2.0)
        store = slave.broker.store
        assert store.flushed.value == store.max_physical_offset


@pytest.mark.slow
async def test_a_slave_whose_disk_hangs_stays_connected_and_takes_more() -> None:
    async with synchronous(make_disk=HeldDisk, ha_acknowledge="disk") as pair:
        slave, disk = pair.second, held(pair.second)
        disk.hold()
        assert await pair.timed() == (ResponseCode.FLUSH_SLAVE_TIMEOUT, 3.0)
        await trio.sleep(60)
        assert await pair.timed() == (ResponseCode.FLUSH_SLAVE_TIMEOUT, 3.0)
        master = pair.master
        assert slave.broker.store.max_physical_offset == master.store.max_physical_offset
        assert master.ha_service.accepted.value == 1
        disk.release()
        assert await pair.timed() == (OK, 0.0)


# --- how a send is answered --------------------------------------------------------------------


async def test_send_with_wait_false_is_answered_before_the_slave_has_it() -> None:
    async with synchronous() as pair:
        pair.part_slave()
        assert await pair.timed(properties="WAIT\x01false") == (OK, 0.0)


async def test_a_oneway_send_is_stored_and_not_answered() -> None:
    async with synchronous() as pair:
        channel = await pair.caller.pool.channel(pair.addr)
        header = SendMessageRequestHeaderV2("p", "orders", "TBW102", 4, 0, 0, 1, 0, "")
        channel.send_oneway(header, b"unheard")
        await trio.sleep(1)
        assert bodies(await pair.caller.pull(pair.addr, 0)) == [b"first", b"unheard"]
        assert pair.master.statistics().waiting_answers == 0
        assert channel.statistics().late_answer_count == 0


async def test_a_batch_waits_as_one() -> None:
    async with synchronous() as pair:
        pair.network.delay(MASTER_HOST, SLAVE_HOST, 0.25)
        body = encode_batch([(0, b"%d" % number, b"") for number in range(10)])
        assert await pair.timed(body, batch=True) == (OK, 0.5)
        assert pair.master.statistics().waits.answered[OK] == 2


async def test_sends_in_flight_are_released_in_order_and_in_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes: list[bytes] = []
    ends: tuple[str, str] = ("", "")
    send_nowait = MemoryTransport.send_nowait

    def recorded(transport: MemoryTransport, data: Any) -> int:
        if (transport.local_addr, transport.remote_addr) == ends:
            writes.append(bytes(data))
        return send_nowait(transport, data)

    async with synchronous() as pair:
        monkeypatch.setattr(MemoryTransport, "send_nowait", recorded)
        transport = await pair.cluster.dial(pair.addr)
        ends = (pair.addr, transport.local_addr)
        header = SendMessageRequestHeaderV2("p", "orders", "TBW102", 4, 0, 0, 1, 0, "")
        frames = [
            attrs.evolve(RemotingCommand.request(header, b"x"), opaque=number).encode()
            for number in range(64)
        ]
        pair.network.delay(MASTER_HOST, SLAVE_HOST, 1.0)
        await transport.send_all(b"".join(frames))
        await trio.sleep(1.9)
        assert pair.master.statistics().waiting_answers == 64
        assert writes == []
        await trio.sleep(0.2)
        (only,) = writes
        opaques = [int(part.split(b",")[0]) for part in only.split(b'"opaque":')[1:]]
        assert opaques == list(range(64))
        await transport.aclose()


# --- what is reported --------------------------------------------------------------------------


async def test_brokers_report_what_the_last_send_waited_for() -> None:
    async with synchronous() as pair:
        pair.network.delay(MASTER_HOST, SLAVE_HOST, 0.5)
        await pair.timed()
        pair.part_slave()
        await pair.timed()
        numbers = pair.master.statistics()
        assert numbers.waits.answered[OK] == 2
        assert numbers.waits.answered[ResponseCode.FLUSH_SLAVE_TIMEOUT] == 1
        last = numbers.waits.last_wait
        assert last is not None
        assert (last.code, last.slave_seconds) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, 3.0)
        assert (last.slave or "").startswith(SLAVE_HOST)
        assert numbers.ha.group_transfer.live_slaves == 1
        answer = await pair.caller.pool.call(pair.addr, GetBrokerRuntimeInfoRequestHeader())
        table = KVTable.from_json(answer.body).table
        assert table["rocketrioFlushSlaveTimeout"] == "1"
        assert table["rocketrioLiveSlaves"] == "1"
        assert table["rocketrioLastWait"].startswith("FLUSH_SLAVE_TIMEOUT slaves_ms=3000.0 slave=")
