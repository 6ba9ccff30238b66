"""Long polling: pulls that found nothing and wait for a message.

`HeldPulls` is the table alone; `PullRequestHoldService` wakes its pulls: a held pull is an entry, not a task.

    arrival in its queue, filter accepts   executed again at once, when readers may see it (read_gate.py)
    arrivals that the filter rejects       executed again at the next look, so that its offset moves on
    its time is up                         executed again then
    the broker stands aside                all are executed again, and refused

Invariant: a held pull is executed again exactly once, or dropped with its connection.
Invariant: a fault while one is looked at is answered to that one, and touches no other.
Answers to: PullRequestHoldService, NotifyMessageArrivingListener; RocketMQ reference, section 8.5.
Unlike Java: slaves wake their readers too; times are kept exactly, not to the next 5 s.
"""

from collections.abc import Callable, Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Final, Protocol

import attrs
import trio

from rocketrio_broker.leadership import Leadership
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.read import GetStatus
from rocketrio_broker.store.record_filter import PropertiesFilter
from rocketrio_broker.watermark import Watermark
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import answer_of

HELD_PULLS_LIMIT: Final = 100_000
"""Pulls held at once; one more is answered without waiting (pullThreadPoolQueueCapacity)."""

LOOK_INTERVAL: Final = 5.0
"""Seconds between looks at all pulls, for arrivals that the filter rejected (PullRequestHoldService.run)."""

_SWEEP_FLOOR: Final = 1024  # finished pulls kept in the heap before it is rebuilt without them

QueueKey = tuple[str, int]


@attrs.define(eq=False)
class HeldPull:
    """One pull that waits."""

    channel: Channel
    request: RemotingCommand
    header: PullMessageRequestHeader
    tags_codes: frozenset[int] | None
    deadline: float
    checked_offset: int
    """Where the filter looks next: what lies between the pull's offset and here it rejected."""
    is_over: bool = False
    matches: PropertiesFilter | None = None
    """What chooses messages in place of their tags."""

    @property
    def key(self) -> QueueKey:
        return self.header.topic, self.header.queue_id


class HeldPulls:
    """Held pulls by queue, by connection and by deadline."""

    def __init__(self, *, limit: int = HELD_PULLS_LIMIT) -> None:
        self.earlier = Watermark()
        """Advances when a pull is added whose time is up before all others'."""
        self._limit = limit
        self._by_key: dict[QueueKey, dict[HeldPull, None]] = {}
        self._by_channel: dict[Channel, set[HeldPull]] = {}
        self._by_deadline: list[tuple[float, int, HeldPull]] = []
        self._order = count()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[HeldPull]:
        for pulls in self._by_key.values():
            yield from pulls

    @property
    def is_full(self) -> bool:
        """Whether no further pull is held."""
        return self._size >= self._limit

    @property
    def next_deadline(self) -> float:
        """When the first pull's time is up; infinite without any."""
        heap = self._by_deadline
        while heap and heap[0][2].is_over:
            heappop(heap)
        return heap[0][0] if heap else inf

    def add(self, pull: HeldPull) -> None:
        """Hold a pull."""
        is_first = pull.deadline < self.next_deadline
        self._by_key.setdefault(pull.key, {})[pull] = None
        self._by_channel.setdefault(pull.channel, set()).add(pull)
        heappush(self._by_deadline, (pull.deadline, next(self._order), pull))
        self._size += 1
        if is_first:
            self.earlier.advance(self.earlier.value + 1)

    def at(self, key: QueueKey) -> list[HeldPull]:
        """The pulls that wait at a queue, oldest first."""
        return list(self._by_key.get(key, ()))

    def remove(self, pull: HeldPull) -> None:
        """Hold it no longer."""
        pull.is_over = True
        at_queue = self._by_key[pull.key]
        del at_queue[pull]
        if not at_queue:
            del self._by_key[pull.key]
        of_channel = self._by_channel[pull.channel]
        of_channel.discard(pull)
        if not of_channel:
            del self._by_channel[pull.channel]
        self._size -= 1
        if len(self._by_deadline) > _SWEEP_FLOOR and len(self._by_deadline) > 2 * self._size:
            self._by_deadline = [entry for entry in self._by_deadline if not entry[2].is_over]
            heapify(self._by_deadline)

    def take_due(self, now: float) -> list[HeldPull]:
        """Remove and return the pulls whose time is up."""
        due = []
        while self.next_deadline <= now:
            pull = heappop(self._by_deadline)[2]
            self.remove(pull)
            due.append(pull)
        return due

    def channel_closed(self, channel: Channel) -> None:
        """Drop the pulls of a connection that ended."""
        for pull in list(self._by_channel.get(channel, ())):
            self.remove(pull)


