"""An exception of this program while it serves a connection ends that connection and nothing else."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import product

import pytest
import trio
import trio.testing
from tests.protocol.remoting.networks import (
    ECHO,
    ChannelLog,
    Network,
    echo,
    network_of,
    read_to_end,
    served,
)
from tests.support.raw_client import request
from tests.support.raw_frames import framed
from tests.support.waiting import eventually
from trio.testing import MockClock

from rocketrio_protocol import command, connection
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import Error, NotReachableError
from rocketrio_protocol.remoting import channel as channels
from rocketrio_protocol.remoting import dispatch
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.faults import ConnectionFaults
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.ports import Listener, Transport

BAD = 4711
"""The code of the request that meets the fault."""
PATIENCE = 20.0

Break = Callable[[pytest.MonkeyPatch, Exception], None]


def raising_for_bad(real: Callable[..., object], fault: Exception) -> Callable[..., object]:
    """Return a function that raises if the number of the bad code is somewhere in what it is given."""

    def call(*args: object, **options: object) -> object:
        if str(BAD) in repr(args):
            raise fault
        return real(*args, **options)

    return call


def in_splitting(patch: pytest.MonkeyPatch, fault: Exception) -> None:
    real = connection.FrameDecoder.feed

    def feed(self: connection.FrameDecoder, data: bytes) -> object:
        if str(BAD).encode() in bytes(data):
            raise fault
        return real(self, data)

    patch.setattr(connection.FrameDecoder, "feed", feed)


def in_header(patch: pytest.MonkeyPatch, fault: Exception) -> None:
    patch.setattr(command, "decode_header", raising_for_bad(command.decode_header, fault))


def in_dispatch(patch: pytest.MonkeyPatch, fault: Exception) -> None:
    """The handler is code of its own, whose faults are answered; here what calls it has one."""
    real = dispatch.Dispatcher.dispatch

    def call(self: dispatch.Dispatcher, channel: Channel, one: RemotingCommand) -> None:
        if one.code == BAD:
            raise fault
        real(self, channel, one)

    patch.setattr(dispatch.Dispatcher, "dispatch", call)


def in_encoding(patch: pytest.MonkeyPatch, fault: Exception) -> None:
    patch.setattr(command, "encode_header", raising_for_bad(command.encode_header, fault))


def in_sending(patch: pytest.MonkeyPatch, fault: Exception) -> None:
    real = connection.RemotingConnection.take_output

    def take(self: connection.RemotingConnection[object]) -> object:
        data = real(self)
        if str(BAD).encode() in bytes(data):
            raise fault
        return data

    patch.setattr(connection.RemotingConnection, "take_output", take)


ONEWAY = 2
PLACES = [
    *((place, flag) for place in (in_splitting, in_header, in_dispatch) for flag in (0, ONEWAY)),
    (in_encoding, 0),
    (in_sending, 0),
]
FAULTS = [RuntimeError("a bug"), RecursionError("too deep"), MemoryError()]


def bad(channel: Channel, one: RemotingCommand) -> RemotingCommand:
    return one.response(remark=str(BAD))


async def ends(transport: Transport) -> None:
    """Wait until the peer ends the connection."""
    with trio.fail_after(PATIENCE):
        await read_to_end(transport, may_break=True)


@pytest.mark.parametrize(("break_it", "flag"), PLACES)
async def test_fault_while_a_server_serves_ends_that_connection_alone(
    network: Network, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    break_it: Break, flag: int,
) -> None:  # fmt: skip
    faults, log = ConnectionFaults(), ChannelLog()
    async with (
        served(network, {ECHO: echo, BAD: bad}, faults=faults, observer=log) as addr,
        open_channel_pool(network.dial) as other,
    ):
        assert (await other.call(addr, RemotingCommand(ECHO, body=b"before"))).body == b"before"
        for count, fault in enumerate(FAULTS, 1):
            break_it(monkeypatch, fault)
            transport = await network.dial(addr)
            await transport.send_all(request(BAD, flag=flag))
            await ends(transport)
            await transport.aclose()
            assert faults.count == count
        assert (await other.call(addr, RemotingCommand(ECHO, body=b"after"))).body == b"after"
        assert len(log.closed) == 3
    records = [line for line in caplog.records if line.levelname == "ERROR"]
    assert [line.exc_info and line.exc_info[1] for line in records] == FAULTS[:1]  # Then rarely.


@pytest.mark.parametrize("flag", [0, 2], ids=["request", "oneway"])
async def test_fault_of_a_handler_leaves_even_its_own_connection_open(
    network: Network, flag: int
) -> None:
    def failing(channel: Channel, one: RemotingCommand) -> RemotingCommand:
        raise FAULTS[int(bytes(one.body))]

    async def failing_later(channel: Channel, one: RemotingCommand) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        return failing(channel, one)

    faults = ConnectionFaults()
    table = {ECHO: echo, BAD: failing, BAD + 1: failing_later}
    async with (
        served(network, table, faults=faults) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        for code, number in product((BAD, BAD + 1), range(len(FAULTS))):
            failing_request = RemotingCommand(code, body=b"%d" % number)
            if flag:
                await pool.send_oneway(addr, failing_request)
            else:
                assert (await pool.call(addr, failing_request)).code == 1
        assert (await pool.call(addr, RemotingCommand(ECHO))).code == 0
    assert faults.count == 0


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("break_it", [in_splitting, in_header])
async def test_fault_while_a_client_reads_an_answer_fails_its_calls_with_not_reachable(
    network: Network, monkeypatch: pytest.MonkeyPatch, break_it: Break, fault: Exception
) -> None:
    async with (
        served(network, {ECHO: echo, BAD: bad}) as addr,
        open_channel_pool(network.dial) as pool,
    ):

        async def answer_badly(channel: Channel, one: RemotingCommand) -> RemotingCommand:
            break_it(monkeypatch, fault)  # After the server has read the request.
            return one.response(remark=str(BAD))

        async with served(network, {BAD + 1: answer_badly}) as liar:
            with (
                trio.fail_after(PATIENCE),
                pytest.raises(NotReachableError, match="a fault of this"),
            ):
                await pool.call(liar, RemotingCommand(BAD + 1), timeout=PATIENCE)
            assert pool.faults.count == 1
            assert (await pool.call(addr, RemotingCommand(ECHO))).code == 0


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_fault_of_an_observer_or_a_late_answer_ends_one_connection(
    network: Network, fault: Exception
) -> None:
    """What a server does when a connection begins or ends, and long after a request."""
    opened: list[Channel] = []
    is_failing = False

    class Observer:
        def channel_opened(self, channel: Channel) -> None:
            opened.append(channel)
            if is_failing:
                raise fault

        channel_closed = channel_opened

    def make() -> RemotingCommand:
        raise fault

    faults = ConnectionFaults()
    async with (
        served(network, {ECHO: echo}, faults=faults, observer=Observer()) as addr,
        open_channel_pool(network.dial) as other,
    ):
        await other.call(addr, RemotingCommand(ECHO))
        waiting = await network.dial(addr)
        await waiting.send_all(request(ECHO))
        while len(opened) < 2:
            await trio.lowlevel.checkpoint()
        opened[1].reply_in_turn(make)
        await ends(waiting)
        assert faults.count == 1
        await waiting.aclose()
        while not opened[1].over.is_set() or len(opened) < 3:
            await trio.lowlevel.checkpoint()
        is_failing = True
        unlucky = await network.dial(addr)
        await ends(unlucky)
        await unlucky.aclose()
        assert faults.count == 3
        assert (await other.call(addr, RemotingCommand(ECHO))).code == 0
        is_failing = False


@pytest.mark.slow
async def test_header_of_any_depth_ends_at_most_its_own_connection() -> None:
    """Deep in the stack one exact depth of nesting may be the one that the interpreter does not survive."""
    network, log, faults = network_of("tcp"), ChannelLog(), ConnectionFaults()
    async with (
        served(network, {ECHO: echo}, observer=log, faults=faults, tls=None) as addr,
        open_channel_pool(network.dial) as other,
    ):
        for field in ("language", "remark", "extFields", "version"):
            for depth in range(1, 1101):
                nested = b'{"a":' * depth + b"1" + b"}" * depth
                transport = await network.dial(addr)
                await transport.send_all(framed(b'{"code":10,"%b":%b}' % (field.encode(), nested)))
                await transport.aclose()
            assert (await other.call(addr, RemotingCommand(ECHO), timeout=PATIENCE)).code == 0
        await eventually(lambda: len(log.closed) == 4 * 1100)
    assert faults.count == 0


@pytest.mark.slow
async def test_answer_of_any_depth_raises_a_documented_error(memory_network: Network) -> None:
    async def lie(transport: Transport, depth: int) -> None:
        buffer = memoryview(bytearray(4096))
        await transport.receive_into(buffer)
        nested = b'{"a":' * depth + b"1" + b"}" * depth
        await transport.send_all(framed(b'{"code":0,"flag":1,"opaque":0,"language":%b}' % nested))

    listener = await memory_network.listen(memory_network.listen_addr)
    for depth in range(1, 1101):
        async with trio.open_nursery() as nursery, open_channel_pool(memory_network.dial) as pool:
            nursery.start_soon(lie_once, listener, lie, depth)
            with suppress(Error):
                await pool.call(listener.addr, RemotingCommand(ECHO), timeout=PATIENCE)
            assert pool.faults.count == 0
            nursery.cancel_scope.cancel()
    listener.close()


async def lie_once(
    listener: Listener, lie: Callable[[Transport, int], Awaitable[None]], depth: int
) -> None:
    transport = await listener.accept()
    await lie(transport, depth)
    await trio.sleep_forever()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_fault_of_a_notice_to_a_client_ends_that_connection_alone(
    network: Network, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """Services of a server send notices to many clients, one after the other."""
    faults, log = ConnectionFaults(), ChannelLog()
    async with (
        served(network, {ECHO: echo}, faults=faults, observer=log) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        await pool.call(addr, RemotingCommand(ECHO))
        in_encoding(monkeypatch, fault)
        with pytest.raises(NotReachableError, match="a fault of this program"):
            log.opened[0].send_oneway(RemotingCommand(BAD))
        assert faults.count == 1
        await eventually(lambda: len(log.closed) == 1)
        assert (await pool.call(addr, RemotingCommand(ECHO))).code == 0


async def test_fault_of_a_sweep_ends_one_connection(
    memory_network: Network, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    real = channels.Channel._sweep

    def sweep(self: Channel, now: float) -> float:
        if self is log.opened[0]:
            raise RuntimeError
        return real(self, now)

    log, faults = ChannelLog(), ConnectionFaults()
    async with (
        served(memory_network, {ECHO: echo}, faults=faults, observer=log, idle_timeout=5) as addr,
        open_channel_pool(memory_network.dial) as other,
    ):
        silent = await memory_network.dial(addr)
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.setattr(channels.Channel, "_sweep", sweep)
        await trio.sleep(3)
        await other.call(addr, RemotingCommand(ECHO))
        await ends(silent)
        assert faults.count == 1
        assert (await other.call(addr, RemotingCommand(ECHO))).code == 0
