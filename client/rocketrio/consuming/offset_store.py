"""A group's progress at the brokers: read when a queue is taken over, committed as it is worked on.

Invariant: a commit is done when a broker answered it, and what is committed never goes back unless it is reset.
Invariant: "not found" is an answer of its own; a broker that cannot be reached raises.
Invariant: of a queue that we have lost an Apache broker hears nothing more: it would take any number of ours.
Answers to: RemoteBrokerOffsetStore.
Unlike Java: commits are answered, not oneway. A broker of ours is told which claim they belong to (queue_claim.py),
and keeps the newer offset itself. An Apache broker that may know more or less than we think (after a slave was read
from or committed to, or after any connection failed) is asked before it is told: an older number of ours does not
lower its, and what it has forgotten is committed again.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from rocketrio.api import NOT_FOUND, ClaimedOffset
from rocketrio.consuming.offsets import PullCommit, StoredOffset
from rocketrio.consuming.queue_claim import (
    CommitRefused,
    QueueClaim,
    StandingOffset,
    reset_meanwhile,
)
from rocketrio.instance import ClientInstance
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.commands.offset import CommitOutcome
from rocketrio_protocol.errors import ConfigError, Error, NotReachable, RouteNotFound
from rocketrio_protocol.message import MessageQueue

OFFSET_LIMIT: Final = 1 << 63

logger = logging.getLogger("rocketrio.offsets")


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
    confirm: Callable[[], Awaitable[bool]] | None = None
    """Looks again at which queues are ours; whether that could be told. None: they are given by hand."""
    _claims: dict[MessageQueue, QueueClaim] = attrs.Factory(dict)
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
        self._claim(queue).seek()

    def with_pull(self, queue: MessageQueue, addr: str) -> PullCommit | None:
        """What is noted, for a broker of ours that knows our claim, and has not confirmed it yet.

        Nothing counts as stored by it: `persist` commits it as well, unless it is answered before.
        """
        progress, claim = self._table.get(queue), self._claims.get(queue)
        if progress is None or claim is None or progress.wanted == progress.stored:
            return None
        ownership = claim.ownerships.get(addr)
        if ownership is None or claim.generation is None:
            return None
        if progress.is_reset or claim.is_lost or claim.overruled is not None:
            return None
        return PullCommit(progress.wanted, claim.generation, ownership)

    def epoch(self, queue: MessageQueue) -> str | None:
        """The epoch of the log that the position comes from; None when no broker told it."""
        return self._claim(queue).epoch

    def read_in(self, queue: MessageQueue, epoch: str | None) -> None:
        """The position is one of this epoch of the log, as a broker said."""
        self._claim(queue).epoch = epoch

    def cut(self, queue: MessageQueue, offset: int) -> None:
        """The log became shorter: what is noted counts up to this offset only; no seek, the broker has cut its own."""
        progress = self._table.get(queue)
        if progress is None or progress.wanted <= offset:
            return
        progress.wanted, progress.is_reset = offset, False
        # What is stored there now is for the next commit to find out.
        progress.stored, progress.floor, progress.in_doubt = None, -1, True

    def lose(self, queue: MessageQueue) -> None:
        """Another member owns the queue now; what is still to be committed counts as late."""
        self._claim(queue).is_lost = True

    def remove_offset(self, queue: MessageQueue) -> None:
        """Nothing more is to be committed of a queue."""
        self._table.pop(queue, None)
        self._claims.pop(queue, None)

    def overruled(self, queue: MessageQueue) -> CommitRefused | None:
        """Why commits of the queue are dropped; None while they are not."""
        claim = self._claims.get(queue)
        if claim is None or claim.overruled is None:
            return None
        return reset_meanwhile(self.group, queue, claim.overruled)

    def claim_anew(self, queue: MessageQueue) -> None:
        """An operator has put the group elsewhere, and we follow: the next commit is one of after that."""
        self._claim(queue).forget()
        self.doubt(queue)

    def _claim(self, queue: MessageQueue) -> QueueClaim:
        return self._claims.setdefault(queue, QueueClaim())

    async def committed(self, queue: MessageQueue) -> StoredOffset:
        """What the broker has stored for the group, or NOT_FOUND. Raises Error when none answers."""

        async def ask(found: FindBrokerResult) -> StoredOffset:
            told = await self.client.api.claim_queue(
                found.addr,
                self.group,
                queue,
                None,
                zero_if_young=False,
                # An Apache broker is asked as ever.
                with_epoch=self._claim(queue).generation is not None,
            )
            return StoredOffset(told.offset, found.is_slave, told.epoch)

        return await self.client.ask_broker(queue, ask, insist_on_master=True)

    async def read_offset(self, queue: MessageQueue, *, zero_if_young: bool) -> StoredOffset:
        """Claim the queue; what the master knows, or a slave while no master can be reached; what `reset_offset` set.

        Raises NotReachable, RouteNotFound or BrokerError when nobody answers: never mistake that for NOT_FOUND.
        """

        async def ask(found: FindBrokerResult) -> StoredOffset:
            claimed = await self._ask(found, queue, zero_if_young=zero_if_young)
            return StoredOffset(claimed.offset, found.is_slave, claimed.epoch)

        stored = await self.client.ask_broker(queue, ask, insist_on_master=True)
        known = self._table.get(queue)
        is_reset = known is not None and known.is_reset
        if stored.offset is not NOT_FOUND:
            if not is_reset:
                self.update_offset(queue, stored.offset)
            self._table[queue].stored = stored.offset
        if stored.is_from_slave:
            self.doubt(queue)
        if known is not None and is_reset:  # While we asked, or not committed yet: it counts more.
            return StoredOffset(known.wanted, stored.is_from_slave)
        return stored

    async def _ask(
        self, found: FindBrokerResult, queue: MessageQueue, *, zero_if_young: bool = False
    ) -> ClaimedOffset:
        claimed = await self.client.api.claim_queue(
            found.addr,
            self.group,
            queue,
            self.client.client_id,
            zero_if_young=zero_if_young,
        )
        self._claim(queue).took(found.addr, claimed.ownership, claimed.generation)
        return claimed

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

        With `insist_on_master` a master that failed a moment ago is tried first all the same. Raises CommitRefused when
        an operator has reset the offset meanwhile; from then on does nothing, see `overruled`.
        """
        progress = self._table.get(queue)
        if progress is None or self._claim(queue).overruled is not None:
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
        claim = self._claim(queue)
        if (
            found.is_slave
            and progress.stored == progress.wanted
            and progress.stored_at == found.addr
        ):
            return  # Still in doubt: the master is to hear of it when it is back.
        if found.addr not in claim.ownerships and not claim.is_lost:
            await self._look(found, queue, progress)
        ownership = claim.ownerships.get(found.addr)
        if ownership is not None:
            await self._commit_claimed(found, queue, progress, ownership)
            return
        if claim.is_lost:
            return
        if progress.in_doubt and not progress.is_reset:
            await self._look(found, queue, progress)
        wanted = progress.wanted
        if wanted <= progress.floor and not progress.is_reset:
            if wanted < progress.floor:
                logger.info(
                    "not lowered queue=%s group=%s ours=%d broker=%d addr=%s",
                    queue, self.group, wanted, progress.floor, found.addr,
                )  # fmt: skip
            progress.stored, progress.stored_at = wanted, found.addr
            return
        await self.client.api.update_consumer_offset(found.addr, self.group, queue, wanted)
        self._committed(found, queue, progress, wanted)

    async def _look(
        self, found: FindBrokerResult, queue: MessageQueue, progress: _Progress
    ) -> None:
        """Claim the queue at a broker that has not heard of us, or see what it holds."""
        known = (await self._ask(found, queue)).offset
        progress.floor = -1 if known is NOT_FOUND else known
        progress.in_doubt = found.is_slave

    async def _commit_claimed(
        self, found: FindBrokerResult, queue: MessageQueue, progress: _Progress, ownership: str
    ) -> None:
        """Commit to a broker of ours, which decides by claim and generation what is newer."""
        claim = self._claim(queue)
        while True:
            # Anew each time: meanwhile the log may have become shorter.
            times_forgotten, wanted = claim.times_forgotten, progress.wanted
            answer = await self.client.api.update_consumer_offset(
                found.addr,
                self.group,
                queue,
                wanted,
                generation=claim.generation,
                ownership=ownership,
                epoch=claim.epoch,
                seek=progress.is_reset,
            )
            if claim.times_forgotten != times_forgotten:
                return  # Of before a reset that we have followed meanwhile.
            if answer.outcome == CommitOutcome.RESET:
                assert answer.generation is not None
                claim.overruled = StandingOffset(answer.generation, answer.standing_offset)
                # Raised also where the queue went to another member meanwhile, and this claim with it.
                raise reset_meanwhile(self.group, queue, claim.overruled)
            if answer.outcome == CommitOutcome.CUT:
                raise CommitRefused(
                    f"offset {wanted} of group {self.group} on {queue} is not committed: the log became shorter, and "
                    "other messages have the last offsets now",
                    topic=queue.topic,
                )
            if answer.outcome != CommitOutcome.UNCLAIMED or claim.is_lost:
                break
            # Another member claimed the queue after us, or the broker was started anew: is it ours still?
            if not await self._is_confirmed(queue):
                raise CommitRefused(
                    f"offset {wanted} of group {self.group} on {queue} is not committed: "
                    "another member has claimed the queue",
                    topic=queue.topic,
                )
            claimed = await self._ask(found, queue)
            if claimed.ownership is None:
                break
            ownership = claimed.ownership
        claim.generation = answer.generation or claim.generation
        self._committed(found, queue, progress, wanted)

    async def _is_confirmed(self, queue: MessageQueue) -> bool:
        if self.confirm is None:
            return True
        claim = self._claim(queue)
        return await self.confirm() and not claim.is_lost

    def _committed(
        self, found: FindBrokerResult, queue: MessageQueue, progress: _Progress, wanted: int
    ) -> None:
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
    if not 0 <= offset < OFFSET_LIMIT:
        raise ConfigError(
            f"{offset} is no offset of {queue}: the first one is 0, and 64 bits hold all"
        )
