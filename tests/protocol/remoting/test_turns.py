"""Hosts share the time of a server: many connections, oneway requests and peers that have gone take one host's turns.

The requests are slow by the clock of the test, so how many are processed before another is exact on any machine.
"""

import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager

import attrs
import pytest
import trio
import trio.testing
from tests.protocol.remoting.networks import network_of, served
from tests.support.raw_client import request
from tests.support.waiting import eventually
from trio.testing import MockClock

from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.remoting.channel import ONEWAY_TIME, Channel
from rocketrio_protocol.remoting.ports import split_addr
from rocketrio_protocol.remoting.reactor import ROUND_TIME, SHARE
from rocketrio_protocol.remoting.server import ADMITTED_AT_ONCE

SLOW, QUICK = 11, 12
ONEWAY = 2
CROWD, OTHER = "127.0.0.2", "127.0.0.3"
CONNECTIONS = 40
PER_SHARE = 4
"""Slow requests that fit into the share of a host."""


@attrs.define
class Served:
    """A server, the connections to it, and what it has done."""

    addr: str
    clock: MockClock
    acted: list[str] = attrs.Factory(list)
    """The hosts of the requests, in the order in which they were processed."""
    newcomers: list[socket.socket] = attrs.Factory(list)
    """Connections that send a quick request when `busy_for` slow ones have been processed."""
    busy_for: int = 0
    took: float = SHARE / PER_SHARE
    sockets: ExitStack = attrs.Factory(ExitStack)

    def act(self, channel: Channel, one: RemotingCommand) -> RemotingCommand:
        if one.code == SLOW:
            self.clock.jump(self.took)
            if len(self.acted) == self.busy_for:
                for each in self.newcomers:
                    each.sendall(request(QUICK))
        self.acted.append(f"{split_addr(channel.remote_addr)[0]} {one.code}")
        return one.response()

    def connect(self, host: str) -> socket.socket:
        made = socket.create_connection(split_addr(self.addr), source_address=(host, 0))
        return self.sockets.enter_context(made)


@asynccontextmanager
async def serving(clock: MockClock) -> AsyncGenerator[Served]:
    ours = Served("", clock)
    table = {SLOW: ours.act, QUICK: ours.act}
    async with served(network_of("tcp"), table) as ours.addr:
        with ours.sockets:
            yield ours


async def crowd(ours: Served, host: str, count: int, flag: int = 0) -> None:
    """Connect often from one host, and send many slow requests on each connection before the server sees any."""
    sockets = [ours.connect(host) for _ in range(CONNECTIONS)]
    await trio.testing.wait_all_tasks_blocked(0.01)
    for each in sockets:
        each.sendall(request(SLOW, flag=flag) * count)


async def test_many_connections_of_one_host_take_the_turns_of_one_host(
    autojump_clock: MockClock,
) -> None:
    async with serving(autojump_clock) as ours:
        ours.newcomers += [ours.connect(host) for host in (OTHER, CROWD)]
        ours.busy_for = 10 * CONNECTIONS
        await crowd(ours, CROWD, 20)
        await eventually(lambda: len(ours.acted) == 20 * CONNECTIONS + 2)
        assert ours.acted.index(f"{OTHER} {QUICK}") - ours.busy_for <= 3 * PER_SHARE
        assert ours.acted.index(f"{CROWD} {QUICK}") - ours.busy_for <= 5 * PER_SHARE


@pytest.mark.slow
async def test_hosts_share_a_round_however_many_they_are(autojump_clock: MockClock) -> None:
    async with serving(autojump_clock) as ours:
        ours.took = SHARE / 40
        ours.newcomers.append(ours.connect(OTHER))
        hosts = [f"127.0.1.{number}" for number in range(20)]
        sockets = [each for host in hosts for each in [ours.connect(host) for _ in range(5)]]
        await trio.testing.wait_all_tasks_blocked(0.01)
        for each in sockets:
            each.sendall(request(SLOW) * 100)
        await eventually(lambda: len(ours.acted) == 100 * 100 + 1)
        assert ours.acted.index(f"{OTHER} {QUICK}") * ours.took < 3 * ROUND_TIME


async def test_turn_with_a_oneway_request_is_short(autojump_clock: MockClock) -> None:
    """A peer that reads no answer is never stopped by unread answers."""
    async with serving(autojump_clock) as ours:
        ours.took = ONEWAY_TIME / 5
        ours.newcomers.append(ours.connect(CROWD))
        busy = ours.connect(CROWD)
        await trio.testing.wait_all_tasks_blocked(0.01)
        busy.sendall(request(SLOW, flag=ONEWAY) * 200)
        await eventually(lambda: len(ours.acted) == 201)
        assert ours.acted.index(f"{CROWD} {QUICK}") <= 7


async def test_what_a_closed_peer_has_sent_gets_a_turn_and_no_more(
    autojump_clock: MockClock,
) -> None:
    async with serving(autojump_clock) as ours:
        await crowd(ours, CROWD, 1000, flag=ONEWAY)
        ours.sockets.close()
        newcomer = ours.connect(CROWD)
        newcomer.sendall(request(QUICK))
        await eventually(lambda: f"{CROWD} {QUICK}" in ours.acted)
        await trio.testing.wait_all_tasks_blocked(0.05)
        executed = ours.acted.count(f"{CROWD} {SLOW}")
        assert CONNECTIONS <= executed <= CONNECTIONS * 3 * PER_SHARE


async def test_last_requests_of_a_peer_that_closes_are_processed(autojump_clock: MockClock) -> None:
    """Commits, and messages that no caller waits for: what fits into a turn is done."""
    async with serving(autojump_clock) as ours:
        ours.took = SHARE / 400
        leaving = ours.connect(OTHER)
        leaving.sendall(request(SLOW, flag=ONEWAY) * 300)
        leaving.close()
        await eventually(lambda: len(ours.acted) == 300)


async def test_newcomers_of_a_host_wait_for_the_hosts_turn_only(autojump_clock: MockClock) -> None:
    """A crowd that connects stands before its neighbour in the queue of the operating system."""
    opened: list[str] = []

    class Observer:
        def channel_opened(self, channel: Channel) -> None:
            opened.append(split_addr(channel.remote_addr)[0])

        def channel_closed(self, channel: Channel) -> None:
            pass

    network = network_of("tcp")
    async with served(network, {}, observer=Observer()) as addr:
        ours = Served(addr, autojump_clock)
        with ours.sockets:
            for _ in range(CONNECTIONS):
                ours.connect(CROWD)
            ours.connect(OTHER)
            await eventually(lambda: len(opened) == CONNECTIONS + 1)
    assert opened.index(OTHER) <= ADMITTED_AT_ONCE
