"""What a story did to the pair, and what that may cost; whatever is not said here is a promise.

    what a fault takes                          whose answers had nothing else to rely on
    COPY    what only the master had            those of a master that waits for no slave
    CACHE   one broker's page cache             those of a master that waits for neither slave nor disk
    CACHES  the page caches of both             those of a master that waits for no disk

Such an answer may be lost if it came in the last second before the fault, or while the fault lasted. Nothing excuses a
whole round, and nothing excuses a mode.
"""

from enum import Enum
from math import inf
from typing import Final, Literal

import attrs
import trio

Mode = Literal["async", "async-sync", "sync-mem", "money"]
WAITS_FOR_SLAVE: Final[frozenset[Mode]] = frozenset({"sync-mem", "money"})
WAITS_FOR_DISK: Final[frozenset[Mode]] = frozenset({"async-sync", "money"})

LAST: Final = 1.0
"""Seconds: what was answered longer ago has reached the slave, and the disk."""
ON_THE_WAY: Final = 0.5
"""Seconds from an answer until it is noted here; a story that kills a broker lets nothing else run meanwhile."""
COPIED: Final = 3.5
"""Seconds after which progress is committed and known to the slave: each takes a second, and more under load."""
WRITTEN: Final = 12.0
"""Seconds after which progress is on the disk: a broker writes that of groups every five and that of delayed messages
every ten, and a slave to which a copy did not come asks again after as many."""
SETTLED: Final = 10.0
"""Seconds after a story until all is as before it; routes may be older, until clients ask for them again."""


class Loss(Enum):
    """What a fault takes with it."""

    COPY = "copy"
    CACHE = "cache"
    CACHES = "caches"

    def costs(self, mode: Mode) -> bool:
        """Whether an answer in this mode may have relied on that alone."""
        waits_for_slave, waits_for_disk = mode in WAITS_FOR_SLAVE, mode in WAITS_FOR_DISK
        if self is Loss.COPY:
            return not waits_for_slave
        if self is Loss.CACHE:
            return not waits_for_slave and not waits_for_disk
        return not waits_for_disk


@attrs.define
class Faults:
    """Those of one round, with their times."""

    mode: Mode
    began: float = inf
    """When the first one began."""
    ended: float = inf
    """When the story was over."""
    forgets: float = COPIED
    """The progress of how many seconds before may be forgotten."""
    exposed: list[tuple[float, float]] = attrs.Factory(list)
    """From when to when answers may have relied on what was lost."""

    def begin(self) -> float:
        """Note a fault that begins now."""
        now = trio.current_time()
        self.began = min(self.began, now)
        return now

    def lose(self, loss: Loss, *, since: float) -> None:
        """Note a loss that is complete now, by a fault that began at `since`."""
        if loss.costs(self.mode):
            self.exposed.append((since - LAST, trio.current_time() + ON_THE_WAY))
        if loss is Loss.CACHES:
            self.forget_unwritten()

    def forget_unwritten(self) -> None:
        """Note that progress is taken from a disk: the broker that has it next knows what was written."""
        self.forgets = WRITTEN

    def may_lose(self, answered: float) -> bool:
        """Whether what was answered at this time may be gone."""
        return any(begin <= answered <= end for begin, end in self.exposed)

    @property
    def forgotten_from(self) -> float:
        """What happened before this time is known to the master after the story."""
        return self.began - self.forgets

    @property
    def settled(self) -> float:
        """What happens after this time has nothing to do with the story."""
        return self.ended + SETTLED
