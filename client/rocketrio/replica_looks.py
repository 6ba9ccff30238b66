"""Looks at the replicas of a queue: how far each is, and how long its answer takes.

Only for policies that read elsewhere than suggested. A look is one cheap request to each replica at the same time,
before a pull, when what is known has become too old: round trips every 10 s, staleness every second.

Invariant: replicas that failed a moment ago are not asked; one that does not answer a look is passed over.
"""

from typing import Final

import attrs
import trio

from rocketrio.instance import ClientInstance
from rocketrio.routing import FindBrokerResult
from rocketrio.routing.pull_nodes import PullNodes
from rocketrio_protocol.errors import Error, NotReachable
from rocketrio_protocol.message import MessageQueue

STALENESS_MAX_AGE: Final = 1.0
"""Seconds that what is known of a queue's replicas may be old, where it decides."""
ROUND_TRIP_MAX_AGE: Final = 10.0
"""Seconds that a measured round trip holds."""
LOOK_TIMEOUT: Final = 1.0
"""Seconds a replica has to answer: one that needs more is none to read from."""


@attrs.define
class ReplicaLooks:
    """The looks of one consumer."""

    client: ClientInstance
    nodes: PullNodes

    def are_due(self, queue: MessageQueue, now: float) -> bool:
        """Whether something that decides is known too little, or was too long ago."""
        live = self.client.routing.live(queue.broker_name)
        return any(self._is_due(queue, found, now) for found in live)

    async def look(self, queue: MessageQueue) -> None:
        """Ask every live replica. Never fails; takes LOOK_TIMEOUT seconds at most. A cancel leaves what was learnt."""
        async with trio.open_nursery() as nursery:
            for found in self.client.routing.live(queue.broker_name):
                nursery.start_soon(self._ask, queue, found)

    def _is_due(self, queue: MessageQueue, found: FindBrokerResult, now: float) -> bool:
        policy = self.nodes.policy
        if policy.read_from == "nearest" and (
            self.client.round_trips.age(found.addr, now) > ROUND_TRIP_MAX_AGE
        ):
            return True
        if not policy.is_bounded:
            return False
        return self.nodes.views_of(queue).age(found.broker_id, now) > STALENESS_MAX_AGE

    async def _ask(self, queue: MessageQueue, found: FindBrokerResult) -> None:
        client = self.client
        started = trio.current_time()
        try:
            await client.pool.channel(found.addr, timeout=LOOK_TIMEOUT)
            asked_at = trio.current_time()
            rest = max(0.0, started + LOOK_TIMEOUT - asked_at)
            end = await client.api.queue_end(found.addr, queue, timeout=rest)
        except NotReachable:
            client.mark_unreachable(found.addr, spent=trio.current_time() - started)
            client.silence.failed(found.addr, queue)
            return
        except Error:
            return  # It answered, and knows nothing of this queue: as before.
        now = trio.current_time()
        client.round_trips.note(found.addr, now - asked_at, now)
        self.nodes.views_of(queue).note(found.broker_id, end.max_offset, end.level_age, now)
