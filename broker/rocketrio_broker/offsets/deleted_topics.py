"""Voids the committed offsets of topics whose deletion is found in the log.

A slave gets the deletion with the log, before it copies the next table of offsets. If it becomes master in between, or
serves readers without a master, old offsets would otherwise apply to a topic that was created again.

A deletion that a slave cuts off its log, to follow another master, voids nothing any more: the topic goes on, and the
master has its offsets. What was committed here after the deletion counts messages that were cut off too.

Invariant: an offset of the present incarnation is never voided: the floor in the deletion is below all offsets that are
committed after it, so a deletion can be processed late, twice, or in any order.
Answers to: nothing; Apache's brokers keep the offsets of deleted topics.
"""

import logging

import trio

from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.offsets.version import Generation
from rocketrio_broker.store.dispatch import QueueDispatcher
from rocketrio_protocol.errors import RemoteProtocolError

logger = logging.getLogger("rocketrio_broker.topics")


class DeletedTopics:
    """Processes the deletions in the log."""

    def __init__(
        self, dispatcher: QueueDispatcher, consumer_offsets: ConsumerOffsetManager
    ) -> None:
        self._dispatcher = dispatcher
        self._consumer_offsets = consumer_offsets

    def follow(self) -> None:
        """Process all deletions that were dispatched."""
        for deletion in self._dispatcher.take_deletions():
            try:
                floor = Generation.parse(deletion.floor)
            except RemoteProtocolError as error:
                logger.warning("deletion not understood topic=%s reason=%s", deletion.topic, error)
                continue
            if deletion.is_undone:
                self._consumer_offsets.undo_removal(deletion.topic, floor)
            # By the floor in the record, not by what is committed now: the topic may have been created again since.
            elif self._consumer_offsets.void_topic(deletion.topic, floor):
                logger.info("offsets of a deleted topic are void topic=%s", deletion.topic)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Process deletions as they come, until cancelled."""
        met = self._dispatcher.met
        seen = met.value
        self.follow()
        task_status.started()
        while True:
            seen = await met.wait_past(seen)
            self.follow()
