"""Makes the first batch of a fresh query empty if its start must be in Spark's log before anything is read. Pure.

Spark keeps the end of each batch, but not the start of the first one: it asks for that again if batch 0 is replayed. A
start that is not the same then (`latest`, a group's offsets, what retention left) would lose the messages between. So
the first batch of such a query is empty: its end is its start.

Invariant: a poll returns its start exactly if the start was asked for and nothing else since, on this instance. A
weaker test would return it a second time, and an AvailableNow query would end with nothing read.
Answers to: the initial offsets that Spark's Kafka source keeps in a log of its own.
"""

from rocketrio.spark.reading.offsets import LATEST_OFFSET, ExplicitOffsets, Position


class StreamStart:
    """What one instance of a reader was asked so far."""

    def __init__(self, starting: Position) -> None:
        self._starting = starting
        self._is_asked = False
        self._is_over = False

    def asked(self) -> None:
        """Note that Spark asked where the query starts, perhaps for the second time."""
        self._is_asked = True

    def stands_still(self, *, is_only_batch: bool) -> bool:
        """Return True if this poll must return its start; every poll has to call this.

        With `is_only_batch` (Trigger.Once) a start that can be found again, or is the oldest message, is read at once.
        """
        is_first = self._is_first()
        if self._is_certain:
            return False
        return is_first and not (is_only_batch and self._is_stable)

    def replays_first_batch(self) -> bool:
        """Return True if this plans batch 0 of an earlier run again; every planning of a batch has to call this."""
        return self._is_first()

    @property
    def first_batch_is_empty(self) -> bool:
        """Whether batch 0 is empty by rule, whatever start Spark passes when it replays it."""
        return not self._is_stable

    def _is_first(self) -> bool:
        # PySpark 4.0 plans from an end to itself before it asks for the start.
        if not self._is_asked:
            return False
        is_first, self._is_over = not self._is_over, True
        return is_first

    @property
    def _is_certain(self) -> bool:
        """Whether the options alone determine the start, at any time."""
        if not isinstance(self._starting, ExplicitOffsets):
            return False
        return all(offset >= 0 for offset in self._starting.table.values())

    @property
    def _is_stable(self) -> bool:
        """Whether a later evaluation of the start would skip no message: only retention moves it."""
        if isinstance(self._starting, ExplicitOffsets):
            return LATEST_OFFSET not in self._starting.table.values()
        return self._starting == "earliest"
