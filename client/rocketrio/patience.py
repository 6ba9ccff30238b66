"""A shorter timeout for a recently failed broker that must still be tried first.

That is a master, for data that it alone has.

Invariant: the timeout is only short if another broker is healthy.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.errors import NotReachable

INSIST_LIMIT: Final = 1.0
"""Seconds: equal to the time that a broker has to answer a probe (PROBE_TIMEOUT)."""


@contextmanager
def patience(
    found: FindBrokerResult,
    candidates: Iterable[FindBrokerResult],
    is_avoided: Callable[[str], bool],
) -> Iterator[None]:
    """Raise NotReachable if the block takes too long; the request may have been executed."""
    is_limited = is_avoided(found.addr) and not all(is_avoided(other.addr) for other in candidates)
    if not is_limited:
        yield
        return
    with trio.move_on_after(INSIST_LIMIT) as waiting:
        yield
    if waiting.cancelled_caught:
        raise NotReachable(
            f"no answer within {INSIST_LIMIT:g} s, and it failed a moment ago",
            broker_addr=found.addr,
        )
