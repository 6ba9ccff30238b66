"""Limits the bytes that a consumer holds over all its queues, so that its memory is bounded under any lag.

    | held messages, and pulls of lagging queues: three quarters | pulls held at the end of queues: a quarter |

A pull that is sure to return messages reserves the size it requests. A pull that waits at the end of its queue reserves
nothing, and requests so little that all such pulls together fit into the last quarter.

Invariant: queues that wait for room get it in turn.
Unlike Java: the limit is for the whole consumer; Java's limits are per queue and per topic, and off by default per
topic.
"""

from typing import Final, Protocol

import attrs

from rocketrio.wakeup import Wakeup

PULL_THRESHOLD_SIZE: Final = 256 * 1024 * 1024
"""Bytes that a consumer pulls ahead over all queues: a few times the limit of one queue (100 MiB)."""
PULL_MAX_BYTES: Final = 1024 * 1024
"""Body bytes requested at once, from brokers that accept such a limit (Apache 5.x and rocketrio)."""


class Holder(Protocol):
    """A holder of messages: a queue."""

    @property
    def room(self) -> Wakeup: ...


@attrs.define(eq=False)
class PullBudget:
    """The byte budget of one consumer."""

    limit: int = PULL_THRESHOLD_SIZE
    used: int = 0
    """Bytes held or reserved."""
    queue_count: int = 1
    _waiting: dict[Holder, None] = attrs.Factory(dict)
    """Holders that wait for room, in the order of their requests."""

    def reserve(self, holder: Holder, *, is_lagging: bool) -> tuple[int, int] | None:
        """Return the bytes that may be requested now and how many are reserved, or None without room.

        After None the holder is woken as soon as there is room.
        """
        size = min(PULL_MAX_BYTES, max(1, self.limit // 4))
        reserved = size if is_lagging else 0
        # In turn: of many queues those with small pulls would otherwise always
        # find room, and one with a large pull never.
        is_next = not self._waiting or next(iter(self._waiting)) is holder
        # With nothing held a pull is always allowed: a limit that is smaller than a message would stop the consumer.
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
        """Count `size` bytes as held."""
        self.used += size

    def give(self, size: int) -> None:
        """Release `size` bytes that were held or reserved."""
        self.used -= size
        self._wake_next()

    def forget(self, holder: Holder) -> None:
        """Remove a holder from the queue of those that wait."""
        if holder in self._waiting:
            del self._waiting[holder]
            self._wake_next()

    def _wake_next(self) -> None:
        if self._waiting:
            next(iter(self._waiting)).room.wake()
