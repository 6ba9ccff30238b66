"""Exclusive queue locks of orderly consumers: which member of a group has which queue.

    group -> queue -> (client id, time of its last request)

They exist in memory, on the leading broker only. A clean stop stores them in `config/rocketrioQueueLocks.json`, and the
next run takes them over. After kill -9, or at another broker, the locks are unknown. Then for FORMER_RUN seconds a
member gets a queue only if it says that it has a lock: after that time all others have stopped working with theirs. A
broker that stops or hands over within that time leaves the rest of it to the next one, with the locks that it has given
meanwhile. The table takes the time as an argument.

Invariant: while a lock is renewed within LOCK_LIFETIME, no other member gets the queue.
Invariant: no member gets a queue with which another may still work under a lock of a former run.
Answers to: RebalanceLockManager; RocketMQ reference, section 2.7.
Unlike Java: expired locks are removed, not kept for ever; and a restarted Java broker gives each lock to the first
member that asks, while its former owner works on for up to 30 s.
"""

import logging
from collections.abc import Iterable
from typing import Final

import attrs
import msgspec

from rocketrio_broker.tables.config_file import ConfigFile, ConfigFileError
from rocketrio_protocol.bodies.queues import QueueName

logger = logging.getLogger("rocketrio_broker.queue_locks")

LOCK_LIFETIME: Final = 60.0
"""Seconds that a lock lasts after its last request (rocketmq.broker.rebalance.lockMaxLiveTime)."""

FORMER_RUN: Final = 35.0
"""Seconds for which a member works with a lock that no broker renews: 30 for rocketrio's and Java's members
(rocketmq.client.rebalance.lockMaxLiveTime), and 5 for the message that it is then handling."""

FILE_NAME: Final = "rocketrioQueueLocks.json"

LOCKS_LIMIT: Final = 100_000
"""The most locks of all groups together, some 20 MB; a further one is refused, as if another member had it."""


@attrs.define(eq=False)
class _Lock:
    client_id: str
    renewed: float

    def is_expired(self, now: float) -> bool:
        return now - self.renewed > LOCK_LIFETIME


class _KeptLock(msgspec.Struct, rename="camel"):
    group: str
    queue: QueueName
    client_id: str


class KeptLocks(msgspec.Struct, rename="camel"):
    """The file's content: the locks at the last clean stop."""

    is_outdated: bool = False
    """True if locks were given since, by this broker or by another one."""
    unknown_seconds: float = 0.0
    """For how long members may still work with locks of a former run that are not among these."""
    locks: list[_KeptLock] = []


class _Events:
    """What one request did to queues, one log line for each kind of event: a request may name thousands of queues."""

    def __init__(self, group: str, client_id: str) -> None:
        self._group = group
        self._client_id = client_id
        self._found: dict[tuple[str, str, int], list[QueueName]] = {}

    def add(
        self, event: str, queue: QueueName, holder: str = "", *, level: int = logging.INFO
    ) -> None:
        self._found.setdefault((event, holder or self._client_id, level), []).append(queue)

    def log(self) -> None:
        for (event, holder, level), queues in self._found.items():
            logger.log(
                level, "queue locks what=%s group=%s client_id=%s holder=%s count=%d first=%s",
                event, self._group, self._client_id, holder, len(queues), queues[0],
            )  # fmt: skip


