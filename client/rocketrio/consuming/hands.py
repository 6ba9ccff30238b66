"""Cancels handlers that exceed their time. Each worker has a `Hand`, and one task scans all hands periodically.

    hand: takes a unit -> handler -> puts it down       a unit in the same hand for too long: handler cancelled

Invariant: only a handler is cancelled, never what is done with its message before or after.
Answers to: cleanExpiredMsg of ProcessQueue (consumeTimeout).
Unlike Java: the handler is cancelled; Java's handler keeps running beside the one that gets the message again.
How: a deadline per message would cost as much as everything else that is done for the message.
"""

from typing import Final

import attrs
import trio

from rocketrio.consuming.in_work import Unit

HANDLER_TIMEOUT: Final = 900.0  # consumeTimeout
LOOKS: Final = 10
"""Scans of all hands within a handler's time, so that a handler may take a tenth longer."""


@attrs.define(eq=False)
class Hand:
    """What one worker's handler is working on."""

    unit: Unit | None = None
    """What the worker's handler has now."""
    inflated: int = 0
    """The bytes that its decompressed bodies take."""
    is_late: bool = False
    """Whether the handler was cancelled; it may have finished nevertheless."""
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    _seen: Unit | None = None
    _seen_at: float = 0.0

    def anew(self) -> trio.CancelScope:
        """Return a new cancel scope for the next handler calls."""
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
    """Scan the hands periodically until `over` is set."""
    while not over.is_set():
        with trio.move_on_after(timeout / LOOKS):
            await over.wait()
        now = trio.current_time()
        for hand in hands:
            hand.look(now, timeout)
