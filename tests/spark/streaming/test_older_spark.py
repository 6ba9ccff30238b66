"""PySpark 4.0 and 4.1 ask for an end without its start: their orders of calls, and those of Spark's wrapper."""

import json
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.offsets import format_offsets
from rocketrio.spark.streaming.driver import Limit, StreamDriver
from rocketrio.spark.streaming.older_spark import CallOrder
from rocketrio.spark.streaming.options import parse_stream_options
from rocketrio.spark.streaming.reader import RocketMQStreamReader
from rocketrio_protocol.message import MessageQueue

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


def _offset(count: int) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(format_offsets({MessageQueue("orders", "a", 0): count}))
    return value


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> RocketMQStreamReader:
    """One whose driver says that the query starts at 5, and that a batch goes 10 further."""
    options = parse_stream_options({"nameServer": "h:1", "subscribe": "orders"})
    made = RocketMQStreamReader(options, StructType([StructField("queue_offset", LongType())]))

    def ask(question: Any, *args: Any, patience: float = 0.0) -> Any:
        if question is StreamDriver.initial:
            return {MessageQueue("orders", "a", 0): 5}
        assert question is StreamDriver.latest
        start, limit = args
        assert limit == Limit(is_only_batch=True)
        return {queue: at + 10 for queue, at in start.items()}

    monkeypatch.setattr(made, "_ask", ask)
    return made


def test_the_first_batch_starts_where_the_options_say(reader: RocketMQStreamReader) -> None:
    assert reader.latestOffset() == _offset(15)
    assert reader.initialOffset() == _offset(5)
    assert reader.partitions(_offset(15), _offset(15)) == []
    assert reader.latestOffset() == _offset(25), "where the last one ended"


def test_a_restart_goes_on_from_what_is_planned(reader: RocketMQStreamReader) -> None:
    assert reader.partitions(_offset(40), _offset(40)) == []
    assert reader.latestOffset() == _offset(50)
