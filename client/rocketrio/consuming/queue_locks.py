"""The locks by which brokers reserve a queue for one member of a group, for orderly consumers.

requested at once and every 20 s -> held for 30 s here, for 60 s at the broker
its connection has ended         -> nothing is handed out until the lock is granted again, on another connection

Invariant: nothing is pulled or handed out from a queue whose lock has expired here; the broker keeps the lock for
another half minute, in which the message in work may finish.
Invariant: a queue is handed out only while the connection on which its lock was granted is open: a restarted broker may
grant the lock to another member.
Invariant: when a lost lock is granted again, the queue continues where another member may have come meanwhile.
Invariant: a released queue is unlocked only when its message in work is done and committed.
Answers to: RebalanceImpl.lock, lockAll, unlock; ProcessQueue.isLockExpired; RocketMQ reference, section 2.7.
Unlike Java: the request says which locks this member already holds, so that a new master knows their owner. A refused
lock is requested again every second, and the start of a queue is read only when it is locked.
"""

import logging
import math
from collections.abc import Callable, Iterable
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.pull import ROUTE_MAX_AGE
from rocketrio.wakeup import Wakeup
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.queues import LockBatch, LockedBatch, QueueName
from rocketrio_protocol.commands.consumer import (
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)
from rocketrio_protocol.errors import AccessRefusedError, Error, NotReachableError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.channel import Channel

LOCK_INTERVAL: Final = 20.0  # rocketmq.client.rebalance.lockInterval
LOCK_LIFETIME: Final = 30.0  # rocketmq.client.rebalance.lockMaxLiveTime
LOCK_RETRY: Final = 1.0
"""Seconds until a queue that another member still has is requested again."""
FINISH_LIMIT: Final = 20.0
"""Seconds that the message in work of a released queue may take until it is unlocked (UNLOCK_DELAY_TIME_MILLS)."""

logger = logging.getLogger("rocketrio.consumer")


