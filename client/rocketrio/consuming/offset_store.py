"""A group's progress at the brokers: read when a queue is taken over, committed as messages are done.

Invariant: a commit is complete when a broker answered it, and a committed offset never goes back unless it is reset.
Invariant: "not found" is an answer of its own; a broker that cannot be reached raises an error.
Invariant: nothing is sent to an Apache broker about a queue that this member has lost: it would accept any offset.
Invariant: generation and epoch are those that the position comes from, wherever the queue is claimed later: that is how
a reset is noticed, and that the log became shorter (docs/decisions/0036).
Answers to: RemoteBrokerOffsetStore.
Unlike Java: commits are answered, not oneway, and identify their sender. A rocketrio broker answers a claim of a queue
with an ownership, which is valid there until another member claims the queue, and with the generation of the group's
offset. Commits carry both, and the broker itself keeps the newer offset. A broker that answers without them is an
Apache broker. It may have more or less than this client knows (after a slave was read from or committed to, or after
any connection failed). It is then asked before the commit: an older offset of this client does not lower the broker's,
and a lost offset is committed again.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.cluster.api import NOT_FOUND, ClaimedOffset
from rocketrio.consuming.offsets import CommitRefusedError, PullCommit, StoredOffset
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.commands.offset import CommitOutcome
from rocketrio_protocol.errors import ConfigError, Error, NotReachableError, RouteNotFoundError
from rocketrio_protocol.message import MessageQueue

OFFSET_LIMIT: Final = 1 << 63

logger = logging.getLogger("rocketrio.offsets")


@attrs.frozen
class StandingOffset:
    """The group's offset at a rocketrio broker."""

    generation: str
    offset: int | None

    def is_newer_than(self, generation: str | None) -> bool:
        """Return True if a broker that reported this generation has not heard of this offset yet."""
        return generation is not None and _numbers(generation) < _numbers(self.generation)


def _numbers(generation: str) -> list[int]:
    """Return the numbers of a generation, `resets.lowers`, which order it (decision 0014)."""
    return [int(number) for number in generation.split(".")]


@attrs.define(eq=False)
class QueueClaim:
    """One queue's claim, for as long as this member owns the queue."""

    generation: str | None = None
    """The generation of the offset that the position started from, or that was committed last; None until a rocketrio
    broker reported one."""
    ownerships: dict[str, str | None] = attrs.Factory(dict)
    """Ownerships by broker address; None for a broker without claims."""
    is_lost: bool = False
    """Whether another member owns the queue: then only brokers that recognise late commits get one."""
    overruled: StandingOffset | None = None
    """The offset that an operator's reset has set, or that nothing is stored any more because the topic or the group
    was deleted; commits of this client are dropped."""
    dropped: int = 0
    """The number of commits that were dropped since the last one that was stored."""

    epoch: str | None = None
    """The epoch of the log that the position comes from; None until a rocketrio broker reported one, and after a
    seek."""
    times_forgotten: int = 0

    def took(self, addr: str, ownership: str | None, generation: str | None) -> None:
        """Note a broker's answer to the claim."""
        self.ownerships[addr] = ownership
        # The first one stays: it is that of the position. A later one would hide the reset that came between.
        if self.generation is None:
            self.generation = generation

    def forget(self) -> None:
        """Return to the initial state, so that the next commit claims the queue as it is then."""
        self.generation, self.epoch, self.overruled = None, None, None
        self.ownerships.clear()
        self.times_forgotten += 1

    def seek(self) -> None:
        """Note that the user set a new position, which counts as later than a reset."""
        self.epoch = None
        if self.overruled is not None:
            self.generation, self.overruled = self.overruled.generation, None


@attrs.define(eq=False)
class _Progress:
    """The offsets of one queue."""

    wanted: int
    stored: int | None = None
    """The offset that a broker acknowledged."""
    stored_at: str | None = None
    floor: int = -1
    """The master's offset, if it was seen to be higher than this client's: nothing up to it is committed."""
    in_doubt: bool = False
    """Whether the master may hold another offset than `stored`."""
    is_reset: bool = False
    """Whether `wanted` was set deliberately and counts even if it is lower."""


