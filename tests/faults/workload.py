"""What uses the pair while it breaks, and the verdict: numbered messages, two groups, and everything they were told.

Invariant: a send without an answer is in doubt; it may be there or not, and is judged by neither.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from rocketrio import Error, Message, SendStatus, open_admin, open_consumer, open_producer

TOPIC: Final = "orders"
QUEUES: Final = 4
GROUPS: Final = ("g1", "g2")
MEMBERS: Final = 2
PRODUCERS: Final = 3
SEND_PAUSE: Final = 0.01
SEND_TIMEOUT: Final = 3.0
DRAIN_LIMIT: Final = 60.0
"""Seconds after the last send: clients look at routes every 30 s."""
LOOK_PERIOD: Final = 0.5
COPIED_AFTER: Final = 2.5
"""Seconds after which a slave knows a commit: it copies them every second, or later where it has just come back."""


@attrs.define
class Seen:
    """What the clients of one round were told."""

    acknowledged: set[bytes] = attrs.Factory(set)
    unsafe: set[bytes] = attrs.Factory(set)
    """Stored, but not as safely as asked for."""
    in_doubt: set[bytes] = attrs.Factory(set)
    handled: dict[str, set[bytes]] = attrs.Factory(lambda: {group: set() for group in GROUPS})
    went_back: list["StepBack"] = attrs.Factory(list)
    last_answer: float = 0.0
    longest_gap: float = 0.0
    """Seconds between two answers."""
    last_news: dict[str, float] = attrs.Factory(dict)
    longest_silence: float = 0.0
    """Seconds in which a group got nothing new, while there were answers or messages to come."""

    def came(self, group: str, body: bytes) -> None:
        """A member of the group has a message."""
        if body in self.handled[group]:
            return
        now = trio.current_time()
        self.longest_silence = max(self.longest_silence, now - self.last_news.get(group, now))
        self.last_news[group] = now
        self.handled[group].add(body)


@attrs.frozen
class StepBack:
    """A committed offset that was lower than before."""

    key: tuple[str, int]
    before: int
    now: int
    end: int
    """Of the queue."""

    def __str__(self) -> str:
        return f"{self.key}: {self.before} to {self.now} of {self.end}"


@attrs.define
class Workload:
    """Senders and members on one pair."""

    name_server: str
    seen: Seen = attrs.Factory(Seen)
    _sending: trio.CancelScope = attrs.Factory(trio.CancelScope)
    _sent: trio.Event = attrs.Factory(trio.Event)

    async def run(self) -> None:
        """Everything, until cancelled; `stop_sending` ends the senders alone."""
        async with trio.open_nursery() as nursery:
            for group in GROUPS:
                for _ in range(MEMBERS):
                    nursery.start_soon(self._consume, group)
            nursery.start_soon(self._watch_offsets)
            with self._sending:
                async with trio.open_nursery() as senders:
                    for number in range(PRODUCERS):
                        senders.start_soon(self._produce, number)
            self._sent.set()

    async def stop_sending(self) -> None:
        self._sending.cancel()
        await self._sent.wait()

    async def _produce(self, number: int) -> None:
        seen, count = self.seen, 0
        async with open_producer(
            group="senders", name_servers=[self.name_server], timeout=SEND_TIMEOUT
        ) as producer:
            seen.last_answer = trio.current_time()
            while True:
                body = b"%d.%d" % (number, count)
                count += 1
                seen.in_doubt.add(body)
                try:
                    # With keys and tags: a torn end is in the properties more often than not.
                    message = Message(TOPIC, body, tags="k", keys=[body.decode()])
                    result = await producer.send(message)
                except Error:
                    await trio.sleep(0.1)
                    continue
                seen.in_doubt.discard(body)
                is_safe = result.status == SendStatus.SEND_OK
                (seen.acknowledged if is_safe else seen.unsafe).add(body)
                now = trio.current_time()
                seen.longest_gap = max(seen.longest_gap, now - seen.last_answer)
                seen.last_answer = now
                await trio.sleep(SEND_PAUSE)

    async def _consume(self, group: str) -> None:
        while True:
            try:
                async with open_consumer(
                    TOPIC,
                    group=group,
                    name_servers=[self.name_server],
                    start_from="earliest",
                    auto_commit_interval=1.0,
                ) as consumer:
                    async for message in consumer:
                        self.seen.came(group, message.body)
            except Error:
                await trio.sleep(0.5)

    async def _watch_offsets(self) -> None:
        """See that committed offsets, as a fresh reader gets them, fall only to the end of a shorter queue.

        Without a master a reader gets a slave's copy, which may lack the commits of the last second.
        """
        told: dict[tuple[str, int], list[tuple[float, int]]] = {}
        async with open_admin(name_servers=[self.name_server]) as admin:
            while True:
                await trio.sleep(LOOK_PERIOD)
                for group in GROUPS:
                    try:
                        queues = await admin.offsets(TOPIC, group)
                    except Error:
                        continue
                    for one in queues:
                        key = group, one.queue.queue_id
                        now, end = one.committed_offset, one.max_offset
                        if now is None or end is None:
                            continue
                        samples, time = told.setdefault(key, []), trio.current_time()
                        copied = [it for when, it in samples if when < time - COPIED_AFTER]
                        before = max(copied, default=0)
                        if now < min(before, end):
                            self.seen.went_back.append(StepBack(key, before, now, end))
                        samples.append((time, now))

    async def drain(self) -> None:
        """Returns once both groups have all that was acknowledged, or it takes too long."""
        with trio.move_on_after(DRAIN_LIMIT):
            while any(self.seen.acknowledged - handled for handled in self.seen.handled.values()):  # noqa: ASYNC110
                await trio.sleep(LOOK_PERIOD)

    async def stored(self) -> set[bytes]:
        """Every message that a new reader finds."""
        found: set[bytes] = set()
        async with open_consumer(
            TOPIC, group="auditors", name_servers=[self.name_server], start_from="earliest"
        ) as consumer:
            while True:
                batch = []
                with trio.move_on_after(2.0):
                    batch = await consumer.receive_batch(1000)
                if not batch:
                    return found
                found.update(message.body for message in batch)


def verdict(seen: Seen, stored: set[bytes], *, may_lose: bool, may_go_back: bool) -> Iterator[str]:
    """What is wrong, in words; nothing is best."""
    lost = seen.acknowledged - stored
    if lost and not may_lose:
        yield f"{len(lost)} acknowledged messages are gone, such as {sorted(lost)[:5]}"
    for group, handled in seen.handled.items():
        missing = (seen.acknowledged & stored) - handled
        if missing:
            yield f"{len(missing)} acknowledged messages never came to {group}: {sorted(missing)[:5]}"
    # A queue may have as many messages as before again when its shorter progress is seen.
    gone = (
        len((seen.acknowledged | set().union(*seen.handled.values())) - stored) if may_lose else 0
    )
    went_back = [str(step) for step in seen.went_back if step.before - step.now > gone]
    if went_back and not may_go_back:
        yield f"committed offsets went back {len(went_back)} times: {went_back[:5]}"
    if not seen.acknowledged:
        yield "nothing was acknowledged at all"


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
