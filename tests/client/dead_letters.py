"""Groups that refuse messages until these are dead letters."""

import trio
from tests.support.orders import TOPIC, send

from rocketrio import GIVE_UP, ClientInstance, ConsumeLater, MessageExt, open_client, open_consumer
from rocketrio_broker.embedded import EmbeddedCluster


async def give_up(client: ClientInstance, count: int, *, group: str = "g") -> None:
    """Send `count` messages and make each a dead letter."""
    await send(client, count, queues=1)

    async def handle(message: MessageExt) -> None:
        raise ConsumeLater(GIVE_UP)

    async with open_consumer(TOPIC, group=group, client=client) as consumer:
        with trio.move_on_after(3):
            await consumer.run(handle, concurrency=1)


async def give_up_all(cluster: EmbeddedCluster, *, count: int) -> None:
    """Let the group billing refuse that many messages for good."""
    left = count

    async def refuse(message: MessageExt) -> None:
        nonlocal left
        left -= 1
        if not left:
            scope.cancel()
        raise ConsumeLater(GIVE_UP)

    async with (
        open_client(name_servers=cluster.name_servers) as client,
        open_consumer("orders", group="billing", start_from="earliest", client=client) as consumer,
    ):
        with trio.CancelScope() as scope:
            await consumer.run(refuse, concurrency=1)
