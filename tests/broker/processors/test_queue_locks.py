"""Queue locks by request: the bodies that Java's consumers sent and got, and the minute they last."""

import trio
from tests.broker.processors.asking import Asking, asking
from tests.golden.exchanges import exchanges_of
from tests.support.caller import accepted, caller_of
from trio.testing import MockClock

from rocketrio_broker.clients.connected import HOLDER_TIMEOUT
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketrio_protocol.bodies.queues import LockBatch, LockedBatch, QueueName
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.consumer import (
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)

Q0 = QueueName("T", "broker-a", 0)


def batch(client_id: str) -> bytes:
    return fastjson.dumps(LockBatch("G", client_id, [Q0]))


async def test_recorded_locks_are_answered_as_apache_answered(autojump_clock: MockClock) -> None:
    for run in ("4.9.7", "5.3.3"):
        locks = exchanges_of(run, "broker", RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
        assert len(locks) >= 3
        async with asking() as one:
            for exchange in locks:
                assert exchange.answer is not None
                answer = await one.ask(exchange.request)
                assert (answer.code, bytes(answer.body)) == (0, bytes(exchange.answer.body))


async def test_unlocked_queue_is_free_for_others(autojump_clock: MockClock) -> None:
    async with asking() as one:
        for client_id, held in (("a", [Q0]), ("b", [])):
            answer = await one.ask(LockBatchMqRequestHeader(), batch(client_id))
            assert fastjson.loads(answer.body, LockedBatch).lock_ok_mq_set == held
        answer = await one.ask(UnlockBatchMqRequestHeader(), batch("a"))
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"")
        answer = await one.ask(LockBatchMqRequestHeader(), batch("b"))
        assert fastjson.loads(answer.body, LockedBatch).lock_ok_mq_set == [Q0]


async def test_locks_of_a_connected_member_are_not_released_by_another_host(
    autojump_clock: MockClock,
) -> None:
    data = HeartbeatData("a", [ConsumerData("G")], [])

    async def ask_to_unlock(asking: Asking) -> int:
        return (await asking.ask(UnlockBatchMqRequestHeader(), batch("a"))).code

    async def holder() -> list[QueueName]:
        answer = await own.ask(LockBatchMqRequestHeader(), batch("b"))
        return fastjson.loads(answer.body, LockedBatch).lock_ok_mq_set

    async with asking() as own, own.other_client({}, host="10.9.9.9") as stranger:
        await own.beat(data)
        await own.ask(LockBatchMqRequestHeader(), batch("a"))
        assert await ask_to_unlock(stranger) == ResponseCode.NO_PERMISSION
        # That the stranger names the id in a heartbeat too changes nothing.
        await stranger.beat(data)
        assert await ask_to_unlock(stranger) == ResponseCode.NO_PERMISSION
        assert await holder() == []
        # Another connection of its own host may: the member has connected again.
        async with own.other_client({}) as again:
            assert await ask_to_unlock(again) == ResponseCode.SUCCESS
        assert await holder() == [Q0]


async def test_locks_of_a_silent_member_are_released_by_another_host(
    autojump_clock: MockClock,
) -> None:
    data = HeartbeatData("a", [ConsumerData("G")], [])
    async with asking() as own, own.other_client({}, host="10.9.9.9") as moved:
        await own.beat(data)
        await own.ask(LockBatchMqRequestHeader(), batch("a"))
        await trio.sleep(HOLDER_TIMEOUT + 1)
        answer = await moved.ask(UnlockBatchMqRequestHeader(), batch("a"))
        assert answer.code == ResponseCode.SUCCESS


async def test_queue_is_free_a_minute_after_the_last_lock_of_its_holder(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        await one.ask(LockBatchMqRequestHeader(), batch("a"))
        for seconds, held in ((60.0, []), (0.1, [Q0])):
            await trio.sleep(seconds)
            answer = await one.ask(LockBatchMqRequestHeader(), batch("b"))
            assert fastjson.loads(answer.body, LockedBatch).lock_ok_mq_set == held


async def test_slave_locks_nothing_and_a_former_master_forgets_its_locks(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        master, slave = (member.broker.address for member in cluster.members)

        async def lock(addr: str, client_id: str) -> RemotingCommand:
            return await call.pool.call(addr, LockBatchMqRequestHeader(), batch(client_id))

        async def change(addr: str, role: str, broker_id: int) -> None:
            accepted(await call.change_role(addr, role, broker_id))

        assert (await lock(slave, "a")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await lock(master, "a")).code == ResponseCode.SUCCESS
        await change(master, "slave", 2)
        answer = await lock(master, "a")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "is a slave" in (answer.remark or "")
        await change(master, "async-master", 0)
        answer = await lock(master, "b")
        assert fastjson.loads(answer.body, LockedBatch).lock_ok_mq_set == [Q0]


async def test_malformed_body_is_refused(autojump_clock: MockClock) -> None:
    async with asking() as one:
        answer = await one.ask(LockBatchMqRequestHeader(), b"{")
        assert answer.code == ResponseCode.SYSTEM_ERROR
