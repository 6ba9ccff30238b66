"""Requests about roles; only rocketrio has them.

    71001   an operator gives the broker another role
    71011   a broker asks for an id, to follow this one
    71012   an operator makes this master change places with a slave
    71013   a master makes this slave take over, step by step (`role/hand_over.py`)

Answers to: nothing of 4.x; 5.x's controller sends NOTIFY_BROKER_ROLE_CHANGED (1008).
"""

from typing import Any, Final, cast

import attrs
import trio

from rocketrio_broker.access.needs import UPDATE, C
from rocketrio_broker.requests.declaration import Audited, answers
from rocketrio_broker.role.hand_over import HandOverService
from rocketrio_broker.role.service import RoleService
from rocketrio_broker.role.shared_id import SharedId
from rocketrio_broker.role.take_over import TakeOver
from rocketrio_broker.settings.config import ROLES, Role
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    ChangeBrokerRoleRequestHeader,
    ClaimSlaveIdRequestHeader,
    ClaimSlaveIdResponseHeader,
    HandOverRequestHeader,
    TakeOverRequestHeader,
    TakeOverResponseHeader,
)
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.channel import Channel

CHANGE_LIMIT: Final = 60.0
"""Seconds after which the sender is answered even if the new role does not serve yet; the change continues."""


@attrs.frozen
class Roles:
    """What changes the role of a broker."""

    service: RoleService
    hand_over: HandOverService
    take_over: TakeOver
    shared_id: SharedId
    """Gives up an id that another broker has too."""


def _is_order(request: RemotingCommand) -> bool:
    return not request.header(HandOverRequestHeader).dry_run


class RoleProcessor:
    """Answers requests to change the role, and gives ids to brokers that want to follow."""

    def __init__(self, broker: BrokerState, roles: Roles) -> None:
        self._broker = broker
        self._roles = roles

    def _role(self, names: object) -> dict[str, Any]:
        config = self._broker.config.broker
        return {"role": config.role, "broker_id": config.broker_id}

    @answers(ChangeBrokerRoleRequestHeader, needs=C(UPDATE), audit=Audited(state=_role))
    async def change_role(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(ChangeBrokerRoleRequestHeader)
        if header.role not in ROLES:
            return request.response(
                code=ResponseCode.INVALID_PARAMETER,
                remark=f"role must be one of {', '.join(ROLES)}, not {header.role!r}",
            )
        try:
            with trio.move_on_after(CHANGE_LIMIT) as waiting:
                await self._roles.service.change(
                    cast(Role, header.role), header.broker_id, accept_loss=header.accept_loss
                )
        except ConfigError as error:
            return request.response(code=ResponseCode.INVALID_PARAMETER, remark=str(error))
        if waiting.cancelled_caught:
            return request.response(
                code=ResponseCode.SYSTEM_BUSY,
                remark=f"the role {header.role} does not serve yet after {CHANGE_LIMIT:g} s; the broker keeps trying",
            )
        return request.response()

    @answers(ClaimSlaveIdRequestHeader, needs=C(UPDATE))
    async def claim_slave_id(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(ClaimSlaveIdRequestHeader)
        name = self._broker.config.broker.broker_name
        if header.broker_name != name:
            return request.response(
                code=ResponseCode.INVALID_PARAMETER,
                remark=f"this is a broker of {name}, not of {header.broker_name}",
            )
        if not self._broker.standing.leads:
            return request.response(
                code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="this broker does not take writes"
            )
        broker_id = await self._broker.slave_ids.give(
            header.broker_addr,
            configured=header.configured_broker_id,
            shared=header.shared_broker_id,
        )
        return request.response(ClaimSlaveIdResponseHeader(broker_id))

    @answers(HandOverRequestHeader, needs=C(UPDATE), audit=Audited(applies=_is_order, state=_role))
    async def hand_over(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(HandOverRequestHeader)
        return request.response(
            await self._roles.hand_over.run(header.to_id, dry_run=header.dry_run)
        )

    @answers(TakeOverRequestHeader, needs=C(UPDATE))
    async def take_over(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(TakeOverRequestHeader)
        return request.response(
            TakeOverResponseHeader(await self._roles.take_over.step(header, request.body))
        )
