"""A trio stream as a transport, for the network in memory.

Invariant: one task sends at a time, as trio's streams require; it is the channel's writer.
"""

import trio

from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.frame import Body

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

    def _broken(self, error: Exception) -> NotReachableError:
        text = str(error.__cause__ or error) or type(error).__name__
        return NotReachableError(f"The connection broke ({text})", broker_addr=self.remote_addr)
