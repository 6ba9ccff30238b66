"""Messages that consumers send to their retry topic themselves."""

import trio
from tests.support.caller import bodies, caller_of, messages
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.queues import LockBatch, QueueName
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.consumer import LockBatchMqRequestHeader

RETRY, DEAD = "%RETRY%billing", "%DLQ%billing"


async def test_a_message_waits_its_level_in_the_retry_topic(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        properties = "RETRY_TOPIC\x01orders\x02DELAY\x013"
        answer = await caller.send(
            addr, b"again", topic=RETRY, properties=properties, reconsume_times=1
        )
        assert answer.code == ResponseCode.SUCCESS
        assert bodies(await caller.pull(addr, 0, topic=RETRY)) == []
        await trio.sleep(11)
        (message,) = messages(await caller.pull(addr, 0, topic=RETRY))
        assert (message.body, message.reconsume_times) == (b"again", 1)
        assert message.property_value("RETRY_TOPIC") == "orders"


async def test_a_dead_letter_does_not_wait(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await caller.send(addr, b"dead", topic=RETRY, properties="DELAY\x0118", reconsume_times=17)
        (message,) = messages(await caller.pull(addr, 0, topic=DEAD))
        assert (message.body, message.property_value("DELAY")) == (b"dead", "0")


async def test_message_of_an_orderly_group_becomes_a_dead_letter_at_once(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        lock = LockBatch("billing", "c1", [QueueName("orders", "broker-a", 0)])
        await caller.pool.call(addr, LockBatchMqRequestHeader(), fastjson.dumps(lock))
        await caller.send(addr, b"in order", topic=RETRY, properties="DELAY\x015")
        assert bodies(await caller.pull(addr, 0, topic=DEAD)) == [b"in order"]
        await trio.sleep(61)  # The lock is over, and with it the order.
        await caller.send(addr, b"not any more", topic=RETRY)
        assert bodies(await caller.pull(addr, 0, topic=RETRY)) == [b"not any more"]


async def test_message_for_an_unknown_group_is_refused(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster(auto_create_subscription_group=False) as cluster,
        caller_of(cluster) as caller,
    ):
        answer = await caller.send(cluster.master.broker.address, b"x", topic=RETRY)
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
