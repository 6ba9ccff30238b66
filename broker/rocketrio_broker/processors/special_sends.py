"""Handles sends that are not stored as they are: delayed messages, and the first part of a transaction.

    DELAY=n                             delayed: parked until it is due
    TRAN_MSG=true                       half message: parked until END_TRANSACTION (37) or a check decides
    TIMER_DELAY_MS, _SEC, TIMER_DELIVER_MS    an arbitrary time (5.x): refused, this broker knows only levels

A committed half message with a level is delayed from its commit on.

Answers to: SendMessageProcessor's transaction branch, HookUtils.handleScheduleMessage.
Unlike Java: 4.9 delivers messages with an arbitrary time immediately, and 5.x without its timer wheel refuses them with
code 1, which makes its clients try other brokers; here the code is 13, which does not.
"""

from typing import Final

from rocketrio_broker.delay.delayed_puts import delay_level, half_message
from rocketrio_broker.processors.stored_properties import is_true, property_map
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.put_message import PutMessage
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketrio_protocol.record.layout import TRANSACTION_MASK
from rocketrio_protocol.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
)

_TIMERS: Final = (PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELIVER_MS)


class SpecialSends:
    """Parks messages that readers must not see yet."""

    def __init__(self, broker: BrokerState) -> None:
        self._store = broker.store
        self._delayed = broker.delayed_puts
        self._config = broker.config
        self._topics = broker.topics

    def parked(self, put: PutMessage, text: str | None, *, is_batch: bool) -> PutMessage:
        """Return the message to store instead; `text` are the properties as they were sent. Raises RefusedError."""
        properties = property_map(text or "", self._config.broker.cluster_name)
        level = delay_level(properties.get(PROPERTY_DELAY_TIME_LEVEL))
        is_half = is_true(properties.get(PROPERTY_TRANSACTION_PREPARED, ""))
        if is_half and put.reconsume_times > 0:
            # A transaction's message that is sent to its retry topic: clients before 4.6.1 leave the mark on it.
            is_half, put.sys_flag = False, put.sys_flag & ~TRANSACTION_MASK
        if not level and any(name in properties for name in _TIMERS):
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                "this broker delivers delayed messages by level (DELAY) and not at an arbitrary time "
                "(TIMER_...): the message was not stored",
            )
        if is_batch:
            if is_half:
                raise RefusedError(
                    ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be part of a transaction"
                )
            return put  # The store refuses batches with the other marks; any entry may have one.
        if is_half:
            return self._half(put, properties)
        if put.sys_flag & TRANSACTION_MASK:
            raise RefusedError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "a message is part of a transaction by its property TRAN_MSG, which this one lacks: "
                "it was not stored",
            )
        return self._delayed.delayed(put, properties, level) if level else put

    def _half(self, put: PutMessage, properties: dict[str, str]) -> PutMessage:
        broker = self._config.broker
        if broker.reject_transaction_message:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.broker_name}] sending transaction message is forbidden",
            )
        if not self._store.writable:
            # Checked before topics are created: a slave would keep them until the next copy of the master's topics.
            raise RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, self._store.refusal)
        for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC):
            if self._topics.topic_config(topic) is None:
                self._topics.create_in_send_back(topic)
                self._topics.table.sync_soon()
        return half_message(self._store, put, properties)
