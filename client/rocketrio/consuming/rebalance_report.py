"""What a rebalance moved, for people and programs that watch a group.

Unlike Java: it has no such report; its MessageQueueListener tells a member of its own queues alone.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import attrs

from rocketrio_protocol.message import MessageQueue

RECENT_REBALANCES: Final = 100
"""Reports a consumer keeps."""


@attrs.frozen
class Rebalance:
    """One topic's queues were shared anew, as this member sees it."""

    when: datetime
    topic: str
    gained: tuple[MessageQueue, ...]
    lost: tuple[MessageQueue, ...]
    joined: tuple[str, ...]
    """Client ids that are members since."""
    left: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"topic={self.topic} gained={_ids(self.gained)} lost={_ids(self.lost)}"
            f" joined={','.join(self.joined) or 'nobody'} left={','.join(self.left) or 'nobody'}"
        )


@attrs.frozen
class Share:
    """Who shares a topic, and what of it is ours."""

    members: frozenset[str] = frozenset()
    queues: frozenset[MessageQueue] = frozenset()

    @classmethod
    def of(cls, members: Iterable[str], queues: Iterable[MessageQueue]) -> "Share":
        return cls(frozenset(members), frozenset(queues))


def report(topic: str, before: Share, after: Share, when: datetime) -> Rebalance | None:
    """What changed for this member, or who came and went; None where nothing did."""
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
