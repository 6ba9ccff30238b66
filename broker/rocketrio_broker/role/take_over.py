"""The follower's side of a hand-over: a slave takes its master's place, step by step (`hand_over.py` has the order).

Invariant: a token whose outcome was asked for before the follower took over cannot be used to take over any more.
Answers to: nothing of 4.x.
"""

import logging
from typing import Final, cast

import trio

from rocketrio_broker.clients.queue_locks import KeptLocks
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.role.file import RoleFile
from rocketrio_broker.role.hand_over import State, refused
from rocketrio_broker.role.service import RoleService
from rocketrio_broker.settings.config import Role
from rocketrio_broker.state import BrokerState
from rocketrio_broker.tables.config_file import ConfigFileError
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.commands.admin import TakeOverRequestHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.frame import Body

logger = logging.getLogger("rocketrio_broker.hand_over")

TOKEN_LIFETIME: Final = 5.0
"""Seconds for which a follower stays prepared."""
TABLES_LIMIT: Final = 0.5
"""Seconds for the last copy of the master's tables."""


class TakeOver:
    """The follower's side of a hand-over."""

    def __init__(self, broker: BrokerState, role: RoleService, *, role_file: RoleFile) -> None:
        self._broker = broker
        self._role = role
        self._role_file = role_file
        self._registration = broker.registration
        self._one_at_a_time = trio.Lock()
        self._token = ""
        self._until = 0.0

    def __repr__(self) -> str:
        return f"<TakeOver prepared={bool(self._token)}>"

    async def step(self, header: TakeOverRequestHeader, body: Body = b"") -> State:
        """Do one step; the body of `take` has the locks of orderly queues.

        Raises RefusedError; then nothing changed.
        """
        if header.broker_name != self._broker.config.broker.broker_name:
            raise refused(f"this is a broker of {self._broker.config.broker.broker_name}")
        # A question waits for the end of a `take` that is under way: before that no answer to it is true.
        async with self._one_at_a_time:
            if header.step == "prepare":
                self._check(header)
                self._token, self._until = header.token, trio.current_time() + TOKEN_LIFETIME
                return "prepared"
            if header.step == "take":
                return await self._take(header, body)
            return self._outcome(header.token)

    def _check(self, header: TakeOverRequestHeader) -> None:
        slave = self._broker.slave
        if slave is None or not self._broker.config.broker.is_slave:
            raise refused(f"it is {self._broker.config.broker.role}")
        if self._role.turn.locked():
            raise refused("its role is being changed")
        if slave.client.state is not HAClientState.FOLLOWING:
            raise refused(f"it is {slave.client.state.text}")
        followed = self._registration.master.addr
        if followed not in (None, header.master_addr):
            raise refused(f"it follows {followed}")

    async def _take(self, header: TakeOverRequestHeader, body: Body) -> State:
        # Used up before the first await: neither a second order nor one that was refused can use it later.
        token, self._token = self._token, ""
        if header.token != token or trio.current_time() > self._until:
            raise refused("it is not prepared for this any more")
        self._check(header)
        await self._copy_tables(header.master_addr)
        try:
            # A power cut would remove recent copies, and then there is no master to copy them from.
            await self._broker.sync_tables()
        except ConfigFileError as error:
            raise refused(str(error)) from error
        if trio.current_time() > self._until:
            raise refused("it was too slow")
        end = self._broker.store.max_physical_offset
        # The master appends nothing while it waits for this answer: another
        # end means messages that only one of the two has.
        if end != header.log_end_offset:
            raise refused(f"its log ends at {end}, not at {header.log_end_offset}")
        locks = fastjson.loads(body, KeptLocks, what="queue locks") if body else None
        try:
            await self._role.succeed(
                cast(Role, header.role), token=header.token, former=header.master_addr
            )
        except ConfigFileError as error:
            raise refused(str(error)) from error
        self._broker.queue_locks.inherit(locks)
        return "taken"

    async def _copy_tables(self, master_addr: str) -> None:
        """Copy what is committed at the master so far. What is not copied in time is gathered later, as master."""
        slave = self._broker.slave
        if slave is not None:
            with trio.move_on_after(TABLES_LIMIT):
                try:
                    await slave.synchronize.sync_all(master_addr)
                except (Error, OSError) as error:
                    logger.warning("tables not copied at the hand-over reason=%s", error)

    def _outcome(self, token: str) -> State:
        """Return the outcome for a token. Afterwards the token cannot be used to take over any more."""
        if token == self._role_file.taken:
            return "leads" if self._broker.standing.leads else "taken"
        # `void` is a promise: an order with this token that is still on its way is refused from now on.
        if token == self._token:
            self._token = ""
        return "void"
