"""The measurements: sends, receives, round trips, and the way of messages to slaves.

Without a rate each worker begins a message when its last one is done (closed loop): a cluster that stands still for a
second costs one slow message. With a rate, messages are due at fixed times, and a latency counts from then on (open
loop): all messages that should have been sent in that second are late, as they are for users.

Invariant: after a cancel the recorder holds what was measured until then.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import attrs
import trio

from rocketrio.bench.figures import Figures, Recorder, due
from rocketrio.client import ClientInstance
from rocketrio.consuming.consume import open_consumer
from rocketrio.limits import BENCH_MESSAGES
from rocketrio.producing.produce import open_producer
from rocketrio.producing.producer import Producer
from rocketrio_protocol.errors import ConfigError, Error, RequestTimeoutError
from rocketrio_protocol.message import Message, MessageQueue

NUMBER_SIZE: Final = 16
"""The bytes at the start of a body that say which message it is."""
ARRIVAL_TIMEOUT: Final = 10.0
"""Seconds until a message counts as lost on its way."""
SLAVE_POLL_INTERVAL: Final = 0.001
"""Seconds between two questions whether a slave has a message; a delay is at most so much too long."""


@attrs.frozen(kw_only=True)
class Load:
    """What is sent, and how."""

    messages: int | None = BENCH_MESSAGES
    """None for no end but `duration`."""
    duration: float | None = None
    """Seconds after which no more messages begin."""
    size: int = 128
    """Bytes of a body."""
    in_flight: int = 8
    """How many sends of one client wait at the same time."""
    batch: int = 1
    """Messages in one request."""
    rate: float | None = None
    """Messages per second of all clients together; None for as many as possible."""

    def __attrs_post_init__(self) -> None:
        if self.messages is None and self.duration is None:
            raise ConfigError("a measurement ends after messages= or duration=")

    def numbers(self, now: float) -> Iterator[int]:
        """Yield the numbers of the requests, as long as more may begin."""
        end = None if self.duration is None else now + self.duration
        number = 0
        while self.messages is None or number * self.batch < self.messages:
            if end is not None and trio.current_time() >= end:
                return
            yield number
            number += 1

    def batch_of(self, number: int) -> range:
        """Return the numbers of the messages in one request."""
        end = (number + 1) * self.batch
        return range(number * self.batch, end if self.messages is None else min(end, self.messages))


def body_of(number: int, size: int) -> bytes:
    """Return the body of a message: its number, and random bytes that do not compress."""
    label = number.to_bytes(NUMBER_SIZE, "big")
    return label[:size] if size <= NUMBER_SIZE else label + os.urandom(size - NUMBER_SIZE)


async def _in_parallel(
    load: Load, recorder: Recorder, workers: Sequence[Callable[[int, float], Awaitable[None]]]
) -> Figures:
    """Let workers do the requests of a load; each is called with a number and the time from which latency counts."""
    began = trio.current_time()
    recorder.begin(began)
    numbers = load.numbers(began)
    rate = None if load.rate is None else load.rate / load.batch

    async def work(do: Callable[[int, float], Awaitable[None]]) -> None:
        for number in numbers:
            when = due(began, rate, number)
            if when is not None:
                await trio.sleep_until(when)
            await do(number, trio.current_time() if when is None else when)

    async with trio.open_nursery() as nursery:
        for do in workers:
            nursery.start_soon(work, do)
    recorder.is_whole = True
    return recorder.figures()


async def measure_sends(
    clients: Sequence[ClientInstance], topic: str, load: Load, recorder: Recorder | None = None
) -> Figures:
    """Measure how long sends take, from `load.in_flight` tasks of each client."""
    kept = recorder or Recorder("produce")
    async with _producers(clients, topic) as producers:

        def sender(producer: Producer) -> Callable[[int, float], Awaitable[None]]:
            async def send(number: int, since: float) -> None:
                messages = [
                    Message(topic, body_of(one, load.size)) for one in load.batch_of(number)
                ]
                count = len(messages)
                try:
                    if count == 1:
                        result = await producer.send(messages[0])
                    else:
                        result = await producer.send_batch(messages)
                except Error as error:
                    kept.fail(trio.current_time(), error, count=count)
                    return
                now = trio.current_time()
                status = result.status.name
                kept.add(now, now - since, load.size * count, status=status, count=count)

            return send

        workers = [sender(one) for one in producers for _ in range(load.in_flight)]
        return await _in_parallel(load, kept, workers)


@asynccontextmanager
async def _producers(
    clients: Sequence[ClientInstance], topic: str
) -> AsyncIterator[list[Producer]]:
    """Open a producer for each client, which knows the route of the topic."""
    async with AsyncExitStack() as stack:
        producers = [await stack.enter_async_context(open_producer(client=one)) for one in clients]
        for one in producers:
            await one.queues(topic)
        yield producers


async def fill(client: ClientInstance, topic: str, load: Load, recorder: Recorder) -> None:
    """Store the messages of a load, which are then measured at their receipt. Raises the error of the first failure."""
    async with open_producer(client=client) as producer, producer.pipeline() as pipeline:
        for number in range(load.messages or 0):
            await pipeline.send(Message(topic, body_of(number, load.size)))
            recorder.filled += 1


async def measure_receives(
    clients: Sequence[ClientInstance],
    topic: str,
    group: str,
    load: Load,
    recorder: Recorder | None = None,
) -> Figures:
    """Measure how fast new members of a group receive a topic from its first message on.

    A latency is the time for which a member waited for one message. The end is `load.messages`, or `load.duration`.
    """
    kept = recorder or Recorder("consume")
    limit = load.messages

    async def receive(client: ClientInstance) -> None:
        async with open_consumer(
            topic, group=group, start_from="earliest", client=client
        ) as consumer:
            while limit is None or kept.messages < limit:
                since = trio.current_time()
                kept.begin(since)
                message = await consumer.receive()
                now = trio.current_time()
                size = 0 if message.body_error is not None else len(message.body)
                kept.add(now, now - since, size, status="received")
            nursery.cancel_scope.cancel()

    with trio.move_on_after(float("inf") if load.duration is None else load.duration):
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(receive, client)
    kept.is_whole = True
    return kept.figures()


async def measure_round_trips(
    client: ClientInstance,
    topic: str,
    group: str,
    load: Load,
    recorder: Recorder | None = None,
) -> Figures:
    """Measure the time from a send until a member of a group has received the message."""
    kept = recorder or Recorder("pingpong")
    arrivals: dict[int, trio.Event] = {}
    async with (
        _producers([client], topic) as producers,
        open_consumer(topic, group=group, start_from="earliest", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def receive() -> None:
            async for message in consumer:
                if message.body_error is not None:
                    continue  # Another program sent it.
                number = int.from_bytes(message.body[:NUMBER_SIZE], "big")
                if number in arrivals:
                    arrivals[number].set()

        async def trip(number: int, since: float) -> None:
            arrived = arrivals[number] = trio.Event()
            try:
                await producers[0].send(Message(topic, body_of(number, load.size)))
                with trio.move_on_after(ARRIVAL_TIMEOUT):
                    await arrived.wait()
            except Error as error:
                kept.fail(trio.current_time(), error)
                return
            finally:
                del arrivals[number]
            now = trio.current_time()
            if arrived.is_set():
                kept.add(now, now - since, load.size, status="received")
            else:
                kept.fail(now, RequestTimeoutError("not received"))

        nursery.start_soon(receive)
        # The first one waits for the queues of a new member.
        await _warm_up(producers[0], topic, arrivals)
        figures = await _in_parallel(load, kept, [trip] * load.in_flight)
        nursery.cancel_scope.cancel()
    return figures


async def _warm_up(producer: Producer, topic: str, arrivals: dict[int, trio.Event]) -> None:
    """Send one message to each queue, and wait until one has arrived."""
    number = 2 ** (8 * NUMBER_SIZE) - 1
    arrived = arrivals[number] = trio.Event()
    for queue in await producer.queues(topic):
        await producer.send(Message(topic, body_of(number, NUMBER_SIZE)), queue=queue)
    with trio.fail_after(ARRIVAL_TIMEOUT * 6):
        await arrived.wait()
    del arrivals[number]


async def measure_replication(
    client: ClientInstance,
    topic: str,
    slaves: Mapping[str, Sequence[str]],
    load: Load,
    recorder: Recorder | None = None,
) -> Figures:
    """Measure how long after a send's answer the last slave shows the message; `slaves` are addresses by broker name.

    Slaves are asked again and again for the end of the queue, so a delay holds one round trip to a slave at least.

    Raises ConfigError if no broker of the topic has a slave.
    """
    kept = recorder or Recorder("replication")
    async with _producers([client], topic) as producers:
        queues = [one for one in await producers[0].queues(topic) if slaves.get(one.broker_name)]
        if not queues:
            raise ConfigError(f"no broker of {topic} has a slave that is registered")

        async def send(number: int, since: float) -> None:
            message = Message(topic, body_of(number, load.size))
            queue = queues[number % len(queues)]
            try:
                sent = await producers[0].send(message, queue=queue)
                stored = trio.current_time()
                for addr in slaves[queue.broker_name]:
                    await _wait_shown(client, addr, queue, sent.queue_offset)
            except Error as error:
                kept.fail(trio.current_time(), error)
                return
            now = trio.current_time()
            kept.add(now, now - stored, load.size, status=sent.status.name)

        return await _in_parallel(load, kept, [send] * load.in_flight)


async def _wait_shown(client: ClientInstance, addr: str, queue: MessageQueue, offset: int) -> None:
    with trio.move_on_after(ARRIVAL_TIMEOUT):
        while True:
            if await client.api.max_offset(addr, queue) > offset:
                return
            await trio.sleep(SLAVE_POLL_INTERVAL)
    raise RequestTimeoutError(f"the slave {addr} did not get it within {ARRIVAL_TIMEOUT:g} s")
