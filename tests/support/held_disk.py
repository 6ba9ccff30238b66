"""A disk whose work can be held back, to see who waits for it."""

from collections.abc import Callable

import trio

from rocketrio_broker.store.disk import Arguments, Result
from rocketrio_broker.testing.memory_disk import MemoryDisk


class HeldDisk(MemoryDisk):
    """A disk whose blocking work, fdatasync above all, does not return while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.free = trio.Event()
        self.free.set()

    def hold(self) -> None:
        self.free = trio.Event()

    def release(self) -> None:
        self.free.set()

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        await self.free.wait()
        return await super().run(work, *arguments)
