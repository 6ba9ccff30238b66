"""What a broker does about deletions of topics that it finds in its log, beside its queues: their offsets are void.

A slave hears of them with the log, before it copies the next table of offsets; one that is made master by then, or that
serves readers without a master, would have the next life of a topic read from the middle.

Invariant: an offset of a life is never void: the floor that the deletion carries lies below all that are committed
after it, so that it can be met late, twice, or in any order.
Answers to: nothing; Apache's brokers keep the offsets of deleted topics.
"""

import logging

import trio

from rocketrio_broker.consumer_offsets import ConsumerOffsetManager
from rocketrio_broker.offset_version import Generation
from rocketrio_broker.store.dispatch import QueueDispatcher
from rocketrio_protocol.errors import RemoteProtocolError

logger = logging.getLogger("rocketrio_broker.topics")


class DeletedTopics:
    """Follows the log's deletions."""

    def __init__(
        self, dispatcher: QueueDispatcher, consumer_offsets: ConsumerOffsetManager
    ) -> None:
        self._dispatcher = dispatcher
        self._consumer_offsets = consumer_offsets

    def follow(self) -> None:
        """Act on all that were dispatched."""
        for deletion in self._dispatcher.take_deletions():
            try:
                floor = Generation.parse(deletion.floor)
            except RemoteProtocolError as error:
                logger.warning("deletion not understood topic=%s reason=%s", deletion.topic, error)
                continue
            if self._consumer_offsets.void_topic(deletion.topic, floor):
                logger.info("offsets of a deleted topic are void topic=%s", deletion.topic)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Act on them as they come, until cancelled."""
        met = self._dispatcher.met
        seen = met.value
        self.follow()
        task_status.started()
        while True:
            seen = await met.wait_past(seen)
            self.follow()
