"""File descriptors: how many this process may have, and how many of them connections may take.

The operating system gives a new socket the lowest number that is free, so a number at or above the limit for
connections shows that as many descriptors are in use, by whatever ports and parts of the process.
"""

import resource
from typing import Final

import attrs

RESERVED: Final = 512
"""Descriptors that connections of clients leave: to the store and its tables, to slaves, the page of metrics, and this
process's own connections. Half of the limit, if it is below 1,024."""

ENOUGH: Final = 12_000
"""Descriptors with which the default limit of connections and a large store fit."""


@attrs.frozen
class DescriptorLimit:
    """The limits of this process."""

    soft: int
    hard: int

    @property
    def for_connections(self) -> int:
        """The number from which on a new descriptor is not for a client."""
        return self.soft - min(RESERVED, self.soft // 2)


def descriptor_limit() -> DescriptorLimit:
    """Return the limits as they are now."""
    return DescriptorLimit(*resource.getrlimit(resource.RLIMIT_NOFILE))


def raise_descriptor_limit() -> DescriptorLimit:
    """Let this process have as many descriptors as the operating system allows it; return the limits then."""
    limit = descriptor_limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit.hard, limit.hard))
    return descriptor_limit()
