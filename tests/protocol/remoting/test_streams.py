"""Any trio stream as a transport."""

import pytest
import trio
import trio.testing

from rocketrio_broker.testing.memory_network import memory_stream_pair
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.streams import StreamTransport


def transports() -> tuple[StreamTransport, StreamTransport]:
    ours, theirs = memory_stream_pair()
    return (
        StreamTransport(ours, local_addr="a:1", remote_addr="b:2"),
        StreamTransport(theirs, local_addr="b:2", remote_addr="a:1"),
    )


async def test_bytes_cross_in_order_into_the_readers_buffer() -> None:
    here, there = transports()
    buffer = memoryview(bytearray(b"........"))
    assert here.send_nowait(b"never without a wait") == 0
    await here.send_all(b"12")
    await here.send_all(memoryview(b"345"))
    assert await there.receive_into(buffer[:4]) == 4
    assert bytes(buffer) == b"1234...."
    assert await there.receive_into(buffer) == 1
    await here.aclose()
    assert await there.receive_into(buffer) == 0


async def test_closed_and_broken_streams_are_not_reachable_by_name() -> None:
    here, there = transports()
    await there.aclose()
    with pytest.raises(NotReachableError, match="b:2"):
        await here.send_all(b"x")
    with pytest.raises(NotReachableError, match="a:1"):
        await there.receive_into(memoryview(bytearray(1)))


async def test_closing_works_in_a_cancelled_scope_and_twice() -> None:
    here, there = transports()
    with trio.CancelScope() as scope:
        scope.cancel()
        await here.aclose()
        await here.aclose()
    assert await there.receive_into(memoryview(bytearray(1))) == 0
