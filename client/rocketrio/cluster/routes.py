"""The routes of one client: requests to the name servers, and when a cached route is used.

Invariant: a known route is used until a name server gives another one, even while none answers.
Invariant: a route is requested only once at a time, however many tasks want it.
Answers to: MQClientInstance.updateTopicRouteInfoFromNameServer.
"""

import logging
from collections.abc import Callable
from math import inf

import attrs
import trio

from rocketrio.cluster.name_servers import NameServers
from rocketrio.routing import Router
from rocketrio_protocol.bodies.route import TopicRouteData
from rocketrio_protocol.errors import Error

logger = logging.getLogger("rocketrio.client")


@attrs.define(eq=False)
class _Refresh:
    """A request for a route that is under way."""

    over: trio.Event = attrs.Factory(trio.Event)
    is_answered: bool = False
    error: Error | None = None


@attrs.define(eq=False)
class TopicRoutes:
    """Fills the tables of `routing`."""

    name_servers: NameServers
    routing: Router
    changed: Callable[[str], None]
    """Called synchronously with a topic whose route has changed."""
    _refreshed_at: dict[str, float] = attrs.Factory(dict)
    _refreshing: dict[str, _Refresh] = attrs.Factory(dict)

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return the cached route; request it if there is none. Raises RouteNotFoundError, NotReachableError."""
        route = self.routing.topic_route_table.get(topic)
        if route is None:
            await self.refresh(topic)
            route = self.routing.topic_route_table[topic]
        return route

    async def refresh(self, topic: str, *, max_age: float = 0.0) -> bool:
        """Refresh as `ClientInstance.refresh_topic_route`."""
        asked_at = trio.current_time()
        # With thousands of queues each failure asks for a route: all share the answer of the first, and its error.
        while (other := self._refreshing.get(topic)) is not None:
            await other.over.wait()
            if other.error is not None:
                raise type(other.error)(
                    other.error.what,
                    broker_addr=other.error.broker_addr,
                    topic=topic,
                    code=other.error.code,
                    remark=other.error.remark,
                    remedy=other.error.advice,
                ) from other.error
            if other.is_answered:
                return False
        if asked_at - self._refreshed_at.get(topic, -inf) < max_age:
            await trio.lowlevel.checkpoint()
            return False
        refresh = self._refreshing[topic] = _Refresh()
        try:
            changed = await self._ask(topic)
            refresh.is_answered = True
        except Error as error:
            refresh.error = error
            raise
        finally:
            del self._refreshing[topic]
            refresh.over.set()
        return changed

    async def _ask(self, topic: str) -> bool:
        known = topic in self.routing.topic_route_table
        try:
            route = await self.name_servers.topic_route(topic)
        except Error as error:
            if not known:
                raise
            # A known route may still be right: without name servers a cluster must go on.
            logger.warning("route kept topic=%s error=%s", topic, error.what)
            return False
        self._refreshed_at[topic] = trio.current_time()
        if route is None:
            if not known:
                raise await self.name_servers.unknown_topic(topic)
            logger.warning("route kept, no name server knows the topic now topic=%s", topic)
            return False
        changed = self.routing.update_topic_route(topic, route)
        if changed:
            logger.info("route changed topic=%s", topic)
            self.changed(topic)
        return changed
