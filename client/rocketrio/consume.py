"""Opening a consumer: joins the group, shares its queues, pulls them, commits, and leaves again.

Answers to: DefaultMQPushConsumerImpl.start and shutdown, DefaultLitePullConsumerImpl.
"""

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, Unpack

import trio

from rocketrio.allocate import AllocateStrategy, allocate_averagely
from rocketrio.consumer import AUTO_COMMIT_INTERVAL, Consumer, as_topics
from rocketrio.fetch import QueueFetcher, StartFrom, consume_from_where
from rocketrio.heartbeat import ConsumerMembership
from rocketrio.instance import CLOSE_GRACE, ClientInstance, ClientOptions, given_or_own
from rocketrio.offset_store import RemoteBrokerOffsetStore
from rocketrio.process_queue import (
    PULL_THRESHOLD_FOR_QUEUE,
    PULL_THRESHOLD_SIZE_FOR_QUEUE,
    ProcessQueue,
)
from rocketrio.pull import PULL_BATCH_SIZE, PullAPIWrapper
from rocketrio.rebalance import RebalanceService
from rocketrio.routing import ReadFrom, ReadPolicy
from rocketrio.subscription import Subscription, parse_subscription
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.topic_names import group_name_problem, topic_name_problem

Tags = str | Iterable[str] | None
COMMIT_GRACE: Final = 5.0
"""Seconds that the last commit may take: one offset call."""

logger = logging.getLogger("rocketrio.consumer")


@asynccontextmanager
async def open_consumer(
    topics: str | Sequence[str] = (),
    *,
    group: str,
    tags: Tags | Mapping[str, Tags] = None,
    queues: Sequence[MessageQueue] | None = None,
    start_from: StartFrom = "last",
    auto_commit: bool = True,
    auto_commit_interval: float = AUTO_COMMIT_INTERVAL,
    pull_batch_size: int = PULL_BATCH_SIZE,
    pull_threshold_for_queue: int = PULL_THRESHOLD_FOR_QUEUE,
    pull_threshold_size_for_queue: int = PULL_THRESHOLD_SIZE_FOR_QUEUE,
    read_from: ReadFrom = "suggested",
    max_staleness: float | None = None,
    max_staleness_messages: int | None = None,
    strategy: AllocateStrategy = allocate_averagely,
    client: ClientInstance | None = None,
    **client_options: Unpack[ClientOptions],
) -> AsyncGenerator[Consumer]:
    """A consumer of `topics`, for as long as the block runs.

        async with open_consumer("orders", group="billing", name_servers=["10.0.0.1:9876"]) as consumer:
            async for message in consumer:
                print(message.body)

    The members of a `group` share the queues; members come and go, and all must consume the same topics and tags.
    With `queues` it reads exactly those instead, as no member of the group, and shares only its committed offsets.
    `tags` is `"a || b"`, a list, or a mapping by topic; by default everything is wanted.

    A queue goes on where the group committed. Only where a broker says that it never did, `start_from` counts: "first",
    "last" (RocketMQ's rule: a young queue is read from its beginning all the same) or an aware datetime.

    With `auto_commit` all messages before the one in work are committed every `auto_commit_interval` seconds, when a
    queue is given up, and at the end of the block: the last message too if the block ended without an exception.
    Without it only `await consumer.commit()` does.

    `read_from` is "suggested" (RocketMQ's way), "master", "nearest" or "replica", a slave that is at most
    `max_staleness` seconds or `max_staleness_messages` messages behind; see docs/client.md.

    A queue is pulled ahead up to a threshold in messages or bytes. The consumer uses `client`, or opens one with the
    remaining arguments (see `open_client`). Raises RouteNotFound for an unknown topic, NotReachable without a cluster.
    """
    policy = ReadPolicy(read_from, max_staleness, max_staleness_messages)
    async with given_or_own(client, client_options) as used:
        subscriptions = _subscriptions(topics, queues, tags)
        _check(used, group, subscriptions)
        _check_start(start_from)
        _check_positive(
            auto_commit_interval=auto_commit_interval,
            pull_batch_size=pull_batch_size,
            pull_threshold_for_queue=pull_threshold_for_queue,
            pull_threshold_size_for_queue=pull_threshold_size_for_queue,
        )
        offsets = RemoteBrokerOffsetStore(used, group)
        wrapper = PullAPIWrapper(used, group, policy)
        consumer = Consumer(used, group, offsets=offsets, pulls=wrapper, auto_commit=auto_commit)
        consumer.assigned.auto_commit = auto_commit

        def new_fetcher(queue: MessageQueue) -> QueueFetcher:
            return QueueFetcher(
                ProcessQueue(queue, pull_threshold_for_queue, pull_threshold_size_for_queue),
                wrapper,
                offsets,
                subscriptions[queue.topic],
                start_from,
                consumer.arrived,
                consumer.lost,
                max_messages=pull_batch_size,
            )

        member = None
        if queues is None:
            member = _membership(used, group, subscriptions, start_from)
        async with background_nursery() as nursery:

            def assign(mine: Mapping[str, list[MessageQueue]]) -> None:
                consumer.assigned.change(mine, nursery=nursery, new_fetcher=new_fetcher)
                wrapper.nodes.keep(consumer.assigned.queues)

            for topic in subscriptions:
                # Raises for the caller, where a task could only log it.
                await used.topic_route(topic)
            try:
                if member is not None:
                    service = RebalanceService(used, member, assign, strategy)
                    await _join(service, offsets, nursery)
                else:
                    assign(_by_topic(subscriptions, queues or ()))
                nursery.start_soon(consumer.commit_on_period, auto_commit_interval)
                yield consumer
                consumer.settle()
            finally:
                await _close(used, consumer, offsets, member, auto_commit=auto_commit)
                nursery.cancel_scope.cancel()


