"""How a slave's consumer offsets follow its master's, and what it tells the master of its own.

A master of ours sends versions: both tables are joined. What is newer here, committed while clients could not reach
the master, is told to it (15 with a generation), so that it also arrives if the master could not ask when it came back.
It names the epoch that a member named with its commit, or that in which the master last knew all that was here: what
lies beyond its end at the master counts messages that were lost (docs/decisions/0036).

An Apache master sends plain offsets: what fell between two looks was lowered by somebody entitled, and is lowered
here. After any gap in between (`contact`) it may have been restarted with less than it had: then it lowers nothing.

Invariant: what was committed here while the master was away stays, unless a reset there is newer.
Unlike Java: Apache's slave takes whatever the master has, and never tells it anything.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from rocketrio_broker.consumer_offsets import ConsumerOffsetManager
from rocketrio_broker.offset_table import OffsetTable, TopicAndGroup, offsets_by_key
from rocketrio_broker.offset_version import Version
from rocketrio_protocol.bodies.offsets import VersionedConsumerOffsets
from rocketrio_protocol.commands.offset import UpdateConsumerOffsetRequestHeader

TELL_LIMIT: Final = 500
"""Offsets told to the master in one round: ours; they are asked one after the other, and the rest comes next time."""


class OffsetCopy:
    """One slave's memory of what it saw at its master."""

    def __init__(
        self,
        consumer_offsets: ConsumerOffsetManager,
        *,
        epoch: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`epoch` is the last one of this broker's log, as readers name it."""
        self._consumer_offsets = consumer_offsets
        self._epoch = epoch
        self._looked_in = consumer_offsets.known_in = epoch()
        self._told: dict[tuple[TopicAndGroup, int], tuple[Version, str | None]] = {}
        """What was newer here at the last look, and by which epoch it was told."""
        self._was_told = False
        self._seen: Mapping[TopicAndGroup, Mapping[int, int]] | None = None
        self._contact: object = None
        self.is_versioned = False
        """Whether the master is one of ours, as far as it has told."""

    def lost_contact(self) -> None:
        """The master did not answer: what it says next may be less than it had."""
        self._seen = None

    def told(self) -> None:
        """Note that the master has answered all that it was to be told."""
        self._was_told = len(self._told) < TELL_LIMIT

    def take(
        self, body: VersionedConsumerOffsets, *, contact: object
    ) -> list[UpdateConsumerOffsetRequestHeader]:
        """Follow the master's table; returns what it is to be told.

        `contact` stays equal while the master cannot have been restarted or replaced.
        """
        offsets = self._consumer_offsets
        self.is_versioned = body.rocketrio_versions is not None
        if body.rocketrio_versions is not None:
            self._seen = None
            master = OffsetTable.from_body(body)
            offsets.join(master)
            return self._newer_here(master)
        now = offsets_by_key(body)
        before = self._seen if contact == self._contact else None
        offsets.observe(before or {}, now)
        self._seen, self._contact = now, contact
        return []

    def _newer_here(self, master: OffsetTable) -> list[UpdateConsumerOffsetRequestHeader]:
        if self._was_told:
            self._consumer_offsets.known_in = self._looked_in
        self._was_told, self._looked_in = False, self._epoch()
        before, self._told = self._told, {}
        named = dict(self._consumer_offsets.named_epochs)
        self._consumer_offsets.named_epochs.clear()
        newer = self._consumer_offsets.table.newer_than(master)
        known_in = self._consumer_offsets.known_in
        for key, queue_id, version in islice(newer, TELL_LIMIT):
            # What the master did not take is told again as it was: it is no newer than it was then.
            known = named.get((key, queue_id), before.get((key, queue_id)))
            epoch = known[1] if known is not None and known[0] == version else known_in
            self._told[key, queue_id] = version, epoch
        return [
            UpdateConsumerOffsetRequestHeader(
                group, topic, queue_id, version.offset, str(version.generation), epoch=epoch
            )
            for ((topic, group), queue_id), (version, epoch) in self._told.items()
        ]
