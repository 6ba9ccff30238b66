"""One client of one cluster: its connections, its tables, and the tasks that keep them fresh.

Consumers, producers and admins of a process share one by `client=`; otherwise each opens its own.

Invariant: leaving notifies the brokers once, even if cancelled.
Answers to: MQClientInstance.
Unlike Java: instances are not registered by name; sharing is an argument.
"""

import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar

import trio

from rocketrio.cluster.account import Account
from rocketrio.cluster.api import ClientAPI
from rocketrio.cluster.broker_requests import MemberCalls
from rocketrio.cluster.connections import Connections
from rocketrio.cluster.fault import AddressFaults
from rocketrio.cluster.heartbeat import ConsumerMembership, HeartbeatService
from rocketrio.cluster.name_servers import NameServers
from rocketrio.cluster.namespace import Namespace, NamespacedConnections
from rocketrio.cluster.probe import ProbeService
from rocketrio.cluster.routes import TopicRoutes
from rocketrio.hooks import installed
from rocketrio.live import Live
from rocketrio.routing import FindBrokerResult, Router
from rocketrio.routing.replica_views import SmoothedRoundTrips
from rocketrio.tracing.trace import Traces
from rocketrio_protocol.bodies.route import TopicRouteData
from rocketrio_protocol.errors import (
    ConfigError,
    Error,
    NotReachableError,
    RouteNotFoundError,
    ServiceNotAvailableError,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import SELF_TEST_TOPIC
from rocketrio_protocol.record.message_id import UniqueIdGenerator
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.pool import ChannelPool
from rocketrio_protocol.remoting.ports import WallClock
from rocketrio_protocol.remoting.tasks import every

CLOSE_GRACE: Final = 3.0
"""Seconds that leaving may take: one ordinary call."""

RECENT_FAILURE_TIMEOUT: Final = 1.0
"""Seconds that a broker may take that failed a moment ago: equal to the time that it has to answer a probe
(PROBE_TIMEOUT)."""

T = TypeVar("T")

logger = logging.getLogger("rocketrio.client")


class ClientInstance(Live):
    """The tables and connections of one client; made by `open_client`."""

    def __init__(
        self,
        client_id: str,
        name_server_addrs: tuple[str, ...],
        pool: ChannelPool,
        *,
        routing: Router,
        heartbeat_interval: float,
        static_grace: int | None,
        poll_name_server_interval: float,
        wall_clock: WallClock,
        ip: str,
        rng: random.Random,
        processors: dict[int, Processor],
        namespace: Namespace,
        account: Account | None = None,
        request_timeout: float | None = None,
    ) -> None:
        self.client_id = client_id
        self.pool = pool
        self.account = account
        """The account that signs the requests, None without credentials."""
        self.namespace = namespace
        """Names inside the client are short; `connections` adds the namespace."""
        self.connections = (
            NamespacedConnections(pool, account, request_timeout, namespace=namespace)
            if namespace
            else Connections(pool, account, request_timeout)
        )
        self.name_servers = NameServers(self.connections, name_server_addrs)
        self.api = ClientAPI(self.connections)
        self.routing = routing
        self.faults = AddressFaults()
        self.wall_clock = wall_clock
        self.rng = rng
        self.heartbeat = HeartbeatService(
            client_id,
            self.api,
            routing,
            lambda addr: pool.open_channel(addr) is not None,
            heartbeat_interval,
            static_grace,
        )
        self.unique_ids = UniqueIdGenerator(
            ip=ip,
            process_id=os.getpid(),
            wall_clock_ms=wall_clock.now_ms,
            instance_hash=rng.getrandbits(32),
        )
        self.processors = processors
        """The functions that answer requests of brokers, by request code."""
        processors.update(MemberCalls(self.heartbeat.consumers, namespace).processors())
        self.traces: Traces | None = None
        """Sends records about messages to consoles; None unless requested."""
        self.hooks = installed()
        """Observes messages, as `rocketrio.otel` does; None unless installed."""
        self.open_consumers: list[Live] = []
        """All consumers of this client, for observers."""
        self.open_pipelines: list[Live] = []
        """All pipelines of its producers, for observers."""
        self._shared: dict[object, Any] = {}
        self.is_closed = False
        self._announced_to: dict[str, set[str]] = {}
        self._poll_interval = poll_name_server_interval
        self.routes = TopicRoutes(self.name_servers, routing, changed=self._after_route_change)
        self.round_trips = SmoothedRoundTrips()
        self.probes = ProbeService(
            pool,
            routing,
            self.faults,
            lambda addr, spent: self.mark_unreachable(addr, spent=spent),
            self.mark_reachable,
        )
        """Detects dead connections on which pulls wait."""
        routing.is_avoided = self.faults.is_avoided

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return (
            f"<ClientInstance {self.client_id} {state}"
            f" name_servers={';'.join(self.name_servers.addresses)}>"
        )

    async def run(self) -> None:
        """Keep routes and heartbeats fresh; runs in the client's nursery."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.heartbeat.run)
            nursery.start_soon(self._poll_name_servers)
            nursery.start_soon(self.probes.run)
            if self.account is not None:
                nursery.start_soon(self.account.run)

    def on_request(self, code: int, processor: Processor) -> None:
        """Let `processor` answer the brokers' requests with this code."""
        self.processors[int(code)] = processor

    def shared(self, kind: Callable[["ClientInstance"], T]) -> T:
        """Return the client's only `kind`, made from the client at the first call: its producers share it."""
        if kind not in self._shared:
            self._shared[kind] = kind(self)
        found: T = self._shared[kind]
        return found

    # --------------------------------------------------------------------------------------- routes

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return the cached route; request it if there is none. Raises RouteNotFoundError, NotReachableError."""
        return await self.routes.topic_route(topic)

    async def refresh_topic_route(self, topic: str, *, max_age: float = 0.0) -> bool:
        """Ask the name servers again, unless the route is younger than `max_age` seconds; return whether it changed.

        A known route is kept if no name server answers or knows the topic; without a known route that raises
        NotReachableError or RouteNotFoundError.
        """
        return await self.routes.refresh(topic, max_age=max_age)

    def _after_route_change(self, topic: str) -> None:
        if not self.heartbeat.acknowledged_by.issuperset(self.heartbeat.targets()):
            self.heartbeat.wake()
        for member in self.heartbeat.consumers.values():
            if topic in member.subscriptions:
                member.rebalance_now.wake()

    async def _poll_name_servers(self) -> None:
        async for _ in every(self._poll_interval, first_after=self._poll_interval):
            for topic in list(self.routing.topic_route_table):
                try:
                    await self.refresh_topic_route(topic)
                except Error as error:  # An admin of this client has just deleted it.
                    logger.info("route not polled topic=%s error=%s", topic, error)
            self.clean_offline_brokers()

    def clean_offline_brokers(self) -> None:
        """Forget addresses that are in no route, and close their connections."""
        for addr in self.routing.clean_offline_brokers():
            logger.info("broker offline addr=%s", addr)
            self.faults.clear(addr)
            self.round_trips.forget(addr)
            self.heartbeat.acknowledged_by.discard(addr)
            self.pool.drop(addr)

    # -------------------------------------------------------------------------------------- brokers

    def mark_unreachable(self, addr: str, *, spent: float) -> None:
        """Avoid an address for a while after an attempt that failed after `spent` seconds."""
        self.faults.mark(addr, spent=spent)
        self.heartbeat.acknowledged_by.discard(addr)

    def mark_reachable(self, addr: str) -> None:
        """Note that an address answered. After a failure it gets a heartbeat: it may have forgotten the client."""
        if self.faults.clear(addr):
            self.heartbeat.wake()

    async def ask_broker(
        self,
        queue: MessageQueue,
        ask: Callable[[FindBrokerResult], Awaitable[T]],
        *,
        insist_on_master: bool = False,
    ) -> T:
        """Return the result of `ask` from the queue's master, or from a slave if the master cannot be reached.

        With `insist_on_master` the master is tried first even if it failed a moment ago, for up to a second: for data
        of which a slave may only have an older state. If a broker refuses because it is not the master, the route is
        refreshed, and the brokers in the new route are asked. Raises what `ask` raises; NotReachableError and
        RouteNotFoundError if no broker is left.
        """
        tried: set[str] = set()
        failure: Error | None = None
        for is_last_round in (False, True):
            candidates = self.routing.candidates(queue.broker_name)
            if is_last_round or all(found.is_slave for found in candidates):
                try:
                    await self.refresh_topic_route(queue.topic, max_age=1.0)
                except Error as error:
                    raise failure or error from error
                candidates = self.routing.candidates(queue.broker_name)
            if insist_on_master:
                candidates.sort(key=lambda found: found.broker_id)
            for found in candidates:
                if found.addr in tried:
                    continue
                tried.add(found.addr)
                started = trio.current_time()
                try:
                    with short_timeout(found, candidates, self.faults.is_avoided):
                        answer = await ask(found)
                except NotReachableError as error:
                    failure = error
                    self.mark_unreachable(found.addr, spent=trio.current_time() - started)
                    self.probes.failed(found.addr, queue)
                except ServiceNotAvailableError as error:
                    failure = error
                    if not is_last_round:
                        break
                else:
                    self.mark_reachable(found.addr)
                    return answer
        raise failure or RouteNotFoundError(
            f"no broker named {queue.broker_name} is known", topic=queue.topic
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the queue's oldest message. Raises Error if no broker answers."""

        async def ask(found: FindBrokerResult) -> int:
            return await self.api.min_offset(found.addr, queue)

        return await self.ask_broker(queue, ask)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message gets. Raises Error if no broker answers."""

        async def ask(found: FindBrokerResult) -> int:
            return await self.api.max_offset(found.addr, queue)

        return await self.ask_broker(queue, ask)

    async def offset_at(self, queue: MessageQueue, time: datetime) -> int:
        """Return the offset of the first message stored at `time` or later. Raises Error if no master answers."""
        timestamp_ms = int(time.timestamp() * 1000)

        async def ask(found: FindBrokerResult) -> int:
            if found.is_slave:
                raise NotReachableError(
                    f"the master of {queue} cannot be reached, and a slave may end earlier",
                    topic=queue.topic,
                )
            return await self.api.search_offset(found.addr, queue, timestamp_ms)

        return await self.ask_broker(queue, ask, insist_on_master=True)

    # --------------------------------------------------------------------------------------- groups

    async def join(self, member: ConsumerMembership) -> None:
        """Announce a consumer group to all brokers, and wait for their answers.

        Raises ConfigError if this client is already a member of the group, AccessRefusedError if a master refuses
        the account, the group or one of the topics, and BrokerError if it does not accept the group's name.
        """
        if member.group in self.heartbeat.consumers:
            raise ConfigError(
                f"this client is a member of group {member.group} already; open another"
            )
        self.heartbeat.consumers[member.group] = member
        for addr in await self.heartbeat.send_all():
            # Then other brokers are asked first for the other members.
            self.mark_unreachable(addr, spent=0.0)
        self.heartbeat.check_accepted()

    async def announce_producer(self, producer_group: str) -> None:
        """Announce a producer group to all brokers that the name servers know, and to new ones while it is open.

        This is for requests that brokers send to a client on their own initiative: they must know the client by then.
        Returns when each has answered or failed. Raises NotReachableError, RouteNotFoundError without a name server.
        """
        # Every broker has this topic, whatever its settings.
        await self.topic_route(SELF_TEST_TOPIC)
        targets = set(self.heartbeat.targets())
        if not targets <= self._announced_to.get(producer_group, set()):
            await self.heartbeat.send_all()
            self._announced_to[producer_group] = (
                targets  # Brokers that come later get a heartbeat at once.
            )

    async def leave_all(self) -> None:
        """Leave all groups, and notify the brokers."""
        consumers, producers = list(self.heartbeat.consumers), list(self.heartbeat.producers)
        # Before the wait: an object that is closed during it finds its group gone, and does not leave it a second time.
        self.heartbeat.consumers.clear()
        self.heartbeat.producers.clear()
        async with trio.open_nursery() as nursery:
            for group in consumers:
                nursery.start_soon(self._leave_consumer_group, group)
            for group in producers:
                nursery.start_soon(self._leave_producer_group, group)

    async def leave(self, member: ConsumerMembership) -> None:
        """Leave a consumer group, and wait until the brokers are notified."""
        if self.heartbeat.consumers.get(member.group) is member:
            del self.heartbeat.consumers[member.group]
            await self._leave_consumer_group(member.group)

    async def leave_producer(self, group: str) -> None:
        """Remove one producer of a group; notify the brokers if it was the last one."""
        producers = self.heartbeat.producers
        if group not in producers:
            return  # The whole client has left.
        producers[group] -= 1
        if not producers[group]:
            del producers[group]
            self._announced_to.pop(group, None)
            await self._leave_producer_group(group)

    async def _leave_consumer_group(self, group: str) -> None:
        await self.heartbeat.leave(consumer_group=group)

    async def _leave_producer_group(self, group: str) -> None:
        await self.heartbeat.leave(producer_group=group)


@contextmanager
def short_timeout(
    found: FindBrokerResult,
    candidates: Iterable[FindBrokerResult],
    is_avoided: Callable[[str], bool],
) -> Iterator[None]:
    """Limit the block to a second if `found` failed recently and another candidate is healthy.

    Raises NotReachableError then.

    For a broker that must be tried first all the same: a master, for data that it alone has. The request may have been
    executed.
    """
    is_limited = is_avoided(found.addr) and not all(is_avoided(other.addr) for other in candidates)
    if not is_limited:
        yield
        return
    with trio.move_on_after(RECENT_FAILURE_TIMEOUT) as waiting:
        yield
    if waiting.cancelled_caught:
        raise NotReachableError(
            f"no answer within {RECENT_FAILURE_TIMEOUT:g} s, and it failed a moment ago",
            broker_addr=found.addr,
        )


async def ask_each(
    queues: Iterable[MessageQueue], question: Callable[[MessageQueue], Awaitable[T]]
) -> dict[MessageQueue, T | Error]:
    """Ask about several queues concurrently; return each queue's answer, or its error if no broker answered."""
    answers: dict[MessageQueue, T | Error] = {}

    async def ask(queue: MessageQueue) -> None:
        try:
            answers[queue] = await question(queue)
        except Error as error:
            answers[queue] = error
            logger.info("offset unknown queue=%s error=%s", queue, error)

    wanted = list(queues)
    async with trio.open_nursery() as nursery:
        for queue in wanted:
            nursery.start_soon(ask, queue)
    return {queue: answers[queue] for queue in wanted}
