"""Orderly queues have one worker at a time while brokers restart and change places."""

from functools import partial

import pytest
import trio
from tests.cluster.orderly_members import GROUP, Work, two_members
from tests.support.caller import Caller, accepted
from tests.support.clients import client_of
from tests.support.further import every_other
from tests.support.orders import TOPIC, send
from tests.support.pair import pair_of

from rocketrio import MessageQueue
from rocketrio_broker.clients.queue_locks import FORMER_RUN, LOCK_LIFETIME
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.queues import LockBatch, LockedBatch, QueueName
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.consumer import LockBatchMqRequestHeader

QUEUE, OTHER_QUEUE = MessageQueue(TOPIC, "broker-a", 0), MessageQueue(TOPIC, "broker-a", 1)
OURS_HOLDS, OURS_NEW = LockBatchMqRequestHeader(holds=True), LockBatchMqRequestHeader(holds=False)
JAVA = LockBatchMqRequestHeader()


async def ask(
    call: Caller,
    addr: str,
    header: LockBatchMqRequestHeader,
    client_id: str,
    queue: MessageQueue = QUEUE,
) -> bool | None:
    """Whether the member has the queue for itself; None where the broker refuses to say."""
    body = fastjson.dumps(LockBatch(GROUP, client_id, [QueueName.of(queue)]))
    answer = await call.pool.call(addr, header, body)
    if answer.code == ResponseCode.SYSTEM_BUSY:
        assert not answer.body
        return None
    assert answer.code == 0, answer
    return bool(fastjson.loads(answer.body, LockedBatch, what="locks").lock_ok_mq_set)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("away", "is_clean"),
    every_other([pytest.param(0.0, True), pytest.param(1.0, False), pytest.param(5.0, False)]),
)
async def test_members_share_no_queue_through_a_restart_of_the_master(
    away: float, is_clean: bool
) -> None:
    async with pair_of(0) as pair, two_members(pair.cluster) as (work, _):
        for member_away in ("10.0.0.101", "10.0.0.102"):
            # This one is cut off and comes back later than the other, which sees itself alone.
            if is_clean:
                await pair.first.stop()
            else:
                await pair.first.kill()
            pair.network.silence(member_away)
            await trio.sleep(away)
            await pair.first.start()
            await trio.sleep(8)
            pair.network.heal()
            await trio.sleep(70)
        assert {name for _, name, _, end in work.intervals if end > 150} == {"first", "second"}
        for queue_id, offsets in work.done.items():
            assert sorted(set(offsets)) == list(range(len(set(offsets)))), queue_id


@pytest.mark.slow
async def test_members_share_no_queue_through_a_failover() -> None:
    async with (
        pair_of(slave_read_enable=True) as pair,
        two_members(pair.cluster) as (work, _),
    ):
        await trio.sleep(15)
        began = trio.current_time()
        await pair.first.kill()
        pair.network.silence("10.0.0.101")
        await pair.promote(pair.second)
        await pair.first.start()
        await trio.sleep(8)
        pair.network.heal()
        await trio.sleep(80)
        for queue_id in range(4):
            assert work.longest_pause(queue_id, began) < FORMER_RUN + 10
        assert {name for _, name, _, end in work.intervals if end > began + 60} == {
            "first",
            "second",
        }


@pytest.mark.slow
async def test_a_lock_is_asked_for_again_on_the_next_connection() -> None:
    async with pair_of(0) as pair, two_members(pair.cluster) as (work, _):
        locks = pair.master.state.queue_locks
        queues = [QueueName(TOPIC, "broker-a", queue_id) for queue_id in range(4)]
        before = [locks.holder(GROUP, queue, now=trio.current_time()) for queue in queues]
        assert all(before)
        began = trio.current_time()
        await pair.first.kill()
        await pair.first.start()
        await trio.sleep(3)
        locks = pair.master.state.queue_locks
        after = [locks.holder(GROUP, queue, now=trio.current_time()) for queue in queues]
        assert after == before
        await trio.sleep(10)
        for queue_id in range(4):
            assert work.longest_pause(queue_id, began) < 3


async def test_a_killed_broker_knows_no_locks_for_half_a_minute() -> None:
    async with pair_of(0) as pair:
        addr = pair.master.address
        assert await ask(
            pair.caller, addr, JAVA, "java@1"
        )  # A broker that never had a log knows all.
        await pair.send("the log is not empty")
        await pair.first.kill()
        await pair.first.start()
        began = trio.current_time()
        assert await ask(pair.caller, addr, JAVA, "java@2") is None
        assert await ask(pair.caller, addr, JAVA, "java@1") is None
        assert await ask(pair.caller, addr, OURS_NEW, "new") is False
        await trio.sleep(FORMER_RUN / 2)
        assert await ask(pair.caller, addr, OURS_HOLDS, "holder") is True
        await trio.sleep(began + FORMER_RUN - 0.1 - trio.current_time())
        assert await ask(pair.caller, addr, JAVA, "java@1") is None
        await trio.sleep(0.2)
        assert await ask(pair.caller, addr, JAVA, "java@1") is False
        assert await ask(pair.caller, addr, OURS_NEW, "new") is False
        await trio.sleep(LOCK_LIFETIME)
        assert await ask(pair.caller, addr, JAVA, "java@1") is True


