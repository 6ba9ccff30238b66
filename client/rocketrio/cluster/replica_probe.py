"""Probes the replicas of a queue: how far each is, and how long its answer takes.

Only for policies that depend on it. A probe is one cheap request to each replica concurrently, before a pull, when the
known values are too old: round trips every 10 s, staleness every second.

Invariant: replicas that failed recently are not probed; one that does not answer a probe is avoided.
Invariant: pulls of one reader under way at the same time wait for one probe.
"""

from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.cluster.probe import ProbeService
from rocketrio.routing import FindBrokerResult, PullNodes
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
    """The replica probes of one reader."""

    client: ClientInstance
    nodes: PullNodes
    probes: ProbeService
    """Probes an address that failed until it answers."""
    _under_way: dict[MessageQueue, trio.Event] = attrs.Factory(dict)

    def are_due(self, queue: MessageQueue, now: float) -> bool:
        """Return whether the policy needs a value that is unknown or too old."""
        live = self.nodes.router.live(queue.broker_name)
        return any(self._is_due(queue, found, now) for found in live)

    async def probe(self, queue: MessageQueue) -> None:
        """Probe every live replica, within REPLICA_PROBE_TIMEOUT. Never fails; a cancel keeps earlier answers."""
        under_way = self._under_way.get(queue)
        if under_way is not None:
            await under_way.wait()
            return
        over = self._under_way[queue] = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                for found in self.nodes.router.live(queue.broker_name):
                    nursery.start_soon(self._probe, queue, found)
        finally:
            del self._under_way[queue]
            over.set()

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
            self.probes.failed(found.addr, queue)
            return
        except Error:
            if found.is_slave and self.nodes.policy.is_bounded:
                self.nodes.lacks(queue, found, trio.current_time())
            return
        now = trio.current_time()
        client.round_trips.note(found.addr, now - sent_at, now)
        self.nodes.views_of(queue).note(found.broker_id, end.max_offset, end.level_age, now)
