"""Opens a producer: checks its settings, and registers its group with the brokers while the block runs.

Answers to: DefaultMQProducer's settings, DefaultMQProducerImpl.start and shutdown.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, Unpack

import trio

from rocketrio.arguments import flag, seconds, text, whole_number
from rocketrio.callables import async_function
from rocketrio.client import CLOSE_GRACE, ClientInstance
from rocketrio.connect import ClientOptions, given_or_own
from rocketrio.limits import MAX_MESSAGE_SIZE
from rocketrio.producing.delays import DELAY_LEVELS, check_levels
from rocketrio.producing.producer import Producer
from rocketrio.producing.publish_route import PublishRoutes
from rocketrio.producing.sender import SEND_RETRIES, SEND_TIMEOUT, MessageSender
from rocketrio.producing.slow_brokers import LATENCIES_5X, LatencyTable, SlowBrokers
from rocketrio.producing.transaction_checks import CheckTransaction, checking_transactions
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.names import group_name_problem
from rocketrio_protocol.record.compression import COMPRESS_BODY_OVER

DEFAULT_PRODUCER_GROUP: Final = "rocketrio"


@asynccontextmanager
async def open_producer(
    *,
    group: str = DEFAULT_PRODUCER_GROUP,
    client: ClientInstance | None = None,
    timeout: float = SEND_TIMEOUT,
    retries: int = SEND_RETRIES,
    max_message_size: int = MAX_MESSAGE_SIZE,
    compress_over: int = COMPRESS_BODY_OVER,
    auto_create_topic: bool = True,
    avoid_slow_brokers: bool | LatencyTable = False,
    delay_levels: Sequence[timedelta] = DELAY_LEVELS,
    check_transaction: CheckTransaction | None = None,
    **client_options: Unpack[ClientOptions],
) -> AsyncGenerator[Producer]:
    """Open a producer; it is closed at the end of the block.

    It uses `client`, or opens one with the remaining arguments (see `open_client`; usually `name_servers=`).
    `timeout` bounds a send in seconds, including its `retries` at other brokers. Bodies over `compress_over` bytes are
    compressed if that makes them smaller; `max_message_size` limits the bytes of a body or a batch before compression.
    With `auto_create_topic=False` a topic that no name server knows raises RouteNotFoundError.

    With `avoid_slow_brokers` (Java's sendLatencyFaultEnable) a broker that answered late or failed gets no messages
    without a key for a while, as long as there are other brokers; `True` selects the times of RocketMQ 5.
    `delay_levels` are the delays that the brokers' delay levels stand for, if the brokers are not configured with the
    default.

    `check_transaction` makes `producer.transaction` possible. `await check_transaction(message)` is called if a broker
    has not received the decision of a transaction of this `group`, including transactions of a process that died, and
    returns a `TransactionState`. After UNKNOWN or an exception the broker asks again: every 30 or 60 s, and 15 times in
    all by default; then it drops the message. A call is cancelled after a minute, which also counts as UNKNOWN.

    Nothing is sent before the first message, so an unreachable cluster is reported only then.
    """
    text("group", group)
    problem = group_name_problem(group)
    if problem is not None:
        raise ConfigError(problem)
    seconds("timeout", timeout)
    whole_number("retries", retries, least=0)
    whole_number("max_message_size", max_message_size, least=1)
    whole_number("compress_over", compress_over, least=0)
    flag("auto_create_topic", auto_create_topic)
    if not isinstance(avoid_slow_brokers, LatencyTable):
        flag("avoid_slow_brokers", avoid_slow_brokers)
    table = LATENCIES_5X if avoid_slow_brokers is True else avoid_slow_brokers
    slow_brokers = SlowBrokers(table) if isinstance(table, LatencyTable) else None
    levels = check_levels(delay_levels)
    if check_transaction is not None:
        check_transaction = async_function("check_transaction", check_transaction)
    async with given_or_own(client, client_options, open_producer) as chosen:
        producers = chosen.heartbeat.producers
        producers[group] = producers.get(group, 0) + 1
        sender = MessageSender(
            chosen,
            group,
            PublishRoutes(chosen, auto_create_topic, slow_brokers),
            timeout=timeout,
            retries=retries,
            max_message_size=max_message_size,
            compress_over=compress_over,
            delay_levels=levels,
            traces=chosen.traces,
            hooks=chosen.hooks,
        )
        try:
            if check_transaction is None:
                yield Producer(sender)
            else:
                async with checking_transactions(chosen, group, check_transaction) as checks:
                    yield Producer(sender, checks)
        finally:
            sender.is_closed = True
            with trio.move_on_after(CLOSE_GRACE, shield=True):
                await chosen.leave_producer(group)
