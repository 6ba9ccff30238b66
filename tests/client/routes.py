"""Waiting for what brokers tell name servers."""

import trio

from rocketrio import ClientInstance, RouteNotFoundError


async def routed(client: ClientInstance, topic: str) -> None:
    """Wait until the name server knows a topic that a send made: its broker tells it afterwards, as Java's do."""
    with trio.fail_after(60):
        while True:
            try:
                await client.topic_route(topic)
                return
            except RouteNotFoundError:
                await trio.sleep(0.1)
