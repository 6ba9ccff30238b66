"""Chooses the queue of a message.

Invariant: a key always goes to the same queue, as long as the topic's queues stay the same.
Answers to: TopicPublishInfo, MQFaultStrategy.selectOneMessageQueue, SelectMessageQueueByHash,
MQClientInstance.updateTopicRouteInfoFromNameServer's default topic.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.limits import DEFAULT_TOPIC_QUEUE_NUMS
from rocketrio.producing.slow_brokers import SlowBrokers
from rocketrio.routing import ordered_publish_queues, publish_queues
from rocketrio_protocol.bodies.route import TopicRouteData
from rocketrio_protocol.commands.send import AUTO_CREATE_TOPIC_KEY
from rocketrio_protocol.errors import (
    ConfigError,
    NoBrokerRegisteredError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.record.java_hash import java_string_hash

_KEY_CACHE_SIZE = 4096  # keys of orders, users, ...: the busy ones occur again and again
TEMPLATE_MAX_AGE = 1.0
"""Seconds between checks for the real route of a topic that a send will create."""


@attrs.define
class _TopicQueues:
    """The queues of one route, and the index of the next one in turn."""

    route: TopicRouteData
    any_of: list[MessageQueue]
    by_key: list[MessageQueue]
    turn: int
    template_until: float | None = None
    """For a topic that a send will create: when to check for its own route."""


@attrs.define
class PublishRoutes:
    """The queue choice of one producer."""

    client: ClientInstance
    auto_create_topic: bool = True
    slow_brokers: SlowBrokers | None = None
    _topics: dict[str, _TopicQueues] = attrs.Factory(dict)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that messages may be sent to. Raises RouteNotFoundError, NotReachableError."""
        return (await self._queues(topic)).any_of

    async def keyed_queues(self, topic: str, *, until: float = inf) -> list[MessageQueue]:
        """Return the queues over which keys are spread. Raises as `next_queue`."""
        return (await self._queues(topic, until)).by_key

    async def next_queue(
        self, topic: str, *, last_broker: str | None = None, until: float = inf
    ) -> MessageQueue:
        """Return the next queue in turn; one of another broker than `last_broker`, if there is one.

        Raises RouteNotFoundError, NotReachableError; RequestTimeoutError if no name server returns the route by the
        time `until`.
        """
        queues = self.cached(topic) or await self._queues(topic, until)
        return self._next(queues, last_broker)

    def next_cached(self, topic: str) -> tuple[MessageQueue, str] | None:
        """Return the next queue in turn and its master's address; None if a request is needed or the address failed."""
        queues = self.cached(topic)
        if queues is None:
            return None
        routing = self.client.routing
        first = queues.any_of[queues.turn % len(queues.any_of)]
        addr = routing.find_broker_address_in_publish(first.broker_name)
        if addr is None or routing.is_avoided(addr):
            return None
        slow = self.slow_brokers
        if slow is not None and slow.is_slow(first.broker_name, now=trio.current_time()):
            return None
        queues.turn += 1
        return first, addr

    def cached(self, topic: str) -> _TopicQueues | None:
        """Return the queues known without a request; None if the route is new or unknown."""
        known = self._topics.get(topic)
        if known is None:
            return None
        if self.client.routing.topic_route_table.get(topic) is known.route:
            return known
        if known.template_until is None or known.template_until <= trio.current_time():
            return None
        return known

    async def _queues(self, topic: str, until: float = inf) -> _TopicQueues:
        known = self.cached(topic)
        if known is not None:
            await trio.lowlevel.checkpoint()
            return known
        with trio.move_on_at(until):
            return await self._fetched(topic)
        raise RequestTimeoutError(
            "no name server returned the route in time",
            topic=topic,
            remedy="Nothing was sent; check the name servers, or raise the timeout",
        )

    async def _fetched(self, topic: str) -> _TopicQueues:
        routes = self.client.routing.topic_route_table
        limit = None
        route = routes.get(topic)
        if route is None or not publish_queues(topic, route):
            # The topic is unknown, or has no queue to send to: ask, but not for every message.
            await self._find_route(topic)
            route = routes.get(topic)
        if route is None:
            route = await self._template_route(topic)
            limit = DEFAULT_TOPIC_QUEUE_NUMS
        return self._remember(topic, route, limit)

    async def _template_route(self, topic: str) -> TopicRouteData:
        """Return the route for a send that will create the topic."""
        try:
            return await self.client.topic_route(AUTO_CREATE_TOPIC_KEY)
        except NoBrokerRegisteredError as error:
            raise NoBrokerRegisteredError(error.what, topic=topic) from error
        except RouteNotFoundError as error:
            raise RouteNotFoundError(
                "no name server knows the topic, or a master that creates topics",
                topic=topic,
                remedy="Start a master, or create the topic",
            ) from error

    async def _find_route(self, topic: str) -> None:
        try:
            await self.client.refresh_topic_route(topic, max_age=TEMPLATE_MAX_AGE)
        except RouteNotFoundError:
            if not self.auto_create_topic:
                raise
        else:
            if not self.auto_create_topic and topic not in self.client.routing.topic_route_table:
                raise await self.client.name_servers.unknown_topic(topic)

    def _remember(self, topic: str, route: TopicRouteData, limit: int | None) -> _TopicQueues:
        any_of = publish_queues(topic, route, queue_limit=limit)
        if not any_of:
            raise RouteNotFoundError(
                "no master of a writable queue is known",
                topic=topic,
                remedy="Start a master, or check the permissions of topic and brokers",
            )
        known = self._topics.get(topic)
        # Producers begin at different queues: begun at the first one, all would fill it.
        turn = self.client.rng.randrange(len(any_of)) if known is None else known.turn
        # Not `any_of`, which changes when a master goes: a key would move, and its messages be read in another order.
        by_key = ordered_publish_queues(topic, route, queue_limit=limit)
        until = None if limit is None else trio.current_time() + TEMPLATE_MAX_AGE
        made = self._topics[topic] = _TopicQueues(route, any_of, by_key, turn, until)
        return made

    def _next(self, queues: _TopicQueues, last_broker: str | None) -> MessageQueue:
        turn = queues.turn
        queues.turn += 1
        return queue_in_turn(
            queues.any_of,
            turn,
            last_broker=last_broker,
            is_avoided=self.is_avoided,
            slow=self.slow_brokers,
            now=trio.current_time(),
        )

    def is_avoided(self, queue: MessageQueue) -> bool:
        """Return whether the queue's broker has no master now, or one that just failed."""
        routing = self.client.routing
        addr = routing.find_broker_address_in_publish(queue.broker_name)
        return addr is None or routing.is_avoided(addr)


