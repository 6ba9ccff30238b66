"""Long polling: pulls that found nothing and wait for a message.

`HeldPulls` is the table alone; `PullRequestHoldService` wakes its pulls: a held pull is an entry, not a task.

    arrival in its queue, filter accepts   executed again at once, when readers may see it (read_gate.py)
    arrivals that the filter rejects       executed again at the next scan, so that its offset advances
    its time is up                         executed again then
    the broker stands aside                all are executed again, and refused

Limits count in weights: a pull weighs one, and one more for each 64 characters of its texts, which determine how much
memory its filter takes.

Invariant: a held pull is executed again exactly once, or dropped with its connection.
Invariant: what is kept of a pull is bounded by its weight: its request's body and further fields are not kept.
Invariant: if all places are taken, a new pull displaces one of the connection with the most, so that one client's many
pulls cannot turn off long polling for others.
Invariant: other tasks run after TURN_PULLS, and pulls of a queue do not wait for all pulls of a queue with many.
Invariant: an error while one pull is examined is answered to that pull, and affects no other.
Answers to: PullRequestHoldService, NotifyMessageArrivingListener; RocketMQ reference, section 8.5.
Unlike Java: slaves wake their readers too; times are kept exactly, not to the next 5 s.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count, islice
from math import inf
from typing import Final, Protocol

import attrs
import trio

from rocketrio_broker.role.standing import CurrentStanding
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.read import GetStatus
from rocketrio_broker.store.record_filter import PropertiesFilter
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import answer_of

HELD_PULLS_LIMIT: Final = 100_000
"""The largest weight of all held pulls (pullThreadPoolQueueCapacity), some 1.5 KB each."""

CONNECTION_LIMIT: Final = 5000
"""The largest weight of one connection's held pulls: more than a topic has queues, of which a reader has one each."""

SUSPEND_LIMIT: Final = 120.0
"""The most seconds for which a pull is held, whatever it requests; Java's clients ask for 15 to 30."""

TURN_PULLS: Final = 100
"""Pulls that are woken, or examined, before other tasks run: some 5 ms."""

_CHARACTERS_OF_A_WEIGHT: Final = 64

CHECK_INTERVAL: Final = 5.0
"""Seconds between scans of all pulls, for arrivals that the filter rejected (PullRequestHoldService.run)."""

_SWEEP_FLOOR: Final = 1024  # finished pulls kept in the heap before it is rebuilt without them

QueueKey = tuple[str, int]


@attrs.define(eq=False)
class HeldPull:
    """One waiting pull."""

    channel: Channel
    request: RemotingCommand
    header: PullMessageRequestHeader
    tags_codes: frozenset[int] | None
    deadline: float
    checked_offset: int
    """Where the filter continues: it rejected everything between the pull's offset and here."""
    is_over: bool = False
    matches: PropertiesFilter | None = None
    """The filter that replaces the tags."""
    weight: int = attrs.field(init=False)

    @weight.default
    def _weight_of_texts(self) -> int:
        header = self.header
        texts = header.subscription, header.epoch, header.topic, header.consumer_group
        return 1 + sum(len(text) for text in texts if text) // _CHARACTERS_OF_A_WEIGHT

    @classmethod
    def of(
        cls,
        channel: Channel,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        codes: frozenset[int] | None,
        matches: PropertiesFilter | None,
        *,
        deadline: float,
    ) -> "HeldPull":
        """Create it from a request, keeping only what the answer needs."""
        kept = RemotingCommand(
            request.code, request.opaque, request.flag, serialize_type=request.serialize_type
        )
        kept.user = request.user
        offset = header.queue_offset
        return cls(channel, kept, header, codes, deadline, offset, matches=matches)

    @property
    def key(self) -> QueueKey:
        return self.header.topic, self.header.queue_id


