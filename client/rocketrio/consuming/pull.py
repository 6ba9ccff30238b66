"""One pull of one queue, from any replica that has it: a table says which replica is preferred, failures exclude some.

Invariant: a commit is sent with a pull only to a master.
Invariant: each address is tried once per call, and the route is refreshed at most once.
Invariant: a former master that answers as a slave is believed only while the route still lists it as the master.
Invariant: if a master refuses because another one has replaced it, the call moves on once the route lists that one.
Invariant: a connection on which a pull waits is probed (cluster/probe.py): a dead one costs two seconds, not a timeout.
Answers to: PullAPIWrapper.
Unlike Java: a broker that cannot be reached is replaced within the call, not after an error and a pause of 3 s.
"""

import logging
from collections.abc import Callable
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.cluster.probe import SILENCE_LIMIT, ProbeService
from rocketrio.cluster.replica_probe import ReplicaProbes
from rocketrio.consuming.offsets import PullCommit
from rocketrio.consuming.pull_budget import PULL_MAX_BYTES
from rocketrio.consuming.pull_result import PullResult
from rocketrio.consuming.subscription import ALL, Subscription
from rocketrio.routing import FindBrokerResult, PullNodes, PullReason, ReadPolicy
from rocketrio.routing.pull_nodes import PullChoice
from rocketrio.routing.read_policy import SUGGESTED
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.pull import PullMessageRequestHeader, PullSysFlag
from rocketrio_protocol.errors import (
    AccessRefusedError,
    BrokerError,
    Error,
    NotReachableError,
    RouteNotFoundError,
)
from rocketrio_protocol.message import MessageQueue

SUSPEND_TIMEOUT: Final = 15.0
"""Seconds that a broker may hold a pull that finds nothing (brokerSuspendMaxTimeMillis)."""
PULL_GRACE: Final = 5.0
"""Seconds beyond the suspension until a pull counts as lost; a broker checks held pulls every 5 s."""
PULL_BATCH_SIZE: Final = 1024
"""The number of messages requested at once. Apache answers with 32 at most (maxTransferCountOnMessageInMemory)."""
DIAL_LIMIT: Final = 2.0
"""Seconds to wait for a new connection: another replica may be available."""
HOLD_ELSEWHERE: Final = 5.0
"""Maximum seconds that a pull is held at a replica that was not the wanted one; then the wanted one is tried again."""
HOLD_WITH_BOUND: Final = 1.0
"""Maximum seconds that a pull is held if staleness matters: growth of the staleness is not seen meanwhile."""
ROUTE_MAX_AGE: Final = 1.0
"""Maximum age in seconds of a route that is believed after a failure."""

_NOT_PREFERRED: Final = frozenset(
    (
        PullReason.SKIPPED,
        PullReason.TOO_STALE,
        PullReason.NOT_THERE_YET,
        PullReason.BEGINS_LATER,
    )
)

logger = logging.getLogger("rocketrio.pull")


