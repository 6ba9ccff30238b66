"""Readers that do not read: what a broker holds for them stays small, and they miss nothing."""

import pytest
import trio
from tests.support.caller import SUBSCRIPTION, SUSPEND, bodies, caller_of
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.frame import FrameDecoder
from rocketrio_protocol.remoting.ports import Transport

QUEUES = 4
PULLS = 3 * QUEUES
BODY = bytes(512 * 1024)


def pulls() -> bytes:
    """Three pulls of each queue that wait for the next message."""
    requests = []
    for number in range(PULLS):
        header = PullMessageRequestHeader(
            "g", "orders", number % QUEUES, 1, 32, SUBSCRIPTION | SUSPEND, 0, 15_000, 0, "*"
        )
        request = RemotingCommand.request(header)
        request.opaque = number
        requests.append(request.encode())
    return b"".join(requests)


async def answers(transport: Transport, count: int) -> list[RemotingCommand]:
    decoder, buffer = FrameDecoder(), memoryview(bytearray(64 * 1024))
    found: list[RemotingCommand] = []
    with trio.fail_after(5):
        while len(found) < count:
            size = await transport.receive_into(buffer)
            assert size, "the broker closed the connection"
            found += [RemotingCommand.decode(frame) for frame in decoder.feed(buffer[:size])]
    return found


async def test_woken_pulls_of_a_reader_that_does_not_read_are_answered_when_it_reads(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster:
        broker = cluster.master.broker
        async with caller_of(cluster) as caller:
            for queue_id in range(QUEUES):
                await caller.send(broker.address, b"first", queue_id=queue_id)
            slow = await cluster.dial(broker.address)
            await slow.send_all(pulls())
            await wait_all_tasks_blocked()
            assert len(broker.state.held_pulls) == PULLS
            for queue_id in range(QUEUES):
                await caller.send(broker.address, BODY, queue_id=queue_id)
            await trio.sleep(20)  # Their time is over, too.
            assert len(broker.state.held_pulls) == 0
            (unsent,) = [
                channel.unsent_size
                for channel in broker._connections
                if channel.remote_addr == slow.local_addr
            ]
            assert unsent < 2 * len(BODY)
            found = await answers(slow, PULLS)
            assert sorted(answer.opaque for answer in found) == list(range(PULLS))
            assert all(bodies(answer) == [BODY] for answer in found)


@pytest.mark.parametrize("limit", [len(BODY), 64 * len(BODY)])
async def test_the_reader_that_holds_most_unread_goes_when_all_hold_too_much(
    autojump_clock: MockClock, limit: int
) -> None:
    async with (
        EmbeddedCluster(default_topic_queue_nums=QUEUES, unsent_size_limit=limit) as cluster,
        caller_of(cluster) as caller,
    ):
        broker = cluster.master.broker
        for queue_id in range(QUEUES):
            await caller.send(broker.address, b"first", queue_id=queue_id)
            await caller.send(broker.address, BODY, queue_id=queue_id)
        before = broker.statistics().connections
        slow = [await cluster.dial(broker.address) for _ in range(3)]
        for transport in slow:
            await transport.send_all(pulls())
            await wait_all_tasks_blocked()
        gone = before + len(slow) - broker.statistics().connections
        assert (gone > 0) is (limit == len(BODY))
        (answer, *_) = await answers(slow[-1], 1)
        assert bodies(answer) == [BODY]
