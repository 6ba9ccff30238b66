"""A program in a terminal (a pty), what it shows there, and the keys that are pressed."""

import fcntl
import os
import pty
import struct
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio
from tests.support.commands import ROCKETRIO


@attrs.define
class Terminal:
    """The other end of a program's terminal."""

    end: int
    other: int
    process: trio.Process
    before: list[object]
    seen: bytes = b""

    async def until(self, holds: Callable[[bytes], bool]) -> None:
        """Read until what was seen is as wanted."""
        while not holds(self.seen):
            await trio.lowlevel.wait_readable(self.end)
            self.seen += os.read(self.end, 65_536)

    def press(self, keys: bytes) -> None:
        self.seen = b""
        os.write(self.end, keys)

    async def ended(self) -> int:
        """Read on until the program ends; return its exit code."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.until, lambda _: False)
            code = await self.process.wait()
            await trio.sleep(0.2)
            nursery.cancel_scope.cancel()
        return code

    @property
    def is_as_before(self) -> bool:
        return termios.tcgetattr(self.other) == self.before


@asynccontextmanager
async def terminal(*arguments: str, namesrv: str, width: int = 100) -> AsyncIterator[Terminal]:
    end, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = await trio.lowlevel.open_process(
        [ROCKETRIO, *arguments],
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
        env={**env, "NAMESRV_ADDR": namesrv, "TERM": "xterm-256color"},
    )
    try:
        yield Terminal(end, other, process, termios.tcgetattr(other))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(end)
        os.close(other)
