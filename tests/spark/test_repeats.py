"""What consumers drop of rows that were written more than once, and what they do not."""

from collections.abc import AsyncIterator
from contextlib import suppress

import attrs
import pytest
import trio
from tests.support.clients import client_of

from rocketrio import Message, open_consumer, open_producer
from rocketrio.spark.repeats import Repeats, drop_repeats, handle_once
from rocketrio.spark.writing.stamps import RowStamp, TaskStamp, row_stamp
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.record.properties import decode_properties


@attrs.frozen
class Stored:
    """As much of a message as is looked at."""

    properties: dict[str, str]
    topic: str = "orders"
    place: int = 0


def row(
    number: int, *, task: int = 0, batch: str = "1", query: str = "q", place: int = 0
) -> Stored:
    encoded = TaskStamp(query, batch, task).encoded() + b"%d\x02" % number
    return Stored(decode_properties(encoded), place=place)


class Given(AsyncIterator[Stored]):
    """Messages, one after the other."""

    def __init__(self, *messages: Stored) -> None:
        self.messages = list(messages)

    async def __anext__(self) -> Stored:
        await trio.lowlevel.checkpoint()
        if not self.messages:
            raise StopAsyncIteration
        return self.messages.pop(0)


def test_stamp_identifies_row_and_job() -> None:
    assert row_stamp(row(7, task=2)) == RowStamp("orders", "q", "1", 2, 7)
    assert row_stamp(row(7, batch="")) == RowStamp("orders", "q", "", 0, 7)
    assert str(row_stamp(row(7, task=2))) == "orders/q/1/2/7"


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"SPARK_QUERY": "q", "SPARK_TASK": "1"},
        {"SPARK_QUERY": "q", "SPARK_TASK": "1", "SPARK_ROW": "x"},
        {"SPARK_QUERY": "q", "SPARK_TASK": "-1", "SPARK_ROW": "1"},
        {"SPARK_TASK": "1", "SPARK_ROW": "1"},
    ],
)
def test_other_messages_have_no_stamp_and_are_never_repeats(properties: dict[str, str]) -> None:
    message = Stored(properties)
    assert row_stamp(message) is None
    seen = Repeats()
    seen.remember(message)
    assert not seen.is_repeat(message)


async def test_each_row_comes_once() -> None:
    rows = [row(number, task=task) for task in range(3) for number in (0, 1, 7, 8, 5000)]
    others = [row(0, batch="2"), row(0, query="p"), attrs.evolve(row(0), topic="other"), Stored({})]
    sent = [*rows, *others, *(attrs.evolve(each, place=1) for each in rows), *others]
    found = [message async for message in drop_repeats(Given(*sent))]
    assert found == [*rows, *others, Stored({})]


async def test_a_row_is_done_when_the_next_is_asked_for() -> None:
    seen = Repeats()
    async for message in drop_repeats(Given(row(0), row(1)), repeats=seen):
        if message == row(1):
            break
    assert seen.is_repeat(row(0))
    assert not seen.is_repeat(row(1))


async def test_a_row_whose_handler_fails_comes_again() -> None:
    calls: list[Stored] = []

    async def fails_first(message: Stored) -> str:
        await trio.lowlevel.checkpoint()
        calls.append(message)
        if len(calls) == 1:
            raise LookupError
        return "done"

    handler = handle_once(fails_first)
    with pytest.raises(LookupError):
        await handler(row(0))
    assert await handler(row(0)) == "done"
    assert await handler(row(0)) is None
    assert len(calls) == 2


@pytest.mark.parametrize("fails", [0, 2])
async def test_repeats_that_come_together_are_handled_one_after_the_other(
    autojump_clock: object, fails: int
) -> None:
    times: list[float] = []

    async def slow(message: Stored) -> None:
        times.append(trio.current_time())
        is_failure = len(times) <= fails
        await trio.sleep(1)
        if is_failure:
            raise LookupError

    async def attempt(place: int) -> None:
        with suppress(LookupError):
            await handler(row(0, place=place))

    handler = handle_once(slow)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for place in range(5):
            nursery.start_soon(attempt, place)
    assert times == [start + number for number in range(fails + 1)]


async def test_other_rows_do_not_wait_for_each_other(autojump_clock: object) -> None:
    async def slow(message: Stored) -> None:
        await trio.sleep(1)

    start = trio.current_time()
    handler = handle_once(slow)
    async with trio.open_nursery() as nursery:
        for message in (row(0), row(1), row(0, task=1), Stored({}), Stored({})):
            nursery.start_soon(handler, message)
    assert trio.current_time() == start + 1


async def test_repeat_is_handled_when_the_other_was_cancelled(autojump_clock: object) -> None:
    calls: list[int] = []

    async def slow(message: Stored) -> None:
        calls.append(message.place)
        await trio.sleep(1)

    handler = handle_once(slow)
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.5):
            async with trio.open_nursery() as cut_off:
                cut_off.start_soon(handler, row(0, place=1))
                await trio.sleep(0.1)
                nursery.start_soon(handler, row(0, place=2))
    assert calls == [1, 2]


def test_what_is_remembered_longest_is_forgotten_first() -> None:
    seen = Repeats(rows_remembered=5000)  # two bitmaps
    for number in (0, 4096, 1, 8192):
        seen.remember(row(number))
    assert [seen.is_repeat(row(number)) for number in (0, 1, 4096, 8192)] == [
        True,
        True,
        False,
        True,
    ]
    with pytest.raises(ConfigError, match="rows_remembered=0"):
        Repeats(rows_remembered=0)


async def test_a_consumer_moves_past_repeats(autojump_clock: object) -> None:
    async with (
        EmbeddedCluster() as cluster,
        client_of(cluster) as client,
    ):
        async with open_producer(client=client) as producer:
            for number in (0, 1, 0, 1, 2):
                message = Message("orders", b"%d" % number, properties=row(number).properties)
                await producer.send(message, sharding_key="same")
        found: list[bytes] = []
        async with open_consumer("orders", group="billing", client=client) as consumer:
            with trio.move_on_after(60):
                async for stored in drop_repeats(consumer):
                    found.append(stored.body)
            committed = [await consumer.committed_offset(queue) for queue in consumer.assignment]
        assert found == [b"0", b"1", b"2"]
        assert 5 in committed
