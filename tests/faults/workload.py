"""What uses the pair while it breaks: numbered messages, groups that get them, and the answers that all of them got.

    p0.17   the 18th message of a sender     d0.5   one that is delayed     t0.3   one in a transaction

Of four transactions one is committed, one rolled back, and two are left open: the broker asks, and gets a commit
one and to drop the other.

Invariant: a send without an answer is in doubt; it may be there or not, and is judged by neither.
"""

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from rocketrio import (
    Consumer,
    Error,
    Message,
    MessageExt,
    Producer,
    SendStatus,
    TransactionState,
    open_admin,
    open_consumer,
    open_producer,
)

TOPIC: Final = "orders"
QUEUES: Final = 4
GROUPS: Final = ("g1", "g2")
ORDERLY: Final = "g3"
"""A group whose queues have one owner at a time."""
MEMBERS: Final = 2
PRODUCERS: Final = 3
SEND_PAUSE: Final = 0.01
OTHER_PAUSE: Final = 0.2
"""Of those that delay, and of those that pay."""
SEND_TIMEOUT: Final = 3.0
HANDLER_TAKES: Final = 0.005
"""So that two owners of a queue are seen at the same time."""
DELAY_LEVEL: Final = 1
DELAY_MS: Final = 1000
DRAIN_LIMIT: Final = 90.0
"""Seconds after the last send."""
QUIET: Final = 35.0
"""Seconds after which nothing comes any more: clients look at routes every 30 s."""
LOOK_PERIOD: Final = 0.5


@attrs.define
class Sent:
    """A message, and its answer."""

    begun: float
    begun_ms: int
    answered: float | None = None
    is_safe: bool = False
    """Whether the answer said that it is stored as safely as asked for."""


@attrs.frozen
class Record:
    """A message as a new reader finds it."""

    queue_id: int
    offset: int
    body: bytes
    store_ms: int


@attrs.frozen
class Handling:
    """A message as a member of a group got it."""

    member: str
    queue_id: int
    offset: int
    body: bytes
    begun: float
    ended: float


@attrs.frozen
class Sample:
    """A committed offset as a fresh reader gets it."""

    at: float
    committed: int
    end: int
    """Of the queue."""


@attrs.define
class Seen:
    """The answers that the clients of one round got."""

    sent: dict[bytes, Sent] = attrs.Factory(dict)
    done: set[bytes] = attrs.Factory(set)
    """The transactions that are committed, or whose broker gets that answer when it asks."""
    handled: dict[str, list[Handling]] = attrs.Factory(lambda: defaultdict(list))
    bodies: dict[str, set[bytes]] = attrs.Factory(
        lambda: {group: set() for group in (*GROUPS, ORDERLY)}
    )
    """What came to each group."""
    committed: dict[tuple[str, int], list[Sample]] = attrs.Factory(lambda: defaultdict(list))
    last_answer: float = 0.0
    longest_gap: float = 0.0
    """Seconds between two answers."""
    last_news: dict[str, float] = attrs.Factory(dict)
    longest_silence: float = 0.0
    """Seconds in which a group got nothing new, while there were answers or messages to come. The orderly one does not
    count: it waits for locks."""

    @property
    def promised(self) -> set[bytes]:
        """What is stored safely and shall come to every group."""
        return {
            body for body, sent in self.sent.items() if sent.is_safe and not self.is_dropped(body)
        }

    @property
    def unsafe(self) -> set[bytes]:
        """Stored, but not as safely as asked for."""
        return {
            body
            for body, sent in self.sent.items()
            if sent.answered is not None and not sent.is_safe
        }

    @property
    def in_doubt(self) -> set[bytes]:
        """Sent, and never answered."""
        return {body for body, sent in self.sent.items() if sent.answered is None}

    def is_dropped(self, body: bytes) -> bool:
        """Whether it belongs to a transaction that is never to be committed."""
        return body.startswith(b"t") and body not in self.done

    def begins(self, body: bytes) -> None:
        """It is about to be sent."""
        self.sent[body] = Sent(trio.current_time(), int(time.time() * 1000))

    def is_answered(self, body: bytes, status: SendStatus) -> None:
        """It is stored."""
        sent, now = self.sent[body], trio.current_time()
        sent.answered, sent.is_safe = now, status == SendStatus.SEND_OK
        self.longest_gap = max(self.longest_gap, now - (self.last_answer or now))
        self.last_answer = now

    def came(self, group: str, member: str, message: MessageExt, begun: float) -> None:
        """A member of the group has handled a message."""
        now, body = trio.current_time(), message.body
        self.handled[group].append(
            Handling(member, message.queue_id, message.queue_offset, body, begun, now)
        )
        if body not in self.bodies[group]:
            if group in GROUPS:
                silence = now - self.last_news.get(group, now)
                self.longest_silence = max(self.longest_silence, silence)
            self.last_news[group] = now
            self.bodies[group].add(body)


