"""The last events of a broker, for `rocketrio cluster events`: log lines of INFO and above whose event is in a list.

All brokers of a process share the loggers, so each of them has the events of all.

Invariant: the ring holds EVENTS_LIMIT events at most, and ONE_EVENT_LIMIT of one kind of line, so that one that is
logged very often leaves the others room.
"""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

from rocketrio_protocol.bodies.events import LoggedEvent
from rocketrio_protocol.log_lines import fields_of, json_value

EVENTS_LIMIT: Final = 1000
ONE_EVENT_LIMIT: Final = 100
VALUE_SIZE_LIMIT: Final = 200
"""Characters of one value of an event: 1,000 events take about a megabyte at most."""
LOGGER: Final = "rocketrio_broker"

_KINDS: Final = {
    "process": (
        "serving",
        "stopping",
        "recovered",
        "config file not written",
        "config file can be written again",
        "config file unreadable",
        "hosts beyond this one can reach it and it lacks protection",
    ),
    "role": (
        "another broker has taken over",
        "another master of this name takes writes, this one follows it",
        "an epoch begins without asking",
        "epoch begins",
        "a second history has begun",
        "hand-over begins",
        "handed over",
        "not handed over",
        "no writes are taken",
        "no writes are taken until a peer can be asked",
        "no writes are taken until there is room",
        "outcome of a hand-over",
        "outcome of a hand-over is not known, asking",
        "remains a slave",
        "role changed",
        "stops without a hand-over",
        "the name is taken at a name server",
        "the role is not kept",
        "the role is not kept for the next start",
        "writes are taken",
    ),
    "replication": (
        "a slave is longer than this log and was not followed",
        "connected",
        "copied from the master",
        "copying from the master",
        "damaged records at the log's end are replaced by another broker's",
        "divergent tail cut off",
        "fetched from a slave",
        "readers see what slaves have again",
        "readers see what too few slaves have",
        "replication continues",
        "replication source",
        "replication waits",
        "sends are replicated as required again",
        "sends stored without the required replication",
        "slave connected",
        "slave disconnected",
        "slave follows",
        "slave has caught up",
        "slave stays behind",
        "tables are as the master's",
        "tables not copied, will retry",
        "the end of this log was not repaired",
        "the log is dropped and copied again",
        "this log is shorter than a slave's, getting what it lacks",
    ),
    "log": (
        "acknowledged addresses damaged",
        "consume queue write",
        "deleted before time",
        "epochs damaged",
        "epochs forgotten",
        "epochs recovered",
        "index file dropped",
        "index resumed",
        "index stopped",
        "log check found",
        "log checked",
        "log damaged",
        "log end cut",
        "log end torn",
        "log file deleted",
        "record without queue",
        "recovery from earlier",
    ),
    "disk": (
        "disk fills",
        "disk has room again",
        "disk nearly full",
        "no room",
        "preallocation failed",
        "retention failed",
        "room again",
        "the epoch file cannot be written",
        "the epoch file cannot be written, answers wait",
    ),
    "clock": ("clock jumped", "store time ahead", "store time caught up"),
    "offsets": (
        "commits not in the offset journal",
        "consumer offset lay beyond the queue's end",
        "consumer offset lowered",
        "consumer offset set back",
        "consumer offsets were changed by another program",
        "messages that groups had read are not in the log",
        "offset journal damaged",
        "offsets taken over",
    ),
    "groups": (
        "client silent",
        "consumer group refused",
        "dead letter",
        "groups created",
        "static member away",
        "static member back",
        "static member gone",
        "too many members away",
    ),
    "topics": ("topic created", "topic deleted", "topic has too many queues", "topics created"),
    "messages": (
        "delayed message cannot be delivered",
        "half message can neither be checked nor moved",
        "half message is not in the log any more",
        "transaction given up",
    ),
    "registration": (
        "another broker has this one's id too, and the master gives no other",
        "another broker has this one's id too, this one changes it",
        "cannot register, will retry",
        "registered",
        "registered in part",
    ),
    "access": (
        "access control is on and there is no user",
        "refused",
        "users changed",
        "users copied",
        "users loaded",
        "users loaded again",
        "users not loaded, the former ones stay",
    ),
}
KINDS: Final = {event: kind for kind, events in _KINDS.items() for event in events}
"""The kind of each event that is kept; `tests/test_events.py` checks that the source logs them."""


class EventRing(logging.Handler):
    """A handler that keeps the last events."""

    def __init__(self, name: str) -> None:
        """Create it; `name` differs from that of every other ring, so that readers see that their numbers are void."""
        super().__init__(logging.INFO)
        self.name_of_ring = name
        self._numbers = count(1)
        self._next = 1
        self._by_event: dict[str, deque[LoggedEvent]] = {}
        self._size = 0

    def __repr__(self) -> str:
        return f"<EventRing {self._size} events>"

    @property
    def next_number(self) -> int:
        """The number of the next event; they begin with 1."""
        return self._next

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the event of a record, if it is in the list."""
        found = fields_of(record)
        kind = None if found is None else KINDS.get(found[0])
        if found is None or kind is None:
            return
        event, fields = found
        number = next(self._numbers)
        self._next = number + 1
        values = {key: _short(json_value(spec, value)) for key, spec, value in fields}
        kept = self._by_event.setdefault(event, deque(maxlen=ONE_EVENT_LIMIT))
        self._size += len(kept) < ONE_EVENT_LIMIT
        kept.append(
            LoggedEvent(
                number,
                round(record.created * 1000),
                record.levelname,
                kind,
                event,
                record.name,
                values,
            )
        )
        if self._size > EVENTS_LIMIT:
            oldest = min(self._by_event.values(), key=lambda each: each[0].number)
            if len(oldest) == 1:
                del self._by_event[oldest[0].event]
            oldest.popleft()
            self._size -= 1

    def since(
        self,
        *,
        after: int = 0,
        since_ms: int = 0,
        kinds: Collection[str] = (),
        limit: int = EVENTS_LIMIT,
    ) -> list[LoggedEvent]:
        """Return the oldest events with a higher number than `after` that happened at `since_ms` or later."""
        found = [
            event
            for events in list(self._by_event.values())
            for event in list(events)
            if event.number > after
            and event.time_ms >= since_ms
            and (not kinds or event.kind in kinds)
        ]
        return sorted(found, key=lambda event: event.number)[:limit]

    @asynccontextmanager
    async def attached(self) -> AsyncGenerator[None]:
        """Keep events while the body runs; asynchronous so that it stands among what a broker opens."""
        logger = logging.getLogger(LOGGER)
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)


def _short(value: object) -> object:
    is_long = isinstance(value, str) and len(value) > VALUE_SIZE_LIMIT
    return f"{str(value)[:VALUE_SIZE_LIMIT]}..." if is_long else value
