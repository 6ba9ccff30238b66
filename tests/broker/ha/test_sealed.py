"""A connection of authenticated frames is a transport like any other (`ha/sealed.py`)."""

import random

import pytest
import trio
from trio.testing import MockClock

from rocketrio_broker.ha.sealed import SealedTransport
from rocketrio_broker.testing.memory_network import PIPE_SIZE, MemoryNetwork
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha.link import FRAME_OVERHEAD, FRAME_SIZE_LIMIT, FrameOpener, FrameSealer
from rocketrio_protocol.remoting.ports import Transport

KEYS = (b"a" * 32, b"b" * 32)


async def raw_ends() -> tuple[Transport, Transport]:
    network = MemoryNetwork()
    listener = await network.host("10.0.0.1").listen("10.0.0.1:1")
    return await network.host("10.0.0.2").dial("10.0.0.1:1"), await listener.accept()


async def sealed_ends() -> tuple[SealedTransport, SealedTransport]:
    one, other = await raw_ends()
    return (
        SealedTransport(one, FrameSealer(KEYS[0]), FrameOpener(KEYS[1])),
        SealedTransport(other, FrameSealer(KEYS[1]), FrameOpener(KEYS[0])),
    )


async def read(transport: Transport, size: int, buffer_size: int) -> bytes:
    """Return this number of bytes, by reads of limited size; fewer only at the end."""
    data, buffer = bytearray(), memoryview(bytearray(buffer_size))
    while len(data) < size and (count := await transport.receive_into(buffer)):
        data += buffer[:count]
    return bytes(data)


async def send(transport: Transport, data: bytes, nowait: bool) -> None:
    """As replication does: what goes without a wait, then the rest."""
    sent = transport.send_nowait(data) if nowait else 0
    if sent < len(data):
        await transport.send_all(memoryview(data)[sent:])


@pytest.mark.parametrize("nowait", [False, True])
@pytest.mark.parametrize("buffer_size", [1, 7, 4096, 1 << 20])
async def test_what_is_sent_arrives_whatever_the_sizes(
    autojump_clock: MockClock, buffer_size: int, nowait: bool
) -> None:
    rng = random.Random(buffer_size)
    one, other = await sealed_ends()
    scale = 64 if buffer_size < 4096 else 3 * FRAME_SIZE_LIMIT
    pieces = [rng.randbytes(rng.randrange(1, scale)) for _ in range(40)]

    async def send_them() -> None:
        for piece in pieces:
            await send(one, piece, nowait)
        await one.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_them)
        data = b"".join(pieces)
        assert await read(other, len(data) + 1, buffer_size) == data


async def test_send_without_room_counts_as_nothing_and_is_finished_by_the_next(
    autojump_clock: MockClock,
) -> None:
    one, other = await sealed_ends()
    data = bytes(range(256)) * (3 * PIPE_SIZE // 256)
    sent = 0
    while count := one.send_nowait(data[sent:]):
        sent += count
    assert sent
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.send_all, data[sent:])
        assert await read(other, len(data), 4096) == data


async def test_a_read_that_was_cancelled_has_taken_nothing(autojump_clock: MockClock) -> None:
    one, other = await sealed_ends()
    await one.send_all(b"0123456789")
    assert await read(other, 4, 4) == b"0123"
    with trio.CancelScope() as scope:
        scope.cancel()
        await other.receive_into(memoryview(bytearray(4)))
    assert scope.cancelled_caught
    assert await read(other, 6, 4) == b"456789"


async def test_bytes_of_a_frame_are_held_until_all_of_it_was_checked(
    autojump_clock: MockClock,
) -> None:
    raw, other = await raw_ends()
    end = SealedTransport(other, FrameSealer(KEYS[1]), FrameOpener(KEYS[0]))
    frame = FrameSealer(KEYS[0]).seal(b"x" * 1000)
    await raw.send_all(frame[:-1])
    with trio.move_on_after(10) as waiting:
        await end.receive_into(memoryview(bytearray(4096)))
    assert waiting.cancelled_caught
    await raw.send_all(b"?")
    with pytest.raises(RemoteProtocolError):
        await end.receive_into(memoryview(bytearray(4096)))


async def test_end_in_the_middle_of_a_frame_is_an_end(autojump_clock: MockClock) -> None:
    raw, other = await raw_ends()
    end = SealedTransport(other, FrameSealer(KEYS[1]), FrameOpener(KEYS[0]))
    frames = FrameSealer(KEYS[0])
    await raw.send_all(frames.seal(b"whole") + frames.seal(b"begun")[:-FRAME_OVERHEAD])
    await raw.aclose()
    assert await read(end, 99, 4096) == b"whole"
