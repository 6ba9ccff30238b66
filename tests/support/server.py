"""What Apache's servers and ours have in common: `with` starts one, waits until it serves, and kills it at the end."""

import ssl
from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import Self

import attrs
from tests.support.processes import Process


def start_together(stack: ExitStack, *servers: "Server") -> None:
    """Start servers at once, as a start is what costs time, and wait for all; they end with the stack."""
    for server in servers:
        stack.push(server)
        server.start()
    for server in servers:
        server.wait_ready()


@attrs.define
class Server(ABC):
    """One name server or broker as a process of its own."""

    process: Process | None = attrs.field(default=None, init=False)
    context: ssl.SSLContext | None = attrs.field(default=None, kw_only=True)
    """With what a test connects to ask whether it serves; None without TLS."""

    @abstractmethod
    def start(self) -> None:
        """Start the process; `wait_ready` says when it serves."""

    @abstractmethod
    def wait_ready(self) -> None:
        """Return once it serves. Raises NotStartedError."""

    @property
    def running(self) -> Process:
        """The process, once it was started."""
        assert self.process is not None, "not started"
        return self.process

    def stop(self) -> int:
        """A clean stop; the exit code."""
        return self.running.stop()

    def kill(self) -> None:
        """kill -9."""
        self.running.kill()

    def restart(self) -> None:
        """Start it again after a stop or a kill, at the same addresses and with the same data."""
        self.start()
        self.wait_ready()

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
