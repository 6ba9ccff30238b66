"""Notices that another live broker has this slave's id, and asks the master for another one.

A name server lists one address for an id. A broker that registers displaces the other one, and the answer says so: to
each of the two in turn.

    id from the settings            keeps it, and says in log and status that the other one must change
    given by a master               if the other one answers with the same id: claims an id that is not this one, stores
                                    it in the role file, and registers with it

Invariant: a broker whose id is the one in its settings never changes it.
Invariant: an id is changed once in CHANGE_PERIOD at most.
Answers to: nothing of Java's, where the slave that registered last is listed and no answer says so.
"""

import logging
from math import inf
from typing import Final, Protocol

import attrs
import trio

from rocketrio_broker.ha.judgement import has_id
from rocketrio_broker.ha.survey import ASK_LIMIT, Surveyor
from rocketrio_broker.registration import BrokerRegistration
from rocketrio_broker.role.file import RoleFile
from rocketrio_broker.role.service import RoleService
from rocketrio_broker.settings.config import BrokerConfig, LiveConfig
from rocketrio_broker.tables.config_file import ConfigFileError
from rocketrio_protocol.errors import Error

logger = logging.getLogger("rocketrio_broker")

CHANGE_PERIOD: Final = 600.0
"""Seconds after a change of the id until it may change again."""


def shared_id_problems(config: LiveConfig, registration: BrokerRegistration) -> list[str]:
    """Return the problems for the status of a slave: the brokers that have its id."""
    if not config.broker.is_slave:
        return []
    remedy = "this one asks its master for another id"
    if _has_configured_id(config):
        remedy = "start one of them with another --id"
    return [
        f"{other} has the id {config.broker.broker_id} of this broker too, and clients know one of the two at a time; "
        f"{remedy}"
        for other in registration.id_shared_with()
    ]


def _has_configured_id(config: LiveConfig) -> bool:
    return config.broker.broker_id == config.configured.broker_id


class ClaimId(Protocol):
    """`claim_slave_id` with everything except the master's address and the id that is given up."""

    async def __call__(self, addr: str, *, shared: int) -> int: ...


class SharedId:
    """The id of one broker, as far as another one may have it too."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        registration: BrokerRegistration,
        role: RoleService,
        role_file: RoleFile,
        surveyor: Surveyor,
        claim_id: ClaimId,
    ) -> None:
        """Create it; `claim_id` asks a master for another id."""
        self._config = config
        self._registration = registration
        self._role = role
        self._role_file = role_file
        self._surveyor = surveyor
        self._claim_id = claim_id
        self._changed_at = -inf

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Act on each registration that displaced another broker."""
        task_status.started()
        conflicts = self._registration.id_conflicts
        seen = conflicts.value
        while True:
            await conflicts.wait_past(seen)
            seen = conflicts.value
            own = self._config.broker
            is_due = trio.current_time() >= self._changed_at + CHANGE_PERIOD
            # An id from the settings belongs to the operator. The period bounds what a stranger achieves who registers
            # under each new id: a slave that changes its id connects again.
            if own.is_slave and not _has_configured_id(self._config) and is_due:
                # An address may be this broker's own former one: only what is answered there counts.
                others = await self._surveyor.ask(
                    self._registration.id_shared_with(), limit=ASK_LIMIT
                )
                if any(has_id(other, own.broker_name, own.broker_id) for other in others):
                    await self._change_id(own)

    async def _change_id(self, own: BrokerConfig) -> None:
        """Take another id from the master; if that is not possible, the next registration begins it again."""
        master = self._registration.master
        if master.addr is None:
            return
        try:
            broker_id = await self._claim_id(master.addr, shared=own.broker_id)
        except Error as error:
            logger.warning(
                "another broker has this one's id too, and the master gives no other master=%s reason=%s",
                master.addr, error,
            )  # fmt: skip
            return
        async with self._role.turn:
            # The id was claimed without `turn`: since then an operator may have changed the role, or a hand-over begun.
            if self._config.broker != own or self._role_file.pending is not None:
                return
            after = attrs.evolve(own, broker_id=broker_id)
            try:
                await self._role_file.hold(after, is_order=self._role_file.is_ordered)
            except ConfigFileError as error:
                logger.warning("the role is not kept for the next start reason=%s", error)
                return
            self._changed_at = trio.current_time()
            await self._role.step_down(after, master.addr, master.ha_addr)
        logger.warning(
            "another broker has this one's id too, this one changes it from=%d to=%d",
            own.broker_id, broker_id,
        )  # fmt: skip
