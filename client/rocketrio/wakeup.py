"""Something one task waits for and any other may cause, however often, to happen once soon.

Answers to: ServiceThread.waitForRunning and wakeup.
"""

import trio


class Wakeup:
    """Remembers a wake until the next wait."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def wake(self) -> None:
        """Let the waiting task go on, or the next wait return at once."""
        self._event.set()

    async def wait(self, timeout: float) -> bool:
        """Wait for a wake, `timeout` seconds at most; whether there was one. A cancel leaves it in place."""
        with trio.move_on_after(timeout):
            await self._event.wait()
        if not self._event.is_set():
            return False
        self._event = trio.Event()
        return True
