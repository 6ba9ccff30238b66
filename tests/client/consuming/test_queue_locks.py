"""Consumers to whom order counts: locks, handing over, and failures in place."""

from collections import defaultdict

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, committed, receive, send, total_committed
from trio.testing import MockClock

from rocketrio import (
    GIVE_UP,
    ClientInstance,
    ConsumeLater,
    MessageExt,
    MessageQueue,
    Prefetch,
    open_admin,
    open_consumer,
)
from rocketrio.consuming.queue_locks import LOCK_LIFETIME, ConsumerLocks
from rocketrio_broker.clients.queue_locks import FORMER_RUN
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.queues import LockBatch, LockedBatch, QueueName
from rocketrio_protocol.commands.consumer import (
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.names import dead_letter_topic

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


async def lock(
    client: ClientInstance, cluster: EmbeddedCluster, owner: str, *, member: int = 0
) -> bool:
    """Whether `owner` has the first queue for itself now."""
    body = LockBatch("g", owner, [QueueName.of(QUEUE)])
    address = cluster.members[member].broker.address
    answer = await client.api.call(
        address, LockBatchMqRequestHeader(), fastjson.dumps(body), what="lock"
    )
    return bool(fastjson.loads(answer.body, LockedBatch, what="locked").lock_ok_mq_set)


async def unlock(client: ClientInstance, cluster: EmbeddedCluster, owner: str) -> None:
    body = fastjson.dumps(LockBatch("g", owner, [QueueName.of(QUEUE)]))
    address = cluster.master.broker.address
    await client.api.call(address, UnlockBatchMqRequestHeader(), body, what="unlock")


@pytest.mark.slow
async def test_queue_of_an_orderly_consumer_is_locked_and_kept_so(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4, queues=1)
    async with open_consumer(TOPIC, group="g", orderly=True, client=client) as consumer:
        assert await receive(consumer, 4) == [0, 1, 2, 3]
        await trio.sleep(300)  # Far beyond what a lock lasts.
        assert not await lock(client, cluster, "another member")
    assert await lock(client, cluster, "another member")


@pytest.mark.slow
async def test_queue_stays_locked_when_masters_change_places(autojump_clock: MockClock) -> None:
    """The member's route still names the former one, which would renew the lock for ever."""
    async with (
        EmbeddedCluster(slaves=1) as cluster,
        client_of(cluster, poll_name_server_interval=3600) as client,
        open_admin(client=client) as admin,
    ):
        await send(client, 4, queues=1)
        async with open_consumer(TOPIC, group="g", orderly=True, client=client) as consumer:
            assert await receive(consumer, 1) == [0]
            former, new = (member.broker.address for member in cluster.members)
            await admin.change_role(former, "slave", 2)
            await admin.change_role(new, "async-master", 0)
            await trio.sleep(FORMER_RUN)
            assert not await lock(client, cluster, "another member", member=1)
            assert await receive(consumer, 3) == [1, 2, 3]


async def test_nothing_is_read_while_another_member_has_the_lock(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4, queues=1)
    assert await lock(client, cluster, "another member")
    async with open_consumer(TOPIC, group="g", orderly=True, client=client) as consumer:
        with trio.move_on_after(20):
            raise AssertionError(await consumer.receive())
        await unlock(client, cluster, "another member")
        with trio.fail_after(3):
            assert await receive(consumer, 1) == [0]


@pytest.mark.slow
async def test_lock_that_cannot_be_renewed_stops_the_queue(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 100, queues=1)
    async with open_consumer(
        TOPIC, group="g", orderly=True, client=client, prefetch=Prefetch(batch_size=4)
    ) as consumer:
        assert await receive(consumer, 2) == [0, 1]
        await cluster.kill_master()
        await trio.sleep(40)
        with trio.move_on_after(20):  # What was pulled is not handed out any more.
            raise AssertionError(await consumer.receive())
        await cluster.master.start()
        with trio.fail_after(60):
            assert await receive(consumer, 3) == [2, 3, 4]


async def test_lock_ends_on_time_while_another_queue_is_requested(
    client: ClientInstance, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(client, 100, queues=2)
    assert await lock(client, cluster, "another member")
    ask = ConsumerLocks._ask_broker

    answers = True

    async def answer_at_first(
        self: ConsumerLocks, broker_name: str, queues: list[MessageQueue], holds: bool
    ) -> None:
        if not answers:
            await trio.sleep_forever()
        await ask(self, broker_name, queues, holds)

    monkeypatch.setattr(ConsumerLocks, "_ask_broker", answer_at_first)
    async with open_consumer(TOPIC, group="g", orderly=True, client=client) as consumer:
        assert await receive(consumer, 2) == [1, 3]
        answers = False
        granted_before = trio.current_time()
        await trio.sleep_until(granted_before + LOCK_LIFETIME - 5)
        assert await receive(consumer, 1) == [5]
        await trio.sleep_until(granted_before + LOCK_LIFETIME + 0.1)
        with trio.move_on_after(5):
            raise AssertionError(await consumer.receive())


@pytest.mark.slow
async def test_queue_that_another_member_had_meanwhile_continues_at_its_offset(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 8, queues=1)
    here = "10.0.0.101"
    async with (
        client_of(cluster, host=here) as away,
        open_consumer(TOPIC, group="g", orderly=True, client=away) as first,
    ):
        assert await receive(first, 3) == [0, 1, 2]
        cluster.memory_network.silence(here)
        async with open_consumer(TOPIC, group="g", orderly=True, client=client) as second:
            with trio.fail_after(200):  # Until the broker takes the first for dead.
                assert await receive(second, 6) == [0, 1, 2, 3, 4, 5]
        cluster.memory_network.heal()
        with trio.fail_after(60):
            assert await receive(first, 2) == [6, 7]
        await first.commit()
        assert await committed(first) == {0: 8}


@pytest.mark.slow
async def test_message_in_work_is_done_before_the_queue_moves(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 400, queues=2)
    seen: dict[int, list[int]] = defaultdict(list)
    in_work: dict[int, str] = {}

    def handler(name: str, seconds: float) -> object:
        async def handle(message: MessageExt) -> None:
            queue_id = message.queue_id
            assert queue_id not in in_work, f"{name} and {in_work[queue_id]} at once"
            in_work[queue_id] = name
            await trio.sleep(seconds)
            del in_work[queue_id]
            seen[queue_id].append(int(message.body))

        return handle

    async with trio.open_nursery() as nursery, client_of(cluster) as other:

        async def member(own: ClientInstance, name: str, life: float) -> None:
            async with open_consumer(TOPIC, group="g", orderly=True, client=own) as consumer:
                with trio.move_on_after(life):
                    await consumer.run(handler(name, 0.3))  # type: ignore[arg-type]

        nursery.start_soon(member, client, "first", 200)
        await trio.sleep(5)
        for _ in range(3):
            await member(other, "second", 10)
            await trio.sleep(5)
    assert seen == {index: list(range(index, 400, 2)) for index in range(2)}


async def test_message_in_work_is_done_before_its_queue_moves_from_a_member_that_is_cancelled(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    """The member has given the queue up a moment before, and waits for the message."""
    await send(client, 8, queues=2)
    in_work: set[int] = set()
    seen: list[int] = []

    async def handle(message: MessageExt) -> None:
        assert message.queue_id not in in_work
        in_work.add(message.queue_id)
        await trio.sleep(3.0)
        in_work.discard(message.queue_id)
        seen.append(int(message.body))

    async with trio.open_nursery() as nursery, client_of(cluster) as other:

        async def member(own: ClientInstance, life: float) -> None:
            with trio.move_on_after(life):
                async with open_consumer(TOPIC, group="g", orderly=True, client=own) as consumer:
                    await consumer.run(handle, drain_timeout=5.0)

        nursery.start_soon(member, client, 1.5)
        await trio.sleep(1.0)
        await member(other, 20.0)
    assert sorted(seen) == list(range(8))


async def test_received_message_holds_its_queue_until_the_next_receive(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 40, queues=2)
    async with open_consumer(TOPIC, group="g", orderly=True, client=client) as first:
        await trio.sleep(1)
        assert len(await first.receive_batch(40)) == 40  # Of both queues.
        async with (
            client_of(cluster) as other,
            open_consumer(TOPIC, group="g", orderly=True, client=other) as second,
        ):
            await trio.sleep(5)
            (moved,) = second.assignment
            assert second.position(moved) is None  # Its messages are in work still.
            first._settle()
            await trio.sleep(3)
            assert second.position(moved) == 20


async def test_failed_message_is_tried_again_in_place(client: ClientInstance) -> None:
    await send(client, 4, queues=1)
    seen: list[tuple[int, int]] = []
    at: list[float] = []

    async def handle(message: MessageExt) -> None:
        seen.append((int(message.body), message.reconsume_times))
        if message.body == b"1":
            at.append(trio.current_time())
            if message.reconsume_times < 2:
                raise ValueError("not yet")

    async with open_consumer(TOPIC, group="g", orderly=True, client=client) as consumer:
        with trio.move_on_after(10):
            await consumer.run(handle)
        await consumer.commit()
        assert await committed(consumer) == {0: 4}
    assert seen == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (3, 0)]
    assert [round(time - at[0]) for time in at] == [0, 1, 2]


async def test_message_that_fails_too_often_does_not_block_the_others(
    client: ClientInstance,
) -> None:
    await send(client, 4, queues=1)
    seen: list[int] = []

    async def handle(message: MessageExt) -> None:
        seen.append(int(message.body))
        if message.body == b"1":
            raise ValueError("never")
        if message.body == b"2":
            raise ConsumeLater(GIVE_UP)

    async with open_consumer(
        TOPIC, group="g", orderly=True, max_reconsume_times=2, client=client
    ) as consumer:
        with trio.move_on_after(10):
            await consumer.run(handle)
    assert seen == [0, 1, 1, 1, 2, 3]
    async with open_admin(client=client) as admin:
        (dead,) = (await admin.topic(dead_letter_topic("g"))).queues
    assert dead.max_offset == 2


@pytest.mark.slow
async def test_failed_message_waits_for_the_lock_and_is_tried_again(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4, queues=1)
    at: list[float] = []

    async def fail(message: MessageExt) -> None:
        at.append(trio.current_time())
        raise ValueError(message.body)

    async with (
        open_consumer(TOPIC, group="g", orderly=True, client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, fail)
        await trio.sleep(5)
        await cluster.kill_master()
        gone = trio.current_time()
        await trio.sleep(90)
        assert at[-1] <= gone + LOCK_LIFETIME + 1
        await cluster.master.start()
        back = trio.current_time()
        await trio.sleep(60)
        assert at[-1] > back + 30
        nursery.cancel_scope.cancel()


async def test_failure_after_a_seek_holds_no_bytes(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4, queues=1)
    seen: list[int] = []

    async with open_consumer(
        TOPIC, group="g", orderly=True, client=client, prefetch=Prefetch(batch_size=1)
    ) as consumer:

        async def handle(message: MessageExt) -> None:
            seen.append(int(message.body))
            if seen.count(seen[-1]) == 1:
                consumer.seek(QUEUE, message.queue_offset)
                raise ValueError("once more from here")

        with trio.move_on_after(20):
            await consumer.run(handle)
        assert seen == [0, 0, 1, 1, 2, 2, 3, 3]
        assert consumer._assigned.queues[QUEUE].budget.used == 0


async def test_run_in_order_handles_queues_side_by_side(client: ClientInstance) -> None:
    await send(client, 80, queues=4)
    seen: dict[int, list[int]] = defaultdict(list)
    most = at_once = 0

    async def handle(message: MessageExt) -> None:
        nonlocal most, at_once
        at_once += 1
        most = max(most, at_once)
        await trio.sleep(0.1)
        at_once -= 1
        seen[message.queue_id].append(int(message.body))

    async with open_consumer(TOPIC, group="g", orderly=True, client=client) as consumer:
        with trio.move_on_after(4):
            await consumer.run(handle)
        await consumer.commit()
        assert await total_committed(consumer) == 80
    assert seen == {index: list(range(index, 80, 4)) for index in range(4)}
    assert most == 4


async def test_orderly_is_for_members_of_a_group(client: ClientInstance) -> None:
    for arguments in ({"queues": [QUEUE]}, {"mode": "broadcasting"}):
        with pytest.raises(ConfigError, match="orderly="):
            async with open_consumer(TOPIC, group="g", orderly=True, client=client, **arguments):
                pass
