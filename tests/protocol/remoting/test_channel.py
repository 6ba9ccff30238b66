"""Calls over one connection: in flight, cancelled, timed out, cut off."""

from functools import partial
from itertools import groupby

import pytest
import trio
import trio.testing
from tests.protocol.remoting.networks import ECHO, ChannelLog, Network, echo, network_of, served

from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.codes import SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.client import NotifyConsumerIdsChangedRequestHeader
from rocketrio_protocol.connection import RemotingConnection
from rocketrio_protocol.errors import NotReachableError, RequestTimeoutError, TooManyRequestsError
from rocketrio_protocol.header_codec import CODECS_FIELD
from rocketrio_protocol.remoting import pool as pool_module
from rocketrio_protocol.remoting.channel import ANSWERS_TOGETHER, IDLE_TIMEOUT, Channel
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.server import serve_remoting

HOLD = 11


def hold(channel: Channel, request: RemotingCommand) -> None:
    """Never answers."""


async def test_answers_find_their_calls_in_whatever_order_they_come(network: Network) -> None:
    held: list[tuple[Channel, RemotingCommand]] = []

    def shuffle(channel: Channel, request: RemotingCommand) -> None:
        held.append((channel, request))
        if len(held) == 50:
            for holder, waiting in reversed(held):
                holder.reply(waiting.response(body=bytes(waiting.body)))

    async with (
        served(network, {HOLD: shuffle}) as addr,
        open_channel_pool(network.dial) as pool,
        trio.open_nursery() as nursery,
    ):

        async def ask(number: int) -> None:
            body = str(number).encode()
            answer = await pool.call(addr, RemotingCommand(HOLD, body=body))
            assert bytes(answer.body) == body

        for number in range(50):
            nursery.start_soon(ask, number)


async def test_answers_of_many_requests_leave_some_at_a_time() -> None:
    network = network_of("tcp")  # The others take nothing without a wait.
    unsent: list[int] = []

    def look(channel: Channel, request: RemotingCommand) -> None:
        unsent.append(channel.unsent_size)
        channel.reply(request.response())

    async with (
        served(network, {ECHO: look}) as addr,
        open_channel_pool(network.dial) as pool,
        trio.open_nursery() as nursery,
    ):
        for _ in range(3 * ANSWERS_TOGETHER):
            nursery.start_soon(pool.call, addr, RemotingCommand(ECHO))
    waiting = [len(list(sizes)) for is_unsent, sizes in groupby(unsent, bool) if is_unsent]
    assert max(waiting) == ANSWERS_TOGETHER - 1


async def test_large_bodies_cross_whole_in_both_directions(network: Network) -> None:
    body = bytes(range(256)) * 4_000  # 1 MB: several reads, and several turns of the writer
    async with (
        served(network, {ECHO: echo}) as addr,
        open_channel_pool(network.dial) as pool,
        trio.open_nursery() as nursery,
    ):

        async def ask() -> None:
            answer = await pool.call(addr, RemotingCommand(ECHO, body=body), timeout=20)
            assert bytes(answer.body) == body

        for _ in range(4):
            nursery.start_soon(ask)


async def test_header_of_a_request_is_enough_to_call(network: Network) -> None:
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group="G")
    async with served(network, {40: echo}) as addr, open_channel_pool(network.dial) as pool:
        answer = await pool.call(addr, header, b"body")
        assert answer.ext_fields == {"consumerGroup": "G"}
        assert answer.body == b"body"


