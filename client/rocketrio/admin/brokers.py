"""Brokers: who they are and how they replicate; their roles, settings, log checks, events and files.

Invariant: a value that could not be read is None or an error, never zero.
Answers to: ClusterListSubCommand, HAStatusSubCommand, UpdateBrokerConfigSubCommand, CleanExpiredCQSubCommand,
CleanUnusedTopicCommand, DeleteExpiredCommitLogSubCommand.
Unlike Java: statistics come from a slave while the master is away, which shows only in that they are there at all.
Unlike Java: the HA status covers the whole cluster, and a request changes the role of a rocketrio broker.
"""

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import attrs
import trio

from rocketrio.admin.broker_numbers import BrokerNumber, state_of
from rocketrio.admin.cluster_questions import in_parallel
from rocketrio.admin.cluster_status import (
    BrokerAnswers,
    BrokerDescription,
    BrokerStatus,
    clock_ahead,
    cluster_status,
)
from rocketrio.admin.events import EventFeed
from rocketrio.admin.round_trips import RoundTrips, measured
from rocketrio.admin.subject import AdminSubject
from rocketrio.admin.transactions import Transactions, ask_transactions
from rocketrio.arguments import epoch_ms
from rocketrio_protocol.bodies.log_check import LogCheckStatus
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.admin import (
    ChangeBrokerRoleRequestHeader,
    CheckLogRequestHeader,
    CleanExpiredQueuesRequestHeader,
    CleanUnusedTopicsRequestHeader,
    DeleteExpiredLogRequestHeader,
    HandOverRequestHeader,
)
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
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.record.properties import decimal_value
from rocketrio_protocol.remoting.tasks import ungrouped

CHECK_POLL_INTERVAL: Final = 1.0
"""Seconds between two requests for the progress of a log check."""

HAND_OVER_TIMEOUT: Final = 20.0
"""Seconds: a broker needs at most eleven, if the slave does not answer."""

ROLE_TIMEOUT: Final = 70.0
"""Seconds that a change of role may take: a rocketrio broker answers within 60."""

CLEAN_TIMEOUT: Final = 30.0
"""Seconds for a broker to delete files."""

_SHOWN = ("log_begin", "log_size", "oldest_message", "disk_free")

logger = logging.getLogger("rocketrio.admin")


@attrs.frozen
class HandOver:
    """A master and a slave that changed places, or would change them in a dry run."""

    broker_name: str
    old_address: str
    new_address: str
    slave_id: int
    """The slave's id, which the old master has now."""
    bytes_behind: int
    """What the slave lacks at the moment of a dry run; otherwise 0."""
    seconds: float | None
    """How long no broker of the name took writes; None for a dry run."""


class Cleaning(StrEnum):
    """What is deleted."""

    QUEUES = "queues"
    """Files of queues whose messages are no longer in the log."""
    TOPICS = "topics"
    """Queues of topics that the broker does not have any more."""
    LOG = "log"
    """Files of the log that are older than the retention."""


_REQUESTS: Final[Mapping[Cleaning, type[RequestHeader]]] = {
    Cleaning.QUEUES: CleanExpiredQueuesRequestHeader,
    Cleaning.TOPICS: CleanUnusedTopicsRequestHeader,
    Cleaning.LOG: DeleteExpiredLogRequestHeader,
}


@attrs.frozen
class Cleaned:
    """One number of a broker before and after it; `after` is None in a dry run, or if it was not reported."""

    what: str
    before: object
    after: object
    unit: str | None


