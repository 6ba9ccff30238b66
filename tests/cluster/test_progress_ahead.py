"""What is parked comes although the files of progress lie ahead of its queues, as those of another log do."""

from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.mutations import same_faults_each_run
from tests.support.caller import bodies, messages
from tests.support.transaction_producer import (
    COMMIT,
    HALF,
    OPERATIONS,
    TransactionProducer,
    producing,
)
from trio.testing import MockClock

from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_protocol.bodies.offsets import ConsumerOffsetWrapper, DelayOffsetWrapper
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.consumer import ConsumerSendMsgBackRequestHeader

CONFIG = Path("/master/config")
GROUP, RETRY, SCHEDULE = "billing", "%RETRY%billing", "SCHEDULE_TOPIC_XXXX"
LEVELS = 18
COMES_IN = 120.0
"""Seconds: a retry waits 10 s, an undecided half message two rounds of checks at most."""


@attrs.frozen
class Ahead:
    """How the files lie: by how much, and what the log has."""

    by: int
    has_queues: bool
    is_killed: bool


@attrs.frozen
class Story:
    producer: TransactionProducer

    async def park(self, when: str) -> None:
        """Park one message of each kind, and decide one transaction."""
        producer = self.producer
        for level in (1, 2):
            properties = f"DELAY\x01{level}"
            await producer.call.send(
                producer.addr, f"delayed {level} {when}".encode(), properties=properties
            )
        await producer.send(f"half {when}".encode())
        decided = await producer.send(f"decided {when}".encode())
        assert (await producer.end(decided, COMMIT)).code == ResponseCode.SUCCESS
        await producer.call.send(producer.addr, f"retried {when}".encode(), queue_id=1)
        pulled = messages(await producer.call.pull(producer.addr, 0, queue_id=1, group=GROUP))
        header = ConsumerSendMsgBackRequestHeader(pulled[-1].physical_offset, GROUP, 0)
        assert (await producer.call.pool.call(producer.addr, header)).code == ResponseCode.SUCCESS

    def end(self, topic: str, queue_id: int = 0) -> int:
        return self.producer.cluster.master.broker.store.next_queue_offset(topic, queue_id)

    async def come(self) -> tuple[list[bytes], list[bytes]]:
        """What readers of the topic get, and what the group's member gets again."""
        producer = self.producer
        offsets = producer.cluster.master.broker.state.consumer_offsets
        begin = max(0, offsets.query_offset(GROUP, RETRY, 0))
        again = bodies(await producer.call.pull(producer.addr, begin, topic=RETRY, group=GROUP))
        return await producer.seen_bodies(), again


async def parked_messages_come(ahead: Ahead) -> None:
    async with producing(lambda _: COMMIT) as producer:
        story, cluster = Story(producer), producer.cluster
        disk = cluster.master.disk
        if ahead.has_queues:
            await story.park("before")
        levels = {
            level: story.end(SCHEDULE, level - 1) + ahead.by for level in range(1, LEVELS + 1)
        }
        offsets = {
            f"{topic}@{group}": {0: story.end(topic) + ahead.by}
            for topic, group in (
                (HALF, "CID_RMQ_SYS_TRANS"),
                (OPERATIONS, "CID_RMQ_SYS_TRANS"),
                (RETRY, GROUP),
            )
        }
        await (cluster.kill_master() if ahead.is_killed else cluster.master.stop())
        ConfigFile(CONFIG / "delayOffset.json", disk=disk).write(DelayOffsetWrapper(levels))
        ConfigFile(CONFIG / "consumerOffset.json", disk=disk).write(ConsumerOffsetWrapper(offsets))
        await cluster.restart_master()
        await producer.heartbeat()
        await story.park("after")
        await trio.sleep(COMES_IN)
        seen, again = await story.come()
        for when in ["before"] * ahead.has_queues + ["after"]:
            for body in ("delayed 1", "delayed 2", "half", "decided"):
                assert seen.count(f"{body} {when}".encode()) == 1, (body, when, seen)
            assert again.count(f"retried {when}".encode()) == 1, (when, again)


@pytest.mark.slow
@same_faults_each_run(16)
@given(
    st.builds(
        Ahead,
        by=st.integers(1, 3) | st.integers(1, 10**6),
        has_queues=st.booleans(),
        is_killed=st.booleans(),
    )
)
def test_parked_message_of_each_kind_comes(ahead: Ahead) -> None:
    trio.run(parked_messages_come, ahead, clock=MockClock(autojump_threshold=0))
