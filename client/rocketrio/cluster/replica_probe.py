"""Probes the replicas of a queue: how far each is, and how long its answer takes.

Only for policies that do not follow suggestions. A probe is one cheap request to each replica concurrently, before a
pull, when the known values are too old: round trips every 10 s, staleness every second.

Invariant: replicas that failed recently are not probed; one that does not answer a probe is avoided.
"""

from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.routing import FindBrokerResult
from rocketrio.routing.pull_nodes import PullNodes
from rocketrio_protocol.errors import Error, NotReachableError
from rocketrio_protocol.message import MessageQueue

STALENESS_MAX_AGE: Final = 1.0
"""Maximum age in seconds of what is known about a queue's replicas, if the policy has a bound on staleness."""
ROUND_TRIP_MAX_AGE: Final = 10.0
"""Maximum age in seconds of a measured round trip."""
REPLICA_PROBE_TIMEOUT: Final = 1.0
"""Seconds that a replica has to answer: a slower one is not suitable for reading."""


@attrs.define
class ReplicaProbes:
    """The replica probes of one consumer."""

    client: ClientInstance
    nodes: PullNodes

    def are_due(self, queue: MessageQueue, now: float) -> bool:
        """Return whether the policy needs a value that is unknown or too old."""
        live = self.client.routing.live(queue.broker_name)
        return any(self._is_due(queue, found, now) for found in live)

    async def probe(self, queue: MessageQueue) -> None:
        """Probe every live replica, within REPLICA_PROBE_TIMEOUT. Never fails; a cancel keeps earlier answers."""
        async with trio.open_nursery() as nursery:
            for found in self.client.routing.live(queue.broker_name):
                nursery.start_soon(self._probe, queue, found)

    def _is_due(self, queue: MessageQueue, found: FindBrokerResult, now: float) -> bool:
        policy = self.nodes.policy
        if policy.read_from == "nearest" and (
            self.client.round_trips.age(found.addr, now) > ROUND_TRIP_MAX_AGE
        ):
            return True
        if not policy.is_bounded:
            return False
        return self.nodes.views_of(queue).age(found.broker_id, now) > STALENESS_MAX_AGE

    async def _probe(self, queue: MessageQueue, found: FindBrokerResult) -> None:
        client = self.client
        started = trio.current_time()
        try:
            await client.pool.channel(found.addr, timeout=REPLICA_PROBE_TIMEOUT)
            sent_at = trio.current_time()
            rest = max(0.0, started + REPLICA_PROBE_TIMEOUT - sent_at)
            end = await client.api.queue_end(found.addr, queue, timeout=rest)
        except NotReachableError:
            # It is in no further round then: `live` omits it until its own prober has an answer.
            client.mark_unreachable(found.addr, spent=trio.current_time() - started)
            client.probes.failed(found.addr, queue)
            return
        except Error:
            return  # It answered, but does not know this queue: nothing changes.
        now = trio.current_time()
        client.round_trips.note(found.addr, now - sent_at, now)
        self.nodes.views_of(queue).note(found.broker_id, end.max_offset, end.level_age, now)
