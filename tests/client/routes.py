"""Routes of topics, and waiting for what brokers tell name servers."""

import trio

from rocketrio import ClientInstance, RouteNotFoundError
from rocketrio_protocol.bodies.route import BrokerData, QueueData, TopicRouteData


def route(addrs: dict[str, dict[int, str]], *, perm: int = 6, queues: int = 2) -> TopicRouteData:
    """Return the route of a topic at these brokers, which have the addresses by their ids."""
    return TopicRouteData(
        broker_datas=[BrokerData("c", name, ids) for name, ids in addrs.items()],
        queue_datas=[QueueData(name, queues, queues, perm) for name in addrs],
    )


async def routed(client: ClientInstance, topic: str) -> None:
    """Wait until the name server knows a topic that a send made: its broker tells it afterwards, as Java's do."""
    with trio.fail_after(60):
        while True:
            try:
                await client.topic_route(topic)
                return
            except RouteNotFoundError:
                await trio.sleep(0.1)
