"""A group's progress at the brokers: read when a queue is taken over, committed as it is worked on.

Invariant: a commit is done when a broker answered it, and what is committed never goes back unless it is reset.
Invariant: "not found" is an answer of its own; a broker that cannot be reached raises.
Answers to: RemoteBrokerOffsetStore.
Unlike Java: commits are answered, not oneway. Where the master may know more or less than we think (after a slave
was read from or committed to, or after any connection failed), it is asked before it is told: an older number of ours
does not lower its, and what it has forgotten is committed again.
"""

import logging

import attrs
import trio

from rocketrio.api import NOT_FOUND, Offset
from rocketrio.instance import ClientInstance
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.errors import ConfigError, Error, NotReachable, RouteNotFound
from rocketrio_protocol.message import MessageQueue

logger = logging.getLogger("rocketrio.offsets")


@attrs.frozen
class StoredOffset:
    """What a broker knows of a group on a queue."""

    offset: Offset
    is_from_slave: bool
    """A slave may know an older one, or none yet."""


@attrs.define(eq=False)
class _Progress:
    """One queue's offsets."""

    wanted: int
    stored: int | None = None
    """What a broker acknowledged."""
    stored_at: str | None = None
    floor: int = -1
    """What the master was seen to hold, if more than ours: nothing up to it is committed."""
    in_doubt: bool = False
    """The master may hold something else than `stored`."""
    is_reset: bool = False
    """`wanted` was set on purpose and counts even if it is lower."""


