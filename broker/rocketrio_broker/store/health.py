"""Runs the services of an open store, and stops what must stop after a fault or damage.

    a service fails (a sync, a table that cannot be read)    the store ends: what is on the disk is unknown
    the log holds something that is not a record             nothing more is written; what lies before it can be read

Damage is found by the services that walk the log. On a slave it came from the master or the disk; what follows it is
refused. A master could go on appending, but must not: the next recovery may end the log at the damage, and acknowledged
messages after it would be lost. So it refuses sends, and serves the messages that it has.

Invariant: a store with a fault or damage stays marked as crashed, so that the next start recovers.
Unlike Java: bytes that are not a record are not skipped as if they were one; the queues end there, with an error.
"""

import logging
from pathlib import Path
from typing import Final, Protocol

import trio

from rocketrio_broker.store.errors import LogDamagedError, StoreError
from rocketrio_broker.store.refusals import Refusals, Refuser
from rocketrio_broker.waiting.watermark import Watermark

_LOG: Final = logging.getLogger("rocketrio_broker.store")


class StoreService(Protocol):
    """A task that runs while the store is open."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None: ...


class StoreHealth:
    """Runs the services of one store and knows their faults and damage."""

    def __init__(self, refusals: Refusals, root: Path) -> None:
        self.damage: LogDamagedError | None = None
        """Where the log is damaged; None while no damage is known."""
        self.has_fault = False
        """Whether a service has failed."""
        self._refusals = refusals
        self._root = root
        self._repaired = Watermark()

    def __repr__(self) -> str:
        return f"<StoreHealth fault={self.has_fault} damage={self.damage}>"

    @property
    def is_good(self) -> bool:
        return not self.has_fault and self.damage is None

    async def guard(self, service: StoreService, *, task_status: trio.TaskStatus[None]) -> None:
        """Run one service. Damage stops it until the damage is cut off; a fault ends the store."""
        while True:
            repaired = self._repaired.value
            try:
                await service.run(task_status=task_status)
            except LogDamagedError as damage:
                self.found(damage)
            except (OSError, StoreError) as fault:
                self.has_fault = True
                # At once, and not when the other tasks have ended: until then sends would be answered.
                self._refusals.refuse(Refuser.FAULT, f"the store failed: {fault}")
                raise
            else:
                return
            await self._repaired.wait_past(repaired)
            task_status = trio.TASK_STATUS_IGNORED

    def found(self, damage: LogDamagedError) -> None:
        """Record damage; the log is whole up to the lowest damage found."""
        known = self.damage
        if known is not None and known.physical_offset <= damage.physical_offset:
            return
        self.damage = LogDamagedError(damage.physical_offset, damage.problem)
        self._refusals.refuse(Refuser.DAMAGE, f"nothing is stored behind damage: {damage}")
        _LOG.error(
            "log damaged directory=%s at=%d error=%s",
            self._root, damage.physical_offset, damage,
        )  # fmt: skip

    def check(self) -> None:
        """Raise `LogDamagedError` if the log is damaged, so that nothing may be appended."""
        if self.damage is not None:
            raise LogDamagedError(self.damage.physical_offset, self.damage.problem)

    def log_was_cut(self, end: int) -> None:
        """Forget damage at or after `end`, where the log was cut, and let the services go on."""
        if self.damage is not None and end <= self.damage.physical_offset:
            self.damage = None
            self._refusals.lift(Refuser.DAMAGE)
            self._repaired.advance(self._repaired.value + 1)
