"""What a client reaches outside of its process: the network, the wall clock, and random numbers.

Programs never name them. `rocketrio.testing` replaces them for a block, as trio's `set_custom_socket_factory` replaces
sockets, so that a program under test needs no arguments for its tests.

Invariant: only `open_client` reads the ports; every other part gets them from it as arguments.
"""

import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from contextvars import ContextVar
from typing import Final, TypeVar

import attrs

from rocketrio_protocol.remoting.ports import Dial, SystemWallClock, WallClock
from rocketrio_protocol.remoting.tcp import dial_tcp

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Ports:
    """The network, the clock and the random numbers of a client; by default those of the system."""

    dial: Dial = dial_tcp
    wall_clock: WallClock = attrs.field(factory=SystemWallClock)
    rng: random.Random = attrs.field(factory=random.SystemRandom)


current_ports: Final[ContextVar[Ports]] = ContextVar("rocketrio_ports", default=Ports())  # noqa: B039
"""The ports of clients that this task and its child tasks open."""


@contextmanager
def using_ports(ports: Ports) -> Iterator[None]:
    """Let every client that is opened in the block use these ports."""
    token = current_ports.set(ports)
    try:
        yield
    finally:
        current_ports.reset(token)


@asynccontextmanager
async def opened_with(ports: Ports, opening: AbstractAsyncContextManager[T]) -> AsyncGenerator[T]:
    """Enter `open_client(...)` or another opener with these ports; clients opened in the block do not get them."""
    async with AsyncExitStack() as stack:
        with using_ports(ports):
            opened = await stack.enter_async_context(opening)
        yield opened
