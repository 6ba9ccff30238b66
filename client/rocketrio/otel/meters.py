"""The metrics of OpenTelemetry's conventions for messaging, beside the spans and with the same names.

messaging.client.operation.duration    sends, receives that gave messages, and what settles messages
messaging.process.duration             handlers
messaging.client.sent.messages         messages of sends, stored or not
messaging.client.consumed.messages     messages that were given
"""

from collections.abc import Mapping
from typing import Final

from opentelemetry.metrics import Meter

from rocketrio.otel import attributes as names
from rocketrio.otel.attributes import Attributes, Value

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_KEPT: Final = (
    names.SYSTEM,
    names.OPERATION_NAME,
    names.OPERATION_TYPE,
    names.DESTINATION_TEMPLATE,
    names.DESTINATION,
    names.GROUP,
)
"""What few values are known of; the name of a topic is replaced by its template if it has one."""


class Meters:
    """The instruments of one meter."""

    def __init__(self, meter: Meter) -> None:
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of messaging operations.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._handlers = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of handlers.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that were to be sent."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were given."
        )

    def ended(self, span: Mapping[str, Value], seconds: float, error: str | None = None) -> None:
        """Record an operation with the attributes of its span; `error` is the type of what it raised."""
        found = _kept(span)
        if error is not None:
            found[names.ERROR_TYPE] = error
        kind, count = span[names.OPERATION_TYPE], span.get(names.MESSAGE_COUNT, 1)
        if kind == "process":
            self._handlers.record(seconds, found)
            return
        self._operations.record(seconds, found)
        if kind == "send" and isinstance(count, int):
            self._sent.add(count, found)
        elif kind == "receive" and isinstance(count, int):
            self._consumed.add(count, found)


def _kept(span: Mapping[str, Value]) -> Attributes:
    found = {name: span[name] for name in _KEPT if name in span}
    if names.DESTINATION_TEMPLATE in found:
        found.pop(names.DESTINATION, None)
    return found
