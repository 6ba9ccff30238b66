"""Which member of a group has which queue for itself: the locks of orderly consumers.

    group -> queue -> (client id, when it last asked for it)

In memory, on this broker alone: after a restart whoever asks first gets them. The table takes the time as an argument.

Invariant: between two renewals less than LOCK_LIFETIME apart a queue belongs to nobody else.
Answers to: RebalanceLockManager; RocketMQ reference, section 2.7.
Unlike Java: locks that nobody renews are forgotten, not kept for ever.
"""

import logging
from collections.abc import Iterable
from typing import Final

import attrs

from rocketrio_protocol.commands.consumer import QueueName

logger = logging.getLogger("rocketrio_broker.queue_locks")

LOCK_LIFETIME: Final = 60.0
"""Seconds a lock lasts after it was last asked for (rocketmq.broker.rebalance.lockMaxLiveTime)."""

LOCKS_LIMIT: Final = 100_000
"""Locks of all groups at once, some 20 MB; one more is refused, as if somebody else had it."""


@attrs.define(eq=False)
class _Lock:
    client_id: str
    renewed: float

    def is_expired(self, now: float) -> bool:
        return now - self.renewed > LOCK_LIFETIME


class QueueLocks:
    """The locks of all groups."""

    def __init__(self) -> None:
        self._table: dict[str, dict[QueueName, _Lock]] = {}
        self._size = 0
        self._next_sweep = 0.0

    def __len__(self) -> int:
        return self._size

    def lock(
        self, group: str, queues: Iterable[QueueName], client_id: str, *, now: float
    ) -> list[QueueName]:
        """Take or renew what is free, expired or this member's; the queues it has now."""
        self._sweep(now)
        locks = self._table.setdefault(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None and self._size >= LOCKS_LIMIT:
                logger.warning("too many queue locks group=%s client_id=%s", group, client_id)
                continue
            if lock is None:
                locks[queue] = _Lock(client_id, now)
                self._size += 1
                logger.info("queue locked group=%s client_id=%s queue=%s", group, client_id, queue)
            elif lock.client_id == client_id:
                lock.renewed = now
            elif lock.is_expired(now):
                logger.warning(
                    "queue lock taken over group=%s client_id=%s from=%s queue=%s",
                    group, client_id, lock.client_id, queue,
                )  # fmt: skip
                lock.client_id, lock.renewed = client_id, now
            else:
                logger.info(
                    "queue lock refused group=%s client_id=%s holder=%s queue=%s",
                    group, client_id, lock.client_id, queue,
                )  # fmt: skip
                continue
            held.append(queue)
        if not locks:
            del self._table[group]
        return held

    def unlock(self, group: str, queues: Iterable[QueueName], client_id: str) -> None:
        """Let go of this member's queues; others' stay locked."""
        locks = self._table.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._size -= 1
                logger.info(
                    "queue unlocked group=%s client_id=%s queue=%s", group, client_id, queue
                )
        if not locks:
            del self._table[group]

    def clear(self) -> None:
        """Another broker locks from now on."""
        self._table.clear()
        self._size = 0

    def holder(self, group: str, queue: QueueName, *, now: float) -> str | None:
        """The client id of who has the queue."""
        lock = self._table.get(group, {}).get(queue)
        return None if lock is None or lock.is_expired(now) else lock.client_id

    def is_in_use(self, group: str, *, now: float) -> bool:
        """Whether a member of the group has a queue for itself: its messages are consumed in order."""
        locks = self._table.get(group)
        return locks is not None and any(not lock.is_expired(now) for lock in locks.values())

    def _sweep(self, now: float) -> None:
        """Once a lifetime forget what has expired."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + LOCK_LIFETIME
        table = {
            group: {queue: lock for queue, lock in locks.items() if not lock.is_expired(now)}
            for group, locks in self._table.items()
        }
        self._table = {group: locks for group, locks in table.items() if locks}
        self._size = sum(map(len, self._table.values()))
