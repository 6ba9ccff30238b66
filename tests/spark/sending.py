"""Writing a task's rows in a loop of trio, without Spark's thread: for tests under a virtual clock."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pyarrow as pa
import trio
from tests.support.clients import client_of
from tests.support.orders import make_topic, messages_of

from rocketrio import ClientInstance, MessageExt, MessageQueue
from rocketrio.cluster.connections import Connections
from rocketrio.producing.send_request import SendRequest
from rocketrio.spark.access import ClusterAccess
from rocketrio.spark.runtime import first_cause
from rocketrio.spark.writing.options import WriteOptions
from rocketrio.spark.writing.rows import RowEncoder
from rocketrio.spark.writing.schema import WriteColumns
from rocketrio.spark.writing.sending import Sender, Wanted
from rocketrio.spark.writing.written import Written
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import RequestTimeoutError

TOPIC, QUEUES = "orders", 4


@attrs.define
class Unreliable(Connections):
    """Connections on which a test decides what becomes of each send."""

    disturb: Callable[[str, SendRequest], Any] = attrs.field(kw_only=True)
    """Awaited before the broker gets the request; what it returns is awaited after, and may raise."""
    under_way: Counter[int] = attrs.field(factory=Counter, kw_only=True)
    most: Counter[int] = attrs.field(factory=Counter, kw_only=True)
    """Requests at once, by queue; -1 stands for all."""

    async def call(
        self, addr: str, request: Any, body: Any = b"", *, timeout: float, now: float | None = None
    ) -> RemotingCommand:
        if not isinstance(request, SendRequest):
            return await super().call(addr, request, body, timeout=timeout, now=now)
        for each in (-1, request.queue.queue_id):
            self.under_way[each] += 1
            self.most[each] = max(self.most[each], self.under_way[each])
        try:
            after = await self.disturb(addr, request)
            answer = await super().call(addr, request, body, timeout=timeout)
            if after is not None:
                await after()
            return answer
        finally:
            for each in (-1, request.queue.queue_id):
                self.under_way[each] -= 1


class Task:
    """Takes the place of Spark's thread: encodes what is wanted next, in the same loop."""

    def __init__(
        self, batches: Iterable[Any], options: WriteOptions, columns: WriteColumns
    ) -> None:
        self.batches = iter(batches)
        self.options, self.columns = options, columns
        self.wanted = 0
        self.encoder: RowEncoder | None = None

    async def put(self, wanted: Wanted) -> None:
        await trio.lowlevel.checkpoint()
        self.wanted += 1
        if self.encoder is None:
            self.encoder = RowEncoder(self.columns, self.options, wanted.unique_ids, task_id=0)
        batch = next(self.batches, None)
        if batch is None:
            wanted.end()
        else:
            wanted.give(self.encoder.encode(batch))


@asynccontextmanager
async def one_master(**settings: Any) -> AsyncIterator[tuple[EmbeddedCluster, ClientInstance]]:
    async with (
        EmbeddedCluster(**settings) as cluster,
        client_of(cluster) as client,
    ):
        await make_topic(client, TOPIC, queues=QUEUES)
        yield cluster, client


def disturbed(client: ClientInstance, disturb: Callable[[str, SendRequest], Any]) -> Unreliable:
    unreliable = Unreliable(client.connections.pool, disturb=disturb)
    client.connections = unreliable
    return unreliable


async def write(
    client: ClientInstance,
    batches: Sequence[Any],
    columns: WriteColumns | None = None,
    **given: Any,
) -> Written:
    """What a task has written when its `run` returns."""
    options = WriteOptions(("unused:1",), **{"topic": TOPIC, "send_batch_size": 1000, **given})

    async def find(name_servers: Sequence[str], _: ClusterAccess) -> ClientInstance:
        await trio.lowlevel.checkpoint()
        return client

    sender = Sender(find, options)
    task = Task(batches, options, columns or WriteColumns(0))
    try:
        await sender.run(task)  # type: ignore[arg-type]  # It has what a Handover has.
    except BaseExceptionGroup as group:
        error = first_cause(group)
    else:
        return sender.written
    raise error


def numbered(first: int, count: int, **columns: Any) -> Any:
    bodies = pa.array([b"%d" % number for number in range(first, first + count)], pa.binary())
    arrays = {"body": bodies, **{name: pa.array(values) for name, values in columns.items()}}
    return pa.RecordBatch.from_pydict(arrays)


async def stored(client: ClientInstance, queues: int = QUEUES) -> dict[int, list[MessageExt]]:
    """Return the messages of the topic by the ids of their queues, but for empty ones."""
    await client.refresh_topic_route(TOPIC)
    every = [MessageQueue(TOPIC, "broker-a", queue_id) for queue_id in range(queues)]
    found = {queue.queue_id: await messages_of(client, queue) for queue in every}
    return {queue_id: messages for queue_id, messages in found.items() if messages}


def bodies(found: dict[int, list[MessageExt]]) -> list[int]:
    return sorted(int(message.body) for each in found.values() for message in each)


async def no_answer() -> None:
    raise RequestTimeoutError("the answer is lost")
