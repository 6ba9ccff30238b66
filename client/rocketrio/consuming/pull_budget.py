"""How many bytes a consumer may hold of all its queues together, so that its memory is bounded under any lag.

    | what is held and what pulls that lag may bring: three quarters | pulls held at the end of queues: a quarter |

A pull that will surely bring something reserves what it asks for; one that waits at the end of its queue reserves
nothing, and asks for so little that all of them together fit into the last quarter.

Invariant: queues that wait for room get it in turn.
Unlike Java: a limit for the whole consumer; Java's are per queue and per topic, and off for a topic.
"""

from typing import Final, Protocol

import attrs

from rocketrio.wakeup import Wakeup

PULL_THRESHOLD_SIZE: Final = 256 * 1024 * 1024
"""Bytes a consumer pulls ahead over all queues: a few times what one queue may have (100 MiB)."""
PULL_MAX_BYTES: Final = 1024 * 1024
"""Body bytes asked for at once, of brokers that let the client say so (5.x and ours)."""


class Holder(Protocol):
    """Who holds messages: a queue."""

    @property
    def room(self) -> Wakeup: ...


@attrs.define(eq=False)
class PullBudget:
    """Bytes of one consumer."""

    limit: int = PULL_THRESHOLD_SIZE
    used: int = 0
    """Held or reserved."""
    queue_count: int = 1
    _waiting: dict[Holder, None] = attrs.Factory(dict)
    """In the order in which they came."""

    def reserve(self, holder: Holder, *, is_lagging: bool) -> tuple[int, int] | None:
        """Bytes that may be asked for now, and how many of them are reserved; without room None, and a wake later."""
        size = min(PULL_MAX_BYTES, max(1, self.limit // 4))
        reserved = size if is_lagging else 0
        is_next = not self._waiting or next(iter(self._waiting)) is holder
        if not is_next or (self.used and self.used + max(1, reserved) > self.limit * 3 // 4):
            self._waiting.setdefault(holder)
            return None
        if not is_lagging:
            size = max(1, min(size, self.limit // 4 // self.queue_count))
        self.used += reserved
        self.forget(holder)
        return size, reserved

    @property
    def is_used_up(self) -> bool:
        """Whether a pull would have to wait."""
        return (
            self.used > 0 and self.used + min(PULL_MAX_BYTES, self.limit // 4) > self.limit * 3 // 4
        )

    def take(self, size: int) -> None:
        """So many bytes are held."""
        self.used += size

    def give(self, size: int) -> None:
        """So many are held no more, or were reserved for nothing."""
        self.used -= size
        self._wake_next()

    def forget(self, holder: Holder) -> None:
        """It waits no longer."""
        if holder in self._waiting:
            del self._waiting[holder]
            self._wake_next()

    def _wake_next(self) -> None:
        if self._waiting:
            next(iter(self._waiting)).room.wake()
