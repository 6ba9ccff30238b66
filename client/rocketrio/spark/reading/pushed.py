"""What the queries on one DataFrame have pushed so far: Spark keeps one plan for all of them, the one made last.

    planning    widened(...)      this query's conditions and all before them, as one
    a task      for_one_query(...)  refuses a narrow plan in another query than the first that reads it

Both note a line in a file in the folder that Spark gives its Python workers and removes at its end: the next planning
may be another process's, as the next task is.

Invariant: a plan covers every condition that was pushed on its load before it was made.
Invariant: where nothing can be noted nothing is narrowed.
"""

import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.narrowing import EVERYTHING, Narrowing

FOLDERS_VARIABLE: Final = "SPARK_LOCAL_DIRS"
"""Spark sets it for its Python processes, of planning and of tasks: its own scratch folders, by commas."""

logger = logging.getLogger("rocketrio.spark.pushed")


def widened(load_id: str, narrowing: Narrowing) -> Narrowing:
    """What a plan must cover so that it is right for all conditions pushed on that load until now."""
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
    """Note that a query reads a plan. Raises OptionError if another one did."""
    noted = _note(f"rocketrio-planned-{plan_id}", query_id.encode())
    if noted is not None and noted[0] != query_id.encode():
        raise OptionError(
            "filterPushdown=true: to this query Spark gives what the conditions of an earlier one on the same DataFrame"
            " left to read, so that rows may be missing. Use from_rocketmq(..., filter_pushdown=True), or load anew"
        )


def _note(name: str, line: bytes) -> list[bytes] | None:
    """Add a line to a file; all lines of it, the new one among them. None where Spark gives no folder."""
    folder = os.environ.get(FOLDERS_VARIABLE, "").split(",")[0]
    if not folder:
        return None
    # Short lines are appended whole, whoever else does.
    with (Path(folder) / name).open("a+b") as file:
        file.write(line + b"\n")
        file.flush()
        file.seek(0)
        return file.read().splitlines()
