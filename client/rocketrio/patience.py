"""How long a broker is waited for that failed a moment ago and is asked first all the same.

That is a master, for what it alone knows.

Invariant: it is given little time only where somebody else is healthy.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.errors import NotReachable

INSIST_LIMIT: Final = 1.0
"""Seconds: as long as a broker that is asked whether it is back has for its answer (PROBE_TIMEOUT)."""


@contextmanager
def patience(
    found: FindBrokerResult,
    candidates: Iterable[FindBrokerResult],
    is_avoided: Callable[[str], bool],
) -> Iterator[None]:
    """Raises NotReachable when the block took too long; what was asked may have been done."""
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
