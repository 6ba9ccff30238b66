"""What Spark sees of a stream: offsets as text, limits by trigger, a reader that travels; old PySpark versions too."""

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.offsets import MAX_OFFSET, format_offsets
from rocketrio.spark.streaming import reader as stream_reader
from rocketrio.spark.streaming.driver import Limit
from rocketrio.spark.streaming.options import parse_stream_options
from rocketrio.spark.streaming.reader import RocketMQStreamReader
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
def test_limits_go_through_spark_and_once_is_told_apart(
    given: dict[str, str], default: Any, limit: Limit
) -> None:
    reader = _reader(**given)
    assert reader.getDefaultReadLimit() == default
    assert reader._limit(default) == limit
    assert reader._limit(ReadAllAvailable()) == Limit(is_only_batch=True)


def test_nothing_from_start_to_end_asks_nobody() -> None:
    assert _reader().partitions(_offset(4, 5), _offset(4, 5)) == []


@pytest.mark.parametrize(
    "offset",
    [
        {"orders": {"0": 17}},
        {"version": 2, "queues": {}},
        {"version": 1, "queues": {"orders": {"broker-a": {"0": -2}}}},
        [],
    ],
    ids=["kafkas", "newer", "a word for a start", "no object"],
)
def test_a_checkpoint_of_somebody_else_is_refused_with_what_to_do(offset: Any) -> None:
    with pytest.raises(OptionError) as caught:
        _reader().partitions(offset, offset)
    text = json.dumps(offset, separators=(",", ":"))
    assert f"cannot be read: {text!r}. Another source" in str(caught.value)
    assert "new checkpointLocation" in str(caught.value)


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
