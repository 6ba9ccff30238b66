"""Asks for what explains the lag of some rows: members, owners of queues, ages of messages, and counters.

    203   the members of a group, and whether they share its queues
    307   a member's queues, for groups that stand still
    303   how long ago the first unread message was stored
    202   the bounds of a topic's queues
    315   what a broker has counted in its last minute
    71002 which groups operators have reset, at rocketrio brokers

Each costs a request for each group or topic, so it is asked only for rows that are shown.

Invariant: what a broker did not answer is missing here, never zero.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs
import trio

from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.lag_samples import PARALLEL_REQUESTS, GroupTopic
from rocketrio_protocol.bodies.stats import Connection, ConsumerConnection, TopicOffset
from rocketrio_protocol.errors import ConsumerNotOnlineError, Error, RequestTimeoutError
from rocketrio_protocol.lag import Owner
from rocketrio_protocol.message import MessageQueue

MEMBERS_ASKED: Final = 32
"""The members of one group that are asked for their queues."""
MEMBER_TIMEOUT: Final = 3.0
"""Seconds that a member may take to report its queues."""
_SET_BACK: Final = "consumer offset set back"
_BY_A_RESET: Final = "a reset"
"""How a rocketrio broker logs the reset of a queue."""
_CENTURY_MS: Final = 100 * 365 * 86_400_000
"""Apache's brokers report the time since 1969 as the age of a message that was deleted."""

logger = logging.getLogger("rocketrio.admin")