@attrs.define(eq=False)
class ConsumerLocks:
    """The locks of one consumer."""

    client: ClientInstance
    group: str
    lost: Callable[[ProcessQueue], None]
    """Called synchronously when a lock has expired or went to another member."""
    gained: Callable[[ProcessQueue], None]
    """Called synchronously when this member gets the lock of a queue."""
    _held: dict[MessageQueue, ProcessQueue] = attrs.Factory(dict)
    """Queues to be locked: owned ones, and those that are being released."""
    _until: dict[MessageQueue, float] = attrs.Factory(dict)
    """When each granted lock expires here."""
    _connections: dict[MessageQueue, Channel] = attrs.Factory(dict)
    """The connection on which each lock was granted."""
    _watched: set[Channel] = attrs.Factory(set)
    _nursery: trio.Nursery = attrs.field(init=False)
    _wakeup: Wakeup = attrs.Factory(Wakeup)
    """Woken when there is something to request."""
    _granted: Wakeup = attrs.Factory(Wakeup)
    """Woken when a lock was granted, which will expire."""

    def add(self, process_queue: ProcessQueue) -> None:
        """Lock a queue soon, and keep it locked until `unlock`."""
        self._held[process_queue.queue] = process_queue
        self._wakeup.wake()

    async def run(self) -> None:
        """Request locks and renew them until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._expire_on_time)
            renewed = trio.current_time() - LOCK_INTERVAL
            while True:
                now = trio.current_time()
                if now >= renewed + LOCK_INTERVAL:
                    renewed = now
                    await self._ask(self._held)
                else:
                    await self._ask(
                        [queue for queue, held in self._held.items() if self._needs_request(held)]
                    )
                await self._wakeup.wait(self._pause(renewed))

    def _needs_request(self, process_queue: ProcessQueue) -> bool:
        """Return whether the lock is to be requested: it was not granted, or its connection has ended."""
        return process_queue.queue not in self._until or not (
            process_queue.is_locked or process_queue.is_dropped
        )

    def _pause(self, renewed: float) -> float:
        if any(map(self._needs_request, self._held.values())):
            return LOCK_RETRY
        return max(0.0, renewed + LOCK_INTERVAL - trio.current_time())

    async def _expire_on_time(self) -> None:
        """End each lock at its time, also while a broker has not answered yet or another queue's lock is awaited."""
        while True:
            now = trio.current_time()
            for queue in [queue for queue, until in self._until.items() if until <= now]:
                logger.warning("queue lock ran out queue=%s group=%s", queue, self.group)
                self._lose(queue)
                self._wakeup.wake()
            await self._granted.wait(min(self._until.values(), default=math.inf) - now)

    def _lose(self, queue: MessageQueue) -> None:
        del self._until[queue]
        self._connections.pop(queue, None)
        process_queue = self._held.get(queue)
        if process_queue is not None:
            process_queue.locked_until = -math.inf
            self._stop(process_queue)

    def _stop(self, process_queue: ProcessQueue) -> None:
        """Hand out nothing more of a queue until its lock is granted again."""
        process_queue.is_locked = False
        # Another member may have had the queue: when the lock comes back, the group's offset is asked for first.
        process_queue.may_be_behind = True
        self.lost(process_queue)

    async def _watch(self, connection: Channel) -> None:
        """Stop the queues whose locks were granted on a connection when it ends."""
        await connection.over.wait()
        self._watched.discard(connection)
        for queue in [queue for queue, given in self._connections.items() if given is connection]:
            del self._connections[queue]
            process_queue = self._held.get(queue)
            if process_queue is not None and not process_queue.is_dropped:
                logger.info("queue lock in doubt, its connection ended queue=%s", queue)
                self._stop(process_queue)
        self._wakeup.wake()

    async def _ask(self, queues: Iterable[MessageQueue]) -> None:
        async with trio.open_nursery() as nursery:
            for broker_name, of_one_broker in _by_broker(queues).items():
                held = [queue for queue in of_one_broker if self.is_locked(queue)]
                others = [queue for queue in of_one_broker if queue not in held]
                # In two requests: a new master gives a queue that it does not know
                # only to a member that says that it has it.
                for asked, holds in ((held, True), (others, False)):
                    if asked:
                        nursery.start_soon(self._ask_broker, broker_name, asked, holds)

    async def _ask_broker(self, broker_name: str, queues: list[MessageQueue], holds: bool) -> None:
        asked_at = trio.current_time()
        try:
            header = LockBatchMqRequestHeader(holds=holds)
            answer, connection = await self._call(broker_name, header, queues)
            body = fastjson.loads(answer, LockedBatch, what="locked queues")
        except AccessRefusedError:
            raise
        except Error as error:
            logger.warning(
                "queues not locked broker=%s group=%s error=%s", broker_name, self.group, error
            )
            return  # Locks that were granted remain until they expire.
        # Its broker may have restarted since it answered, and give the lock to another member.
        if connection.closed:
            return
        if connection not in self._watched:
            self._watched.add(connection)
            self._nursery.start_soon(self._watch, connection)
        locked = {name.queue for name in body.lock_ok_mq_set}
        for queue in queues:
            process_queue = self._held.get(queue)
            if process_queue is None:
                continue  # The queue was released meanwhile.
            if queue in locked:
                # From the question, not from the answer: the lock must end here before it ends at the broker.
                self._until[queue] = process_queue.locked_until = asked_at + LOCK_LIFETIME
                self._connections[queue] = connection
                self._granted.wake()
                if not process_queue.is_locked:
                    process_queue.is_locked = True
                    process_queue.room.wake()
                    self.gained(process_queue)
            elif queue in self._until:
                logger.warning("queue lock went to another queue=%s group=%s", queue, self.group)
                self._lose(queue)

    def is_locked(self, queue: MessageQueue) -> bool:
        """Return whether this member has the queue exclusively now."""
        return self._until.get(queue, 0.0) > trio.current_time()

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release the locks of these queues. A broker that cannot be reached releases them after a minute."""
        given_up = [queue for queue in queues if queue in self._held]
        for queue in given_up:
            del self._held[queue]
            self._until.pop(queue, None)
            self._connections.pop(queue, None)
        async with trio.open_nursery() as nursery:
            for broker_name, of_one_broker in _by_broker(given_up).items():
                nursery.start_soon(self._unlock_at, broker_name, of_one_broker)

    async def unlock_all(self) -> None:
        """Release all locks when the consumer ends."""
        await self.unlock(list(self._held))

    async def _unlock_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        try:
            await self._call(broker_name, UnlockBatchMqRequestHeader(), queues)
        except Error as error:
            logger.info(
                "queues not unlocked broker=%s group=%s error=%s", broker_name, self.group, error
            )

    async def _call(
        self,
        broker_name: str,
        header: LockBatchMqRequestHeader | UnlockBatchMqRequestHeader,
        queues: list[MessageQueue],
    ) -> tuple[bytes, Channel]:
        """Return the answer's body, and the connection on which it came."""
        addr = self._master(broker_name)
        try:
            return await self._call_at(addr, header, queues)
        except Error as error:
            if not error.stale_route:
                raise
            # A former master renews no lock; with an outdated route the request would reach its successor too late.
            await self.client.refresh_topic_route(queues[0].topic, max_age=ROUTE_MAX_AGE)
            successor = self._master(broker_name)
            if successor == addr:
                raise
        return await self._call_at(successor, header, queues)

    def _master(self, broker_name: str) -> str:
        addr = self.client.routing.find_broker_address_in_publish(broker_name)
        if addr is None:
            raise NotReachableError(
                f"no master of {broker_name} is known, and only it locks queues"
            )
        return addr

    async def _call_at(
        self,
        addr: str,
        header: LockBatchMqRequestHeader | UnlockBatchMqRequestHeader,
        queues: list[MessageQueue],
    ) -> tuple[bytes, Channel]:
        body = LockBatch(self.group, self.client.client_id, [QueueName.of(q) for q in queues])
        what = f"queue locks of group {self.group}"
        connection = await self.client.pool.channel(addr)
        answer = await self.client.api.call(addr, header, fastjson.dumps(body), what=what)
        return bytes(answer.body), connection


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append(queue)
    return by_broker
