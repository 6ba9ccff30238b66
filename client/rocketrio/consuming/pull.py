"""One pull of one queue, wherever it can be had: the table says where, failures say where not.

Invariant: a commit travels with a pull only to a master.
Invariant: each address is tried once a call, and the route is fetched anew at most once.
Invariant: a former master that answers as a slave is believed only while the route still names it.
Invariant: a master that refuses for another one's sake is replaced within the call, once the route names that one.
Invariant: a connection on which a pull waits is watched (silence.py): a silent one costs two seconds, not a timeout.
Answers to: PullAPIWrapper.
Unlike Java: a broker that cannot be reached is replaced within the call, not by an error and a pause of 3 s.
"""

import logging
from collections.abc import Callable
from typing import Final

import attrs
import trio

from rocketrio.consuming.offsets import PullCommit
from rocketrio.consuming.pull_budget import PULL_MAX_BYTES
from rocketrio.consuming.pull_result import PullResult
from rocketrio.consuming.subscription import ALL, Subscription
from rocketrio.instance import ClientInstance
from rocketrio.replica_looks import ReplicaLooks
from rocketrio.routing import FindBrokerResult, PullNodes, PullReason, ReadPolicy
from rocketrio.routing.pull_nodes import PullChoice
from rocketrio.routing.read_policy import SUGGESTED
from rocketrio.silence import SILENCE_LIMIT
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.pull import PullMessageRequestHeader, PullSysFlag
from rocketrio_protocol.errors import BrokerError, Error, NotReachable, RouteNotFound
from rocketrio_protocol.message import MessageQueue

SUSPEND_TIMEOUT: Final = 15.0
"""Seconds a broker may hold a pull that finds nothing (brokerSuspendMaxTimeMillis)."""
PULL_GRACE: Final = 5.0
"""Seconds beyond the suspension until a pull counts as lost; a broker looks at held pulls every 5 s."""
PULL_BATCH_SIZE: Final = 1024
"""Messages asked for at once. Apache answers with 32 at most (maxTransferCountOnMessageInMemory)."""
DIAL_LIMIT: Final = 2.0
"""Seconds until a connection that does not come about is waited for no longer: another replica may be there."""
HOLD_ELSEWHERE: Final = 5.0
"""Seconds a pull is held at most where it was not meant to go: then the wanted replica is looked for again."""
HOLD_WITH_BOUND: Final = 1.0
"""Seconds a pull is held at most where staleness matters: meanwhile nobody sees it grow."""
ROUTE_MAX_AGE: Final = 1.0
"""Seconds a route may be old to be believed after a failure."""

_NOT_AS_WANTED: Final = frozenset(
    (
        PullReason.PASSED_OVER,
        PullReason.TOO_STALE,
        PullReason.NOT_THERE_YET,
        PullReason.BEGINS_LATER,
    )
)

logger = logging.getLogger("rocketrio.pull")


