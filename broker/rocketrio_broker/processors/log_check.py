"""Requests about the check of the whole log: start one and get its status (71021), compare a part (71022).

Only rocketrio has these requests.
"""

from typing import Final

from rocketrio_broker.state import BrokerState
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    CheckLogRequestHeader,
    GetLogDigestRequestHeader,
    GetLogDigestResponseHeader,
)
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor

DEFAULT_RATE: Final = 32 << 20
"""Bytes per second of a check that an operator requests without a rate."""


class LogCheckProcessor:
    """Answers requests for a broker's LogCheckService."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    def processors(self) -> dict[int, Processor]:
        """Return the methods of this processor by request code."""
        return {
            RequestCode.CHECK_LOG: self.check_log,
            RequestCode.GET_LOG_DIGEST: self.log_digest,
        }

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

    async def log_digest(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(GetLogDigestRequestHeader)
        digest = await self._broker.log_check.digest(header.start_offset, header.end_offset)
        return request.response(GetLogDigestResponseHeader(digest))
