"""Computes which queues each member of a group gets: pure functions with which every member finds the same result.

| strategy | shares differ by | when a member comes or goes | in Java |
|---|---|---|---|
| `allocate_averagely` | one at most | about half of the queues move | yes, its default |
| `allocate_averagely_by_circle` | one at most | most queues move | yes |
| `allocate_by_consistent_hash` | up to four times the fair share | about a share moves | yes |
| `allocate_sticky` | one at most | one to three shares move | no |
| `allocate_by_config` | what was configured | nothing moves | yes |

All members of a group must use the same strategy. A group can mix rocketrio and Java members if the strategy is one of
Java's.

Invariant: members that see the same queues and members agree, and every queue has exactly one owner.
Answers to: AllocateMessageQueueAveragely, ...AveragelyByCircle, ...ByConfig, ...ConsistentHash, MD5Hash; RocketMQ
reference, section 9.7.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import attrs

from rocketrio_protocol.message import MessageQueue

AllocateStrategy: TypeAlias = Callable[
    [str, Sequence[str], Sequence[MessageQueue]], list[MessageQueue]
]
"""A function from own client id, sorted client ids and sorted queues of one topic to the member's own queues. A client
that is not in the list gets no queues."""

VIRTUAL_NODES: Final = 10
"""The number of places that each member has on the ring of `allocate_by_consistent_hash`, as in Java."""
_64_BITS: Final = (1 << 64) - 1


def allocate_averagely(
    client_id: str, client_ids: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """Return this member's run of neighbouring queues; the first members get the longer runs."""
    if client_id not in client_ids:
        return []
    index, remainder = client_ids.index(client_id), len(queues) % len(client_ids)
    size = len(queues) // len(client_ids)
    start = index * size + min(index, remainder)
    return list(queues[start : start + size + (1 if index < remainder else 0)])


def allocate_averagely_by_circle(
    client_id: str, client_ids: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """Return every n-th queue, as cards are dealt: each broker's queues are spread over the members."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def allocate_by_config(mine: Iterable[MessageQueue]) -> AllocateStrategy:
    """Return a strategy that always gives this member those queues of `mine` that the topic has.

    The caller must make sure that each queue is in exactly one member's list.
    """
    return _ByConfig(frozenset(mine))


@attrs.frozen
class _ByConfig:
    """The strategy of `allocate_by_config`: a class instead of a nested function, so that it can be pickled."""

    wanted: frozenset[MessageQueue]

    def __call__(
        self, client_id: str, client_ids: Sequence[str], queues: Sequence[MessageQueue]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        return [queue for queue in queues if queue in self.wanted]


def allocate_by_consistent_hash(
    client_id: str, client_ids: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """Return the queues whose next member on a hash ring is this member.

    Members and queues lie on the ring, and a queue belongs to the next member. In small groups the shares are uneven.
    """
    if client_id not in client_ids:
        return []
    # Where two members have the same place, Java keeps the later one.
    ring = dict(
        sorted(
            (_ring_place(f"{member}-{number}"), index)
            for index, member in enumerate(client_ids)
            for number in range(VIRTUAL_NODES)
        )
    )
    places = list(ring)
    own = client_ids.index(client_id)
    return [queue for queue in queues if _next_member(ring, places, queue) == own]


def _next_member(ring: dict[int, int], places: list[int], queue: MessageQueue) -> int:
    text = (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )
    return ring[places[bisect_left(places, _ring_place(text)) % len(places)]]


def _ring_place(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def allocate_sticky(
    client_id: str, client_ids: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """Return an even share that changes little when members come or go.

    This is bounded rendezvous hashing: every pair of member and queue has a fixed rank, the best pairs are taken, and a
    member that has its share is skipped. No member has to remember the former owners.
    """
    if client_id not in client_ids:
        return []
    share, longer_shares = divmod(len(queues), len(client_ids))
    members = [_hash(member) for member in client_ids]
    # Equal ranks are decided by the indexes: every member must find the same owner.
    ranked = sorted(
        (_mixed(member ^ queue), member_index, queue_index)
        for queue_index, queue in enumerate(map(_queue_hash, queues))
        for member_index, member in enumerate(members)
    )
    sizes = [0] * len(client_ids)
    owners = [-1] * len(queues)
    for _, member_index, queue_index in ranked:
        size = sizes[member_index]
        if owners[queue_index] >= 0 or size > share or (size == share and not longer_shares):
            continue
        if size == share:
            longer_shares -= 1
        sizes[member_index] = size + 1
        owners[queue_index] = member_index
    own = client_ids.index(client_id)
    return [queue for queue, owner in zip(queues, owners, strict=True) if owner == own]


def _queue_hash(queue: MessageQueue) -> int:
    return _hash(f"{queue.topic}\n{queue.broker_name}\n{queue.queue_id}")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _mixed(number: int) -> int:
    """Mix 64 bits so that each bit depends on all others (the last steps of SplitMix64)."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _64_BITS
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _64_BITS
    return number ^ (number >> 31)
