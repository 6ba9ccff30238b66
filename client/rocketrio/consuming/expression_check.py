"""Asks brokers whether they accept an expression that only they can evaluate, for consumers and Spark."""

from rocketrio.client import ClientInstance
from rocketrio.consuming.subscription import Subscription
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import CheckClientRequestBody
from rocketrio_protocol.commands.client import CheckClientConfigRequestHeader
from rocketrio_protocol.message import MessageQueue


async def check_expression(
    client: ClientInstance, group: str, subscription: Subscription, queue: MessageQueue
) -> None:
    """Raise BrokerError if the queue's broker does not accept the SQL92 expression."""
    data = subscription.data(queue.topic, sub_version=client.wall_clock.now_ms())
    body = fastjson.dumps(CheckClientRequestBody(client.client_id, group, data))

    async def ask(found: FindBrokerResult) -> None:
        await client.api.call(
            found.addr,
            CheckClientConfigRequestHeader(),
            body,
            what=f"subscription {data.sub_string!r} not taken",
            topic=data.topic,
        )

    await client.ask_broker(queue, ask)
