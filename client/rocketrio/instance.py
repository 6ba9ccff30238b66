"""One client of one cluster: its connections, its tables, and the tasks that keep them fresh.

Consumers, producers and admins of a process share one by `client=`; each opens its own otherwise.

Invariant: leaving tells the brokers once, also when cancelled.
Answers to: MQClientInstance.
Unlike Java: there is no registry of instances by name; sharing is an argument.
"""

import logging
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypedDict, TypeVar

import trio

from rocketrio.api import ClientAPI
from rocketrio.connections import Connections
from rocketrio.fault import AddressFaults
from rocketrio.heartbeat import HEARTBEAT_INTERVAL, ConsumerMembership, HeartbeatService
from rocketrio.name_servers import NameServers, name_server_addresses
from rocketrio.patience import patience
from rocketrio.round_trips import RoundTrips
from rocketrio.routing import FindBrokerResult, Router
from rocketrio.silence import SilenceWatch
from rocketrio.topic_routes import TopicRoutes
from rocketrio_protocol.codes import MASTER_ID, RequestCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.client import NotifyConsumerIdsChangedRequestHeader
from rocketrio_protocol.errors import ConfigError, Error, NotReachable, RouteNotFound
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.message_id import UniqueIdGenerator
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool
from rocketrio_protocol.remoting.ports import Dial, SystemWallClock, WallClock, split_addr
from rocketrio_protocol.remoting.tasks import background_nursery, every
from rocketrio_protocol.remoting.tcp import dial_tcp
from rocketrio_protocol.route import TopicRouteData

POLL_NAME_SERVER_INTERVAL: Final = 30.0  # pollNameServerInterval
CLOSE_GRACE: Final = 3.0
"""Seconds that leaving may take: one ordinary call."""

T = TypeVar("T")


class ClientOptions(TypedDict, total=False):
    """The arguments of `open_client`, for those who pass them on."""

    name_servers: str | Sequence[str] | None
    client_id: str | None
    connect_broker_by_user: bool
    default_broker_id: int
    poll_name_server_interval: float
    heartbeat_broker_interval: float
    serialize_type: SerializeType | str
    dial: Dial
    wall_clock: WallClock | None
    rng: random.Random | None


logger = logging.getLogger("rocketrio.instance")


@asynccontextmanager
async def open_client(
    *,
    name_servers: str | Sequence[str] | None = None,
    client_id: str | None = None,
    connect_broker_by_user: bool = False,
    default_broker_id: int = MASTER_ID,
    poll_name_server_interval: float = POLL_NAME_SERVER_INTERVAL,
    heartbeat_broker_interval: float = HEARTBEAT_INTERVAL,
    serialize_type: SerializeType | str = SerializeType.JSON,
    dial: Dial = dial_tcp,
    wall_clock: WallClock | None = None,
    rng: random.Random | None = None,
) -> AsyncGenerator["ClientInstance"]:
    """A client that consumers, producers and admins can share.

    `name_servers` is `["10.0.0.1:9876", ...]`, or text with semicolons; by default the environment variable
    `NAMESRV_ADDR`, else `127.0.0.1:9876`. `client_id` must be unique in the cluster; by default it is made of the
    address, the process id and a random number. With `connect_broker_by_user` pulls go to the broker id
    `default_broker_id` whatever brokers suggest. Intervals are seconds. `serialize_type` is how request headers are
    written: `"JSON"`, `"ROCKETMQ"`, or `"MSGPACK"` where a broker of ours agrees.

    Nothing is asked before it is needed, so a cluster that is down shows at the first call. Leaving tells the brokers,
    for three seconds at most, also when cancelled. An exception of the block comes out as it was raised.
    """
    addresses = name_server_addresses(name_servers)
    header_codec = _serialize_type(serialize_type)
    rng = rng or random.SystemRandom()

    def members_changed(channel: Channel, request: RemotingCommand) -> None:
        client.notify_consumer_ids_changed(request)

    processors: dict[int, Processor] = {
        int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): members_changed
    }
    scope = trio.CancelScope(shield=True)

    async def keep_connections(*, task_status: trio.TaskStatus[ChannelPool]) -> None:
        # Shielded until all is told: a cancelled consumer still commits and leaves its group.
        with scope:
            async with open_channel_pool(
                dial, processors=processors, serialize_type=header_codec
            ) as pool:
                task_status.started(pool)
                await trio.sleep_forever()

    async with background_nursery() as nursery:
        # A task that shields itself cannot be started under a cancel: nobody would be left to end it.
        with trio.CancelScope(shield=True):
            pool: ChannelPool = await nursery.start(keep_connections)
        try:
            ip = await _local_ip(pool, addresses)
            client = ClientInstance(
                client_id or f"{ip}@{os.getpid()}#{rng.getrandbits(64):016x}",
                addresses,
                pool,
                routing=Router(
                    connect_broker_by_user=connect_broker_by_user,
                    default_broker_id=default_broker_id,
                ),
                heartbeat_interval=heartbeat_broker_interval,
                poll_name_server_interval=poll_name_server_interval,
                wall_clock=wall_clock or SystemWallClock(),
                ip=ip,
                rng=rng,
            )
            nursery.start_soon(client.run)
            try:
                yield client
            finally:
                client.is_closed = True
                with trio.move_on_after(CLOSE_GRACE, shield=True):
                    await client.leave_all()
        finally:
            scope.cancel()


