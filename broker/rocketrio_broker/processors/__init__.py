"""The requests that a broker answers: one file per family of requests, with a class whose methods declare their codes.

A class is given the broker's state (`state.py`). To answer a new code, add a method with `@answers(...)` to a class
(`declaration.py`); to answer a new family, add a file and its class to `FAMILIES`.

A code without a handler is answered REQUEST_CODE_NOT_SUPPORTED; `NOT_BUILT_YET` names those that Apache has.
Invariant: a code has one handler.
"""

from collections.abc import Callable
from typing import Final

from rocketrio_broker.processors.access_admin import AccessAdminProcessor
from rocketrio_broker.processors.broker_admin import BrokerAdminProcessor
from rocketrio_broker.processors.client_calls import ClientCallProcessor
from rocketrio_broker.processors.client_manage import ClientManageProcessor
from rocketrio_broker.processors.consume_stats import ConsumeStatsProcessor
from rocketrio_broker.processors.end_transaction import EndTransactionProcessor
from rocketrio_broker.processors.group_admin import GroupAdminProcessor
from rocketrio_broker.processors.ha_status import HAStatusProcessor
from rocketrio_broker.processors.inspection import InspectionProcessor
from rocketrio_broker.processors.log_check import LogCheckProcessor
from rocketrio_broker.processors.long_answers import at_most
from rocketrio_broker.processors.offsets import OffsetProcessor
from rocketrio_broker.processors.pull import PullMessageProcessor
from rocketrio_broker.processors.query import QueryMessageProcessor
from rocketrio_broker.processors.queue_locks import QueueLockProcessor
from rocketrio_broker.processors.reply import ReplyMessageProcessor
from rocketrio_broker.processors.role import RoleProcessor, Roles
from rocketrio_broker.processors.send import SendMessageProcessor
from rocketrio_broker.processors.send_back import SendBackProcessor
from rocketrio_broker.processors.topic_admin import TopicAdminProcessor
from rocketrio_broker.requests.declaration import Handler, Handlers, handlers_of
from rocketrio_broker.role.answering import only_in
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.remoting.dispatch import Processor

NOT_BUILT_YET: Final = frozenset(
    {
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    }
)
"""Codes of an Apache broker that are planned for later: none of them may have a handler."""


FAMILIES: Final[tuple[Callable[[BrokerState], object], ...]] = (
    SendMessageProcessor,
    PullMessageProcessor,
    QueryMessageProcessor,
    OffsetProcessor,
    ClientManageProcessor,
    SendBackProcessor,
    QueueLockProcessor,
    ReplyMessageProcessor,
    EndTransactionProcessor,
    ClientCallProcessor,
    TopicAdminProcessor,
    GroupAdminProcessor,
    ConsumeStatsProcessor,
    BrokerAdminProcessor,
    InspectionProcessor,
    HAStatusProcessor,
    LogCheckProcessor,
)


def broker_handlers(broker: BrokerState, roles: Roles) -> dict[int, Handler]:
    """Return the handlers of all requests that this broker answers, by code."""
    families = [*(family(broker) for family in FAMILIES), RoleProcessor(broker, roles)]
    if broker.access is not None:
        families.append(AccessAdminProcessor(broker, broker.access))
    return handlers_of(*families)


def processor_table(broker: BrokerState, handlers: Handlers) -> dict[int, Processor]:
    """Return the processors of requests by code; each waits for its place, and refuses what its standing forbids."""
    return {
        code: only_in(
            handler.declared.standing,
            broker.standing,
            at_most(broker.long_answers, handler.process)
            if handler.declared.limited
            else handler.process,
        )
        for code, handler in handlers.items()
    }
