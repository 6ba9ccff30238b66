"""How slow this core is now: limits of CPU time rise with it."""

import time
from typing import Final

REFERENCE: Final = 0.0125
"""Seconds of CPU that the work below takes on the core for which limits were chosen."""
SLOWEST: Final = 4.0
"""How many times slower than that a core may be. On an even slower one the limits do not rise further."""


def slowness() -> float:
    """Return how many times slower than the reference this core is now: others may share it, or its caches."""
    began = time.thread_time()
    sum(number * number for number in range(200_000))
    return min(max(1.0, (time.thread_time() - began) / REFERENCE), SLOWEST)
