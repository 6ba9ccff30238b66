"""Stores the role that a broker holds, if it is not the role in its settings.

    config/rocketrioRole.json   {"role": "slave", "brokerId": 1, "configured": {"role": "async-master", "brokerId": 0}}

A broker that changed its role while it ran (`broker role`, a hand-over, a master that follows another one) starts in
that role again. If an operator changes role or id in the settings meanwhile, the settings win: the file is valid only
for the settings with which it was written, and for those that say what the last order said.

Invariant: after `hold` returns, a power cut does not undo it.
Answers to: nothing; Java's brokers ignore the file.
"""

import logging
from pathlib import Path

import attrs
import msgspec

from rocketrio_broker.settings.config import BrokerConfig, Role
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_protocol.codes import MASTER_ID

logger = logging.getLogger("rocketrio_broker")

FILE_NAME = "rocketrioRole.json"


class RoleAndId(msgspec.Struct, rename="camel", frozen=True):
    """A role with its broker id."""

    role: Role
    broker_id: int

    @classmethod
    def of(cls, config: BrokerConfig) -> "RoleAndId":
        """Return the role and id in these settings."""
        return cls(config.role, config.broker_id)

    def is_possible(self) -> bool:
        """Return True if a broker may have this role with this id."""
        return (self.role == "slave") == (
            self.broker_id > MASTER_ID
        ) and self.broker_id >= MASTER_ID

    def __str__(self) -> str:
        return f"{self.role} {self.broker_id}"


class PendingHandOver(msgspec.Struct, rename="camel", frozen=True):
    """A hand-over whose outcome a master must find out after a crash in the middle of it."""

    to: str
    """The follower's address for requests."""
    token: str
    master: RoleAndId
    """The role of this broker if the follower did not take over."""


class _Content(msgspec.Struct, rename="camel", kw_only=True):
    role: Role
    broker_id: int
    configured: RoleAndId
    ordered: RoleAndId | None = None
    pending: PendingHandOver | None = None
    taken: str = ""


class RoleFile:
    """The file of one broker; `configured` is the role in its settings."""

    def __init__(self, directory: Path, *, configured: BrokerConfig, disk: Disk) -> None:
        self.configured = RoleAndId.of(configured)
        self.pending: PendingHandOver | None = None
        """A hand-over of this master that had no outcome when it stopped."""
        self._ordered: RoleAndId | None = None
        self._is_synced = True
        self.taken = ""
        """The token of the hand-over by which this broker last became master."""
        self._file = ConfigFile(directory / FILE_NAME, disk=disk)
        self._disk = disk
        self._held = self._load()

    def __repr__(self) -> str:
        return f"<RoleFile {self._held}, configured {self.configured}>"

    @property
    def is_ordered(self) -> bool:
        """Return True if an operator gave the held role, False if another broker did."""
        return self._held == self._ordered

    @property
    def as_master(self) -> RoleAndId | None:
        """The master's role that an operator's last order gave, or else the settings; None if both say slave."""
        given = (self._ordered, self.configured)
        return next((one for one in given if one is not None and one.role != "slave"), None)

    def apply(self, config: BrokerConfig) -> BrokerConfig:
        """Return the settings with the held role and id."""
        return attrs.evolve(config, role=self._held.role, broker_id=self._held.broker_id)

    async def hold(
        self,
        config: BrokerConfig,
        *,
        is_order: bool = False,
        pending: PendingHandOver | None = None,
        taken: str | None = None,
    ) -> None:
        """Store the role and id of `config` for the next start.

        `is_order` says that an operator gave this role, and may write the same into the settings. Raises
        ConfigFileError; if the sync failed, it is open then which of both the disk has, and the next call writes.
        """
        taken = self.taken if taken is None else taken
        held = RoleAndId.of(config)
        now = held, pending, taken
        if self._is_synced and now == (self._held, self.pending, self.taken):
            return
        ordered = held if is_order else self._ordered
        content = _Content(
            role=held.role,
            broker_id=held.broker_id,
            configured=self.configured,
            ordered=ordered,
            pending=pending,
            taken=taken,
        )
        self._file.write(content)
        # Until the sync has returned the disk may have either: what goes back to the role before must be written too.
        self._is_synced = False
        await self._disk.run(self._file.sync)
        self._is_synced = True
        self._held, self.pending, self.taken = now
        self._ordered = ordered

    def _load(self) -> RoleAndId:
        content = self._file.load(_Content)
        if content is None:
            return self.configured
        held = RoleAndId(content.role, content.broker_id)
        if not held.is_possible():
            return self.configured
        # Settings that say what the last order said were changed with that order; what brokers agreed on since, in a
        # hand-over say, is newer.
        if self.configured not in (content.configured, content.ordered):
            if held != self.configured:
                logger.warning(
                    "role or id in the settings was changed, the held role is dropped "
                    "settings=%s before=%s held=%s",
                    self.configured, content.configured, held,
                )  # fmt: skip
            return self.configured
        self._ordered, self.pending, self.taken = content.ordered, content.pending, content.taken
        return held
