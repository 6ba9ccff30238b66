"""Pulls the messages of one task from its brokers, decides what their answers mean, and reports losses.

    a replica fails or lacks it     the next one, in the same round
    no replica is left              the name server's newest addresses, a pause, another round (`readRetries`)

Each range is a reader of its own (`ReplicaPulls` of `consuming/pull.py`): an answer's suggestion counts for the range,
and ranges spread over the slaves. `judge` decides what an answer means for a reader that planned to read up to a fixed
end: a slave may be behind its master, so the master is asked for what the slave lacks before anything counts as lost.

Invariant: a pull ends with progress, or with an error that says why there is none.
Invariant: progress follows the answer's next offset; nothing outside the planned range is read.
Invariant: a slave that is behind causes no loss: only the master's answer can.
Answers to: PullAPIWrapper, for a reader that was given the addresses and never commits; RocketMQ reference, sections
8.1 and 8.3.
Unlike Java: addresses come with the task, so that executors need no name server; it is asked only if all addresses
have failed.
"""

import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final, TypeAlias

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.cluster.probe import ProbeService
from rocketrio.consuming.pull import PullRounds, ReplicaPulls, pull_header
from rocketrio.consuming.pull_result import PullResult, PullStatus
from rocketrio.consuming.subscription import ALL
from rocketrio.routing import FindBrokerResult, PullNodes, Router
from rocketrio.routing.read_policy import ReplicaPolicy
from rocketrio.routing.replica_views import ReplicaViews
from rocketrio.spark.errors import AccessDeniedError, BrokerUnreachableError, SparkSourceError
from rocketrio.spark.reading.offsets import Bounds, Loss, QueueRange
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.plan import ReadTask
from rocketrio.spark.reading.salvage import records_below
from rocketrio_protocol.errors import (
    AccessRefusedError,
    BrokerError,
    Error,
    NotReachableError,
    TopicNotExistError,
)
from rocketrio_protocol.frame import Body
from rocketrio_protocol.message import MessageQueue

RETRY_PAUSE: Final = 0.2
"""Seconds before the second round, doubled for each further round (fetchOffset.retryIntervalMs)."""
MAX_RETRY_PAUSE: Final = 5.0

logger = logging.getLogger("rocketrio.spark.sources")


@attrs.frozen
class Answer:
    """Records from the pulled offset to before `next_offset`, which lies beyond the requested end if all is lost."""

    next_offset: int
    body: Body = b""


@attrs.frozen
class Take:
    """Messages up to `next_offset`, or none if the filter dropped all of them."""

    next_offset: int


@attrs.frozen
class Lost:
    """Messages up to `next_offset` no longer exist."""

    next_offset: int


@attrs.frozen
class Again:
    """The answer decides nothing: ask again later; `is_lost_at_last` says whether a last such answer means a loss."""

    is_lost_at_last: bool = True


@attrs.frozen
class AskMaster:
    """The slave does not have the messages; the master may."""


Verdict: TypeAlias = Take | Lost | Again | AskMaster


@attrs.define
class ServedRows:
    """What one address has returned to a task."""

    broker_name: str
    broker_id: int
    pulls: int = 0
    size: int = 0
    """Bytes of stored records."""


