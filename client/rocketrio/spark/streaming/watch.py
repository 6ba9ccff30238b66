"""Watches the cluster for a stream: which queues exist and what they hold.

Two intervals: each poll asks for the ends of the queues. Every `discoveryIntervalMs` it also asks which topics, queues
and brokers exist, and where the queues begin.

Invariant: brokers are polled at most once for each interval, and a poll ends within seconds even if some do not answer.
Invariant: a queue counts as gone only if a name server knows its master and does not route the queue there. One that is
routed without the permission to read is waited for.
Invariant: a broker that is away is waited for, whatever may be unread there. It is let go only if no name server knows
it, and either the user says so (retiredBrokers), or its queues were read to their last known ends while the topic goes
on elsewhere. A queue that was let go keeps its offset, and is read on if it comes back.
Invariant: a failure ends a stream only if it has lasted `offsetFailureTimeoutMs`.
"""

import logging
import re
from collections.abc import Iterable
from math import inf
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.routing import FindBrokerResult
from rocketrio.routing.queues import subscribe_queues
from rocketrio.spark.errors import AccessDeniedError, BrokerUnreachableError
from rocketrio.spark.reading.offsets import Bounds, OffsetTable
from rocketrio.spark.reading.questions import (
    QUESTIONS_AT_ONCE,
    may_not_be_read,
    subscribed_topics,
    with_what_is_not_shown_yet,
)
from rocketrio.spark.streaming.options import StreamOptions
from rocketrio.spark.streaming.position import Seen, View
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import (
    AccessRefusedError,
    BrokerError,
    Error,
    NotReachableError,
    RouteNotFoundError,
)
from rocketrio_protocol.message import MessageQueue

POLL_TIMEOUT: Final = 4.0
"""Seconds for all answers of one poll, and for all routes: a little more than one call may take (API_TIMEOUT)."""
FIRST_RETRY: Final = 1.0
MAX_RETRY: Final = 5.0
"""Seconds before a silent broker is asked again, doubled each time: its poll, and so all others, wait for it."""

logger = logging.getLogger("rocketrio.spark.stream")


@attrs.define
class _Silence:
    """A broker that does not answer."""

    since: float
    retry_at: float
    pause: float = FIRST_RETRY


