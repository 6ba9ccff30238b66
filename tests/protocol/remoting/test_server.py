"""What a server answers, survives and tells its observer, over both transports."""

import logging

import pytest
import trio
import trio.testing
from tests.protocol.remoting.networks import ECHO, ChannelLog, Network, echo, read_to_end, served
from tests.support.raw_frames import is_answer
from tests.support.waiting import eventually

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import LocalProtocolError, NotReachableError, TopicNotExistError
from rocketrio_protocol.frame import FRAME_SIZE_LIMIT, REQUEST_HEADER_SIZE_LIMIT, encode_frame
from rocketrio_protocol.remoting.channel import REQUESTS_AT_ONCE, Channel
from rocketrio_protocol.remoting.dispatch import WAITING_REQUESTS_LIMIT
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.reactor import SHARE
from rocketrio_protocol.remoting.server_limits import ServerLimits

SLOW = 11


async def answers_to(network: Network, addr: str, sent: bytes) -> bytes:
    """Return what a peer answers to raw bytes until it closes the connection."""
    transport = await network.dial(addr)
    try:
        await transport.send_all(sent)
        return await read_to_end(transport)
    finally:
        await transport.aclose()


async def test_request_is_answered_with_its_fields_and_body(network: Network) -> None:
    async with served(network, {ECHO: echo}) as addr, open_channel_pool(network.dial) as pool:
        request = RemotingCommand(ECHO, ext_fields={"topic": "T"}, body=b"payload")
        answer = await pool.call(addr, request)
        assert (answer.code, answer.ext_fields, bytes(answer.body)) == (
            0,
            {"topic": "T"},
            b"payload",
        )
        assert is_answer(answer)
        assert answer.opaque == request.opaque


async def test_unknown_code_is_answered_not_supported(network: Network) -> None:
    async with served(network, {}) as addr, open_channel_pool(network.dial) as pool:
        answer = await pool.call(addr, RemotingCommand(4242))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 4242 not supported"