class TaskSource:
    """Pulls messages for one task; `run` must be running meanwhile."""

    def __init__(self, task: ReadTask, options: ReadOptions, client: ClientInstance) -> None:
        self._options = options
        self._client = client
        self._router = task_router(task.addresses, client.routing)
        self._probes = ProbeService(
            client.pool,
            self._router,
            client.faults,
            lambda addr, spent: client.mark_unreachable(addr, spent=spent),
            client.mark_reachable,
        )
        self._rounds = PullRounds(options.read_retries, RETRY_PAUSE, MAX_RETRY_PAUSE, asks_all=True)
        self._readers: dict[QueueRange, ReplicaPulls] = {}
        policy = ReplicaPolicy(options.read_from, options.max_staleness)
        views: dict[MessageQueue, ReplicaViews] = {}
        for part, broker_id in task.beginnings():
            name = str(part)
            nodes = PullNodes(self._router, name, policy, views=views)
            self._router.update_pull_from_which_node(part.queue, broker_id, name)
            known = nodes.views_of(part.queue)
            known.planned_end = max(known.planned_end, part.end)
            self._readers[part] = ReplicaPulls(client, nodes, self._probes)
        self._lost_up_to: dict[QueueRange, int] = {}
        self._logged: set[str] = set()
        """Addresses that have failed and not answered since, so that each outage is logged once."""
        self.served: dict[str, ServedRows] = {}
        """What each address has returned."""

    async def run(self) -> None:
        """Detect brokers that stop answering while pulls wait for them."""
        await self._probes.run()

    async def pull(self, part: QueueRange, offset: int, end: int) -> Answer:
        """Return messages of the range from `offset`, at most up to `end`. Raises SparkSourceError."""
        reader, queue = self._readers[part], part.queue
        failure: Error | None = None
        undecided: tuple[int, PullResult] | None = None
        renew = partial(self._find_addresses, part)
        replicas = reader.in_turn(queue, offset, self._rounds, renew)
        async for choice in replicas:
            found = choice.found
            try:
                result = await self._pull_from(found, reader, queue, offset, end)
            except NotReachableError as error:
                failure = error
                self._log_failure(found, part, offset, error)
                continue
            except BrokerError as error:
                failure = error
                if isinstance(error, AccessRefusedError) and not found.is_slave:
                    raise AccessDeniedError.because(error, f"{part} cannot be read") from error
                if found.is_slave:  # It may not know a new topic or group yet.
                    reader.nodes.lacks(queue, found, trio.current_time())
                elif await self._is_gone(part, error):
                    return self._lost(part, offset, None)
                elif not error.retryable:
                    raise SparkSourceError(f"{part} cannot be read: {error}") from error
                continue
            match self._judged(part, offset, end, replicas.tried, result):
                case Take(next_offset):
                    return Answer(min(next_offset, end), _up_to(end, next_offset, result.body))
                case Lost():
                    return self._lost(part, offset, result)
                case Again(is_lost_at_last):
                    if is_lost_at_last:
                        undecided = replicas.round, result
                case AskMaster():
                    pass
        # Only what the last round brought: an earlier answer may have come before the log was there again.
        if undecided is not None and undecided[0] == replicas.round:
            return self._lost(part, offset, undecided[1])
        raise self._unreachable(part, offset, failure) from failure

    def _judged(
        self,
        part: QueueRange,
        offset: int,
        end: int,
        tried: Collection[str],
        result: PullResult,
    ) -> Verdict:
        router = self._router
        master = router.find_broker_address_in_publish(part.broker_name)
        return judge(
            result,
            offset=offset,
            end=end,
            master_known=master is not None
            and master not in tried
            and not router.is_avoided(master),
            is_filtered=self._options.subscription != ALL,
        )

    # ------------------------------------------------------------------------------------- replicas

    async def _pull_from(
        self,
        found: FindBrokerResult,
        reader: ReplicaPulls,
        queue: MessageQueue,
        offset: int,
        end: int,
    ) -> PullResult:
        options = self._options
        header = pull_header(
            options.consumer_group,
            queue,
            offset,
            min(end - offset, options.pull_batch_size, options.batch_rows),
            options.subscription,
            max_bytes=options.batch_size,
        )
        result = await reader.send(
            found,
            queue,
            header,
            connect_timeout=options.connect_timeout,
            timeout=options.pull_timeout,
        )
        self._logged.discard(found.addr)
        reader.answered(queue, found, result)
        served = self.served.get(found.addr)
        if served is None:
            served = self.served[found.addr] = ServedRows(queue.broker_name, found.broker_id)
        served.pulls += 1
        served.size += len(result.body)
        return result

    def _log_failure(
        self, found: FindBrokerResult, part: QueueRange, offset: int, error: Error
    ) -> None:
        """Log one warning for each outage: all pulls under way fail at once, and again in each round."""
        level = logging.DEBUG if found.addr in self._logged else logging.WARNING
        self._logged.add(found.addr)
        logger.log(
            level, "pull failed, next replica range=%s offset=%d error=%s", part, offset, error
        )

    async def _find_addresses(self, part: QueueRange) -> None:
        """Use the addresses that a name server knows now, because all known ones failed."""
        try:
            route = await self._client.name_servers.topic_route(part.topic)
        except (NotReachableError, BrokerError) as error:
            logger.info("route not found topic=%s error=%s", part.topic, error.what)
            return
        for broker in [] if route is None else route.broker_datas:
            if broker.broker_name == part.broker_name and broker.broker_addrs:
                self._router.broker_addr_table[broker.broker_name] = dict(broker.broker_addrs)

    # ----------------------------------------------------------------------------------------- loss

    async def _is_gone(self, part: QueueRange, error: BrokerError) -> bool:
        """Return True if the queue of a pull that the master refused does not exist any more."""
        if isinstance(error, TopicNotExistError):
            return True
        try:
            route = await self._client.name_servers.topic_route(part.topic)
        except (NotReachableError, BrokerError):
            return False
        if route is None:
            return True
        counts = {data.broker_name: data.read_queue_nums for data in route.queue_datas}
        return part.queue_id >= counts.get(part.broker_name, 0)

    def _lost(self, part: QueueRange, offset: int, result: PullResult | None) -> Answer:
        """Report what the master's answer shows as lost from `offset` on; without an answer that is all of it."""
        bounds = None if result is None else Bounds(result.min_offset, result.max_offset)
        if bounds is not None and bounds.min_offset > offset:
            next_offset = min(part.end, bounds.min_offset)
        else:
            next_offset = part.end
            if bounds is not None and offset > bounds.max_offset:
                # Any of several pulls beyond the end may be answered first; they all report the same loss.
                offset = max(part.start, bounds.max_offset)
        error = Loss(part.queue, offset, next_offset, bounds).error()
        if self._options.fail_on_data_loss:
            raise error
        if next_offset > self._lost_up_to.get(part, -1):
            self._lost_up_to[part] = next_offset
            logger.warning("lost messages skipped error=%s", error.what)
        return Answer(next_offset)

    def _unreachable(
        self, part: QueueRange, offset: int, failure: Error | None
    ) -> BrokerUnreachableError:
        addresses = self._router.broker_addr_table.get(part.broker_name, {})
        known = ", ".join(f"{addr} (id {id_})" for id_, addr in sorted(addresses.items()))
        text = f"{part} cannot be read at {offset} from {known}"
        options = self._options
        if options.read_from != "auto":
            text += f" with readFrom={options.read_from}"
        if options.max_staleness is not None:
            text += f"; only slaves within maxStaleness={options.max_staleness} may be read"
        if failure is None:
            return BrokerUnreachableError(text)
        return BrokerUnreachableError.because(failure, text)


