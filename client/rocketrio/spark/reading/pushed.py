"""Records what the queries on one DataFrame have pushed so far, because Spark keeps one plan for all: the last one.

    planning    widened(...)      this query's conditions and all before them, as one
    a task      for_one_query(...)  refuses a narrow plan in any query but the first that reads it

Both append a line to a file in the folder that Spark gives its Python workers and removes at its end, because the next
planning, like the next task, may run in another process.

Invariant: a plan covers every condition that was pushed on its load before it was made.
Invariant: if nothing can be recorded, nothing is narrowed.
"""

import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.narrowing import EVERYTHING, Narrowing

FOLDERS_VARIABLE: Final = "SPARK_LOCAL_DIRS"
"""Spark's scratch folders, separated by commas; Spark sets it for the Python processes of planning and of tasks."""

logger = logging.getLogger("rocketrio.spark.pushed")


def widened(load_id: str, narrowing: Narrowing) -> Narrowing:
    """Return what a plan must cover to be right for all conditions pushed on that load so far."""
    line = msgspec.json.encode(narrowing.to_value())
    noted = _note(f"rocketrio-pushed-{load_id}", line)
    if noted is None:
        logger.warning("filterPushdown narrows nothing: %s names no folder", FOLDERS_VARIABLE)
        return EVERYTHING
    covered = narrowing
    for each in noted:
        covered = covered.widened(Narrowing.from_value(msgspec.json.decode(each)))
    return covered


def for_one_query(plan_id: str, query_id: str) -> None:
    """Record that a query reads a plan. Raises OptionError if another query has read it."""
    noted = _note(f"rocketrio-planned-{plan_id}", query_id.encode())
    if noted is not None and noted[0] != query_id.encode():
        raise OptionError(
            "filterPushdown=true: to this query Spark gives what the conditions of an earlier one on the same DataFrame"
            " left to read, so that rows may be missing. Use from_rocketmq(..., filter_pushdown=True), or load anew"
        )


def _note(name: str, line: bytes) -> list[bytes] | None:
    """Append a line to a file and return all its lines, or None if Spark gives no folder."""
    folder = os.environ.get(FOLDERS_VARIABLE, "").split(",")[0]
    if not folder:
        return None
    # Short lines are appended whole, even if several processes append.
    with (Path(folder) / name).open("a+b") as file:
        file.write(line + b"\n")
        file.flush()
        file.seek(0)
        return file.read().splitlines()
