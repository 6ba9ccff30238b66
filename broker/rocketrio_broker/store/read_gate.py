"""The address before which readers see the log: what is confirmed, and will not be another message tomorrow.

    ... seen | stored, not confirmed yet ...          gating: `end` lies at or before the end of the log
    ... all that is stored is seen ...                not gating: `end` is EVERYTHING

A synchronous master moves the end as its slaves report; its slaves of ours are told of it over the replication link, as
one number that may be EVERYTHING.

Invariant: the end falls only where a role begins, where the log is cut and where a master says so.
Answers to: nothing in 4.x; DefaultMessageStore.getConfirmOffset of 5.x, which gates reads in controller mode.
"""

from typing import Final

from rocketrio_broker.watermark import Watermark

EVERYTHING: Final = (1 << 63) - 1
"""Of a gate that stands open: no log reaches it, and it fits an i64."""


class ReadGate:
    """How far readers of one store see."""

    __slots__ = ("end",)

    def __init__(self) -> None:
        self.end = Watermark(EVERYTHING)
        """Readers see what ends at or before this address."""

    def __repr__(self) -> str:
        return f"<ReadGate {self.end.value if self.is_gating else 'open'}>"

    @property
    def is_gating(self) -> bool:
        """Whether anything that is stored may be hidden from readers."""
        return self.end.value != EVERYTHING

    def told(self, address: int) -> None:
        """A slave's master has its gate here; EVERYTHING: it has none."""
        self.end.reset(address)

    def begin(self, address: int) -> None:
        """A role begins that shows what is confirmed: this much is."""
        self.end.reset(address)

    def pass_to(self, address: int) -> None:
        """All before this address is confirmed now; a lower one than before changes nothing."""
        self.end.advance(address)

    def log_was_cut(self, end: int) -> None:
        """The log ends here now: what comes behind is not confirmed yet."""
        if self.is_gating and self.end.value > end:
            self.end.reset(end)

    def open(self) -> None:
        """Show everything."""
        self.end.reset(EVERYTHING)
