"""Finds messages: QUERY_MESSAGE (12) by key or unique id, VIEW_MESSAGE_BY_ID (33) by place in the log.

Invariant: an answer fits into a frame: if the messages do not, only the newest are returned.
Answers to: QueryMessageProcessor; RocketMQ reference, section 2.5.
Unlike Java: an answer has a limit in bytes; Java's of 64 messages can be larger than its clients read.
"""

from collections.abc import Sequence
from typing import Final

from rocketrio_broker.access.needs import (
    ADDRESS,
    GET,
    SUB,
    Facts,
    Need,
    T,
    stored_topic,
    topic_need,
)
from rocketrio_broker.requests.declaration import answers
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.query import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rocketrio_protocol.frame import BODY_SIZE_LIMIT, Body
from rocketrio_protocol.remoting.channel import Channel

DEFAULT_QUERY_MAX_NUM: Final = 32
"""The most messages in the answer to a query by unique id (defaultQueryMaxNum)."""


def _needs_of_view(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    address = request.header(ViewMessageRequestHeader).offset
    topic = stored_topic(facts, address, f"can not find message by the offset, {address}")
    return (topic_need(topic, SUB | GET),)


class QueryMessageProcessor:
    """Answers queries for single messages."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    @answers(QueryMessageRequestHeader, needs=T(SUB | GET), known_by=ADDRESS)
    def query(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(QueryMessageRequestHeader)
        max_num = DEFAULT_QUERY_MAX_NUM if header.unique_key_query else header.max_num
        found = self._broker.store.query_message(
            header.topic, header.key, max_num, header.begin_timestamp, header.end_timestamp
        )
        answer = QueryMessageResponseHeader(
            found.index_last_update_timestamp, found.index_last_update_physical_offset
        )
        if not found.buffers:
            return request.response(
                answer,
                code=ResponseCode.QUERY_NOT_FOUND,
                remark="can not find message, maybe time range not correct",
            )
        return request.response(answer, b"".join(_that_fit(found.buffers)))

    @answers(ViewMessageRequestHeader, needs=_needs_of_view, known_by=ADDRESS)
    def view(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        offset = request.header(ViewMessageRequestHeader).offset
        record = self._broker.store.message_at(offset)
        if record is None:
            return request.response(
                code=ResponseCode.SYSTEM_ERROR,
                remark=f"can not find message by the offset, {offset}",
            )
        return request.response(body=record)


def _that_fit(records: Sequence[Body]) -> Sequence[Body]:
    """Return the first records, which are the newest, up to the limit; at least one."""
    size = 0
    for count, record in enumerate(records):
        size += len(record)
        if count and size > BODY_SIZE_LIMIT:
            return records[:count]
    return records
