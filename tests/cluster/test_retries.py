"""A message that no member can handle: through the delay levels to the dead letters, past a crash, on slaves too."""

import pytest
import trio
from tests.support.caller import SUBSCRIPTION, SUSPEND, Caller, caller_of, messages

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.commands.consumer import ConsumerSendMsgBackRequestHeader
from rocketrio_protocol.message import MessageExt

RETRY, DEAD = "%RETRY%billing", "%DLQ%billing"


async def send_back(caller: Caller, addr: str, message: MessageExt, level: int = 0) -> int:
    header = ConsumerSendMsgBackRequestHeader(message.physical_offset, "billing", level)
    return (await caller.pool.call(addr, header)).code


async def next_message(caller: Caller, addr: str, topic: str, offset: int) -> MessageExt:
    """The message at an offset, once it is there."""
    while True:
        answer = await caller.pull(
            addr, offset, topic=topic, sys_flag=SUBSCRIPTION | SUSPEND, suspend=15.0
        )
        if answer.code == 0:
            return messages(answer)[0]


@pytest.mark.slow
async def test_each_time_it_waits_longer_until_it_is_a_dead_letter() -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        broker = cluster.master.broker
        addr = broker.address
        broker.state.groups.update(SubscriptionGroupConfig("billing", retry_max_times=4))
        await caller.send(addr, b"poison", properties="KEYS\x01k")
        message = await next_message(caller, addr, "orders", 0)
        waits: list[int] = []
        for times in range(4):
            begin = trio.current_time()
            assert await send_back(caller, addr, message) == 0
            message = await next_message(caller, addr, RETRY, times)
            waits.append(round(trio.current_time() - begin))
            assert (message.body, message.reconsume_times) == (b"poison", times + 1)
            assert message.property_value("RETRY_TOPIC") == "orders"
        assert waits == [10, 30, 60, 120]
        assert await send_back(caller, addr, message) == 0
        letter = await next_message(caller, addr, DEAD, 0)
        assert (letter.body, letter.keys, letter.reconsume_times) == (b"poison", "k", 5)


async def test_handed_back_message_comes_again_after_a_crash() -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await caller.send(addr, b"later")
        message = await next_message(caller, addr, "orders", 0)
        begin = trio.current_time()
        assert await send_back(caller, addr, message) == 0
        await trio.sleep(3)
        await cluster.master.kill()
        await trio.sleep(2)
        await cluster.master.start()
        again = await next_message(caller, addr, RETRY, 0)
        assert again.body == b"later"
        assert trio.current_time() - begin >= 10
        await trio.sleep(60)
        assert (await caller.pull(addr, 1, topic=RETRY)).code != 0, "once and not twice"


async def test_a_slave_has_what_waits_and_what_died() -> None:
    async with (
        EmbeddedCluster(slaves=1, role="sync-master") as cluster,
        caller_of(cluster) as caller,
    ):
        master, slave = cluster.master.broker, cluster.slaves[0].broker
        await trio.sleep(1)
        await caller.send(master.address, b"work")
        message = await next_message(caller, master.address, "orders", 0)
        assert await send_back(caller, master.address, message) == 0
        assert slave.store.max_physical_offset == master.store.max_physical_offset
        again = await next_message(caller, master.address, RETRY, 0)
        assert await send_back(caller, master.address, again, level=-1) == 0
        await trio.sleep(15)  # The tables follow each ten seconds.
        for topic in (RETRY, DEAD):
            there = await next_message(caller, slave.address, topic, 0)
            assert there.body == b"work"
