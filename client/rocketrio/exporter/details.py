"""Asks for what costs a request for each topic, group or member: one after another, spread evenly over a minute.

    328   the producers of a broker
    202   where the queues of a topic end that no group reads; topics of dead letters are such topics
    203   the members of a group
    307   what a member counts                                                              only with `members`
    315   what a broker counts of a topic, and of a group there: one and two requests       only with `sizes`

Invariant: a broker that is silent is asked nothing more, and leaves nothing behind.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import trio

from rocketrio.admin.lag import LagWindow
from rocketrio_protocol.bodies.inspection import ProducerInfo
from rocketrio_protocol.bodies.running_info import ConsumeStatus
from rocketrio_protocol.bodies.stats import BrokerStatsItem, Connection, ConsumerConnection
from rocketrio_protocol.errors import BrokerError, ConsumerNotOnlineError, Error
from rocketrio_protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketrio_protocol.remoting.tasks import every

PERIOD: Final = 60.0
RATE_LIMIT: Final = 50.0
"""Questions to one broker in a second."""
MEMBER_TIMEOUT: Final = 3.0
TOPIC_SIZE: Final = "TOPIC_PUT_SIZE"
GROUP_SIZE: Final = "GROUP_GET_SIZE"
SENT_BACK: Final = "SNDBCK_PUT_NUMS"

logger = logging.getLogger("rocketrio.exporter")

Key = TypeVar("Key")
Question: TypeAlias = Callable[[], Awaitable[None]]


@attrs.define
class Answers:
    """What one broker answered."""

    producers: dict[str, list[ProducerInfo]] = attrs.Factory(dict)
    """By group."""
    ends: dict[str, tuple[int, float]] = attrs.Factory(dict)
    """By topic, the sum of the ends of its queues, and when they were read."""
    members: dict[str, ConsumerConnection | None] = attrs.Factory(dict)
    """By group, of those that were asked for here first; None if no broker has a member."""
    counts: dict[tuple[str, tuple[str, ...]], BrokerStatsItem] = attrs.Factory(dict)
    """By the name of the count, and a topic or a topic and a group; over the last minute."""
    running: dict[tuple[str, str], tuple[Connection, dict[str, ConsumeStatus]]] = attrs.Factory(
        dict
    )
    """By group and client id, what a member counts of each topic."""


class Details:
    """The newest answers, by broker name."""

    def __init__(
        self,
        window: LagWindow,
        is_shown: Callable[[str], bool] = lambda group: True,
        *,
        sizes: bool = False,
        members: bool = False,
    ) -> None:
        """Create them for the brokers and topics that a window knows, and for those of its groups that are shown."""
        self.by_broker: dict[str, Answers] = {}
        """Topics and groups have the names that users know."""
        self._window = window
        self._space = window.client.namespace
        self._is_shown = is_shown
        self._sizes = sizes
        self._members = members

    def member_count(self, group: str) -> int | None:
        """Return how many members a group has; None if that is not known."""
        for answers in self.by_broker.values():
            if group in answers.members:
                found = answers.members[group]
                return 0 if found is None else len(found.connection_set)
        return None

    def forget(self, names: Sequence[str]) -> None:
        """Forget what these brokers answered."""
        for name in names:
            self.by_broker.pop(name, None)

    async def run(self) -> None:
        """Ask again and again until cancelled; the window has a sample."""
        async for _ in every(PERIOD):
            homes = self._homes()
            async with trio.open_nursery() as nursery:
                for name in self._answering():
                    nursery.start_soon(self._ask, name, homes[name])

    def _answering(self) -> list[str]:
        return [name for name in self._window.masters if name not in self._window.silent]

    def _homes(self) -> dict[str, list[str]]:
        """Return the groups to ask each broker for: where they have read, or else where they are known."""
        homes: dict[str, list[str]] = {name: [] for name in self._answering()}
        found: set[str] = set()
        reading = (
            (group, queue.broker_name)
            for (group, _), queues in self._window.samples.items()
            for queue in queues
        )
        known = ((group, name) for name in homes for group in self._window.facts[name].groups)
        for group, name in (*reading, *known):
            if name in homes and group not in found and self._window.is_wanted(group, None):
                found.add(group)
                if self._is_shown(self._space.unwrapped(group)):
                    homes[name].append(self._space.unwrapped(group))
        return homes

    async def _ask(self, name: str, groups: Sequence[str]) -> None:
        """Ask a broker all questions of a minute, those to a new broker as soon as it may be asked."""
        pause = PERIOD if name in self.by_broker else 0
        answers = self.by_broker.setdefault(name, Answers())
        questions = list(self._questions(name, groups, answers))
        pause = max(1 / RATE_LIMIT, pause / len(questions))
        due = trio.current_time()
        for question in questions:
            await trio.sleep_until(due)
            due = trio.current_time() + pause
            if name in self._window.silent:
                return
            try:
                await question()
            except BrokerError as error:
                logger.info("question refused broker=%s error=%s", name, error)
            except Error as error:
                logger.info("broker is not asked on broker=%s error=%s", name, error)
                return

    def _questions(self, name: str, groups: Sequence[str], answers: Answers) -> Iterator[Question]:
        """Yield the questions of a minute, and forget the answers to others."""
        facts, short = self._window.facts[name], self._space.unwrapped
        topics = self._space.known((*facts.topics, *facts.unreadable))
        pairs = {
            (short(topic), short(group))
            for (group, topic), queues in self._window.samples.items()
            if any(queue.broker_name == name for queue in queues)
        }
        unread = set(topics) - {topic for topic, _ in pairs}
        counted: list[tuple[str, tuple[str, ...]]] = []
        if self._sizes:
            for topic in topics:
                if not topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
                    counted.append((TOPIC_SIZE, (topic,)))
            for pair in sorted(pairs):
                if not pair[0].startswith(RETRY_PREFIX) and self._is_shown(pair[1]):
                    counted += (GROUP_SIZE, pair), (SENT_BACK, pair)
        _keep(answers.ends, unread)
        _keep(answers.members, groups)
        _keep(answers.counts, counted)
        _keep(answers.running, [key for key in answers.running if key[0] in answers.members])
        yield partial(self._ask_producers, name, answers)
        for topic in sorted(unread):
            yield partial(self._ask_end, name, topic, answers)
        for group in groups:
            yield partial(self._ask_members, name, group, answers)
        for what, names in counted:
            yield partial(self._ask_count, name, what, names, answers)

    async def _ask_producers(self, name: str, answers: Answers) -> None:
        found = await self._window.calls.producers(self._window.masters[name])
        answers.producers = {
            self._space.unwrapped(group): found[group]
            for group in found
            if self._space.known([group])
        }

    async def _ask_end(self, name: str, topic: str, answers: Answers) -> None:
        found = await self._window.calls.topic_stats(self._window.masters[name], topic)
        end = sum(one.max_offset for one in found.offset_table.values())
        answers.ends[topic] = end, trio.current_time()

    async def _ask_count(
        self, name: str, what: str, names: tuple[str, ...], answers: Answers
    ) -> None:
        addr, key = self._window.masters[name], "@".join(map(self._space.wrapped, names))
        answers.counts[what, names] = await self._window.calls.counted(addr, what, key, "minute")

    async def _ask_members(self, home: str, group: str, answers: Answers) -> None:
        """Ask for members at all brokers in turn until one has some: they connect only where their topics are."""
        for key in [key for key in answers.running if key[0] == group]:
            del answers.running[key]
        for name in (home, *(name for name in self._answering() if name != home)):
            try:
                found = await self._window.calls.consumer_connections(
                    self._window.masters[name], group
                )
            except ConsumerNotOnlineError:
                continue
            if found.connection_set:
                answers.members[group] = found
                if self._members:
                    for member in found.connection_set:
                        await self._ask_running(name, group, member, answers)
                return
        if self._window.silent:
            answers.members.pop(group, None)
        else:
            answers.members[group] = None

    async def _ask_running(
        self, name: str, group: str, member: Connection, answers: Answers
    ) -> None:
        try:
            found = await self._window.calls.running_info(
                self._window.masters[name], group, member.client_id, timeout=MEMBER_TIMEOUT
            )
        except Error as error:
            logger.info("member did not answer client_id=%s error=%s", member.client_id, error)
        else:
            answers.running[group, member.client_id] = member, found.status_table


def _keep(answers: dict[Key, Any], keys: Collection[Key]) -> None:
    for key in answers.keys() - set(keys):
        del answers[key]
