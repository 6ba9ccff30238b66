"""Shares the queues of a group: asks for its members, computes this member's queues, periodically and on changes.

Invariant: while members or queues cannot be determined, every member keeps its queues.
Invariant: a member that a broker does not list sends a heartbeat before it believes the list.
Answers to: RebalanceService, RebalanceImpl; RocketMQ reference, section 9.7.
Unlike Java: all members ask the brokers of a topic in the same order, so that they see the same list.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.cluster.heartbeat import BROADCASTING, ConsumerMembership
from rocketrio.consuming.allocate import AllocateStrategy, allocate_averagely
from rocketrio.consuming.pull import ROUTE_MAX_AGE
from rocketrio.repeated_failures import RepeatedFailures
from rocketrio.routing import subscribe_queues
from rocketrio.routing.queues import broker_names
from rocketrio_protocol.errors import (
    AccessRefusedError,
    BrokerError,
    Error,
    NotReachableError,
    RouteNotFoundError,
    ServiceNotAvailableError,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import retry_topic
from rocketrio_protocol.times import nearest_time

REBALANCE_INTERVAL: Final = 20.0  # rocketmq.client.rebalance.waitInterval
UNBALANCED_INTERVAL: Final = 1.0
"""Seconds until the next try after members or queues could not be determined (as 5.x)."""

RETRY_TOPIC_INTERVAL: Final = 5.0
"""Seconds between checks for the group's retry topic, which a broker creates when it first sees the group."""

logger = logging.getLogger("rocketrio.rebalance")


RECENT_REBALANCES: Final = 100
"""The number of reports that a consumer keeps."""


@attrs.frozen
class Rebalance:
    """A change in how one topic's queues are shared, as this member sees it."""

    when: datetime
    topic: str
    gained: tuple[MessageQueue, ...]
    lost: tuple[MessageQueue, ...]
    joined: tuple[str, ...]
    """Client ids that have become members."""
    left: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"topic={self.topic} gained={_ids(self.gained)} lost={_ids(self.lost)}"
            f" joined={','.join(self.joined) or 'none'} left={','.join(self.left) or 'none'}"
        )


@attrs.frozen
class Share:
    """The members that share a topic, and this member's queues."""

    members: frozenset[str] = frozenset()
    queues: frozenset[MessageQueue] = frozenset()

    @classmethod
    def of(cls, members: Iterable[str], queues: Iterable[MessageQueue]) -> "Share":
        return cls(frozenset(members), frozenset(queues))


def report(topic: str, before: Share, after: Share, when: datetime) -> Rebalance | None:
    """Return what changed for this member, and which members joined or left; None without a change."""
    if before == after:
        return None
    return Rebalance(
        when,
        topic,
        gained=tuple(sorted(after.queues - before.queues)),
        lost=tuple(sorted(before.queues - after.queues)),
        joined=tuple(sorted(after.members - before.members)),
        left=tuple(sorted(before.members - after.members)),
    )


def _ids(queues: Iterable[MessageQueue]) -> str:
    return ",".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues) or "none"


