"""Finds the queues of a read's subscription, what they hold, and where their brokers are; checks its filter there."""

import logging
import re
from collections.abc import Iterable

from rocketrio.admin.cluster_questions import not_readable
from rocketrio.client import ClientInstance
from rocketrio.consuming.subscription import check_expression
from rocketrio.routing import FindBrokerResult
from rocketrio.routing.queues import subscribe_queues
from rocketrio.spark.errors import OptionError, TopicNotFoundError
from rocketrio.spark.option_kinds import shown
from rocketrio.spark.reading.asking import ONCE, Retries, for_each
from rocketrio.spark.reading.offsets import Bounds
from rocketrio.spark.reading.options import ReadOptions
from rocketrio_protocol.bodies.route import TopicList
from rocketrio_protocol.commands.cluster import (
    GetAllTopicListRequestHeader,
    GetSystemTopicListFromNsRequestHeader,
)
from rocketrio_protocol.errors import AccessRefusedError, BrokerError, BrokerSystemError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import is_system_topic
from rocketrio_protocol.remoting.pool import check

logger = logging.getLogger("rocketrio.spark.queues")


async def subscribed_queues(client: ClientInstance, options: ReadOptions) -> list[MessageQueue]:
    """Return the queues that the options name.

    Raises TopicNotFoundError or RouteNotFoundError if one does not exist.
    """
    topics = await subscribed_topics(client, options)
    if not topics:
        raise TopicNotFoundError(
            f"subscribePattern={options.topic_pattern!r} matches none of the topics"
        )
    known: list[MessageQueue] = []
    for topic in topics:
        queues = subscribe_queues(topic, await client.topic_route(topic))
        if not queues and topic in options.topics:
            # Reading nothing from it would look like an empty topic.
            raise may_not_be_read(topic)
        known += queues
    if not options.assigned:
        return known
    missing = sorted(set(options.assigned) - set(known))
    there = [queue for queue in options.assigned if queue not in missing]
    if missing:
        text = f"assign names {', '.join(map(str, missing))}, which no broker has"
        if options.fail_on_data_loss or not there:
            raise TopicNotFoundError(
                f"{text}; failOnDataLoss=false reads without queues that are gone"
            )
        logger.warning("queues that do not exist are skipped error=%s", text)
    return there


def may_not_be_read(topic: str, *, where: str = "") -> TopicNotFoundError:
    """Return the error for a topic, or its queues at one broker, without the permission to read."""
    error = not_readable(topic)
    return TopicNotFoundError(error.what + where, remedy=error.advice)


async def subscribed_topics(client: ClientInstance, options: ReadOptions) -> tuple[str, ...]:
    """Return the topics that the options name; for a pattern those that match now, which may be none."""
    if options.topic_pattern is not None:
        return await _matching_topics(client, options.topic_pattern)
    if options.assigned:
        return tuple(dict.fromkeys(queue.topic for queue in options.assigned))
    return options.topics


async def _matching_topics(client: ClientInstance, pattern: str) -> tuple[str, ...]:
    answer = await client.name_servers.call(GetAllTopicListRequestHeader())
    check(answer, "the list of topics cannot be read")
    names = TopicList.from_json(answer.body).topic_list
    answer = await client.name_servers.call(GetSystemTopicListFromNsRequestHeader())
    check(answer, "the list of system topics cannot be read")
    # The name server's list has clusters and brokers; `subscribe` can still read all of these topics.
    owners = set(TopicList.from_json(answer.body).topic_list)
    return tuple(
        name
        for name in sorted(set(names))
        if re.fullmatch(pattern, name) and not is_system_topic(name, owners)
    )


async def first_partitions(
    client: ClientInstance, topics: Iterable[str]
) -> dict[str, dict[str, int]]:
    """Return topic to broker to the number of its queue 0 among the topic's queues, as `schemaMode=kafka` counts them.

    The queues of a topic have the same numbers whichever part of it is read, until the topic gets or loses a broker.
    """
    firsts: dict[str, dict[str, int]] = {}
    for topic in topics:
        queues = subscribe_queues(topic, await client.topic_route(topic))
        for place, queue in enumerate(queues):
            firsts.setdefault(topic, {}).setdefault(queue.broker_name, place - queue.queue_id)
    return firsts


async def bounds_of(
    client: ClientInstance, queues: Iterable[MessageQueue], *, retries: Retries = ONCE
) -> dict[MessageQueue, Bounds]:
    """Return what each queue holds, as reported by its master, or by a slave while no master answers."""
    bounds: dict[MessageQueue, Bounds] = {}

    async def ask(queue: MessageQueue) -> None:
        bounds[queue] = await client.ask_broker(queue, lambda found: held_at(client, found, queue))

    await for_each(queues, ask, retries=retries)
    return bounds


async def held_at(client: ClientInstance, found: FindBrokerResult, queue: MessageQueue) -> Bounds:
    """Return what one broker reports that it holds of a queue."""
    # The smaller end first: retention between the two requests must not move it beyond the larger one.
    least = await client.api.min_offset(found.addr, queue)
    end = await client.api.queue_end(found.addr, queue, with_incarnation=True)
    # A slave may not have heard of the last deletion.
    incarnation = None if found.is_slave else end.incarnation
    return Bounds(least, max(least, end.max_offset), incarnation)


def addresses_of(
    client: ClientInstance, queues: Iterable[MessageQueue]
) -> dict[str, dict[int, str]]:
    """Return broker name to broker id to address, as in the newest routes."""
    table = client.routing.broker_addr_table
    names = {queue.broker_name for queue in queues}
    return {name: dict(table[name]) for name in sorted(names) if name in table}


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

    async def ask(queue: MessageQueue) -> None:
        try:
            await check_expression(client, options.consumer_group, subscription, queue)
        except AccessRefusedError:
            raise
        except BrokerError as error:  # Brokers without SQL92 answer SYSTEM_ERROR.
            if error.retryable and not isinstance(error, BrokerSystemError):
                raise
            raise OptionError(
                f"subExpression={shown(subscription.expression)} is refused: {error}"
            ) from error

    await for_each(asked.values(), ask, retries=retries)
