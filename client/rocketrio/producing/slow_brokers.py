"""Records which brokers answered sends late, and for how long other brokers are preferred.

    a send took at least   50 ms  100 ms  550 ms  1.8 s  3 s  5 s   15 s
    avoided for            -      -       2 s     5 s    6 s  10 s  30 s         (5.x)

A failed send counts as ten seconds (4.x: thirty). Nothing here reads a clock: the caller passes the time.

Invariant: if all brokers are avoided, the one whose pause ends first is used.
Answers to: MQFaultStrategy and LatencyFaultToleranceImpl (sendLatencyFaultEnable); RocketMQ reference, section 9.8.
Unlike Java: brokers are not probed; and if all are avoided, the one whose pause ends first is chosen, not one of the
better half in turn.
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
    """Maps the duration of a send to how long its broker is avoided, in seconds."""

    latencies: tuple[float, ...] = attrs.field(validator=_ascending)
    """latencyMax."""
    pauses: tuple[float, ...] = attrs.field(validator=_ascending)
    """notAvailableDuration, one for each of `latencies`."""
    failure: float = 10.0
    """The duration that a failed send counts as."""

    def __attrs_post_init__(self) -> None:
        if len(self.latencies) != len(self.pauses):
            raise ConfigError("a latency table needs as many pauses as latencies")

    def pause(self, latency: float) -> float:
        """Return how long to avoid a broker whose answer took `latency` seconds."""
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
    """Until when each broker is avoided; times are those of the caller's clock."""

    table: LatencyTable
    _until: dict[str, float] = attrs.Factory(dict)

    def answered(self, broker_name: str, *, latency: float, now: float) -> None:
        """Note that a send was answered after `latency` seconds."""
        pause = self.table.pause(latency)
        if pause:
            self._until[broker_name] = now + pause
        elif self._until:
            self._until.pop(broker_name, None)

    def failed(self, broker_name: str, *, now: float) -> None:
        """Note that a send failed, or was not answered."""
        self.answered(broker_name, latency=self.table.failure, now=now)

    def is_slow(self, broker_name: str, *, now: float) -> bool:
        """Return whether other brokers are preferred."""
        until = self._until.get(broker_name)
        return until is not None and until > now

    def first_to_recover(self, queues: Iterable[MessageQueue]) -> MessageQueue:
        """Return the queue whose broker's pause ends first, the first of equals; all brokers must be slow."""
        # Also with all brokers slow a message must go somewhere.
        return min(queues, key=lambda queue: self._until.get(queue.broker_name, 0.0))
