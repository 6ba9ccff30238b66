"""A wakeup for one waiting task; repeated wakes before a wait count as one.

Answers to: ServiceThread.waitForRunning and wakeup.
"""

import trio


class Wakeup:
    """Remembers a wake until the next wait."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def wake(self) -> None:
        """Wake the waiting task, or let the next wait return at once."""
        self._event.set()

    async def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a wake; return whether there was one. A cancel does not consume it."""
        with trio.move_on_after(timeout):
            await self._event.wait()
        if not self._event.is_set():
            return False
        self._event = trio.Event()
        return True