async def _join(
    service: RebalanceService, offsets: RemoteBrokerOffsetStore, nursery: trio.Nursery
) -> None:
    """Become a member, and get a share of the queues."""
    await service.client.join(service.member)
    offsets.confirm = service.rebalance
    if not await service.rebalance():
        service.member.rebalance_now.wake()
    nursery.start_soon(service.run)


def _by_topic(
    topics: Iterable[str], queues: Sequence[MessageQueue]
) -> dict[str, list[MessageQueue]]:
    return {topic: [queue for queue in queues if queue.topic == topic] for topic in topics}


async def _close(
    client: ClientInstance,
    consumer: Consumer,
    offsets: RemoteBrokerOffsetStore,
    member: ConsumerMembership | None,
    *,
    auto_commit: bool,
) -> None:
    # Shielded and bounded: what was worked on is committed also when the block was cancelled.
    consumer.close()
    consumer.assigned.stop()
    if offsets.confirm is not None:
        offsets.confirm = _nobody_confirms
    with trio.move_on_after(COMMIT_GRACE, shield=True):
        if auto_commit:
            offsets.doubt_all()  # Another member may own a queue by now, and be further: Apache's brokers are asked.
            for error in await consumer.commit_done():
                logger.warning("not committed at the end group=%s error=%s", consumer.group, error)
        for error in await consumer.tell_masters():
            logger.info("only a slave knows offsets group=%s error=%s", consumer.group, error)
    with trio.move_on_after(CLOSE_GRACE, shield=True):
        if member is not None:
            await client.leave(member)


async def _nobody_confirms() -> bool:
    # A consumer that ends does not take a queue back from the member that has claimed it.
    await trio.lowlevel.checkpoint()
    return False


def _membership(
    client: ClientInstance,
    group: str,
    subscriptions: Mapping[str, Subscription],
    start_from: StartFrom,
) -> ConsumerMembership:
    now_ms = client.wall_clock.now_ms()
    return ConsumerMembership(
        group,
        consume_from_where(start_from),
        {
            topic: subscription.data(topic, sub_version=now_ms)
            for topic, subscription in subscriptions.items()
        },
    )


def _subscriptions(
    topics: str | Sequence[str],
    queues: Sequence[MessageQueue] | None,
    tags: Tags | Mapping[str, Tags],
) -> dict[str, Subscription]:
    names = as_topics(topics)
    if queues is not None:
        names = names or sorted({queue.topic for queue in queues})
        if strangers := {queue.topic for queue in queues} - set(names):
            raise ConfigError(f"queues= names topics that are not consumed: {', '.join(strangers)}")
    if not names:
        raise ConfigError("name at least one topic: open_consumer('orders', group='billing')")
    if isinstance(tags, Mapping):
        if strangers := set(tags) - set(names):
            raise ConfigError(f"tags= names topics that are not consumed: {', '.join(strangers)}")
        return {name: parse_subscription(tags.get(name)) for name in names}
    return {name: parse_subscription(tags) for name in names}


def _check(client: ClientInstance, group: str, subscriptions: Mapping[str, Subscription]) -> None:
    problem = group_name_problem(group)
    for topic in subscriptions:
        problem = problem or topic_name_problem(topic)
    if problem is not None:
        raise ConfigError(problem)
    if group in client.heartbeat.consumers:
        raise ConfigError(
            f"this client is a member of group {group} already; open another client for a second member"
        )


def _check_start(start_from: object) -> None:
    # A word that was taken for another one would skip messages.
    is_time = isinstance(start_from, datetime) and start_from.tzinfo is not None
    if not is_time and start_from not in ("first", "last"):
        raise ConfigError(
            f"start_from={start_from!r} is neither 'first', 'last' nor a datetime with a time zone"
        )


def _check_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if number <= 0:
            raise ConfigError(f"{name}={number} must be more than 0")
