"""What rocketrio's clients notice of a hand-over: a pause of less than a second, and nothing else."""

import itertools
from collections import Counter

import attrs
import pytest
import trio
from tests.cluster.members import role_of
from tests.cluster.orderly_members import GROUP as ORDERLY_GROUP
from tests.cluster.orderly_members import two_members
from tests.support.clients import client_of
from tests.support.orders import TOPIC as ORDERLY_TOPIC

from rocketrio import ClientInstance, Message, open_admin, open_consumer
from rocketrio.producing.produce import open_producer
from rocketrio.producing.send_result import SendStatus
from rocketrio_broker.embedded import EmbeddedCluster

TOPIC = "payments"


@attrs.define
class Traffic:
    """Senders and a group of two members; when each message was acknowledged and handled."""

    cluster: EmbeddedCluster
    sent: dict[bytes, float] = attrs.Factory(dict)
    statuses: Counter[SendStatus] = attrs.Factory(Counter)
    handled: dict[bytes, float] = attrs.Factory(dict)
    repeats: int = 0
    stop: bool = False

    async def send(self, client: ClientInstance, name: str, *, keyed: bool) -> None:
        async with open_producer(client=client, group=f"from-{name}") as producer:
            for number in itertools.count():
                if self.stop:
                    return
                body = b"%s-%06d" % (name.encode(), number)
                key = "one account" if keyed else None
                result = await producer.send(Message(TOPIC, body), sharding_key=key)
                self.statuses[result.status] += 1
                self.sent[body] = trio.current_time()
                await trio.sleep(0.05)

    async def stream(self, client: ClientInstance) -> None:
        """Many messages without waiting for each."""
        async with open_producer(client=client, group="stream") as producer:
            for round_ in itertools.count():
                if self.stop:
                    return
                async with producer.pipeline() as pipeline:
                    bodies = [b"stream-%04d-%02d" % (round_, number) for number in range(10)]
                    for body in bodies:
                        await pipeline.send(Message(TOPIC, body))
                self.sent |= dict.fromkeys(bodies, trio.current_time())
                await trio.sleep(0.1)

    async def member(self, client: ClientInstance) -> None:
        async with open_consumer(
            TOPIC, group="ledger", client=client, auto_commit_interval=0.2
        ) as consumer:
            async for message in consumer:
                if message.body in self.handled:
                    self.repeats += 1
                else:
                    self.handled[message.body] = trio.current_time()

    @staticmethod
    def longest_gap(times: dict[bytes, float], since: float) -> float:
        late = sorted(time for time in times.values() if time >= since)
        return max(after - before for before, after in itertools.pairwise(late))


@pytest.mark.slow
@pytest.mark.parametrize("role", ["sync-master", "async-master"])
async def test_producers_and_groups_go_on_within_a_second(role: str) -> None:
    async with (
        EmbeddedCluster(slaves=1, role=role) as cluster,  # type: ignore[arg-type]
        client_of(cluster, host="10.0.0.101") as first,
        client_of(cluster, host="10.0.0.102") as second,
        client_of(cluster, host="10.0.0.103") as third,
        open_admin(client=third) as admin,
    ):
        await admin.create_topic(TOPIC, queues=4)
        await trio.sleep(12)
        traffic = Traffic(cluster)
        async with trio.open_nursery() as members:
            members.start_soon(traffic.member, first)
            members.start_soon(traffic.member, second)
            await trio.sleep(5)
            async with trio.open_nursery() as senders:
                senders.start_soon(lambda: traffic.send(first, "plain", keyed=False))
                senders.start_soon(lambda: traffic.send(second, "keyed", keyed=True))
                senders.start_soon(traffic.stream, third)
                await trio.sleep(3)
                since = trio.current_time()
                for _ in range(2):
                    done = await admin.hand_over("broker-a")
                    assert done.seconds is not None
                    assert done.seconds < 1
                    await trio.sleep(3)
                traffic.stop = True
            await trio.sleep(5)
            members.cancel_scope.cancel()
        assert role_of(cluster.master)[0] == role
        assert traffic.longest_gap(traffic.sent, since) < 1
        assert traffic.longest_gap(traffic.handled, since) < 1
        assert traffic.sent.keys() <= traffic.handled.keys()
        # At least once; what was handled and not yet committed may come again.
        assert traffic.repeats < 100
        assert set(traffic.statuses) == {SendStatus.SEND_OK}


@pytest.mark.slow
async def test_orderly_members_keep_their_queues() -> None:
    async with (
        EmbeddedCluster(slaves=1, role="sync-master") as cluster,
        two_members(cluster) as (work, client),
        open_admin(client=client) as admin,
    ):
        since = trio.current_time()
        holders = {queue: name for queue, name, *_ in work.intervals}
        await admin.hand_over("broker-a")
        await trio.sleep(20)
        assert {queue: name for queue, name, *_ in work.intervals} == holders
        assert max(work.longest_pause(queue, since) for queue in holders) < 1.5
        for offsets in work.done.values():
            assert offsets == sorted(set(offsets))
        stats = await admin.consume_stats(ORDERLY_GROUP)
        assert {queue.topic for queue in stats.offset_table} >= {ORDERLY_TOPIC}
