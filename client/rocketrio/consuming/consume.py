"""Opening a consumer: the arguments that users give, and what they mean.

Answers to: the settings of DefaultMQPushConsumer and DefaultLitePullConsumer.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from os import PathLike
from typing import Unpack

from rocketrio.arguments import path
from rocketrio.connect import ClientOptions, given_or_own
from rocketrio.consuming.allocate import AllocateStrategy, allocate_averagely
from rocketrio.consuming.consumer import Consumer
from rocketrio.consuming.consumer_options import (
    AUTO_COMMIT_INTERVAL,
    ConsumerOptions,
    Mode,
    Tags,
    Where,
    read_subscriptions,
)
from rocketrio.consuming.consumer_parts import consuming
from rocketrio.consuming.fetch import StartFrom
from rocketrio.consuming.process_queue import (
    PULL_THRESHOLD_FOR_QUEUE,
    PULL_THRESHOLD_SIZE_FOR_QUEUE,
)
from rocketrio.consuming.pull import PULL_BATCH_SIZE
from rocketrio.consuming.pull_budget import PULL_THRESHOLD_SIZE
from rocketrio.instance import ClientInstance
from rocketrio.producing.delays import DELAY_LEVELS
from rocketrio.routing import ReadFrom, ReadPolicy
from rocketrio_protocol.message import MessageQueue


@asynccontextmanager
async def open_consumer(
    topics: str | Sequence[str] = (),
    *,
    group: str,
    tags: Tags | Mapping[str, Tags] = None,
    where: Where = None,
    queues: Sequence[MessageQueue] | None = None,
    start_from: StartFrom = "latest",
    wait_for_topic: float | None = None,
    mode: Mode = "clustering",
    orderly: bool = False,
    offsets_path: str | PathLike[str] | None = None,
    max_reconsume_times: int | None = None,
    delay_levels: Sequence[timedelta] = DELAY_LEVELS,
    auto_commit: bool = True,
    auto_commit_interval: float = AUTO_COMMIT_INTERVAL,
    pull_batch_size: int = PULL_BATCH_SIZE,
    pull_threshold_for_queue: int = PULL_THRESHOLD_FOR_QUEUE,
    pull_threshold_size_for_queue: int = PULL_THRESHOLD_SIZE_FOR_QUEUE,
    pull_threshold_size: int = PULL_THRESHOLD_SIZE,
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
    `tags` is `"a || b"`, a list, or a mapping by topic; by default everything is wanted. `where` is an SQL92 expression
    over the messages' properties instead, for all topics or a mapping: `"amount > 100 AND region = 'EU'"`. It is the
    broker that chooses, if it may (`enablePropertyFilter`); BrokerError is raised for what it does not take.

    A queue goes on where the group committed. Only where a broker says that it never did, `start_from` counts:
    "earliest", "latest" (RocketMQ's rule: a young queue is read from its beginning all the same) or an aware datetime.

    A topic that nobody knows is an error after a second. With `wait_for_topic` so many seconds are waited for it, and
    for the cluster where that is down, and the log says so; `math.inf` waits for ever, as Java's consumers do. A send
    makes a topic, and so do `create_topic` and `rocketrio topic create`.

    What `run` or `retry` hands back comes again later, also from another member, and after `max_reconsume_times` (16)
    it goes to the group's dead-letter topic. `delay_levels` is what the brokers' delay levels mean, if they were told
    otherwise than by default.

    With `orderly` a queue moves to another member only when its message in work is done, and `run` tries a failed
    message again in place, for ever unless `max_reconsume_times` says otherwise: brokers lock the queues. With
    `mode="broadcasting"` every member gets every message, and its progress is in a file of its own: `offsets_path`,
    by default where Java's consumers have it, `~/.rocketmq_offsets`. Members on one host each need a path.

    With `auto_commit` all messages before the one in work are committed every `auto_commit_interval` seconds, when a
    queue is given up, and at the end of the block: the last message too if the block ended without an exception.
    Pulls from a rocketrio broker take progress along meanwhile. Without it only `await consumer.commit()` does.

    `read_from` is "suggested" (RocketMQ's way), "master", "nearest" or "replica", a slave that is at most
    `max_staleness` seconds or `max_staleness_messages` messages behind; see docs/client.md.

    A queue is pulled ahead up to a threshold in messages or bytes, all of them together up to `pull_threshold_size`
    bytes, and one message a queue more where messages are large. The consumer uses `client`, or opens one with the
    remaining arguments (see `open_client`).

    Raises RouteNotFound for an unknown topic, NoBrokerRegistered and NotReachable without a cluster.
    """
    options = ConsumerOptions(
        group=group,
        subscriptions=read_subscriptions(topics, queues, tags, where),
        queues=queues,
        mode=mode,
        orderly=orderly,
        offsets_path=None if offsets_path is None else path("offsets_path", offsets_path),
        max_reconsume_times=max_reconsume_times,
        delay_levels=delay_levels,
        start_from=start_from,
        wait_for_topic=wait_for_topic,
        auto_commit=auto_commit,
        auto_commit_interval=auto_commit_interval,
        pull_batch_size=pull_batch_size,
        pull_threshold_for_queue=pull_threshold_for_queue,
        pull_threshold_size_for_queue=pull_threshold_size_for_queue,
        pull_threshold_size=pull_threshold_size,
        policy=ReadPolicy(read_from, max_staleness, max_staleness_messages),
        strategy=strategy,
    )
    async with (
        given_or_own(client, client_options, open_consumer) as used,
        consuming(used, options) as consumer,
    ):
        yield consumer
