"""Holds why appends are refused: each part of the broker that refuses them has a reason of its own.

Invariant: a refusal is lifted by the part that refused, and by no other; appends are taken while no part refuses them.
Answers to: nothing; in Java each reason is a flag of its own, which the methods that store messages test one by one.
"""

from enum import Enum, auto


class Refuser(Enum):
    """A part of the broker that may refuse appends.

    Several may do so at once. The first one in this order names the reason: it lasts longest, or says more.
    """

    FAULT = auto()
    """A service of the store that failed; the store ends."""
    DAMAGE = auto()
    """A damaged log, until the damage is cut off."""
    CLOSING = auto()
    """A store that is being closed."""
    SECOND_HISTORY = auto()
    """A new log beside an older one of its name, until the broker is restarted or follows another log."""
    MISSING_TAIL = auto()
    """A new master that gets what it lacks of a slave's log."""
    REPLICATION = auto()
    """A log that replication writes."""
    EPOCH = auto()
    """A master without an epoch for what it would write."""
    STANDING = auto()
    """Each broker but a master that has taken over, and does not hand over (`role/standing.py`)."""
    DISK = auto()
    """A disk that is nearly full."""


class Refusals:
    """The refusals of one store."""

    def __init__(self) -> None:
        self.reason = ""
        """Why appends are refused; empty if they are not."""
        self._reasons: dict[Refuser, str] = {}

    def __repr__(self) -> str:
        return (
            f"<Refusals {', '.join(one.name for one in Refuser if one in self._reasons) or 'none'}>"
        )

    def of(self, refuser: Refuser) -> str:
        """Return why this part refuses appends; empty if it does not."""
        return self._reasons.get(refuser, "")

    def refuse(self, refuser: Refuser, why: str) -> None:
        """Refuse appends until `lift`; a second call replaces the reason of this part."""
        self._reasons[refuser] = why
        self._choose()

    def lift(self, refuser: Refuser) -> None:
        """Lift the refusal of this part, if there is one."""
        # Its own reason alone: with one reason for all, a change of mode let a master write
        # beside an older log of its name (docs/decisions/0065).
        self._reasons.pop(refuser, None)
        self._choose()

    def _choose(self) -> None:
        self.reason = next((self._reasons[one] for one in Refuser if one in self._reasons), "")
