"""One pull of one queue, wherever it can be had: the table says where, failures say where not.

Invariant: a commit travels with a pull only to a master.
Invariant: each address is tried once a call, and the route is fetched anew at most once.
Answers to: PullAPIWrapper.
Unlike Java: a broker that cannot be reached is replaced within the call, not by an error and a pause of 3 s.
"""

import logging
from typing import Final

import attrs
import trio

from rocketrio.instance import ClientInstance
from rocketrio.pull_result import PullResult
from rocketrio.routing import FindBrokerResult
from rocketrio.subscription import ALL, TAG_EXPRESSION_TYPE, Subscription
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
PULL_MAX_BYTES: Final = 1024 * 1024
"""Body bytes asked for at once, of brokers that let the client say so (5.x and ours)."""
ROUTE_MAX_AGE: Final = 1.0
"""Seconds a route may be old to be believed after a failure."""

logger = logging.getLogger("rocketrio.pull")


@attrs.define
class PullAPIWrapper:
    """Pulls for one group."""

    client: ClientInstance
    group: str

    async def pull_kernel(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = PULL_BATCH_SIZE,
        max_bytes: int = PULL_MAX_BYTES,
        subscription: Subscription = ALL,
        commit_offset: int | None = None,
        suspend_timeout: float = SUSPEND_TIMEOUT,
        timeout: float | None = None,
    ) -> PullResult:
        """Messages of `queue` from `offset` on.

        When there are none the broker holds the request for `suspend_timeout` seconds (0: it answers at once).
        `commit_offset` is committed on the way if a master is asked. `timeout` bounds each attempt, by default five
        seconds more than the suspension. Raises NotReachable when no broker of the queue answers, RouteNotFound when
        none is known, BrokerError when one refuses. A cancel loses nothing: pulling again brings the same messages.
        """
        if timeout is None:
            timeout = suspend_timeout + PULL_GRACE
        tried: set[str] = set()
        failure: Error | None = None
        is_fresh = False
        while True:
            found = self._find(queue)
            if found is None or found.addr in tried:
                if is_fresh:
                    raise failure or RouteNotFound(
                        f"no broker named {queue.broker_name} is known", topic=queue.topic
                    )
                is_fresh = True
                await self.client.refresh_topic_route(queue.topic, max_age=ROUTE_MAX_AGE)
                continue
            header = self._header(
                queue,
                offset,
                found,
                max_messages,
                max_bytes,
                subscription,
                commit_offset,
                suspend_timeout,
            )
            try:
                return await self._pull_from(found, queue, header, subscription, timeout)
            except (NotReachable, BrokerError) as error:
                if isinstance(error, BrokerError) and not (found.is_slave and error.stale_route):
                    raise
                # Also from a slave that has not copied topic or group yet: the master has them.
                failure = error
                tried.add(found.addr)
                logger.warning(
                    "pull moves on queue=%s offset=%d failed_addr=%s error=%s",
                    queue, offset, found.addr, error.what,
                )  # fmt: skip

    def _find(self, queue: MessageQueue) -> FindBrokerResult | None:
        routing = self.client.routing
        broker_id = routing.recalculate_pull_from_which_node(queue)
        return routing.find_broker_address_in_subscribe(queue.broker_name, broker_id)

    def _header(
        self,
        queue: MessageQueue,
        offset: int,
        found: FindBrokerResult,
        max_messages: int,
        max_bytes: int,
        subscription: Subscription,
        commit_offset: int | None,
        suspend_timeout: float,
    ) -> PullMessageRequestHeader:
        # The expression goes with every pull, so that a broker which has not had our heartbeat serves it too.
        sys_flag = PullSysFlag.SUBSCRIPTION
        if suspend_timeout > 0:
            sys_flag |= PullSysFlag.SUSPEND
        if commit_offset is not None and commit_offset > 0 and found.broker_id == MASTER_ID:
            sys_flag |= PullSysFlag.COMMIT_OFFSET
        return PullMessageRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=int(sys_flag),
            commit_offset=commit_offset or 0,
            suspend_timeout_millis=round(suspend_timeout * 1000),
            sub_version=0,
            subscription=subscription.expression,
            expression_type=TAG_EXPRESSION_TYPE,
            max_msg_bytes=max_bytes,
            limited_by_bytes=True,
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
        started = trio.current_time()
        try:
            result = await client.api.pull_message(found.addr, header, timeout=timeout)
        except NotReachable:
            client.mark_unreachable(found.addr, spent=trio.current_time() - started)
            raise
        except BrokerError as error:
            if error.stale_route and found.is_slave:
                client.mark_unreachable(found.addr, spent=0.0)
            elif error.stale_route:
                await client.refresh_topic_route(queue.topic, max_age=ROUTE_MAX_AGE)
            raise
        client.mark_reachable(found.addr)
        client.routing.update_pull_from_which_node(queue, result.suggest_which_broker_id)
        result.broker_id = found.broker_id
        result.broker_name = queue.broker_name
        result.tags = subscription.tags
        return result