@attrs.define(eq=False)
class RebalanceService:
    """The rebalancing of one consumer."""

    client: ClientInstance
    member: ConsumerMembership
    assign: Callable[[Mapping[str, list[MessageQueue]]], None]
    """Takes this member's queues of each topic that could be balanced; synchronous."""
    strategy: AllocateStrategy = allocate_averagely
    interval: float = REBALANCE_INTERVAL
    reports: deque[Rebalance] = attrs.field(factory=lambda: deque(maxlen=RECENT_REBALANCES))
    """What moved, newest last."""
    _shares: dict[str, Share] = attrs.Factory(dict)
    _failures: RepeatedFailures = attrs.Factory(RepeatedFailures)

    async def run(self) -> None:
        """Rebalance until cancelled."""
        is_balanced = True
        while True:
            await self.member.rebalance_now.wait(self._interval(is_balanced))
            is_balanced = await self.rebalance()

    def _interval(self, is_balanced: bool) -> float:
        if not is_balanced:
            return UNBALANCED_INTERVAL
        return self.interval if self._knows_retry_topic else RETRY_TOPIC_INTERVAL

    @property
    def _knows_retry_topic(self) -> bool:
        topic = retry_topic(self.member.group)
        known = self.client.routing.topic_route_table
        return topic not in self.member.subscriptions or topic in known

    async def rebalance(self) -> bool:
        """Rebalance all topics once; return whether every existing topic could be balanced.

        Raises AccessRefusedError if access control refuses the group or a topic.
        """
        shares: dict[str, Share] = {}
        mine: dict[str, list[MessageQueue]] = {}
        errors: dict[str, Error] = {}
        for topic in self.member.subscriptions:
            try:
                members, mine[topic] = await self._own_queues(topic)
                shares[topic] = Share.of(members, mine[topic])
            except AccessRefusedError:
                raise
            except Error as error:
                if isinstance(error, RouteNotFoundError) and topic == retry_topic(
                    self.member.group
                ):
                    continue  # No message was handed back yet.
                errors[topic] = error
        self._log(errors)
        # Topics with an error are not in it, and keep their queues: given up without
        # a new owner, these would be read by no member.
        self.assign(mine)
        self._report(shares)
        return not errors

    def _log(self, errors: Mapping[str, Error]) -> None:
        """Log why topics could not be balanced in this round: one line for each cause that was not logged of late."""
        group = self.member.group
        if not errors:
            if failures := self._failures.succeeded():
                logger.info("rebalanced again group=%s failures=%d", group, failures)
            return
        causes: dict[tuple[type[Error], str | None], list[str]] = {}
        for topic, error in errors.items():
            causes.setdefault((type(error), error.broker_addr), []).append(topic)
        for cause, topics in causes.items():
            if failures := self._failures.failed(cause):
                logger.warning(
                    "not rebalanced group=%s topics=%s failures=%d error=%s",
                    group, ",".join(topics), failures, errors[topics[0]],
                )  # fmt: skip

    def _report(self, shares: Mapping[str, Share]) -> None:
        when = nearest_time(self.client.wall_clock.now_ms())
        for topic, share in shares.items():
            found = report(topic, self._shares.get(topic, Share()), share, when)
            self._shares[topic] = share
            # Queues of the retry topic are internal.
            if found is not None and topic != retry_topic(self.member.group):
                self.reports.append(found)
                logger.info(
                    "rebalanced group=%s topic=%s gained=%s lost=%s joined=%s left=%s",
                    self.member.group, topic, _ids(found.gained), _ids(found.lost),
                    ",".join(found.joined) or "none", ",".join(found.left) or "none",
                )  # fmt: skip

    async def _own_queues(self, topic: str) -> tuple[list[str], list[MessageQueue]]:
        """Return the members of the group, and this member's queues."""
        client = self.client
        queues = subscribe_queues(topic, await client.topic_route(topic))
        if not queues:
            logger.warning("no queue may be read topic=%s group=%s", topic, self.member.group)
        if self.member.message_model == BROADCASTING:
            return [client.client_id], queues
        members = await self._member_ids(topic)
        # A broker that has restarted knows only members whose heartbeat has come:
        # by its list the first one would get all queues.
        if client.client_id not in members:
            await client.heartbeat.send_all()
            client.heartbeat.check_accepted()
            members = await self._member_ids(topic)
        if client.client_id not in members:
            raise NotReachableError(
                f"the brokers do not list {client.client_id} in group {self.member.group}",
                topic=topic,
                remedy="Heartbeats do not arrive; see the log",
            )
        # Sorted, because each member computes its share alone and all must have the same list.
        members = sorted(set(members))
        return members, self.strategy(client.client_id, members, queues)

    async def _member_ids(self, topic: str) -> list[str]:
        client = self.client
        route = await client.topic_route(topic)
        failure: Error | None = None
        for name in broker_names(route):
            for found in client.routing.candidates(name):
                started = trio.current_time()
                try:
                    return await client.api.consumer_ids(found.addr, self.member.group)
                except NotReachableError as error:
                    client.mark_unreachable(found.addr, spent=trio.current_time() - started)
                    failure = error
                except ServiceNotAvailableError as error:
                    failure = error  # It is not the master any more, and its list lacks members.
                    await client.refresh_topic_route(topic, max_age=ROUTE_MAX_AGE)
                except AccessRefusedError as error:
                    failure = error
                    if not found.is_slave:
                        raise
                except BrokerError as error:
                    failure = error  # It knows no member, not even this one.
                    if not found.is_slave:
                        return []
        raise failure or RouteNotFoundError("no broker serves the topic", topic=topic)
