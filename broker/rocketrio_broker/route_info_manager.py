"""Everything the name server knows: which brokers live where, and which topics they serve.

The tables are plain: they take the time as an argument, return what changed, and send nothing.

Invariant: an address that a broker name lists is in `broker_live_table`.
Invariant: a topic has queues only of broker names that have at least one address.
Answers to: RouteInfoManager; RocketMQ reference, section 2.12.
Unlike Java: liveness is kept per cluster and address (as in 5.x); an address leaves an id only if it holds it still,
so a broker that stops late does not take the entry of its successor.
Unlike Java: a name has one master; a second one is refused, where Java's list shows the last that registered.
"""

import logging
from collections.abc import Hashable, Mapping
from typing import Final

import attrs

from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error
from rocketrio_protocol.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketrio_protocol.topic_config import (
    DataVersion,
    Permission,
    TopicConfig,
    TopicConfigSerializeWrapper,
)

logger = logging.getLogger("rocketrio_broker.name_server")

BROKER_CHANNEL_EXPIRED_TIME: Final = 120.0  # brokerChannelExpiredTime
SCAN_INTERVAL: Final = 10.0  # scanNotActiveBroker
UNIT: Final = 1
UNIT_SUB: Final = 2


@attrs.frozen(order=False)
class BrokerAddr:
    """One broker process: its address within its cluster."""

    cluster_name: str
    broker_addr: str


@attrs.define(eq=False)
class BrokerLiveInfo:
    """When a broker was last heard of, over which connection, and what it said."""

    last_update: float
    data_version: DataVersion
    channel: Hashable
    ha_server_addr: str


@attrs.frozen
class Registration:
    """What one REGISTER_BROKER says."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    topics: TopicConfigSerializeWrapper
    filter_servers: list[str] = attrs.Factory(list)


@attrs.frozen
class RegisterBrokerResult:
    """For slaves: where their master is, when it is known."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


class AnotherMasterError(Error):
    """A second broker wants to be the master of a name: it is not listed, and should take no writes."""

    remedy = (
        "Stop one of the two, or make it a slave; the name is free a moment after the first has stopped, "
        "two minutes after its machine was lost"
    )

    def __init__(self, broker_name: str, master_addr: str) -> None:
        super().__init__(f"{broker_name} has a master already, at {master_addr}")
        self.master_addr = master_addr


