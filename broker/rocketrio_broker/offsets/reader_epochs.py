"""Finds how far a reader's position, which comes from an epoch of the log, is valid in this broker's log.

    14.9778.5f0c9e6ab1d24c87.77e0b6a1c4d2f035      number, start and id of an epoch (store/epochs.py), and the id of the
                                                   one before it, as a pull or a commit names it

An answer to a rocketrio client names the present epoch; its next pulls and commits name the one from which their
position comes. What was read in an earlier epoch is in this log up to the address where the next epoch began. Messages
beyond that were lost, and their queue offsets belong to other messages now (docs/decisions/0036).

An epoch that is unknown here was another master's, or nothing of it is left; its messages are not in this log. If the
epoch before it is known, what was read before its start is in this log, up to the end of that earlier epoch here. If
that is unknown too, the logs may have parted earlier still: then only the group's committed offset, which is this log's
own, is certain.

A directory that has lost its epoch file knows no epoch of what lies before the next one that begins. The epochs of its
readers begin in that part: there too the group's committed offset is certain, and where they began says nothing.

Invariant: a reader never counts as having read a message of this log that its group neither read nor committed.
Answers to: OffsetsForLeaderEpoch of Kafka; Apache's readers cannot detect this.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.offsets.table import QueueEnd
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha.exchange import Epoch
from rocketrio_protocol.ha.stream import LARGEST_OFFSET


class ReaderEpochs:
    """The epochs of one broker's log, for its readers."""

    def __init__(self, store: MessageStore, consumer_offsets: ConsumerOffsetManager) -> None:
        self._store = store
        self._consumer_offsets = consumer_offsets
        self._seen: tuple[Epoch, ...] = ()
        self._current: str | None = None

    def __repr__(self) -> str:
        return f"<ReaderEpochs current={self.current}>"

    @property
    def current(self) -> str | None:
        """The last epoch of the log in the form that readers use, or None if none is known."""
        lines = self._store.epochs.lines
        if lines is not self._seen:
            self._seen = lines
            self._current = _text(lines) if lines else None
        return self._current

    def is_over(self, epoch: str) -> bool:
        """Return True if this log continues after that epoch, or has other epochs in its place.

        A slave cannot know more: it may lack the newest epochs, and may have messages that its master has lost. Raises
        RemoteProtocolError for a text that is not an epoch.
        """
        lines, end = self._store.epochs.lines, self._store.max_physical_offset
        number, _, name, _ = parse_epoch(epoch)
        if not any(line.id == name for line in lines):
            return any(line.number >= number for line in lines)
        return any(line.id == name and later.start <= end for line, later in pairwise(lines))

    def divergence_offset(self, epoch: str, group: str, topic: str, queue_id: int) -> int | None:
        """Return the queue offset up to which a reader of that epoch read this log, or None if it is unknown.

        Raises RemoteProtocolError for a text that is not an epoch.
        """
        lines = self._store.epochs.lines
        number, start, name, before = parse_epoch(epoch)
        if not lines:
            return None
        ends = {line.id: later.start for line, later in pairwise(lines)}
        ends[lines[-1].id] = LARGEST_OFFSET
        if name in ends:
            return self._offset(topic, queue_id, ends[name])
        # Not on a slave: its messages after that start may be those that the master of that epoch has lost.
        if before in ends and not self._store.is_slave:
            return self._offset(topic, queue_id, min(start, ends[before]))
        follower = next((line for line in lines if line.number >= number), lines[-1])
        committed = self._consumer_offsets.query_offset(group, topic, queue_id)
        if committed < 0:
            return self._offset(topic, queue_id, min(start, follower.start))
        is_forgotten = start < lines[0].start
        parting = lines[0].start if is_forgotten else min(start, follower.start)
        return min(self._offset(topic, queue_id, parting), committed)

    def shared_ends(self, epoch: str) -> QueueEnd | None:
        """Return where the queues end in the part of the log that a log with that last epoch has too.

        None if that is unknown: the other log may have been another one from its beginning.
        """
        lines = self._store.epochs.lines
        try:
            _, start, name, before = parse_epoch(epoch)
        except RemoteProtocolError:
            return None
        ends = {line.id: later.start for line, later in pairwise(lines)}
        # Where the next epoch began here: what the reader read beyond it was
        # lost, and these numbers are other messages now.
        if name in ends:
            return partial(self._end_below, address=ends[name])
        if lines and name == lines[-1].id:
            return self._store.next_queue_offset
        # The lower one: the unknown epoch began at `start`, and here the epoch before it may have ended earlier.
        if before in ends:
            return partial(self._end_below, address=min(start, ends[before]))
        if lines and before == lines[-1].id:
            return partial(self._end_below, address=start)
        return None

    def own_ends(self, epoch: str) -> QueueEnd | None:
        """Return where the queues end in the part of this log that this broker's own offsets of that epoch count.

        None if nothing is known of the log's epochs. Offsets of an epoch that is unknown here count another history,
        except for the part of this log that is older than all known epochs.
        """
        lines = self._store.epochs.lines
        if not lines:
            return None
        return self.shared_ends(epoch) or partial(self._end_below, address=lines[0].start)

    def _end_below(self, topic: str, queue_id: int, *, address: int) -> int:
        return self._offset(topic, queue_id, address)

    def _offset(self, topic: str, queue_id: int, address: int) -> int:
        return self._store.queue_offset_at(topic, queue_id, address)


def _text(lines: Sequence[Epoch]) -> str:
    """Return the name of the last of these epochs."""
    last = lines[-1]
    before = lines[-2].id if len(lines) > 1 else ""
    return f"{last.number}.{last.start}.{last.id}.{before}"


def parse_epoch(text: str) -> tuple[int, int, str, str]:
    """Return number, start and id of a named epoch, and the id of the one before. Raises RemoteProtocolError."""
    number, _, rest = text.partition(".")
    start, _, rest = rest.partition(".")
    name, _, before = rest.partition(".")
    try:
        return int(number), int(start), name, before
    except ValueError as error:
        raise RemoteProtocolError(f"{text[:80]!r} is not an epoch of a log") from error
