"""Commits one consumer's progress, periodically and on request.

Invariant: nothing is committed of a queue whose lock is lost: the member that has it now commits its own work.
Answers to: the part of MQClientInstance and DefaultMQPushConsumerImpl that persists offsets.
"""

import logging
from collections.abc import Mapping
from typing import Final

import attrs

from rocketrio.consuming.assignment import Assignment
from rocketrio.consuming.consume_rates import ConsumeRates
from rocketrio.consuming.offset_store import check_offset
from rocketrio.consuming.offsets import OffsetStore
from rocketrio.consuming.queue_claim import lock_lost, lost_meanwhile
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.tasks import every

REAFFIRM_EVERY: Final = 6
"""Commit rounds between two checks that brokers still have what they acknowledged: every 30 s."""

logger = logging.getLogger("rocketrio.consumer")


@attrs.define(eq=False)
class GroupProgress:
    """Commits the offsets of the queues that a consumer owns."""

    group: str
    assigned: Assignment
    offsets: OffsetStore
    rates: ConsumeRates
    auto_commit: bool

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit these next offsets. Raises the first error after all that can be committed is committed."""
        for queue, offset in offsets.items():
            if queue not in self.assigned.queues:
                raise ConfigError(f"{queue} is not assigned to this consumer of group {self.group}")
            check_offset(queue, offset)
        lost = [queue for queue in offsets if self.assigned.queues[queue].is_lost]
        owned = {queue: offset for queue, offset in offsets.items() if queue not in lost}
        for queue, offset in owned.items():
            self.offsets.update_offset(queue, offset)
        errors = await self.offsets.persist_all(list(owned))
        errors += map(lock_lost, lost)
        errors += filter(None, map(self.offsets.overruled, offsets))
        errors += [lost_meanwhile(queue) for queue in offsets if queue not in self.assigned.queues]
        if errors:
            raise errors[0]

    async def commit_done(self) -> list[Error]:
        """Commit the messages that are done; return the errors of queues that could not be committed."""
        owned = {
            queue: process_queue
            for queue, process_queue in self.assigned.queues.items()
            if not process_queue.is_lost
        }
        for queue, process_queue in owned.items():
            offset = self.assigned.done_offset(process_queue)
            if offset is not None:
                self.offsets.update_offset(queue, offset)
        return await self.offsets.persist_all(list(owned))

    async def commit_on_period(self, interval: float) -> None:
        """Commit periodically; without automatic commits only repeat what brokers may have lost."""
        round_number = 0
        async for _ in every(interval, first_after=interval):
            round_number += 1
            self.rates.look()  # It must sample every few seconds, and needs no task of its own for that.
            if round_number % REAFFIRM_EVERY == 0:
                self.offsets.doubt_all()
            if self.auto_commit:
                errors = await self.commit_done()
            else:
                errors = await self.offsets.persist_committed()
            for error in errors:
                logger.warning("commit failed group=%s error=%s", self.group, error)

    async def commit_at_end(self) -> None:
        """Commit a last time when the consumer leaves."""
        if self.auto_commit:
            # Another member may own a queue by now and be further: Apache's brokers are asked first.
            self.offsets.doubt_all()
            for error in await self.commit_done():
                logger.warning("not committed at the end group=%s error=%s", self.group, error)
        for error in await self.offsets.tell_masters():
            logger.info("only a slave knows offsets group=%s error=%s", self.group, error)