@attrs.define
class PullAPIWrapper:
    """Pulls on behalf of one group."""

    client: ClientInstance
    group: str
    policy: ReadPolicy = SUGGESTED
    nodes: PullNodes = attrs.field(init=False)
    """Chooses where each queue is pulled from, and records why."""
    _probes: ReplicaProbes | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        client = self.client
        self.nodes = PullNodes(client.routing, self.group, self.policy, client.round_trips.seconds)
        self._probes = ReplicaProbes(client, self.nodes) if self.policy.needs_probes else None

    async def pull_kernel(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = PULL_BATCH_SIZE,
        max_bytes: int = PULL_MAX_BYTES,
        subscription: Subscription = ALL,
        commit: Callable[[str], PullCommit | None] | None = None,
        epoch: str | None = None,
        suspend_timeout: float = SUSPEND_TIMEOUT,
        timeout: float | None = None,
    ) -> PullResult:
        """Pull messages of `queue` from `offset`, which was read in this epoch of the log.

        If there are none, the broker holds the request for `suspend_timeout` seconds (0: it answers immediately).
        `commit` returns what is committed at an address, if it is a master's. `timeout` bounds each attempt; the
        default is five seconds more than the suspension. Raises NotReachableError if no broker of the queue answers,
        RouteNotFoundError if none is known, BrokerError if one refuses. A cancel loses nothing: pulling again returns
        the same messages.
        """
        if timeout is None:
            timeout = suspend_timeout + PULL_GRACE
        tried: set[str] = set()
        failure: Error | None = None
        is_fresh = False
        while True:
            if self._probes is None:
                choice = self.nodes.choose(queue, offset, now=0.0)
            else:
                choice = await self._choose_probed(queue, offset, self._probes)
            # Each address once, and one fresh route: a call that fails must end, so that its caller can pause.
            if choice is None or choice.found.addr in tried:
                if is_fresh:
                    raise failure or self._no_replica(queue)
                is_fresh = True
                await self.client.refresh_topic_route(queue.topic, max_age=ROUTE_MAX_AGE)
                continue
            found = choice.found
            self.nodes.count(queue, choice)
            header = self._header(
                queue,
                offset,
                found,
                max_messages,
                max_bytes,
                subscription,
                # Apache's slaves ignore it (PullMessageProcessor): it would count as sent, and be stored nowhere.
                None if commit is None or found.is_slave else commit(found.addr),
                self._hold(choice, suspend_timeout),
                epoch,
            )
            try:
                return await self._pull_from(found, queue, header, subscription, timeout)
            except (NotReachableError, BrokerError) as error:
                if isinstance(error, BrokerError) and not (
                    (isinstance(error, AccessRefusedError) and found.is_slave)
                    or (error.stale_route and (found.is_slave or self._has_moved(found, queue)))
                ):
                    raise
                # This includes a slave that has not copied the topic, group or account yet: the master has them.
                failure = error
                tried.add(found.addr)
                logger.warning(
                    "pull tries another broker queue=%s offset=%d failed_addr=%s error=%s",
                    queue, offset, found.addr, error.what,
                )  # fmt: skip

    async def _check_still_master(self, found: FindBrokerResult, queue: MessageQueue) -> None:
        """Check the route after a slave answered for the master: the messages at a position there may differ.

        Raises NotReachableError if the name servers list another master by now, or none.
        """
        await self.client.refresh_topic_route(queue.topic, max_age=ROUTE_MAX_AGE)
        if self.client.routing.find_broker_address_in_publish(queue.broker_name) != found.addr:
            raise NotReachableError("The former master is a slave now", broker_addr=found.addr)

    def _has_moved(self, found: FindBrokerResult, queue: MessageQueue) -> bool:
        """Return whether the route now names another master than the one that was asked."""
        master = self.client.routing.find_broker_address_in_publish(queue.broker_name)
        return master is not None and master != found.addr

    def next_node(self, queue: MessageQueue) -> int:
        """Return the broker id that the next pull goes to, as far as it is known."""
        if self.policy.read_from == "suggested":
            return self.client.routing.recalculate_pull_from_which_node(queue, self.group)
        counts = self.nodes.counts.get(queue)
        return MASTER_ID if counts is None else counts.last.found.broker_id

    def last_choice(
        self, queue: MessageQueue
    ) -> tuple[str | None, PullReason | None, dict[PullReason, int]]:
        """Return the last pull's address and reason, and the number of pulls for each reason."""
        counts = self.nodes.counts.get(queue)
        if counts is None:
            return None, None, {}
        return counts.last.found.addr, counts.last.reason, dict(counts.by_reason)

    def last_broker(self, queue: MessageQueue) -> tuple[str, int] | None:
        """Return the address and the id of the broker that the last pull went to; None before the first pull."""
        counts = self.nodes.counts.get(queue)
        return None if counts is None else (counts.last.found.addr, counts.last.found.broker_id)

    def prefer_master(self, queue: MessageQueue) -> None:
        """Ask the master next: the slave's answer may be wrong because it is behind."""
        self.client.routing.update_pull_from_which_node(queue, MASTER_ID, self.group)
        if self._probes is not None:
            # For other read policies: treat the slave as not having come this far.
            views = self.nodes.views_of(queue)
            last = self.nodes.counts[queue].last.found
            views.note(last.broker_id, -1, None, trio.current_time())

    async def _choose_probed(
        self, queue: MessageQueue, offset: int, probes: ReplicaProbes
    ) -> PullChoice | None:
        now = trio.current_time()
        if probes.are_due(queue, now):
            await probes.probe(queue)
            now = trio.current_time()
        return self.nodes.choose(queue, offset, now=now)

    def _hold(self, choice: PullChoice, suspend_timeout: float) -> float:
        if self._probes is not None and self.policy.is_bounded and choice.found.is_slave:
            return min(suspend_timeout, HOLD_WITH_BOUND)
        if choice.reason in _NOT_PREFERRED:
            return min(suspend_timeout, HOLD_ELSEWHERE)
        return suspend_timeout

    def _no_replica(self, queue: MessageQueue) -> Error:
        name = queue.broker_name
        if self.client.routing.candidates(name):
            return NotReachableError(
                f"no replica of {name} may be read with read_from={self.policy.read_from!r}:"
                " its master is not known, and no slave is known to be within the bound",
                topic=queue.topic,
            )
        return RouteNotFoundError(f"no broker named {name} is known", topic=queue.topic)

    def _header(
        self,
        queue: MessageQueue,
        offset: int,
        found: FindBrokerResult,
        max_messages: int,
        max_bytes: int,
        subscription: Subscription,
        commit: PullCommit | None,
        suspend_timeout: float,
        epoch: str | None,
    ) -> PullMessageRequestHeader:
        # The expression is sent with every pull, so that a broker without this client's heartbeat can answer too.
        sys_flag = PullSysFlag.SUBSCRIPTION
        if suspend_timeout > 0:
            sys_flag |= PullSysFlag.SUSPEND
        if commit is not None:
            sys_flag |= PullSysFlag.COMMIT_OFFSET
        return PullMessageRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=int(sys_flag),
            commit_offset=0 if commit is None else commit.offset,
            suspend_timeout_millis=round(suspend_timeout * 1000),
            sub_version=self.client.wall_clock.now_ms() if subscription.is_sql92 else 0,  # as Java
            subscription=subscription.expression,
            expression_type=subscription.expression_type,
            max_msg_bytes=max_bytes,
            limited_by_bytes=True,
            epoch=epoch,
            generation=None if commit is None else commit.generation,
            ownership=None if commit is None else commit.ownership,
            broker_name=queue.broker_name,
        )

    async def _pull_from(
        self,
        found: FindBrokerResult,
        queue: MessageQueue,
        header: PullMessageRequestHeader,
        subscription: Subscription,
        timeout: float,
    ) -> PullResult:
        client = self.client
        addr = found.addr
        try:
            result = await pull_watched(
                client,
                client.probes,
                addr,
                queue,
                header,
                connect_timeout=min(timeout, DIAL_LIMIT),
                timeout=timeout,
            )
        except BrokerError as error:
            if found.is_slave and (error.stale_route or isinstance(error, AccessRefusedError)):
                client.mark_unreachable(addr, spent=0.0)
            elif error.stale_route:
                await client.refresh_topic_route(queue.topic, max_age=ROUTE_MAX_AGE)
            raise
        # Only slaves report it: this former master is one, and its log may end differently from that of the new master.
        if result.level_age is not None and not found.is_slave:
            await self._check_still_master(found, queue)
        client.routing.update_pull_from_which_node(
            queue, result.suggest_which_broker_id, self.group
        )
        if self._probes is not None:
            self.nodes.views_of(queue).note(
                found.broker_id,
                result.max_offset,
                result.level_age,
                trio.current_time(),
                min_offset=result.min_offset,
            )
        result.broker_id = found.broker_id
        result.broker_name = queue.broker_name
        result.tags = subscription.tags
        result.namespace = self.client.namespace or None
        return result


async def pull_watched(
    client: ClientInstance,
    probes: ProbeService,
    addr: str,
    queue: MessageQueue,
    header: PullMessageRequestHeader,
    *,
    connect_timeout: float,
    timeout: float,
) -> PullResult:
    """Pull from an address, of which `probes` notices if it dies meanwhile, and record whether it can be reached."""
    started = trio.current_time()
    watched = probes.begin(addr, queue)
    try:
        if client.pool.open_channel(addr) is None:
            await client.pool.channel(addr, timeout=connect_timeout)
        result = await client.api.pull_message(addr, header, timeout=timeout)
    except NotReachableError:
        # The time for which the pull was held does not count: the broker was alive until a moment ago.
        client.mark_unreachable(addr, spent=min(trio.current_time() - started, SILENCE_LIMIT))
        probes.failed(addr, queue)
        raise
    finally:
        watched.waiting -= 1
    client.mark_reachable(addr)
    return result
