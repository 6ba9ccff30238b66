"""The name server's tables: the brokers' addresses, and the topics that they serve.

The tables take the time as an argument, return what changed, and send nothing.

Invariant: an address in the list of a broker name is in `broker_live_table`, under this name and this id.
Invariant: a topic is routed only to broker names that have at least one address.
Invariant: only the connection that registered an address may change it, and other connections from the same host or
from the address itself, as long as that connection is open.
Invariant: the time for removing what a connection registered does not depend on the rest of the tables.
Invariant: no step here takes more than some ten milliseconds.
Answers to: RouteInfoManager; RocketMQ reference, section 2.12.
Unlike Java: liveness is kept per cluster and address (as in 5.x); an address is removed from an id only if it still has
it, so a broker that stops late does not remove the entry of its successor.
Unlike Java: a name has one master; a second one is refused while the first answers (`probes.py`), where Java's list
shows the last that registered.
Unlike Java: there are limits, and one host gets half of each at most.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence, Set
from itertools import islice
from typing import Final

import attrs

from rocketrio_broker.namesrv.host_share import HostShare
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketrio_protocol.bodies.topics import (
    DataVersion,
    Permission,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.ports import split_addr
from rocketrio_protocol.steps import all_at_once

logger = logging.getLogger("rocketrio_broker.namesrv")

BROKER_CHANNEL_EXPIRED_TIME: Final = 120.0  # brokerChannelExpiredTime
SCAN_INTERVAL: Final = 10.0  # scanNotActiveBroker
UNIT: Final = 1
UNIT_SUB: Final = 2

BROKERS_LIMIT: Final = 1_000
"""The most addresses of brokers; all of them with their names are one answer (106) of 1 MB at most."""

CONNECTION_BROKERS_LIMIT: Final = 16
"""The most addresses that one connection registers: a process has one broker, or a few."""

TOPICS_LIMIT: Final = 200_000
"""The most topics, so that one host can have as many as one registration may have; half a kilobyte each."""

TOPIC_NAMES_LIMIT: Final = 12 << 20
"""The most bytes of all topic names in their list (206), which must fit a frame."""

ROUTES_OF_TOPIC: Final = 5
"""Broker names that serve a topic, on average over all topics: a million pairs of some 200 bytes."""

CONNECTION_ROUTES_LIMIT: Final = 100_000
"""The most pairs of the brokers of one connection: as many as one registration may have."""

SLICE: Final = 5_000
"""Pairs that are added, or removed, in one step."""


@attrs.frozen(order=False)
class BrokerAddr:
    """One broker process: its address within its cluster."""

    cluster_name: str
    broker_addr: str


@attrs.define(eq=False)
class BrokerLiveInfo:
    """How a broker is registered: name, id, connection, its topics' version, and its last sign of life."""

    broker_name: str
    broker_id: int
    last_update: float
    data_version: DataVersion
    """The version of its topics, if all are in the tables; an empty version if some did not fit."""
    channel: Hashable
    host: str
    """The host from which this connection comes."""
    ha_server_addr: str


@attrs.frozen
class Registration:
    """The content of one REGISTER_BROKER."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    topics: TopicConfigSerializeWrapper
    filter_servers: list[str] = attrs.Factory(list)

    @property
    def key(self) -> BrokerAddr:
        """The broker process that registers."""
        return BrokerAddr(self.cluster_name, self.broker_addr)


@attrs.frozen
class RegisterBrokerResult:
    """For slaves: the addresses of their master, if it is known."""

    master_addr: str | None = None
    ha_server_addr: str | None = None
    left_out: int = 0
    """The number of a master's topics for which the tables had no room."""
    displaced: str | None = None
    """The living address that was listed under this id until now."""


class RegistrationRefusedError(Error):
    """A registration, or its end, that would change another broker's entry, or that does not fit in the tables."""

    remedy = "Check the name server's list (rocketrio cluster list) for the registered brokers and their hosts"


