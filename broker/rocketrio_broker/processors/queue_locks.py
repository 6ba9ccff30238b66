"""Queue locks of orderly consumers: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

Invariant: only a master locks.
Invariant: while locks of a former run may be in use, members that do not say whether they hold one get an error.
Answers to: AdminBrokerProcessor's lockBatchMQ and unlockBatchMQ; RocketMQ reference, section 2.7.
Invariant: the locks of a live member that is connected from another host cannot be released.
Unlike Java: a slave refuses, where 4.x locks in any role; and strict mode (5.x) is missing, in which a majority of a
broker's replicas must agree.
"""

from collections.abc import Sequence
from typing import Final

import trio

from rocketrio_broker.access.needs import (
    ADDRESS,
    SUB,
    Facts,
    Need,
    group_need,
    refuse_many,
    topic_need,
)
from rocketrio_broker.clients.queue_locks import FORMER_RUN
from rocketrio_broker.requests.declaration import answers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.role.answering import TAKEN_OVER
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.queues import LockBatch, LockedBatch
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.consumer import (
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)
from rocketrio_protocol.errors import BrokerSystemError
from rocketrio_protocol.remoting.channel import Channel

QUEUES_LIMIT: Final = 10_000
"""The most queues of one request: some 20 ms."""


def _needs(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    body = request.json_body(LockBatch, what="queue locks")
    topics = {queue.topic: None for queue in body.mq_set}
    refuse_many(topics)
    return [group_need(body.consumer_group, SUB), *(topic_need(topic, SUB) for topic in topics)]


class QueueLockProcessor:
    """Answers requests to lock and unlock queues."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    @answers(
        LockBatchMqRequestHeader,
        needs=_needs,
        known_by=ADDRESS,
        standing=TAKEN_OVER,
        held=True,
    )
    def lock(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        wanted = _queues(request, "queues to lock")
        # A former master would renew the locks that it gave, while its successor
        # gives the same queues to other members.
        if self._broker.config.broker.is_slave:
            raise RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this broker is a slave: the master of its name locks queues",
            )
        now = trio.current_time()
        holds = request.header(LockBatchMqRequestHeader).holds
        if holds is None and self._broker.queue_locks.is_unknown(now):
            # Java's members would stop at "not locked"; after an error they continue for as long as they may.
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"members may hold locks of the former master: this broker gives none for its first {FORMER_RUN:g} s",
            )
        held = self._broker.queue_locks.lock(
            wanted.consumer_group, wanted.mq_set, wanted.client_id, now=now, holds=bool(holds)
        )
        return request.response(body=fastjson.dumps(LockedBatch(held)))

    @answers(UnlockBatchMqRequestHeader, needs=_needs, known_by=ADDRESS, standing=TAKEN_OVER)
    def unlock(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        wanted = _queues(request, "queues to unlock")
        group, client_id = wanted.consumer_group, wanted.client_id
        # Else another process with a member's id could release its queues, and
        # a second member would read them at the same time.
        if self._broker.consumers.is_held_by_another(
            group, client_id, channel, now=trio.current_time()
        ):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"{client_id} of {group} is connected from another host, and consumes its queues",
            )
        self._broker.queue_locks.unlock(wanted.consumer_group, wanted.mq_set, wanted.client_id)
        return request.response()


def _queues(request: RemotingCommand, what: str) -> LockBatch:
    batch = request.json_body(LockBatch, what=what)
    if len(batch.mq_set) > QUEUES_LIMIT:
        raise BrokerSystemError(
            f"A request names {QUEUES_LIMIT} {what} at most, not {len(batch.mq_set)}: ask in several requests"
        )
    return batch
