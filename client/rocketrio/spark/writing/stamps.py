"""Stamps each message with its row and job: four properties by which repeated rows are recognised.

    SPARK_QUERY  the streaming query's id; for a batch its dedupId, or an id of this run
    SPARK_BATCH  the number of the micro-batch; missing in a batch outside of foreachBatch
    SPARK_TASK   the partition of the DataFrame
    SPARK_ROW    the row's number in it

Spark runs failed tasks again, and replays a micro-batch whose commit was lost: the rows come again, with the same stamp
as long as the input comes in the same order. Two messages of one topic with one stamp are the same row.
"""

import re
from collections.abc import Mapping
from typing import Final, Protocol

import attrs

SPARK_QUERY: Final = "SPARK_QUERY"
SPARK_BATCH: Final = "SPARK_BATCH"
SPARK_TASK: Final = "SPARK_TASK"
SPARK_ROW: Final = "SPARK_ROW"
STAMP_NAMES: Final = frozenset({SPARK_QUERY, SPARK_BATCH, SPARK_TASK, SPARK_ROW})

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


@attrs.frozen
class TaskStamp:
    """What the rows of one task share."""

    query: str
    batch: str
    """Empty in a batch job."""
    task: int

    def encoded(self) -> bytes:
        """Encode the properties of every row, up to where the number of the row follows."""
        batch = f"{SPARK_BATCH}\x01{self.batch}\x02" if self.batch else ""
        return (
            f"{SPARK_QUERY}\x01{self.query}\x02{batch}{SPARK_TASK}\x01{self.task}\x02{SPARK_ROW}\x01"
        ).encode()


@attrs.frozen
class RowStamp:
    """The row that a message came from; equal for all repeats of the row."""

    topic: str
    query: str
    batch: str
    task: int
    row: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.query}/{self.batch}/{self.task}/{self.row}"


class Stamped(Protocol):
    """A consumed message, from which a stamp is read."""

    @property
    def topic(self) -> str: ...

    @property
    def properties(self) -> Mapping[str, str]: ...


def row_stamp(message: Stamped) -> RowStamp | None:
    """Return the stamp of a message, or None if it was not written with `dedupProperties=true`."""
    properties = message.properties
    query = properties.get(SPARK_QUERY)
    task, row = _number(properties.get(SPARK_TASK)), _number(properties.get(SPARK_ROW))
    if query is None or task is None or row is None:
        return None
    return RowStamp(message.topic, query, properties.get(SPARK_BATCH, ""), task, row)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None
