"""The requests that a broker and a name server answer: one file per family of requests, each with a table of its codes.

    send 10 310 320 | pull 11 361 | query 12 33 | offsets 14 15 29-32 | client_manage 34 35 38 46
    end_transaction 37 323
    consumer: send_back 36, queue_locks 41 42, client_calls 222 223 307 309, reply 324 325
    admin and topics: the codes that consoles and slaves send | name_server: 1xx, 2xx, 3xx of a name server

A code without a processor is answered REQUEST_CODE_NOT_SUPPORTED; `NOT_BUILT_YET` names those that Apache has.
"""

from typing import Final

from rocketrio_broker.processors.pull import PullMessageProcessor
from rocketrio_broker.processors.query import QueryMessageProcessor
from rocketrio_broker.processors.send import SendMessageProcessor
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.remoting.dispatch import Processor

PULL_CODES: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
"""The codes that the second listener does not answer."""

NOT_BUILT_YET: Final = frozenset(
    {
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    }
)
"""Codes of an Apache broker that are planned for later: none of them may have a processor."""


def data_processors(
    send: SendMessageProcessor, pull: PullMessageProcessor, query: QueryMessageProcessor
) -> dict[int, Processor]:
    """Return the processors of requests for messages themselves, by request code."""
    return {
        RequestCode.SEND_MESSAGE: send,
        RequestCode.SEND_MESSAGE_V2: send,
        RequestCode.SEND_BATCH_MESSAGE: send,
        RequestCode.PULL_MESSAGE: pull,
        RequestCode.LITE_PULL_MESSAGE: pull,
        RequestCode.QUERY_MESSAGE: query.query,
        RequestCode.VIEW_MESSAGE_BY_ID: query.view,
    }
