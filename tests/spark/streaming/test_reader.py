"""What Spark sees of a stream: offsets as text, limits by trigger, a reader that travels; old PySpark versions too."""

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.offsets import MAX_OFFSET, format_offsets
from rocketrio.spark.streaming import reader as stream_reader
from rocketrio.spark.streaming.driver import Limit, StreamDriver
from rocketrio.spark.streaming.options import parse_stream_options
from rocketrio.spark.streaming.reader import CallOrder, RocketMQStreamReader
from rocketrio_protocol.message import MessageQueue

_limits = pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.2 has limits")
ReadAllAvailable, ReadMaxRows = _limits.ReadAllAvailable, _limits.ReadMaxRows
ReadMaxBytes = _limits.ReadMaxBytes

SCHEMA = StructType([StructField("queue_offset", LongType())])


def _reader(**given: str) -> RocketMQStreamReader:
    options = parse_stream_options({"nameServer": "h:1", "subscribe": "orders", **given})
    return RocketMQStreamReader(options, SCHEMA)


def _offset(*counts: int) -> dict[str, Any]:
    table = {MessageQueue("orders", "broker-a", n): count for n, count in enumerate(counts)}
    value: dict[str, Any] = json.loads(format_offsets(table))
    return value


@pytest.mark.parametrize(
    ("given", "default", "limit"),
    [
        ({}, ReadMaxRows(MAX_OFFSET), Limit(MAX_OFFSET)),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5), Limit(5)),
        ({"maxBytesPerTrigger": "7"}, ReadMaxBytes(7), Limit(None, 7)),
        ({"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "7"}, ReadMaxRows(5), Limit(5, 7)),
    ],
)
def test_limits_pass_through_spark_and_trigger_once_is_distinguished(
    given: dict[str, str], default: Any, limit: Limit
) -> None:
    reader = _reader(**given)
    assert reader.getDefaultReadLimit() == default
    assert reader._limit(default) == limit
    assert reader._limit(ReadAllAvailable()) == Limit(is_only_batch=True, is_surely_last=True)
    assert reader._limit(None) == Limit(is_only_batch=True)


def test_empty_range_sends_no_request() -> None:
    assert _reader().partitions(_offset(4, 5), _offset(4, 5)) == []


@pytest.mark.parametrize(
    "offset",
    [
        {"orders": {"0": 17}},
        {"version": 2, "queues": {}},
        {"version": 1, "queues": {"orders": {"broker-a": {"0": -2}}}},
        [],
        {"version": 1, "queues": {}, "incarnations": {"orders": {"broker-a": {"0": -1}}}},
    ],
    ids=["kafkas", "newer", "a word for a start", "no object", "no incarnation"],
)
def test_checkpoint_of_another_source_is_refused_with_what_to_do(offset: Any) -> None:
    with pytest.raises(OptionError) as caught:
        _reader().partitions(offset, offset)
    text = json.dumps(offset, separators=(",", ":"))
    assert f"cannot be read: {text!r}. Another source" in str(caught.value)
    assert "new checkpointLocation" in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "planned"),
    [(0, 1, [(0, 5)]), (None, 1, []), (1, 1, []), (1, None, [])],
)
def test_batch_that_ends_in_another_topic_of_the_name_reads_it_from_its_beginning(
    before: int | None, after: int | None, planned: list[tuple[int, int]], monkeypatch: Any
) -> None:
    """A checkpoint of an earlier release names no topic."""
    reader = _reader(failOnDataLoss="false")
    found: list[tuple[int, int]] = []

    def ranges(self: StreamDriver, *args: Any) -> list[Any]:
        found.extend((part.start, part.end) for part in planned_as_usual(self, *args))
        return []

    planned_as_usual = StreamDriver.ranges
    monkeypatch.setattr(StreamDriver, "ranges", ranges)
    queue = MessageQueue("orders", "broker-a", 0)
    start, end = (
        json.loads(
            format_offsets({queue: at}, incarnations={} if number is None else {queue: number})
        )
        for at, number in ((5, before), (5, after))
    )
    reader.partitions(start, end)
    assert found == planned


