"""Long answers: how many are made at once."""

import trio
from trio.testing import MockClock

from rocketrio_broker.processors.long_answers import at_most
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.remoting.channel import Channel


async def test_requests_processed_at_once_are_limited(autojump_clock: MockClock) -> None:
    running = most = 0

    async def process(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        return request.response()

    processor = at_most(trio.Semaphore(2), process)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(processor, None, RemotingCommand(1))
    assert (most, trio.current_time()) == (2, 3.0)
