"""The figures of a measurement: rates, quantiles of latencies, and errors by kind.

Invariant: a quantile is a latency that was measured (nearest rank), and None if none was.
Invariant: a message that failed has no latency, and is counted.
"""

from collections import Counter
from collections.abc import Mapping

import attrs

from rocketrio.admin.round_trips import percentile
from rocketrio_protocol.errors import BrokerError, Error


@attrs.frozen
class Figures:
    """What was measured; latencies are in seconds."""

    what: str
    messages: int
    bytes: int
    seconds: float
    p50: float | None
    p99: float | None
    p999: float | None
    max: float | None
    statuses: Mapping[str, int]
    """How many messages ended in each way: `SEND_OK` and the like, and errors by their class."""
    errors: int
    """How many of them failed."""
    is_whole: bool
    """Whether all messages were measured; an interrupt leaves a part."""

    @property
    def rate(self) -> float | None:
        """Messages per second; None if no time has passed."""
        return self.messages / self.seconds if self.seconds > 0 else None

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes of bodies per second."""
        return self.bytes / self.seconds if self.seconds > 0 else None


@attrs.define
class Recorder:
    """Collects latencies while something is measured."""

    what: str
    filled: int = 0
    """How many messages were stored before, so that there is something to measure."""
    latencies: list[float] = attrs.Factory(list)
    statuses: Counter[str] = attrs.Factory(Counter)
    messages: int = 0
    bytes: int = 0
    errors: int = 0
    began: float | None = None
    ended: float | None = None
    """When the first message was begun, and the last one was done."""
    is_whole: bool = False

    def begin(self, now: float) -> None:
        """Begin the measured time, once."""
        if self.began is None:
            self.began = now

    def add(
        self, now: float, latency: float, size: int, *, status: str = "SEND_OK", count: int = 1
    ) -> None:
        """Add `count` messages that were done now, together `size` bytes of bodies."""
        self.latencies.extend([latency] * count)
        self.messages += count
        self.bytes += size
        self.statuses[status] += count
        self.ended = now

    def fail(self, now: float, error: Error, *, count: int = 1) -> None:
        """Add messages that failed."""
        self.statuses[status_of(error)] += count
        self.errors += count
        self.ended = now

    def figures(self) -> Figures:
        """Return the figures up to now."""
        ordered = sorted(self.latencies)
        seconds = 0.0
        if self.began is not None and self.ended is not None:
            seconds = self.ended - self.began
        return Figures(
            self.what,
            self.messages,
            self.bytes,
            seconds,
            percentile(ordered, 0.5),
            percentile(ordered, 0.99),
            percentile(ordered, 0.999),
            ordered[-1] if ordered else None,
            dict(sorted(self.statuses.items())),
            self.errors,
            self.is_whole,
        )


def due(began: float, rate: float | None, number: int) -> float | None:
    """Return when message `number` should begin at this rate; None if each begins when another one ends."""
    return None if rate is None else began + number / rate


def status_of(error: Error) -> str:
    """Return how an error is counted: by its class, and the code of a broker's answer."""
    name = type(error).__name__
    code = error.code if isinstance(error, BrokerError) else None
    return name if code is None else f"{name} {code}"
