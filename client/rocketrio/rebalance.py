"""Sharing the queues of a group: who is in it, what is mine, on a period and at once when something changed.

Invariant: while members or queues cannot be asked, everybody keeps what it has.
Invariant: a member that a broker does not list announces itself before it believes the list.
Answers to: RebalanceService, RebalanceImpl; RocketMQ reference, section 9.7.
Unlike Java: all members ask the brokers of a topic in the same order, so that they see the same list.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

import attrs
import trio

from rocketrio.allocate import AllocateStrategy, allocate_averagely
from rocketrio.heartbeat import ConsumerMembership
from rocketrio.instance import ClientInstance
from rocketrio.routing import subscribe_queues
from rocketrio.routing.queues import broker_names
from rocketrio_protocol.errors import BrokerError, Error, NotReachable, RouteNotFound
from rocketrio_protocol.message import MessageQueue

REBALANCE_INTERVAL: Final = 20.0  # rocketmq.client.rebalance.waitInterval
UNBALANCED_INTERVAL: Final = 1.0
"""Seconds until the next try when members or queues could not be asked (as 5.x)."""

logger = logging.getLogger("rocketrio.rebalance")


@attrs.define(eq=False)
class RebalanceService:
    """Rebalances one consumer."""

    client: ClientInstance
    member: ConsumerMembership
    assign: Callable[[Mapping[str, list[MessageQueue]]], None]
    """Takes the own queues of each topic that could be balanced; synchronous."""
    strategy: AllocateStrategy = allocate_averagely
    interval: float = REBALANCE_INTERVAL

    async def run(self) -> None:
        """Rebalance for as long as the consumer lives."""
        interval = self.interval
        while True:
            await self.member.rebalance_now.wait(interval)
            interval = self.interval if await self.rebalance() else UNBALANCED_INTERVAL

    async def rebalance(self) -> bool:
        """One round over all topics; whether every one of them could be balanced."""
        mine: dict[str, list[MessageQueue]] = {}
        for topic in self.member.subscriptions:
            try:
                mine[topic] = await self._own_queues(topic)
            except Error as error:
                logger.warning(
                    "not rebalanced topic=%s group=%s error=%s", topic, self.member.group, error
                )
        self.assign(mine)
        return len(mine) == len(self.member.subscriptions)

    async def _own_queues(self, topic: str) -> list[MessageQueue]:
        client = self.client
        queues = subscribe_queues(topic, await client.topic_route(topic))
        members = await self._member_ids(topic)
        if client.client_id not in members:
            await client.heartbeat.send_all()
            members = await self._member_ids(topic)
        if client.client_id not in members:
            raise NotReachable(
                f"the brokers do not list {client.client_id} in group {self.member.group}",
                topic=topic,
                remedy="Heartbeats do not arrive; see the log",
            )
        return self.strategy(client.client_id, sorted(set(members)), queues)

    async def _member_ids(self, topic: str) -> list[str]:
        client = self.client
        route = await client.topic_route(topic)
        failure: Error | None = None
        for name in broker_names(route):
            for found in client.routing.candidates(name):
                started = trio.current_time()
                try:
                    return await client.api.consumer_ids(found.addr, self.member.group)
                except NotReachable as error:
                    client.mark_unreachable(found.addr, spent=trio.current_time() - started)
                    failure = error
                except BrokerError as error:
                    failure = error  # It knows no member: not even us.
                    if not found.is_slave:
                        return []
        raise failure or RouteNotFound("no broker serves the topic", topic=topic)