@attrs.define
class RemoteBrokerOffsetStore:
    """Offsets of one group, kept by brokers."""

    client: ClientInstance
    group: str
    _table: dict[MessageQueue, _Progress] = attrs.Factory(dict)
    _locks: dict[tuple[str, str], trio.Lock] = attrs.Factory(dict)
    _faults_seen: int = 0

    @property
    def offset_table(self) -> dict[MessageQueue, int]:
        """What is committed next, by queue."""
        return {queue: progress.wanted for queue, progress in self._table.items()}

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note progress; a lower offset than before is ignored."""
        progress = self._table.get(queue)
        if progress is None:
            self._table[queue] = _Progress(offset)
        elif offset > progress.wanted:
            progress.wanted = offset

    def reset_offset(self, queue: MessageQueue, offset: int) -> None:
        """Go to an offset on purpose; the next commit may lower what is stored."""
        progress = self._table.setdefault(queue, _Progress(offset))
        progress.wanted, progress.is_reset = offset, True

    def remove_offset(self, queue: MessageQueue) -> None:
        """The queue is no longer ours."""
        self._table.pop(queue, None)

    async def read_offset(self, queue: MessageQueue, *, zero_if_young: bool) -> StoredOffset:
        """What the master knows, or a slave while no master can be reached.

        Raises NotReachable, RouteNotFound or BrokerError when nobody answers: never mistake that for NOT_FOUND.
        """

        async def ask(found: FindBrokerResult) -> StoredOffset:
            offset = await self.client.api.query_consumer_offset(
                found.addr, self.group, queue, zero_if_young=zero_if_young
            )
            return StoredOffset(offset, found.is_slave)

        stored = await self.client.ask_broker(queue, ask, insist_on_master=True)
        if stored.offset is not NOT_FOUND:
            known = self._table.get(queue)
            if known is None or not known.is_reset:  # A reset while we asked counts more.
                self.update_offset(queue, stored.offset)
            self._table[queue].stored = stored.offset
        if stored.is_from_slave:
            self.doubt(queue)
        return stored

    def doubt(self, queue: MessageQueue) -> None:
        """Ask what is stored before the next commit: somebody else may have committed more."""
        progress = self._table.get(queue)
        if progress is not None:
            progress.in_doubt = True

    def doubt_all(self) -> None:
        """Look at the masters again with the next commit: they may have been restarted."""
        for progress in self._table.values():
            progress.in_doubt = True

    async def persist(self, queue: MessageQueue, *, insist_on_master: bool = False) -> None:
        """Commit what is noted for one queue. Raises Error when no broker took it; then it is still to be done.

        With `insist_on_master` a master that failed a moment ago is tried first all the same.
        """
        progress = self._table.get(queue)
        if progress is None:
            return
        # One commit of a topic at a time to each broker: they arrive in order, and Apache's brokers lose one of two
        # that arrive together for a group without any offset there (seen with 5.3.3).
        async with self._lock(queue):
            if progress.wanted == progress.stored and not progress.in_doubt:
                return

            async def commit(found: FindBrokerResult) -> None:
                await self._commit(found, queue, progress)

            await self.client.ask_broker(queue, commit, insist_on_master=insist_on_master)

    async def _commit(
        self, found: FindBrokerResult, queue: MessageQueue, progress: _Progress
    ) -> None:
        api, wanted = self.client.api, progress.wanted
        if found.is_slave and progress.stored == wanted and progress.stored_at == found.addr:
            return  # Still in doubt: the master is to hear of it when it is back.
        if progress.in_doubt and not progress.is_reset:
            known = await api.query_consumer_offset(
                found.addr, self.group, queue, zero_if_young=False
            )
            progress.floor = -1 if known is NOT_FOUND else known
            progress.in_doubt = found.is_slave
        if wanted <= progress.floor and not progress.is_reset:
            if wanted < progress.floor:
                logger.info(
                    "not lowered queue=%s group=%s ours=%d broker=%d addr=%s",
                    queue, self.group, wanted, progress.floor, found.addr,
                )  # fmt: skip
            progress.stored, progress.stored_at = wanted, found.addr
            return
        await api.update_consumer_offset(found.addr, self.group, queue, wanted)
        progress.stored, progress.stored_at = wanted, found.addr
        progress.in_doubt = found.is_slave
        progress.is_reset = progress.is_reset and (found.is_slave or progress.wanted != wanted)
        logger.debug("committed queue=%s offset=%d addr=%s", queue, wanted, found.addr)

    async def persist_committed(self) -> list[Error]:
        """Repeat to brokers what they may have forgotten; nothing new is committed."""
        return await self.persist_all(
            [queue for queue, progress in self._table.items() if progress.wanted == progress.stored]
        )

    async def tell_masters(self) -> list[Error]:
        """Repeat to the masters what perhaps only slaves know: nobody will once this store is gone."""
        return await self.persist_all(
            [
                queue
                for queue, progress in self._table.items()
                if progress.in_doubt and progress.wanted == progress.stored
            ],
            insist_on_master=True,
        )

    async def persist_all(
        self, queues: list[MessageQueue], *, insist_on_master: bool = False
    ) -> list[Error]:
        """Commit several queues at the same time; the errors of those that could not be."""
        if self._faults_seen != self.client.faults.count:
            self._faults_seen = self.client.faults.count
            self.doubt_all()
        errors: list[Error] = []

        async def persist(of_one_broker: list[MessageQueue]) -> None:
            for queue in of_one_broker:
                try:
                    await self.persist(queue, insist_on_master=insist_on_master)
                except (NotReachable, RouteNotFound) as error:
                    errors.append(error)
                    return  # The others would wait for the same timeout.
                except Error as error:
                    errors.append(error)

        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        async with trio.open_nursery() as nursery:
            for of_one_broker in by_broker.values():
                nursery.start_soon(persist, of_one_broker)
        return errors

    def _lock(self, queue: MessageQueue) -> trio.Lock:
        return self._locks.setdefault((queue.topic, queue.broker_name), trio.Lock())


def check_offset(queue: MessageQueue, offset: int) -> None:
    """Raises ConfigError for a number that is no offset: brokers store it, and find no progress there later."""
    if offset < 0:
        raise ConfigError(f"{offset} is no offset of {queue}: the first one is 0")
