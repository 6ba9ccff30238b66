"""Requests about the check of the whole log: start one and get its status (71021), compare a part (71022).

Only rocketrio has these requests.
"""

from collections.abc import Sequence
from typing import Final

from rocketrio_broker.access.needs import GET, UPDATE, C, Facts, Need
from rocketrio_broker.requests.declaration import Audited, answers
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.access.model import ResourceKind
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    CheckLogRequestHeader,
    GetLogDigestRequestHeader,
    GetLogDigestResponseHeader,
)
from rocketrio_protocol.remoting.channel import Channel

DEFAULT_RATE: Final = 32 << 20
"""Bytes per second of a check that an operator requests without a rate."""


def _needs_of_check(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    actions = UPDATE if _is_start(request) else GET
    return (Need(ResourceKind.CLUSTER, facts.cluster_name, actions),)


def _is_start(request: RemotingCommand) -> bool:
    return request.header(CheckLogRequestHeader).start


class LogCheckProcessor:
    """Answers requests for a broker's LogCheckService."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    @answers(CheckLogRequestHeader, needs=_needs_of_check, audit=Audited(applies=_is_start))
    def check_log(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(CheckLogRequestHeader)
        rate = DEFAULT_RATE if header.rate is None else header.rate
        if rate <= 0:
            return request.response(
                code=ResponseCode.INVALID_PARAMETER, remark=f"rate must be more than 0, not {rate}"
            )
        if header.start:
            self._broker.log_check.start(rate)
        return request.response(body=self._broker.log_check.status().to_json())

    @answers(GetLogDigestRequestHeader, needs=C(GET))
    async def log_digest(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(GetLogDigestRequestHeader)
        digest = await self._broker.log_check.digest(header.start_offset, header.end_offset)
        return request.response(GetLogDigestResponseHeader(digest))
