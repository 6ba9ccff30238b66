"""A disk whose work can be held back, to see who waits for it."""

from collections.abc import Callable

import trio

from rocketrio_broker.store.disk import Arguments, Result
from rocketrio_broker.testing.memory_disk import MemoryDisk


class HeldDisk(MemoryDisk):
    """A disk whose blocking work, or only that of the function `only`, does not begin while it is held."""

    def __init__(self, only: str = "") -> None:
        super().__init__()
        self.only = only
        self.free = trio.Event()
        self.free.set()

    def hold(self) -> None:
        self.free = trio.Event()

    def release(self) -> None:
        self.free.set()

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        if self.only in ("", getattr(work, "__name__", "")):
            await self.free.wait()
        return await super().run(work, *arguments)