class HeldPulls:
    """Held pulls by queue, by connection and by deadline."""

    def __init__(
        self, *, limit: int = HELD_PULLS_LIMIT, connection_limit: int = CONNECTION_LIMIT
    ) -> None:
        self.earlier = Watermark()
        """Advances when a pull is added whose deadline is before all others'."""
        self._limit = limit
        self._by_key: dict[QueueKey, dict[HeldPull, None]] = {}
        self._by_channel: dict[Channel, dict[HeldPull, None]] = {}
        self._connection_limit = connection_limit
        self._weight = 0
        self._weights: dict[Channel, int] = {}
        self._by_weight: dict[int, dict[Channel, None]] = {}
        self._by_deadline: list[tuple[float, int, HeldPull]] = []
        self._order = count()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[HeldPull]:
        for pulls in self._by_key.values():
            yield from pulls

    def has_room(self, pull: HeldPull) -> bool:
        """Return True if the pull can be held without displacing another."""
        return self._weight + pull.weight <= self._limit and self._is_within_share(pull)

    def displaced_by(self, pull: HeldPull) -> HeldPull | None:
        """Return the pull to answer now to make room: the oldest of the connection that has more than all others."""
        if not self._is_within_share(pull) or not self._by_weight:
            return None
        most = max(self._by_weight)
        # The newcomer's own connection would have the most: it gets no place, and is answered at once.
        if most <= self._weights.get(pull.channel, 0) + pull.weight:
            return None
        heaviest = next(iter(self._by_weight[most]))
        return next(iter(self._by_channel[heaviest]))

    def _is_within_share(self, pull: HeldPull) -> bool:
        return self._weights.get(pull.channel, 0) + pull.weight <= self._connection_limit

    def _weigh(self, channel: Channel, change: int) -> None:
        before = self._weights.pop(channel, 0)
        if before:
            equal = self._by_weight[before]
            del equal[channel]
            if not equal:
                del self._by_weight[before]
        after = before + change
        if after:
            self._weights[channel] = after
            self._by_weight.setdefault(after, {})[channel] = None
        self._weight += change

    @property
    def next_deadline(self) -> float:
        """The first deadline of all pulls; infinite if there are none."""
        heap = self._by_deadline
        while heap and heap[0][2].is_over:
            heappop(heap)
        return heap[0][0] if heap else inf

    def add(self, pull: HeldPull) -> None:
        """Hold a pull."""
        is_first = pull.deadline < self.next_deadline
        self._by_key.setdefault(pull.key, {})[pull] = None
        self._by_channel.setdefault(pull.channel, {})[pull] = None
        self._weigh(pull.channel, pull.weight)
        heappush(self._by_deadline, (pull.deadline, next(self._order), pull))
        self._size += 1
        if is_first:
            self.earlier.advance(self.earlier.value + 1)

    def at(self, key: QueueKey) -> list[HeldPull]:
        """Return the pulls that wait at a queue, oldest first."""
        return list(self._by_key.get(key, ()))

    def remove(self, pull: HeldPull) -> None:
        """Stop holding a pull."""
        # It stays in the heap of deadlines until it is met or swept; by this mark it is not executed a second time.
        pull.is_over = True
        at_queue = self._by_key[pull.key]
        del at_queue[pull]
        if not at_queue:
            del self._by_key[pull.key]
        of_channel = self._by_channel[pull.channel]
        del of_channel[pull]
        if not of_channel:
            del self._by_channel[pull.channel]
        self._weigh(pull.channel, -pull.weight)
        self._size -= 1
        if len(self._by_deadline) > _SWEEP_FLOOR and len(self._by_deadline) > 2 * self._size:
            self._by_deadline = [entry for entry in self._by_deadline if not entry[2].is_over]
            heapify(self._by_deadline)

    def due(self, now: float) -> Iterator[HeldPull]:
        """Remove and yield the pulls whose time is up."""
        while self.next_deadline <= now:
            pull = heappop(self._by_deadline)[2]
            self.remove(pull)
            yield pull

    def channel_closed(self, channel: Channel) -> None:
        """Drop the pulls of a connection that ended."""
        for pull in list(self._by_channel.get(channel, ())):
            self.remove(pull)


