"""A limit that several hosts share, of which no single host gets more than its share.

A client that fills a table of a server does so from some host: other hosts still find room.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Final

HOST_SHARE: Final = 0.5
"""The part of a limit that one host may use."""


class HostShare:
    """How much of a limit is used, in total and by each host."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._by_host: Counter[Hashable] = Counter()

    def __repr__(self) -> str:
        return f"<HostShare {self.used} of {self.limit}>"

    def room(self, host: Hashable) -> int:
        """Return how much more this host may use."""
        own = int(self.limit * HOST_SHARE) - self._by_host[host]
        return min(self.limit - self.used, own)

    def take(self, host: Hashable, size: int = 1) -> None:
        """Note that this host uses `size` more."""
        self.used += size
        self._by_host[host] += size
        if not self._by_host[host]:
            del self._by_host[host]

    def give_back(self, host: Hashable, size: int = 1) -> None:
        """Note that this host uses `size` less."""
        self.take(host, -size)

    def host_count(self) -> int:
        """Return how many hosts use a part of it; hosts that use nothing are not remembered."""
        return len(self._by_host)
