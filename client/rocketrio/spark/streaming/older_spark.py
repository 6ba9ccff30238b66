"""PySpark 4.0 and 4.1, which ask for the end of a batch and not say where it starts: the order of their calls does.

    fresh query           latestOffset, initialOffset, partitions(start, end)
    restart               partitions(end, end), latestOffset, partitions(end, next)
    batch 0 once more     partitions(end, end), initialOffset, partitions(start, end)

So the first question of a reader that was asked nothing before is that of a fresh query, and batch 0 starts where the
options say; after that a batch starts where the one before it ended.

Invariant: no start is guessed. With `spark.sql.streaming.triggerAvailableNowWrapper.enabled` these versions ask for the
end before anything else, after a restart too; that is found by the call that follows.
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
    """What one reader was asked so far."""

    _stage: _Stage = _Stage.NEW

    def asked_for_end(self) -> bool:
        """Whether a fresh query asks, which has no start yet. Raises OptionError for calls of Spark's wrapper."""
        if self._stage in (_Stage.END_ASKED, _Stage.START_ASKED):
            raise _wrapped()
        if self._stage is _Stage.NEW:
            self._stage = _Stage.END_ASKED
        return self._stage is _Stage.END_ASKED

    def asked_for_start(self) -> None:
        """Spark asked where the query starts."""
        if self._stage is _Stage.END_ASKED:
            self._stage = _Stage.START_ASKED

    def planned(self) -> None:
        """Spark has a batch planned. Raises OptionError for calls of Spark's wrapper."""
        if self._stage is _Stage.END_ASKED:
            raise _wrapped()
        self._stage = _Stage.RUNNING


def _wrapped() -> OptionError:
    return OptionError(
        "spark.sql.streaming.triggerAvailableNowWrapper.enabled=true makes this PySpark ask how far to read before it"
        " says from where; Trigger.AvailableNow in several batches needs PySpark 4.2. Unset it: AvailableNow is then"
        " one batch with everything"
    )
