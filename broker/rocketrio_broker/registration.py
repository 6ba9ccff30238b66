"""Keeps a broker registered with every name server, and finds a slave's master.

Each name server has a task, which registers at start, periodically, and soon after the connection was lost, because
with it the name server removes the broker. An unreachable name server is tried again soon and then less often, and
delays no other.

New or changed topics are registered at once and without the others, so that the thousandth costs as much as the first:

    4.x and ours    103 with these topics and the version of the whole table, as Apache's brokers do
    5.x             217 for each: there 103 may be configured to remove the topics that it does not name

Invariant: while registration is held, no name server gets a request about this broker.
Invariant: after `leave` no name server lists this broker because of a registration that it had not answered.
Invariant: `registered` reaches the number of a change of the topics only after every reachable name server got it.
Answers to: BrokerOuterAPI, BrokerController.registerBrokerAll; RocketMQ reference, sections 2.12 and 7.
Unlike Java: a slave without a master registers every two seconds, and so follows a new one soon.
Unlike Java: the master's address is the first that any name server of the list knows (as 5.x), not the first answer;
a lost connection is noticed within a second, where Java's routes lack the broker until the next period.
"""

import logging
from functools import partial
from math import inf
from typing import Final

import attrs
import trio

from rocketrio_broker.settings.config import LiveConfig
from rocketrio_broker.tables.topics import TopicConfigManager
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.bodies.registration import (
    RegisterBrokerBody,
    body_crc32,
    encode_register_body,
)
from rocketrio_protocol.bodies.route import QueueData, TopicRouteData
from rocketrio_protocol.bodies.topics import TopicConfigSerializeWrapper
from rocketrio_protocol.codes import MASTER_ID, VERSION_5, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import cluster
from rocketrio_protocol.errors import Error
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import ChannelPool
from rocketrio_protocol.remoting.ports import is_peer_addr
from rocketrio_protocol.remoting.tasks import wait_any

logger = logging.getLogger("rocketrio_broker.registration")

RETRY_PAUSE: Final = 1.0
"""Seconds until a name server that failed is tried again; doubles up to the period of registration."""
MASTERLESS_PERIOD: Final = 2.0
"""Seconds between registrations of a slave without a known master: only the answers to them name one."""
DISPLACED_LIMIT: Final = 8
"""The most brokers with this one's id that are remembered."""
UNREGISTER_GRACE: Final = 3.0
"""Seconds that a stopping broker spends on unregistering."""


@attrs.frozen
class MasterAddrs:
    """A slave's addresses of its master; None if no name server knows one."""

    addr: str | None = None
    ha_addr: str | None = None