async def test_call_times_out_at_its_time_and_leaves_the_connection_open(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    network = memory_network
    async with (
        served(network, {HOLD: hold, ECHO: echo}) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        channel = await pool.channel(addr)
        async with trio.open_nursery() as nursery:

            async def wait(timeout: float) -> None:
                with pytest.raises(RequestTimeoutError) as caught:
                    await pool.call(addr, RemotingCommand(HOLD), timeout=timeout)
                assert trio.current_time() == pytest.approx(start + timeout, abs=1e-9)
                assert f"No answer to PULL_MESSAGE (11) within {timeout:g} s" in str(caught.value)
                assert caught.value.broker_addr == addr

            start = trio.current_time()
            for timeout in (3.0, 0.5, 30.0, 7.25, 0.5, 3.01):
                nursery.start_soon(wait, timeout)
        assert not channel.closed
        assert channel.statistics().pending_count == 0
        assert (await pool.call(addr, RemotingCommand(ECHO))).code == 0
        assert await pool.channel(addr) is channel


async def test_late_answer_is_dropped(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    async def slow(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        await trio.sleep(5)
        return request.response()

    async with (
        served(memory_network, {HOLD: slow, ECHO: echo}) as addr,
        open_channel_pool(memory_network.dial) as pool,
    ):
        with pytest.raises(RequestTimeoutError):
            await pool.call(addr, RemotingCommand(HOLD), timeout=1)
        with trio.move_on_after(1):
            await pool.call(addr, RemotingCommand(HOLD), timeout=10)
        await trio.sleep(10)
        statistics = (await pool.channel(addr)).statistics()
        assert statistics.late_answer_count == 2
        assert statistics.pending_count == 0


async def test_cancelled_call_leaves_the_connection_to_the_others(network: Network) -> None:
    async with (
        served(network, {HOLD: hold, ECHO: echo}) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        channel = await pool.channel(addr)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(pool.call, addr, RemotingCommand(HOLD, body=bytes(100_000)))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        answer = await pool.call(addr, RemotingCommand(ECHO, body=b"whole"))
        assert answer.body == b"whole"
        assert channel.statistics().pending_count == 0
        assert not channel.closed


async def test_lost_connection_fails_all_its_calls_at_once_naming_the_address(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    log = ChannelLog()
    failed: list[NotReachableError] = []
    async with (
        served(memory_network, {HOLD: hold}, observer=log) as addr,
        open_channel_pool(memory_network.dial) as pool,
    ):
        start = trio.current_time()
        await pool.channel(addr)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(NotReachableError) as caught:
                    await pool.call(addr, RemotingCommand(HOLD))
                failed.append(caught.value)

            for _ in range(10):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            log.opened[0].close()
        assert trio.current_time() == start
    assert len(set(map(id, failed))) == 10
    assert all(addr in str(error) and type(error) is NotReachableError for error in failed)


async def test_end_in_the_middle_of_an_answer_is_raised_to_the_caller(network: Network) -> None:
    listener = await network.listen(network.listen_addr)
    async with open_channel_pool(network.dial) as pool, trio.open_nursery() as nursery:

        async def answer_half() -> None:
            transport = await listener.accept()
            await transport.receive_into(memoryview(bytearray(1000)))
            await transport.send_all(RemotingCommand(0, flag=1).encode()[:50])
            await transport.aclose()

        nursery.start_soon(answer_half)
        with pytest.raises(NotReachableError, match="ended 50 bytes into a frame"):
            await pool.call(listener.addr, RemotingCommand(ECHO))
    listener.close()


async def test_idle_connection_is_closed_by_both_ends_after_its_time(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    log = ChannelLog()
    async with (
        served(memory_network, {ECHO: echo}, observer=log) as addr,
        open_channel_pool(memory_network.dial) as pool,
    ):
        channel = await pool.channel(addr)
        for _ in range(3):
            await trio.sleep(IDLE_TIMEOUT - 1)
            await pool.call(addr, RemotingCommand(ECHO))
        await trio.sleep(IDLE_TIMEOUT - 1)
        assert not channel.closed
        await trio.sleep(1.5)
        assert channel.closed
        assert len(log.closed) == 1
        assert (await pool.call(addr, RemotingCommand(ECHO))).code == 0
        assert await pool.channel(addr) is not channel


async def test_silent_network_times_calls_out_and_delivers_when_it_is_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    listener = await network.host("10.0.0.1").listen("10.0.0.1:10911")
    async with (
        trio.open_nursery() as nursery,
        open_channel_pool(network.host("10.0.0.9").dial) as pool,
    ):
        nursery.start_soon(serve_remoting, [listener], {ECHO: echo})
        await pool.call(listener.addr, RemotingCommand(ECHO))
        network.partition("10.0.0.1", "10.0.0.9")
        start = trio.current_time()
        with pytest.raises(RequestTimeoutError):
            await pool.call(listener.addr, RemotingCommand(ECHO), timeout=3)
        assert trio.current_time() == start + 3
        network.heal()
        assert (await pool.call(listener.addr, RemotingCommand(ECHO))).code == 0
        assert (await pool.channel(listener.addr)).statistics().late_answer_count == 1
        nursery.cancel_scope.cancel()


async def test_too_many_bytes_unsent_refuse_the_next_request(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = partial(RemotingConnection, out_size_limit=65_536)
    monkeypatch.setattr(pool_module, "RemotingConnection", small)
    listener = await network.listen(network.listen_addr)
    async with open_channel_pool(network.dial) as pool:
        channel = await pool.channel(listener.addr)
        body = bytes(15_000)
        for _ in range(4):
            channel.send_oneway(RemotingCommand(HOLD, body=body))
        with pytest.raises(TooManyRequestsError, match="wait to be sent"):
            channel.send_oneway(RemotingCommand(HOLD, body=body))
        assert not channel.closed
    listener.close()


async def test_msgpack_is_used_once_both_ends_showed_it(network: Network) -> None:
    seen: list[SerializeType] = []

    def note(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        assert CODECS_FIELD not in request.ext_fields
        seen.append(channel.statistics().request_type)
        return request.response()

    async with (
        served(network, {ECHO: note}) as addr,
        open_channel_pool(network.dial, serialize_type=SerializeType.MSGPACK) as pool,
    ):
        types = [(await pool.call(addr, RemotingCommand(ECHO))).serialize_type for _ in range(3)]
        assert types == [SerializeType.MSGPACK] * 3
        assert seen == [SerializeType.MSGPACK] * 3
        assert (await pool.channel(addr)).statistics().request_type is SerializeType.MSGPACK


async def test_server_that_does_not_allow_msgpack_keeps_to_json(network: Network) -> None:
    async with (
        served(network, {ECHO: echo}, msgpack_allowed=False) as addr,
        open_channel_pool(network.dial, serialize_type=SerializeType.MSGPACK) as pool,
    ):
        for _ in range(3):
            answer = await pool.call(addr, RemotingCommand(ECHO))
            assert answer.serialize_type is SerializeType.JSON
            assert answer.ext_fields == {}


@pytest.mark.parametrize("serialize_type", [SerializeType.JSON, SerializeType.ROCKETMQ])
async def test_answer_comes_in_the_encoding_of_its_request(
    network: Network, serialize_type: SerializeType
) -> None:
    async with (
        served(network, {ECHO: echo}) as addr,
        open_channel_pool(network.dial, serialize_type=serialize_type) as pool,
    ):
        answer = await pool.call(addr, RemotingCommand(ECHO, ext_fields={"a": "b"}))
        assert answer.serialize_type is serialize_type
        assert answer.ext_fields == {"a": "b"}


async def test_channel_remembers_language_and_version_of_its_peer(network: Network) -> None:
    log = ChannelLog()
    async with (
        served(network, {ECHO: echo}, observer=log) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        await pool.call(addr, RemotingCommand(ECHO, version=479))
        (channel,) = log.opened
        assert channel.peer_version == 479
        assert channel.local_addr == addr
        assert channel.remote_addr == (await pool.channel(addr)).local_addr
        assert addr in repr(channel)


async def test_calls_of_one_code_are_given_up_and_their_late_answers_dropped(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    held: list[tuple[Channel, RemotingCommand]] = []
    network = memory_network
    async with (
        served(network, {HOLD: lambda *asked: held.append(asked), ECHO: echo}) as addr,
        open_channel_pool(network.dial) as pool,
        trio.open_nursery() as nursery,
    ):
        channel = await pool.channel(addr)
        failures: list[str] = []

        async def wait() -> None:
            with pytest.raises(NotReachableError) as caught:
                await channel.call(RemotingCommand(HOLD), timeout=60)
            failures.append(caught.value.what)

        for _ in range(2):
            nursery.start_soon(wait)
        await trio.sleep(5)
        assert trio.current_time() - channel.last_received == 5
        channel.give_up_calls(ECHO, "not these")
        await trio.sleep(1)
        assert failures == []
        channel.give_up_calls(HOLD, "silent for too long")
        await trio.testing.wait_all_tasks_blocked()
        assert [failure.startswith("silent for too long") for failure in failures] == [True, True]
        for holder, request in held:
            holder.reply(request.response())
        assert (await channel.call(RemotingCommand(ECHO), timeout=1)).code == 0
        assert channel.statistics().late_answer_count == 2
        assert channel.last_received == trio.current_time()
