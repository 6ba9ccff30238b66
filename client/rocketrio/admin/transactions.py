"""How many transactions of a broker are open, and how many it has given up: `admin.transactions()`.

Half messages lie in a topic of their own. A broker's own group of transactions has committed those that are decided
there, so that its lag is what is open. A producer that never decides is asked again and again; then the message moves
to another topic, which is never read.

Answers to: nothing in Apache's tools.
"""

import attrs

from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.cluster_questions import whole_sum
from rocketrio_protocol.bodies.stats import TopicOffset
from rocketrio_protocol.errors import TopicNotExistError
from rocketrio_protocol.lag import lag_of
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANSACTION_GROUP,
)


@attrs.frozen
class Transactions:
    """The transactions of one broker."""

    open: int | None
    """The undecided ones; those that were decided lately may be among them. None if a broker's numbers contradict."""
    given_up: int
    """How many were given up since the broker's first start."""
    last_given_up_ms: int | None
    """When the last one was given up, epoch ms; None if none ever was."""


async def ask_transactions(calls: AdminCalls, addr: str) -> Transactions:
    """Ask a master. Raises NotReachableError, BrokerError."""
    half = await _queues(calls, addr, TRANS_HALF_TOPIC)
    given_up = await _queues(calls, addr, TRANS_CHECK_MAX_TIME_TOPIC)
    decided = {}
    if half:
        offsets = await calls.all_offsets(addr)
        decided = offsets.get((TRANSACTION_GROUP, TRANS_HALF_TOPIC), {})
    undecided = [
        lag_of(max(one.min_offset, decided.get(queue.queue_id, 0)), one.max_offset)
        for queue, one in half.items()
    ]
    times = [one.last_update_timestamp for one in given_up.values() if one.max_offset > 0]
    return Transactions(
        whole_sum(undecided),
        sum(one.max_offset for one in given_up.values()),
        max(times, default=None),
    )


async def _queues(calls: AdminCalls, addr: str, topic: str) -> dict[MessageQueue, TopicOffset]:
    """Return the queues of a topic; none if the broker has never needed it."""
    try:
        return (await calls.topic_stats(addr, topic)).offset_table
    except TopicNotExistError:
        return {}
