"""Brokers that took long to answer a send, and for how long others are preferred.

    a send took at least   50 ms  100 ms  550 ms  1.8 s  3 s  5 s   15 s
    passed over for        -      -       2 s     5 s    6 s  10 s  30 s         (5.x)

A failed send counts as ten seconds (4.x: thirty). All is done without a clock: the caller says what time it is.

Invariant: a broker is never passed over when there is no other: then the one that is first to be fine again is taken.
Answers to: MQFaultStrategy and LatencyFaultToleranceImpl (sendLatencyFaultEnable); RocketMQ reference, section 9.8.
Unlike Java: no broker is probed; and of several that are all passed over the first to be fine again is chosen, not
one of the better half in turn.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue


def _ascending(table: "LatencyTable", _: object, value: Sequence[float]) -> None:
    if list(value) != sorted(value) or any(number < 0 for number in value):
        raise ConfigError(f"a latency table's numbers must rise from 0 on, and are {value!r}")


@attrs.frozen
class LatencyTable:
    """From what a send took to how long its broker is passed over, in seconds."""

    latencies: tuple[float, ...] = attrs.field(validator=_ascending)
    """latencyMax."""
    pauses: tuple[float, ...] = attrs.field(validator=_ascending)
    """notAvailableDuration, one for each of `latencies`."""
    failure: float = 10.0
    """What a send that failed counts as."""

    def __attrs_post_init__(self) -> None:
        if len(self.latencies) != len(self.pauses):
            raise ConfigError("a latency table needs as many pauses as latencies")

    def pause(self, latency: float) -> float:
        """How long to pass over a broker whose answer took `latency`."""
        place = bisect_right(self.latencies, latency)
        return self.pauses[place - 1] if place else 0.0


LATENCIES_4X: Final = LatencyTable(
    (0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0),
    (0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0),
    failure=30.0,
)
LATENCIES_5X: Final = LatencyTable(
    (0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0), (0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0)
)


@attrs.define
class SlowBrokers:
    """Until when each broker is passed over; times are those of the caller's clock."""

    table: LatencyTable
    _until: dict[str, float] = attrs.Factory(dict)

    def answered(self, broker_name: str, *, latency: float, now: float) -> None:
        """A send was answered after `latency` seconds."""
        pause = self.table.pause(latency)
        if pause:
            self._until[broker_name] = now + pause
        elif self._until:
            self._until.pop(broker_name, None)

    def failed(self, broker_name: str, *, now: float) -> None:
        """A send failed, or was not answered."""
        self.answered(broker_name, latency=self.table.failure, now=now)

    def is_slow(self, broker_name: str, *, now: float) -> bool:
        """Whether others are preferred."""
        until = self._until.get(broker_name)
        return until is not None and until > now

    def soonest_fine(self, queues: Iterable[MessageQueue]) -> MessageQueue:
        """Of queues whose brokers are all slow, the one whose broker is first to be fine again; the first of equals."""
        return min(queues, key=lambda queue: self._until.get(queue.broker_name, 0.0))
