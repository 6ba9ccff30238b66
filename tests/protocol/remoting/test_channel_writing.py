"""A channel whose transport takes only parts of what it is given: who sends the rest, and who goes on."""

import pytest
import trio
import trio.testing
from tests.protocol.remoting.networks import ECHO

from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.frame import Body, FrameDecoder
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.server import serve_remoting

HOLD = 11


class StutteringTransport:
    """A peer that sent one chunk; of every second piece of the answers it takes a part only."""

    local_addr, remote_addr = "10.0.0.1:10911", "10.0.0.9:5000"

    def __init__(self, chunk: bytes) -> None:
        self.received = bytearray()
        self._chunk = chunk
        self._takes_part = True

    async def receive_into(self, buffer: memoryview) -> int:
        if not self._chunk:
            await trio.sleep_forever()
        size = len(self._chunk)
        buffer[:size], self._chunk = self._chunk, b""
        return size

    def send_nowait(self, data: Body) -> int:
        taken = len(data) // 2 if self._takes_part else len(data)
        self._takes_part = not self._takes_part
        self.received += data[:taken]
        return taken

    async def send_all(self, data: Body) -> None:
        raise AssertionError("the writer finds nothing that was not sent at the end of the round")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class AnsweringTransport(StutteringTransport):
    """A peer that takes a call in two pieces, and answers when it has it whole."""

    def __init__(self, *, breaks: bool = False) -> None:
        super().__init__(b"")
        self.sends: list[int] = []
        self._breaks = breaks
        self._answered = trio.Event()

    async def receive_into(self, buffer: memoryview) -> int:
        await self._answered.wait()
        self._answered = trio.Event()
        return await super().receive_into(buffer)

    def send_nowait(self, data: Body) -> int:
        if self._breaks:
            raise NotReachableError("The connection broke", broker_addr=self.remote_addr)
        self.sends.append(len(data))
        taken = super().send_nowait(data)
        self._answer()
        return taken

    def _answer(self) -> None:
        for frame in FrameDecoder().feed(bytes(self.received)):
            self._chunk += RemotingCommand.decode(frame).response(body=b"whole").encode()
            self.received.clear()
            self._answered.set()


async def test_call_alone_leaves_at_once_and_the_writer_sends_what_was_not_taken(
    autojump_clock: trio.testing.MockClock,
) -> None:
    transport = AnsweringTransport()

    async def dial(addr: str, *, timeout: float = 3.0) -> AnsweringTransport:
        return transport

    async with open_channel_pool(dial) as pool:
        channel = await pool.channel("10.0.0.1:10911")
        answers = []

        async def ask() -> None:
            answers.append(await channel.call(RemotingCommand(ECHO, body=bytes(1000)), timeout=3))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
        assert [bytes(answer.body) for answer in answers] == [b"whole"]
        first, rest = transport.sends
        assert rest == first - first // 2
        assert channel.unsent_size == 0


async def test_call_alone_on_a_broken_connection_is_not_reachable(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def dial(addr: str, *, timeout: float = 3.0) -> AnsweringTransport:
        return AnsweringTransport(breaks=True)

    async with open_channel_pool(dial) as pool:
        channel = await pool.channel("10.0.0.1:10911")
        start = trio.current_time()
        with pytest.raises(NotReachableError, match="The connection broke"):
            await channel.call(RemotingCommand(ECHO), timeout=3)
        assert trio.current_time() == start
        assert channel.closed


class OneConnection:
    """A listener where one connection arrives."""

    addr = StutteringTransport.local_addr

    def __init__(self, transport: StutteringTransport) -> None:
        self._arriving = [transport]

    async def accept(self) -> StutteringTransport:
        if not self._arriving:
            await trio.sleep_forever()
        return self._arriving.pop()

    def close(self) -> None:
        """There is no socket."""


async def test_requests_left_over_are_acted_on_when_the_end_of_a_round_sent_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    count, answer_size = 12, 40_000  # Two answers are over the high-water mark.
    acted_on: list[int] = []

    def answer(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        acted_on.append(request.opaque)
        return request.response(body=bytes(answer_size))

    requests = [RemotingCommand(HOLD, opaque=number).encode() for number in range(count)]
    transport = StutteringTransport(b"".join(requests))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_remoting, [OneConnection(transport)], {HOLD: answer})
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert acted_on == list(range(count))
    answers = FrameDecoder().feed(bytes(transport.received))
    assert [len(answer.body) for answer in answers] == [answer_size] * count


class GatheringTransport(AnsweringTransport):
    """A peer that answers `count` requests at a time, in one chunk."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.asked: list[int] = []
        """Requests of each write."""
        self._count = count
        self._waiting: list[RemotingCommand] = []
        self._decoder = FrameDecoder()

    def send_nowait(self, data: Body) -> int:
        requests = [RemotingCommand.decode(frame) for frame in self._decoder.feed(bytes(data))]
        self.asked.append(len(requests))
        self._waiting += requests
        if len(self._waiting) == self._count:
            self._chunk = b"".join(request.response().encode() for request in self._waiting)
            self._waiting = []
            self._answered.set()
        return len(data)


async def test_calls_woken_together_leave_before_anybody_else_has_a_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    transport = GatheringTransport(2)
    rounds = 20
    seen: list[int] = []
    turn = trio.Event()

    async def dial(addr: str, *, timeout: float = 3.0) -> GatheringTransport:
        return transport

    async def ask(channel: Channel) -> None:
        for _ in range(rounds):
            await channel.call(RemotingCommand(ECHO), timeout=3)
            turn.set()

    async def watch() -> None:
        nonlocal turn
        for _ in range(rounds):
            await turn.wait()
            turn = trio.Event()
            seen.append(sum(transport.asked))

    async with open_channel_pool(dial) as pool:
        channel = await pool.channel("10.0.0.1:10911")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            nursery.start_soon(ask, channel)
            nursery.start_soon(ask, channel)
    assert seen[:-1] == [*range(4, 2 * rounds + 1, 2)]


async def test_waiter_for_an_empty_buffer_continues_when_a_call_sent_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    transport = GatheringTransport(2)

    async def dial(addr: str, *, timeout: float = 3.0) -> GatheringTransport:
        return transport

    async def tell(channel: Channel) -> None:
        channel.send_oneway(RemotingCommand(ECHO))
        await channel.drain()

    async def ask(channel: Channel) -> None:
        await channel.call(RemotingCommand(ECHO), timeout=3)

    async with open_channel_pool(dial) as pool:
        channel = await pool.channel("10.0.0.1:10911")
        for _ in range(20):  # Which of the two is first, chance decides.
            with trio.fail_after(1):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(tell, channel)
                    nursery.start_soon(ask, channel)


@pytest.mark.parametrize(
    ("count", "writes"),
    [(20, [20]), (31, [31]), (32, [16, 16]), (40, [16, 24]), (64, [16, 16, 16, 16])],
)
async def test_of_many_calls_woken_together_some_leave_while_the_others_are_made(
    autojump_clock: trio.testing.MockClock, count: int, writes: list[int]
) -> None:
    transport = GatheringTransport(count)

    async def dial(addr: str, *, timeout: float = 3.0) -> GatheringTransport:
        return transport

    async def ask(channel: Channel) -> None:
        for _ in range(3):
            await channel.call(RemotingCommand(ECHO), timeout=3)

    async with open_channel_pool(dial) as pool:
        channel = await pool.channel("10.0.0.1:10911")
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(ask, channel)
    assert sum(transport.asked) == 3 * count
    assert transport.asked[-2 * len(writes) :] == 2 * writes
