"""One message of a use, sent once and noted: with one attempt a send there is one record at most."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from tests.cluster.histories.events import Note, now
from tests.cluster.histories.uses.events import Accepted, Offered
from tests.cluster.histories.uses.names import DELAYS
from tests.cluster.histories.world import BODY_AT, BROKER_NAME, World

from rocketrio import (
    ClientInstance,
    Error,
    Message,
    MessageQueue,
    Producer,
    SendResult,
    open_producer,
)
from rocketrio_protocol.record.message_id import parse_offset_message_id

SEND_TIMEOUT: Final = 3.0


def sender(
    group: str, client: ClientInstance, *, timeout: float = SEND_TIMEOUT, **options: Any
) -> AbstractAsyncContextManager[Producer]:
    """A producer that tries once."""
    return open_producer(group=group, client=client, timeout=timeout, retries=0, **options)


def note_offer(world: World, message: Message) -> float:
    """It is sent from now on."""
    delay = float(DELAYS[message.delay_level - 1]) if message.delay_level else 0.0
    started = now()
    world.history.add(Offered(at=started, topic=message.topic, body=message.body, delay=delay))
    return started


def note_answer(world: World, message: Message, result: SendResult, started: float) -> None:
    """A master answered."""
    host, _, physical_offset = parse_offset_message_id(result.offset_message_ids[-1])
    world.history.add(
        Accepted(
            at=now(),
            topic=message.topic,
            body=message.body,
            started=started,
            broker=world.number(host),
            status=result.status.name,
            end_offset=physical_offset + BODY_AT + len(message.body),
        )
    )


async def post(
    world: World, producer: Producer, message: Message, *, queue_id: int | None = None
) -> None:
    """Send it, aimed at a queue or not."""
    started = note_offer(world, message)
    queue = None if queue_id is None else MessageQueue(message.topic, BROKER_NAME, queue_id)
    try:
        result = await producer.send(message, queue=queue)
    except Error as error:
        text = f"{message.body!r} {type(error).__name__}: {error}"
        world.history.add(Note(at=now(), who=message.topic, text=text))
    else:
        note_answer(world, message, result, started)
