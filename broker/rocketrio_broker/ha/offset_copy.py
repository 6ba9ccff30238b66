"""Decides how a slave's consumer offsets follow its master's, and which newer ones the slave sends to the master.

A rocketrio master sends versions: both tables are joined. Offsets that are newer here, because they were committed
while clients could not reach the master, are sent to it (15 with a generation), so that they also arrive if the master
could not ask when it restarted. Each one names the epoch that a member named with its commit, or the log's last epoch
at the copy before: an offset beyond the end of its queue at the master counts messages that were lost
(docs/decisions/0036).

An Apache master sends plain offsets: an offset that is lower than in the previous answer was lowered deliberately (by
an operator or the group itself), and is lowered here. After a gap between two answers (`contact`) the master may have
been restarted with less than it had: then no offset is lowered.

Invariant: what was committed here while the master was away stays, unless a reset there is newer.
Unlike Java: Apache's slave takes whatever the master has, and never sends it any offset.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from rocketrio_broker.offsets.manager import LEDGER_KEYS, ConsumerOffsetManager
from rocketrio_broker.offsets.table import OffsetTable, TopicAndGroup, offsets_by_key
from rocketrio_broker.offsets.version import Version
from rocketrio_protocol.bodies.offsets import OffsetVersions, VersionedConsumerOffsets
from rocketrio_protocol.commands.offset import UpdateConsumerOffsetRequestHeader

SEND_LIMIT: Final = 500
"""The most offsets sent to the master in one round (Java sends none): they are sent one after the other, and the rest
follows in the next round."""


class OffsetCopy:
    """What one slave remembers of its master's offsets."""

    def __init__(
        self,
        consumer_offsets: ConsumerOffsetManager,
        *,
        epoch: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`epoch` returns the last epoch of this broker's log, as readers name it."""
        self._consumer_offsets = consumer_offsets
        self._epoch = epoch
        consumer_offsets.begin_copy(epoch())
        self._seen: Mapping[TopicAndGroup, Mapping[int, int]] | None = None
        self._contact: object = None
        self.is_versioned = False
        """Whether the master is a rocketrio broker, as far as its answers show."""

    def lost_contact(self) -> None:
        """Note that the master did not answer: its next answer may contain less than the previous one."""
        self._seen = None

    def take(
        self, body: VersionedConsumerOffsets, *, contact: object
    ) -> list[UpdateConsumerOffsetRequestHeader]:
        """Follow the master's table; return the offsets to send to the master.

        `contact` stays equal while the master cannot have been restarted or replaced.
        """
        offsets = self._consumer_offsets
        self.is_versioned = body.rocketrio_versions is not None
        if body.rocketrio_versions is not None:
            self._seen = None
            master = OffsetTable.from_body(body)
            offsets.join(master)
            return self._newer_here(master, body.rocketrio_versions)
        now = offsets_by_key(body)
        before = self._seen if contact == self._contact else None
        offsets.observe(before or {}, now)
        self._seen, self._contact = now, contact
        return []

    def _newer_here(
        self, master: OffsetTable, versions: OffsetVersions
    ) -> list[UpdateConsumerOffsetRequestHeader]:
        newer = self._consumer_offsets.table.newer_than(master)
        sent: dict[tuple[TopicAndGroup, int], tuple[Version, str | None]] = {}
        for key, queue_id, version in islice(newer, SEND_LIMIT):
            # An offset that the master did not take is sent again unchanged, because it has not become newer.
            sent[key, queue_id] = version, self._consumer_offsets.epoch_of(key, queue_id)
        # The master's log may have an epoch that is not here yet, and what was copied may count its messages. A former
        # master, which is a slave now, may itself have offsets of an epoch that it does not have.
        named = self._consumer_offsets.named_by(versions, master, known_in=self._epoch())
        self._consumer_offsets.named_epochs = named | sent
        if len(sent) < SEND_LIMIT:
            self._consumer_offsets.note_copy(self._epoch())
        return [
            UpdateConsumerOffsetRequestHeader(
                group, topic, queue_id, version.offset, str(version.generation), epoch=epoch
            )
            for ((topic, group), queue_id), (version, epoch) in sent.items()
            if (topic, group) not in LEDGER_KEYS
        ]