def queue_in_turn(
    queues: Sequence[MessageQueue],
    turn: int,
    *,
    last_broker: str | None,
    is_avoided: Callable[[MessageQueue], bool],
    slow: SlowBrokers | None,
    now: float,
) -> MessageQueue:
    """Return the first queue from `turn` on whose broker is healthy, or else one of the least bad broker.

    Worst is a broker that has just failed for this very message, then one that failed recently, then a slow one.
    """
    count = len(queues)
    others: list[MessageQueue] = []
    reachable: list[MessageQueue] = []
    for step in range(count):
        queue = queues[(turn + step) % count]
        if queue.broker_name == last_broker:
            continue
        others.append(queue)
        if is_avoided(queue):
            continue
        if slow is None or not slow.is_slow(queue.broker_name, now=now):
            return queue
        reachable.append(queue)
    if slow is not None and reachable:
        return slow.first_to_recover(reachable)
    return others[0] if others else queues[turn % count]


def queue_for_key(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return the queue of a key by Java's string hash, so that producers of both languages agree."""
    return queues[_key_code(key) % len(queues)]


@lru_cache(_KEY_CACHE_SIZE)
def _key_code(key: str) -> int:
    if not isinstance(key, str):
        raise ConfigError(f"sharding_key={key!r} must be text")
    return abs(java_string_hash(key))
