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
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeVar, Unpack

import attrs
import trio

from rocketrio.admin.access_admin import AccessAdmin
from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.brokers import listed_brokers
from rocketrio.admin.cluster_questions import registered_brokers
from rocketrio.admin.cluster_status import UNKNOWN_STATES
from rocketrio.admin.diagnosis import (
    Diagnosis,
    GroupCheck,
    Health,
    diagnosis_of,
    group_findings,
    health_of,
)
from rocketrio.admin.diagnosis.snapshot import Snapshot, ask_twice, completed
from rocketrio.admin.drain import DrainAdmin
from rocketrio.admin.messages import MessageAdmin
from rocketrio.admin.name_servers import NameServerAdmin
from rocketrio.admin.resets import ResetAdmin
from rocketrio.client import ClientInstance
from rocketrio.connect import ClientOptions, given_or_own
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.errors import Error
from rocketrio_protocol.lag import WINDOW

R = TypeVar("R")

logger = logging.getLogger("rocketrio.admin")


@asynccontextmanager
async def open_admin(
    *, client: ClientInstance | None = None, **client_options: Unpack[ClientOptions]
) -> AsyncGenerator["Admin"]:
    """Open an admin for the length of the block; it uses `client`, or opens one with the other arguments."""
    async with given_or_own(client, client_options, open_admin) as used:
        yield Admin(used, AdminCalls(used.api))


class Admin(MessageAdmin, ResetAdmin, DrainAdmin, NameServerAdmin):
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
        statuses = await self._status(listed_brokers(known or [await self.cluster_info()]))
        async with trio.open_nursery() as nursery:
            for one in statuses:
                if one.state not in UNKNOWN_STATES:
                    nursery.start_soon(ask, one.address)
        return Snapshot(servers, statuses, runtimes, self.client.wall_clock.now_ms())

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
