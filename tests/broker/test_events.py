"""The ring of a broker's last events, and the request for it."""

import logging

import pytest
from tests.broker.processors.asking import asking

from rocketrio_broker.events import EVENTS_LIMIT, KINDS, ONE_EVENT_LIMIT, EventRing
from rocketrio_protocol.bodies.events import events_from_json
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import GetEventsRequestHeader, GetEventsResponseHeader

log = logging.getLogger("rocketrio_broker.test")


def record(
    form: str, *args: object, level: int = logging.INFO, at: float = 1.0
) -> logging.LogRecord:
    made = logging.LogRecord("rocketrio_broker.test", level, "here.py", 1, form, args, None)
    made.created = at
    return made


def test_ring_keeps_listed_events_with_their_values() -> None:
    ring = EventRing("r")
    ring.emit(record("role changed role=%s id=%d", "slave", 1, at=2.5))
    ring.emit(record("consumer connected group=%s", "g"))
    ring.emit(record("%s is no event", "this"))
    ring.emit(record("disk nearly full path=%s used_percent=%.1f", "x" * 1000, 93.14159))
    first, second = ring.since()
    assert (first.number, first.time_ms, first.kind, first.event) == (
        1,
        2500,
        "role",
        "role changed",
    )
    assert first.values == {"role": "slave", "id": 1}
    assert second.number == 2
    assert second.values["used_percent"] == 93.1
    assert len(second.values["path"]) < 300
    assert ring.next_number == 3


def test_one_event_leaves_room_for_others() -> None:
    ring = EventRing("r")
    ring.emit(record("role changed role=%s", "slave"))
    for number in range(5 * EVENTS_LIMIT):
        ring.emit(record("consumer offset lowered group=%s", str(number)))
    events = [event.event for event in ring.since()]
    assert events.count("role changed") == 1
    assert events.count("consumer offset lowered") == ONE_EVENT_LIMIT


def test_full_ring_drops_the_oldest() -> None:
    ring, names = EventRing("r"), sorted(KINDS)[:20]
    for number in range(EVENTS_LIMIT + 300):
        ring.emit(record(f"{names[number % len(names)]} number=%d", number))
    kept = ring.since(limit=2 * EVENTS_LIMIT)
    assert [event.number for event in kept] == list(range(301, EVENTS_LIMIT + 301))


def test_events_are_chosen_by_number_time_and_kind() -> None:
    ring = EventRing("r")
    ring.emit(record("role changed role=%s", "slave", at=1))
    ring.emit(record("clock jumped by=%s", "1 h", at=2))
    ring.emit(record("role changed role=%s", "master", at=3))
    assert [event.number for event in ring.since(after=1)] == [2, 3]
    assert [event.number for event in ring.since(since_ms=3000)] == [3]
    assert [event.number for event in ring.since(kinds=["role"])] == [1, 3]
    assert [event.number for event in ring.since(limit=1)] == [1]


async def test_broker_answers_with_its_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with asking() as one:
        answer = await one.ask(GetEventsRequestHeader())
        header = answer.header(GetEventsResponseHeader)
        events = events_from_json(answer.body)
        assert answer.code == ResponseCode.SUCCESS
        assert {"recovered", "serving"} <= {event.event for event in events}
        assert header.next_offset == events[-1].number + 1
        log.warning("clock jumped by=%s in_all=%s", "1 h", None)
        later = await one.ask(GetEventsRequestHeader(after_offset=events[-1].number, kinds="clock"))
        (event,) = events_from_json(later.body)
        assert event.values == {"by": "1 h", "in_all": None}
        assert later.header(GetEventsResponseHeader).ring == header.ring
    log.warning("clock jumped by=%s", "after the end")
