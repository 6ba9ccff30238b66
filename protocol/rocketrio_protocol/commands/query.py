"""Headers of queries for messages: by key or unique id (12), by offset in the commit log (33).

Answers to: RocketMQ reference, section 2.5.
"""

from typing import ClassVar

import msgspec

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import AnswerBody, Header, RequestHeader
from rocketrio_protocol.message import decode_messages


class QueryMessageResponseHeader(Header):
    """Up to which message the key index reaches: its store time and physical offset."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class QueryMessageRequestHeader(RequestHeader):
    """Find messages of a topic by key, stored between two times (epoch ms)."""

    code: ClassVar = RequestCode.QUERY_MESSAGE
    answers: ClassVar = QueryMessageResponseHeader
    body: ClassVar = AnswerBody(decode_messages)
    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    unique_key_query: bool | None = msgspec.field(name="_UNIQUE_KEY_QUERY", default=None)


class ViewMessageRequestHeader(RequestHeader):
    """Get the message at a physical offset."""

    code: ClassVar = RequestCode.VIEW_MESSAGE_BY_ID
    body: ClassVar = AnswerBody(decode_messages)
    offset: int
    topic: str | None = None
