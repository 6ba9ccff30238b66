"""Which connections a server with TLS accepts, by their first bytes (`remoting/server_tls.py`)."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

import attrs
import pytest
import trio
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
from tests.support.tls import client_context, server_context
from trio.testing import MockClock

from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.server_tls import ServerTls
from rocketrio_protocol.remoting.tls import HANDSHAKE_TIMEOUT, connect_tls, tls_dial

Mode = Literal["permissive", "enforcing"]


@pytest.fixture(params=["tcp", "memory"])
def network(request: pytest.FixtureRequest) -> Network:
    return network_of(request.param)


@asynccontextmanager
async def serving(
    network: Network, mode: Mode, **limits: int
) -> AsyncGenerator[tuple[str, ServerTls, ChannelLog]]:
    tls, log = ServerTls(server_context, is_enforcing=mode == "enforcing", **limits), ChannelLog()
    async with served(network, {ECHO: echo}, tls=tls, observer=log) as addr:
        yield addr, tls, log


async def asked(network: Network, addr: str, *, with_tls: bool) -> bytes:
    dial = tls_dial(network.dial, client_context) if with_tls else network.dial
    async with open_channel_pool(dial) as pool:
        return bytes((await pool.call(addr, RemotingCommand(ECHO, body=b"words"))).body)


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_tls_client_is_served_in_both_modes(network: Network, mode: Mode) -> None:
    async with serving(network, mode) as (addr, _, log):
        assert await asked(network, addr, with_tls=True) == b"words"
        assert len(log.opened) == 1


async def test_plain_client_is_served_by_a_permissive_server(network: Network) -> None:
    async with serving(network, "permissive") as (addr, tls, log):
        assert await asked(network, addr, with_tls=False) == b"words"
        assert len(log.opened) == 1
        assert tls.refused_plain_count == 0


async def test_plain_client_learns_that_an_enforcing_server_speaks_tls(network: Network) -> None:
    async with serving(network, "enforcing") as (addr, tls, log):
        with pytest.raises(NotReachableError, match="speaks TLS"):
            await asked(network, addr, with_tls=False)
        assert tls.refused_plain_count == 1
        assert log.opened == []


@pytest.mark.parametrize("pieces", [1, 5])
async def test_plain_request_to_an_enforcing_server_is_not_executed_and_logged_in_one_line(
    network: Network, pieces: int, caplog: pytest.LogCaptureFixture
) -> None:
    executed: list[RemotingCommand] = []

    def execute(channel: Channel, command: RemotingCommand) -> None:
        executed.append(command)

    data = request(ECHO) * 3
    tls = ServerTls(server_context)
    async with served(network, {ECHO: execute}, tls=tls) as addr:
        for _ in range(3):
            plain = await network.dial(addr)
            for number in range(pieces):
                part = data[number * len(data) // pieces : (number + 1) * len(data) // pieces]
                try:
                    await plain.send_all(part)
                except NotReachableError:
                    break
                await trio.testing.wait_all_tasks_blocked()
            await read_to_end(plain, may_break=True)
            await plain.aclose()
        assert tls.refused_plain_count == 3
    assert executed == []
    lines = [line for line in caplog.records if line.levelno >= logging.INFO]
    assert [line.getMessage().partition(" peer")[0] for line in lines] == [
        "a connection without TLS was refused"
    ]


async def test_tls_client_at_a_plain_server_is_named_in_the_log(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(network, {ECHO: echo}) as addr:
        with pytest.raises(NotReachableError):
            await asked(network, addr, with_tls=True)
    assert "The peer speaks TLS, and this port does not" in caplog.text


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_silent_connection_is_closed_after_ten_seconds(
    autojump_clock: MockClock, mode: Mode, sent: bytes
) -> None:
    network = network_of("memory")
    async with serving(network, mode) as (addr, tls, log):
        began = trio.current_time()
        silent = await network.dial(addr)
        await silent.send_all(sent)
        assert await read_to_end(silent, may_break=True) == b""
        assert trio.current_time() - began == HANDSHAKE_TIMEOUT
        await trio.sleep(0.001)
        assert tls.failed_handshake_count == 1
        assert log.opened == []


async def test_handshakes_that_stall_take_no_place_from_a_newcomer(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    network = network_of("memory")
    async with serving(network, "enforcing", arrivals_limit=4) as (addr, tls, log):
        for _ in range(6):
            stalled = await network.dial(addr)
            await stalled.send_all(b"\x16\x03\x01")
            await trio.sleep(0.1)
        assert tls.failed_handshake_count == 2
        for _ in range(2):
            assert await asked(network, addr, with_tls=True) == b"words"
        assert tls.failed_handshake_count == 3
        await trio.sleep(HANDSHAKE_TIMEOUT)
        assert tls.failed_handshake_count == 6
        assert len(log.opened) == 2
    assert caplog.text.count("a silent handshake gave its place up") == 1


async def test_host_with_most_stalled_handshakes_makes_room_for_others(
    autojump_clock: MockClock,
) -> None:
    memory = MemoryNetwork()
    network = Network(memory.host("10.0.0.9").dial, memory.host("10.0.0.1").listen, "10.0.0.1:0")
    others = [memory.host(f"10.0.1.{number}").dial for number in range(3)]
    async with serving(network, "enforcing", arrivals_limit=4) as (addr, tls, _):
        for dial in (network.dial, network.dial, *others[:2]):
            stalled = await dial(addr)
            await stalled.send_all(b"\x16\x03\x01")
            await trio.sleep(0.1)
        other = attrs.evolve(network, dial=others[2])
        assert await asked(other, addr, with_tls=True) == b"words"
        await trio.sleep(0.1)
        assert tls.failed_handshake_count == 1


async def test_first_request_may_come_with_the_end_of_the_handshake() -> None:
    network = network_of("tcp")
    async with serving(network, "enforcing") as (addr, _, _):
        for _ in range(20):  # In some of them both are in one segment.
            client = await connect_tls(await network.dial(addr), client_context(), "127.0.0.1")
            await client.send_all(request(ECHO))
            with trio.fail_after(60):
                assert await client.receive_into(memoryview(bytearray(100)))
            await client.aclose()


async def test_server_that_stops_closes_connections_in_their_handshake() -> None:
    network = network_of("tcp")
    async with serving(network, "enforcing") as (addr, _, _):
        client = await network.dial(addr)
        await client.send_all(b"\x16\x03\x01")
        await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(60):
        assert await read_to_end(client, may_break=True) == b""
    await client.aclose()
