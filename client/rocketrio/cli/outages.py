"""Reports outages on standard error while a command waits: one line when an outage begins, and one when it ends.

The client itself retries silently. Here a queue of each broker is polled for its end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import click

from rocketrio.cli.say import one_line, say
from rocketrio_protocol.errors import Error, NotReachableError, RouteNotFoundError

if TYPE_CHECKING:
    from rocketrio.client import ClientInstance

if TYPE_CHECKING:
    from rocketrio.routing import FindBrokerResult
    from rocketrio_protocol.message import MessageQueue

POLL_INTERVAL: Final = 1.0
"""Seconds between two polls, and before the first; a shorter failure does not count as an outage."""


@asynccontextmanager
async def reporting_outages(
    client: ClientInstance, topic: str, *, writes: bool
) -> AsyncGenerator[None]:
    """Report outages while the body runs: for reads, of any broker of the topic; for writes, of all its masters."""
    from rocketrio_protocol.remoting.tasks import background_nursery

    async with background_nursery() as nursery:
        nursery.start_soon(_report, client, topic, writes)
        yield


async def _report(client: ClientInstance, topic: str, writes: bool) -> None:
    import trio

    is_away = False
    while True:
        await trio.sleep(POLL_INTERVAL)
        problem = await _problem(client, topic, writes)
        if problem is not None and not is_away:
            say(f"waiting for the cluster: {one_line(str(problem))}", err=True)
        if problem is None and is_away:
            click.echo("the cluster is back", err=True)
        is_away = problem is not None


async def _problem(client: ClientInstance, topic: str, writes: bool) -> Error | None:
    """Return why a part of the topic cannot be read, or why it cannot be written at all."""
    from rocketrio.client import ask_each
    from rocketrio.routing import subscribe_queues

    async def at_master(queue: MessageQueue) -> int:
        async def ask(found: FindBrokerResult) -> int:
            if found.is_slave:
                raise NotReachableError(f"the master of {queue.broker_name} cannot be reached")
            return await client.api.max_offset(found.addr, queue)

        return await client.ask_broker(queue, ask, insist_on_master=True)

    try:
        queues = subscribe_queues(topic, await client.topic_route(topic))
    except RouteNotFoundError:
        return None  # The first message may create it.
    except Error as error:
        return error
    one_of_each = {queue.broker_name: queue for queue in queues}.values()
    answers = (await ask_each(one_of_each, at_master if writes else client.max_offset)).values()
    errors = [answer for answer in answers if isinstance(answer, Error)]
    return errors[0] if errors and (not writes or len(errors) == len(answers)) else None
