"""An operator's reset by Java's tools (222, told to members by 220): a running consumer goes where they say."""

from pathlib import Path
from typing import Any, Final

import pytest
import trio
from tests.support.orders import TOPIC, committed, receive, send

from rocketrio import ClientInstance, MessageQueue, open_consumer
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import ResetOffsetRequestHeader
from rocketrio_protocol.commands.consumer import (
    ResetConsumerClientOffsetRequestHeader,
)

QUEUES = [MessageQueue(TOPIC, "broker-a", index) for index in range(2)]
FIRST = 0
"""Milliseconds: everything is newer."""
NO_CHANNEL: Final[Any] = None  # An order gets no answer.


async def reset(client: ClientInstance, addr: str, timestamp: int = FIRST) -> None:
    """What `mqadmin resetOffsetByTime` asks a broker for."""
    header = ResetOffsetRequestHeader(TOPIC, "g", timestamp, is_force=True)
    await client.connections.call(addr, header, timeout=5)


async def test_running_consumer_goes_back_and_commits_from_there(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 8, queues=2)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert sorted(await receive(consumer, 8)) == list(range(8))
        await consumer.commit()
        await reset(client, cluster.master.broker.address)
        assert sorted(await receive(consumer, 8)) == list(range(8))
        assert await committed(consumer) == {0: 0, 1: 0}
        consumer._settle()
        await consumer.commit()
        assert await committed(consumer) == {0: 4, 1: 4}
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await committed(consumer) == {0: 4, 1: 4}


@pytest.mark.parametrize("committed_before", [0, 2])
async def test_commit_under_way_neither_undoes_the_reset_nor_stops_later_ones(
    committed_before: int, client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 8, queues=2)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        if committed_before:
            await receive(consumer, committed_before)
            await consumer.commit()
        await receive(consumer, 8 - committed_before)
        consumer._settle()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reset, client, cluster.master.broker.address)
            nursery.start_soon(consumer._commit_done)
        await consumer._commit_done()
        assert await committed(consumer) == {0: 0, 1: 0}
        assert sorted(await receive(consumer, 8)) == list(range(8))
        consumer._settle()
        assert await consumer._commit_done() == []
        assert await committed(consumer) == {0: 4, 1: 4}


TOLD_BY_APACHE = (
    b'{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:3,'
    b'{"brokerName":"broker-b","queueId":0,"topic":"orders"}:1}}'
)
"""As both versions write it (ResetOffsetBody of RocketMQ): objects for keys."""


async def test_only_named_and_owned_queues_move(client: ClientInstance) -> None:
    await send(client, 8, queues=2)
    header = ResetConsumerClientOffsetRequestHeader(TOPIC, "g", FIRST, is_force=True)
    order = RemotingCommand.request(header, TOLD_BY_APACHE, oneway=True)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 8)
        client.processors[220](NO_CHANNEL, order)
        assert [consumer.position(queue) for queue in QUEUES] == [4, 3]
        assert await receive(consumer, 1) == [7]


async def test_broadcasting_consumer_does_not_follow_a_reset(
    client: ClientInstance, tmp_path: Path
) -> None:
    await send(client, 8, queues=2)
    header = ResetConsumerClientOffsetRequestHeader(TOPIC, "g", FIRST, is_force=True)
    order = RemotingCommand.request(header, TOLD_BY_APACHE, oneway=True)
    async with open_consumer(
        TOPIC,
        group="g",
        mode="broadcasting",
        start_from="earliest",
        offsets_path=tmp_path / "offsets.json",
        client=client,
    ) as consumer:
        await receive(consumer, 8)
        client.processors[220](NO_CHANNEL, order)
        assert [consumer.position(queue) for queue in QUEUES] == [4, 4]
