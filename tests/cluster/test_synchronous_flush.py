"""An acknowledgement waits for the disk: seen by holding the disk back."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from tests.cluster.synchronous import SYNC_FLUSH, TimedPair, after, held, synchronous
from tests.support.caller import bodies
from tests.support.held_disk import HeldDisk

from rocketrio_broker.embedded import SMALL_STORE
from rocketrio_broker.store.config import StoreConfig
from rocketrio_protocol.codes import ResponseCode

OK = ResponseCode.SUCCESS


@asynccontextmanager
async def lone_master(
    store: StoreConfig = SYNC_FLUSH,
) -> AsyncGenerator[tuple[TimedPair, HeldDisk]]:
    """A master without slaves, which syncs each message, on a disk that is held back from now on."""
    async with synchronous(0, role="async-master", store=store, make_disk=HeldDisk) as pair:
        disk = held(pair.first)
        disk.hold()
        yield pair, disk
        disk.release()


async def test_no_answer_before_the_disk_has_the_message(nursery: trio.Nursery) -> None:
    async with lone_master() as (pair, disk):
        nursery.start_soon(after, 3.0, disk.release)
        assert await pair.timed(b"durable") == (OK, 3.0)
        assert pair.master.store.flushed.value == pair.master.store.max_physical_offset


async def test_many_sends_share_one_flush() -> None:
    async with lone_master() as (pair, disk):
        codes: list[int] = []

        async def send() -> None:
            codes.append(await pair.code_of_send())

        async with trio.open_nursery() as sends:
            for _ in range(50):
                sends.start_soon(send)
            await trio.sleep(1)
            assert codes == []
            assert pair.master.statistics().waiting_answers == 50
            disk.release()
        assert codes == [OK] * 50


async def test_flush_that_takes_too_long_is_answered_with_a_timeout() -> None:
    async with lone_master() as (pair, _):
        assert await pair.timed(b"late") == (ResponseCode.FLUSH_DISK_TIMEOUT, 5.0)
        # It is stored all the same, as the code says to those who know it.
        assert bodies(await pair.caller.pull(pair.addr, 1)) == [b"late"]


async def test_send_with_wait_false_is_answered_before_the_flush() -> None:
    async with lone_master() as (pair, _):
        assert await pair.timed(b"hasty", properties="WAIT\x01false") == (OK, 0.0)


async def test_asynchronous_flush_answers_at_once() -> None:
    async with lone_master(SMALL_STORE) as (pair, _):
        assert await pair.timed(b"quick") == (OK, 0.0)
        assert pair.master.store.flushed.value < pair.master.store.max_physical_offset


async def test_line_of_waiting_answers_ends_with_its_connection() -> None:
    async with lone_master() as (pair, _):
        with trio.move_on_after(1):
            await pair.timed(b"impatient")
        pair.caller.pool.drop(pair.addr)
        await trio.sleep(10)
        assert pair.master.statistics().waiting_answers == 0
