"""Lag by queue, from every shape in which Spark hands out a progress."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from rocketrio.spark.reading.offsets import format_offsets
from rocketrio.spark.streaming.progress import lag_by_queue
from rocketrio_protocol.message import MessageQueue

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
END, LATEST = format_offsets({A0: 10, A1: 5}), format_offsets({A0: 17, A1: 5})


def _dicts(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"sources": [{name: json.loads(text) for name, text in s.items()} for s in sources]}


def _objects(*sources: dict[str, Any]) -> Any:
    return SimpleNamespace(sources=[SimpleNamespace(**source) for source in sources])


def _printed(*sources: dict[str, Any]) -> Any:
    """As PySpark 4.0 and 4.1 put the dicts of the JSON into text."""
    return _objects(*[{name: str(json.loads(text)) for name, text in s.items()} for s in sources])


@pytest.mark.parametrize("shape", [_dicts, _objects, _printed])
def test_lag_is_what_lies_between_the_last_batch_and_the_ends(shape: Any) -> None:
    assert lag_by_queue(shape({"endOffset": END, "latestOffset": LATEST})) == {A0: 7, A1: 0}


def test_before_the_first_batch_nothing_is_known() -> None:
    assert lag_by_queue(None) == {}
    assert lag_by_queue({"sources": [{"endOffset": None, "latestOffset": None}]}) == {}


@pytest.mark.parametrize("unknown", [None, "null", "None"])
def test_a_lag_that_spark_does_not_report_is_not_0(unknown: str | None) -> None:
    assert lag_by_queue(_objects({"endOffset": END, "latestOffset": unknown})) == {}
    shorter = format_offsets({A0: 17})
    assert lag_by_queue(_objects({"endOffset": END, "latestOffset": shorter})) == {A0: 7}


def test_other_sources_are_left_out() -> None:
    other = {"endOffset": "5", "latestOffset": "offset 8 (of a file)"}
    kafka = {"endOffset": '{"orders":{"0":5}}', "latestOffset": '{"orders":{"0":8}}'}
    ours = {"endOffset": END, "latestOffset": LATEST}
    assert lag_by_queue(_objects(other, kafka, ours)) == {A0: 7, A1: 0}


def test_of_two_sources_the_slower_one_counts() -> None:
    fast = {"endOffset": LATEST, "latestOffset": LATEST}
    slow = {"endOffset": END, "latestOffset": LATEST}
    assert (
        lag_by_queue(_objects(fast, slow)) == lag_by_queue(_objects(slow, fast)) == {A0: 7, A1: 0}
    )


def test_queue_that_was_read_beyond_its_end_is_omitted() -> None:
    assert lag_by_queue(_objects({"endOffset": LATEST, "latestOffset": END})) == {A1: 0}
