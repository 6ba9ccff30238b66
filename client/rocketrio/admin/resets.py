"""Moves the progress of groups: to given offsets, to a time, or by a plan that is made before (reset_plan.py).

Invariant: a reset is computed for all queues before the first one is changed; a plan that does not hold any more
changes nothing, and a reset that was not seen at its target is reported as such, not as done.
Answers to: ResetOffsetByTimeCommand, SkipAccumulationSubCommand.
Unlike Java: a reset by a plan is read back, because Apache's members may commit their old offsets after it.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs
import trio

from rocketrio.admin.offsets import OffsetAdmin, QueueOffsets, of_each
from rocketrio.admin.reset_plan import (
    PlanChangedError,
    QueueNow,
    QueueReset,
    ResetPlan,
    Target,
    Way,
    planned,
)
from rocketrio.arguments import epoch_ms
from rocketrio.consuming.offset_store import check_offset
from rocketrio.counts import counted
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.commands.admin import ResetOffsetRequestHeader
from rocketrio_protocol.errors import (
    BrokerError,
    ConfigError,
    ConsumerNotOnlineError,
    Error,
)
from rocketrio_protocol.message import MessageQueue

READ_BACK_TIMEOUT: Final = 20.0
"""Seconds until members have moved after a reset: Java's wait 10 s, and commit every 5 s."""

READ_BACK_EVERY: Final = 0.1
"""Seconds between two looks. Java's may have read all again, and say so, at any time of the 5 s after they moved."""

SETTLE_TIME: Final = 10.0
"""Seconds after which a commit that was not undone stays: twice the period of commits."""

logger = logging.getLogger("rocketrio.admin")


@attrs.frozen
class OffsetReset:
    """A group's former and new offset in a queue, also of a dry run."""

    queue: MessageQueue
    committed_offset: int | None
    """None if nothing was committed, or no broker could report it."""
    target_offset: int


