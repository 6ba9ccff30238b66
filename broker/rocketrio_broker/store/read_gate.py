"""The address up to which readers see the log: messages before it are confirmed and cannot be replaced later.

    ... seen | stored, not confirmed yet ...          gating: `end` lies at or before the end of the log
    ... all that is stored is seen ...                not gating: `end` is EVERYTHING

A synchronous master moves the end as its slaves report. It sends the end to its rocketrio slaves over the replication
link, as one number that may be EVERYTHING.

Invariant: the end falls only where a role begins, where the log is cut, and where a master says so.
Answers to: nothing in 4.x; DefaultMessageStore.getConfirmOffset of 5.x, which gates reads in controller mode.
"""

from typing import Final

from rocketrio_broker.waiting.watermark import Watermark

EVERYTHING: Final = (1 << 63) - 1
"""The end of an open gate: no log reaches it, and it fits into an i64."""


class ReadGate:
    """The limit up to which readers of one store see the log."""

    __slots__ = ("end",)

    def __init__(self) -> None:
        self.end = Watermark(EVERYTHING)
        """Readers see the messages that end at or before this address."""

    def __repr__(self) -> str:
        return f"<ReadGate {self.end.value if self.is_gating else 'open'}>"

    @property
    def is_gating(self) -> bool:
        """Whether stored messages may be hidden from readers."""
        return self.end.value != EVERYTHING

    def set_reported(self, address: int) -> None:
        """Set a slave's gate to the one that its master reported; EVERYTHING if the master has none."""
        self.end.reset(address)

    def begin(self, address: int) -> None:
        """Set the gate to `address` when a role begins that shows only confirmed messages."""
        self.end.reset(address)

    def pass_to(self, address: int) -> None:
        """Show messages up to `address`, which are now confirmed; a lower address than before changes nothing."""
        # `advance`, which never goes back: what readers have seen stays visible.
        self.end.advance(address)

    def log_was_cut(self, end: int) -> None:
        """Lower the gate to `end`, where the log was cut: what follows there is not confirmed yet."""
        if self.is_gating and self.end.value > end:
            self.end.reset(end)

    def open(self) -> None:
        """Show everything."""
        self.end.reset(EVERYTHING)
