"""Checks filters that brokers apply: an expression is sent to them before anything is planned.

Invariant: a wrong expression fails the query on the driver, with the broker's message.
"""

from collections.abc import Iterable

from rocketrio.client import ClientInstance
from rocketrio.routing import FindBrokerResult
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import shown
from rocketrio.spark.reading.asking import ONCE, Retries, for_each
from rocketrio.spark.reading.options import ReadOptions
from rocketrio_protocol.errors import BrokerError, BrokerSystemError
from rocketrio_protocol.message import MessageQueue


async def check_filter(
    client: ClientInstance,
    options: ReadOptions,
    queues: Iterable[MessageQueue],
    *,
    retries: Retries = ONCE,
) -> None:
    """Raise OptionError unless the brokers of these queues accept the expression. Tags need no check."""
    subscription = options.subscription
    if not subscription.is_sql92:
        return
    # One queue of each broker and topic, because the answer may depend on both.
    asked = {(queue.topic, queue.broker_name): queue for queue in queues}
    sub_version = client.wall_clock.now_ms()

    async def ask(queue: MessageQueue) -> None:
        data = subscription.data(queue.topic, sub_version=sub_version)

        async def check(found: FindBrokerResult) -> None:
            await client.api.check_subscription(
                found.addr, client.client_id, options.consumer_group, data
            )

        try:
            await client.ask_broker(queue, check)
        except BrokerError as error:  # Brokers without SQL92 answer SYSTEM_ERROR.
            if error.retryable and not isinstance(error, BrokerSystemError):
                raise
            raise OptionError(
                f"subExpression={shown(subscription.expression)} is refused: {error}"
            ) from error

    await for_each(asked.values(), ask, retries=retries)