@asynccontextmanager
async def given_or_own(
    client: "ClientInstance | None", options: ClientOptions
) -> AsyncGenerator["ClientInstance"]:
    """The client that a user gave, or one that is opened for the block. Raises ConfigError for both."""
    if client is None:
        async with open_client(**options) as own:
            yield own
        return
    if options:
        raise ConfigError(f"give either client= or {', '.join(options)}=, not both")
    yield client


async def _local_ip(pool: ChannelPool, addresses: Sequence[str]) -> str:
    # How this host is seen from the cluster; only ids are made of it.
    for address in addresses:
        try:
            channel = await pool.channel(address)
        except NotReachable as error:
            logger.warning("name server not reachable addr=%s error=%s", address, error.what)
        else:
            return split_addr(channel.local_addr)[0]
    return "127.0.0.1"


def _serialize_type(wanted: SerializeType | str) -> SerializeType:
    try:
        return SerializeType[wanted] if isinstance(wanted, str) else SerializeType(wanted)
    except (KeyError, ValueError):
        names = ", ".join(kind.name for kind in SerializeType)
        raise ConfigError(f"serialize_type={wanted!r} is none of {names}") from None


class ClientInstance:
    """Tables and connections of one client; made by `open_client`."""

    def __init__(
        self,
        client_id: str,
        name_server_addrs: tuple[str, ...],
        pool: ChannelPool,
        *,
        routing: Router,
        heartbeat_interval: float,
        poll_name_server_interval: float,
        wall_clock: WallClock,
        ip: str,
        rng: random.Random,
    ) -> None:
        self.client_id = client_id
        self.pool = pool
        self.connections = Connections(pool)
        self.name_servers = NameServers(self.connections, name_server_addrs)
        self.api = ClientAPI(self.connections)
        self.routing = routing
        self.faults = AddressFaults()
        self.wall_clock = wall_clock
        self.rng = rng
        self.heartbeat = HeartbeatService(client_id, self.api, routing, heartbeat_interval)
        self.unique_ids = UniqueIdGenerator(
            ip=ip,
            process_id=os.getpid(),
            wall_clock_ms=wall_clock.now_ms,
            instance_hash=rng.getrandbits(32),
        )
        self.is_closed = False
        self._poll_interval = poll_name_server_interval
        self.routes = TopicRoutes(self.name_servers, routing, changed=self._after_route_change)
        self.round_trips = RoundTrips()
        self.silence = SilenceWatch(
            pool,
            routing,
            self.faults,
            lambda addr, spent: self.mark_unreachable(addr, spent=spent),
            self.mark_reachable,
        )
        """Notices connections that pulls wait on and that have gone silent."""
        routing.is_avoided = self._is_avoided

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return (
            f"<ClientInstance {self.client_id} {state}"
            f" name_servers={';'.join(self.name_servers.addresses)}>"
        )

    async def run(self) -> None:
        """Keep routes and heartbeats going; in the client's nursery."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.heartbeat.run)
            nursery.start_soon(self._poll_name_servers)
            nursery.start_soon(self.silence.run)

    # --------------------------------------------------------------------------------------- routes

    async def topic_route(self, topic: str) -> TopicRouteData:
        """The cached route, asked for when there is none. Raises RouteNotFound, NotReachable."""
        return await self.routes.topic_route(topic)

    async def refresh_topic_route(self, topic: str, *, max_age: float = 0.0) -> bool:
        """Ask the name servers again, unless the route is younger than `max_age` seconds; whether it changed.

        A known route stays when no name server answers or knows the topic; without one that raises NotReachable or
        RouteNotFound.
        """
        return await self.routes.refresh(topic, max_age=max_age)

    def _after_route_change(self, topic: str) -> None:
        if not self.heartbeat.heard_by.issuperset(self.heartbeat.targets()):
            self.heartbeat.wake()
        for member in self.heartbeat.consumers.values():
            if topic in member.subscriptions:
                member.rebalance_now.wake()

    async def _poll_name_servers(self) -> None:
        async for _ in every(self._poll_interval, first_after=self._poll_interval):
            for topic in list(self.routing.topic_route_table):
                await self.refresh_topic_route(topic)
            self.clean_offline_brokers()

    def clean_offline_brokers(self) -> None:
        """Forget addresses that no route names, and close their connections."""
        for addr in self.routing.clean_offline_brokers():
            logger.info("broker offline addr=%s", addr)
            self.faults.clear(addr)
            self.round_trips.forget(addr)
            self.heartbeat.heard_by.discard(addr)
            self.pool.drop(addr)

    # -------------------------------------------------------------------------------------- brokers

    def _is_avoided(self, addr: str) -> bool:
        faults = self.faults
        return faults.are_any and faults.is_avoided(addr, now=trio.current_time())

    def mark_unreachable(self, addr: str, *, spent: float) -> None:
        """An attempt that took `spent` seconds failed: prefer other addresses for a while."""
        self.faults.mark(addr, now=trio.current_time(), spent=spent)
        self.heartbeat.heard_by.discard(addr)

    def mark_reachable(self, addr: str) -> None:
        """It answered. After a failure it must hear a heartbeat: brokers forget whose connection broke."""
        if self.faults.clear(addr):
            self.heartbeat.wake()

    async def ask_broker(
        self,
        queue: MessageQueue,
        ask: Callable[[FindBrokerResult], Awaitable[T]],
        *,
        insist_on_master: bool = False,
    ) -> T:
        """What `ask` brings from the queue's master, or from a slave when the master cannot be reached.

        With `insist_on_master` a master that failed a moment ago is tried first all the same, for a second: for what a
        slave may know only an older state of. Raises what `ask` raises; NotReachable and RouteNotFound when nobody is
        left.
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
                    with patience(found, candidates, self._is_avoided):
                        answer = await ask(found)
                except NotReachable as error:
                    failure = error
                    self.mark_unreachable(found.addr, spent=trio.current_time() - started)
                    self.silence.failed(found.addr, queue)
                else:
                    self.mark_reachable(found.addr)
                    return answer
        raise failure or RouteNotFound(
            f"no broker named {queue.broker_name} is known", topic=queue.topic
        )

    # --------------------------------------------------------------------------------------- groups

    async def join(self, member: ConsumerMembership) -> None:
        """Announce a consumer group to all brokers, and wait for their answers. Raises ConfigError for a second one."""
        if member.group in self.heartbeat.consumers:
            raise ConfigError(
                f"this client is a member of group {member.group} already; open another"
            )
        self.heartbeat.consumers[member.group] = member
        for addr in await self.heartbeat.send_all():
            self.mark_unreachable(addr, spent=0.0)  # Others are asked first who else is a member.

    async def leave_all(self) -> None:
        """Tell the brokers that no group lives here any more."""
        consumers, producers = list(self.heartbeat.consumers), list(self.heartbeat.producers)
        self.heartbeat.consumers.clear()
        self.heartbeat.producers.clear()
        async with trio.open_nursery() as nursery:
            for group in consumers:
                nursery.start_soon(self._leave_consumer_group, group)
            for group in producers:
                nursery.start_soon(self._leave_producer_group, group)

    async def leave(self, member: ConsumerMembership) -> None:
        """The group's consumer here is gone; waits until the brokers know."""
        if self.heartbeat.consumers.get(member.group) is member:
            del self.heartbeat.consumers[member.group]
            await self._leave_consumer_group(member.group)

    async def leave_producer(self, group: str) -> None:
        """One producer of the group is gone; the brokers hear when it was the last one."""
        producers = self.heartbeat.producers
        if group not in producers:
            return  # The whole client has left.
        producers[group] -= 1
        if not producers[group]:
            del producers[group]
            await self._leave_producer_group(group)

    async def _leave_consumer_group(self, group: str) -> None:
        await self.heartbeat.leave(consumer_group=group)

    async def _leave_producer_group(self, group: str) -> None:
        await self.heartbeat.leave(producer_group=group)

    def notify_consumer_ids_changed(self, request: RemotingCommand) -> None:
        """A broker says that a group's members changed."""
        group = request.header(NotifyConsumerIdsChangedRequestHeader).consumer_group
        member = self.heartbeat.consumers.get(group)
        if member is not None:
            member.rebalance_now.wake()
