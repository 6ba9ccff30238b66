"""Reports what a rebalance moved, for people and programs that monitor a group.

Unlike Java: Java has no such report; its MessageQueueListener only notifies a member of its own queues.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import attrs

from rocketrio_protocol.message import MessageQueue

RECENT_REBALANCES: Final = 100
"""The number of reports that a consumer keeps."""


@attrs.frozen
class Rebalance:
    """A change in how one topic's queues are shared, as this member sees it."""

    when: datetime
    topic: str
    gained: tuple[MessageQueue, ...]
    lost: tuple[MessageQueue, ...]
    joined: tuple[str, ...]
    """Client ids that have become members."""
    left: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"topic={self.topic} gained={_ids(self.gained)} lost={_ids(self.lost)}"
            f" joined={','.join(self.joined) or 'nobody'} left={','.join(self.left) or 'nobody'}"
        )


@attrs.frozen
class Share:
    """The members that share a topic, and this member's queues."""

    members: frozenset[str] = frozenset()
    queues: frozenset[MessageQueue] = frozenset()

    @classmethod
    def of(cls, members: Iterable[str], queues: Iterable[MessageQueue]) -> "Share":
        return cls(frozenset(members), frozenset(queues))


def report(topic: str, before: Share, after: Share, when: datetime) -> Rebalance | None:
    """Return what changed for this member, and which members joined or left; None without a change."""
    if before == after:
        return None
    return Rebalance(
        when,
        topic,
        gained=tuple(sorted(after.queues - before.queues)),
        lost=tuple(sorted(before.queues - after.queues)),
        joined=tuple(sorted(after.members - before.members)),
        left=tuple(sorted(before.members - after.members)),
    )


def _ids(queues: Iterable[MessageQueue]) -> str:
    return ",".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues) or "none"
