"""The last events of a broker: the body of the answer to 71002, a rocketrio extension."""

from typing import Any

import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.frame import Body


class LoggedEvent(msgspec.Struct, rename="camel"):
    """One event."""

    number: int
    """Rises from event to event, until the broker starts again."""
    time_ms: int
    level: str
    kind: str
    event: str
    logger: str
    values: dict[str, Any]
    """The values of its log line: text, numbers, booleans, and None for what is unknown."""


def events_to_json(events: list[LoggedEvent]) -> bytes:
    """Return the body."""
    return msgspec.json.encode(events)


def events_from_json(body: Body) -> list[LoggedEvent]:
    """Read a body. Raises RemoteProtocolError."""
    return fastjson.loads(body, list[LoggedEvent], what="events")
