"""How far behind consumer groups are, and whether that is a problem: `admin.lag()`.

A window collects samples of all groups (lag_samples.py), and rocketrio_protocol.lag judges each queue (lag_rows.py).
As long as it has too few samples, what brokers counted in their last minute stands for the window.
Only rows that are shown cost more requests (lag_details.py).

Invariant: what is unknown is None, never zero, and a broker that is silent makes unknown what it stores.
Answers to: ConsumerProgressSubCommand (`mqadmin consumerProgress`), which shows 0 for what it could not ask for.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from rocketrio.admin.lag_details import LagDetails
from rocketrio.admin.lag_rows import LagRows
from rocketrio.admin.lag_samples import GroupTopic, LagSamples
from rocketrio.admin.lag_values import GroupLag, LagReport
from rocketrio.admin.subject import AdminSubject
from rocketrio_protocol.errors import GroupNotExistError
from rocketrio_protocol.lag import SAMPLE_EVERY, SAMPLES_NEEDED, WINDOW, Verdict

DETAILED_ROWS: Final = 200
"""The rows of a report for which brokers are asked for details; the worst come first."""
ROUTES_ASKED: Final = 16
"""The routes that are asked for at the same time, after a broker was silent."""


@attrs.define
class LagWindow(LagSamples):
    """Samples, and the report on them."""

    async def report(self, *, worst: int | None = None, owners: bool = False) -> LagReport:
        """Return the verdicts on what was sampled; `owners` names the owner of each queue.

        Raises GroupNotExistError if a group was named that no broker knows.
        """
        _refuse_unknown_groups(self)
        missing = await _missing_brokers(self)
        answering = {name: addr for name, addr in self.masters.items() if name not in self.silent}
        details = LagDetails(self.calls, answering, is_whole=not self.silent)
        await details.ask_bounds(
            (name, topic)
            for (_, topic), names in missing.items()
            for name in names
            if name not in self.silent
        )
        rows_of = LagRows(self, details, missing)
        rows = sorted(rows_of.rows(), key=_rank)
        shown = rows[:worst]
        await _explain(self, rows_of, shown[:DETAILED_ROWS], owners=owners)
        rows_of.is_detailed = True
        return LagReport(
            rows=[_short(self, row) for row in sorted(map(rows_of.again, shown), key=_rank)],
            rows_in_all=len(rows),
            silent=dict(sorted(self.silent.items())),
            window=self.times[-1] - self.times[0],
            samples=len(self.times),
        )


class LagAdmin(AdminSubject):
    """The methods of `Admin` about how far behind groups are."""

    __slots__ = ()

    def lag_window(
        self,
        *groups: str,
        topic: str | None = None,
        seconds: float = WINDOW,
        include_system: bool = False,
    ) -> LagWindow:
        """Return an empty window, to be filled with samples of all groups or of those named, see `lag`.

        Call its `sample` every 5 seconds, and its `report` when you want one.
        """
        return LagWindow(
            self.client, self.calls, groups, topic, seconds, include_system=include_system
        )

    async def lag(
        self,
        *groups: str,
        topic: str | None = None,
        seconds: float = WINDOW,
        worst: int | None = None,
        owners: bool = False,
    ) -> LagReport:
        """Return how far behind groups are (all, or those named), with a verdict on each group and topic.

        Brokers are asked every 5 seconds for `seconds`, or until every group keeps up. With `seconds=0` they are asked
        once, and what they counted in their last minute replaces the window. `worst` limits the rows; `owners` asks the
        members which queues they own.

        A broker that does not answer is in `silent`. Raises NoBrokerRegisteredError, NotReachableError without a name
        server, and GroupNotExistError if no broker knows a group that was named.
        """
        window = self.lag_window(*groups, topic=topic, seconds=seconds)
        await window.run()
        return await window.report(worst=worst, owners=owners)


def _refuse_unknown_groups(window: LagSamples) -> None:
    if window.silent:
        return
    known = {group for facts in window.facts.values() for group in facts.groups}
    known |= {group for group, _ in window.samples}
    for group in window.groups:
        if window.client.namespace.wrapped(group) not in known:
            raise GroupNotExistError(
                f"no master knows the group {group!r}",
                remedy="`rocketrio group list` shows the groups",
            )


async def _missing_brokers(window: LagSamples) -> dict[GroupTopic, list[str]]:
    """Return the brokers that store a row's topic, but reported no progress of the group there."""
    missing: dict[GroupTopic, list[str]] = defaultdict(list)
    routes: dict[str, set[str]] = {}
    waiting = iter({topic for _, topic in window.samples} if window.silent else ())

    async def ask() -> None:
        for topic in waiting:
            route = await window.client.name_servers.topic_route(topic)
            routes[topic] = {one.broker_name for one in route.broker_datas} if route else set()

    async with trio.open_nursery() as nursery:
        for _ in range(ROUTES_ASKED):
            nursery.start_soon(ask)
    for key, queues in window.samples.items():
        at = {queue.broker_name for queue in queues}
        for name, facts in window.facts.items():
            if name not in at and name not in window.silent and key[1] in facts.topics:
                missing[key].append(name)
        for name in window.silent:
            if name not in at and name in routes[key[1]]:
                missing[key].append(name)
    return missing


async def _explain(
    window: LagSamples, rows_of: LagRows, rows: Sequence[GroupLag], *, owners: bool
) -> None:
    """Ask brokers for what the verdicts on these rows depend on."""
    details = rows_of.details
    brokers = defaultdict[str, list[str]](list)
    behind: list[tuple[str, GroupTopic]] = []
    for row in rows:
        brokers[row.group] += {one.queue.broker_name for one in row.queues}
        if row.topic is not None:
            names = {one.queue.broker_name for one in row.queues if one.lag != 0}
            behind += [(name, (row.group, row.topic)) for name in names]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(details.ask_members, brokers)
        nursery.start_soon(details.ask_ages, behind)
        nursery.start_soon(details.ask_bounds, [(name, topic) for name, (_, topic) in behind])
        if len(window.times) < SAMPLES_NEEDED:
            nursery.start_soon(details.ask_rates, behind)
    again = [rows_of.again(row) for row in rows]
    rewound = [row for row in again if row.verdict == Verdict.REWOUND]
    since_ms = rows_of.now_ms - round(1000 * (window.length + SAMPLE_EVERY))
    await details.ask_resets(
        {one.queue.broker_name for row in rewound for one in row.queues}, since_ms
    )
    standing = [row for row in again if row.verdict == Verdict.STALLED]
    await details.ask_owners({row.group for row in (rows if owners else standing)})


def _rank(row: GroupLag) -> tuple[int, int, str, str]:
    return -row.verdict.severity, -row.lag_at_least, row.group, row.topic or ""


def _short(window: LagSamples, row: GroupLag) -> GroupLag:
    """Return the row with the names of its namespace."""
    space = window.client.namespace
    if not space:
        return row
    queues = [
        attrs.evolve(one, queue=attrs.evolve(one.queue, topic=space.unwrapped(one.queue.topic)))
        for one in row.queues
    ]
    topic = None if row.topic is None else space.unwrapped(row.topic)
    return attrs.evolve(row, group=space.unwrapped(row.group), topic=topic, queues=queues)
