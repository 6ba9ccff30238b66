"""Names the place that a reader's position comes from: the epoch of the log, and the incarnation of the topic.

    14.9778.5f0c9e6ab1d24c87.77e0b6a1c4d2f035~3       an epoch as readers name it (docs/decisions/0036), and a number

A topic that is deleted and created again is another incarnation of its name: its queues count from 0 again. The number
grows with each deletion, on the master and its slaves alike, and is 0 before the first one. It is the generation below
which the deletion has voided the topic's committed offsets (docs/decisions/0014, 0068).

Readers repeat the text as they got it. Brokers of earlier versions name the epoch alone: then the incarnation is
unknown, and nothing is concluded from it.
Answers to: nothing; Apache's brokers do not distinguish the incarnations of a topic.
"""

from typing import Final

_MARK: Final = "~"
_DIGITS_LIMIT: Final = 16
"""As many as the numbers of a generation have."""


def place_text(epoch: str, incarnation: int) -> str:
    """Return the name of a place."""
    return f"{epoch}{_MARK}{incarnation}"


def epoch_of(place: str) -> str:
    """Return the epoch that a place names."""
    return place.partition(_MARK)[0]


def incarnation_of(place: str | None) -> int | None:
    """Return the incarnation that a place names; None if it names none, and for a text that is not a number."""
    number = "" if place is None else place.partition(_MARK)[2]
    is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS_LIMIT
    return int(number) if is_number else None


def is_earlier_topic(before: str | None, now: str | None) -> bool:
    """Return whether the topic was deleted after `before` was named: positions from there mean nothing now."""
    then, current = incarnation_of(before), incarnation_of(now)
    return then is not None and current is not None and then < current


def is_same_topic(before: str | None, now: str | None) -> bool:
    """Return whether both are known to be of one incarnation of the topic."""
    then = incarnation_of(before)
    return then is not None and then == incarnation_of(now)
