"""Received messages as tables: what they hold, where they leave a consumer, and what a cancel takes."""

import sys
from collections.abc import Sequence
from typing import Any

import polars
import pyarrow as pa
import pytest
import trio
from tests.client.checkpoints import cancelled_at
from tests.client.consuming.pulled import pulled, started, stored
from tests.support.orders import TOPIC, committed, send
from tests.support.records import plain_record

from rocketrio import ClientInstance, MessageExt, Prefetch, open_consumer
from rocketrio.consuming.frames import BLOCK_SIZE, COLUMNS, receive_table, table_of
from rocketrio.consuming.hand_out import HandOut
from rocketrio.consuming.pulled_messages import PulledMessages
from rocketrio.consuming.redelivered import redelivered
from rocketrio_protocol.columns.decode import COLUMN_TYPES
from rocketrio_protocol.errors import ConfigError, RemoteProtocolError
from rocketrio_protocol.message import decode_messages


def says(messages: Sequence[MessageExt], name: str) -> list[Any]:
    if name == "properties":
        return [list(message.properties.items()) for message in messages]
    return [getattr(message, name) for message in messages]


async def test_table_holds_every_message_once_and_in_order_per_queue(
    client: ClientInstance,
) -> None:
    await send(client, 1000)
    numbers: dict[int, list[int]] = {}
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        while sum(map(len, numbers.values())) < 1000:
            table = await consumer.read_arrow(columns=("body", "queue_id"))
            assert table.num_rows
            for body, queue_id in zip(*table.to_pydict().values(), strict=True):
                numbers.setdefault(queue_id, []).append(int(body))
        assert consumer.statistics().handed_out == 1000
    assert numbers == {index: list(range(index, 1000, 4)) for index in range(4)}