class AnotherMasterError(RegistrationRefusedError):
    """A second broker wants to be the master of a name: it is not listed, and should take no writes."""

    remedy = (
        "Stop one of the two, or make it a slave; the name is free a moment after the first has stopped, or when it "
        "no longer answers the name server"
    )

    def __init__(self, broker_name: str, master_addr: str, channel: Hashable) -> None:
        super().__init__(f"{broker_name} has a master already, at {master_addr}")
        self.master_addr = master_addr
        self.channel = channel
        """The connection over which that one registered."""


@attrs.define(eq=False)
class _Served:
    """The topics of one broker name, which count for the host that registered the first of them."""

    host: str
    topics: set[str] = attrs.Factory(set)
    is_writable_by_order: bool | None = None
    """What an operator ordered last about the write permission."""


class RouteInfoManager:
    """The tables of one name server."""

    def __init__(
        self, *, broker_limit: int = BROKERS_LIMIT, topic_limit: int = TOPICS_LIMIT
    ) -> None:
        self.topic_queue_table: dict[str, dict[str, QueueData]] = {}
        """Topic to broker name to queues."""
        self.broker_addr_table: dict[str, BrokerData] = {}
        self.cluster_addr_table: dict[str, dict[str, None]] = {}
        """Cluster to its broker names, in the order of registration."""
        self.broker_live_table: dict[BrokerAddr, BrokerLiveInfo] = {}
        self.filter_server_table: dict[BrokerAddr, list[str]] = {}
        self._by_channel: dict[Hashable, dict[BrokerAddr, None]] = {}
        """Connection to the brokers whose last registration came over it."""
        self._served: dict[str, _Served] = {}
        """Broker name to its topics."""
        self._introduced_by: dict[str, str] = {}
        """Topic to the host for which it counts."""
        self._leaving: deque[tuple[str, _Served]] = deque()
        """Removed names, with topics that are still to be removed from the table: see `tidy`."""
        self.departures = Watermark()
        """Counts the removed names."""
        self._brokers = HostShare(broker_limit)
        self._topics = HostShare(topic_limit)
        self._topic_names = HostShare(TOPIC_NAMES_LIMIT)
        self._routes = HostShare(topic_limit * ROUTES_OF_TOPIC)

    # ---------------------------------------------------------------------------------- coming, going

    def register_broker(
        self, registration: Registration, *, channel: Hashable, host: str, now: float
    ) -> RegisterBrokerResult:
        """Do `registration_steps` at once, for a broker of few topics."""
        return all_at_once(
            self.registration_steps(registration, channel=channel, host=host, now=now)
        )

    def registration_steps(
        self, registration: Registration, *, channel: Hashable, host: str, now: float
    ) -> Generator[None, None, RegisterBrokerResult]:
        """Register a broker with its address and topics, as received over a connection from `host`.

        Raises RegistrationRefusedError in the first step, and then nothing changed. The first step adds the address,
        the following steps add the topics, unless the connection ends meanwhile.
        """
        key, name, broker_id = registration.key, registration.broker_name, registration.broker_id
        self._check(registration, channel, host)
        known = self.broker_live_table.get(key)
        if known is not None and known.broker_name != name:
            self._forget_address(key)
            self.tidy()
            known = None
        # Asked before `_keep_alive` notes the new version, with which every registration would look known.
        has_all_topics = self.has_topics(registration, registration.topics.data_version)
        self.cluster_addr_table.setdefault(registration.cluster_name, {})[name] = None
        broker = self.broker_addr_table.get(name)
        if broker is None:
            broker = self.broker_addr_table[name] = BrokerData(registration.cluster_name, name, {})
        displaced = self._put_address(broker, broker_id, registration.broker_addr)
        live = self._keep_alive(registration, known, channel, host, now)
        left_out = 0
        if registration.filter_servers:
            self.filter_server_table[key] = registration.filter_servers
        if not has_all_topics:
            left_out = yield from self._update_queues(registration, live)
        if broker_id == MASTER_ID:
            return RegisterBrokerResult(left_out=left_out)
        return attrs.evolve(self._master_of(broker), displaced=displaced)

    def has_topics(self, registration: Registration, version: DataVersion) -> bool:
        """Return True if a registration with this version of its topics has no topics that must be read."""
        if registration.broker_id != MASTER_ID:
            return True
        known = self.broker_live_table.get(registration.key)
        return (
            known is not None
            and (known.broker_name, known.broker_id) == (registration.broker_name, MASTER_ID)
            and known.data_version == version
        )

    def _check(self, registration: Registration, channel: Hashable, host: str) -> None:
        """Raise RegistrationRefusedError if this connection may not register so."""
        name = registration.broker_name
        known = self.broker_live_table.get(registration.key)
        if known is not None:
            self._check_may_change(known, registration.broker_addr, channel, host)
        broker = self.broker_addr_table.get(name)
        if broker is not None and broker.cluster != registration.cluster_name:
            raise RegistrationRefusedError(
                f"{name} is a broker of the cluster {broker.cluster}, and not of {registration.cluster_name}"
            )
        if known is None and self._brokers.room(host) <= 0:
            raise RegistrationRefusedError(
                f"The name server has no room for another broker of {host}: it has {self._brokers.used}, "
                f"of {self._brokers.limit} at most, half of them of one host"
            )
        own = self._by_channel.get(channel, {})
        if len(own) >= CONNECTION_BROKERS_LIMIT and registration.key not in own:
            raise RegistrationRefusedError(
                f"One connection registers {CONNECTION_BROKERS_LIMIT} brokers at most"
            )
        # Last: a listed master is asked only because of a registration that is otherwise accepted.
        if broker is not None and registration.broker_id == MASTER_ID:
            self._check_only_master(registration, broker)

    def _check_only_master(self, registration: Registration, broker: BrokerData) -> None:
        """Raise AnotherMasterError for a second master."""
        master = broker.broker_addrs.get(MASTER_ID, registration.broker_addr)
        if master != registration.broker_addr:
            live = self.broker_live_table[BrokerAddr(broker.cluster, master)]
            raise AnotherMasterError(registration.broker_name, master, live.channel)

    @staticmethod
    def _check_may_change(
        known: BrokerLiveInfo, addr: str, channel: Hashable, host: str | None
    ) -> None:
        """Raise RegistrationRefusedError if a connection may not change the entry of a broker.

        A broker that lost its connection comes back from the same host, usually before the loss is known here. No other
        broker can connect from the host of an address.
        """
        if channel != known.channel and host not in (known.host, split_addr(addr)[0]):
            raise RegistrationRefusedError(
                f"{known.broker_name} at {addr} is registered over another connection, from {known.host}, "
                "which is still open"
            )

    def _keep_alive(
        self,
        registration: Registration,
        known: BrokerLiveInfo | None,
        channel: Hashable,
        host: str,
        now: float,
    ) -> BrokerLiveInfo:
        key = registration.key
        if known is not None:
            self._drop_live(key)
        live = self.broker_live_table[key] = BrokerLiveInfo(
            registration.broker_name,
            registration.broker_id,
            now,
            registration.topics.data_version,
            channel,
            host,
            registration.ha_server_addr,
        )
        self._by_channel.setdefault(channel, {})[key] = None
        self._brokers.take(host)
        if known is None:
            logger.info(
                "broker registered cluster=%s name=%s id=%d addr=%s ha_addr=%s from=%s",
                key.cluster_name, live.broker_name, live.broker_id, key.broker_addr, live.ha_server_addr, host,
            )  # fmt: skip
        return live

    def unregister_broker(
        self,
        *,
        cluster_name: str,
        broker_addr: str,
        broker_name: str,
        broker_id: int,
        channel: Hashable,
    ) -> None:
        """Remove one address of a broker name; with the last one remove the name, its queues and empty topics.

        Raises RegistrationRefusedError unless this connection registered it.
        """
        key = BrokerAddr(cluster_name, broker_addr)
        live = self.broker_live_table.get(key)
        if live is None:
            return
        self._check_may_change(live, broker_addr, channel, None)
        if (live.broker_name, live.broker_id) == (broker_name, broker_id):
            self._forget_address(key)
            self.tidy()

    def channel_closed(self, channel: Hashable) -> None:
        """Remove every broker whose last registration came over a connection that ended."""
        for key in list(self._by_channel.get(channel, ())):
            self._forget_address(key)
        self.tidy()

    def scan_not_active_broker(self, now: float) -> list[BrokerAddr]:
        """Remove brokers that were silent for too long; return them."""
        silent = [
            key
            for key, live in self.broker_live_table.items()
            if now - live.last_update > BROKER_CHANNEL_EXPIRED_TIME
        ]
        for key in silent:
            logger.warning("broker silent cluster=%s addr=%s", key.cluster_name, key.broker_addr)
            self._forget_address(key)
        self.tidy()
        return silent

    def tidy(self) -> bool:
        """Remove some topics of removed names; return True if there are more."""
        room = SLICE
        while self._leaving and room > 0:
            name, served = self._leaving[0]
            some = [served.topics.pop() for _ in range(min(room, len(served.topics)))]
            room -= len(some)
            if not served.topics:
                self._leaving.popleft()
            # The name may be registered again by now, with topics of its own.
            self._drop_queues(name, served.host, some, but=self._topics_of(name))
        return bool(self._leaving)

    def refresh(self, key: BrokerAddr, *, channel: Hashable, now: float) -> None:
        """Record a sign of life, if it came over the connection that registered the broker."""
        live = self.broker_live_table.get(key)
        if live is not None and live.channel == channel:
            live.last_update = now

    def data_version(self, key: BrokerAddr) -> DataVersion | None:
        """Return the version of its topics that the broker registered last."""
        live = self.broker_live_table.get(key)
        return None if live is None else live.data_version

    # ------------------------------------------------------------------------------------- asking

    def pickup_topic_route_data(self, topic: str) -> TopicRouteData | None:
        """Return the brokers and queues of the topic, or None if no broker serves it."""
        queues = {
            name: queue_data
            for name, queue_data in self.topic_queue_table.get(topic, {}).items()
            if topic in self._topics_of(name)
        }
        if not queues:
            return None
        brokers = [self.broker_addr_table[name] for name in queues]
        filter_servers = {
            addr: servers
            for broker in brokers
            for addr in broker.broker_addrs.values()
            if (servers := self.filter_server_table.get(BrokerAddr(broker.cluster, addr)))
        }
        return TopicRouteData(
            broker_datas=brokers,
            queue_datas=list(queues.values()),
            filter_server_table=filter_servers,
        )

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers."""
        return ClusterInfo(
            broker_addr_table=self.broker_addr_table,
            cluster_addr_table={
                cluster: list(names) for cluster, names in self.cluster_addr_table.items()
            },
        )

    def topics_of_cluster(self, cluster: str) -> Generator[None, None, list[str]]:
        """Find in steps the topics that a broker of the cluster serves."""
        names = frozenset(self.cluster_addr_table.get(cluster, {}))
        return self._topics_where(lambda queues: not names.isdisjoint(queues))

    def _topics_where(
        self, is_meant: Callable[[dict[str, QueueData]], bool]
    ) -> Generator[None, None, list[str]]:
        found: list[str] = []
        topics = iter(list(self.topic_queue_table))
        while some := list(islice(topics, SLICE)):
            for topic in some:
                queues = self.topic_queue_table.get(topic)
                if queues and is_meant(queues):
                    found.append(topic)
            yield
        return found

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the names of clusters and brokers, which are topics too, and the address of any broker."""
        names = list(self.cluster_addr_table)
        for brokers in self.cluster_addr_table.values():
            names += brokers
        addrs = (
            addr
            for broker in self.broker_addr_table.values()
            for addr in broker.broker_addrs.values()
        )
        return names, next(addrs, None)

    def unit_topics(
        self, *, unit: bool | None, unit_sub: bool | None
    ) -> Generator[None, None, list[str]]:
        """Find in steps topics by the two unit flags of their first broker; None accepts any value of a flag."""

        def is_meant(queues: dict[str, QueueData]) -> bool:
            flags = next(iter(queues.values())).topic_sys_flag
            return unit in (None, bool(flags & UNIT)) and unit_sub in (
                None, bool(flags & UNIT_SUB)
            )  # fmt: skip

        return self._topics_where(is_meant)

    # ----------------------------------------------------------------------------- operators' changes

    def ordered_write_permission(self, broker_name: str) -> bool | None:
        """Return whether an operator lately gave a broker the write permission, or took it; None if none did either.

        Topics that the broker registers afterwards have the permission that it registers them with.
        """
        served = self._served.get(broker_name)
        return None if served is None else served.is_writable_by_order

    def change_write_permission(
        self, broker_name: str, *, writable: bool
    ) -> Generator[None, None, int]:
        """Remove the write permission from all queues of a broker in steps, or make them readable and writable.

        Returns the number of topics.
        """
        count = 0
        topics = iter(list(self._topics_of(broker_name)))
        while some := list(islice(topics, SLICE)):
            for topic in some:
                queue_data = self.topic_queue_table.get(topic, {}).get(broker_name)
                if queue_data is None:
                    continue  # It was removed meanwhile.
                count += 1
                if writable:
                    queue_data.perm = int(Permission.READ | Permission.WRITE)
                else:
                    queue_data.perm &= ~Permission.WRITE
            yield
        if (served := self._served.get(broker_name)) is not None:  # It may be gone meanwhile.
            served.is_writable_by_order = writable
        return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic's routes, everywhere or in one cluster."""
        queues = self.topic_queue_table.get(topic, {})
        for name in list(queues):
            is_meant = cluster is None or name in self.cluster_addr_table.get(cluster, {})
            if is_meant and topic in self._topics_of(name):
                served = self._served[name]
                served.topics.discard(topic)
                self._drop_queues(name, served.host, [topic])

    # ----------------------------------------------------------------------------------------- within

    def _put_address(self, broker: BrokerData, broker_id: int, addr: str) -> str | None:
        """List the address under this id only; return the living address that was listed under it, if there is one."""
        moved = [
            other
            for other, known in broker.broker_addrs.items()
            if known == addr and other != broker_id
        ]
        for other in moved:
            logger.info("broker changed its id name=%s addr=%s from=%d to=%d",
                        broker.broker_name, addr, other, broker_id)  # fmt: skip
            del broker.broker_addrs[other]
        before = broker.broker_addrs.get(broker_id)
        displaced = None if before == addr else before
        if displaced is not None:
            logger.warning(
                "two brokers claim one id name=%s id=%d addr=%s instead_of=%s",
                broker.broker_name, broker_id, addr, displaced,
            )  # fmt: skip
            # Else the end of its connection would remove the address that is listed under this id from now on.
            self._drop_live(BrokerAddr(broker.cluster, displaced))
        broker.broker_addrs[broker_id] = addr
        broker.broker_addrs = dict(sorted(broker.broker_addrs.items()))
        return displaced

    def _topics_of(self, broker_name: str) -> set[str]:
        served = self._served.get(broker_name)
        return set() if served is None else served.topics

    def _update_queues(
        self, registration: Registration, live: BrokerLiveInfo
    ) -> Generator[None, None, int]:
        """Add a master's queues in steps; return the number of its topics that did not fit."""
        name, key, channel = registration.broker_name, registration.key, live.channel
        # No version until all are in: if the connection ends between two steps,
        # the broker's next registration is read whole.
        live.data_version = DataVersion()
        entries = iter(registration.topics.topic_config_table.items())
        left_out = 0
        while some := list(islice(entries, SLICE)):
            # Asked in each step: topics added after the broker has left would be routed to a name without an address.
            now = self.broker_live_table.get(key)
            if now is None or (now.channel, now.broker_name) != (channel, name):
                return left_out
            left_out += self._add_queues(name, some, live)
            yield
        if not left_out:
            live.data_version = registration.topics.data_version
        return left_out

    def _add_queues(
        self, broker_name: str, topics: Sequence[tuple[str, TopicConfig]], live: BrokerLiveInfo
    ) -> int:
        table = self.topic_queue_table
        served = self._served.setdefault(broker_name, _Served(live.host))
        own, host = served.topics, served.host
        room = min(self._routes.room(host), CONNECTION_ROUTES_LIMIT - self._routes_of(live.channel))
        topic_room, name_room = self._topics.room(host), self._topic_names.room(host)
        before = len(own)
        new: list[str] = []
        left_out = names_size = 0
        for topic, config in topics:
            if topic not in own:
                size = 0 if topic in table else _listed_size(topic)
                if (
                    len(own) - before >= room
                    or (size and len(new) >= topic_room)
                    or names_size + size > name_room
                ):
                    left_out += 1
                    continue
                if size:
                    names_size += size
                    new.append(topic)
                    table[topic] = {}
                own.add(topic)
            table[topic][broker_name] = QueueData(
                broker_name,
                config.read_queue_nums,
                config.write_queue_nums,
                config.perm,
                config.topic_sys_flag,
            )
        self._routes.take(host, len(own) - before)
        self._topics.take(host, len(new))
        self._topic_names.take(host, names_size)
        self._introduced_by.update(dict.fromkeys(new, host))
        return left_out

    def _routes_of(self, channel: Hashable) -> int:
        names = {self.broker_live_table[key].broker_name for key in self._by_channel[channel]}
        return sum(len(self._topics_of(name)) for name in names)

    def _drop_queues(
        self, broker_name: str, host: str, topics: Sequence[str], *, but: Set[str] = frozenset()
    ) -> None:
        """Remove these topics of a broker name of this host, except those that it serves again."""
        self._routes.give_back(host, len(topics))
        for topic in topics:
            if topic in but:
                continue
            queues = self.topic_queue_table[topic]
            del queues[broker_name]
            if not queues:
                del self.topic_queue_table[topic]
                introduced_by = self._introduced_by.pop(topic)
                self._topics.give_back(introduced_by)
                self._topic_names.give_back(introduced_by, _listed_size(topic))

    def _master_of(self, broker: BrokerData) -> RegisterBrokerResult:
        master_addr = broker.broker_addrs.get(MASTER_ID)
        if master_addr is None:
            return RegisterBrokerResult()
        live = self.broker_live_table.get(BrokerAddr(broker.cluster, master_addr))
        return RegisterBrokerResult(master_addr, None if live is None else live.ha_server_addr)

    def _drop_live(self, key: BrokerAddr) -> BrokerLiveInfo:
        """Remove a broker from the live table and from its connection only."""
        live = self.broker_live_table.pop(key)
        self.filter_server_table.pop(key, None)
        self._brokers.give_back(live.host)
        own = self._by_channel[live.channel]
        del own[key]
        if not own:
            del self._by_channel[live.channel]
        return live

    def _forget_address(self, key: BrokerAddr) -> None:
        """Remove a broker; with the last one of its name remove the name, its queues and empty topics."""
        live = self._drop_live(key)
        broker = self.broker_addr_table[live.broker_name]
        del broker.broker_addrs[live.broker_id]
        logger.info(
            "broker gone cluster=%s name=%s id=%d addr=%s",
            key.cluster_name, live.broker_name, live.broker_id, key.broker_addr,
        )  # fmt: skip
        if not broker.broker_addrs:
            self._forget_name(broker)

    def _forget_name(self, broker: BrokerData) -> None:
        name = broker.broker_name
        del self.broker_addr_table[name]
        names = self.cluster_addr_table[broker.cluster]
        del names[name]
        if not names:
            del self.cluster_addr_table[broker.cluster]
        if (served := self._served.pop(name, None)) is not None:
            self._leaving.append((name, served))
            self.departures.advance(self.departures.value + 1)


def _listed_size(topic: str) -> int:
    """Return the size in bytes of a topic in a list of topics: its name, two quotes and a comma."""
    return len(topic) + 3
