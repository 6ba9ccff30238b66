"""Asks all brokers of a cluster side by side, in O(brokers) requests: one round of the exporter.

Invariant: a broker that does not answer leaves nothing behind: neither zero nor an old number.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

import attrs
import trio

from rocketrio.admin.admin import Admin
from rocketrio.admin.cluster_questions import registered_brokers
from rocketrio.admin.lag_samples import BrokerFacts
from rocketrio.admin.lag_values import GroupLag
from rocketrio.exporter.details import Answers, Details
from rocketrio.exporter.offsets import Offsets, OnGroup, OnTopic, Total
from rocketrio_protocol.errors import Error
from rocketrio_protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX


@attrs.frozen
class BrokerFound:
    """One broker that name servers list."""

    cluster: str
    name: str
    id: int
    addr: str
    runtime: Mapping[str, str] | None
    """What it answered to 28; None if it did not answer."""
    facts: BrokerFacts | None
    """The topics and groups of a master that answered."""


@attrs.frozen(kw_only=True)
class Round:
    """What one round found."""

    brokers: Sequence[BrokerFound]
    rows: Sequence[GroupLag]
    ends: Mapping[OnTopic, Total]
    committed: Mapping[OnGroup, Total]
    details: Mapping[str, Answers]
    """By broker name, of masters that answered."""
    member_counts: Mapping[str, int]
    """Of the groups in `rows`, as far as they are known."""
    seconds: float
    now_ms: int

    def cluster_of(self, broker_name: str) -> str:
        """Return the cluster of a broker."""
        return next((one.cluster for one in self.brokers if one.name == broker_name), "")


class Rounds:
    """Repeats rounds, of which later ones know what earlier ones found."""

    def __init__(
        self,
        admin: Admin,
        *,
        include_groups: str = "",
        sizes: bool = False,
        members: bool = False,
    ) -> None:
        """Create them; only groups that match the regular expression `include_groups` are shown."""
        self._admin = admin
        self._window = admin.lag_window()
        self._included = re.compile(include_groups)
        self._details = Details(self._window, self.is_included, sizes=sizes, members=members)
        self._offsets = Offsets()

    async def run_details(self) -> None:
        """Ask for what rounds do not ask for, until cancelled; a round comes first."""
        await self._details.run()

    async def next(self) -> Round:
        """Ask all brokers. Raises NoBrokerRegisteredError, and NotReachableError without a name server."""
        begin = trio.current_time()
        table = (await registered_brokers(self._admin.client)).broker_addr_table
        runtimes: dict[str, Mapping[str, str]] = {}

        async def ask(addr: str) -> None:
            with suppress(Error):
                runtimes[addr] = await self._admin.calls.runtime_info(addr)

        async with trio.open_nursery() as nursery:
            for broker in table.values():
                for addr in broker.broker_addrs.values():
                    nursery.start_soon(ask, addr)
            await self._window.sample()
        report = await self._window.report()
        silent = self._window.silent
        self._details.forget([*silent, *(self._details.by_broker.keys() - table.keys())])
        self._offsets.update(report.rows, self._details.by_broker, at=self._window.times[-1])
        rows = [row for row in report.rows if self._is_included(row)]
        brokers = [
            BrokerFound(
                broker.cluster,
                name,
                int(broker_id),
                addr,
                runtimes.get(addr),
                None if name in silent else self._window.facts.get(name),
            )
            for name, broker in table.items()
            for broker_id, addr in broker.broker_addrs.items()
        ]
        counts = {row.group: self._details.member_count(row.group) for row in rows}
        return Round(
            brokers=sorted(brokers, key=lambda one: (one.name, one.id)),
            rows=rows,
            ends={
                (name, topic): total
                for (name, topic), total in self._offsets.ends.items()
                if (group := _owner(topic)) is None or self.is_included(group)
            },
            committed={
                key: total
                for key, total in self._offsets.committed.items()
                if self.is_included(key[2])
            },
            details=dict(self._details.by_broker),
            member_counts={group: count for group, count in counts.items() if count is not None},
            seconds=trio.current_time() - begin,
            now_ms=self._admin.client.wall_clock.now_ms(),
        )

    def _is_included(self, row: GroupLag) -> bool:
        return row.topic is not None and self.is_included(row.group)

    def is_included(self, group: str) -> bool:
        """Return whether a consumer group is shown."""
        return self._included.search(group) is not None


def _owner(topic: str) -> str | None:
    """Return the group that a topic of retries or dead letters belongs to."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return None


def is_retry(topic: str) -> bool:
    """Return whether the topic has the messages that a group gets again."""
    return topic.startswith(RETRY_PREFIX)
