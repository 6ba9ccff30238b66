"""The start of a fresh query: it has to stand in Spark's log before anything is read from it. Pure.

Spark keeps the end of each batch and not the start of the first one: that it asks for again when batch 0 is replayed.
A start that is not the same then (`latest`, a group's, what retention left) would lose what lay between. So the first
batch of such a query is empty: its end is its start.

Invariant: a poll stands still exactly if the start was asked for and nothing else was since, on this instance.
A looser test stands still a second time, and an AvailableNow query ends with nothing read.
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
        """Spark asked where the query starts, perhaps for the second time."""
        self._is_asked = True

    def stands_still(self, *, is_only_batch: bool) -> bool:
        """To be called by every poll: whether it has to answer with its start.

        `is_only_batch` (Trigger.Once): then a start that is found again, or is the oldest message, is read at once.
        """
        is_first = self._is_first()
        if self._is_certain:
            return False
        return is_first and not (is_only_batch and self._is_stable)

    def replays_first_batch(self) -> bool:
        """To be called by every planning of a batch: whether it is batch 0 of an earlier run, planned once more."""
        return self._is_first()

    @property
    def first_batch_is_empty(self) -> bool:
        """Whatever the replayed batch 0 says about its start, there was nothing in it."""
        return not self._is_stable

    def _is_first(self) -> bool:
        # PySpark 4.0 plans from an end to itself before it asks for the start.
        if not self._is_asked:
            return False
        is_first, self._is_over = not self._is_over, True
        return is_first

    @property
    def _is_certain(self) -> bool:
        """The options alone tell it, today and tomorrow."""
        if not isinstance(self._starting, ExplicitOffsets):
            return False
        return all(offset >= 0 for offset in self._starting.table.values())

    @property
    def _is_stable(self) -> bool:
        """Later it lies in front of nothing that it lay behind before: only retention moves it."""
        if isinstance(self._starting, ExplicitOffsets):
            return LATEST_OFFSET not in self._starting.table.values()
        return self._starting == "earliest"
