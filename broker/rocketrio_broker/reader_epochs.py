"""The epoch of the log that a reader's position comes from, and where the log went on differently since.

    14.9778.5f0c9e6ab1d24c87      number, start and id of an epoch (store/epochs.py), as a pull or a commit names it

An answer to a rocketrio client names the present epoch; its next pulls and commits name the one that their position
comes from. What was read in an earlier epoch is in this log up to the address where the next one began. Messages beyond
that were lost, and their queue offsets belong to others now (docs/decisions/0036).

An epoch that is not known here was another master's, or nothing of it is left. What it wrote is not in this log; what
was read before its start is, up to the first epoch here with a number as great. Two branches may have parted earlier
still: then only the group's committed offset, which is this log's own, is certain.

Invariant: a member is never taken for one that read a message of this log which its group neither read nor committed.
Answers to: OffsetsForLeaderEpoch of Kafka; Apache's readers cannot tell.
"""

from itertools import pairwise

from rocketrio_broker.consumer_offsets import ConsumerOffsetManager
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha import LARGEST_OFFSET
from rocketrio_protocol.ha_exchange import Epoch


class ReaderEpochs:
    """Those of one broker's log."""

    def __init__(self, store: MessageStore, consumer_offsets: ConsumerOffsetManager) -> None:
        self._store = store
        self._consumer_offsets = consumer_offsets
        self._seen: tuple[Epoch, ...] = ()
        self._current: str | None = None
        self._named_until = 0

    def __repr__(self) -> str:
        return f"<ReaderEpochs current={self.current}>"

    @property
    def current(self) -> str | None:
        """The epoch of the log's last byte, as readers name it; None where none is known.

        An epoch that has no byte yet is not named: nobody has read anything of it, and the next one replaces it.
        """
        lines = self._store.epochs.lines
        end = self._store.max_physical_offset
        if lines is not self._seen or end > self._named_until:
            self._seen = lines
            place = next(
                (place for place in reversed(range(len(lines))) if lines[place].start < end), 0
            )
            self._current = _text(lines[place]) if lines else None
            self._named_until = lines[place + 1].start if place + 1 < len(lines) else LARGEST_OFFSET
        return self._current

    def parting(self, epoch: str, group: str, topic: str, queue_id: int) -> int | None:
        """The queue offset up to which a reader of that epoch read what is in this log; None where nobody can tell.

        Raises RemoteProtocolError for a text that is none.
        """
        lines = self._store.epochs.lines
        number, start, name = _parsed(epoch)
        if not lines:
            return None
        for line, later in pairwise(lines):
            if line.id == name and line.number == number:
                return self._offset(topic, queue_id, later.start)
        if lines[-1].id == name and lines[-1].number == number:
            return self._store.next_queue_offset(topic, queue_id)
        follower = next((line for line in lines if line.number >= number), lines[-1])
        offset = self._offset(topic, queue_id, min(start, follower.start))
        committed = self._consumer_offsets.query_offset(group, topic, queue_id)
        return min(offset, committed) if committed >= 0 else offset

    def _offset(self, topic: str, queue_id: int, address: int) -> int:
        return self._store.queue_offset_at(topic, queue_id, address)


def _text(epoch: Epoch) -> str:
    return f"{epoch.number}.{epoch.start}.{epoch.id}"


def _parsed(text: str) -> tuple[int, int, str]:
    number, _, rest = text.partition(".")
    start, _, name = rest.partition(".")
    try:
        return int(number), int(start), name
    except ValueError as error:
        raise RemoteProtocolError(f"{text[:80]!r} is not an epoch of a log") from error
