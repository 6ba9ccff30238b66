"""Infers from the order of calls where a batch starts, which PySpark 4.0 and 4.1 do not say when they ask for its end.

    fresh query           latestOffset, initialOffset, partitions(start, end)
    restart               partitions(end, end), latestOffset, partitions(end, next)
    batch 0 once more     partitions(end, end), initialOffset, partitions(start, end)

So if latestOffset is the first call on a reader, the query is fresh and batch 0 starts where the options say; after
that a batch starts where the previous one ended.

Invariant: a start is never guessed. With `spark.sql.streaming.triggerAvailableNowWrapper.enabled` these versions ask
for the end first, after a restart too; the call that follows shows this, and is refused.
"""

import enum

import attrs

from rocketrio.spark.errors import OptionError


class _Stage(enum.Enum):
    NEW = "asked nothing"
    END_ASKED = "asked for an end, as by a fresh query"
    START_ASKED = "then for the start of its batch 0"
    RUNNING = "batches were planned"


@attrs.define
class CallOrder:
    """The calls that one reader has received so far."""

    _stage: _Stage = _Stage.NEW

    def asked_for_end(self) -> bool:
        """Return True if a fresh query asks, which has no start yet. Raises OptionError if Spark's wrapper asks."""
        if self._stage in (_Stage.END_ASKED, _Stage.START_ASKED):
            raise _wrapped()
        if self._stage is _Stage.NEW:
            self._stage = _Stage.END_ASKED
        return self._stage is _Stage.END_ASKED

    def asked_for_start(self) -> None:
        """Note that Spark asked where the query starts."""
        if self._stage is _Stage.END_ASKED:
            self._stage = _Stage.START_ASKED

    def planned(self) -> None:
        """Note that Spark plans a batch. Raises OptionError for calls of Spark's wrapper."""
        if self._stage is _Stage.END_ASKED:
            raise _wrapped()
        self._stage = _Stage.RUNNING


def _wrapped() -> OptionError:
    return OptionError(
        "spark.sql.streaming.triggerAvailableNowWrapper.enabled=true makes this PySpark ask how far to read before it"
        " says from where; Trigger.AvailableNow in several batches needs PySpark 4.2. Unset it: AvailableNow is then"
        " one batch with everything"
    )