@attrs.define
class RemoteBrokerOffsetStore:
    """One group's offsets, kept by brokers."""

    client: ClientInstance
    group: str
    confirm: Callable[[], Awaitable[bool]] | None = None
    """Rebalances again and returns whether that succeeded, to confirm which queues this member owns. None if the queues
    were given explicitly."""
    _claims: dict[MessageQueue, QueueClaim] = attrs.Factory(dict)
    _table: dict[MessageQueue, _Progress] = attrs.Factory(dict)
    _locks: dict[tuple[str, str], trio.Lock] = attrs.Factory(dict)
    _faults_seen: int = 0

    @property
    def offset_table(self) -> dict[MessageQueue, int]:
        """The offset of each queue that is committed next."""
        return {queue: progress.wanted for queue, progress in self._table.items()}

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note progress; a lower offset than before is ignored."""
        progress = self._table.get(queue)
        if progress is None:
            self._table[queue] = _Progress(offset)
        elif offset > progress.wanted:  # Only `reset_offset` and `cut` may lower it.
            progress.wanted = offset

    def reset_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset deliberately; the next commit may lower the stored offset."""
        progress = self._table.setdefault(queue, _Progress(offset))
        progress.wanted, progress.is_reset = offset, True
        self._claim(queue).seek()

    def with_pull(self, queue: MessageQueue, addr: str) -> PullCommit | None:
        """Return unconfirmed progress for a pull, if `addr` is a rocketrio broker that knows this member's claim.

        The pull does not mark it as stored: `persist` also commits it, unless a broker has confirmed it before.
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
        """Return the log epoch that the position belongs to; None if no broker reported one."""
        return self._claim(queue).epoch

    def set_epoch(self, queue: MessageQueue, epoch: str | None) -> None:
        """Note the log epoch that the position belongs to, as a broker reported it."""
        self._claim(queue).epoch = epoch

    def cut(self, queue: MessageQueue, offset: int) -> None:
        """Lower the noted offset to `offset`, because the log became shorter.

        This is not a seek: the broker has lowered its own offset too.
        """
        progress = self._table.get(queue)
        if progress is None or progress.wanted <= offset:
            return
        progress.wanted, progress.is_reset = offset, False
        # The next commit asks which offset is stored there now.
        progress.stored, progress.floor, progress.in_doubt = None, -1, True

    def lose(self, queue: MessageQueue) -> None:
        """Note that another member owns the queue now; a commit that is still due counts as late."""
        self._claim(queue).is_lost = True

    def remove_offset(self, queue: MessageQueue) -> None:
        """Forget a queue, of which nothing is left to commit."""
        self._table.pop(queue, None)
        self._claims.pop(queue, None)

    def overruled(self, queue: MessageQueue) -> CommitRefusedError | None:
        """Return the error of commits that are dropped because of a reset; None while commits are not dropped."""
        claim = self._claims.get(queue)
        if claim is None or claim.overruled is None:
            return None
        return reset_meanwhile(self.group, queue, claim.overruled)

    def claim_again(self, queue: MessageQueue) -> None:
        """Forget the claim after an operator's reset was followed: the next commit counts as a later one."""
        self._claim(queue).forget()
        self.doubt(queue)

    def is_void(self, queue: MessageQueue) -> bool:
        """Return whether commits are dropped because nothing of the group's progress is left."""
        claim = self._claims.get(queue)
        return claim is not None and claim.overruled is not None and claim.overruled.offset is None

    def begin_again(self, queue: MessageQueue, offset: int) -> None:
        """Forget everything noted of a queue that was created again, where this member continues at `offset`."""
        self._claim(queue).forget()
        if queue in self._table:
            self._table[queue] = _Progress(offset, in_doubt=True)

    def dropped_commits(self, queue: MessageQueue) -> int:
        """Return how many commits were dropped since the last one that was stored."""
        claim = self._claims.get(queue)
        return 0 if claim is None else claim.dropped

    def _claim(self, queue: MessageQueue) -> QueueClaim:
        return self._claims.setdefault(queue, QueueClaim())

    async def committed(self, queue: MessageQueue) -> StoredOffset:
        """Return the broker's stored offset of the group, or NOT_FOUND. Raises Error if no broker answers.

        After an operator's reset that stopped this member's commits it is the offset of that reset, although the broker
        that is asked may not have copied it yet.
        """
        claim = self._claim(queue)

        async def ask(found: FindBrokerResult) -> StoredOffset:
            claimed = await self.client.api.claim_queue(
                found.addr,
                self.group,
                queue,
                None,
                zero_if_young=False,
                # An Apache broker gets the usual request.
                with_epoch=claim.generation is not None,
            )
            reset = claim.overruled
            if reset and reset.offset is not None and reset.is_newer_than(claimed.generation):
                return StoredOffset(reset.offset, found.is_slave)
            return StoredOffset(claimed.offset, found.is_slave, claimed.epoch)

        return await self.client.ask_broker(queue, ask, insist_on_master=True)

    async def standing(self, queue: MessageQueue) -> StoredOffset:
        """Return what is stored for the present incarnation of the topic, and its place. Raises Error."""
        return await self.committed(queue)

    async def read_offset(self, queue: MessageQueue, *, zero_if_young: bool) -> StoredOffset:
        """Claim the queue; return the offset that `reset_offset` set, else the master's, else a slave's.

        A slave is asked only while no master can be reached. Raises NotReachableError, RouteNotFoundError or
        BrokerError if no broker answers: never mistake that for NOT_FOUND.
        """

        async def ask(found: FindBrokerResult) -> StoredOffset:
            claim = self._claim(queue)
            claimed = await self._ask(found, queue, claim, zero_if_young=zero_if_young)
            return StoredOffset(claimed.offset, found.is_slave, claimed.epoch)

        # Raises if no broker answered: taken for "not found", the group would begin again somewhere else.
        stored = await self.client.ask_broker(queue, ask, insist_on_master=True)
        known = self._table.get(queue)
        is_reset = known is not None and known.is_reset
        if stored.offset is not NOT_FOUND:
            if not is_reset:
                self.update_offset(queue, stored.offset)
            self._table[queue].stored = stored.offset
        if stored.is_from_slave:
            self.doubt(queue)
        # The reset happened during the request, or is not committed yet: it takes precedence.
        if known is not None and is_reset:
            return StoredOffset(known.wanted, stored.is_from_slave)
        return stored

    async def _ask(
        self,
        found: FindBrokerResult,
        queue: MessageQueue,
        claim: QueueClaim,
        *,
        zero_if_young: bool = False,
    ) -> ClaimedOffset:
        claimed = await self.client.api.claim_queue(
            found.addr,
            self.group,
            queue,
            self.client.client_id,
            zero_if_young=zero_if_young,
        )
        claim.took(found.addr, claimed.ownership, claimed.generation)
        return claimed

    def doubt(self, queue: MessageQueue) -> None:
        """Ask for the stored offset before the next commit: another member may have committed more."""
        progress = self._table.get(queue)
        if progress is not None:
            progress.in_doubt = True

    def doubt_all(self) -> None:
        """Ask the masters again at the next commit: they may have been restarted."""
        for progress in self._table.values():
            progress.in_doubt = True

    async def persist(self, queue: MessageQueue, *, insist_on_master: bool = False) -> None:
        """Commit the noted offset of one queue. Raises Error if no broker stored it; it is then still due.

        With `insist_on_master` a master is tried first even if it failed a moment ago. Raises CommitRefusedError if an
        operator has reset the offset meanwhile; after that it does nothing, see `overruled`.
        """
        progress, claim = self._table.get(queue), self._claim(queue)
        if progress is None:
            return
        if claim.overruled is not None:
            claim.dropped += progress.wanted != progress.stored
            return
        # Only one commit per topic and broker is under way at a time: commits arrive in order, and Apache's brokers
        # lose one of two that arrive together for a group without any offset there (seen with 5.3.3).
        async with self._lock(queue):
            if self._claims.get(queue) is not claim:
                return  # The queue was given up meanwhile: a claim now would take it from its new owner.
            if progress.wanted == progress.stored and not progress.in_doubt:
                return

            async def commit(found: FindBrokerResult) -> None:
                await self._commit(found, queue, progress, claim)

            try:
                await self.client.ask_broker(queue, commit, insist_on_master=insist_on_master)
            except CommitRefusedError:
                claim.dropped += 1
                raise
            claim.dropped = 0

    async def _commit(
        self, found: FindBrokerResult, queue: MessageQueue, progress: _Progress, claim: QueueClaim
    ) -> None:
        if (
            found.is_slave
            and progress.stored == progress.wanted
            and progress.stored_at == found.addr
        ):
            return  # The offset stays in doubt: the master gets it when it is back.
        if found.addr not in claim.ownerships and not claim.is_lost:
            await self._ask_for_progress(found, queue, progress, claim)
        ownership = claim.ownerships.get(found.addr)
        if ownership is not None:
            await self._commit_claimed(found, queue, progress, claim, ownership)
            return
        # What follows is for Apache's brokers, which take any offset: a late one would go over that of the new owner.
        if claim.is_lost:
            return
        if progress.in_doubt and not progress.is_reset:
            await self._ask_for_progress(found, queue, progress, claim)
        wanted = progress.wanted
        # An Apache broker stores what it gets: its higher offset is kept by not sending a lower one.
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

    async def _ask_for_progress(
        self, found: FindBrokerResult, queue: MessageQueue, progress: _Progress, claim: QueueClaim
    ) -> None:
        """Claim the queue at a broker that does not know this member yet, or ask which offset the broker holds."""
        known = (await self._ask(found, queue, claim)).offset
        progress.floor = -1 if known is NOT_FOUND else known
        progress.in_doubt = found.is_slave

    async def _commit_claimed(
        self,
        found: FindBrokerResult,
        queue: MessageQueue,
        progress: _Progress,
        claim: QueueClaim,
        ownership: str,
    ) -> None:
        """Commit to a rocketrio broker, which decides by claim and generation which offset is newer."""
        while True:
            # Read again each time: the log may have become shorter meanwhile.
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
                # The commit was sent before a reset that this member has followed meanwhile.
                return
            if answer.outcome == CommitOutcome.RESET:
                assert answer.generation is not None
                claim.overruled = StandingOffset(answer.generation, answer.standing_offset)
                # Raised even if the queue, and this claim with it, went to another member meanwhile.
                raise reset_meanwhile(self.group, queue, claim.overruled)
            if answer.outcome == CommitOutcome.CUT:
                raise CommitRefusedError(
                    f"offset {wanted} of group {self.group} on {queue} is not committed: the log became shorter, and "
                    "other messages have the last offsets now",
                    topic=queue.topic,
                )
            if answer.outcome != CommitOutcome.UNCLAIMED or claim.is_lost:
                break
            # Another member claimed the queue later, or the broker was restarted: check whether this member still owns
            # it.
            if not await self._is_confirmed(claim):
                raise CommitRefusedError(
                    f"offset {wanted} of group {self.group} on {queue} is not committed: "
                    "another member has claimed the queue",
                    topic=queue.topic,
                )
            claimed = await self._ask(found, queue, claim)
            if claimed.ownership is None:
                break
            ownership = claimed.ownership
        claim.generation = answer.generation or claim.generation
        self._committed(found, queue, progress, wanted)

    async def _is_confirmed(self, claim: QueueClaim) -> bool:
        if self.confirm is None:
            return True
        return await self.confirm() and not claim.is_lost

    def _committed(
        self, found: FindBrokerResult, queue: MessageQueue, progress: _Progress, wanted: int
    ) -> None:
        # A broker has answered: only now is the commit complete. What a slave stored is due at the master too.
        progress.stored, progress.stored_at = wanted, found.addr
        progress.in_doubt = found.is_slave
        # A new position may have been set while the commit was under way; that one has still to be sent as such.
        progress.is_reset = progress.is_reset and (found.is_slave or progress.wanted != wanted)
        logger.debug("committed queue=%s offset=%d addr=%s", queue, wanted, found.addr)

    async def persist_committed(self) -> list[Error]:
        """Send brokers again the offsets that they may have lost; commit nothing new; return errors."""
        return await self.persist_all(
            [queue for queue, progress in self._table.items() if progress.wanted == progress.stored]
        )

    async def commit_to_masters(self) -> list[Error]:
        """Send the masters the offsets that perhaps only slaves know, before this store is gone; return errors."""
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
        """Commit several queues concurrently; return the errors of queues that could not be committed."""
        if self._faults_seen != self.client.faults.count:
            self._faults_seen = self.client.faults.count
            self.doubt_all()
        errors: list[Error] = []

        async def persist(of_one_broker: list[MessageQueue]) -> None:
            for queue in of_one_broker:
                try:
                    await self.persist(queue, insist_on_master=insist_on_master)
                except (NotReachableError, RouteNotFoundError) as error:
                    errors.append(error)
                    return  # The other queues of this broker would wait for the same timeout.
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


def reset_meanwhile(
    group: str, queue: MessageQueue, standing: StandingOffset
) -> CommitRefusedError:
    """Return the error for commits of a queue whose offset an operator has reset, or deleted."""
    if standing.offset is None:
        return CommitRefusedError(
            f"the offset of group {group} on {queue} was deleted, with the topic or with the group",
            topic=queue.topic,
            remedy="The consumer claims the queue again within its commit interval; in a topic that was created again"
            " it begins where start_from says",
        )
    return CommitRefusedError(
        f"an operator has reset group {group} on {queue} to {standing.offset}",
        topic=queue.topic,
        remedy="Commits of this queue are dropped until it is taken over again; seek() goes on elsewhere",
    )


def check_offset(queue: MessageQueue, offset: int) -> None:
    """Raise ConfigError for an invalid offset: brokers would store it, and later find no progress there."""
    if not 0 <= offset < OFFSET_LIMIT:
        raise ConfigError(f"{offset} is not an offset of {queue}: offsets are 0 to 2**63 - 1")