class PullExecutor(Protocol):
    """What executes a pull again: the pull processor. None: it was answered, or its connection is gone."""

    def execute_held(self, pull: HeldPull) -> RemotingCommand | None: ...


class PullRequestHoldService:
    """Wakes held pulls."""

    def __init__(
        self,
        held: HeldPulls,
        executor: PullExecutor,
        store: MessageStore,
        *,
        leadership: Leadership,
        look_interval: Callable[[], float] = lambda: LOOK_INTERVAL,
    ) -> None:
        self._held = held
        self._executor = executor
        self._store = store
        self._leadership = leadership
        self._look_interval = look_interval

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Wake pulls on arrivals and when their time is up."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_arrivals)
            nursery.start_soon(self._watch_time)
            nursery.start_soon(self._watch_leadership)
            task_status.started()

    async def _watch_arrivals(self) -> None:
        while True:
            await self._store.wait_arrivals()
            for key in self._store.take_arrivals():
                self.arrived(key)

    async def _watch_time(self) -> None:
        held = self._held
        next_look = trio.current_time() + self._look_interval()
        while True:
            with trio.move_on_at(min(held.next_deadline, next_look)):
                await held.earlier.wait_past(held.earlier.value)
            now = trio.current_time()
            for pull in held.take_due(now):
                self._act(pull, self._executor.execute_held)
            if now >= next_look:
                for pull in list(held):
                    self._act(pull, self._wake_if_grown)
                next_look = now + self._look_interval()

    async def _watch_leadership(self) -> None:
        """Answer all pulls when another master is found: their readers are to go there now."""
        seen = self._leadership.changes.value
        while True:
            seen = await self._leadership.changes.wait_past(seen)
            if self._leadership.other is not None:
                for pull in list(self._held):
                    self._act(pull, self._wake)

    def arrived(self, key: QueueKey) -> None:
        """A queue has grown: wake the pulls that want what came."""
        for pull in self._held.at(key):
            self._act(pull, self._wake_if_wanted)

    def _act(self, pull: HeldPull, look: Callable[[HeldPull], RemotingCommand | None]) -> None:
        """Look at one pull; what that answers it gets, a fault too, and then waits no more."""
        answer = answer_of(pull.channel, pull.request, partial(look, pull))
        if answer is not None:
            self._drop(pull)
            pull.channel.reply(answer)

    def _drop(self, pull: HeldPull) -> None:
        if not pull.is_over:
            self._held.remove(pull)

    def _wake_if_wanted(self, pull: HeldPull) -> RemotingCommand | None:
        return self._wake(pull) if self._is_wanted(pull) else None

    def _wake_if_grown(self, pull: HeldPull) -> RemotingCommand | None:
        return self._wake(pull) if self._has_grown(pull) else None

    def _wake(self, pull: HeldPull) -> RemotingCommand | None:
        self._drop(pull)
        return self._executor.execute_held(pull)

    def _has_grown(self, pull: HeldPull) -> bool:
        return self._store.seen_queue_end(*pull.key) > pull.header.queue_offset

    def _is_wanted(self, pull: HeldPull) -> bool:
        if pull.tags_codes is None and pull.matches is None:
            return self._has_grown(pull)
        found = self._store.get_message(
            *pull.key, pull.checked_offset, 1, tags_codes=pull.tags_codes, matches=pull.matches
        )
        if found.status is GetStatus.NO_MATCHED_MESSAGE:
            pull.checked_offset = found.next_begin_offset
            return False
        return found.status is not GetStatus.OFFSET_OVERFLOW_ONE
