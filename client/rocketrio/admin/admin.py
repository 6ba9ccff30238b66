"""Administration of a cluster: topics, messages, groups, their progress and resets, and brokers.

Invariant: a value that could not be read is None or an error, never zero.
Invariant: a change is complete when every broker concerned has confirmed it; an error names the first that did not.
Invariant: a reset is computed for all queues before the first one is changed; a plan that does not hold any more
changes nothing, and a reset that was not seen at its target is reported as such, not as done.
Answers to: DefaultMQAdminExt, ResetOffsetByTimeCommand, SkipAccumulationSubCommand.
Unlike Java: statistics come from a slave while the master is away, which shows only in that they are there at all.
Unlike Java: settings of a group are changed one by one. A reset by a plan is read back, because Apache's members may
commit their old offsets after it.
Unlike Java: the HA status covers the whole cluster, and a request changes the role of a rocketrio broker.
"""

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Final, TypeVar, Unpack

import attrs
import trio

from rocketrio.admin.access_admin import AccessAdmin
from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.admin_values import BrokerDescription, HandOver
from rocketrio.admin.cluster_questions import in_parallel, registered_brokers
from rocketrio.admin.cluster_status import (
    UNKNOWN_STATES,
    BrokerAnswers,
    BrokerStatus,
    clock_ahead,
    cluster_status,
)
from rocketrio.admin.diagnosis import (
    Diagnosis,
    GroupCheck,
    Health,
    diagnosis_of,
    group_findings,
    health_of,
)
from rocketrio.admin.diagnosis.snapshot import Snapshot, ask_twice, completed
from rocketrio.admin.drain import (
    CHECK_EVERY,
    Held,
    WritePermission,
    ask_held,
    master_of,
    set_writable,
    unread_at,
    wait_quiet,
)
from rocketrio.admin.events import EventFeed
from rocketrio.admin.messages import MessageAdmin
from rocketrio.admin.name_servers import NameServerAdmin
from rocketrio.admin.resets import ResetAdmin
from rocketrio.admin.transactions import Transactions, ask_transactions
from rocketrio.arguments import epoch_ms
from rocketrio.client import ClientInstance
from rocketrio.connect import ClientOptions, given_or_own
from rocketrio_protocol.bodies.log_check import LogCheckStatus
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.admin import ChangeBrokerRoleRequestHeader, HandOverRequestHeader
from rocketrio_protocol.errors import (
    AccessRefusedError,
    BrokerError,
    ConfigError,
    Error,
    NotReachableError,
    RequestCodeNotSupportedError,
    RouteNotFoundError,
)
from rocketrio_protocol.ha.status import HARuntimeInfo
from rocketrio_protocol.lag import WINDOW
from rocketrio_protocol.record.properties import decimal_value
from rocketrio_protocol.remoting.tasks import every, ungrouped

CHECK_POLL_INTERVAL: Final = 1.0
"""Seconds between two requests for the progress of a log check."""
HAND_OVER_TIMEOUT: Final = 20.0
"""Seconds: a broker needs at most eleven, if the slave does not answer."""
ROLE_TIMEOUT: Final = 70.0
"""Seconds that a change of role may take: a rocketrio broker answers within 60."""
R = TypeVar("R")

logger = logging.getLogger("rocketrio.admin")


@asynccontextmanager
async def open_admin(
    *, client: ClientInstance | None = None, **client_options: Unpack[ClientOptions]
) -> AsyncGenerator["Admin"]:
    """Open an admin for the length of the block; it uses `client`, or opens one with the other arguments."""
    async with given_or_own(client, client_options, open_admin) as used:
        yield Admin(used, AdminCalls(used.api))