class BrokerAdmin(AdminSubject):
    """The methods of `Admin` about brokers."""

    __slots__ = ()

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

    async def status(self, *, also: Sequence[str] = ()) -> list[BrokerStatus]:
        """Return the replication state of the registered brokers: who follows whom, how far behind, what is wrong.

        `also` are addresses of further brokers, which may not be registered, such as a second master that takes no
        writes. A registered broker that cannot be asked is in the list, with the reason in `problem`; a broker of
        `also` that cannot be asked is an error, NotReachableError or BrokerError.
        """
        listed = listed_brokers([await self.cluster_info()])
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

    async def check_log(
        self, addr: str, *, rate: int | None = None
    ) -> AsyncGenerator[LogCheckStatus]:
        """Make the rocketrio broker at an address check its whole log, a slave against its master.

        Yields the progress about once a second; the last value, which is not running any more, is the result. `rate` is
        in bytes a second. Raises RequestCodeNotSupportedError for an Apache broker, NotReachableError, and BrokerError
        if the log was cut or the broker restarted meanwhile. After a cancel the broker continues the check.
        """

        async def ask(*, start: bool = False) -> LogCheckStatus:
            header = CheckLogRequestHeader(start, rate if start else None)
            return await self.calls.read(addr, header, "log not checked")

        before = await ask()
        status = await ask(start=True)
        while status.is_running or status.number <= before.number:
            await trio.sleep(CHECK_POLL_INTERVAL)
            status = await ask()
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

    async def transactions(self) -> dict[str, Transactions]:
        """Return how many transactions each master has open, and has given up, by broker name.

        Raises NotReachableError or BrokerError for the first that does not answer.
        """
        masters = await self.masters()
        answers = await in_parallel(
            list(masters.values()), lambda addr: ask_transactions(self.calls, addr)
        )
        return dict(zip(masters, answers, strict=True))

    async def clean_broker(
        self, addr: str, cleaning: Cleaning, *, dry_run: bool = False
    ) -> list[Cleaned]:
        """Have the broker at an address delete files; return its numbers before and after, with `dry_run` only before.

        Apache's brokers delete files of the log within the next ten seconds, so `after` may not show it yet. Raises
        NotReachableError, BrokerError.
        """
        before = await self._numbers(addr)
        after: Mapping[str, BrokerNumber] = {}
        if not dry_run:
            header = _REQUESTS[cleaning]()
            await self.calls.ask(
                addr, header, f"{cleaning.value} not cleaned", timeout=CLEAN_TIMEOUT
            )
            after = await self._numbers(addr)
        return [
            Cleaned(key, before[key].value, after[key].value if after else None, before[key].unit)
            for key in _SHOWN
        ]

    async def _numbers(self, addr: str) -> dict[str, BrokerNumber]:
        state = state_of(await self.calls.runtime_info(addr), await self.calls.broker_config(addr))
        return {one.key: one for one in state}

    async def round_trips(
        self,
        *,
        broker_name: str | None = None,
        count: int = 50,
        size: int = 128,
    ) -> list[RoundTrips]:
        """Send `count` messages of `size` bytes to each master, or to one, one after the other; return the times.

        The first send to each opens its connection, and is not counted. Raises RouteNotFoundError if no master has the
        name, ConfigError for a number below 1.
        """
        if count < 1 or size < 0:
            raise ConfigError(f"count={count} must be 1 or more, and size={size} 0 or more")
        if self.client.namespace:
            raise ConfigError(
                "the topics of brokers are in no namespace", remedy="Use a client without one"
            )
        masters = await self.masters()
        names = sorted(masters) if broker_name is None else [broker_name]
        if not set(names) <= set(masters):
            raise RouteNotFoundError(
                f"broker {broker_name!r} has no master; known names: {', '.join(sorted(masters))}"
            )
        found: dict[str, RoundTrips] = {}

        async def measure(name: str) -> None:
            found[name] = await measured(self.client, name, count, size)

        with ungrouped():
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(measure, name)
        return [found[name] for name in names]


def listed_brokers(infos: Iterable[ClusterInfo]) -> dict[str, tuple[str, str, int]]:
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


def expected(cleaning: Cleaning, oldest: object, kept_hours: object, now: datetime) -> str:
    """Return a sentence on what a broker would delete, by its oldest message and its retention.

    Brokers delete automatically once a day, or when a disk is full. They do not report what they would delete.
    """
    if cleaning is Cleaning.TOPICS:
        return "queues of topics that it does not have any more would go; it does not report which"
    if not isinstance(oldest, datetime) or not isinstance(kept_hours, int):
        return (
            "it does not report its oldest message and its retention, so what would go is unknown"
        )
    kept = timedelta(hours=kept_hours)
    if cleaning is Cleaning.QUEUES:
        return "files of queues whose messages are no longer in the log would go"
    if now - oldest > kept:
        return f"files of the log whose messages are all older than {kept_hours} hours would go"
    return f"nothing would go: the oldest message is younger than {kept_hours} hours"
