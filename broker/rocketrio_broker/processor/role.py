"""Requests about roles, ours alone: an operator changes one (71001); a broker asks for a slave's id (71011).

Answers to: nothing of 4.x; 5.x's controller sends NOTIFY_BROKER_ROLE_CHANGED (1008).
"""

from collections.abc import Awaitable, Callable
from typing import Final, cast

import trio

from rocketrio_broker.config import ROLES, LiveConfig, Role
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    ChangeBrokerRoleRequestHeader,
    ClaimSlaveIdRequestHeader,
    ClaimSlaveIdResponseHeader,
)
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor

CHANGE_LIMIT: Final = 60.0
"""Seconds after which the asker is answered though the new role does not serve yet; the change goes on."""

ChangeRole = Callable[[Role, int], Awaitable[None]]
GiveId = Callable[[str], Awaitable[int]]


class RoleProcessor:
    """Takes orders to change the role, and gives ids to brokers that want to follow."""

    def __init__(
        self, change: ChangeRole, *, config: LiveConfig, leads: Callable[[], bool], give_id: GiveId
    ) -> None:
        self._change = change
        self._config = config
        self._leads = leads
        self._give_id = give_id

    def processors(self) -> dict[int, Processor]:
        """Request code to method."""
        return {
            RequestCode.CHANGE_BROKER_ROLE: self.change_role,
            RequestCode.CLAIM_SLAVE_ID: self.claim_slave_id,
        }

    async def change_role(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(ChangeBrokerRoleRequestHeader)
        if header.role not in ROLES:
            return request.response(
                code=ResponseCode.INVALID_PARAMETER,
                remark=f"there is no role {header.role!r}, only {', '.join(ROLES)}",
            )
        try:
            with trio.move_on_after(CHANGE_LIMIT) as waiting:
                await self._change(cast(Role, header.role), header.broker_id)
        except ConfigError as error:
            return request.response(code=ResponseCode.INVALID_PARAMETER, remark=str(error))
        if waiting.cancelled_caught:
            return request.response(
                code=ResponseCode.SYSTEM_BUSY,
                remark=f"the role {header.role} does not serve yet after {CHANGE_LIMIT:g} s; it goes on trying",
            )
        return request.response()

    async def claim_slave_id(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(ClaimSlaveIdRequestHeader)
        name = self._config.broker.broker_name
        if header.broker_name != name:
            return request.response(
                code=ResponseCode.INVALID_PARAMETER,
                remark=f"this is a broker of {name}, not of {header.broker_name}",
            )
        if not self._leads():
            return request.response(
                code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="this broker does not take writes"
            )
        return request.response(ClaimSlaveIdResponseHeader(await self._give_id(header.broker_addr)))