class ResetAdmin(OffsetAdmin):
    """The methods of `Admin` that move the progress of groups."""

    __slots__ = ()

    async def reset_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Set a group's offsets queue by queue, back or forward; they replace what its members committed anywhere.

        Running members keep their position. For a queue that was set back, or had no offset, they commit nothing more
        until a member takes it over again and starts at the new offset: stop them first, or let them `seek`. For an
        Apache broker a reset is an ordinary commit, which the next commit of a running member overwrites. Raises
        NotReachableError or BrokerError for the first queue that could not be reset, ConfigError for a number that is
        not an offset. After a cancel any of the queues may be reset.
        """
        for queue, offset in offsets.items():
            check_offset(queue, offset)

            async def reset(
                broker: FindBrokerResult, queue: MessageQueue = queue, offset: int = offset
            ) -> None:
                await self.client.api.update_consumer_offset(
                    broker.addr, group, queue, offset, reset=True
                )

            await self.client.topic_route(queue.topic)
            await self.client.ask_broker(queue, reset, insist_on_master=True)

    async def reset_to_time(
        self, topic: str, group: str, when: datetime, *, dry_run: bool = False
    ) -> list[OffsetReset]:
        """Set a group to the first message of each queue stored at `when` (aware) or later; return what changed.

        With `dry_run` nothing is changed. Otherwise this works like `reset_offsets`, with the same errors; if the
        offset of a queue cannot be found, the error is raised before any queue is changed.
        """
        when_ms = epoch_ms("when", when)
        found = await self.offsets(topic, group)
        resets = []
        for one in found:

            async def search(broker: FindBrokerResult, queue: MessageQueue = one.queue) -> int:
                return await self.client.api.search_offset(broker.addr, queue, when_ms)

            target = await self.client.ask_broker(one.queue, search, insist_on_master=True)
            resets.append(OffsetReset(one.queue, one.committed_offset, target))
        if not dry_run:
            await self.reset_offsets(group, {reset.queue: reset.target_offset for reset in resets})
        return resets

    async def plan_reset(
        self,
        group: str,
        topics: Sequence[str],
        target: Target,
        *,
        queues: Collection[MessageQueue] | None = None,
        offline: bool = False,
    ) -> ResetPlan:
        """Return what a reset of the group on these topics would do; nothing is changed.

        `queues` limits it. `offline` commits offsets even if the group has members, which may undo that. Raises
        ConfigError for a target outside a queue, one that members would undo, and a broadcasting group;
        NotReachableError if a number is unknown.
        """
        members = await self._members_to_reset(group)
        places = [
            await self._place(one, target)
            for topic in topics
            for one in await self.offsets(topic, group)
            if queues is None or one.queue in queues
        ]
        plan = planned(group, members, target, places, offline=offline)
        if plan.way is Way.ONLINE and queues is not None:
            raise ConfigError(
                f"{group} has {counted(members, 'member')}, and brokers direct members in all queues of a topic",
                remedy="Stop them first, or reset all queues",
            )
        return plan

    async def _members_to_reset(self, group: str) -> int:
        try:
            found = await self.consumer_connections(group)
        except ConsumerNotOnlineError:
            await self.group(group)  # Raises GroupNotExistError.
            return 0
        if found.message_model == "BROADCASTING":
            raise ConfigError(
                f"the members of {group} keep their offsets themselves (broadcasting)"
            )
        return len(found.connection_set)

    async def _place(self, found: QueueOffsets, target: Target) -> QueueNow:
        queue, time_ms = found.queue, target.time_ms
        end = found.reachable_end
        if found.min_offset is None or end is None:
            raise Error(f"the bounds of {queue} are unknown; nothing was reset")
        at_time = None
        if time_ms is not None:

            async def search(broker: FindBrokerResult) -> int:
                return await self.client.api.search_offset(broker.addr, queue, time_ms)

            at_time = await self.client.ask_broker(queue, search, insist_on_master=True)
        return QueueNow(queue, found.min_offset, end, found.committed_offset, at_time)

    async def _committed(
        self, group: str, queues: Sequence[MessageQueue]
    ) -> dict[MessageQueue, int | None]:
        return await of_each(queues, lambda queue: self._committed_offset(queue, group))

    async def apply_reset(self, plan: ResetPlan) -> ResetPlan:
        """Carry out a plan; return it with what was committed `after`, and the way of each queue.

        With members this takes up to half a minute, until they have moved. Raises PlanChangedError if members came or
        left, or offsets without members moved, NotReachableError and BrokerError for the first queue that failed. After
        a cancel any of the queues may be reset.
        """
        await self._check_plan(plan)
        if plan.way is Way.OFFLINE:
            await self.reset_offsets(plan.group, _targets(plan.queues))
            if plan.members:
                await trio.sleep(SETTLE_TIME)
            return await self._read_back(plan)
        await self._direct_members(plan)
        done = await self._moved(plan)
        left = [one for one in done.queues if not one.has_arrived]
        if not left:
            return done
        logger.info("members did not move group=%s queues=%d", plan.group, len(left))
        await self.reset_offsets(plan.group, _targets(left))
        await trio.sleep(SETTLE_TIME)
        rest = await self._read_back(
            attrs.evolve(plan, queues=[attrs.evolve(one, way=Way.BOTH) for one in left])
        )
        again = {one.queue: one for one in rest.queues}
        return attrs.evolve(plan, queues=[again.get(one.queue, one) for one in done.queues])

    async def _moved(self, plan: ResetPlan) -> ResetPlan:
        """Return the plan with what was committed for each queue when a member had moved it, or last if none did.

        A member that has read everything again may commit the former offset a moment later: what arrived stays so.
        """
        found = {one.queue: one for one in plan.queues}
        with trio.move_on_after(READ_BACK_TIMEOUT):
            while left := [one.queue for one in found.values() if not one.has_arrived]:
                await trio.sleep(READ_BACK_EVERY)
                for queue, offset in (await self._committed(plan.group, left)).items():
                    found[queue] = attrs.evolve(found[queue], after=offset)
        return attrs.evolve(plan, queues=list(found.values()))

    async def _check_plan(self, plan: ResetPlan) -> None:
        members = await self._members_to_reset(plan.group)
        if bool(members) != bool(plan.members):
            raise PlanChangedError(
                f"{plan.group} had {counted(plan.members, 'member')}, and has {members} now"
            )
        if members:
            return
        now = await self._committed(plan.group, [one.queue for one in plan.queues])
        for one in plan.queues:
            if now[one.queue] != one.from_offset:
                raise PlanChangedError(
                    f"{one.queue} was at {_text(one.from_offset)}, and is at {_text(now[one.queue])} now"
                )

    async def _direct_members(self, plan: ResetPlan) -> None:
        assert plan.time_ms is not None
        masters = await self.masters()
        places = dict.fromkeys((one.queue.broker_name, one.queue.topic) for one in plan.queues)
        for name, topic in places:
            # Without force brokers move no queue forward.
            header = ResetOffsetRequestHeader(topic, plan.group, plan.time_ms, is_force=True)
            what = f"{topic} not reset"
            try:
                await self.client.api.call(
                    masters[name], header, what=what, topic=topic, timeout=self.calls.timeout
                )
            except BrokerError as error:
                # Members of a broker may be none: its queues are committed for them afterwards.
                logger.info("members not directed broker=%s error=%s", name, error)

    async def _read_back(self, plan: ResetPlan) -> ResetPlan:
        found: Mapping[MessageQueue, int | None] = await self._committed(
            plan.group, [one.queue for one in plan.queues]
        )
        queues = [attrs.evolve(one, after=found[one.queue]) for one in plan.queues]
        return attrs.evolve(plan, queues=queues)


def _targets(queues: Iterable[QueueReset]) -> dict[MessageQueue, int]:
    return {one.queue: one.to_offset for one in queues}


def _text(offset: int | None) -> str:
    return "nothing" if offset is None else str(offset)
