"""Opens a consumer: the arguments that users give, and their meaning.

Answers to: the settings of DefaultMQPushConsumer and DefaultLitePullConsumer.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from os import PathLike
from typing import Final, Unpack

from rocketrio.arguments import path
from rocketrio.client import ClientInstance
from rocketrio.connect import ClientOptions, given_or_own
from rocketrio.consuming.allocate import AllocateStrategy, allocate_averagely
from rocketrio.consuming.composing import consuming
from rocketrio.consuming.consumer import Consumer
from rocketrio.consuming.consumer_options import (
    AUTO_COMMIT_INTERVAL,
    ConsumerOptions,
    Mode,
    Prefetch,
    StartFrom,
    Tags,
    Where,
    read_subscriptions,
)
from rocketrio.producing.delays import DELAY_LEVELS
from rocketrio.routing import ReadFrom, ReadPolicy
from rocketrio_protocol.message import MessageQueue

DEFAULT_PREFETCH: Final = Prefetch()


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
    ignore_unreadable_offsets: bool = False,
    max_reconsume_times: int | None = None,
    delay_levels: Sequence[timedelta] = DELAY_LEVELS,
    auto_commit: bool = True,
    auto_commit_interval: float = AUTO_COMMIT_INTERVAL,
    prefetch: Prefetch = DEFAULT_PREFETCH,
    read_from: ReadFrom = "suggested",
    max_staleness: float | None = None,
    max_staleness_messages: int | None = None,
    strategy: AllocateStrategy = allocate_averagely,
    client: ClientInstance | None = None,
    **client_options: Unpack[ClientOptions],
) -> AsyncGenerator[Consumer]:
    """Open a consumer of `topics`; it is closed at the end of the block.

        async with open_consumer("orders", group="billing", name_servers=["10.0.0.1:9876"]) as consumer:
            async for message in consumer:
                print(message.body)

    The members of a `group` share the queues; members come and go, and all must consume the same topics and tags.
    With `queues` the consumer reads exactly these queues instead. It is then not a member of the group, and only shares
    the group's committed offsets. `tags` is `"a || b"`, a list, or a mapping by topic; by default all messages are
    selected. `where` is an SQL92 expression over the messages' properties instead, one for all topics or a mapping:
    `"amount > 100 AND region = 'EU'"`. The broker evaluates it, if it is configured to (`enablePropertyFilter`);
    BrokerError is raised for an expression that it does not accept.

    A queue continues where the group committed. `start_from` applies only if a broker reports that the group never
    committed: "earliest", "latest" (RocketMQ's rule: a young queue is still read from its beginning), "end" (the end,
    however young the queue is) or an aware datetime.

    An unknown topic is an error after a second. With `wait_for_topic` the consumer waits that many seconds for the
    topic, and for the cluster if it is down, and logs that it waits; `math.inf` waits forever, as Java's consumers do.
    A topic is created by a send, by `create_topic` and by `rocketrio topic create`.

    A message that `run` or `retry` hands back is delivered again later, possibly to another member, and after
    `max_reconsume_times` (16) it goes to the group's dead-letter topic. `delay_levels` are the delays that the brokers'
    delay levels stand for, if the brokers are not configured with the default.

    With `orderly` a queue moves to another member only when its message in work is done, and `run` tries a failed
    message again in place, forever unless `max_reconsume_times` limits it: brokers lock the queues. With
    `mode="broadcasting"` every member gets every message and keeps its progress in a file of its own: `offsets_path`,
    by default where Java's consumers keep it, `~/.rocketmq_offsets`. Members on one host need a path each. A file that
    cannot be read is a ConfigError, or with `ignore_unreadable_offsets` the member begins at `start_from`.

    With `auto_commit` all messages before the one in work are committed every `auto_commit_interval` seconds, when a
    queue is released, and at the end of the block; the last message is included if the block ended without an
    exception. In between, pulls from a rocketrio broker also carry progress. Without `auto_commit` only `await
    consumer.commit()` commits.

    `read_from` is "suggested" (RocketMQ's way), "master", "nearest" or "replica", a slave that is at most
    `max_staleness` seconds or `max_staleness_messages` messages behind; see docs/client.md.

    `prefetch` limits how far queues are pulled ahead, by default to 1,000 messages or 100 MiB for a queue and 256 MiB
    over all queues. The consumer uses `client`, or opens one with the remaining arguments (see `open_client`).

    Raises RouteNotFoundError for an unknown topic, NoBrokerRegisteredError and NotReachableError without a cluster,
    BrokerError for a group of a name that the brokers do not accept.
    """
    options = ConsumerOptions(
        group=group,
        subscriptions=read_subscriptions(topics, queues, tags, where),
        queues=queues,
        mode=mode,
        orderly=orderly,
        offsets_path=None if offsets_path is None else path("offsets_path", offsets_path),
        ignore_unreadable_offsets=ignore_unreadable_offsets,
        max_reconsume_times=max_reconsume_times,
        delay_levels=delay_levels,
        start_from=start_from,
        wait_for_topic=wait_for_topic,
        auto_commit=auto_commit,
        auto_commit_interval=auto_commit_interval,
        prefetch=prefetch,
        policy=ReadPolicy(read_from, max_staleness, max_staleness_messages),
        strategy=strategy,
    )
    async with (
        given_or_own(client, client_options, open_consumer) as used,
        consuming(used, options) as consumer,
    ):
        yield consumer