class RouteInfoManager:
    """The tables of one name server."""

    def __init__(self) -> None:
        self.topic_queue_table: dict[str, dict[str, QueueData]] = {}
        """Topic to broker name to queues."""
        self.broker_addr_table: dict[str, BrokerData] = {}
        self.cluster_addr_table: dict[str, dict[str, None]] = {}
        """Cluster to its broker names, in the order they came."""
        self.broker_live_table: dict[BrokerAddr, BrokerLiveInfo] = {}
        self.filter_server_table: dict[BrokerAddr, list[str]] = {}

    # ---------------------------------------------------------------------------------- coming, going

    def register_broker(
        self, registration: Registration, *, channel: Hashable, now: float
    ) -> RegisterBrokerResult:
        """Take a broker's word for where it is and what it serves. Raises AnotherMasterError, then nothing changed."""
        key = BrokerAddr(registration.cluster_name, registration.broker_addr)
        name, broker_id = registration.broker_name, registration.broker_id
        if broker_id == MASTER_ID:
            self._check_only_master(registration)
        self.cluster_addr_table.setdefault(registration.cluster_name, {})[name] = None
        broker = self.broker_addr_table.get(name)
        if broker is None:
            broker = self.broker_addr_table[name] = BrokerData(registration.cluster_name, name, {})
        broker.cluster = registration.cluster_name
        is_new = self._put_address(broker, broker_id, registration.broker_addr)
        known = self.broker_live_table.get(key)
        if broker_id == MASTER_ID and (
            is_new or known is None or known.data_version != registration.topics.data_version
        ):
            self._update_queues(name, registration.topics.topic_config_table)
        self.broker_live_table[key] = BrokerLiveInfo(
            now, registration.topics.data_version, channel, registration.ha_server_addr
        )
        if known is None:
            logger.info(
                "broker registered cluster=%s name=%s id=%d addr=%s ha_addr=%s",
                key.cluster_name, name, broker_id, key.broker_addr, registration.ha_server_addr,
            )  # fmt: skip
        if registration.filter_servers:
            self.filter_server_table[key] = registration.filter_servers
        else:
            self.filter_server_table.pop(key, None)
        return RegisterBrokerResult() if broker_id == MASTER_ID else self._master_of(broker)

    def _check_only_master(self, registration: Registration) -> None:
        """An address that is listed lives: it goes when its connection closes, or after a long silence."""
        broker = self.broker_addr_table.get(registration.broker_name)
        master = None if broker is None else broker.broker_addrs.get(MASTER_ID)
        if master is not None and master != registration.broker_addr:
            raise AnotherMasterError(registration.broker_name, master)

    def unregister_broker(
        self, *, cluster_name: str, broker_addr: str, broker_name: str, broker_id: int
    ) -> None:
        """Forget one address of a broker name; with the last one go the name, its queues and empty topics."""
        broker = self.broker_addr_table.get(broker_name)
        if broker is not None and broker.broker_addrs.get(broker_id) == broker_addr:
            del broker.broker_addrs[broker_id]
            logger.info(
                "broker gone cluster=%s name=%s id=%d addr=%s",
                cluster_name, broker_name, broker_id, broker_addr,
            )  # fmt: skip
            if not broker.broker_addrs:
                self._forget_name(cluster_name, broker_name)
        if not self._is_listed(cluster_name, broker_addr):
            key = BrokerAddr(cluster_name, broker_addr)
            self.broker_live_table.pop(key, None)
            self.filter_server_table.pop(key, None)

    def channel_closed(self, channel: Hashable) -> None:
        """A connection ended: forget every broker that registered over it last."""
        for key, live in list(self.broker_live_table.items()):
            if live.channel == channel:
                self._forget_address(key)

    def scan_not_active_broker(self, now: float) -> list[BrokerAddr]:
        """Forget brokers that have been silent for too long; returns them."""
        silent = [
            key
            for key, live in self.broker_live_table.items()
            if now - live.last_update > BROKER_CHANNEL_EXPIRED_TIME
        ]
        for key in silent:
            logger.warning("broker silent cluster=%s addr=%s", key.cluster_name, key.broker_addr)
            self._forget_address(key)
        return silent

    def refresh(self, key: BrokerAddr, *, now: float) -> None:
        """A sign of life that changes nothing else."""
        live = self.broker_live_table.get(key)
        if live is not None:
            live.last_update = now

    def data_version(self, key: BrokerAddr) -> DataVersion | None:
        """The version of its topics that the broker registered last."""
        live = self.broker_live_table.get(key)
        return None if live is None else live.data_version

    # ------------------------------------------------------------------------------------- asking

    def pickup_topic_route_data(self, topic: str) -> TopicRouteData | None:
        """Who serves the topic; None when nobody does."""
        queues = self.topic_queue_table.get(topic)
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
        """All brokers."""
        return ClusterInfo(
            broker_addr_table=self.broker_addr_table,
            cluster_addr_table={
                cluster: list(names) for cluster, names in self.cluster_addr_table.items()
            },
        )

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics that a broker of the cluster serves."""
        names = self.cluster_addr_table.get(cluster, {})
        return [topic for topic, queues in self.topic_queue_table.items() if queues.keys() & names]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Names of clusters and brokers, which are topics too, and the address of any broker."""
        names = list(self.cluster_addr_table)
        for brokers in self.cluster_addr_table.values():
            names += brokers
        addrs = (
            addr
            for broker in self.broker_addr_table.values()
            for addr in broker.broker_addrs.values()
        )
        return names, next(addrs, None)

    def unit_topics(self, *, unit: bool | None, unit_sub: bool | None) -> list[str]:
        """Topics by the two unit flags of their first broker; None leaves a flag open."""
        found = []
        for topic, queues in self.topic_queue_table.items():
            flags = next(iter(queues.values())).topic_sys_flag
            if unit in (None, bool(flags & UNIT)) and unit_sub in (None, bool(flags & UNIT_SUB)):
                found.append(topic)
        return found

    # ----------------------------------------------------------------------------- operators' changes

    def change_write_permission(self, broker_name: str, *, writable: bool) -> int:
        """Take the write permission from all queues of a broker, or make them readable and writable; how many."""
        count = 0
        for queues in self.topic_queue_table.values():
            queue_data = queues.get(broker_name)
            if queue_data is not None:
                if writable:
                    queue_data.perm = int(Permission.READ | Permission.WRITE)
                else:
                    queue_data.perm &= ~Permission.WRITE
                count += 1
        return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic's routes, everywhere or in one cluster."""
        queues = self.topic_queue_table.get(topic)
        if queues is None:
            return
        names = set(queues) if cluster is None else set(self.cluster_addr_table.get(cluster, {}))
        for name in names:
            queues.pop(name, None)
        if not queues:
            del self.topic_queue_table[topic]

    # ----------------------------------------------------------------------------------------- within

    def _put_address(self, broker: BrokerData, broker_id: int, addr: str) -> bool:
        """List the address under its id alone; true when the id is new."""
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
        if before is not None and before != addr:
            logger.warning(
                "two brokers claim one id name=%s id=%d addr=%s instead_of=%s",
                broker.broker_name, broker_id, addr, before,
            )  # fmt: skip
        broker.broker_addrs[broker_id] = addr
        broker.broker_addrs = dict(sorted(broker.broker_addrs.items()))
        return before is None

    def _update_queues(self, broker_name: str, topics: Mapping[str, TopicConfig]) -> None:
        for topic, config in topics.items():
            self.topic_queue_table.setdefault(topic, {})[broker_name] = QueueData(
                broker_name,
                config.read_queue_nums,
                config.write_queue_nums,
                config.perm,
                config.topic_sys_flag,
            )

    def _master_of(self, broker: BrokerData) -> RegisterBrokerResult:
        master_addr = broker.broker_addrs.get(MASTER_ID)
        if master_addr is None:
            return RegisterBrokerResult()
        live = self.broker_live_table.get(BrokerAddr(broker.cluster, master_addr))
        return RegisterBrokerResult(master_addr, None if live is None else live.ha_server_addr)

    def _is_listed(self, cluster_name: str, broker_addr: str) -> bool:
        return any(
            broker.cluster == cluster_name and broker_addr in broker.broker_addrs.values()
            for broker in self.broker_addr_table.values()
        )

    def _forget_address(self, key: BrokerAddr) -> None:
        self.broker_live_table.pop(key, None)
        self.filter_server_table.pop(key, None)
        for broker in list(self.broker_addr_table.values()):
            if broker.cluster != key.cluster_name:
                continue
            for broker_id, addr in list(broker.broker_addrs.items()):
                if addr == key.broker_addr:
                    self.unregister_broker(
                        cluster_name=key.cluster_name,
                        broker_addr=addr,
                        broker_name=broker.broker_name,
                        broker_id=broker_id,
                    )

    def _forget_name(self, cluster_name: str, broker_name: str) -> None:
        del self.broker_addr_table[broker_name]
        names = self.cluster_addr_table.get(cluster_name, {})
        names.pop(broker_name, None)
        if not names:
            self.cluster_addr_table.pop(cluster_name, None)
        for topic, queues in list(self.topic_queue_table.items()):
            queues.pop(broker_name, None)
            if not queues:
                del self.topic_queue_table[topic]