@attrs.define
class LagDetails:
    """What brokers answered about some rows."""

    calls: AdminCalls
    masters: Mapping[str, str]
    """Addresses by broker name, without brokers that are silent: each question to one would cost its timeout."""
    is_whole: bool = True
    """Whether no broker is silent; otherwise one may have members that the others do not know."""
    members: dict[str, ConsumerConnection | None] = attrs.Factory(dict)
    """By group; None if it has no members. A group that no broker reported on is missing."""
    without_members: set[tuple[str, str]] = attrs.Factory(set)
    """Groups with the names of brokers to which no member is connected; members connect to all brokers of a topic."""
    owners: dict[str, dict[MessageQueue, str]] = attrs.Factory(dict)
    """By group, then by queue; a group is here only if every member reported its queues."""
    ages: dict[MessageQueue, dict[str, float]] = attrs.Factory(lambda: defaultdict(dict))
    """By queue and group: how many seconds ago the first unread message was stored."""
    bounds: dict[MessageQueue, TopicOffset] = attrs.Factory(dict)
    rates: dict[tuple[str, GroupTopic], tuple[float, float]] = attrs.Factory(dict)
    """By broker name, and group with topic: the messages stored, and those delivered, per second of the last minute."""
    resets: set[tuple[str, MessageQueue]] = attrs.Factory(set)
    """Groups and queues that an operator has reset lately, as far as brokers keep events."""
    _places: dict[str, trio.Semaphore] = attrs.Factory(
        lambda: defaultdict(lambda: trio.Semaphore(PARALLEL_REQUESTS))
    )

    # ------------------------------------------------------------------------------------- members

    async def ask_members(self, groups: Mapping[str, Iterable[str]]) -> None:
        """Ask for the members of groups, at those brokers first that know the group."""
        async with trio.open_nursery() as nursery:
            for group, names in groups.items():
                nursery.start_soon(self._ask_members, group, list(names))

    async def _ask_members(self, group: str, names: Sequence[str]) -> None:
        is_known = self.is_whole
        for name in dict.fromkeys([*names, *self.masters]):
            if name not in self.masters:
                continue
            try:
                async with self._places[name]:
                    found = await self.calls.consumer_connections(self.masters[name], group)
            except ConsumerNotOnlineError:
                self.without_members.add((group, name))
                continue
            except Error as error:
                logger.info("members unknown group=%s broker=%s error=%s", group, name, error)
                is_known = False
                continue
            if found.connection_set:
                self.members[group] = found
                return
        if is_known:
            self.members[group] = None

    async def ask_owners(self, groups: Iterable[str]) -> None:
        """Ask the members of groups which queues they own; `ask_members` comes first."""
        async with trio.open_nursery() as nursery:
            for group in groups:
                found = self.members.get(group)
                if found is not None and len(found.connection_set) <= MEMBERS_ASKED:
                    nursery.start_soon(self._ask_owners, group, found.connection_set)

    async def _ask_owners(self, group: str, members: Sequence[Connection]) -> None:
        owners: dict[MessageQueue, str] = {}
        answered: list[str] = []

        async def ask(client_id: str) -> None:
            for name, addr in self.masters.items():
                try:
                    async with self._places[name]:
                        info = await self.calls.running_info(
                            addr, group, client_id, timeout=MEMBER_TIMEOUT
                        )
                except Error as error:
                    logger.info("queues unknown member=%s error=%s", client_id, error)
                    if isinstance(error, RequestTimeoutError):
                        return
                    continue
                owners.update(
                    {queue: client_id for queue, one in info.mq_table.items() if not one.droped}
                )
                answered.append(client_id)
                return

        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(ask, member.client_id)
        if owners and len(answered) == len(members):
            self.owners[group] = owners

    def owner(self, group: str, queue: MessageQueue) -> str | Owner:
        """Return who owns a queue; without an answer of its members that is one of them."""
        found = self.members.get(group)
        if found is None and (group, queue.broker_name) in self.without_members:
            return Owner.NO_MEMBER
        if group in self.owners:
            return self.owners[group].get(queue, Owner.NO_MEMBER)
        return Owner.A_MEMBER

    # ------------------------------------------------------------------------------ ages and bounds

    async def ask_ages(self, rows: Iterable[tuple[str, GroupTopic]]) -> None:
        """Ask brokers for the ages of unread messages, for pairs of a broker's name and a group with its topic."""

        async def ask(addr: str, name: str, group: str, topic: str) -> None:
            for span in await self.calls.time_spans(addr, group, topic):
                if 0 <= span.delay_time < _CENTURY_MS:
                    queue = MessageQueue(topic, name, span.message_queue.queue_id)
                    self.ages[queue][group] = span.delay_time / 1000

        await self._each([(name, *row) for name, row in rows], ask)

    async def ask_bounds(self, topics: Iterable[tuple[str, str]]) -> None:
        """Ask brokers for the bounds of queues, for pairs of a broker's name and a topic."""

        async def ask(addr: str, name: str, topic: str) -> None:
            found = await self.calls.topic_stats(addr, topic)
            self.bounds.update(
                {
                    MessageQueue(topic, name, queue.queue_id): one
                    for queue, one in found.offset_table.items()
                }
            )

        await self._each(topics, ask)

    async def ask_rates(self, rows: Iterable[tuple[str, GroupTopic]]) -> None:
        """Ask brokers what they counted, for pairs of a broker's name and a group with its topic."""

        async def ask(addr: str, name: str, group: str, topic: str) -> None:
            stored = await self.calls.counted(addr, "TOPIC_PUT_NUMS", topic, "minute")
            key = f"{topic}@{group}"
            delivered = await self.calls.counted(addr, "GROUP_GET_NUMS", key, "minute")
            self.rates[name, (group, topic)] = stored.sum / 60, delivered.sum / 60

        await self._each([(name, *row) for name, row in rows], ask)

    async def ask_resets(self, names: Iterable[str], since_ms: int) -> None:
        """Ask brokers for the resets that they logged from a time on; Apache's keep no events."""

        async def ask(addr: str, name: str) -> None:
            _, events = await self.calls.events(addr, after=0, since_ms=since_ms, kinds=["offsets"])
            for one in events:
                if one.event == _SET_BACK and one.values.get("by") == _BY_A_RESET:
                    where = MessageQueue(one.values["topic"], name, one.values["queue_id"])
                    self.resets.add((one.values["group"], where))

        await self._each([(name,) for name in names], ask)

    async def _each(
        self, questions: Iterable[tuple[str, ...]], ask: Callable[..., Awaitable[None]]
    ) -> None:
        """Ask each question, which begins with a broker's name; an answer that does not come is logged."""

        async def ask_one(*question: str) -> None:
            name, *rest = question
            try:
                async with self._places[name]:
                    await ask(self.masters[name], name, *rest)
            except Error as error:
                logger.info("not answered broker=%s question=%s error=%s", name, rest, error)

        async with trio.open_nursery() as nursery:
            for question in dict.fromkeys(questions):
                if question[0] in self.masters:
                    nursery.start_soon(ask_one, *question)
