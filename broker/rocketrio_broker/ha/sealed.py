"""A replication connection on which every byte is authenticated: frames of `rocketrio_protocol/ha/link.py`.

Invariant: a byte is handed on only after the tag of its frame was checked, in the order in which it was sent.
Invariant: each direction holds no more than `FRAME_SIZE_LIMIT`, or the size of its reader's buffer.
"""

import trio

from rocketrio_protocol.frame import Body
from rocketrio_protocol.ha.link import (
    FRAME_OVERHEAD,
    FRAME_SIZE_LIMIT,
    AnswerSeal,
    FrameOpener,
    FrameSealer,
)
from rocketrio_protocol.remoting.ports import Transport

_NOTHING = memoryview(b"")


class SealedTransport:
    """A transport over another one, with a key for each direction."""

    def __init__(
        self,
        transport: Transport,
        sealer: FrameSealer,
        opener: FrameOpener,
        answers: AnswerSeal | None = None,
    ) -> None:
        self.answers = answers
        """Seals and opens what the two ends answer each other elsewhere."""
        self.local_addr = transport.local_addr
        self.remote_addr = transport.remote_addr
        self._transport = transport
        self._sealer = sealer
        self._opener = opener
        self._incoming = _NOTHING
        """The buffer for received bytes; those that arrived and are not checked yet lie from `_start` to `_end`."""
        self._start = self._end = 0
        self._checked = _NOTHING
        """The rest of the frame that was checked last: a view of `_incoming`."""
        self._begun = 0
        """The number of the stream's bytes in the frame of which `_rest` is still to be sent."""
        self._rest = _NOTHING

    async def receive_into(self, buffer: memoryview) -> int:
        if self._checked:
            # Other tasks get their turn, and a cancel arrives before any byte is taken.
            await trio.lowlevel.checkpoint()
        while not (taken := self._take(buffer)):
            self._make_room(len(buffer))
            received = await self._transport.receive_into(self._incoming[self._end :])
            if not received:
                return 0
            self._end += received
        return taken

    def _take(self, buffer: memoryview) -> int:
        """Move bytes that are checked, or can be, to the start of a buffer; return how many."""
        taken = 0
        while taken < len(buffer):
            if not self._checked:
                # Checks the tag of a whole frame, or returns None: no byte of a frame that is under way is handed on.
                body = self._opener.open(self._incoming[self._start : self._end])
                if body is None:
                    break
                self._start += len(body) + FRAME_OVERHEAD
                self._checked = body
            piece = self._checked[: len(buffer) - taken]
            buffer[taken : taken + len(piece)] = piece
            self._checked = self._checked[len(piece) :]
            taken += len(piece)
        return taken

    def _make_room(self, wanted: int) -> None:
        """Make room for a whole frame, and for as many bytes as the reader may take at once."""
        begun = bytes(self._incoming[self._start : self._end])
        size = max(wanted, FRAME_SIZE_LIMIT + FRAME_OVERHEAD)
        if len(self._incoming) < size:
            self._incoming = memoryview(bytearray(size))
        self._incoming[: len(begun)] = begun
        self._start, self._end = 0, len(begun)

    def send_nowait(self, data: Body) -> int:
        """Send one frame as far as possible without waiting.

        A frame that is not sent completely counts as nothing sent: `send_all` with the same bytes sends the rest of it.
        """
        assert not self._rest, "the rest of a frame was not sent"
        body = data[:FRAME_SIZE_LIMIT]
        if not body:
            return 0
        # Sealing uses up the frame's number: the rest must be sent as it is, by `send_all`, and not be sealed again.
        frame = memoryview(self._sealer.seal(body))
        self._rest = frame[self._transport.send_nowait(frame) :]
        if not self._rest:
            return len(body)
        self._begun = len(body)
        return 0

    async def send_all(self, data: Body) -> None:
        rest, self._rest = self._rest, _NOTHING
        start = 0
        if rest:
            await self._transport.send_all(rest)
            start = self._begun
        with memoryview(data) as view:
            for at in range(start, len(view), FRAME_SIZE_LIMIT):
                await self._transport.send_all(self._sealer.seal(view[at : at + FRAME_SIZE_LIMIT]))

    async def aclose(self) -> None:
        await self._transport.aclose()


def answer_seal(transport: Transport) -> AnswerSeal | None:
    """Return what seals answers for the other end of a connection; None if it has proved no secret."""
    return transport.answers if isinstance(transport, SealedTransport) else None
