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


def test_system_clock_returns_milliseconds() -> None:
    assert abs(SystemWallClock().now_ms() - time.time() * 1000) < 1000


async def test_virtual_clock_goes_with_the_clock_of_the_tasks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    clock = VirtualWallClock(1_000)
    assert clock.now_ms() == 1_000
    await trio.sleep(3_600.5)
    assert clock.now_ms() == 1_000 + 3_600_500