@attrs.define(eq=False)
class StreamWatch:
    """Polls the queues of one stream."""

    options: StreamOptions
    newest: dict[MessageQueue, int] = attrs.Factory(dict)
    """The last known end of each queue."""
    view: View = attrs.field(factory=lambda: View({}))
    """The result of the last poll."""
    _polled_at: float = -inf
    _is_discovered: bool = False
    _discover_at: float = -inf
    _listed: frozenset[MessageQueue] = frozenset()
    _gone: frozenset[MessageQueue] = frozenset()
    let_go: set[MessageQueue] = attrs.Factory(set)
    """Queues of brokers that are out of service, which are not waited for."""
    _unrouted: frozenset[str] = frozenset()
    _unregistered: frozenset[MessageQueue] = frozenset()
    """Queues that were read, of brokers that no name server knows."""
    _forbidden: frozenset[tuple[str, str]] = frozenset()
    """Topics and brokers whose queues are routed without the permission to read."""
    _forbidden_since: dict[tuple[str, str], float] = attrs.Factory(dict)
    _least: dict[MessageQueue, int] = attrs.Factory(dict)
    _incarnations: dict[MessageQueue, int | None] = attrs.Factory(dict)
    _silent: dict[str, _Silence] = attrs.Factory(dict)

    @property
    def has_polled(self) -> bool:
        """Whether brokers were asked in this run."""
        return self._polled_at > -inf

    @property
    def is_fresh(self) -> bool:
        """Whether brokers may not be polled again yet."""
        return trio.current_time() - self._polled_at < self.options.poll_interval

    async def poll(self, client: ClientInstance, start: OffsetTable) -> View:
        """Poll the queues; `start` names those that the stream already reads.

        Wait for the rest of the interval first. Raises BrokerUnreachableError if an outage has lasted too long.
        """
        await trio.sleep_until(
            max(trio.current_time(), self._polled_at + self.options.poll_interval)
        )
        self._polled_at = trio.current_time()
        if self._polled_at >= self._discover_at:
            await self._discover(client, start)
        held: dict[MessageQueue, Seen] = {}
        with trio.move_on_after(POLL_TIMEOUT):
            await self._ask_all(client, held)
            await self._wait_where_readers_do(client, held, start)
        for queue, seen in held.items():
            self.newest[queue] = max(
                seen.bounds.max_offset, 0 if seen.is_certain else self.newest.get(queue, 0)
            )
        self.let_go.difference_update(held)
        self.view = View(held, self._gone, self._retired(start))
        self._count_forbidden(start)
        self._count_silence({*self._listed, *filter(self.is_subscribed, start)}, start)
        return self.view

    def _retired(self, start: OffsetTable) -> dict[MessageQueue, int | None]:
        names = self.options.retired_brokers
        return {
            queue: self.newest.get(queue)
            for queue in self._unregistered.difference(self.let_go, self.view.held)
            if queue.broker_name in names and queue in start
        }

    async def reach_all(self, client: ClientInstance, start: OffsetTable) -> View:
        """Poll all queues of the start, of which none may be passed over in silence.

        Raises NotReachableError while one of them cannot be asked, TopicNotFoundError if one may not be read.
        """
        self._discover_at = -inf
        view = await self.poll(client, start)
        if not self._is_discovered:
            raise NotReachableError("the name servers did not answer")
        wanted = self._awaited(filter(self.is_subscribed, start))
        for queue in wanted:
            if (queue.topic, queue.broker_name) in self._forbidden:
                raise may_not_be_read(queue.topic)
        if wanted:
            raise NotReachableError(
                f"the broker of {wanted[0]} does not answer, and what it holds from {start[wanted[0]]} on is unread;"
                f" {len(wanted)} queues wait for their brokers",
                remedy="Start the broker, or name it in retiredBrokers if it was taken out of service for good",
            )
        return view

    def _awaited(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Return those queues that the last poll says nothing about."""
        view = self.view
        known = {*view.held, *view.gone, *view.retired, *self.let_go}
        return sorted(queue for queue in queues if queue not in known)

    async def poll_all(self, client: ClientInstance) -> View:
        """Poll all existing queues. Raises NotReachableError while one of them cannot be asked."""
        self._discover_at = -inf
        view = await self.poll(client, {})
        silent = sorted(self._listed - set(view.held))
        if silent or not self._is_discovered:
            who = f"the brokers of {len(silent)} queues" if silent else "the name servers"
            raise NotReachableError(f"{who} did not answer")
        read = self.options.read
        routed = {queue.topic for queue in self._listed}
        unrouted = [topic for topic in read.topics if topic not in routed]
        unrouted += [str(queue) for queue in read.assigned if queue.topic not in routed]
        named = {*read.topics, *(queue.topic for queue in read.assigned)} - routed
        for topic, _ in sorted(self._forbidden):
            if topic in named:
                raise may_not_be_read(topic)
        if unrouted:  # An end with nothing read would look like success.
            raise NotReachableError(
                f"no name server has a route of {', '.join(unrouted)}: it was deleted or never created, or all of its"
                " brokers are down",
                remedy="Start the brokers, or omit it in `subscribe` or `assign`",
            )
        self._discover_at = -inf  # Only a start shows which queues are gone.
        return view

    def is_subscribed(self, queue: MessageQueue) -> bool:
        """Return True if the options mean that queue; a checkpoint may be from a time when they meant others."""
        read = self.options.read
        if read.assigned:
            return queue in read.assigned
        if read.topic_pattern is not None:
            return re.fullmatch(read.topic_pattern, queue.topic) is not None
        return queue.topic in read.topics

    # ------------------------------------------------------------------------------ which queues

    async def _discover(self, client: ClientInstance, start: OffsetTable) -> None:
        self._discover_at = trio.current_time() + self.options.discovery_interval
        self._is_discovered = False
        self._least.clear()
        known = [queue for queue in start if self.is_subscribed(queue)]
        try:
            with trio.fail_after(POLL_TIMEOUT):
                listed = await self._routed(client, known)
                missing = [
                    queue
                    for queue in known
                    if queue not in listed
                    and (queue.topic, queue.broker_name) not in self._forbidden
                ]
                self._gone = await self._without_queue(client, missing)
                self._listed = frozenset(filter(self.is_subscribed, listed))
                self._is_discovered = True
        except AccessRefusedError as error:
            raise AccessDeniedError.because(error, "queues cannot be discovered") from error
        except (Error, trio.TooSlowError) as error:
            self._discover_at = trio.current_time() + min(
                self.options.discovery_interval, FIRST_RETRY
            )
            logger.warning("queue discovery failed, previous queues kept error=%r", error)

    async def _routed(
        self, client: ClientInstance, known: Iterable[MessageQueue]
    ) -> set[MessageQueue]:
        topics = {
            *await subscribed_topics(client, self.options.read),
            *(queue.topic for queue in known),
        }
        listed: set[MessageQueue] = set()
        unrouted: set[str] = set()
        forbidden: set[tuple[str, str]] = set()
        limiter = trio.CapacityLimiter(QUESTIONS_AT_ONCE)
        failures: list[Error] = []

        async def ask(topic: str) -> None:
            async with limiter:
                try:
                    route = await client.name_servers.topic_route(topic)
                except Error as error:
                    failures.append(error)
                    return
            if route is None:  # No name server knows it: ignore an old route.
                unrouted.add(topic)
                return
            client.routing.update_topic_route(topic, route)
            listed.update(subscribe_queues(topic, route))
            forbidden.update(
                (topic, data.broker_name) for data in route.queue_datas if not data.is_readable
            )

        async with trio.open_nursery() as nursery:
            for topic in sorted(topics):
                nursery.start_soon(ask, topic)
        if failures:
            raise failures[0]
        if new := unrouted - self._unrouted:
            logger.warning("no name server has a route of topics names=%s", ",".join(sorted(new)))
        self._unrouted, self._forbidden = frozenset(unrouted), frozenset(forbidden)
        return listed

    async def _without_queue(
        self, client: ClientInstance, missing: list[MessageQueue]
    ) -> frozenset[MessageQueue]:
        """Return those whose master is registered: it would have registered its queues too."""
        if not missing:
            self._unregistered = frozenset()
            return frozenset()
        brokers = (await client.name_servers.cluster_info()).broker_addr_table
        self._unregistered = frozenset(q for q in missing if q.broker_name not in brokers)
        masters = {name for name, data in brokers.items() if MASTER_ID in data.broker_addrs}
        return frozenset(queue for queue in missing if queue.broker_name in masters)

    # -------------------------------------------------------------------------- what they hold

    @staticmethod
    async def _wait_where_readers_do(
        client: ClientInstance, held: dict[MessageQueue, Seen], start: OffsetTable
    ) -> None:
        """Extend ends that lie before what was read, if a new master lets readers wait there: that is not a loss."""
        certain = {queue: seen.bounds for queue, seen in held.items() if seen.is_certain}
        for queue, bounds in (await with_what_is_not_shown_yet(client, certain, start)).items():
            held[queue] = attrs.evolve(held[queue], bounds=bounds)

    async def _ask_all(self, client: ClientInstance, held: dict[MessageQueue, Seen]) -> None:
        limiter = trio.CapacityLimiter(QUESTIONS_AT_ONCE)
        now = trio.current_time()
        refusals: list[AccessRefusedError] = []
        failed = {name for name, silence in self._silent.items() if now < silence.retry_at}

        async def one(queue: MessageQueue) -> None:
            async with limiter:
                if queue.broker_name in failed:
                    return
                try:
                    held[queue] = await self._ask(client, queue)
                except AccessRefusedError as error:
                    refusals.append(error)
                except (NotReachableError, RouteNotFoundError, BrokerError) as error:
                    if queue.broker_name not in failed:
                        logger.warning("offsets not known queue=%s error=%s", queue, error)
                    failed.add(queue.broker_name)

        async with trio.open_nursery() as nursery:
            for queue in sorted(self._listed):
                nursery.start_soon(one, queue)
        if refusals:
            raise AccessDeniedError.because(refusals[0], "offsets cannot be read") from refusals[0]

    async def _ask(self, client: ClientInstance, queue: MessageQueue) -> Seen:
        async def ask(found: FindBrokerResult) -> Seen:
            # The smaller end first: retention between the two requests must not move it beyond the larger one.
            least = self._least.get(queue)
            is_old = least is not None
            if least is None or found.is_slave:
                least = await client.api.min_offset(found.addr, queue)
            end = await client.api.queue_end(found.addr, queue, with_incarnation=True)
            most, incarnation = max(0, end.max_offset), end.incarnation
            known = self._incarnations.get(queue, incarnation)
            if is_old and (most < least or incarnation != known):  # It was created again.
                least = await client.api.min_offset(found.addr, queue)
            if not found.is_slave:
                self._least[queue], self._incarnations[queue] = least, incarnation
            bounds = Bounds(least, max(least, most), None if found.is_slave else incarnation)
            return Seen(bounds, is_certain=not found.is_slave)

        return await client.ask_broker(queue, ask)

    # ----------------------------------------------------------------------------------- silence

    def _count_forbidden(self, start: OffsetTable) -> None:
        """Log which topics may not be read any more. Raises TopicNotFoundError if that has lasted too long."""
        now = trio.current_time()
        read = {(queue.topic, queue.broker_name) for queue in filter(self.is_subscribed, start)}
        forbidden = read & self._forbidden
        for place in self._forbidden_since.keys() - forbidden:
            logger.info("topic may be read again topic=%s broker=%s", *place)
            del self._forbidden_since[place]
        for topic, name in sorted(forbidden):
            since = self._forbidden_since.get((topic, name))
            if since is None:
                logger.warning(
                    "topic may not be read, its queues wait topic=%s broker=%s", topic, name
                )
                self._forbidden_since[topic, name] = now
            elif now - since >= self.options.failure_timeout:
                raise may_not_be_read(topic, where=f" (at {name}, for {now - since:.0f} s)")

    def _may_be_let_go(self, queues: Iterable[MessageQueue], start: OffsetTable) -> bool:
        """Return whether nothing is known to be unread in these queues, whose broker no name server knows.

        Their topics go on elsewhere: otherwise the cluster may be down rather than smaller.
        """
        elsewhere = {queue.topic for queue in self.view.held}
        return all(
            queue in self._unregistered
            and queue.topic in elsewhere
            and start.get(queue, -1) >= self.newest.get(queue, inf)
            for queue in queues
        )

    def _count_silence(self, wanted: Iterable[MessageQueue], start: OffsetTable) -> None:
        now = trio.current_time()
        answered = {queue.broker_name for queue in self.view.held}
        missing = [
            queue
            for queue in self._awaited(wanted)
            if (queue.topic, queue.broker_name) not in self._forbidden
        ]
        silent = {queue.broker_name for queue in missing} - answered
        for name in [name for name in self._silent if name not in silent]:
            logger.info("broker answers again name=%s", name)
            del self._silent[name]
        for name in sorted(silent):
            silence = self._silent.get(name)
            if silence is None:
                logger.warning("broker does not answer, its queues wait name=%s", name)
                silence = self._silent[name] = _Silence(now, now + FIRST_RETRY)
            elif now >= silence.retry_at:
                silence.pause = min(2 * silence.pause, MAX_RETRY)
                silence.retry_at = now + silence.pause
            # Its routes may have been withdrawn, or it may come back at another address.
            self._discover_at = min(self._discover_at, silence.retry_at)
            if now - silence.since >= self.options.failure_timeout:
                queues = [queue for queue in missing if queue.broker_name == name]
                if self._may_be_let_go(queues, start):
                    logger.warning(
                        "broker is out of service, its queues were read to their ends name=%s queues=%d",
                        name, len(queues),
                    )  # fmt: skip
                    self.let_go.update(queues)
                    del self._silent[name]
                    continue
                raise BrokerUnreachableError(
                    f"no broker named {name} has answered for {now - silence.since:.0f} s"
                    f" (offsetFailureTimeoutMs={self.options.failure_timeout * 1000:.0f})",
                    remedy=f"{BrokerUnreachableError.remedy}. If {name} was taken out of service for good, name it in"
                    " retiredBrokers",
                )
