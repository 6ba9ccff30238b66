"""The requests that a broker answers: one file per family of requests, with a class whose `processors()` has its codes.

A class is given the broker's state (`state.py`). To answer a new code, add a method to a class and to its
`processors()`; to answer a new family, add a file and its class to `PROCESSORS`.

A code without a processor is answered REQUEST_CODE_NOT_SUPPORTED; `NOT_BUILT_YET` names those that Apache has.
Invariant: a code has one processor.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from rocketrio_broker.processors.access_admin import AccessAdminProcessor
from rocketrio_broker.processors.broker_admin import BrokerAdminProcessor
from rocketrio_broker.processors.client_calls import ClientCallProcessor
from rocketrio_broker.processors.client_manage import ClientManageProcessor
from rocketrio_broker.processors.consume_stats import ConsumeStatsProcessor
from rocketrio_broker.processors.end_transaction import EndTransactionProcessor
from rocketrio_broker.processors.group_admin import GroupAdminProcessor
from rocketrio_broker.processors.ha_status import HAStatusProcessor
from rocketrio_broker.processors.inspection import InspectionProcessor
from rocketrio_broker.processors.leading import only_while_leading
from rocketrio_broker.processors.log_check import LogCheckProcessor
from rocketrio_broker.processors.offsets import OffsetProcessor
from rocketrio_broker.processors.pull import PullMessageProcessor
from rocketrio_broker.processors.query import QueryMessageProcessor
from rocketrio_broker.processors.queue_locks import QueueLockProcessor
from rocketrio_broker.processors.reply import ReplyMessageProcessor
from rocketrio_broker.processors.role import RoleProcessor, Roles
from rocketrio_broker.processors.send import SendMessageProcessor
from rocketrio_broker.processors.send_back import SendBackProcessor
from rocketrio_broker.processors.topic_admin import TopicAdminProcessor
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
"""Codes of an Apache broker that are planned for later: none of them may have a processor."""


class RequestFamily(Protocol):
    """A family of requests."""

    def processors(self) -> Mapping[int, Processor]:
        """Return the methods of this processor by request code."""


PROCESSORS: Final[tuple[Callable[[BrokerState], RequestFamily], ...]] = (
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
    AccessAdminProcessor,
)


def processor_table(broker: BrokerState, roles: Roles) -> dict[int, Processor]:
    """Return the processors of all requests by code; they refuse what only a leading broker may answer."""
    table: dict[int, Processor] = {}
    families = [*(family(broker) for family in PROCESSORS), RoleProcessor(broker, roles)]
    for family in families:
        processors = family.processors()
        assert not table.keys() & processors.keys(), f"{family} answers a code of another family"
        table |= processors
    return only_while_leading(table, broker.standing)