@attrs.define
class PullAPIWrapper:
    """Pulls for one group."""

    client: ClientInstance
    group: str
    policy: ReadPolicy = SUGGESTED
    nodes: PullNodes = attrs.field(init=False)
    """Where each queue is pulled from, and why."""
    _looks: ReplicaLooks | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        client = self.client
        self.nodes = PullNodes(client.routing, self.group, self.policy, client.round_trips.seconds)
        self._looks = ReplicaLooks(client, self.nodes) if self.policy.needs_looks else None

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
        """Messages of `queue` from `offset` on, which was read in this epoch of the log.

        When there are none the broker holds the request for `suspend_timeout` seconds (0: it answers at once).
        `commit` says what is committed on the way to an address, if it is a master's. `timeout` bounds each attempt, by
        default five seconds more than the suspension. Raises NotReachable when no broker of the queue answers,
        RouteNotFound when none is known, BrokerError when one refuses. A cancel loses nothing: pulling again brings the
        same messages.
        """
        if timeout is None:
            timeout = suspend_timeout + PULL_GRACE
        tried: set[str] = set()
        failure: Error | None = None
        is_fresh = False
        while True:
            if self._looks is None:
                choice = self.nodes.choose(queue, offset, now=0.0)
            else:
                choice = await self._choose_looking(queue, offset, self._looks)
            if choice is None or choice.found.addr in tried:
                if is_fresh:
                    raise failure or self._nobody(queue)
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
                None if commit is None or found.is_slave else commit(found.addr),
                self._hold(choice, suspend_timeout),
                epoch,
            )
            try:
                return await self._pull_from(found, queue, header, subscription, timeout)
            except (NotReachable, BrokerError) as error:
                if isinstance(error, BrokerError) and not (
                    error.stale_route and (found.is_slave or self._has_moved(found, queue))
                ):
                    raise
                # Also from a slave that has not copied topic or group yet: the master has them.
                failure = error
                tried.add(found.addr)
                logger.warning(
                    "pull moves on queue=%s offset=%d failed_addr=%s error=%s",
                    queue, offset, found.addr, error.what,
                )  # fmt: skip

    async def _check_still_master(self, found: FindBrokerResult, queue: MessageQueue) -> None:
        """A slave has answered for the master: what lies at a position there may be other than what was read before.

        Raises NotReachable if the name servers list another master by now, or none.
        """
        await self.client.refresh_topic_route(queue.topic, max_age=ROUTE_MAX_AGE)
        if self.client.routing.find_broker_address_in_publish(queue.broker_name) != found.addr:
            raise NotReachable("The former master is a slave now", broker_addr=found.addr)

    def _has_moved(self, found: FindBrokerResult, queue: MessageQueue) -> bool:
        """Whether the route names another master by now than the one that was asked."""
        master = self.client.routing.find_broker_address_in_publish(queue.broker_name)
        return master is not None and master != found.addr

    def next_node(self, queue: MessageQueue) -> int:
        """The broker id that the next pull goes to, as far as that can be said now."""
        if self.policy.read_from == "suggested":
            return self.client.routing.recalculate_pull_from_which_node(queue, self.group)
        counts = self.nodes.counts.get(queue)
        return MASTER_ID if counts is None else counts.last.found.broker_id

    def where_and_why(
        self, queue: MessageQueue
    ) -> tuple[str | None, PullReason | None, dict[PullReason, int]]:
        """The last pull's address and reason, and how many went for each reason."""
        counts = self.nodes.counts.get(queue)
        if counts is None:
            return None, None, {}
        return counts.last.found.addr, counts.last.reason, dict(counts.by_reason)

    def leave_slave(self, queue: MessageQueue) -> None:
        """What it answered may be wrong because it is behind: the master is asked next."""
        self.client.routing.update_pull_from_which_node(queue, MASTER_ID, self.group)
        if self._looks is not None:
            # Whoever is chosen by other rules counts as not having come this far.
            views = self.nodes.views_of(queue)
            last = self.nodes.counts[queue].last.found
            views.note(last.broker_id, -1, None, trio.current_time())

    async def _choose_looking(
        self, queue: MessageQueue, offset: int, looks: ReplicaLooks
    ) -> PullChoice | None:
        now = trio.current_time()
        if looks.are_due(queue, now):
            await looks.look(queue)
            now = trio.current_time()
        return self.nodes.choose(queue, offset, now=now)

    def _hold(self, choice: PullChoice, suspend_timeout: float) -> float:
        if self._looks is not None and self.policy.is_bounded and choice.found.is_slave:
            return min(suspend_timeout, HOLD_WITH_BOUND)
        if choice.reason in _NOT_AS_WANTED:
            return min(suspend_timeout, HOLD_ELSEWHERE)
        return suspend_timeout

    def _nobody(self, queue: MessageQueue) -> Error:
        name = queue.broker_name
        if self.client.routing.candidates(name):
            return NotReachable(
                f"no replica of {name} may be read with read_from={self.policy.read_from!r}:"
                " its master is not known, and no slave is known to be within the bound",
                topic=queue.topic,
            )
        return RouteNotFound(f"no broker named {name} is known", topic=queue.topic)

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
        # The expression goes with every pull, so that a broker which has not had our heartbeat serves it too.
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
        started = trio.current_time()
        watched = client.silence.begin(addr, queue)
        try:
            if client.pool.standing(addr) is None:
                await client.pool.channel(addr, timeout=min(timeout, DIAL_LIMIT))
            result = await client.api.pull_message(addr, header, timeout=timeout)
        except NotReachable:
            # What was held before cost nothing: it is known to have lived until a moment ago.
            spent = min(trio.current_time() - started, SILENCE_LIMIT)
            client.mark_unreachable(addr, spent=spent)
            client.silence.failed(addr, queue)
            raise
        except BrokerError as error:
            if error.stale_route and found.is_slave:
                client.mark_unreachable(addr, spent=0.0)
            elif error.stale_route:
                await client.refresh_topic_route(queue.topic, max_age=ROUTE_MAX_AGE)
            raise
        finally:
            watched.waiting -= 1
        client.mark_reachable(addr)
        if result.level_age is not None and not found.is_slave:
            await self._check_still_master(found, queue)
        client.routing.update_pull_from_which_node(
            queue, result.suggest_which_broker_id, self.group
        )
        if self._looks is not None:
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
