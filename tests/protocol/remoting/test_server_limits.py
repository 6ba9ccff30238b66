"""What strangers can take of a server together: places, unfinished frames, memory for answers they do not read."""

import logging
from functools import partial

import attrs
import pytest
import trio
import trio.testing
from tests.protocol.remoting.networks import ECHO, ChannelLog, Network, echo, served

from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.channel import FIRST_FRAME_TIMEOUT, FRAME_TIMEOUT, IDLE_TIMEOUT
from rocketrio_protocol.remoting.descriptors import DescriptorLimit
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.ports import Transport
from rocketrio_protocol.remoting.rare_log import PERIOD, RareLog
from rocketrio_protocol.remoting.server_limits import (
    UNPROVEN_SHARE,
    ConnectionPlaces,
    ServerLimits,
    SharedMemory,
    host_of,
)

ASK = RemotingCommand(ECHO).encode()
KIB = 1024


@attrs.define(eq=False)
class Connection:
    """A connection as limits see it."""

    remote_addr: str
    last_received: float = 0.0
    closed_because: str | None = None

    def close(self, reason: str) -> None:
        self.closed_because = reason


def frame(body_size: int) -> bytes:
    return RemotingCommand(ECHO, body=bytes(body_size)).encode()


async def is_open(transport: Transport) -> bool:
    """Whether the server answers on this connection."""
    await transport.send_all(ASK)
    with trio.move_on_after(0.5):
        return await transport.receive_into(memoryview(bytearray(KIB))) > 0
    return False


async def ended_after(transport: Transport) -> float:
    """Seconds until the server closes the connection."""
    began = trio.current_time()
    assert await transport.receive_into(memoryview(bytearray(KIB))) == 0
    return trio.current_time() - began


# --------------------------------------------------------------------------------- frames and time


