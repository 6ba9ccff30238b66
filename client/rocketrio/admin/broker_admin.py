"""Administration of brokers: which are registered, their replication, their roles and settings.

Invariant: a value that could not be read is None or an error, never zero.
Answers to: DefaultMQAdminExt (examineBrokerClusterInfo, getBrokerHAStatus, updateBrokerConfig).
Unlike Java: the HA status covers the whole cluster, and a request changes the role of a rocketrio broker.
"""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

import attrs
import trio

from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.admin_values import BrokerDescription, HandOver
from rocketrio.admin.cluster_questions import registered_brokers
from rocketrio.admin.cluster_status import BrokerAnswers, BrokerStatus, cluster_status
from rocketrio.client import ClientInstance
from rocketrio.live import Live
from rocketrio_protocol.bodies.log_check import LogCheckStatus
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import (
    BrokerError,
    ConfigError,
    Error,
    NotReachable,
    RequestCodeNotSupported,
    RouteNotFound,
)
from rocketrio_protocol.ha.status import HARuntimeInfo

logger = logging.getLogger("rocketrio.admin")

CHECK_POLL_INTERVAL: Final = 1.0
"""Seconds between two requests for the progress of a log check."""


@attrs.define(eq=False)
class BrokerAdmin(Live):
    """The part of `Admin` that concerns brokers."""

    client: ClientInstance
    calls: AdminCalls
    """The single requests, each to a given address."""

    async def cluster_info(self) -> ClusterInfo:
        """Return all broker names with their addresses, by cluster."""
        return await self.client.name_servers.cluster_info()

    async def brokers(self) -> list[BrokerDescription]:
        """Return every registered broker, master or slave; what it does not report is None."""
        info = await self.cluster_info()
        found: list[BrokerDescription] = []

        async def describe(cluster: str, name: str, broker_id: int, addr: str) -> None:
            found.append(await self._describe(cluster, name, broker_id, addr))

        async with trio.open_nursery() as nursery:
            for name, broker in info.broker_addr_table.items():
                for broker_id, addr in broker.broker_addrs.items():
                    nursery.start_soon(describe, broker.cluster, name, broker_id, addr)
        return sorted(
            found, key=lambda broker: (broker.cluster, broker.broker_name, broker.broker_id)
        )

    async def _describe(
        self, cluster: str, name: str, broker_id: int, addr: str
    ) -> BrokerDescription:
        runtime: dict[str, str] = {}
        config: dict[str, str] = {}
        try:
            runtime = await self.calls.runtime_info(addr)
            config = await self.calls.broker_config(addr)
        except Error as error:
            logger.warning("broker does not tell all addr=%s error=%s", addr, error)
        return BrokerDescription.of(cluster, name, broker_id, addr, runtime, config)

    async def status(self, *, also: Sequence[str] = ()) -> list[BrokerStatus]:
        """Return the replication state of the registered brokers: who follows whom, how far behind, what is wrong.

        `also` are addresses of further brokers, which may not be registered, such as a second master that takes no
        writes. A registered broker that cannot be asked is in the list, with the reason in `problem`; a broker of
        `also` that cannot be asked is an error, NotReachable or BrokerError.
        """
        info = await self.cluster_info()
        found: list[BrokerAnswers] = []

        async def ask(cluster: str, name: str, broker_id: int, addr: str) -> None:
            found.append(await self._answers(cluster, name, broker_id, addr))

        listed = {
            addr: (broker.cluster, name, broker_id)
            for name, broker in info.broker_addr_table.items()
            for broker_id, addr in broker.broker_addrs.items()
        }
        for addr in also:
            if addr not in listed:
                config = await self.calls.broker_config(addr)
                names = config.get("brokerClusterName", ""), config.get("brokerName", "")
                listed[addr] = (*names, int(config.get("brokerId", MASTER_ID)))
        async with trio.open_nursery() as nursery:
            for addr, names_and_id in listed.items():
                nursery.start_soon(ask, *names_and_id, addr)
        return cluster_status(found)

    async def _answers(self, cluster: str, name: str, broker_id: int, addr: str) -> BrokerAnswers:
        ha: HARuntimeInfo | None = None
        try:
            ha = await self.calls.ha_status(addr)
        except NotReachable as error:
            unknown = BrokerDescription.of(cluster, name, broker_id, addr, {}, {})
            return BrokerAnswers(unknown, problem=str(error))
        except Error as error:
            logger.warning("no HA status addr=%s error=%s", addr, error)
        return BrokerAnswers(await self._describe(cluster, name, broker_id, addr), ha)

    async def change_role(self, addr: str, role: str, broker_id: int) -> None:
        """Make the rocketrio broker at an address `async-master`, `sync-master` (id 0) or `slave` (id 1 or higher).

        Returns once it serves in that role and the name servers show it. Raises ConfigError for an impossible pair of
        role and id, RequestCodeNotSupported for an Apache broker, SystemBusy if it takes longer than a minute (the
        broker continues to try), NotReachable. After a cancel either role is possible.
        """
        if (role == "slave") == (broker_id == MASTER_ID):
            raise ConfigError(f"{role} with id {broker_id}: a master has id 0, a slave any other")
        try:
            await self.calls.change_role(addr, role, broker_id)
        except RequestCodeNotSupported as error:
            raise RequestCodeNotSupported(
                f"The broker at {addr} does not change its role while it runs: Apache's cannot",
                broker_addr=addr,
                remedy="Set brokerRole and brokerId in its file and restart it",
            ) from error

    async def check_log(
        self, addr: str, *, rate: int | None = None
    ) -> AsyncGenerator[LogCheckStatus]:
        """Make the rocketrio broker at an address check its whole log, a slave against its master.

        Yields the progress about once a second; the last value, which is not running any more, is the result. `rate` is
        in bytes a second. Raises RequestCodeNotSupported for an Apache broker, NotReachable, and BrokerError if the log
        was cut or the broker restarted meanwhile. After a cancel the broker continues the check.
        """
        before = await self.calls.check_log(addr)
        status = await self.calls.check_log(addr, start=True, rate=rate)
        while status.is_running or status.number <= before.number:
            await trio.sleep(CHECK_POLL_INTERVAL)
            status = await self.calls.check_log(addr)
            if status.number < before.number:
                raise BrokerError(
                    "The broker was restarted while it checked its log",
                    broker_addr=addr,
                    remedy="Begin again",
                )
            if status.is_running and status.number > before.number:
                yield status
        if status.position < status.end:
            raise BrokerError(
                f"The check ended at {status.position} of {status.end}: the log was cut meanwhile",
                broker_addr=addr,
                remedy="Begin again",
            )
        yield status

    async def broker_addresses(self, name: str) -> list[str]:
        """Return the addresses of all brokers of a name, the master first. Raises RouteNotFound."""
        info = await self.cluster_info()
        broker = info.broker_addr_table.get(name)
        if broker is None or not broker.broker_addrs:
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            raise RouteNotFound(
                f"no broker {name!r} is registered; known names: {known}",
                remedy="Start it, or write HOST:PORT",
            )
        return [addr for _, addr in sorted(broker.broker_addrs.items())]

    async def hand_over(
        self, name: str, *, to: int | None = None, dry_run: bool = False
    ) -> HandOver:
        """Make the master of a broker name change places with a slave: `to`, or the one that has most of the log.

        Sends wait meanwhile, usually less than a second, and no message or offset is lost. With `dry_run` nothing
        changes. Raises RouteNotFound for a name that has no master; ServiceNotAvailable with the reason if the slave is
        Apache's, is behind or does not follow; RequestCodeNotSupported for an Apache master. After a cancel or
        NotReachable `status` shows which broker is master.
        """
        info = await self.cluster_info()
        broker = info.broker_addr_table.get(name)
        if broker is None or MASTER_ID not in broker.broker_addrs:
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            missing = "is not registered" if broker is None else "has no master now"
            raise RouteNotFound(
                f"broker {name!r} {missing}; registered brokers: {known}",
                remedy="Check the name and the name servers",
            )
        addr = broker.broker_addrs[MASTER_ID]
        try:
            done = await self.calls.hand_over(addr, to, dry_run=dry_run)
        except RequestCodeNotSupported as error:
            raise RequestCodeNotSupported(
                f"The master of {name} at {addr} does not hand over: it is Apache's, or older",
                broker_addr=addr,
                remedy="Stop it, and start a slave as master",
            ) from error
        return HandOver(
            broker_name=name,
            old_address=addr,
            new_address=done.broker_addr,
            slave_id=done.broker_id,
            bytes_behind=max(0, done.log_end_offset - done.slave_ack_offset) if dry_run else 0,
            seconds=None if dry_run else done.millis / 1000,
        )

    async def change_settings(self, addr: str, settings: Mapping[str, str]) -> dict[str, str]:
        """Change settings of a running broker, under Java's names, until its next start; return all its settings.

        Raises BrokerError if the broker refuses one, or accepts one without effect, as Apache's do with unknown names.
        """
        await self.calls.update_broker_config(addr, settings)
        after = await self.calls.broker_config(addr)
        for name, value in settings.items():
            if not _is_same(value, after.get(name)):
                raise BrokerError(
                    f"The broker took {name}={value} without effect: it is {after.get(name, 'unknown')}",
                    broker_addr=addr,
                    remedy="Check the name, or set it in the broker's file and restart it",
                )
        return after

    async def _masters(self, cluster: str | None) -> dict[str, str]:
        info = await registered_brokers(self.client)
        masters = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in info.broker_addr_table.items()
            if MASTER_ID in broker.broker_addrs and cluster in (None, broker.cluster)
        }
        if not masters:
            where = "" if cluster is None else f" in cluster {cluster!r}"
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise RouteNotFound(
                f"no master is registered{where}; known clusters: {known}",
                remedy="Start a broker, or name another cluster",
            )
        return masters


def _is_same(value: str, found: str | None) -> bool:
    """Return True if two texts of a setting mean the same value."""
    if found is None:
        return False
    try:
        return float(value) == float(found)
    except ValueError:
        return value.strip().lower() == found.lower()
