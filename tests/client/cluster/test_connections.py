"""When a connection without answers is given up."""

import pytest
import trio
import trio.lowlevel

from rocketrio import ClientInstance, RequestTimeoutError
from rocketrio_broker.embedded import CLIENT_HOST, EmbeddedCluster
from rocketrio_protocol.commands.cluster import GetAllTopicListRequestHeader

REQUEST = GetAllTopicListRequestHeader()


async def test_second_timeout_in_a_row_gives_the_connection_up(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    [addr] = cluster.name_servers
    cluster.memory_network.partition("10.0.0.9", CLIENT_HOST)
    with pytest.raises(RequestTimeoutError):
        await client.connections.call(addr, REQUEST, timeout=1)
    assert addr in client.pool.open_addrs
    with pytest.raises(RequestTimeoutError):
        await client.connections.call(addr, REQUEST, timeout=1)
    await trio.lowlevel.checkpoint()
    assert addr not in client.pool.open_addrs


async def test_answer_in_between_starts_the_count_again(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    [addr] = cluster.name_servers
    for _ in range(3):
        cluster.memory_network.partition("10.0.0.9", CLIENT_HOST)
        with pytest.raises(RequestTimeoutError):
            await client.connections.call(addr, REQUEST, timeout=1)
        cluster.memory_network.heal()
        assert (await client.connections.call(addr, REQUEST, timeout=1)).code == 0
    assert addr in client.pool.open_addrs