async def test_a_first_frame_that_is_never_whole_ends_its_connection(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(memory_network, {ECHO: echo}) as addr:
        transport = await memory_network.dial(addr)
        await trio.sleep(50)  # A client may connect long before it asks.
        await transport.send_all(frame(100)[:3])
        assert await ended_after(transport) == FIRST_FRAME_TIMEOUT


async def test_a_silent_connection_stays_until_it_is_idle(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(memory_network, {ECHO: echo}) as addr:
        assert await ended_after(await memory_network.dial(addr)) == IDLE_TIMEOUT


async def test_bytes_that_trickle_in_give_a_frame_no_more_time(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(memory_network, {ECHO: echo}) as addr:
        transport = await memory_network.dial(addr)
        assert await is_open(transport)
        began = trio.current_time()

        async def trickle() -> None:
            for byte in frame(KIB):
                await transport.send_all(bytes([byte]))
                await trio.sleep(1)

        with pytest.raises(NotReachableError):
            await trickle()
        assert FRAME_TIMEOUT <= trio.current_time() - began <= FRAME_TIMEOUT + 2


async def test_each_frame_has_its_own_time(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(memory_network, {ECHO: echo}) as addr:
        transport = await memory_network.dial(addr)
        await transport.send_all(ASK + ASK[:5])
        for _ in range(10):  # Its end comes with the beginning of the next one.
            await trio.sleep(FRAME_TIMEOUT - 1)
            await transport.send_all(ASK[5:] + ASK[:5])
        await transport.send_all(ASK[5:])
        await trio.sleep(FRAME_TIMEOUT + 1)
        assert await is_open(transport)


async def test_a_frame_that_the_server_does_not_read_on_has_time(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    def large(channel: object, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=bytes(512 * KIB))

    async with served(memory_network, {ECHO: large}) as addr:
        transport = await memory_network.dial(addr)
        await transport.send_all(ASK * 3 + ASK[:5])
        buffer, received = memoryview(bytearray(256 * KIB)), 0
        await trio.sleep(2 * FRAME_TIMEOUT)
        while received < 3 * 512 * KIB:
            size = await transport.receive_into(buffer)
            assert size
            received += size
        await transport.send_all(ASK[5:])
        with trio.fail_after(5):
            assert await transport.receive_into(buffer) > 0


# ------------------------------------------------------------------------------------------- memory


def test_hold_over_the_limit_closes_the_connection_that_holds_most() -> None:
    memory = SharedMemory(100, "frames", QuietLog())
    connections = [Connection(f"10.0.0.{number}:1") for number in range(4)]
    for connection, size in zip(connections, (20, 50, 30, 0), strict=True):
        memory.hold(connection, size)
    assert memory.total == 100
    memory.hold(connections[3], 1)
    assert [bool(connection.closed_because) for connection in connections] == [
        False, True, False, False,
    ]  # fmt: skip
    assert memory.total == 51
    for connection in connections:
        memory.hold(connection, 0)
    assert memory.total == 0


class QuietLog(RareLog):
    def warning(self, form: str, *values: object) -> None:
        assert form % values


async def test_unfinished_frames_of_strangers_are_limited_and_a_small_one_stays(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    limits = ServerLimits(unfinished_size=600 * UNPROVEN_SHARE * KIB)
    log = ChannelLog()
    async with served(memory_network, {ECHO: echo}, limits=limits, observer=log) as addr:
        small, *large = [await memory_network.dial(addr) for _ in range(4)]
        await small.send_all(frame(100 * KIB)[: 50 * KIB])
        for transport in large:
            await transport.send_all(frame(500 * KIB)[: 250 * KIB])
            await trio.testing.wait_all_tasks_blocked()
        assert [channel.remote_addr for channel in log.closed] == [large[0].local_addr]
        await small.send_all(frame(100 * KIB)[50 * KIB :])
        assert await small.receive_into(memoryview(bytearray(KIB))) > 0


async def test_a_connection_that_has_sent_a_whole_frame_has_more_room(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    limits = ServerLimits(unfinished_size=500 * UNPROVEN_SHARE * KIB)
    log = ChannelLog()
    async with served(memory_network, {ECHO: echo}, limits=limits, observer=log) as addr:
        known = [await memory_network.dial(addr) for _ in range(4)]
        for transport in known:
            assert await is_open(transport)
            await transport.send_all(frame(500 * KIB)[: 450 * KIB])
            await trio.testing.wait_all_tasks_blocked()
        assert not log.closed
        await known[0].send_all(frame(500 * KIB)[450 * KIB :])
        await known[1].send_all(bytes(49 * KIB))
        await trio.testing.wait_all_tasks_blocked()
        assert not log.closed, "what a finished frame took is free again"
        stranger = await memory_network.dial(addr)
        await stranger.send_all(frame(550 * KIB)[: 510 * KIB])
        await trio.testing.wait_all_tasks_blocked()
        assert [channel.remote_addr for channel in log.closed] == [stranger.local_addr]


async def test_requests_of_a_peer_that_does_not_read_its_answers_count_too(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    def large(channel: object, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=bytes(900 * KIB))

    log = ChannelLog()
    limits = ServerLimits(unfinished_size=500 * KIB)
    async with served(memory_network, {ECHO: large}, limits=limits, observer=log) as addr:
        for _ in range(2):
            transport = await memory_network.dial(addr)
            await transport.send_all(ASK)
            await trio.testing.wait_all_tasks_blocked()
            await transport.send_all(frame(400 * KIB))
            await trio.testing.wait_all_tasks_blocked()
        assert len(log.closed) == 1


async def test_reply_in_turn_makes_answers_when_the_peer_has_read_and_none_when_it_has_gone(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    log, made = ChannelLog(), list[int]()

    def make(number: int) -> RemotingCommand:
        made.append(number)
        return RemotingCommand(0, flag=1, opaque=number, body=bytes(400 * KIB))

    async with served(memory_network, {ECHO: echo}, observer=log) as addr:
        transport = await memory_network.dial(addr)
        assert await is_open(transport)
        (channel,) = log.opened
        for number in range(6):
            channel.reply_in_turn(partial(make, number))
        await trio.testing.wait_all_tasks_blocked()
        assert made == [0]  # The network holds less than one of them.
        buffer, received = memoryview(bytearray(64 * KIB)), 0
        while received < 3 * 400 * KIB:
            received += await transport.receive_into(buffer)
            await trio.testing.wait_all_tasks_blocked()
        assert made == [0, 1, 2, 3]
        await transport.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert channel.closed
        channel.reply_in_turn(partial(make, 6))
        assert made == [0, 1, 2, 3]


# ------------------------------------------------------------------------------------------- places


def test_a_host_has_its_share_of_the_places() -> None:
    places = ConnectionPlaces(ServerLimits(connections=10, host_connections=3), QuietLog())
    for port in range(3):
        assert places.has_room("10.0.0.1:1")
        places.take(Connection(f"10.0.0.1:{port}"))
    assert not places.has_room("10.0.0.1:4")
    assert places.has_room("10.0.0.2:4")


def test_where_all_places_are_taken_the_host_with_most_gives_up_the_silent_one() -> None:
    places = ConnectionPlaces(ServerLimits(connections=5, host_connections=4), QuietLog())
    crowd = [Connection(f"10.0.0.1:{port}", last_received=10.0 - port) for port in range(4)]
    other = Connection("10.0.0.2:1")
    for connection in (*crowd, other):
        places.take(connection)
    assert places.has_room("10.0.0.3:1")
    assert [bool(connection.closed_because) for connection in crowd] == [False, False, False, True]
    assert len(places) == 4
    places.take(Connection("10.0.0.3:1"))
    assert places.has_room("10.0.0.2:2")
    places.take(Connection("10.0.0.2:2"))
    assert not places.has_room("10.0.0.2:3"), "its host would have as many as any other"
    assert other.closed_because is None
    places.leave(crowd[3])
    assert len(places) == 5, "who was closed is not counted out twice"


@pytest.mark.parametrize(
    ("addr", "host"),
    [
        ("10.0.0.1:5000", "10.0.0.1"),
        ("[::ffff:10.0.0.1]:5000", "10.0.0.1"),
        ("[2001:db8:1:2:3:4:5:6]:5000", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]:6000", "2001:db8:1:2::/64"),
        ("unix:0", "unix:0"),
    ],
)
def test_host_of_an_address_is_whose_share_it_is(addr: str, host: str) -> None:
    assert host_of(addr) == host


def test_places_end_where_the_descriptors_of_the_process_do() -> None:
    places = ConnectionPlaces(ServerLimits(descriptors=100), QuietLog())
    crowd = [Connection(f"10.0.0.1:{port}") for port in range(1, 4)]
    for member in crowd:
        assert places.has_room(member.remote_addr, 99)
        places.take(member)
    assert not places.has_room("10.0.0.1:9", 100)
    assert places.has_room("10.0.0.2:1", 100)
    assert len(places) == 2
    assert not ConnectionPlaces(ServerLimits(descriptors=100), QuietLog()).has_room(
        "10.0.0.2:1", 100
    )


@pytest.mark.parametrize(("soft", "rest"), [(1024, 512), (100, 50), (100_000, 99_488)])
def test_connections_leave_descriptors_to_the_store(soft: int, rest: int) -> None:
    assert DescriptorLimit(soft, soft).for_connections == rest


async def test_idle_connections_of_one_host_leave_room_for_other_hosts(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    network = MemoryNetwork()
    stranger, client = network.host("10.6.6.6"), network.host("10.0.0.9")
    here = Network(client.dial, network.host("10.0.0.1").listen, "10.0.0.1:0")
    caplog.set_level(logging.WARNING)
    limits = ServerLimits(connections=40, host_connections=30)
    async with served(here, {ECHO: echo}, limits=limits) as addr:
        for _ in range(2):
            for _ in range(100):
                await stranger.dial(addr)
                await trio.sleep(0.1)
            await trio.sleep(PERIOD)
        async with open_channel_pool(client.dial) as pool:
            assert (await pool.call(addr, RemotingCommand(ECHO))).code == 0
    lines = [each.getMessage() for each in caplog.records if "too many" in each.getMessage()]
    assert len(lines) == 2
    assert "unlogged_before=" in lines[1]
