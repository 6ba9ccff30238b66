"""A message that an operator has a handler run on, out of turn: it stands in a queue of its own that nobody commits."""

import attrs
import trio

from rocketrio.consuming.in_work import BatchInWork, Unit
from rocketrio.consuming.process_queue import Chunk, ProcessQueue
from rocketrio_protocol.message import MessageExt, MessageQueue


@attrs.define(eq=False)
class Apart:
    """One such message."""

    message: MessageExt
    is_batch: bool
    """The handler gets lists."""
    failure: Exception | None = None
    is_handled: bool = False
    """The handler returned or raised, and was not cut off by the end of all."""
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
