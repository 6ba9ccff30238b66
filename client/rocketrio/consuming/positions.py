"""The part of a consumer that concerns positions: which queues it reads, where it stands, and seeking.

Invariant: an answer that brokers could not give is None or an error, never 0.
Answers to: seek, seekToBegin, pause, resume, assignment, committed and offsetForTimestamp of DefaultLitePullConsumer.
"""

from collections.abc import Iterable
from datetime import datetime

from rocketrio.client import ClientInstance
from rocketrio.cluster.api import Offset
from rocketrio.consuming.assignment import Assignment
from rocketrio.consuming.hand_out import HandOut
from rocketrio.consuming.offset_store import check_offset
from rocketrio.consuming.offsets import OffsetStore
from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.queue_questions import (
    begin_offset,
    end_offset,
    known,
    of_each,
    offset_at,
)
from rocketrio.live import Live
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import retry_topic


class ConsumerPositions(Live):
    """Mixin of Consumer, which sets these attributes."""

    client: ClientInstance
    group: str
    hand_out: HandOut
    assigned: Assignment
    _offsets: OffsetStore

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset` of an assigned queue; pulled messages are dropped.

        The next commit stores the offset, even if it lowers the stored one. Synchronous: it cannot be cancelled
        halfway.
        """
        process_queue = self._process_queue(queue)
        check_offset(queue, offset)
        self.hand_out.lost(process_queue)
        self._offsets.reset_offset(queue, offset)
        self.assigned.seek(queue, offset)

    async def seek_to_time(
        self, time: datetime, queues: Iterable[MessageQueue] | None = None
    ) -> dict[MessageQueue, int]:
        """Move to the first message stored at `time` or later, in all assigned queues or some; return the new offsets.

        A queue without such a message continues at its end. Brokers before 5.0 may answer with the message before.
        Raises the first error if a master cannot be asked; then no queue has moved. A cancel moves no queue either.
        """
        if time.tzinfo is None:
            raise ConfigError(f"time={time!r} has no time zone")
        answers = await of_each(
            self._chosen(queues), lambda queue: offset_at(self.client, queue, time)
        )
        for answer in answers.values():
            if isinstance(answer, Error):
                raise answer
        moved = {queue: at for queue, at in known(answers).items() if at is not None}
        for queue, offset in moved.items():
            # The queue may have moved to another member meanwhile.
            if queue in self.assigned.queues:
                self.seek(queue, offset)
        return moved

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Receive nothing more of these queues, or of all, until `resume`; they stay assigned to this member.

        Messages that were pulled from them are dropped and pulled again later. The pause also ends when a queue moves
        to another member.
        """
        for queue in self.assigned.queues if queues is None else self._chosen(queues):
            self.assigned.pause(queue)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Receive from these queues again, or from all."""
        for queue in self.assigned.queues if queues is None else self._chosen(queues):
            self.assigned.resume(queue)
            self.hand_out.offer(self.assigned.queues[queue])

    @property
    def paused(self) -> list[MessageQueue]:
        """The assigned queues that are paused."""
        return [queue for queue in self.assignment if self.assigned.queues[queue].is_paused]

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now, without the queues of its group's retry topic."""
        own = retry_topic(self.group)
        return sorted(queue for queue in self.assigned.queues if queue.topic != own)

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the message that is handed out next; None until the queue's start is known."""
        return self.hand_out.position(self._process_queue(queue))

    async def committed_offset(self, queue: MessageQueue) -> Offset:
        """Return the stored offset of the group, or NOT_FOUND. Raises Error if no broker answers."""
        return (await self._offsets.committed(queue)).offset

    async def min_offsets(self) -> dict[MessageQueue, int | None]:
        """Ask the brokers for the offset of each assigned queue's oldest message; None where unknown."""
        return known(await of_each(self.assignment, lambda queue: begin_offset(self.client, queue)))

    async def max_offsets(self) -> dict[MessageQueue, int | None]:
        """Ask the brokers for the offset that each assigned queue's next message gets; None where unknown."""
        return known(await of_each(self.assignment, lambda queue: end_offset(self.client, queue)))

    async def lag(self) -> dict[MessageQueue, int | None]:
        """Ask the brokers how many messages each assigned queue's position is behind its end; None where unknown."""
        found: dict[MessageQueue, int | None] = {}
        for queue, end in (await self.max_offsets()).items():
            process_queue = self.assigned.queues.get(queue)
            position = None if process_queue is None else self.hand_out.position(process_queue)
            # A slave may not have come as far as this consumer.
            found[queue] = None if position is None or end is None else max(0, end - position)
        return found

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        if queues is None:
            return self.assignment
        return [self._process_queue(queue).queue for queue in queues]

    def _process_queue(self, queue: MessageQueue) -> ProcessQueue:
        process_queue = self.assigned.queues.get(queue)
        if process_queue is None:
            raise ConfigError(f"{queue} is not assigned to this consumer of group {self.group}")
        return process_queue