class BrokerRegistration:
    """Registers one broker: `await nursery.start(registration.run)` returns after the first round."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        topics: TopicConfigManager,
        pool: ChannelPool,
        broker_addr: str,
        ha_server_addr: str,
    ) -> None:
        self._config = config
        self._topics = topics
        self._pool = pool
        self.broker_addr = broker_addr
        """The registered address of this broker."""
        self._ha_server_addr = ha_server_addr
        self._name_servers = config.broker.name_servers
        self._body: tuple[tuple[int, bool], bytes] | None = None
        self._answers: dict[str, MasterAddrs] = {}
        self._reported: dict[str, int] = {}
        """Name servers whose last registration worked, with the last change of the topics that they know."""
        self._versions: dict[str, int] = {}
        """The version of the protocol that each name server speaks."""
        self._unanswered: dict[str, Channel] = {}
        """Name servers that have not answered the last registration: one may ask another master first."""
        self._failing: set[str] = set()
        self._remarks: dict[str, str] = {}
        self.registered = Watermark()
        """The last change of the topics that all reachable name servers know."""
        self.master = MasterAddrs()
        self.last_master: str | None = None
        """The address of the master that was known last: a name server that has restarted lists none at first."""
        self.master_changes = Watermark()
        """Counts the changes of `master`: a slave waits on it, then reads `master`."""
        self.other_masters: dict[str, str] = {}
        """Name servers that refuse this broker as master, and the address of the master that each lists instead."""
        self._displaced: dict[str, tuple[int, float]] = {}
        """Live brokers that a name server listed under this one's id: the id, and when that was last."""
        self.id_conflicts = Watermark()
        """Counts the registrations that found this."""
        self.refusals = Watermark()
        """Counts the refusals."""
        self.listings = Watermark()
        """Counts the registrations that a name server accepted."""
        self._is_held = False
        self._wakeups = Watermark()
        self._rounds: dict[str, int] = {}
        """The last wakeup for which each name server was asked."""
        self._asked = Watermark()
        """Counts the attempts, successful or not."""

    def __repr__(self) -> str:
        return (
            f"<BrokerRegistration of {self.broker_addr} at {', '.join(self._reported) or 'none'}>"
        )

    async def wait_registered(self) -> None:
        """Wait until the reachable name servers know the topics as they are now, for a limited time.

        After a cancel the registration continues.
        """
        if self._reported:
            with trio.move_on_after(self._config.broker.register_broker_timeout):
                await self.registered.wait_reached(self._topics.changes.value)

    def hold(self) -> None:
        """Send nothing to the name servers until `register_now`; what they know of this broker stays."""
        self._is_held = True
        self.other_masters.clear()

    def register_now(self) -> None:
        """Register at once and from then on, because the role has changed or this broker may serve in it now."""
        self._is_held = False
        self._wakeups.advance(self._wakeups.value + 1)

    async def register_as_master(self) -> str | None:
        """Register at once; return the master that a name server lists instead, or None if none refuses.

        Name servers that cannot be reached within `register_broker_timeout` are ignored. After a cancel the
        registration continues.
        """
        self.other_masters.clear()
        self.register_now()
        wakeup = self._wakeups.value
        with trio.move_on_after(self._config.broker.register_broker_timeout):
            while not self.other_masters and self._oldest_round() < wakeup:
                await self._asked.wait_past(self._asked.value)
        return min(self.other_masters.values(), default=None)

    def id_shared_with(self) -> list[str]:
        """Return the addresses of brokers that had this broker's id in the last two periods.

        Each of the two displaces the other one once in a period, and may register twice before the other one does.
        """
        since = trio.current_time() - 2 * self._config.broker.register_name_server_period
        own = self._config.broker.broker_id
        return sorted(
            addr for addr, (id_, at) in self._displaced.items() if id_ == own and at >= since
        )

    def _oldest_round(self) -> float:
        return min((self._rounds.get(addr, -1) for addr in self._name_servers), default=inf)

    def learn_master(self, addr: str, ha_addr: str | None) -> None:
        """Use this master until a name server names one, which then has precedence."""
        if self.master != MasterAddrs(addr, ha_addr):
            self._set_master(MasterAddrs(addr, ha_addr))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register until cancelled, then unregister."""
        try:
            async with trio.open_nursery() as nursery:
                async with trio.open_nursery() as first_round:
                    for name_server in self._name_servers:
                        first_round.start_soon(nursery.start, self._keep_registered, name_server)
                task_status.started()
                await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await self.leave()

    async def leave(self) -> None:
        """Unregister from the name servers that know this broker, for a limited time."""
        for channel in self._unanswered.values():
            channel.close("this broker leaves")  # Then the name server does not list it.
        with trio.move_on_after(UNREGISTER_GRACE):
            async with trio.open_nursery() as nursery:
                for name_server in self._reported:
                    nursery.start_soon(self._unregister, name_server)

    async def _keep_registered(
        self, name_server: str, *, task_status: trio.TaskStatus[None]
    ) -> None:
        pause = RETRY_PAUSE
        while True:
            wakeup = self._wakeups.value
            # Read first, so that a wakeup during this round ends the wait after it.
            if self._is_held:
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await self._wakeups.wait_past(wakeup)
                continue
            channel: Channel | None = None
            try:
                channel = await self._pool.channel(name_server)
                # Asked again after the wait: the role may have been held meanwhile, and
                # a registration now would announce the old one.
                if self._is_held:
                    continue
                change = self._topics.changes.value
                # `change` is read before the topics are sent: one that comes during the request is not among them.
                self._learn(name_server, change, await self._register(name_server, channel))
            except Error as error:
                self._lost(name_server, error)
                channel = None
            self._rounds[name_server] = wakeup
            self._asked.advance(self._asked.value + 1)
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            if channel is None:
                with trio.move_on_after(pause):
                    await self._wakeups.wait_past(wakeup)
                pause = min(pause * 2, self._config.broker.register_name_server_period)
                continue
            pause = RETRY_PAUSE
            with trio.move_on_after(self._period()):
                try:
                    await self._follow_topics(name_server, channel, wakeup)
                except Error as error:
                    self._lost(name_server, error)

    def _period(self) -> float:
        """Return the seconds until the next registration: a slave without a known master asks often."""
        broker = self._config.broker
        if broker.is_slave and self.master.addr is None:
            return min(MASTERLESS_PERIOD, broker.register_name_server_period)
        return broker.register_name_server_period

    async def _follow_topics(self, name_server: str, channel: Channel, wakeup: int) -> None:
        """Register new and changed topics; return when everything must be registered again.

        That is so on request, after the connection has ended, and if a change cannot be registered topic by topic.
        """
        while True:
            reported = self._reported[name_server]
            await wait_any(
                partial(self._topics.changes.wait_past, reported),
                partial(self._wakeups.wait_past, wakeup),
                channel.over.wait,
            )
            if channel.closed:
                # A name server may accept connections only to close them: it is not asked more often than this.
                with trio.move_on_after(RETRY_PAUSE):
                    await self._wakeups.wait_past(wakeup)
                return
            if self._is_held or self._wakeups.value != wakeup:
                return
            # Read before the names, as a change during the requests below is registered in the next turn.
            change = self._topics.changes.value
            names = self._topics.table.changed_since(reported)
            if names is None or (names and self._config.broker.broker_id != MASTER_ID):
                return
            # A deleted topic stays in the routes until 216, because no registration removes a topic.
            some = self._topics.registered_wrapper(names)
            if some.topic_config_table:
                await self._register_topics(name_server, channel, some)
            self._reported[name_server] = change
            self._advance()

    async def _register_topics(
        self, name_server: str, channel: Channel, some: TopicConfigSerializeWrapper
    ) -> None:
        """Register only these topics, so that the others cost nothing."""
        if self._versions[name_server] < VERSION_5:
            body = self._encoded(some)
            await self._call(name_server, channel, self._header(body), body)
            return
        for topic in some.topic_config_table.values():
            queues = QueueData(
                broker_name=self._config.broker.broker_name,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                perm=topic.perm,
                topic_sys_flag=topic.topic_sys_flag,
            )
            route = TopicRouteData(queue_datas=[queues])
            header = cluster.RegisterTopicRequestHeader(topic.topic_name)
            await self._call(name_server, channel, header, route.to_json())

    async def _register(self, name_server: str, channel: Channel) -> MasterAddrs:
        body = self._whole_body()
        sent = self._header(body)
        self._unanswered[name_server] = channel
        response = await self._call(name_server, channel, sent, body)
        self._versions[name_server] = response.version
        self._note_remark(name_server, response.remark or "")
        answer = response.header(cluster.RegisterBrokerResponseHeader)
        if (displaced := _usable_addr(answer.displaced_addr)) is not None:
            self._note_displaced(displaced, sent.broker_id)
        return MasterAddrs(*map(_usable_addr, (answer.master_addr, answer.ha_server_addr)))

    async def _call(
        self, name_server: str, channel: Channel, header: RequestHeader, body: bytes
    ) -> RemotingCommand:
        timeout = self._config.broker.register_broker_timeout
        response = await channel.call(header, body, timeout=timeout)
        self._unanswered.pop(name_server, None)
        if response.code != ResponseCode.SUCCESS:
            self._refused(name_server, response)
            what = "The name server refused the registration"
            raise response.error(what, broker_addr=channel.remote_addr)
        return response

    def _note_remark(self, name_server: str, remark: str) -> None:
        """Log what a rocketrio name server had no room for, or that another broker has this one's id."""
        if remark and remark != self._remarks.get(name_server):
            logger.warning("registered in part name_server=%s reason=%s", name_server, remark)
        self._remarks[name_server] = remark

    def _note_displaced(self, other: str, broker_id: int) -> None:
        self._displaced[other] = broker_id, trio.current_time()
        if len(self._displaced) > DISPLACED_LIMIT:
            del self._displaced[next(iter(self._displaced))]
        self.id_conflicts.advance(self.id_conflicts.value + 1)

    def _refused(self, name_server: str, response: RemotingCommand) -> None:
        """Note the master that a rocketrio name server lists instead of this one."""
        other = _usable_addr(response.header(cluster.RegisterBrokerResponseHeader).master_addr)
        if other is not None and self._config.broker.broker_id == MASTER_ID:
            self.other_masters[name_server] = other
            self.refusals.advance(self.refusals.value + 1)

    def _whole_body(self) -> bytes:
        """Return all topics encoded; cached, because there may be thousands of topics and several name servers."""
        key = (self._topics.changes.value, self._config.broker.compressed_register)
        if self._body is None or self._body[0] != key:
            self._body = key, self._encoded(self._topics.registered_wrapper())
        return self._body[1]

    def _encoded(self, topics: TopicConfigSerializeWrapper) -> bytes:
        is_compressed = self._config.broker.compressed_register
        return encode_register_body(RegisterBrokerBody(topics), compressed=is_compressed)

    def _header(self, body: bytes) -> cluster.RegisterBrokerRequestHeader:
        config = self._config.broker
        return cluster.RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.broker_addr,
            cluster_name=config.cluster_name,
            ha_server_addr=self._ha_server_addr,
            broker_id=config.broker_id,
            compressed=config.compressed_register,
            body_crc32=body_crc32(body),
        )

    async def _unregister(self, name_server: str) -> None:
        config = self._config.broker
        header = cluster.UnregisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.broker_addr,
            cluster_name=config.cluster_name,
            broker_id=config.broker_id,
        )
        try:
            await self._pool.call(name_server, header, timeout=UNREGISTER_GRACE)
        except Error as error:
            # The name server removes this broker anyway once the connection is closed.
            logger.info("unregistration failed name_server=%s error=%s", name_server, error)

    def _learn(self, name_server: str, change: int, answer: MasterAddrs) -> None:
        if name_server not in self._reported:
            logger.info("registered name_server=%s addr=%s", name_server, self.broker_addr)
        self._reported[name_server] = change
        self.other_masters.pop(name_server, None)
        self.listings.advance(self.listings.value + 1)
        self._failing.discard(name_server)
        self._answers[name_server] = answer
        self._advance()
        # Reachable name servers first: what an unreachable one reported may be long out of date.
        by_freshness = sorted(self._name_servers, key=lambda addr: addr not in self._reported)
        known = (self._answers.get(addr) for addr in by_freshness)
        master = next((addrs for addrs in known if addrs and addrs.addr), MasterAddrs())
        if master != self.master:
            self._set_master(master)

    def _set_master(self, master: MasterAddrs) -> None:
        logger.info("master addr=%s ha_addr=%s", master.addr, master.ha_addr)
        self.master = master
        self.last_master = master.addr or self.last_master
        self.master_changes.advance(self.master_changes.value + 1)

    def _lost(self, name_server: str, error: Error) -> None:
        """Note a failure; the known master stays, because an unreachable name server does not mean a dead master."""
        self._reported.pop(name_server, None)
        if name_server not in self._failing:
            self._failing.add(name_server)
            logger.warning(
                "cannot register, will retry name_server=%s error=%s", name_server, error
            )
        self._advance()

    def _advance(self) -> None:
        self.registered.advance(min(self._reported.values(), default=self._topics.changes.value))


def _usable_addr(addr: str | None) -> str | None:
    """Return an address from a name server if it is a valid one, because it will be dialled."""
    return addr if addr and is_peer_addr(addr) else None