async def test_rows_are_in_work_until_the_next_receive(client: ClientInstance) -> None:
    await send(client, 80, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        (queue,) = consumer.assignment
        table = await consumer.read_arrow(20)
        assert (table.num_rows, consumer.position(queue)) == (20, 20)
        assert consumer.statistics().queues[queue].done_offset == 0
        assert (await consumer.receive()).queue_offset == 20
        assert consumer.statistics().queues[queue].done_offset == 20
        table = await consumer.read_arrow(columns=("queue_offset",))
        assert table["queue_offset"].to_pylist() == list(range(21, 80))
        await consumer.commit()
        assert await committed(consumer) == {0: 80}


async def test_cancelled_read_takes_nothing(client: ClientInstance) -> None:
    await send(client, 8)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.CancelScope() as scope:
            scope.cancel()
            await consumer.read_arrow()
        with trio.move_on_after(1):
            await consumer.read_arrow(max_messages=9, max_wait=60)
        assert (await consumer.read_arrow(max_wait=1)).num_rows == 8


async def test_queue_that_has_pulled_all_it_may_ends_the_wait(client: ClientInstance) -> None:
    await send(client, 3000, queues=2)
    async with open_consumer(
        TOPIC, group="g", client=client, prefetch=Prefetch(batch_size=32, queue_messages=200)
    ) as consumer:
        before, rows = trio.current_time(), 0
        while rows < 2500:
            rows += (await consumer.read_arrow(max_wait=60)).num_rows
        assert trio.current_time() - before < 10


def test_columns_equal_the_fields_of_messages() -> None:
    lists = [decode_messages(stored(20), "broker-a"), decode_messages(stored(30), "broker-b")]
    messages = [message for some in lists for message in some]
    table = table_of(lists, ("broker_name", *COLUMN_TYPES))
    assert table.num_rows == 50
    assert table["broker_name"].to_pylist() == ["broker-a"] * 20 + ["broker-b"] * 30
    for name in COLUMNS:
        found = table[name].to_pylist()
        assert found == says(messages, name), name


def test_rows_left_out_of_a_chunk_stay_out() -> None:
    messages = decode_messages(stored(100))
    some = [message for message in messages if message.queue_offset % 5 not in (0, 3)]
    table = table_of([some, some[:1]], ("queue_offset", "broker_name"))
    expected = [message.queue_offset for message in some] + [1]
    assert table["queue_offset"].to_pylist() == expected


def test_what_comes_again_has_the_topic_it_was_sent_to() -> None:
    plain = decode_messages(stored(20))
    again = [redelivered(m) for m in decode_messages(stored(2, topic=b"%RETRY%g"), "broker-a")]
    table = table_of([plain, again, plain], ("topic", "broker_name"))
    assert table["topic"].to_pylist() == ["orders"] * 42
    assert table["broker_name"].to_pylist() == [""] * 20 + ["broker-a"] * 2 + [""] * 20


def test_long_tables_are_made_block_by_block() -> None:
    chunk = decode_messages(stored(20, size=BLOCK_SIZE // 30))
    table = table_of([chunk] * 4, ("queue_offset",))
    assert table["queue_offset"].num_chunks == 2
    assert table["queue_offset"].to_pylist() == [*range(20)] * 4


async def test_rows_that_cannot_be_decoded_stay_with_the_consumer() -> None:
    hand_out, queue = HandOut("g"), started()
    result = pulled(*range(20), next_offset=20)
    damaged = bytearray(result.body)
    damaged[84:88] = b"\x7f\xff\xff\xff"  # The length of the first body.
    result.body = bytes(damaged)
    queue.put(result)
    hand_out.arrived(queue)
    with pytest.raises(RemoteProtocolError, match="body"):
        await receive_table(hand_out, ("body",), 100, 0.0)
    assert (queue.position, queue.message_count) == (0, 20)
    assert (await anext(hand_out)).queue_offset == 0
    table = await receive_table(hand_out, ("queue_offset",), 100, 0.0)
    assert table["queue_offset"].to_pylist() == [*range(1, 20)]


@pytest.mark.parametrize("count", [3, 40])
async def test_body_that_cannot_be_decoded_is_named_with_its_place(count: int) -> None:
    """A few rows are decoded one by one, and many by columns."""
    chunk = stored(count - 1) + plain_record(
        queue_offset=count - 1, sys_flag=1, body=b"POISON", properties=b""
    )
    lists = [decode_messages(chunk, "broker-a")]
    with pytest.raises(RemoteProtocolError) as caught:
        table_of(lists, ("body",))
    assert f"the body of orders@broker-a:3 offset {count - 1} cannot be read" in str(caught.value)
    assert table_of(lists, ("queue_offset", "keys")).num_rows == count


async def test_table_is_what_receive_batch_would_have_given() -> None:
    def ready() -> HandOut:
        hand_out = HandOut("g")
        for chunks in ((3, 2), (1,), (4, 1, 2)):
            queue = started()
            offset = 0
            for count in chunks:
                queue.put(pulled(*range(offset, offset + count), next_offset=offset + count))
                offset += count
            hand_out.arrived(queue)
        return hand_out

    for limit in range(1, 15):
        one, other = ready(), ready()
        batch = await one.receive_batch(limit, 0.0)
        table = await receive_table(other, ("queue_offset",), limit, 0.0)
        assert table["queue_offset"].to_pylist() == [message.queue_offset for message in batch]


async def test_frames_of_pandas_and_polars(client: ClientInstance) -> None:
    await send(client, 40, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        wanted = ("queue_offset", "tags")
        frame = await consumer.read_pandas(20, columns=wanted)
        assert frame.groupby("tags")["queue_offset"].sum().to_dict() == {"even": 90, "odd": 100}
        other = await consumer.read_polars(20, columns=wanted)
        assert other["queue_offset"].to_list() == [*range(20, 40)]


@pytest.mark.parametrize(
    ("library", "method", "extra"),
    [
        ("pyarrow", "read_arrow", "columns"),
        ("pandas", "read_pandas", "pandas"),
        ("polars", "read_polars", "polars"),
    ],
)
async def test_missing_library_names_what_to_install(
    library: str, method: str, extra: str, client: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(client, 4, queues=1)
    monkeypatch.setitem(sys.modules, library, None)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with pytest.raises(ConfigError, match=rf"pip install .*\[{extra}\]'"):
            await getattr(consumer, method)()
        assert (await consumer.receive()).queue_offset == 0


@pytest.mark.parametrize("columns", [5, [5], ("body", "body"), None])
async def test_columns_that_no_frame_could_have_are_refused(columns: Any) -> None:
    with pytest.raises(ConfigError, match="columns="):
        await receive_table(HandOut("g"), columns, 10, 0.0)


async def test_no_rows_make_a_frame_of_all_columns() -> None:
    every = ("broker_name", *COLUMN_TYPES)
    for rows in (0, 5):
        table = table_of([decode_messages(stored(rows))] if rows else [], every)
        assert table.to_pandas().shape == polars.from_arrow(table).shape == (rows, len(every))  # type: ignore[union-attr]


async def test_table_waits_only_for_what_is_on_its_way(
    client: ClientInstance,
) -> None:
    await send(client, 400, queues=1)
    async with open_consumer(
        TOPIC, group="g", prefetch=Prefetch(batch_size=8, queue_messages=300), client=client
    ) as consumer:
        first = await consumer.read_arrow(columns=("queue_offset",))
        assert 290 <= first.num_rows <= 310  # All that may be pulled ahead.
        second = await consumer.read_arrow(columns=("queue_offset",))
        assert first.num_rows + second.num_rows == 400
        await send(client, 1, start=400, queues=1)
        begun = trio.current_time()
        third = await consumer.read_arrow(columns=("queue_offset",))
        assert (third.num_rows, trio.current_time()) == (1, begun)


@pytest.mark.parametrize("columns", [("body", "bodi"), (), "body"])
async def test_wrong_columns_are_refused_before_anything_is_received(columns: Any) -> None:
    with pytest.raises(ConfigError, match="not a column; available: broker_name, topic"):
        await receive_table(HandOut("g"), columns, 10, 0.0)


async def test_a_former_name_of_a_column_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"store_timestamp is not a column; available: .* store_time,"
    ):
        await receive_table(HandOut("g"), ("store_timestamp",), 10, 0.0)


def test_types_are_those_of_the_list_of_columns() -> None:
    table = table_of([decode_messages(stored(3)), decode_messages(stored(40))], COLUMNS)
    known = {"broker_name": pa.string(), **COLUMN_TYPES}
    assert {field.name: field.type for field in table.schema} == {n: known[n] for n in COLUMNS}


async def test_after_a_table_messages_are_made_when_they_are_asked_for() -> None:
    hand_out, queue = HandOut("g"), started()

    def pull(first: int) -> None:
        queue.put(pulled(*range(first, first + 50), next_offset=first + 50))
        hand_out.arrived(queue)

    async def table(rows: int) -> list[int]:
        read = await receive_table(hand_out, ("queue_offset",), rows, 0.0)
        return [int(value) for value in read["queue_offset"].to_pylist()]

    pull(0)
    assert await table(50) == [*range(50)]
    for first in (50, 100, 150, 200):
        pull(first)
    assert isinstance(queue.chunks[0].messages, PulledMessages)
    assert await table(10) == [*range(50, 60)]
    assert queue.position == 60
    batch = await hand_out.receive_batch(45, 0.0)
    assert [message.queue_offset for message in batch] == [*range(60, 105)]
    assert batch[0].body == batch[-1].body == b"x" * 100
    assert await table(20) == [*range(105, 125)]
    assert [(await anext(hand_out)).queue_offset for _ in range(30)] == [*range(125, 155)]
    assert not queue.is_lazy
    pull(250)
    assert isinstance(queue.chunks[-1].messages, list)
    assert await table(1000) == [*range(155, 300)]
    hand_out.settle()
    assert (queue.position, queue.done_offset, queue.message_count) == (300, 300, 0)


async def test_handlers_get_messages_that_were_pulled_for_tables() -> None:
    queue = started()
    queue.is_lazy = True
    queue.put(pulled(0, 1, 2, next_offset=3))
    offsets = []
    while (work := queue.begin()) is not None:
        offsets.append(work.given.queue_offset)
        queue.done(work)
    assert offsets == [0, 1, 2]
    assert queue.done_offset == 3


async def test_reading_cancelled_anywhere_takes_nothing(client: ClientInstance) -> None:
    await send(client, 100, queues=2)
    received: list[int] = []
    async with open_consumer(
        TOPIC, group="g", client=client, prefetch=Prefetch(batch_size=3)
    ) as consumer:

        async def table() -> None:
            rows = await consumer.read_arrow(4, max_wait=0.2, columns=("body",))
            received.extend(int(body) for body in rows["body"].to_pylist())

        async def value() -> None:
            received.append(await anext(consumer.values(lambda message: message.json(int))))

        for work in (table, value, table):
            number = 1
            while await cancelled_at(number, work):
                number += 1
            assert number > 1 or work is value  # Which is at hand most times.
        while len(received) < 100:
            await table()
    assert sorted(received) == list(range(100))


def test_frames_hold_the_columns_of_default_too() -> None:
    table = table_of([decode_messages(stored(30), "broker-a")], COLUMNS)
    frame, polars_frame = table.to_pandas(), polars.from_arrow(table)
    assert list(frame.columns) == list(polars_frame.columns) == list(COLUMNS)
    assert frame["properties"][3] == says(decode_messages(stored(4)), "properties")[3]
    assert polars_frame["body"][3] == frame["body"][3] == b"00000003"
    assert str(frame["born_time"].dtype) == "datetime64[us, UTC]"
