"""Finds the registered brokers and the readable queues of a topic, and asks brokers side by side.

Invariant: if no broker can be asked, that is an error, never an empty answer.
Invariant: brokers that are silent cost the time of one, however many they are.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import trio

from rocketrio.client import ClientInstance
from rocketrio.client import ask_each as ask_each_queue
from rocketrio.cluster.api import NOT_FOUND
from rocketrio.routing import FindBrokerResult, subscribe_queues
from rocketrio.routing.queues import not_readable
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.errors import Error, NoBrokerRegisteredError, NotReachableError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.tasks import ungrouped

PARALLEL_REQUESTS: Final = 16
"""The requests that wait for brokers at the same time."""

T = TypeVar("T")
R = TypeVar("R")


async def in_parallel(questions: Sequence[T], ask: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return the answers in the order of the questions, of which a few are asked at the same time.

    The first error ends the other questions and is raised.
    """
    found: dict[int, R] = {}
    failed: dict[int, Error] = {}
    limit = trio.Semaphore(PARALLEL_REQUESTS)

    async def one(number: int, question: T) -> None:
        async with limit:
            try:
                found[number] = await ask(question)
            except Error as error:
                failed[number] = error
                nursery.cancel_scope.cancel()

    with ungrouped():
        async with trio.open_nursery() as nursery:
            for number, question in enumerate(questions):
                nursery.start_soon(one, number, question)
    if failed:
        raise failed[min(failed)]
    return [found[number] for number in range(len(questions))]


async def ask_each(
    addrs: Mapping[str, str], ask: Callable[[str], Awaitable[R]]
) -> tuple[dict[str, R], dict[str, Error]]:
    """Ask brokers at the same time; return the answers and the errors, each by name in the order of the addresses."""
    found: dict[str, R] = {}
    failed: dict[str, Error] = {}

    async def one(name: str, addr: str) -> None:
        try:
            found[name] = await ask(addr)
        except Error as error:
            failed[name] = error

    with ungrouped():
        async with trio.open_nursery() as nursery:
            for name, addr in addrs.items():
                nursery.start_soon(one, name, addr)
    return (
        {name: found[name] for name in addrs if name in found},
        {name: failed[name] for name in addrs if name in failed},
    )


async def registered_brokers(client: ClientInstance) -> ClusterInfo:
    """Return all brokers. Raises NoBrokerRegisteredError if there are none, because nothing else is known then."""
    info = await client.name_servers.cluster_info()
    if not info.broker_addr_table:
        raise NoBrokerRegisteredError(
            f"no broker is registered at {'; '.join(client.name_servers.addresses)}"
        )
    return info


async def readable_queues(client: ClientInstance, topic: str) -> list[MessageQueue]:
    """Return the queues of a topic.

    Raises RouteNotFoundError for an unknown topic, ConfigError if it may not be read.
    """
    await client.refresh_topic_route(topic)
    queues = subscribe_queues(topic, await client.topic_route(topic))
    if not queues:
        raise not_readable(topic)
    return queues


async def committed_in(
    client: ClientInstance, group: str, queues: Sequence[MessageQueue]
) -> dict[MessageQueue, int | Error | None]:
    """Return what masters report that a group committed; None where it never did, an error where no master answers.

    Brokers before 5.0 answer 0 for a group that never committed if the queue's first messages are still in memory.
    """

    async def ask(queue: MessageQueue) -> int | None:
        async def of_master(found: FindBrokerResult) -> int | None:
            if found.is_slave:  # It may have an older state.
                raise NotReachableError(
                    f"the master of {queue} cannot be reached, and only it knows what {group} committed",
                    topic=queue.topic,
                )
            offset = await client.api.query_consumer_offset(
                found.addr, group, queue, zero_if_young=False
            )
            return None if offset is NOT_FOUND else offset

        return await client.ask_broker(queue, of_master, insist_on_master=True)

    return await ask_each_queue(queues, ask)


def whole_sum(parts: Iterable[int | None]) -> int | None:
    """Return the sum, or None if a part is unknown."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total
