"""The last events of all brokers of a cluster, and those that follow.

    feed = admin.events(since=an_hour_ago)
    while True:
        for event in await feed.poll(): ...

Invariant: an event is returned once, and brokers that share a process, and so their events, count as one.
"""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs
import trio

from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.cluster_questions import registered_brokers
from rocketrio.client import ClientInstance
from rocketrio_protocol.bodies.events import LoggedEvent
from rocketrio_protocol.commands.admin import GetEventsResponseHeader
from rocketrio_protocol.errors import AccessRefusedError, Error, RequestCodeNotSupportedError
from rocketrio_protocol.remoting.tasks import ungrouped
from rocketrio_protocol.times import time_of


@attrs.frozen
class BrokerEvent:
    """One event of a broker."""

    time: datetime | None
    """When it was logged, by the clock of the broker; None if that is no time."""
    level: str
    """INFO, WARNING or ERROR."""
    kind: str
    event: str
    values: dict[str, Any]
    """What the event is about; None is unknown."""
    cluster: str
    broker_name: str
    broker_id: int
    address: str


def _order(event: BrokerEvent) -> tuple[float, str]:
    return math.inf if event.time is None else event.time.timestamp(), event.address


@attrs.define
class _Position:
    """Up to where the events of one broker were read."""

    ring: str = ""
    next_number: int = 1


@attrs.define
class EventFeed:
    """The events of all brokers that are registered at each poll; returned by `Admin.events`."""

    _client: ClientInstance
    _calls: AdminCalls
    _since_ms: int
    _kinds: Sequence[str]
    silent: dict[str, str] = attrs.field(factory=dict, init=False)
    """The brokers that did not answer the last poll, by address, and why."""
    without: list[str] = attrs.field(factory=list, init=False)
    """The addresses of brokers that keep no events: Apache's, and rocketrio's before they had this request."""
    _positions: dict[str, _Position] = attrs.field(factory=dict, init=False)
    _last: frozenset[tuple[object, ...]] = attrs.field(default=frozenset(), init=False)
    """What identifies the events of the last poll: one of them may reach another broker's answer later."""

    async def poll(self) -> list[BrokerEvent]:
        """Return the events since the last poll, the oldest first.

        Raises NoBrokerRegisteredError, NotReachableError without a name server, and NotAuthorizedError.
        """
        info = await registered_brokers(self._client)
        self.silent, self.without = {}, []
        found: dict[tuple[object, ...], BrokerEvent] = {}

        async def ask(cluster: str, name: str, broker_id: int, addr: str) -> None:
            for each in await self._new(addr):
                one = BrokerEvent(
                    time_of(each.time_ms),
                    each.level,
                    each.kind,
                    each.event,
                    each.values,
                    cluster,
                    name,
                    broker_id,
                    addr,
                )
                host = addr.rpartition(":")[0]
                same = host, each.time_ms, each.event, str(each.values)
                if same not in self._last and (same not in found or found[same].address > addr):
                    found[same] = one

        with ungrouped():
            async with trio.open_nursery() as nursery:
                for name, broker in info.broker_addr_table.items():
                    for broker_id, addr in broker.broker_addrs.items():
                        nursery.start_soon(ask, broker.cluster, name, broker_id, addr)
        self._last = frozenset(found)
        return sorted(found.values(), key=_order)

    async def _new(self, addr: str) -> list[LoggedEvent]:
        position = self._positions.setdefault(addr, _Position())
        after = position.next_number - 1
        try:
            header, events = await self._ask(addr, after)
            if after and header.ring != position.ring:  # It has started again, and counts from 1.
                header, events = await self._ask(addr, 0)
        except AccessRefusedError:
            raise
        except RequestCodeNotSupportedError:
            self.without.append(addr)
            return []
        except Error as error:
            self.silent[addr] = str(error)
            return []
        self._positions[addr] = _Position(header.ring, header.next_offset)
        return events

    async def _ask(
        self, addr: str, after: int
    ) -> tuple[GetEventsResponseHeader, list[LoggedEvent]]:
        return await self._calls.events(
            addr, after=after, since_ms=self._since_ms, kinds=self._kinds
        )
