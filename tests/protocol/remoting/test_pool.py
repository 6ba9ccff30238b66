"""One connection an address: dialling, sharing, dialling again."""

import pytest
import trio
import trio.testing
from tests.protocol.remoting.networks import ECHO, ChannelLog, Network, echo, served

from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import (
    BrokerSystemError,
    ClosedError,
    ConfigError,
    NotReachableError,
    TopicNotExistError,
)
from rocketrio_protocol.remoting import channel as channel_module
from rocketrio_protocol.remoting import pool as pool_module
from rocketrio_protocol.remoting import reactor as reactor_module
from rocketrio_protocol.remoting.channel import SEND_REST_TIMEOUT, Channel
from rocketrio_protocol.remoting.pool import check, open_channel_pool
from rocketrio_protocol.remoting.server import serve_remoting


async def test_callers_share_one_connection_and_one_dial(network: Network) -> None:
    log = ChannelLog()
    async with (
        served(network, {ECHO: echo}, observer=log) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(pool.call, addr, RemotingCommand(ECHO))
        assert len(log.opened) == 1
        assert pool.open_addrs == [addr]


async def test_address_without_a_listener_is_not_reachable(network: Network) -> None:
    listener = await network.listen(network.listen_addr)
    listener.close()
    async with open_channel_pool(network.dial) as pool:
        for _ in range(2):
            with pytest.raises(NotReachableError, match=listener.addr):
                await pool.call(listener.addr, RemotingCommand(ECHO))


async def test_text_that_is_not_an_address_is_refused_to_its_caller(network: Network) -> None:
    async with open_channel_pool(network.dial) as pool:
        for addr in ("nowhere", "host:", ":80", "host:http", "host:70000"):
            with pytest.raises(ConfigError, match="host:port"):
                await pool.call(addr, RemotingCommand(ECHO))


async def test_dropped_connection_is_dialled_again_by_the_next_call(network: Network) -> None:
    log = ChannelLog()
    async with (
        served(network, {ECHO: echo}, observer=log) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        await pool.call(addr, RemotingCommand(ECHO))
        pool.drop(addr)
        assert pool.open_addrs == []
        await pool.call(addr, RemotingCommand(ECHO))
        await pool.call(addr, RemotingCommand(ECHO))
        assert len(log.opened) == 2
        assert pool.open_addrs == [addr]
        pool.drop("10.0.0.77:1")


async def test_dial_into_silence_times_out_with_the_caller_or_the_dial_whichever_is_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    network.silence("10.0.0.1")
    async with open_channel_pool(network.host("10.0.0.9").dial) as pool:
        for timeout, took in ((1.0, 1.0), (3.0, 2.0), (60.0, 3.0)):
            start = trio.current_time()
            with pytest.raises(NotReachableError, match=r"10\.0\.0\.1:10911"):
                await pool.call("10.0.0.1:10911", RemotingCommand(ECHO), timeout=timeout)
            # The second call joins the dial that the first one left under way.
            assert trio.current_time() - start == pytest.approx(took)


async def test_cancelled_caller_does_not_stop_the_dial_of_the_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    listener = await network.host("10.0.0.1").listen("10.0.0.1:10911")
    network.silence("10.0.0.1")
    async with (
        trio.open_nursery() as nursery,
        open_channel_pool(network.host("10.0.0.9").dial) as pool,
    ):
        nursery.start_soon(serve_remoting, [listener], {ECHO: echo})
        answers: list[int] = []

        async def ask() -> None:
            answers.append((await pool.call(listener.addr, RemotingCommand(ECHO))).code)

        async with trio.open_nursery() as callers:
            with trio.CancelScope() as first:
                async with trio.open_nursery() as impatient:
                    impatient.start_soon(ask)
                    await trio.sleep(1)
                    callers.start_soon(ask)
                    await trio.sleep(0.5)
                    first.cancel()
            network.heal()
        assert answers == [0]
        nursery.cancel_scope.cancel()


async def test_time_spent_dialling_counts_against_the_call(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    listener = await network.host("10.0.0.1").listen("10.0.0.1:10911")
    async with (
        trio.open_nursery() as nursery,
        open_channel_pool(network.host("10.0.0.9").dial) as pool,
    ):
        network.silence("10.0.0.1")
        start = trio.current_time()

        async def heal_then_hold() -> None:
            await trio.sleep(2)
            network.heal()  # The dial succeeds; no server accepts, so none answers.

        nursery.start_soon(heal_then_hold)
        with pytest.raises(NotReachableError, match=r"within 2\.5 s"):
            await pool.call(listener.addr, RemotingCommand(ECHO), timeout=2.5)
        assert trio.current_time() - start == pytest.approx(2.5)


async def test_leaving_the_pool_gives_the_callers_own_error_back(network: Network) -> None:
    async with served(network, {ECHO: echo}) as addr:

        async def use_it_wrongly() -> None:
            async with open_channel_pool(network.dial) as pool:
                await pool.call(addr, RemotingCommand(ECHO))
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await use_it_wrongly()


async def test_leaving_the_pool_sends_the_oneway_requests_that_are_queued(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The machine may be busy. A server drops what a peer that has gone sent beyond its last turn.
    monkeypatch.setattr(pool_module, "SEND_REST_TIMEOUT", 60.0)
    monkeypatch.setattr(channel_module, "SEND_REST_TIMEOUT", 60.0)
    monkeypatch.setattr(channel_module, "ONEWAY_TIME", 60.0)
    monkeypatch.setattr(reactor_module, "SHARE", 60.0)
    monkeypatch.setattr(reactor_module, "ROUND_TIME", 60.0)
    seen: list[int] = []

    def note(channel: Channel, request: RemotingCommand) -> None:
        seen.append(len(request.body))

    log = ChannelLog()
    async with served(network, {15: note}, observer=log) as addr:
        async with open_channel_pool(network.dial) as pool:
            for _ in range(5):
                await pool.send_oneway(addr, RemotingCommand(15, body=bytes(100_000)))
        while not log.closed:
            await trio.lowlevel.checkpoint()
        assert seen == [100_000] * 5


async def test_leaving_the_pool_waits_a_bounded_time_for_a_silent_peer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    listener = await network.host("10.0.0.1").listen("10.0.0.1:10911")
    async with open_channel_pool(network.host("10.0.0.9").dial) as pool:
        await pool.send_oneway(listener.addr, RemotingCommand(15, body=bytes(1_000_000)))
        start = trio.current_time()
    assert trio.current_time() - start == SEND_REST_TIMEOUT


async def test_closed_pool_raises_closed_error(network: Network) -> None:
    async with open_channel_pool(network.dial) as pool:
        pass
    with pytest.raises(ClosedError, match=r"10\.0\.0\.1:80"):
        await pool.call("10.0.0.1:80", RemotingCommand(ECHO))


def test_check_raises_the_error_of_a_failed_answer() -> None:
    fine = RemotingCommand(0, flag=1)
    assert check(fine, "Send") is fine
    with pytest.raises(TopicNotExistError, match=r"Send at b:1 \(topic T\).*TOPIC_NOT_EXIST.*gone"):
        check(RemotingCommand(17, remark="gone"), "Send", broker_addr="b:1", topic="T")
    with pytest.raises(BrokerSystemError):
        check(RemotingCommand(1), "Send")