async def test_default_processor_gets_the_codes_the_table_lacks(network: Network) -> None:
    async with (
        served(network, {}, default=echo) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        assert (await pool.call(addr, RemotingCommand(4242, body=b"x"))).body == b"x"


async def test_bug_in_a_processor_is_answered_with_its_type_and_logged(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        raise ZeroDivisionError("by nought")

    async def broken_later(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError("by nought")

    async with (
        served(network, {ECHO: echo, 11: broken, 12: broken_later}) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        for code in (11, 12):
            caplog.clear()
            answer = await pool.call(addr, RemotingCommand(code))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark is not None
            told, _, number = answer.remark.rpartition("fault=")
            assert told == "ZeroDivisionError, which the log has as "
            assert "by nought" in caplog.text
            assert f"fault={number}" in caplog.text
            assert (await pool.call(addr, RemotingCommand(ECHO))).code == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'/srv/data/config/topics.json' cannot be written", "'topics.json' cannot be written"),
        ("no room: /srv/data/commitlog/000", "no room: 000"),
        ("see http://rocketmq.apache.org/docs/faq/ at /10.0.0.1:10911", None),
        ("2/3 or a/b/c", None),
    ],
)
async def test_remark_names_no_folder_of_the_server(
    network: Network, text: str, shown: str | None
) -> None:
    def fail(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        raise LocalProtocolError(text)

    async def fail_later(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        return request.response(code=1, remark=text)

    async with (
        served(network, {SLOW: fail, SLOW + 1: fail_later}) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        for code in (SLOW, SLOW + 1):
            assert (await pool.call(addr, RemotingCommand(code))).remark == (shown or text)


async def test_rocketrio_error_is_answered_with_its_code_and_remark(network: Network) -> None:
    def missing(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        raise TopicNotExistError("No such topic", code=17, remark="topic[T] not exist")

    def refused(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        raise LocalProtocolError("the field queueId is missing")

    async with (
        served(network, {11: missing, 12: refused}) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        answer = await pool.call(addr, RemotingCommand(11))
        assert (answer.code, answer.remark) == (17, "topic[T] not exist")
        answer = await pool.call(addr, RemotingCommand(12))
        assert (answer.code, answer.remark) == (1, "the field queueId is missing")


async def test_answer_over_the_frame_limit_becomes_an_error_answer(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    def oversized(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=bytes(FRAME_SIZE_LIMIT))

    async with (
        served(network, {11: oversized}) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        answer = await pool.call(addr, RemotingCommand(11))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "over the limit" in str(answer.remark)
        assert "cannot be encoded" in caplog.text


async def test_answer_that_is_none_or_cannot_be_written_is_a_bug_that_is_answered(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    def confused(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return b"bytes"  # type: ignore[return-value]

    def unwritable(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(remark="\ud800")

    async with (
        served(network, {11: confused, 12: unwritable}) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        for code, remark in ((11, "TypeError, which the log has"), (12, "cannot be encoded")):
            answer = await pool.call(addr, RemotingCommand(code))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert remark in str(answer.remark)


async def test_oneway_request_is_acted_on_and_not_answered(network: Network) -> None:
    seen: list[bytes] = []

    def note(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        seen.append(bytes(request.body))
        return request.response(body=b"not wanted")

    async with (
        served(network, {11: note, ECHO: echo}) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        await pool.send_oneway(addr, RemotingCommand(11, body=b"once"))
        await pool.send_oneway(addr, RemotingCommand(4242))
        channel = await pool.channel(addr)
        await pool.call(addr, RemotingCommand(ECHO))
        assert seen == [b"once"]
        assert channel.statistics().late_answer_count == 0


async def test_slow_request_does_not_hold_up_the_next_one(network: Network) -> None:
    release = trio.Event()
    order: list[str] = []

    async def slow(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        await release.wait()
        return request.response(body=b"slow")

    async with (
        served(network, {SLOW: slow, ECHO: echo}) as addr,
        open_channel_pool(network.dial) as pool,
        trio.open_nursery() as nursery,
    ):

        async def ask_slowly() -> None:
            assert (await pool.call(addr, RemotingCommand(SLOW))).body == b"slow"
            order.append("slow")

        nursery.start_soon(ask_slowly)
        await pool.call(addr, RemotingCommand(ECHO))
        order.append("quick")
        release.set()
    assert order == ["quick", "slow"]


async def test_too_many_slow_requests_are_answered_busy(memory_network: Network) -> None:
    async def never(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        await trio.sleep_forever()
        raise AssertionError

    async with (
        served(memory_network, {SLOW: never}) as addr,
        open_channel_pool(memory_network.dial) as pool,
        trio.open_nursery() as nursery,
    ):
        channel = await pool.channel(addr)
        for _ in range(WAITING_REQUESTS_LIMIT):
            channel.send_oneway(RemotingCommand(SLOW))
        answer = await pool.call(addr, RemotingCommand(SLOW))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert str(answer.remark).startswith("[OVERLOAD]")
        nursery.cancel_scope.cancel()


async def test_waiting_requests_of_one_connection_leave_places_for_others(
    memory_network: Network,
) -> None:
    release = trio.Event()

    async def wait(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        await release.wait()
        return request.response()

    async with (
        served(memory_network, {SLOW: wait}) as addr,
        open_channel_pool(memory_network.dial) as hog,
        open_channel_pool(memory_network.dial) as other,
        trio.open_nursery() as nursery,
    ):
        channel = await hog.channel(addr)
        for _ in range(2 * WAITING_REQUESTS_LIMIT):
            channel.send_oneway(RemotingCommand(SLOW))
        assert (await hog.call(addr, RemotingCommand(SLOW))).code == ResponseCode.SYSTEM_BUSY
        codes: list[int] = []

        async def ask() -> None:
            codes.append((await other.call(addr, RemotingCommand(SLOW))).code)

        for _ in range(WAITING_REQUESTS_LIMIT // 4):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert not codes, "all of them wait"
        release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert codes == [ResponseCode.SUCCESS] * (WAITING_REQUESTS_LIMIT // 4)
        assert (await hog.call(addr, RemotingCommand(SLOW))).code == ResponseCode.SUCCESS


async def test_held_request_is_answered_later_by_reply(network: Network) -> None:
    held: list[tuple[Channel, RemotingCommand]] = []

    def hold(channel: Channel, request: RemotingCommand) -> None:
        held.append((channel, request))

    def release(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        for holder, held_request in held:
            holder.reply(held_request.response(body=b"arrived"))
        return request.response()

    async with (
        served(network, {SLOW: hold, ECHO: release}) as addr,
        open_channel_pool(network.dial) as pool,
        open_channel_pool(network.dial) as other,
        trio.open_nursery() as nursery,
    ):
        answers: list[bytes] = []

        async def wait() -> None:
            answers.append(bytes((await pool.call(addr, RemotingCommand(SLOW))).body))

        nursery.start_soon(wait)
        while not held:
            await trio.lowlevel.checkpoint()
        await other.call(addr, RemotingCommand(ECHO))
    assert answers == [b"arrived"]


async def test_several_held_answers_are_given_at_once(network: Network) -> None:
    held: list[tuple[Channel, RemotingCommand]] = []

    def hold(channel: Channel, request: RemotingCommand) -> None:
        held.append((channel, request))
        if len(held) == 3:
            channel.reply_all([each.response(body=each.body).encode() for _, each in held])

    arrived: list[int] = []
    async with served(network, {SLOW: hold}) as addr, open_channel_pool(network.dial) as pool:

        async def wait(number: int) -> None:
            await pool.call(addr, RemotingCommand(SLOW, body=bytes([number])))
            arrived.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(wait, number)
    assert sorted(arrived) == [0, 1, 2]


async def test_reply_to_a_peer_that_has_gone_is_dropped(network: Network) -> None:
    held: list[tuple[Channel, RemotingCommand]] = []
    log = ChannelLog()

    def hold(channel: Channel, request: RemotingCommand) -> None:
        held.append((channel, request))

    async with served(network, {SLOW: hold}, observer=log) as addr:
        async with open_channel_pool(network.dial) as pool:
            await pool.send_oneway(addr, RemotingCommand(SLOW))
            while not held:
                await trio.lowlevel.checkpoint()
        while not log.closed:
            await trio.lowlevel.checkpoint()
        channel, request = held[0]
        channel.reply(request.response())
        channel.reply_all([request.response().encode()])
        assert channel.unsent_size == 0
        with pytest.raises(NotReachableError):
            channel.send_oneway(RemotingCommand(40))


async def test_server_asks_its_client_over_the_clients_connection(network: Network) -> None:
    async def ask_back(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        answer = await channel.call(RemotingCommand(307, body=b"how are you"), timeout=3)
        return request.response(body=answer.body)

    def state(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=bytes(request.body) + b"? well")

    async with (
        served(network, {SLOW: ask_back}) as addr,
        open_channel_pool(network.dial, processors={307: state}) as pool,
    ):
        answer = await pool.call(addr, RemotingCommand(SLOW))
        assert answer.body == b"how are you? well"


async def test_bad_bytes_end_their_connection_only_after_what_came_before(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    log = ChannelLog()
    async with (
        served(network, {ECHO: echo}, observer=log) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        await pool.call(addr, RemotingCommand(ECHO))
        good = RemotingCommand(ECHO, opaque=5, body=b"good").encode()
        with trio.fail_after(60):
            answered = await answers_to(network, addr, good + b"GET / HTTP/1.1\r\n\r\n" + good)
        assert answered.count(b"good") == 1
        assert "bad bytes" in caplog.text
        assert (await pool.call(addr, RemotingCommand(ECHO))).code == 0
        assert len(log.closed) == 1


async def test_header_nested_too_deeply_ends_its_connection_only(network: Network) -> None:
    header = b'{"code":10,"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    async with served(network, {ECHO: echo}) as addr, open_channel_pool(network.dial) as pool:
        with trio.fail_after(60):
            assert await answers_to(network, addr, encode_frame(0, header)) == b""
        assert (await pool.call(addr, RemotingCommand(ECHO))).code == 0


async def test_server_reads_the_longest_header_of_a_send_and_refuses_a_longer_one(
    network: Network,
) -> None:
    properties = "k\x01" + "\x03" * 32_765  # Six bytes each, as JSON.
    send = RemotingCommand(ECHO, ext_fields={"i": properties})
    async with served(network, {ECHO: echo}) as addr, open_channel_pool(network.dial) as pool:
        assert (await pool.call(addr, send)).ext_fields == {"i": properties}
        send.ext_fields["n"] = "x" * REQUEST_HEADER_SIZE_LIMIT
        with trio.fail_after(60):
            assert await answers_to(network, addr, send.encode()[:8]) == b""
        assert (await pool.call(addr, RemotingCommand(ECHO))).code == 0


async def test_observer_is_called_once_for_each_channel(network: Network) -> None:
    log = ChannelLog()
    async with served(network, {ECHO: echo}, observer=log) as addr:
        for _ in range(3):
            async with open_channel_pool(network.dial) as pool:
                await pool.call(addr, RemotingCommand(ECHO))
        while len(log.closed) < 3:
            await trio.lowlevel.checkpoint()
        async with open_channel_pool(network.dial) as pool:
            await pool.call(addr, RemotingCommand(ECHO))
            assert len(log.opened) == 4
    assert log.closed == log.opened


async def test_connections_over_the_limit_are_closed_at_once(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with (
        served(network, {ECHO: echo}, limits=ServerLimits(connections=1)) as addr,
        open_channel_pool(network.dial) as first,
        open_channel_pool(network.dial) as second,
    ):
        await first.call(addr, RemotingCommand(ECHO))
        with pytest.raises(NotReachableError):
            await second.call(addr, RemotingCommand(ECHO))
        await first.call(addr, RemotingCommand(ECHO))
        assert "too many connections" in caplog.text


async def test_stopped_server_notifies_its_clients(network: Network) -> None:
    async with open_channel_pool(network.dial) as pool:
        async with served(network, {ECHO: echo}) as addr:
            channel = await pool.channel(addr)
            await pool.call(addr, RemotingCommand(ECHO))
        with trio.fail_after(60):
            while not channel.closed:
                await trio.lowlevel.checkpoint()
        with pytest.raises(NotReachableError, match=addr):
            await pool.call(addr, RemotingCommand(ECHO))


async def test_peer_that_does_not_read_is_not_read_from(network: Network) -> None:
    acted: list[int] = []
    chunk = bytes(1024 * 1024)

    def big(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        acted.append(request.opaque)
        return request.response(body=chunk)

    async with served(network, {SLOW: big}) as addr:
        transport = await network.dial(addr)
        request = RemotingCommand(SLOW)
        buffer = memoryview(bytearray(256 * 1024))
        try:
            for request.opaque in range(100):
                await transport.send_all(request.encode())
                await trio.testing.wait_all_tasks_blocked(0.0005)
            assert len(acted) < 50  # The kernel's buffers hold some 6 MiB on loopback.
            received = 0
            with trio.fail_after(60):
                while received < 100 * len(chunk):
                    received += await transport.receive_into(buffer)
            assert acted == list(range(100))
        finally:
            await transport.aclose()


async def test_requests_of_one_chunk_are_decoded_some_at_a_time(network: Network) -> None:
    """The objects of small requests take ten times the memory of their bytes."""
    acted: list[int] = []
    most = 0

    def act(channel: Channel, request: RemotingCommand) -> None:
        nonlocal most
        acted.append(request.opaque)
        most = max(most, len(channel._backlog))

    count = 5 * REQUESTS_AT_ONCE + 1
    frames = [RemotingCommand(SLOW, opaque=number, flag=2).encode() for number in range(count)]
    async with served(network, {SLOW: act}) as addr:
        transport = await network.dial(addr)
        await transport.send_all(b"".join(frames))
        await eventually(lambda: len(acted) == count)
        await transport.aclose()
    assert acted == list(range(count))
    assert most <= REQUESTS_AT_ONCE


async def test_requests_that_take_long_leave_other_connections_their_turn(
    memory_network: Network, autojump_clock: trio.testing.MockClock
) -> None:
    acted: list[int] = []

    def slow(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        autojump_clock.jump(SHARE / 4)
        if not acted:
            other.send_nowait(chunk(1000, 1))
        acted.append(request.opaque)
        return request.response()

    def chunk(first: int, count: int) -> bytes:
        numbers = range(first, first + count)
        return b"".join(RemotingCommand(SLOW, opaque=number).encode() for number in numbers)

    async with served(memory_network, {SLOW: slow}) as addr:
        crowd, other = [await memory_network.dial(addr) for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked()
        crowd.send_nowait(chunk(0, 100))
        await trio.testing.wait_all_tasks_blocked()
        assert acted.index(1000) < 20
        assert [number for number in acted if number < 1000] == list(range(100))


async def test_answers_that_pile_up_unread_end_the_connection(network: Network) -> None:
    log = ChannelLog()
    chunk = bytes(8 * 1024 * 1024)

    def hold(channel: Channel, request: RemotingCommand) -> None:
        return None

    async with served(network, {SLOW: hold}, observer=log) as addr:
        transport = await network.dial(addr)
        try:
            await transport.send_all(RemotingCommand(SLOW).encode())
            while not log.opened:
                await trio.lowlevel.checkpoint()
            (channel,) = log.opened
            for _ in range(20):
                channel.reply(RemotingCommand(0, flag=1, body=chunk))
                await trio.testing.wait_all_tasks_blocked(0.0005)
            assert channel.closed
        finally:
            await transport.aclose()
