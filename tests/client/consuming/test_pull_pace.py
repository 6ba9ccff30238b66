"""Answers that lead nowhere: what they cost the next pull, and a consumer at brokers that give nothing else."""

import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import trio
from tests.support.raw_server import Answer, server_and_client, told
from tests.support.records import plain_record
from trio.testing import MockClock

from rocketrio import Consumer, MessageQueue, open_consumer
from rocketrio.consuming.fetch import EARLY_ENDS_LOGGED
from rocketrio.consuming.pull_pace import (
    EARLY_PAUSE_LIMIT,
    FIRST_PAUSE,
    MOVED_PAUSE_LIMIT,
    SHORTEST_HOLD,
    PullPace,
)

QUEUE = MessageQueue("orders", "broker-a", 0)
ANSWER_TIME = 0.004
"""Virtual seconds that a server takes: without a pause 250 pulls a second would go out."""
START = 5


def test_a_single_move_costs_nothing() -> None:
    pace = PullPace()
    assert pace.moved(100, 50) == 0.0
    pace.advanced(101)  # Beyond where it was: what comes next is another story.
    assert pace.moved(200, 300) == 0.0
    pace.advanced(301)
    assert pace.moved(400, 300) == 0.0


def test_moves_that_lead_nowhere_are_asked_for_ever_more_slowly() -> None:
    pace = PullPace()
    pauses = []
    for number in range(2000):
        pauses.append(pace.moved(7, 7 if number % 2 else 3))
        pace.advanced(7)  # From 3 on there is something, up to where it is moved away again.
    assert pauses[:4] == [0.0, FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses == sorted(pauses)
    assert pauses[-1] == MOVED_PAUSE_LIMIT


def test_a_pull_that_was_held_ends_a_row() -> None:
    pace = PullPace()
    for _ in range(100):
        last = pace.found_nothing(0.0)
    assert last == EARLY_PAUSE_LIMIT
    assert pace.found_nothing(SHORTEST_HOLD) == 0.0
    assert pace.found_nothing(0.0) == 0.0
    assert pace.found_nothing(0.0) == FIRST_PAUSE
    pace.advanced(1)
    assert pace.found_nothing(0.0) == 0.0


def fields(to: int, suggested: int = 0) -> dict[str, int]:
    return {
        "suggestWhichBrokerId": suggested,
        "nextBeginOffset": to,
        "minOffset": 0,
        "maxOffset": 2**62,
    }


def always(code: int, to: Callable[[int], int], *, with_message: bool = False) -> Answer:
    """To a pull from an offset: go on there."""
    suggestions = count()

    def answer(request: dict[str, Any]) -> bytes:
        offset = int(request["extFields"]["queueOffset"])
        body = plain_record(queue_offset=offset) if with_message else b""
        return told(code, fields(to(offset), next(suggestions)), body)(request)

    return answer


FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21
LIES: dict[str, list[Answer]] = {
    "moved to where it is": [always(MOVED, lambda offset: offset)],
    "moved there and back": [always(MOVED, lambda offset: 3 if offset == START else START)],
    "moved on for ever": [always(MOVED, lambda offset: offset + 1)],
    "moved below nothing": [always(MOVED, lambda offset: -1)],
    "a message, and moved back to it": [
        always(MOVED, lambda offset: 6 if offset == START else START),
        always(FOUND, lambda offset: 6 if offset == START else START, with_message=True),
    ] * 5_000,
    "the same message": [always(FOUND, lambda offset: offset, with_message=True)],
    "a message, and back": [always(FOUND, lambda offset: 0, with_message=True)],
    "a message, and below nothing": [always(FOUND, lambda offset: -(2**63), with_message=True)],
    "nothing, with other brokers each time": [always(NOT_FOUND, lambda offset: offset)],
    "nothing, and on": [always(NOT_FOUND, lambda offset: offset + 1)],
    "nothing that fits, and back": [always(RETRY, lambda offset: 0)],
    "nothing that fits": [always(RETRY, lambda offset: offset)],
}  # fmt: skip


async def take_all(consumer: Consumer) -> None:
    async for _ in consumer:
        pass


@pytest.mark.parametrize("lie", LIES)
async def test_broker_whose_answers_lead_nowhere_is_pulled_from_more_slowly(
    autojump_clock: MockClock, lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with server_and_client() as (server, client):
        server.serve_idle(client, START, ANSWER_TIME)
        server.answers[11] = list(LIES[lie])
        async with (
            open_consumer("orders", queues=[QUEUE], group="g", client=client) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(take_all, consumer)
            await trio.sleep(10)
            assert 3 < len(server.of(11)) <= 20
            # And when it comes to its senses, it is served.
            server.held[11] = 1.0
            server.answers[11] = [always(FOUND, lambda offset: offset + 1, with_message=True)]
            before = consumer.statistics().handed_out
            await trio.sleep(MOVED_PAUSE_LIMIT + 1)
            assert consumer.statistics().handed_out > before
            nursery.cancel_scope.cancel()


async def test_a_broker_that_holds_no_pull_is_named_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with server_and_client() as (server, client):
        server.serve_idle(client, START, ANSWER_TIME)
        server.answers[11] = [always(NOT_FOUND, lambda offset: offset)]
        async with open_consumer("orders", queues=[QUEUE], group="g", client=client):
            await trio.sleep(60)
    told_of = [r.getMessage() for r in caplog.records if "pulls are not held" in r.getMessage()]
    assert len(told_of) == 1
    assert f"addr=10.0.0.1:10911 in_a_row={EARLY_ENDS_LOGGED}" in told_of[0]
