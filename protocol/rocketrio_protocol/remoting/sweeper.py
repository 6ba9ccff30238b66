"""One task that enforces the deadlines of all channels of a pool or server.

A cancel scope for each call would cost 8 µs, and a timer task more. Here a call only compares its deadline with the
time of the next sweep. In steady traffic there is about one sweep a timeout, not one a call.

Invariant: what is due at a time ends at that time, neither before nor a tick later.
Answers to: NettyRemotingAbstract.scanResponseTable (once a second), IdleStateHandler.
"""

from math import inf
from typing import Protocol

import trio


class Sweepable(Protocol):
    """An object with deadlines."""

    def sweep(self, now: float) -> float:
        """End what is due at `now`; return when to sweep again."""
        ...


class Sweeper:
    """Sweeps its members when the earliest deadline passes."""

    def __init__(self) -> None:
        self.next_sweep = inf
        """The time of the next sweep; call `sweep_by` for any earlier deadline."""
        self._members: set[Sweepable] = set()
        self._sleep: trio.CancelScope | None = None

    def add(self, member: Sweepable) -> None:
        self._members.add(member)

    def discard(self, member: Sweepable) -> None:
        self._members.discard(member)

    def sweep_by(self, deadline: float) -> None:
        """Make sure the next sweep runs by `deadline`."""
        if deadline < self.next_sweep:
            self.next_sweep = deadline
            if self._sleep is not None:
                self._sleep.deadline = deadline

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            now = trio.current_time()
            # A copy, because a channel that ends removes itself from the set.
            next_sweeps = [member.sweep(now) for member in tuple(self._members)]
            self.next_sweep = min(next_sweeps, default=inf)
            with trio.CancelScope(deadline=self.next_sweep) as self._sleep:
                await trio.sleep_forever()
            self._sleep = None
