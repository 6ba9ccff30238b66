"""Estimates the mean size of messages from samples, to convert maxBytesPerTrigger to a number of messages.

Brokers do not report the bytes of a range, and tasks cannot report back, so some of the next messages are pulled.
"""

import logging
from collections.abc import Mapping
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.pull_result import PullStatus
from rocketrio.spark.streaming.position import Part
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue

SAMPLE_AGE: Final = 60.0
"""Seconds after which a queue is sampled again."""
SAMPLE_ROWS: Final = 32  # the number that any broker returns at once
QUEUES_LOOKED_AT: Final = 8
"""The largest number of queues that are sampled, those with the most to read; the others count as the mean of these."""
SAMPLE_TIMEOUT: Final = 2.0
UNKNOWN_SIZE: Final = 1024.0
"""The assumed size of a message in bytes, while no sample is known."""

logger = logging.getLogger("rocketrio.spark.stream")


@attrs.define(eq=False)
class MessageSizes:
    """The mean message size of each queue, remembered for a while."""

    group: str
    _means: dict[MessageQueue, tuple[float, float]] = attrs.Factory(dict)
    """The mean size in bytes, and the time of the sample."""

    async def rows_of(
        self, client: ClientInstance, max_size: int, parts: Mapping[MessageQueue, Part]
    ) -> int:
        """Return how many messages of `parts`, taken in proportion, are about `max_size` stored bytes; at least one."""
        await self._look_up(client, parts)
        counts = {queue: part.last - part.first for queue, part in parts.items()}
        total = sum(counts.values())
        found = [self._means[queue][0] for queue in parts if queue in self._means]
        usual = sum(found) / len(found) if found else UNKNOWN_SIZE
        size = sum(
            count * self._means.get(queue, (usual, 0.0))[0] for queue, count in counts.items()
        )
        return max(1, int(max_size * total / size)) if size else 1

    async def _look_up(self, client: ClientInstance, parts: Mapping[MessageQueue, Part]) -> None:
        now = trio.current_time()
        largest = sorted(parts, key=lambda queue: (parts[queue].first - parts[queue].last, queue))
        old = [
            queue
            for queue in largest[:QUEUES_LOOKED_AT]
            if queue not in self._means or now - self._means[queue][1] >= SAMPLE_AGE
        ]
        with trio.move_on_after(SAMPLE_TIMEOUT):
            async with trio.open_nursery() as nursery:
                for queue in old:
                    nursery.start_soon(self._look_at, client, queue, parts[queue].first)

    async def _look_at(self, client: ClientInstance, queue: MessageQueue, offset: int) -> None:
        pulls = PullAPIWrapper(client, self.group)
        try:
            result = await pulls.pull_kernel(
                queue, offset, max_messages=SAMPLE_ROWS, suspend_timeout=0, timeout=SAMPLE_TIMEOUT
            )
        except Error as error:
            logger.info("size not looked up queue=%s error=%s", queue, error)
            return
        messages = result.messages() if result.status is PullStatus.FOUND else []
        if messages:
            mean = len(result.body) / len(messages)
            self._means[queue] = (mean, trio.current_time())
