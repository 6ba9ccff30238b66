"""A message that an operator asked to be handled now; it gets a private queue that is never committed."""

import attrs
import trio

from rocketrio.consuming.in_work import BatchInWork, Unit
from rocketrio.consuming.process_queue import Chunk, ProcessQueue
from rocketrio_protocol.message import MessageExt, MessageQueue


@attrs.define(eq=False)
class Apart:
    """One message to be handled immediately, apart from its queue."""

    message: MessageExt
    is_batch: bool
    """Whether the handler takes lists."""
    failure: Exception | None = None
    is_handled: bool = False
    """Whether the handler returned or raised; False if it was cancelled because the run ended."""
    ended: trio.Event = attrs.Factory(trio.Event)
    unit: Unit = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        message = self.message
        queue = ProcessQueue(MessageQueue(message.topic, message.broker_name, message.queue_id))
        queue.start(message.queue_offset)
        queue.chunks.append(Chunk([message], message.queue_offset + 1, 0, is_held=False))
        queue.message_count = 1
        works = queue.begin_batch(1)
        self.unit = BatchInWork(works) if self.is_batch else works[0]