def task_router(addresses: Mapping[str, Mapping[int, str]], router: Router) -> Router:
    """Return the router of one task, which shares with the client's `router` which addresses failed recently."""
    table = {name: dict(addrs) for name, addrs in addresses.items()}
    return Router(broker_addr_table=table, is_avoided=router.is_avoided)


def judge(
    result: PullResult, *, offset: int, end: int, master_known: bool, is_filtered: bool = False
) -> Verdict:
    """Return what to do after the answer to a pull at `offset`, when messages up to `end` are planned."""
    if result.status is PullStatus.FOUND:
        # Apache's brokers never answer so without progress; accepting it would make an endless loop.
        return Take(result.next_begin_offset) if result.next_begin_offset > offset else Again()
    nothing_matched = (
        result.status is PullStatus.NO_MATCHED_MSG and result.next_begin_offset > offset
    )
    if is_filtered and nothing_matched and result.min_offset <= offset:
        return Take(min(result.next_begin_offset, end))  # A slave has filtered them too.
    if result.is_from_slave:
        return AskMaster() if master_known else Again(is_lost_at_last=False)
    if result.min_offset > offset:
        return Lost(min(result.min_offset, end))
    if nothing_matched:
        return Take(min(result.next_begin_offset, end))
    if result.status is PullStatus.OFFSET_ILLEGAL and result.max_offset <= offset:
        return Lost(end)
    # NO_NEW_MSG before the planned end: the log became shorter, or a broker that has just started has not built its
    # queues up to there yet. Any other status: a queue file that cannot be read now.
    return Again()


def _up_to(end: int, next_offset: int, body: Body) -> Body:
    """Return the records below `end`; brokers rarely return more than was requested."""
    if next_offset <= end:
        return body
    return records_below(bytes(body), end)