@attrs.define
class Workload:
    """Senders and members on one pair."""

    name_server: str
    seen: Seen = attrs.Factory(Seen)
    is_over: trio.Event = attrs.Factory(trio.Event)
    """Set after the story: another member comes to the orderly group, and queues get other owners."""
    _stops: trio.Event = attrs.Factory(trio.Event)
    _sending: int = 0

    async def run(self) -> None:
        """Everything, until cancelled; `stop_sending` ends the senders alone."""
        async with trio.open_nursery() as nursery:
            for group in (*GROUPS, ORDERLY):
                for number in range(MEMBERS):
                    nursery.start_soon(self._consume, group, f"{group}-{number}")
            nursery.start_soon(self._come_later)
            nursery.start_soon(self._watch_offsets)
            for number in range(PRODUCERS):
                nursery.start_soon(self._produce, b"p%d" % number, SEND_PAUSE, 0)
            nursery.start_soon(self._produce, b"d0", OTHER_PAUSE, DELAY_LEVEL)
            nursery.start_soon(self._pay)

    async def stop_sending(self) -> None:
        """Return when the last send is answered, or is in doubt."""
        self._stops.set()
        while self._sending:  # noqa: ASYNC110
            await trio.sleep(0.05)

    # --------------------------------------------------------------------------------------- sending

    def _bodies(self, name: bytes) -> Iterable[bytes]:
        """Numbered ones, until sending stops."""
        self._sending += 1
        number = 0
        try:
            while not self._stops.is_set():
                yield b"%b.%d" % (name, number)
                number += 1
        finally:
            self._sending -= 1

    async def _produce(self, name: bytes, pause: float, delay_level: int) -> None:
        seen = self.seen
        async with open_producer(
            group="senders", name_servers=[self.name_server], timeout=SEND_TIMEOUT
        ) as producer:
            for body in self._bodies(name):
                seen.begins(body)
                try:
                    result = await producer.send(_message(body, delay_level))
                except Error:
                    await trio.sleep(0.1)
                    continue
                seen.is_answered(body, result.status)
                await trio.sleep(pause)

    async def _pay(self) -> None:
        async with open_producer(
            group="payers",
            name_servers=[self.name_server],
            timeout=SEND_TIMEOUT,
            check_transaction=self._check,
        ) as producer:
            for number, body in enumerate(self._bodies(b"t0")):
                try:
                    await self._transaction(producer, number % 4, body)
                except Error:
                    await trio.sleep(0.1)
                await trio.sleep(OTHER_PAUSE)
            await trio.sleep_forever()  # It is asked about what was left open.

    async def _transaction(self, producer: Producer, kind: int, body: bytes) -> None:
        seen = self.seen
        seen.begins(body)
        async with producer.transaction(_message(body, 0)) as transaction:
            seen.is_answered(body, transaction.sent.status)
            if kind % 2 == 0:
                seen.done.add(body)
            if kind >= 2:
                transaction.leave_open()
            elif kind == 1:
                transaction.rollback()

    async def _check(self, message: MessageExt) -> TransactionState:
        is_done = message.body in self.seen.done
        return TransactionState.COMMIT if is_done else TransactionState.ROLLBACK

    # ------------------------------------------------------------------------------------- consuming

    async def _consume(self, group: str, member: str) -> None:
        async def handle(message: MessageExt) -> None:
            begun = trio.current_time()
            await trio.sleep(HANDLER_TAKES)
            self.seen.came(group, member, message, begun)

        async def read(consumer: Consumer) -> None:
            async for message in consumer:
                self.seen.came(group, member, message, trio.current_time())

        while True:
            try:
                async with open_consumer(
                    TOPIC,
                    group=group,
                    name_servers=[self.name_server],
                    start_from="earliest",
                    orderly=group == ORDERLY,
                    auto_commit_interval=1.0,
                ) as consumer:
                    await (consumer.run(handle) if group == ORDERLY else read(consumer))
            except Error:
                await trio.sleep(0.5)

    async def _come_later(self) -> None:
        await self.is_over.wait()
        await self._consume(ORDERLY, f"{ORDERLY}-{MEMBERS}")

    async def _watch_offsets(self) -> None:
        async with open_admin(name_servers=[self.name_server]) as admin:
            while True:
                await trio.sleep(LOOK_PERIOD)
                for group in (*GROUPS, ORDERLY):
                    try:
                        queues = await admin.offsets(TOPIC, group)
                    except Error:
                        continue
                    now = trio.current_time()
                    for one in queues:
                        if one.committed_offset is not None and one.max_offset is not None:
                            sample = Sample(now, one.committed_offset, one.max_offset)
                            self.seen.committed[group, one.queue.queue_id].append(sample)

    # ------------------------------------------------------------------------------------ afterwards

    async def drain(self) -> None:
        """Return once all groups have all that was acknowledged, or nothing comes any more."""
        seen = self.seen
        with trio.move_on_after(DRAIN_LIMIT):
            while any(seen.promised - bodies for bodies in seen.bodies.values()):
                await trio.sleep(LOOK_PERIOD)
                if max(seen.last_news.values(), default=0.0) < trio.current_time() - QUIET:
                    return

    async def stored(self) -> list[Record]:
        """Every message that a new reader finds."""
        found: dict[tuple[int, int], Record] = {}
        async with open_consumer(
            TOPIC, group="auditors", name_servers=[self.name_server], start_from="earliest"
        ) as consumer:
            while True:
                batch = []
                with trio.move_on_after(2.0):
                    batch = await consumer.receive_batch(1000)
                if not batch:
                    return [found[place] for place in sorted(found)]
                for one in batch:
                    record = Record(one.queue_id, one.queue_offset, one.body, one.store_time_ms)
                    found[record.queue_id, record.offset] = record


def _message(body: bytes, delay_level: int) -> Message:
    # With keys and tags: a torn end is in the properties more often than not.
    return Message(TOPIC, body, tags="k", keys=[body.decode()], delay_level=delay_level)


@asynccontextmanager
async def working(name_server: str) -> AsyncGenerator[Workload]:
    """A topic, and everybody at work for as long as the block."""
    async with open_admin(name_servers=[name_server]) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    workload = Workload(name_server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(workload.run)
        yield workload
        nursery.cancel_scope.cancel()
