"""One end of a mixed pair is killed and comes back: the logs are the same again, and readers hardly notice."""

from typing import Any

import pytest
import trio

from rocketrio import MessageQueue, Prefetch, open_client, open_consumer
from tests.interop.apache import METADATA_TIMEOUT
from tests.interop.conftest import OnApache, OnOurs
from tests.support import wire
from tests.support.commit_logs import wait_caught_up
from tests.support.ours import assert_same_logs
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.interop

TOPIC = "taken-over"
QUEUE: dict[str, Any] = {"topic": TOPIC, "broker": "broker-a", "queue_id": 0}


def test_killed_slave_comes_back_and_catches_up(side: OnApache | OnOurs) -> None:
    side.java.call("send_many", prefix="before", count=20, topic=TOPIC)
    wait_caught_up(side.master.address, side.slave.address)
    side.slave.kill()
    side.java.call("send_many", prefix="meanwhile", count=300, padding="." * 3000, topic=TOPIC)
    side.slave.restart()
    assert_same_logs(side.master, side.slave)


def test_killed_master_comes_back_and_is_followed(side: OnApache | OnOurs) -> None:
    side.java.call("send_many", prefix="before", count=20, topic=TOPIC)
    wait_caught_up(side.master.address, side.slave.address)
    side.master.kill()
    side.master.restart()
    side.java.until("send_many", prefix="after", count=20, topic=TOPIC)
    assert_same_logs(side.master, side.slave)


async def test_our_consumer_reads_on_from_the_slave(side: OnApache | OnOurs) -> None:
    """The master is killed; reading goes on, offsets are committed to the slave, and none goes back afterwards."""
    group = "reader"
    java, master = side.java, side.master
    queue = MessageQueue(TOPIC, "broker-a", 0)
    await java.acall("send_many", prefix="read", count=200, **QUEUE)
    end: int = (await java.acall("offsets", **QUEUE))["max"]
    await trio.to_thread.run_sync(_wait_slave_serves, side, end)
    async with (
        open_client(name_servers=[side.name_server]) as client,
        open_consumer(
            TOPIC,
            group=group,
            queues=[queue],
            start_from="earliest",
            auto_commit_interval=0.5,
            prefetch=Prefetch(batch_size=8, queue_messages=16),
            client=client,
        ) as consumer,
    ):
        with trio.fail_after(30):
            offsets = [(await consumer.receive()).queue_offset for _ in range(20)]
        await trio.to_thread.run_sync(master.kill)
        with trio.fail_after(30):
            while offsets[-1] + 1 < end:
                offsets.append((await consumer.receive()).queue_offset)
        assert offsets == list(range(end))

        async def committed_at_slave() -> bool:
            return bool(await consumer.committed_offset(queue) == end - 1)

        async def committed_at_master() -> bool:
            return bool(await _at_master(side, group) == end - 1)

        await eventually(committed_at_slave, 60)
        master.start()  # In this thread: the process would end with another one.
        await trio.to_thread.run_sync(master.wait_ready)
        await eventually(committed_at_master, 60)
    # The last message counted as worked on when the block was left.
    assert await _at_master(side, group) == end


async def _at_master(side: OnApache | OnOurs, group: str) -> int | None:
    return await trio.to_thread.run_sync(wire.committed, side.master.address, group, TOPIC)


def _wait_slave_serves(side: OnApache | OnOurs, end: int) -> None:
    """The slave has the messages, and knows the topic."""
    wait_caught_up(side.master.address, side.slave.address)
    slave = side.slave.address
    wait_until(
        lambda: wire.has_topic(slave, TOPIC) and wire.max_offset(slave, TOPIC) == end,
        f"{slave} knows {TOPIC}",
        METADATA_TIMEOUT,
    )