def test_checkpoint_keeps_which_queues_were_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if nothing else is new: a restart would wait for their brokers."""
    reader = _reader()
    queue = MessageQueue("orders", "broker-a", 1)

    def ask(question: Any, table: Any, *args: Any, extra_timeout: float = 0.0) -> Any:
        reader._state()._watch.let_go.add(queue)
        return table

    monkeypatch.setattr(reader, "_ask", ask)
    end = reader.latestOffset(_offset(4, 5), ReadMaxRows(9))
    assert end == {**_offset(4, 5), "retired": {"orders": {"broker-a": {"1": 5}}}}
    assert reader.latestOffset(end, ReadMaxRows(9)) is end
    later = _reader()
    monkeypatch.setattr(later, "_ask", lambda question, table, *args, extra_timeout=0.0: table)
    assert later.latestOffset(end, ReadMaxRows(9)) is end
    assert later._state().let_go({queue: 5}) == {queue: 5}


def test_a_reader_travels_without_what_it_is_doing() -> None:
    reader = _reader()
    reader.partitions(_offset(4), _offset(4))
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._options == reader._options
    assert copy._driver is None


def test_before_the_first_poll_there_is_no_newest_offset() -> None:
    assert _reader().reportLatestOffset() is None


def test_old_versions_refuse_what_they_cannot_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "HAS_LIMITS", False)
    _reader()
    for option in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"):
        with pytest.raises(OptionError, match=r"need PySpark 4\.2"):
            _reader(**{option: "5"})


END, START, PLAN = "latestOffset", "initialOffset", "partitions"


def _play(calls: list[str]) -> list[bool]:
    """For each question about an end: whether it is that of a fresh query."""
    order, fresh = CallOrder(), []
    for call in calls:
        if call == END:
            fresh.append(order.asked_for_end())
        elif call == START:
            order.asked_for_start()
        else:
            order.planned()
    return fresh


@pytest.mark.parametrize(
    ("calls", "fresh"),
    [
        pytest.param([END, START, PLAN, END, END, PLAN, END], [True, False, False, False], id="fresh"),
        pytest.param([PLAN, END, PLAN, END], [False, False], id="restart"),
        pytest.param([PLAN, START, PLAN, END, PLAN], [False], id="batch 0 once more"),
        pytest.param([PLAN, PLAN, END, PLAN], [False], id="another batch once more"),
    ],
)  # fmt: skip
def test_a_fresh_query_is_known_by_its_first_question(calls: list[str], fresh: list[bool]) -> None:
    assert _play(calls) == fresh


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([END, START, END], id="fresh"),
        pytest.param([END, PLAN], id="restart"),
        pytest.param([END, END], id="asked twice"),
    ],
)
def test_spark_s_wrapper_is_refused_before_anything_is_read(calls: list[str]) -> None:
    assert _play(calls[:-1])
    with pytest.raises(OptionError, match=r"AvailableNowWrapper.* needs PySpark 4\.2"):
        _play(calls)


# ------------------------------------------------------------------------------- the whole reader


@pytest.fixture
def older_reader(monkeypatch: pytest.MonkeyPatch) -> RocketMQStreamReader:
    """One whose driver says that the query starts at 5, and that a batch goes 10 further."""
    made = _reader()

    def ask(question: Any, *args: Any, extra_timeout: float = 0.0) -> Any:
        if question is StreamDriver.initial:
            return {MessageQueue("orders", "broker-a", 0): 5}
        assert question is StreamDriver.latest
        start, limit = args
        assert limit == Limit(is_only_batch=True)
        return {queue: at + 10 for queue, at in start.items()}

    monkeypatch.setattr(made, "_ask", ask)
    return made


def test_the_first_batch_starts_where_the_options_say(older_reader: RocketMQStreamReader) -> None:
    assert older_reader.latestOffset() == _offset(15)
    assert older_reader.initialOffset() == _offset(5)
    assert older_reader.partitions(_offset(15), _offset(15)) == []
    assert older_reader.latestOffset() == _offset(25), "where the last one ended"


def test_restart_continues_from_what_is_planned(older_reader: RocketMQStreamReader) -> None:
    assert older_reader.partitions(_offset(40), _offset(40)) == []
    assert older_reader.latestOffset() == _offset(50)
