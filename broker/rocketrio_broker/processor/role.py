"""Changing a broker's role by request (71001, ours): operators only, as all administration.

Answers to: nothing of 4.x; 5.x's controller sends NOTIFY_BROKER_ROLE_CHANGED (1008).
"""

from collections.abc import Awaitable, Callable
from typing import Final, cast

import trio

from rocketrio_broker.config import ROLES, Role
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import ChangeBrokerRoleRequestHeader
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor

CHANGE_LIMIT: Final = 60.0
"""Seconds after which the asker is answered though the new role does not serve yet; the change goes on."""

ChangeRole = Callable[[Role, int], Awaitable[None]]


class RoleProcessor:
    """Takes orders to change the role."""

    def __init__(self, change: ChangeRole) -> None:
        self._change = change

    def processors(self) -> dict[int, Processor]:
        """Request code to method."""
        return {RequestCode.CHANGE_BROKER_ROLE: self.change_role}

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