class QueueLocks:
    """The locks of all groups."""

    def __init__(self, file: ConfigFile | None = None) -> None:
        """Create an empty table; without a `file` the locks end with the process."""
        self._table: dict[str, dict[QueueName, _Lock]] = {}
        self._size = 0
        self._next_sweep = 0.0
        self._file = file
        self._kept: KeptLocks | None = None
        """The content of the file; None if it has none, or is outdated."""
        self._leads = False
        self._unknown_until = 0.0

    def __len__(self) -> int:
        return self._size

    # ------------------------------------------------------------------------------------ former runs

    def load(self) -> None:
        """Read the locks of the last run."""
        kept = None if self._file is None else self._file.load_table(KeptLocks)
        self._kept = None if kept is None or kept.is_outdated else kept

    def take_over(self, *, now: float, is_new: bool) -> None:
        """Begin to lock queues; `is_new` means that no broker has done so before, because the log is empty."""
        self._leads = True
        if self._kept is not None:
            # As if renewed so long ago that they end after FORMER_RUN: until then their owners may work with them.
            renewed = now - LOCK_LIFETIME + FORMER_RUN
            for one in self._kept.locks:
                self._table.setdefault(one.group, {})[one.queue] = _Lock(one.client_id, renewed)
            self._size = len(self._kept.locks)
            self._unknown_until = now + min(max(self._kept.unknown_seconds, 0.0), FORMER_RUN)
        elif not is_new:
            self._unknown_until = now + FORMER_RUN

    def clear(self) -> None:
        """Drop all locks, because another broker locks from now on."""
        self._table.clear()
        self._size = 0
        self._leads = False
        self._outdate()

    def is_unknown(self, now: float) -> bool:
        """Return True while members may work with locks of a former run that this broker does not know."""
        return now < self._unknown_until

    def kept(self, *, now: float) -> KeptLocks | None:
        """Return the locks for the next run or the next master, or None if this broker does not lock queues."""
        if not self._leads:
            return None
        return KeptLocks(
            unknown_seconds=max(0.0, self._unknown_until - now),
            locks=[
                _KeptLock(group, queue, lock.client_id)
                for group, locks in self._table.items()
                for queue, lock in locks.items()
                if not lock.is_expired(now)
            ],
        )

    def inherit(self, kept: KeptLocks | None) -> None:
        """Take the locks of a master that hands over; `take_over` follows."""
        self._kept = kept

    def close(self, *, now: float) -> None:
        """Store the locks for the next run. Raises ConfigFileError."""
        kept = self.kept(now=now)
        if self._file is not None and kept is not None:
            self._file.write(kept)

    def _outdate(self) -> None:
        """Mark the file as outdated, before the first lock that it lacks is given."""
        if self._kept is None or self._file is None:
            return
        try:
            self._file.write(KeptLocks(is_outdated=True))
        except ConfigFileError as error:
            logger.warning("queue locks of a former run stay in their file error=%s", error)
        self._kept = None

    # ------------------------------------------------------------------------------------------ locks

    def lock(
        self,
        group: str,
        queues: Iterable[QueueName],
        client_id: str,
        *,
        now: float,
        holds: bool = False,
    ) -> list[QueueName]:
        """Take or renew the queues that are free, expired or this member's; return those that it has now.

        With `holds` the member works with these queues under a lock of a former run.
        """
        self._sweep(now)
        locks = self._table.setdefault(group, {})
        held = []
        events = _Events(group, client_id)
        for queue in queues:
            lock = locks.get(queue)
            if lock is None and self._size >= LOCKS_LIMIT:
                events.add("too many queue locks", queue, level=logging.WARNING)
                continue
            if lock is None:
                # Another member may still work with a lock of a former run, which this broker does not know.
                if not holds and self.is_unknown(now):
                    continue
                # Before the lock is given: after kill -9 the next run would give this queue to the owner in the file.
                self._outdate()
                locks[queue] = _Lock(client_id, now)
                self._size += 1
                events.add("queues locked", queue)
            elif lock.client_id == client_id:
                lock.renewed = now
            elif lock.is_expired(now):
                events.add("queue locks taken over", queue, lock.client_id, level=logging.WARNING)
                self._outdate()
                lock.client_id, lock.renewed = client_id, now
            else:
                events.add("queue locks refused", queue, lock.client_id)
                continue
            held.append(queue)
        events.log()
        if not locks:
            del self._table[group]
        return held

    def unlock(self, group: str, queues: Iterable[QueueName], client_id: str) -> None:
        """Release this member's queues; queues of others stay locked."""
        locks = self._table.get(group)
        if locks is None:
            return
        events = _Events(group, client_id)
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._size -= 1
                events.add("queues unlocked", queue)
        events.log()
        if not locks:
            del self._table[group]

    def holder(self, group: str, queue: QueueName, *, now: float) -> str | None:
        """Return the client id of the member that has the queue."""
        lock = self._table.get(group, {}).get(queue)
        return None if lock is None or lock.is_expired(now) else lock.client_id

    def is_in_use(self, group: str, *, now: float) -> bool:
        """Return True if a member of the group has a queue exclusively: its messages are consumed in order."""
        locks = self._table.get(group)
        return locks is not None and any(not lock.is_expired(now) for lock in locks.values())

    def _sweep(self, now: float) -> None:
        """Remove expired locks, once in a LOCK_LIFETIME."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + LOCK_LIFETIME
        table = {
            group: {queue: lock for queue, lock in locks.items() if not lock.is_expired(now)}
            for group, locks in self._table.items()
        }
        self._table = {group: locks for group, locks in table.items() if locks}
        self._size = sum(map(len, self._table.values()))
