"""Names the place that positions of readers come from, and finds positions from before the deletion of their topic.

Invariant: a topic's incarnation changes in the same step in which its queues are deleted, never before: a reader that
was sent to the beginning earlier would read the old messages once more.
Answers to: nothing; an Apache broker's reader of a topic that was created again reads on at its old number
(docs/decisions/0068).
"""

from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.offsets.reader_epochs import ReaderEpochs
from rocketrio_protocol.reader_place import incarnation_of, place_text


class ReaderPlaces:
    """The present places of one broker's topics."""

    def __init__(self, epochs: ReaderEpochs, consumer_offsets: ConsumerOffsetManager) -> None:
        self._epochs = epochs
        self._consumer_offsets = consumer_offsets

    def current(self, topic: str) -> str | None:
        """Return the place that present positions of the topic come from, or None without a known epoch."""
        return self.of_epoch(self._epochs.current, topic)

    def of_epoch(self, epoch: str | None, topic: str) -> str | None:
        """Return the place of the topic's present incarnation in that epoch."""
        return None if epoch is None else place_text(epoch, self.incarnation(topic))

    def incarnation(self, topic: str) -> int:
        """Return the number of the topic's present incarnation; 0 if it was never deleted, as far as is known."""
        return self._consumer_offsets.incarnation(topic)

    def is_earlier(self, topic: str, place: str | None) -> bool:
        """Return whether a position at that place is from before the last deletion of the topic."""
        named = incarnation_of(place)
        return named is not None and named < self.incarnation(topic)

    def is_later(self, topic: str, place: str | None) -> bool:
        """Return whether a position at that place is from after a deletion that this broker has not heard of yet."""
        named = incarnation_of(place)
        return named is not None and named > self.incarnation(topic)
