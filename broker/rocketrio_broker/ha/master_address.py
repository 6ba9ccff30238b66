"""Holds where a slave's master is, as far as it is known; parts that follow the master wait for changes.

Invariant: a known address stays known: a name server that has forgotten the master does not mean a dead master.
Answers to: HAClient.updateHaMasterAddress, SlaveSynchronize.setMasterAddr.
Unlike Java: the address is not checked periodically; a change wakes the tasks that wait for it.
"""

from rocketrio_broker.waiting.watermark import Watermark


class MasterAddress:
    """One `host:port` that may change."""

    __slots__ = ("_value", "changes")

    def __init__(self, addr: str | None = None) -> None:
        self._value = addr
        self.changes = Watermark()
        """Counts the changes, for tasks that also wait for something else."""

    def __repr__(self) -> str:
        return f"<MasterAddress {self._value or 'unknown'}>"

    @property
    def value(self) -> str | None:
        """The address; None while it is unknown."""
        return self._value

    def update(self, addr: str | None) -> None:
        """Set the address; None and the current address change nothing."""
        if addr and addr != self._value:
            self._value = addr
            self.changes.advance(self.changes.value + 1)

    async def wait_known(self) -> str:
        """Wait until the address is known, and return it."""
        while self._value is None:
            await self.changes.wait_past(self.changes.value)
        return self._value

    async def wait_other_than(self, addr: str) -> None:
        """Return once the address is not this one."""
        while self._value == addr:
            await self.changes.wait_past(self.changes.value)
