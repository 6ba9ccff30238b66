"""One task that ends what has waited too long, for all channels of a pool or server.

A cancel scope per call costs 8 µs and a timer task more; here a call only compares its deadline with the
sweeper's next look. In steady traffic that look comes about once a timeout, not once a call.

Invariant: what is due at a time is ended at that time, neither before nor a tick later.
Answers to: NettyRemotingAbstract.scanResponseTable (once a second), IdleStateHandler.
"""

from math import inf
from typing import Protocol

import trio


class Sweepable(Protocol):
    """Holds things that have deadlines."""

    def sweep(self, now: float) -> float:
        """End what is due at `now`; when to look again."""
        ...


class Sweeper:
    """Looks at its members when the earliest deadline passes."""

    def __init__(self) -> None:
        self.next_look = inf
        """When members are looked at next: call `look_before` for any deadline earlier than this."""
        self._members: set[Sweepable] = set()
        self._sleep: trio.CancelScope | None = None

    def add(self, member: Sweepable) -> None:
        self._members.add(member)

    def discard(self, member: Sweepable) -> None:
        self._members.discard(member)

    def look_before(self, deadline: float) -> None:
        """See to it that the next look is no later than `deadline`."""
        if deadline < self.next_look:
            self.next_look = deadline
            if self._sleep is not None:
                self._sleep.deadline = deadline

    async def run(self) -> None:
        """The task of this sweeper; ends only by a cancel."""
        while True:
            now = trio.current_time()
            # A copy: ending a channel takes it out of the set.
            looks = [member.sweep(now) for member in tuple(self._members)]
            self.next_look = min(looks, default=inf)
            with trio.CancelScope(deadline=self.next_look) as self._sleep:
                await trio.sleep_forever()
            self._sleep = None
