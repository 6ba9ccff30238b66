"""Queue locks of orderly consumers: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

Answers to: AdminBrokerProcessor's lockBatchMQ and unlockBatchMQ; RocketMQ reference, section 2.7.
Unlike Java (5.x): there is no strict mode, by which a majority of a broker's replicas must agree.
"""

import trio

from rocketrio_broker.queue_locks import QueueLocks
from rocketrio_protocol import fastjson
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.consumer import LockBatch, LockedBatch
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor


class QueueLockProcessor:
    """Locks and unlocks by request, in any role."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    def processors(self) -> dict[int, Processor]:
        """Request code to method."""
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def lock(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        wanted = fastjson.loads(request.body, LockBatch, what="queues to lock")
        held = self._locks.lock(
            wanted.consumer_group, wanted.mq_set, wanted.client_id, now=trio.current_time()
        )
        return request.response(body=fastjson.dumps(LockedBatch(held)))

    def unlock(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        wanted = fastjson.loads(request.body, LockBatch, what="queues to unlock")
        self._locks.unlock(wanted.consumer_group, wanted.mq_set, wanted.client_id)
        return request.response()
