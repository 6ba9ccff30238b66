"""Addresses and clocks."""

import time

import pytest
import trio
import trio.testing

from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.ports import (
    SystemWallClock,
    VirtualWallClock,
    join_addr,
    name_server_addrs,
    split_addr,
)


@pytest.mark.parametrize(
    ("addr", "host", "port"),
    [("127.0.0.1:9876", "127.0.0.1", 9876), ("[::1]:80", "::1", 80), ("broker-a:0", "broker-a", 0)],
)
def test_addresses_are_split_and_joined(addr: str, host: str, port: int) -> None:
    assert split_addr(addr) == (host, port)
    assert join_addr(host, port) == addr


@pytest.mark.parametrize(
    "addr",
    ["", "host", ":80", "host:", "host:http", "host:-1", "host:65536", "h:٣", "h:" + "9" * 5000],
)
def test_text_that_is_not_an_address_is_refused_with_an_example(addr: str) -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9876"):
        split_addr(addr)


@pytest.mark.parametrize(
    ("text", "addrs"),
    [
        ("http://MQ_INST_1.mq.example.com:80", ("MQ_INST_1.mq.example.com:80",)),
        ("https://a:80/", ("a:80",)),
        ("rocketmq://a:80", ("a:80",)),
        ("HTTP://a:80//;b:9876/", ("a:80", "b:9876")),
        ("a:9876; ", ("a:9876",)),
        (" ;a:1,, b:2 ;a:1;", ("a:1", "b:2")),
        ("http://[::1]:9876/", ("[::1]:9876",)),
        ("", ()),
        (" ; ", ()),
    ],
)
def test_name_servers_are_read_as_clouds_print_them(text: str, addrs: tuple[str, ...]) -> None:
    assert name_server_addrs(text) == addrs


@pytest.mark.parametrize(
    "part",
    ["http://a", "http://", "http://a:80/path", "u@a:80", "a b:80", "a:0", "a:b:c", "http:a:80/x"],
)
def test_error_names_the_part_that_is_no_name_server(part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        name_server_addrs(f"b:9876; {part} ")
    assert f"name server {part!r} is not HOST:PORT" in str(caught.value)


def test_system_clock_returns_milliseconds() -> None:
    assert abs(SystemWallClock().now_ms() - time.time() * 1000) < 1000


async def test_virtual_clock_goes_with_the_clock_of_the_tasks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    clock = VirtualWallClock(1_000)
    assert clock.now_ms() == 1_000
    await trio.sleep(3_600.5)
    assert clock.now_ms() == 1_000 + 3_600_500
