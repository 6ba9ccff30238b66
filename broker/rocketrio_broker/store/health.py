"""What is wrong with an open store, and how its services stand to that.

    a service fails (a sync, a table that cannot be read)    the store ends: nobody knows what the disk has
    the log holds what is no record                          nothing is written any more; what lies before it is read

Damage is found by whoever walks the log. On a slave it came from the master or the disk, and what follows is refused.
A master could go on appending, but must not: the next recovery may end the log at the damage, and what was
acknowledged behind it would be gone. It refuses sends for that reason, and goes on serving what it has.

Invariant: a store with a fault or damage is left as crashed, so that the next start recovers.
Unlike Java: what is no record is not skipped as if it were one; the queues end there, loudly.
"""

import logging
from pathlib import Path
from typing import Final, Protocol

import trio

from rocketrio_broker.store.append import Appender
from rocketrio_broker.store.errors import LogDamagedError, StoreError
from rocketrio_broker.watermark import Watermark

_LOG: Final = logging.getLogger("rocketrio_broker.store")


class Service(Protocol):
    """Something that runs while the store is open."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None: ...


class StoreHealth:
    """Runs the services of one store and knows what they ran into."""

    def __init__(self, appender: Appender, root: Path) -> None:
        self.damage: LogDamagedError | None = None
        """Where the log is damaged; None while nobody has found any."""
        self.has_fault = False
        """Whether a service has failed."""
        self._appender = appender
        self._root = root
        self._mended = Watermark()

    def __repr__(self) -> str:
        return f"<StoreHealth fault={self.has_fault} damage={self.damage}>"

    @property
    def is_good(self) -> bool:
        return not self.has_fault and self.damage is None

    async def guard(self, service: Service, *, task_status: trio.TaskStatus[None]) -> None:
        """Run one service. Damage stops it until that is cut off; its fault is the store's, which then ends."""
        while True:
            mended = self._mended.value
            try:
                await service.run(task_status=task_status)
            except LogDamagedError as damage:
                self.found(damage)
            except (OSError, StoreError) as fault:
                self.has_fault = True
                self._appender.refusal = f"the store failed: {fault}"
                raise
            else:
                return
            await self._mended.wait_past(mended)
            task_status = trio.TASK_STATUS_IGNORED

    def found(self, damage: LogDamagedError) -> None:
        """Note damage: the log is whole up to the lowest that was found."""
        known = self.damage
        if known is not None and known.physical_offset <= damage.physical_offset:
            return
        self.damage = LogDamagedError(damage.physical_offset, damage.problem)
        self._appender.refusal = f"nothing is stored behind damage: {damage}"
        _LOG.error(
            "event=log_damaged directory=%s at=%d error=%s",
            self._root, damage.physical_offset, damage,
        )  # fmt: skip

    def check(self) -> None:
        """Raise `LogDamagedError` when nothing may follow what the log holds."""
        if self.damage is not None:
            raise LogDamagedError(self.damage.physical_offset, self.damage.problem)

    def log_was_cut(self, end: int) -> None:
        """The log ends here now; with the damage gone its services go on."""
        if self.damage is not None and end <= self.damage.physical_offset:
            self.damage = None
            self._appender.refusal = ""
            self._mended.advance(self._mended.value + 1)
