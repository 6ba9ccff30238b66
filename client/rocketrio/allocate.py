"""Which queues a member of a group gets: a pure function that every member computes alike.

Invariant: members that see the same queues and members agree, and every queue has exactly one owner.
Answers to: AllocateMessageQueueAveragely; RocketMQ reference, section 9.7.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rocketrio_protocol.message import MessageQueue

AllocateStrategy: TypeAlias = Callable[
    [str, Sequence[str], Sequence[MessageQueue]], list[MessageQueue]
]
"""Own client id, sorted client ids, sorted queues of one topic: own queues."""


def allocate_averagely(
    client_id: str, client_ids: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """Runs of neighbouring queues, whose lengths differ by one at most; the first members get the longer ones.

    A client that is not in the list gets nothing.
    """
    if client_id not in client_ids:
        return []
    index, remainder = client_ids.index(client_id), len(queues) % len(client_ids)
    size = len(queues) // len(client_ids)
    start = index * size + min(index, remainder)
    return list(queues[start : start + size + (1 if index < remainder else 0)])
