"""Composes a consumer: joins the group, shares its queues, pulls them, commits, and leaves the group.

Answers to: DefaultMQPushConsumerImpl.start and shutdown, DefaultLitePullConsumerImpl.
"""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from math import inf
from typing import Final

import trio

from rocketrio.client import CLOSE_GRACE, ClientInstance
from rocketrio.cluster.heartbeat import BROADCASTING, CLUSTERING, ConsumerMembership
from rocketrio.consuming.assignment import Assignment
from rocketrio.consuming.consume_rates import ConsumeRates
from rocketrio.consuming.consumer import Consumer
from rocketrio.consuming.consumer_options import ConsumerOptions, StartFrom
from rocketrio.consuming.fetch import STARTS_AT_ONCE, QueueFetcher
from rocketrio.consuming.hand_out import HandOut
from rocketrio.consuming.local_offset_store import (
    LocalFileOffsetStore,
    OffsetFile,
    default_offsets_path,
)
from rocketrio.consuming.offset_store import RemoteBrokerOffsetStore
from rocketrio.consuming.offsets import OffsetStore
from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.pull_budget import PullBudget
from rocketrio.consuming.queue_locks import ConsumerLocks
from rocketrio.consuming.rebalance import RECENT_REBALANCES, Rebalance, RebalanceService
from rocketrio.consuming.running import Handlers
from rocketrio.consuming.running_info import RunningMember
from rocketrio.consuming.send_back import Delivery
from rocketrio.consuming.subscription import ALL, Subscription, check_expression
from rocketrio.hooks import Reader
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import (
    AccessRefusedError,
    BrokerError,
    ConfigError,
    NotReachableError,
    RouteNotFoundError,
    TlsError,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import retry_topic
from rocketrio_protocol.remoting.tasks import background_nursery

logger = logging.getLogger("rocketrio.consumer")

COMMIT_GRACE: Final = 5.0
"""Seconds that the last commit may take: one offset request."""
YOUNG_TOPIC_LIMIT: Final = 1.0
"""Seconds until an unknown topic is an error: a broker registers a topic shortly after the send that created it."""
YOUNG_TOPIC_PAUSE: Final = 0.1
TOPIC_PAUSE: Final = 1.0
"""Seconds between checks for a topic that is waited for longer."""
TOPIC_LOG_INTERVAL: Final = 60.0
"""Seconds between log lines about a topic that is waited for."""


@asynccontextmanager
async def consuming(client: ClientInstance, options: ConsumerOptions) -> AsyncGenerator[Consumer]:
    """Run a consumer until the block ends."""
    group = options.group
    if group in client.heartbeat.consumers:
        raise ConfigError(
            f"this client is a member of group {group} already; open another client for a second member"
        )
    member = None if options.queues is not None else _membership(client, options)
    offsets = _offset_store(client, options)
    pulls = PullAPIWrapper(client, group, options.policy)
    delivery = Delivery.of(client, member, options.max_reconsume_times, options.delay_levels)
    hand_out = HandOut(group)
    assigned = Assignment(group, offsets, hand_out, auto_commit=options.auto_commit)
    if options.orderly:
        assigned.locks = ConsumerLocks(
            client, group, lost=assigned.drop_pulled, gained=hand_out.offer
        )
    reader = Reader(client, group, options.mode, pulls.last_broker)
    handlers = Handlers(
        hand_out,
        delivery,
        assigned.queues.values,
        options.orderly,
        client.traces,
        client.hooks,
        reader,
    )
    rates = ConsumeRates(assigned.queues, hand_out.position)
    rebalances: deque[Rebalance] = deque(maxlen=RECENT_REBALANCES)
    consumer = Consumer(
        client, options, rebalances, hand_out, assigned, pulls, delivery, handlers, reader
    )
    if member is not None:
        started_ms = client.wall_clock.now_ms()
        member.answers = RunningMember(
            client, member, options, assigned, hand_out, rates, handlers, started_ms
        )
        if isinstance(offsets, RemoteBrokerOffsetStore):
            member.follow_reset = partial(_follow_reset, consumer, assigned, offsets)
    budget = PullBudget(options.prefetch.total_bytes)
    starts = trio.Semaphore(STARTS_AT_ONCE)

    def new_fetcher(queue: MessageQueue) -> QueueFetcher:
        return QueueFetcher(
            ProcessQueue(
                queue,
                options.prefetch.queue_messages,
                options.prefetch.queue_bytes,
                budget,
            ),
            pulls,
            offsets,
            options.subscriptions.get(queue.topic, ALL),  # ALL: the retry topic.
            options,
            hand_out,
            starts,
        )

    async with background_nursery() as nursery:

        def assign(mine: Mapping[str, list[MessageQueue]]) -> None:
            assigned.change(mine, nursery=nursery, new_fetcher=new_fetcher)
            pulls.nodes.keep(assigned.queues)
            budget.queue_count = max(1, len(assigned.queues))
            rates.sample()

        # Here an error reaches the caller; in a task it could only be logged.
        await _wait_for_topics(client, options.subscriptions, options.wait_for_topic)
        for topic, subscription in options.subscriptions.items():
            await _check_subscription(client, group, topic, subscription)
        try:
            if member is not None:
                service = RebalanceService(
                    client, member, assign, options.strategy, reports=rebalances
                )
                if isinstance(offsets, RemoteBrokerOffsetStore):
                    offsets.confirm = service.rebalance
                await _join(service, nursery)
            else:
                assign(_by_topic(options.subscriptions, options.queues or ()))
            if assigned.locks is not None:
                nursery.start_soon(assigned.locks.run)
            # Rates must be sampled every few seconds too, and need no task of their own for that.
            nursery.start_soon(
                assigned.commit_on_period,
                options.auto_commit_interval,
                rates.sample,
            )
            client.open_consumers.append(consumer)
            yield consumer
            hand_out.settle()
        finally:
            if consumer in client.open_consumers:
                client.open_consumers.remove(consumer)
            await _close(client, hand_out, assigned, handlers, member)
            nursery.cancel_scope.cancel()


def _follow_reset(
    consumer: Consumer,
    assigned: Assignment,
    offsets: RemoteBrokerOffsetStore,
    reset: Mapping[MessageQueue, int],
) -> None:
    """Move to the offsets that an operator set: while members run, Apache's brokers do not store a reset themselves."""
    for queue in sorted(reset.keys() & assigned.queues.keys()):
        logger.warning(
            "reset by an operator queue=%s group=%s from=%s to=%d",
            queue, consumer.group, consumer.position(queue), reset[queue],
        )  # fmt: skip
        offsets.claim_again(queue)
        consumer.seek(queue, reset[queue])


async def _check_subscription(
    client: ClientInstance, group: str, topic: str, subscription: Subscription
) -> None:
    """Ask each broker of the topic whether it accepts an expression that only brokers can evaluate."""
    if not subscription.is_sql92:
        return
    route = await client.topic_route(topic)
    for broker in route.broker_datas:
        queue = MessageQueue(topic, broker.broker_name, 0)
        try:
            await check_expression(client, group, subscription, queue)
        except BrokerError as error:
            # An expression that the broker cannot parse has another code.
            if error.code == ResponseCode.SYSTEM_ERROR and not isinstance(
                error, AccessRefusedError
            ):
                error.advice = (
                    "Set enablePropertyFilter=true in that broker's settings and start it again,"
                    " or choose by tags="
                )
            raise


async def _wait_for_topics(
    client: ClientInstance, topics: Iterable[str], seconds: float | None
) -> None:
    """Get the topics' routes within `seconds`. Raises RouteNotFoundError, NotReachableError after that."""
    began = trio.current_time()
    logged_at = -inf
    waited_out = RouteNotFoundError if seconds is None else (RouteNotFoundError, NotReachableError)
    deadline = began + (YOUNG_TOPIC_LIMIT if seconds is None else seconds)
    for topic in topics:
        while True:
            try:
                await client.topic_route(topic)
                break
            except TlsError:  # Time does not mend it.
                raise
            except waited_out as error:
                now = trio.current_time()
                if now >= deadline:
                    raise
                is_young = now < began + YOUNG_TOPIC_LIMIT
                if not is_young and now - logged_at >= TOPIC_LOG_INTERVAL:
                    logged_at = now
                    logger.warning("waiting for topic=%s error=%s", topic, error)
                await trio.sleep(
                    min(YOUNG_TOPIC_PAUSE if is_young else TOPIC_PAUSE, deadline - now)
                )


async def _join(service: RebalanceService, nursery: trio.Nursery) -> None:
    """Become a member of the group and get a share of the queues."""
    await service.client.join(service.member)
    if not await service.rebalance():
        service.member.rebalance_now.wake()
    nursery.start_soon(service.run)


def _by_topic(
    topics: Iterable[str], queues: Sequence[MessageQueue]
) -> dict[str, list[MessageQueue]]:
    return {topic: [queue for queue in queues if queue.topic == topic] for topic in topics}


async def _close(
    client: ClientInstance,
    hand_out: HandOut,
    assigned: Assignment,
    handlers: Handlers,
    member: ConsumerMembership | None,
) -> None:
    # Shielded and bounded: what was done is committed even if the block was cancelled.
    hand_out.close()
    assigned.stop()
    offsets = assigned.offsets
    if isinstance(offsets, RemoteBrokerOffsetStore) and offsets.confirm is not None:
        offsets.confirm = _refuse_confirmation
    with trio.CancelScope(shield=True):
        await handlers.drained()
    with trio.move_on_after(COMMIT_GRACE, shield=True):
        await assigned.commit_at_end()
    with trio.move_on_after(CLOSE_GRACE, shield=True):
        if assigned.locks is not None:
            await assigned.locks.unlock_all()
        if member is not None:
            await client.leave(member)


def _offset_store(client: ClientInstance, options: ConsumerOptions) -> OffsetStore:
    if not options.is_broadcasting:
        return RemoteBrokerOffsetStore(client, options.group)
    path = options.offsets_path or default_offsets_path(client.client_id, options.group)
    return LocalFileOffsetStore.load(
        OffsetFile(path), ignore_unreadable=options.ignore_unreadable_offsets
    )


async def _refuse_confirmation() -> bool:
    # A closing consumer does not take a queue back from the member that has claimed it.
    await trio.lowlevel.checkpoint()
    return False


def _membership(client: ClientInstance, options: ConsumerOptions) -> ConsumerMembership:
    now_ms = client.wall_clock.now_ms()
    subscriptions = dict(options.subscriptions)
    if not options.is_broadcasting:
        subscriptions[retry_topic(options.group)] = ALL
    return ConsumerMembership(
        options.group,
        _consume_from_where(options.start_from),
        {
            topic: subscription.data(topic, sub_version=now_ms)
            for topic, subscription in subscriptions.items()
        },
        message_model=BROADCASTING if options.is_broadcasting else CLUSTERING,
    )


def _consume_from_where(start_from: StartFrom) -> str:
    """Return the name that heartbeats use for `start_from`."""
    if start_from == "earliest":
        return "CONSUME_FROM_FIRST_OFFSET"
    is_time = isinstance(start_from, datetime)
    return "CONSUME_FROM_TIMESTAMP" if is_time else "CONSUME_FROM_LAST_OFFSET"
