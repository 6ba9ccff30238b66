"""Two members of an orderly group, and who worked on which queue when."""

import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, send

from rocketrio import ClientInstance, MessageExt, open_consumer
from rocketrio_broker.embedded import EmbeddedCluster

GROUP = "g"


@attrs.define
class Work:
    """Who worked on which queue from when to when, and when two did."""

    at_work: dict[int, str] = attrs.Factory(dict)
    done: dict[int, list[int]] = attrs.Factory(lambda: defaultdict(list))
    intervals: list[tuple[int, str, float, float]] = attrs.Factory(list)
    overlaps: list[str] = attrs.Factory(list)

    async def work(self, name: str, message: MessageExt, seconds: float) -> None:
        queue_id, began = message.queue_id, trio.current_time()
        if queue_id in self.at_work:
            self.overlaps.append(
                f"{name} begins {message.queue_offset} of {queue_id} at {began:.2f}"
                f" while {self.at_work[queue_id]} works on it"
            )
        self.at_work[queue_id] = name
        try:
            await trio.sleep(seconds)
        finally:
            self.at_work.pop(queue_id, None)
        self.done[queue_id].append(message.queue_offset)
        self.intervals.append((queue_id, name, began, trio.current_time()))

    async def member(self, client: ClientInstance, name: str, seconds: float = 0.4) -> None:
        async def handle(message: MessageExt) -> None:
            await self.work(name, message, seconds)

        async with open_consumer(TOPIC, group=GROUP, orderly=True, client=client) as consumer:
            await consumer.run(handle)

    def longest_pause(self, queue_id: int, since: float) -> float:
        ends = [since, *(end for queue, _, _, end in self.intervals if queue == queue_id)]
        ends = [end for end in ends if end >= since]
        return max(after - before for before, after in itertools.pairwise(ends))


@asynccontextmanager
async def two_members(
    cluster: EmbeddedCluster, queues: int = 4
) -> AsyncIterator[tuple[Work, ClientInstance]]:
    work = Work()
    async with (
        client_of(cluster, host="10.0.0.101") as first,
        client_of(cluster, host="10.0.0.102") as second,
        trio.open_nursery() as nursery,
    ):
        await send(first, 2000, queues=queues)
        nursery.start_soon(work.member, first, "first")
        nursery.start_soon(work.member, second, "second")
        await trio.sleep(50)  # Both have their queues, whatever locks had to run out.
        yield work, first
        assert not work.overlaps
        nursery.cancel_scope.cancel()
