"""Gives a broker a standing without what leads to it, for tests of what the standing allows."""

from rocketrio_broker.broker import Broker
from rocketrio_broker.role.standing import Standing


def force(
    broker: Broker, standing: Standing, reason: str = "", *, other: str | None = None
) -> None:
    """Set what everybody sees; store, gate and registration stay as they are."""
    current = broker.state.standing
    current.now, current.reason, current.other = standing, reason, other
    current.changes.advance(current.changes.value + 1)