async def test_a_broker_that_stopped_cleanly_knows_its_locks() -> None:
    async with pair_of(0) as pair:
        addr = pair.master.address
        await pair.send("the log is not empty")
        assert await ask(pair.caller, addr, JAVA, "java@1")
        await pair.first.stop()
        await pair.first.start()
        assert await ask(pair.caller, addr, JAVA, "java@2") is False
        await trio.sleep(FORMER_RUN - 1)
        assert await ask(pair.caller, addr, JAVA, "java@1") is True
        await trio.sleep(LOCK_LIFETIME - 1)
        assert await ask(pair.caller, addr, JAVA, "java@2") is False
        # What was given since the clean stop is not known after a kill.
        assert await ask(pair.caller, addr, JAVA, "java@1") is True
        body = LockBatch("another group", "java@3", [QueueName.of(QUEUE)])
        await pair.caller.pool.call(addr, JAVA, fastjson.dumps(body))
        await pair.first.kill()
        await pair.first.start()
        assert await ask(pair.caller, addr, JAVA, "java@2") is None


@pytest.mark.slow
@pytest.mark.parametrize("is_handed_over", [False, True])
async def test_waits_for_unknown_locks_do_not_add_up(is_handed_over: bool) -> None:
    """A killed master comes back, and two clean stops or hand-overs follow within the time in which it waits."""
    async with pair_of() as pair:
        master, other = pair.members
        await pair.send("the log is not empty")
        await trio.sleep(2)
        await master.kill()
        await master.start()
        began, away = trio.current_time(), 0.0
        for _ in range(2):
            await trio.sleep(10)
            assert await ask(pair.caller, master.broker.address, OURS_HOLDS, "holder") is True
            left = trio.current_time()
            if is_handed_over:
                accepted(await pair.hand_over(at=master))
                master, other = other, master
            else:
                await master.stop()
                await master.start()
            away += trio.current_time() - left
            addr = master.broker.address
            assert await ask(pair.caller, addr, JAVA, "java@1") is None
        assert away < FORMER_RUN / 4
        await trio.sleep(began + FORMER_RUN - 0.1 - trio.current_time())
        assert await ask(pair.caller, addr, OURS_NEW, "new", OTHER_QUEUE) is False
        await trio.sleep(0.2 + away)
        assert await ask(pair.caller, addr, OURS_NEW, "new", OTHER_QUEUE) is True
        assert await ask(pair.caller, addr, OURS_NEW, "new") is False, "the holder's"


async def test_a_promoted_slave_knows_no_locks_and_the_former_master_neither() -> None:
    async with pair_of() as pair:
        former, new = pair.members
        ask_at = partial(ask, pair.caller)
        at_former, at_new = former.broker.address, new.broker.address
        await pair.send("the log is not empty")
        assert await ask_at(at_former, JAVA, "java@1")
        await pair.change(former, "slave", 2)
        await pair.promote(new)
        assert await ask_at(at_new, JAVA, "java@2") is None
        assert await ask_at(at_new, OURS_HOLDS, "holder") is True
        await trio.sleep(FORMER_RUN)
        assert await ask_at(at_new, JAVA, "java@2") is False
        await pair.change(new, "slave", 1)
        await pair.promote(former)
        assert await ask_at(at_former, JAVA, "java@2") is None


@pytest.mark.slow
async def test_work_under_a_lost_lock_is_not_committed() -> None:
    work = Work()
    async with (
        pair_of(0) as pair,
        client_of(pair.cluster) as client,
        trio.open_nursery() as nursery,
    ):
        await send(client, 8, queues=1)
        nursery.start_soon(work.member, client, "slow", 50.0)
        await trio.sleep(5)
        locks, now = pair.master.state.queue_locks, trio.current_time()
        offsets = pair.master.state.consumer_offsets
        assert work.at_work == {0: "slow"}
        locks.clear()
        assert locks.lock(GROUP, [QueueName.of(QUEUE)], "another", now=now)
        for _ in range(5):
            await trio.sleep(20)
            now = trio.current_time()
            assert locks.lock(GROUP, [QueueName.of(QUEUE)], "another", now=now)
        assert work.done == {0: [0]}  # Its handler ended, and got no other message.
        assert offsets.query_offset(GROUP, TOPIC, 0) <= 0
        # The other has done three and goes: the member goes on behind these.
        offsets.commit_offset(GROUP, TOPIC, 0, 3)
        locks.unlock(GROUP, [QueueName.of(QUEUE)], "another")
        await trio.sleep(60)
        assert work.done[0] == [0, 3]
        nursery.cancel_scope.cancel()
