"""Decisions about transactions: END_TRANSACTION (37); checking a transaction again that was given up (323).

Invariant: an answer of 0 to a commit means that the message is stored for its topic, as safe as a producer's, or was
stored before.
Invariant: checks come in Java's order, each refusal with Java's code.
Invariant: a decision counts only for the message that it names (named_message.py).
Answers to: EndTransactionProcessor; RocketMQ reference, section 2.9.
Unlike Java: the id is compared, not only the place.
Unlike Java: a request that is not one-way is answered, once flush and replication have made the message safe.
"""

import logging
from collections.abc import Sequence
from typing import Final

from rocketrio_broker.access.needs import ADDRESS, PUB, UPDATE, Facts, Need, address_of, topic_need
from rocketrio_broker.delay.delayed_puts import stored_message
from rocketrio_broker.processors.named_message import refuse_other_message
from rocketrio_broker.requests.declaration import Audited, answers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.role.answering import SERVING
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.put_message import AppendResult, PutStatus
from rocketrio_protocol.access.model import ResourceKind
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.transaction import (
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.record.properties import PROPERTY_PRODUCER_GROUP, PROPERTY_REAL_TOPIC
from rocketrio_protocol.remoting.channel import Channel

logger = logging.getLogger("rocketrio_broker.transaction")

_NOT_FOUND: Final = "Find prepared transaction message failed"


def _needs_of_end(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(EndTransactionRequestHeader)
    return (_real_topic(facts, header.commit_log_offset, TRANS_HALF_TOPIC, _NOT_FOUND),)


def _needs_of_resume(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(ResumeCheckHalfMessageRequestHeader)
    missing = f"{header.msg_id} is not a message of {TRANS_CHECK_MAX_TIME_TOPIC}"
    half = _real_topic(facts, address_of(header.msg_id), TRANS_CHECK_MAX_TIME_TOPIC, missing)
    return half, Need(ResourceKind.CLUSTER, facts.cluster_name, UPDATE)


def _real_topic(facts: Facts, address: int, stored_in: str, missing: str) -> Need:
    message = facts.stored_message(address)
    real = None
    if message is not None and message.topic == stored_in:
        real = message.property_value(PROPERTY_REAL_TOPIC)
    if real is None:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, missing)
    return topic_need(real, PUB)


class EndTransactionProcessor:
    """Takes producers' decisions."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker
        self._decisions = broker.transaction_decisions

    @answers(
        EndTransactionRequestHeader,
        needs=_needs_of_end,
        known_by=ADDRESS,
        standing=SERVING,
        held=True,
    )
    def end_transaction(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        header = request.header(EndTransactionRequestHeader)
        if self._broker.config.broker.is_slave:
            raise RefusedError(
                ResponseCode.SLAVE_NOT_AVAILABLE, "Slave mode end transaction is forbidden."
            )
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return request.response()  # Undecided: the broker will ask the producer.
        named = self._half_message(header)
        half = self._decisions.open_half(named)
        is_commit = header.commit_or_rollback == TRANSACTION_COMMIT
        if half is not None:
            decide = self._decisions.commit if is_commit else self._decisions.roll_back
            result = decide(half)
            if result.status is PutStatus.PUT_OK:
                self._count(half, is_commit=is_commit)
        elif is_commit and self._decisions.was_given_up(named):
            logger.info("transaction committed after it was given up message_id=%s", header.msg_id)
            result = self._decisions.commit_given_up(named)
        elif is_commit and self._decisions.was_rolled_back(named):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"{header.msg_id} was rolled back before, by its producer or by its answer to a check: "
                "it will not be delivered",
            )
        else:
            logger.info("transaction was decided before message_id=%s", header.msg_id)
            return request.response()
        return self._answer(channel, request, result)

    def _count(self, half: MessageExt, *, is_commit: bool) -> None:
        age_ms = self._broker.wall_clock.now_ms() - half.born_time_ms
        self._broker.stats.transaction_ended(
            half.property_value(PROPERTY_REAL_TOPIC) or "",
            max(0, age_ms) / 1000 if is_commit else None,
        )

    @answers(
        ResumeCheckHalfMessageRequestHeader,
        needs=_needs_of_resume,
        known_by=ADDRESS,
        standing=SERVING,
        audit=Audited(),
    )
    def resume_check(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Turn a message that was given up into a half message again, so that its producer is asked from the beginning.

        An operator sends this request.
        """
        header = request.header(ResumeCheckHalfMessageRequestHeader)
        _, _, physical_offset = parse_offset_message_id(header.msg_id or "")
        message = stored_message(self._broker.store, physical_offset)
        if message is None or message.topic != TRANS_CHECK_MAX_TIME_TOPIC:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"{header.msg_id} is not a message of {TRANS_CHECK_MAX_TIME_TOPIC}",
            )
        result = self._decisions.resume(message)
        if result.status is not PutStatus.PUT_OK:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"{result.status.name}: {result.remark}")
        return request.response()

    def _half_message(self, header: EndTransactionRequestHeader) -> MessageExt:
        message = stored_message(self._broker.store, header.commit_log_offset)
        if message is None or message.topic != TRANS_HALF_TOPIC:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        if message.property_value(PROPERTY_PRODUCER_GROUP) != header.producer_group:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if message.queue_offset != header.tran_state_table_offset:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
            )
        # Last, after Java's checks: where a failover cut the log's end, another half message of the same group may lie
        # at the same two offsets, and would be decided in place of this one.
        refuse_other_message(message, header.msg_id, failed=_NOT_FOUND)
        return message

    def _answer(
        self, channel: Channel, request: RemotingCommand, result: AppendResult
    ) -> RemotingCommand | None:
        if result.status is not PutStatus.PUT_OK:
            logger.warning(
                "transaction not decided, its producer will be asked reason=%s", result.remark
            )
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"{result.status.name}: {result.remark}".rstrip(": ")
            )
        if request.is_oneway or not self._broker.waiting_answers.is_needed:
            return request.response()
        # After a 0 the producer forgets the transaction, so it must be as hard to lose as a sent message.
        self._broker.waiting_answers.add(result.end_offset, channel, request.response().encode())
        return None