class PullExecutor(Protocol):
    """Executes a pull again: the pull processor. It returns None if the pull was answered or its connection closed."""

    def execute_held(self, pull: HeldPull) -> RemotingCommand | None: ...


Examine = Callable[[HeldPull], RemotingCommand | None]
"""Examines one held pull, and returns its answer, if any."""


class PullRequestHoldService:
    """Wakes held pulls."""

    def __init__(
        self,
        held: HeldPulls,
        executor: PullExecutor,
        store: MessageStore,
        *,
        standing: CurrentStanding,
        check_interval: Callable[[], float] = lambda: CHECK_INTERVAL,
    ) -> None:
        self._held = held
        self._executor = executor
        self._store = store
        self._standing = standing
        self._check_interval = check_interval

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Wake pulls on arrivals and when their time is up."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_arrivals)
            nursery.start_soon(self._watch_time)
            nursery.start_soon(self._watch_standing)
            task_status.started()

    async def _watch_arrivals(self) -> None:
        """Wake the pulls that want a message that arrived; queues with many pulls take turns."""
        turns: deque[Iterator[HeldPull]] = deque()
        while True:
            arrived = self._store.take_arrivals()
            # A copy: a pull that is held again while these are woken waits for the next arrival.
            turns.extend(iter(pulls) for key in arrived if (pulls := self._held.at(key)))
            left = TURN_PULLS
            while turns and left > 0:
                turn = turns.popleft()
                pulls = list(islice(turn, TURN_PULLS))
                for pull in pulls:
                    self._act(pull, self._wake_if_wanted)
                left -= max(len(pulls), 1)
                # Behind the other queues: a queue with thousands of readers must not make those of all others wait.
                if len(pulls) == TURN_PULLS:
                    turns.append(turn)
            if turns:
                await trio.lowlevel.checkpoint()
            else:
                await self._store.wait_arrivals()

    async def _watch_time(self) -> None:
        held = self._held
        next_check = trio.current_time() + self._check_interval()
        while True:
            with trio.move_on_at(min(held.next_deadline, next_check)):
                await held.earlier.wait_past(held.earlier.value)
            now = trio.current_time()
            await self._act_on(held.due(now), self._executor.execute_held)
            if now >= next_check:
                await self._act_on(list(held), self._wake_if_grown)
                next_check = now + self._check_interval()

    async def _watch_standing(self) -> None:
        """Execute all pulls again when another master is found, so that their readers go there."""
        seen = self._standing.changes.value
        while True:
            seen = await self._standing.changes.wait_past(seen)
            if not self._standing.now.serves:
                await self._act_on(list(self._held), self._wake)

    async def _act_on(self, pulls: Iterable[HeldPull], examine: Examine) -> None:
        for number, pull in enumerate(pulls, start=1):
            self._act(pull, examine)
            if number % TURN_PULLS == 0:
                await trio.lowlevel.checkpoint()

    def _act(self, pull: HeldPull, examine: Examine) -> None:
        """Examine one pull; send its answer if there is one, also an error, and stop holding it."""
        # An error of one pull, a filter that fails for example, becomes its
        # answer; raised, it would end all long polling.
        answer = answer_of(pull.channel, pull.request, partial(examine, pull))
        if answer is not None:
            self._drop(pull)
            pull.channel.reply(answer)

    def _drop(self, pull: HeldPull) -> None:
        if not pull.is_over:
            self._held.remove(pull)

    def _wake_if_wanted(self, pull: HeldPull) -> RemotingCommand | None:
        return self._wake(pull) if not pull.is_over and self._is_wanted(pull) else None

    def _wake_if_grown(self, pull: HeldPull) -> RemotingCommand | None:
        return self._wake(pull) if not pull.is_over and self._has_grown(pull) else None

    def _wake(self, pull: HeldPull) -> RemotingCommand | None:
        if pull.is_over:  # It was answered, or its connection ended, meanwhile.
            return None
        # Before it is executed: that may hold it again, under a later offset, and two places would answer it twice.
        self._held.remove(pull)
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
