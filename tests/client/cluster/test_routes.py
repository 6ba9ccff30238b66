"""Who asks for a route, how often, and what a cancel leaves."""

import trio

from rocketrio import ClientInstance
from rocketrio_broker.embedded import EmbeddedCluster


async def test_one_request_serves_all_callers_that_want_a_route(client: ClientInstance) -> None:
    asked = 0
    original = client.name_servers.topic_route

    async def counted(topic: str) -> object:
        nonlocal asked
        asked += 1
        return await original(topic)

    object.__setattr__(client.routes, "name_servers", _Counting(client.name_servers, counted))
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(client.topic_route, "TBW102")
    assert asked == 1


class _Counting:
    def __init__(self, inner: object, topic_route: object) -> None:
        self.addresses = inner.addresses  # type: ignore[attr-defined]
        self.topic_route = topic_route


async def test_young_route_is_not_asked_for_again(client: ClientInstance) -> None:
    await client.topic_route("TBW102")
    before = client.routes._refreshed_at["TBW102"]
    await client.refresh_topic_route("TBW102", max_age=1.0)
    assert client.routes._refreshed_at["TBW102"] == before
    await trio.sleep(1.5)
    await client.refresh_topic_route("TBW102", max_age=1.0)
    assert client.routes._refreshed_at["TBW102"] > before


async def test_cancelled_question_leaves_the_next_one_free(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    cluster.memory_network.silence("10.0.0.9")
    with trio.move_on_after(1):
        await client.topic_route("TBW102")
    cluster.memory_network.heal()
    with trio.fail_after(1):
        assert await client.topic_route("TBW102")