class Admin(MessageAdmin, ResetAdmin, NameServerAdmin):
    """The administration of a cluster; `open_admin` creates it.

    Every method raises NotReachableError without a name server.
    """

    __slots__ = ()

    # ---------------------------------------------------------------------------------------- groups

    async def check_group(self, group: str) -> GroupCheck:
        """Return what is wrong with the members of a group: subscriptions, owners of queues, versions.

        Brokers and members that do not answer are findings. Raises NoBrokerRegisteredError, NotReachableError without
        a name server, and GroupNotExistError if no broker knows the group.
        """
        await self.group(group)
        members = await ask_twice(self.client, self.calls, await self.masters(), group)
        return GroupCheck(members, group_findings(members))

    # --------------------------------------------------------------------------------------- brokers

    async def brokers(self) -> list[BrokerDescription]:
        """Return every registered broker, master or slave; what it does not report is None."""
        info = await self.cluster_info()
        found: list[BrokerDescription] = []

        async def describe(cluster: str, name: str, broker_id: int, addr: str) -> None:
            found.append(await self._describe(cluster, name, broker_id, addr))

        with ungrouped():
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
        except AccessRefusedError:
            raise
        except Error as error:
            logger.warning("broker does not tell all addr=%s error=%s", addr, error)
        return BrokerDescription.of(cluster, name, broker_id, addr, runtime, config)

    async def status(self, *, also: Sequence[str] = ()) -> list[BrokerStatus]:
        """Return the replication state of the registered brokers: who follows whom, how far behind, what is wrong.

        `also` are addresses of further brokers, which may not be registered, such as a second master that takes no
        writes. A registered broker that cannot be asked is in the list, with the reason in `problem`; a broker of
        `also` that cannot be asked is an error, NotReachableError or BrokerError.
        """
        listed = _listed([await self.cluster_info()])
        for addr in also:
            if addr not in listed:
                config = await self.calls.broker_config(addr)
                names = config.get("brokerClusterName", ""), config.get("brokerName", "")
                listed[addr] = (*names, decimal_value(config.get("brokerId")) or MASTER_ID)
        return await self._status(listed)

    async def _status(self, listed: Mapping[str, tuple[str, str, int]]) -> list[BrokerStatus]:
        found: list[BrokerAnswers] = []

        async def ask(cluster: str, name: str, broker_id: int, addr: str) -> None:
            found.append(await self._answers(cluster, name, broker_id, addr))

        with ungrouped():
            async with trio.open_nursery() as nursery:
                for addr, names_and_id in listed.items():
                    nursery.start_soon(ask, *names_and_id, addr)
        return cluster_status(found)

    async def _answers(self, cluster: str, name: str, broker_id: int, addr: str) -> BrokerAnswers:
        ha: HARuntimeInfo | None = None
        asked_ms = answered_ms = self.client.wall_clock.now_ms()
        try:
            ha = await self.calls.ha_status(addr)
            answered_ms = self.client.wall_clock.now_ms()
        except (NotReachableError, AccessRefusedError) as error:
            unknown = BrokerDescription.of(cluster, name, broker_id, addr, {}, {})
            is_refused = isinstance(error, AccessRefusedError)
            return BrokerAnswers(unknown, problem=str(error), is_refused=is_refused)
        except Error as error:
            logger.warning("no HA status addr=%s error=%s", addr, error)
        now_ms = ha.rocketrio.now if ha is not None and ha.rocketrio is not None else None
        ahead = None if now_ms is None else clock_ahead(now_ms, asked_ms, answered_ms)
        described = await self._describe(cluster, name, broker_id, addr)
        return BrokerAnswers(described, ha, clock_ahead=ahead)

    async def health(self) -> Health:
        """Return what is wrong with the name servers, the brokers and their replication.

        A server that does not answer is a finding. Raises NotReachableError only if no name server answers.
        """
        return health_of(await self.snapshot())

    async def snapshot(self) -> Snapshot:
        """Return what name servers and brokers answer about themselves: what `health` and most checks judge.

        The brokers are all that any name server knows. Raises NotReachableError only if no name server answers.
        """
        runtimes: dict[str, dict[str, str]] = {}

        async def ask(addr: str) -> None:
            try:
                runtimes[addr] = await self.calls.runtime_info(addr)
            except Error as error:
                logger.info("runtime unknown addr=%s error=%s", addr, error)

        servers = await self.client.name_servers.cluster_info_of_each()
        known = [one for one in servers.values() if isinstance(one, ClusterInfo)]
        statuses = await self._status(_listed(known or [await self.cluster_info()]))
        async with trio.open_nursery() as nursery:
            for one in statuses:
                if one.state not in UNKNOWN_STATES:
                    nursery.start_soon(ask, one.address)
        return Snapshot(servers, statuses, runtimes, self.client.wall_clock.now_ms())

    def events(self, *, since: datetime | None = None, kinds: Sequence[str] = ()) -> EventFeed:
        """Return the feed of the brokers' events: the last ones (up to 1,000 of a broker), and those that follow.

        Only events at `since` or later are returned, and only those of the `kinds` "role", "replication", "disk" and so
        on; docs/logs.md lists them. Topics and groups have the names that brokers know, with namespaces.
        """
        since_ms = 0 if since is None else epoch_ms("since", since)
        return EventFeed(self.client, self.calls, since_ms, kinds)

    async def change_role(
        self, addr: str, role: str, broker_id: int, *, accept_loss: bool = False
    ) -> None:
        """Make the rocketrio broker at an address `async-master`, `sync-master` (id 0) or `slave` (id 1 or higher).

        A slave that lacks more than 4 MiB of what its master had, and cannot get it from any broker, becomes master
        only with `accept_loss`; otherwise ServiceNotAvailableError says how much that is.

        Returns once it serves in that role and the name servers show it. Raises ConfigError for an impossible pair of
        role and id, RequestCodeNotSupportedError for an Apache broker, SystemBusyError if it takes longer than a minute
        (the broker continues to try), NotReachableError. After a cancel either role is possible.
        """
        if (role == "slave") == (broker_id == MASTER_ID):
            raise ConfigError(f"{role} with id {broker_id}: a master has id 0, a slave any other")
        try:
            header = ChangeBrokerRoleRequestHeader(role, broker_id, accept_loss)
            what = f"role not changed to {role} with id {broker_id}"
            await self.calls.ask(addr, header, what, timeout=ROLE_TIMEOUT)
        except RequestCodeNotSupportedError as error:
            raise RequestCodeNotSupportedError(
                f"The broker at {addr} does not change its role while it runs: Apache's cannot",
                broker_addr=addr,
                remedy="Set brokerRole and brokerId in its file and restart it",
            ) from error

    async def check_log(
        self, addr: str, *, rate: int | None = None
    ) -> AsyncGenerator[LogCheckStatus]:
        """Make the rocketrio broker at an address check its whole log, a slave against its master.

        Yields the progress about once a second; the last value, which is not running any more, is the result. `rate` is
        in bytes a second. Raises RequestCodeNotSupportedError for an Apache broker, NotReachableError, and BrokerError
        if the log was cut or the broker restarted meanwhile. After a cancel the broker continues the check.
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
        """Return the addresses of all brokers of a name, the master first. Raises RouteNotFoundError."""
        info = await self.cluster_info()
        broker = info.broker_addr_table.get(name)
        if broker is None or not broker.broker_addrs:
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            raise RouteNotFoundError(
                f"no broker {name!r} is registered; known names: {known}",
                remedy="Start it, or write HOST:PORT",
            )
        return [addr for _, addr in sorted(broker.broker_addrs.items())]

    async def hand_over(
        self, name: str, *, to: int | None = None, dry_run: bool = False
    ) -> HandOver:
        """Make the master of a broker name change places with a slave: `to`, or the one that has most of the log.

        Sends wait meanwhile, usually less than a second, and no message or offset is lost. With `dry_run` nothing
        changes. Raises RouteNotFoundError for a name that has no master; ServiceNotAvailableError with the reason if
        the slave is Apache's, is behind or does not follow; RequestCodeNotSupportedError for an Apache master. After a
        cancel or NotReachableError `status` shows which broker is master.
        """
        info = await self.cluster_info()
        broker = info.broker_addr_table.get(name)
        if broker is None or MASTER_ID not in broker.broker_addrs:
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            missing = "is not registered" if broker is None else "has no master now"
            raise RouteNotFoundError(
                f"broker {name!r} {missing}; registered brokers: {known}",
                remedy="Check the name and the name servers",
            )
        addr = broker.broker_addrs[MASTER_ID]
        try:
            header = HandOverRequestHeader(to, dry_run)
            done = await self.calls.ask(addr, header, "not handed over", timeout=HAND_OVER_TIMEOUT)
        except RequestCodeNotSupportedError as error:
            raise RequestCodeNotSupportedError(
                f"The master of {name} at {addr} does not hand over: it is Apache's, or older",
                broker_addr=addr,
                remedy="Stop it, and start a slave as master",
            ) from error
        return HandOver(
            broker_name=name,
            old_address=addr,
            new_address=done.broker_addr,
            slave_id=done.broker_id,
            bytes_behind=done.log_end_offset - done.slave_ack_offset if dry_run else 0,
            seconds=None if dry_run else done.millis / 1000,
        )

    async def drain(self, name: str) -> WritePermission:
        """Have name servers tell producers that the broker of this name takes no messages; see drain.py.

        Raises RouteNotFoundError for a name that is not registered, NotReachableError if no name server answers.
        """
        return await set_writable(self.client, name, writable=False)

    async def undrain(self, name: str) -> WritePermission:
        """Take back what `drain` did; otherwise like it."""
        return await set_writable(self.client, name, writable=True)

    async def wait_quiet(self, name: str) -> None:
        """Wait until the master of this name has stored nothing for 35 seconds: no producer uses it any more.

        Raises RouteNotFoundError if it has no master, NotReachableError if the master does not answer.
        """
        await wait_quiet(self.client, self.calls, name)

    async def wait_drained(self, name: str) -> None:
        """Drain a broker, and wait until groups have read all of it and nothing more can come.

        Every round drains: a name server that restarted has let producers write again. Then the broker must store
        nothing for 35 seconds, have no delayed message and no open transaction, and each group must have read
        everything. Dead letters do not count. A server that goes away meanwhile is waited for. Raises what `drain`
        raises at first, and BrokerError.
        """
        await self.drain(name)
        async for _ in every(CHECK_EVERY):
            with suppress(NotReachableError, RouteNotFoundError):
                await self.drain(name)
                await self.wait_quiet(name)
                held, report = await self.held(name), await self.lag(seconds=0)
                if not held.comes_later and not unread_at(report, name):
                    return

    async def held(self, name: str) -> Held:
        """Return what the master of this name stores that groups cannot read: delayed and half messages, dead letters.

        Raises RouteNotFoundError if it has no master, NotReachableError or BrokerError if the master does not answer.
        """
        return await ask_held(self.calls, await master_of(self.client, name))

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

    async def diagnose(
        self, *groups: str, seconds: float = WINDOW, slaves: int | None = None
    ) -> Diagnosis:
        """Return everything that is wrong with the cluster and its groups, by requests that read.

        `groups` limits what is said of groups; `seconds` is the window of their lag, as in `lag`; `slaves` is how many
        each master should have, because a slave that was stopped is not registered any more. What could not be asked is
        in `unknown`, and never counts as well.

        Raises NotReachableError only if no name server answers, NoBrokerRegisteredError, and GroupNotExistError if no
        broker knows a group that was named.
        """
        return diagnosis_of(await self.whole_snapshot(*groups, seconds=seconds, slaves=slaves))

    async def whole_snapshot(
        self, *groups: str, seconds: float = WINDOW, slaves: int | None = None
    ) -> Snapshot:
        """Return what `diagnose` judges; otherwise like it."""
        await registered_brokers(self.client)
        window = self.lag_window(*groups, seconds=seconds)
        seen = await completed(self.client, self.calls, await self.snapshot(), window)
        return attrs.evolve(seen, slaves_wanted=slaves)

    async def transactions(self) -> dict[str, Transactions]:
        """Return how many transactions each master has open, and has given up, by broker name.

        Raises NotReachableError or BrokerError for the first that does not answer.
        """
        masters = await self.masters()
        answers = await in_parallel(
            list(masters.values()), lambda addr: ask_transactions(self.calls, addr)
        )
        return dict(zip(masters, answers, strict=True))

    def access(
        self,
        *,
        cluster: str | None = None,
        broker_addr: str | None = None,
        plain_passwords: bool = False,
    ) -> AccessAdmin:
        """Return the users and rights of all brokers, of one cluster's or of one broker, see access_admin.py.

        With `plain_passwords` passwords are also sent over connections without TLS to other machines: name servers say
        where brokers are, and an open one lists any host.
        """
        return AccessAdmin(self.client, self.calls, cluster, broker_addr, plain_passwords)


def _listed(infos: Iterable[ClusterInfo]) -> dict[str, tuple[str, str, int]]:
    """Return the cluster, name and id of each broker that name servers know, by address."""
    return {
        addr: (broker.cluster, name, broker_id)
        for info in infos
        for name, broker in info.broker_addr_table.items()
        for broker_id, addr in broker.broker_addrs.items()
    }


def _is_same(value: str, found: str | None) -> bool:
    """Return True if two texts of a setting mean the same value."""
    if found is None:
        return False
    try:
        return float(value) == float(found)
    except ValueError:
        return value.strip().lower() == found.lower()
