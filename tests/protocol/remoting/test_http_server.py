import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.http import ask, everything, get
from trio.testing import MockClock

from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.http_server import (
    CONNECTION_LIMIT,
    HEADER_SIZE_LIMIT,
    HOST_CONNECTION_LIMIT,
    REQUEST_TIMEOUT,
    Page,
    Pages,
    serve_http,
    text_page,
)
from rocketrio_protocol.remoting.ports import Dial

ADDR = "10.0.0.1:5557"
HUGE = 8 << 20


def broken() -> Page:
    raise ZeroDivisionError


def broken_later() -> Iterator[bytes]:
    yield b"begin"
    raise ZeroDivisionError


PAGES: Pages = {
    "/metrics": lambda: Page([b"a 1\n", b"b 2\n"], content_type="text/plain; version=0.0.4"),
    "/large": lambda: Page(b"%d\n" % number for number in range(5_000)),
    "/huge": lambda: Page([bytes(HUGE)]),
    "/broken": broken,
    "/late": lambda: Page(broken_later()),
    "/readyz": lambda: text_page("not yet", status=503),
}


@asynccontextmanager
async def serving() -> AsyncGenerator[MemoryNetwork]:
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_http, network.listen(ADDR), PAGES)
        yield network
        nursery.cancel_scope.cancel()


def dial_of(network: MemoryNetwork, host: str = "10.0.0.2") -> Dial:
    return network.host(host).dial


async def test_page_is_served_with_its_type_and_status() -> None:
    async with serving() as network:
        answer = await get(dial_of(network), ADDR, "/metrics?name[]=a")
        assert (answer.status, answer.text) == (200, "a 1\nb 2\n")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4"
        assert answer.headers["content-length"] == "8"
        unready = await get(dial_of(network), ADDR, "/readyz")
        assert (unready.status, unready.text) == (503, "not yet\n")


async def test_page_is_compressed_only_if_asked() -> None:
    async with serving() as network:
        packed = await get(dial_of(network), ADDR, "/large", "Accept-Encoding: deflate, GZip")
        plain = await get(dial_of(network), ADDR, "/large", "Accept-Encoding: br")
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert len(packed.body) < len(plain.body) / 2
        assert packed.text == plain.text


async def test_head_has_the_length_and_no_body() -> None:
    async with serving() as network:
        request = b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await ask(dial_of(network), ADDR, request)
        assert (answer.status, answer.headers["content-length"], answer.body) == (200, "8", b"")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /../metrics HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2 * HEADER_SIZE_LIMIT, 431),
        (b"GET /" + b"a" * 2 * HEADER_SIZE_LIMIT, 431),
    ],
    ids=["unknown", "traversal", "post", "no host", "tls", "long header", "long line"],
)
async def test_wrong_request_is_refused_and_the_next_is_answered(
    request_: bytes, status: int
) -> None:
    async with serving() as network:
        assert (await ask(dial_of(network), ADDR, request_)).status == status
        assert (await get(dial_of(network), ADDR)).status == 200


async def test_only_the_first_of_many_requests_on_a_connection_is_answered() -> None:
    async with serving() as network:
        one = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
        transport = await dial_of(network)(ADDR)
        await transport.send_all(one * 50)
        answers = await everything(transport)
        assert answers.count(b"HTTP/1.1 200") == 1
        assert answers.endswith(b"b 2\n")
        assert (await get(dial_of(network), ADDR)).status == 200


@pytest.mark.parametrize("path", ["/broken", "/late"])
async def test_page_that_fails_is_logged_and_the_server_continues(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as network:
        with caplog.at_level(logging.ERROR):
            answer = await get(dial_of(network), ADDR, path, "Accept-Encoding: gzip")
        assert answer.status == 500
        assert "ZeroDivisionError" in caplog.text
        assert (await get(dial_of(network), ADDR)).status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: "], ids=["none", "half"])
async def test_peer_that_does_not_ask_is_dropped_in_time(
    sent: bytes, autojump_clock: MockClock
) -> None:
    async with serving() as network:
        transport = await dial_of(network)(ADDR)
        if sent:
            await transport.send_all(sent)
        begin = trio.current_time()
        assert await everything(transport) == b""
        assert trio.current_time() - begin == pytest.approx(REQUEST_TIMEOUT)


async def test_peer_that_does_not_read_is_dropped_in_time_and_delays_no_other(
    autojump_clock: MockClock,
) -> None:
    async with serving() as network:
        slow = await dial_of(network)(ADDR)
        await slow.send_all(b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n")
        begin = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()
        assert (await get(dial_of(network), ADDR)).status == 200
        assert trio.current_time() == begin
        await trio.sleep(REQUEST_TIMEOUT + 1)
        assert len(await everything(slow)) < HUGE


async def test_host_that_opens_many_connections_does_not_shut_out_another(
    autojump_clock: MockClock,
) -> None:
    async with serving() as network:
        held = [await dial_of(network, "10.0.0.66")(ADDR) for _ in range(CONNECTION_LIMIT)]
        await trio.testing.wait_all_tasks_blocked()
        refused = 0
        for transport in held[HOST_CONNECTION_LIMIT:]:
            try:
                refused += await everything(transport) == b""
            except NotReachableError:
                refused += 1
        assert refused == CONNECTION_LIMIT - HOST_CONNECTION_LIMIT
        assert trio.current_time() < REQUEST_TIMEOUT
        assert (await get(dial_of(network), ADDR)).status == 200


async def test_other_tasks_run_between_the_parts_of_a_page() -> None:
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with serving() as network, trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await get(dial_of(network), ADDR, "/large")
        assert turns > 5_000
        nursery.cancel_scope.cancel()
