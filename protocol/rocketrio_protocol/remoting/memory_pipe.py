"""One direction of a connection in memory: a bounded run of bytes with one writer and one reader.

What the network between does to it is said here too: hold it, delay it, cut it short, break it off.

Invariant: what is read is a beginning of what was written, in order and without gaps.
"""

from collections import deque
from typing import Final

import trio

PIPE_SIZE: Final = 256 * 1024
"""Bytes on their way in one direction: about what the kernel keeps on a loopback connection."""


class MemoryPipe:
    """Bytes from one writer to one reader."""

    def __init__(self) -> None:
        self.delay = 0.0
        """Seconds that what is written from now on takes to arrive."""
        self._data = bytearray()
        self._due: deque[tuple[float, int]] = deque()  # when how many bytes arrive; empty: all have
        self._due_size = 0
        self._held = False
        self._broken = False
        self._cut_short = False
        self._writer_closed = False
        self._reader_closed = False
        self._putting = False
        self._taking = False
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def is_over(self) -> bool:
        """Both of its ends are closed."""
        return self._writer_closed and self._reader_closed

    # --------------------------------------------------------------------------------- for its ends

    async def put(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of it, as the reader makes room."""
        if self._putting:
            raise trio.BusyResourceError("another task is sending")
        self._putting = True
        try:
            await trio.lowlevel.checkpoint()
            self._check_writable()
            position = 0
            while position < len(data) and not self._cut_short:
                await self._wait_room()
                taken = data[position : position + PIPE_SIZE - len(self._data)]
                if not self._cut_short:
                    self._data += taken
                    self._note_due(len(taken))
                position += len(taken)
                self._changed.unpark_all()
        finally:
            self._putting = False

    def put_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Write what there is room for, as a socket does; how many bytes that was."""
        if self._putting:
            return 0
        self._check_writable()
        taken = data[: max(0, PIPE_SIZE - len(self._data))]
        if self._cut_short:
            return len(data)  # The writer does not hear of it.
        if taken:
            self._data += taken
            self._note_due(len(taken))
            self._changed.unpark_all()
        return len(taken)

    async def wait_room(self) -> None:
        """Wait until a byte could be written."""
        if self._putting:
            raise trio.BusyResourceError("another task is sending")
        self._putting = True
        try:
            await trio.lowlevel.checkpoint()
            await self._wait_room()
        finally:
            self._putting = False

    async def take(self, limit: int) -> bytes:
        """Wait for bytes and read at most `limit` of them; none at the end."""
        if self._taking:
            raise trio.BusyResourceError("another task is receiving")
        self._taking = True
        try:
            if self._is_readable():
                await trio.lowlevel.checkpoint()
            while not self._is_readable():
                await self._wait_change()
            if self._reader_closed:
                raise trio.ClosedResourceError
            if self._broken:
                raise trio.BrokenResourceError("the connection was reset")
            taken = bytes(self._data[: min(limit, self._arrived())])
            if taken:
                del self._data[: len(taken)]
                self._changed.unpark_all()
            return taken
        finally:
            self._taking = False

    def close_writer(self) -> None:
        """Nothing more is written; what was still arrives."""
        self._writer_closed = True
        self._changed.unpark_all()

    def close_reader(self) -> None:
        """Nothing more is read; a writer that the network lets know of it fails."""
        self._reader_closed = True
        self._changed.unpark_all()

    # ------------------------------------------------------------------------------ for the network

    def hold(self, held: bool) -> None:
        """Deliver nothing, as when the network between is silent; or deliver again."""
        self._held = held
        self._changed.unpark_all()

    def cut_short(self) -> None:
        """The reader finds the end behind what was written so far; the writer does not hear of it."""
        self._cut_short = True
        self._changed.unpark_all()

    def break_off(self) -> None:
        """What is on its way is lost, and both ends hear of it: once nothing holds the pipe."""
        self._broken = True
        self._changed.unpark_all()

    # ------------------------------------------------------------------------------------ internals

    async def _wait_room(self) -> None:
        self._check_writable()
        while len(self._data) >= PIPE_SIZE and not self._cut_short:
            await self._changed.park()
            self._check_writable()

    def _check_writable(self) -> None:
        if self._writer_closed:
            raise trio.ClosedResourceError
        if (self._broken or self._reader_closed) and not self._held:
            raise trio.BrokenResourceError("the peer closed the connection")

    def _note_due(self, size: int) -> None:
        # Bytes behind delayed ones cannot overtake them.
        if self.delay or self._due:
            due = trio.current_time() + self.delay
            self._due.append((max(due, self._due[-1][0]) if self._due else due, size))
            self._due_size += size

    def _arrived(self) -> int:
        """How many bytes the reader may have now."""
        if self._due:
            now = trio.current_time()
            while self._due and self._due[0][0] <= now:
                self._due_size -= self._due.popleft()[1]
        return len(self._data) - self._due_size

    def _is_readable(self) -> bool:
        """Whether there are bytes, an end or an error for the reader."""
        if self._held or self._reader_closed:
            return self._reader_closed
        if self._broken or self._arrived():
            return True
        return not self._data and (self._writer_closed or self._cut_short)

    async def _wait_change(self) -> None:
        if self._due and not self._held:
            with trio.move_on_at(self._due[0][0]):
                await self._changed.park()
        else:
            await self._changed.park()
