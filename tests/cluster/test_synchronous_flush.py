"""An acknowledgement waits for the disk: seen by holding the disk back."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
import trio
from tests.support.caller import Caller, bodies
from tests.support.held_disk import HeldDisk

from rocketrio_broker.broker import Broker, open_broker
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.ports import VirtualWallClock


@asynccontextmanager
async def held_broker(
    flush: Literal["sync", "async"],
) -> AsyncGenerator[tuple[Broker, Caller, HeldDisk]]:
    network, disk = MemoryNetwork(), HeldDisk()
    host, client = network.host("10.0.0.10"), network.host("10.0.0.100")
    config = BrokerConfig(
        listen="10.0.0.10:10911",
        data=Path("/data"),
        store=StoreConfig(
            flush_disk_type=flush,
            mapped_file_size_commit_log=1 << 20,
            max_hash_slot_num=100,
            max_index_num=400,
        ),
    )
    async with (
        open_broker(
            config, disk=disk, dial=host.dial, listen=host.listen, wall_clock=VirtualWallClock()
        ) as broker,
        open_channel_pool(client.dial) as pool,
    ):
        caller = Caller(pool)
        await caller.send(broker.address, b"warm")
        try:
            yield broker, caller, disk
        finally:
            disk.release()


async def timed_send(caller: Caller, addr: str, body: bytes, **fields: str) -> tuple[int, float]:
    start = trio.current_time()
    answer = await caller.send(addr, body, **fields)  # type: ignore[arg-type]
    return answer.code, trio.current_time() - start


async def test_no_answer_before_the_disk_has_the_message(nursery: trio.Nursery) -> None:
    async with held_broker("sync") as (broker, caller, disk):
        disk.hold()

        async def release_later() -> None:
            await trio.sleep(3)
            disk.release()

        nursery.start_soon(release_later)
        code, seconds = await timed_send(caller, broker.address, b"durable")
        assert code == ResponseCode.SUCCESS
        assert seconds == pytest.approx(3, abs=0.01)
        assert broker.store.flushed.value == broker.store.max_physical_offset


async def test_many_sends_share_one_flush() -> None:
    async with held_broker("sync") as (broker, caller, disk):
        disk.hold()
        codes: list[int] = []

        async def send(number: int) -> None:
            code, _ = await timed_send(caller, broker.address, b"%d" % number)
            codes.append(code)

        async with trio.open_nursery() as sends:
            for number in range(50):
                sends.start_soon(send, number)
            await trio.sleep(1)
            assert codes == []
            assert broker.statistics().waiting_answers == 50
            disk.release()
        assert codes == [ResponseCode.SUCCESS] * 50


async def test_flush_that_takes_too_long_is_answered_with_a_timeout() -> None:
    async with held_broker("sync") as (broker, caller, disk):
        disk.hold()
        code, seconds = await timed_send(caller, broker.address, b"late")
        assert code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert seconds == pytest.approx(5, abs=0.01)
        # It is stored all the same, as the code says to those who know it.
        assert bodies(await caller.pull(broker.address, 1)) == [b"late"]


async def test_send_with_wait_false_is_answered_before_the_flush() -> None:
    async with held_broker("sync") as (broker, caller, disk):
        disk.hold()
        code, seconds = await timed_send(
            caller, broker.address, b"hasty", properties="WAIT\x01false"
        )
        assert code == ResponseCode.SUCCESS
        assert seconds < 0.01


async def test_asynchronous_flush_answers_at_once() -> None:
    async with held_broker("async") as (broker, caller, disk):
        disk.hold()
        code, seconds = await timed_send(caller, broker.address, b"quick")
        assert code == ResponseCode.SUCCESS
        assert seconds < 0.01
        assert broker.store.flushed.value < broker.store.max_physical_offset


async def test_line_of_waiting_answers_ends_with_its_connection() -> None:
    async with held_broker("sync") as (broker, caller, disk):
        disk.hold()
        with trio.move_on_after(1):
            await timed_send(caller, broker.address, b"impatient")
        caller.pool.drop(broker.address)
        await trio.sleep(10)
        assert broker.statistics().waiting_answers == 0
