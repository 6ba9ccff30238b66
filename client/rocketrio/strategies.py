"""Strategies to choose queues by: a group's members share them out, a producer avoids those of slow brokers.

    async with open_consumer("orders", group="billing", strategy=allocate_sticky) as consumer: ...
    async with open_producer(avoid_slow_brokers=LATENCIES_4X) as producer: ...

Most programs keep the defaults.
"""

from rocketrio.consuming.allocate import (
    AllocateStrategy,
    allocate_averagely,
    allocate_averagely_by_circle,
    allocate_by_config,
    allocate_by_consistent_hash,
    allocate_sticky,
)
from rocketrio.producing.slow_brokers import LATENCIES_4X, LatencyTable

__all__ = [
    "LATENCIES_4X",
    "AllocateStrategy",
    "LatencyTable",
    "allocate_averagely",
    "allocate_averagely_by_circle",
    "allocate_by_config",
    "allocate_by_consistent_hash",
    "allocate_sticky",
]


def __dir__() -> list[str]:
    """List the public names; the module's attributes also include others."""
    return __all__
