"""Handlers that take too long: each worker has a hand, and one task looks at all hands now and then.

    hand: takes a unit -> handler -> puts it down       a unit seen in the same hand for too long: cancelled

Invariant: only a handler is cancelled, never what is done with its message before or after.
Answers to: cleanExpiredMsg of ProcessQueue (consumeTimeout).
Unlike Java: the handler is cancelled, where Java's goes on beside the one that gets the message again.
How: a deadline for each message would cost as much as all else that is done for it.
"""

from typing import Final

import attrs
import trio

from rocketrio.consuming.in_work import Unit

HANDLER_TIMEOUT: Final = 900.0  # consumeTimeout
LOOKS: Final = 10
"""Looks at all hands within the time that a handler has: it may take a tenth longer."""


@attrs.define(eq=False)
class Hand:
    """One worker's."""

    unit: Unit | None = None
    """What its handler has now."""
    inflated: int = 0
    """Bytes that its compressed bodies take."""
    is_late: bool = False
    """The handler was cancelled, though it may have finished all the same."""
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    _seen: Unit | None = None
    _seen_at: float = 0.0

    def anew(self) -> trio.CancelScope:
        """The scope of what comes next."""
        self.is_late = False
        self.scope = trio.CancelScope()
        return self.scope

    def look(self, now: float, timeout: float) -> None:
        """Cancel a handler that has had the same unit for too long."""
        if self.unit is not self._seen:
            self._seen, self._seen_at = self.unit, now
        elif self.unit is not None and now - self._seen_at >= timeout:
            self.is_late = True
            self.scope.cancel()


async def watch(hands: list[Hand], timeout: float, over: trio.Event) -> None:
    """Look at the hands until the event."""
    while not over.is_set():
        with trio.move_on_after(timeout / LOOKS):
            await over.wait()
        now = trio.current_time()
        for hand in hands:
            hand.look(now, timeout)
