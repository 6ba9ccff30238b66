"""`rocketrio consume` where brokers do not answer."""

import pytest
import trio
from tests.client.orders import TOPIC, another_client, send

from rocketrio import ClientInstance, NotReachable, open_consumer
from rocketrio.cli.consume import _Printer, _until_caught_up
from rocketrio_broker.embedded import MASTER_HOST, EmbeddedCluster


async def test_nothing_to_consume_is_not_taken_for_all_is_consumed(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4)
    here = "10.0.0.101"
    async with another_client(cluster, host=here) as cut_off:
        await cut_off.topic_route(TOPIC)
        for host in (MASTER_HOST, "10.0.0.11"):
            cluster.memory_network.partition(here, host)
        async with open_consumer(TOPIC, group="g", client=cut_off) as consumer:
            with trio.fail_after(30), pytest.raises(NotReachable, match="no broker told"):
                await _until_caught_up(consumer, _Printer(as_json=False), None)
