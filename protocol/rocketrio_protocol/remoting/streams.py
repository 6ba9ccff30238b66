"""Adapters between transports and trio streams, for memory pipes and TLS.

Invariant: one task sends at a time, as trio's streams require; it is the channel's writer.
"""

import ssl
from typing import Final

import trio

from rocketrio_protocol.errors import NotReachable
from rocketrio_protocol.frame import Body
from rocketrio_protocol.remoting.ports import Transport

_RECEIVE_SIZE: Final = 64 * 1024
"""Bytes of one read if the reader does not limit them."""

_TLS_REMEDY: Final = (
    "The other end does not take this end's TLS, or certificate; its log says which"
)

_STREAM_FAULTS = (trio.BrokenResourceError, trio.ClosedResourceError)


class StreamTransport:
    """A trio stream as a transport; the addresses are those that its creator gives."""

    def __init__(self, stream: trio.abc.Stream, *, local_addr: str, remote_addr: str) -> None:
        self.local_addr = local_addr
        self.remote_addr = remote_addr
        self._stream = stream

    async def receive_into(self, buffer: memoryview) -> int:
        try:
            data = await self._stream.receive_some(len(buffer))
        except _STREAM_FAULTS as error:
            raise self._broken(error) from error
        buffer[: len(data)] = data
        return len(data)

    def send_nowait(self, data: Body) -> int:
        """Return 0, because a trio stream never accepts bytes without waiting."""
        return 0

    async def send_all(self, data: Body) -> None:
        try:
            await self._stream.send_all(data)
        except _STREAM_FAULTS as error:
            raise self._broken(error) from error

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)

    def _broken(self, error: Exception) -> NotReachable:
        cause = error.__cause__
        if isinstance(cause, NotReachable):
            # The transport below a TransportStream already says what happened.
            return NotReachable(cause.what, broker_addr=cause.broker_addr, remedy=cause.advice)
        text = str(cause or error) or type(error).__name__
        return NotReachable(
            f"The connection broke ({text})",
            broker_addr=self.remote_addr,
            remedy=_TLS_REMEDY if isinstance(cause, ssl.SSLError) else None,
        )


class TransportStream(trio.abc.Stream):
    """A transport as a trio stream, for `trio.SSLStream`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            await self._transport.send_all(memoryview(data))
        except NotReachable as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        buffer = bytearray(_RECEIVE_SIZE if max_bytes is None else max_bytes)
        try:
            size = await self._transport.receive_into(memoryview(buffer))
        except NotReachable as error:
            raise trio.BrokenResourceError(str(error)) from error
        return bytes(buffer[:size])

    async def aclose(self) -> None:
        await self._transport.aclose()
