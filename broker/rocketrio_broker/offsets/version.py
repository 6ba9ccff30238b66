"""Decides which of two committed offsets is newer: a version with a join, and the rules for commits.

    Version = (generation, offset), generation = (resets, lowers)
    join: the greater generation wins; within one generation the greater offset

Lowering an offset opens a new generation, so within a generation offsets only grow. An operator counts up `resets`;
clients (by a seek, or a plain commit that is lower) count up `lowers`. So an operator's reset is newer than everything
that clients did meanwhile, at any broker.

Invariant: every stored version can be parsed: `lowered` and `reset` stay within GENERATION_LIMIT. Commits stay far
below it, because each may be ahead by LEAD_LIMIT only.
Invariant: every change is a join with the former version. Join is associative, commutative and idempotent, so brokers
that got the same commits, in any order and any number of times, agree without clocks.
Answers to: nothing; Apache's brokers keep the last commit that arrived (docs/decisions/0014).
"""

import re
from typing import Final, NamedTuple

import attrs

from rocketrio_protocol.commands.offset import CommitOutcome
from rocketrio_protocol.errors import RemoteProtocolError

NO_OFFSET: Final = -1
_TEXT: Final = re.compile(r"(\d{1,16})\.(\d{1,16})", re.ASCII)

GENERATION_LIMIT: Final = 10**15
"""The limit of both numbers of a generation: at one a microsecond it lasts for thirty years."""
LEAD_LIMIT: Final = 10**9
"""Generations by which a commit may be ahead of the stored one, because of what another broker opened meanwhile."""


class Generation(NamedTuple):
    """The number of a queue's lowerings before an offset; written `resets.lowers`."""

    resets: int = 0
    """Lowerings by operators: resets, clones, deletions."""
    lowers: int = 0
    """Lowerings by clients since then: seeks, and plain commits that were lower."""

    def __str__(self) -> str:
        return f"{self.resets}.{self.lowers}"

    @classmethod
    def parse(cls, text: str) -> "Generation":
        """Parse its text. Raises RemoteProtocolError."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise RemoteProtocolError(f"The offset generation {text[:80]!r} is not two numbers")
        parsed = cls(int(match[1]), int(match[2]))
        if max(parsed) > GENERATION_LIMIT:
            raise RemoteProtocolError(
                f"The offset generation {text} is beyond {GENERATION_LIMIT}, which no broker reaches"
            )
        return parsed

    def lowered(self) -> "Generation":
        """Return the next generation, as a client opens it."""
        if self.lowers == GENERATION_LIMIT:
            return self.reset()
        return Generation(self.resets, self.lowers + 1)

    def reset(self) -> "Generation":
        """Return the next generation, as an operator opens it; the very last one is returned itself."""
        return Generation(self.resets + 1, 0) if self.resets < GENERATION_LIMIT else self

    def is_far_ahead_of(self, other: "Generation") -> bool:
        """Return True if the lowerings that a broker can have missed do not explain the difference."""
        lowers = other.lowers if self.resets == other.resets else 0
        return self.resets - other.resets > LEAD_LIMIT or self.lowers - lowers > LEAD_LIMIT


FIRST: Final = Generation()


@attrs.frozen
class Version:
    """One queue's committed offset, with what is needed to decide whether another one is older or newer."""

    offset: int
    generation: Generation = FIRST
    lowered_from: int = NO_OFFSET
    """The highest offset of earlier generations: an Apache slave, which has no generations, may still report it."""

    def join(self, other: "Version") -> "Version":
        """Return the newer of both; within one generation the higher offset."""
        if self.generation == other.generation:
            offset, old = max(self.offset, other.offset), NO_OFFSET
        elif self.generation > other.generation:
            offset, old = self.offset, other.offset
        else:
            offset, old = other.offset, self.offset
        return Version(
            offset,
            max(self.generation, other.generation),
            max(self.lowered_from, other.lowered_from, old),
        )

    def is_newer_than(self, other: "Version") -> bool:
        """Return True if a join with this version would change the other's offset or generation."""
        return (self.generation, self.offset) > (other.generation, other.offset)


@attrs.frozen
class Commit:
    """A commit as a broker receives it; without a generation it is a plain one, as Apache's clients send."""

    offset: int
    generation: Generation | None = None
    """The generation that its sender got for the queue."""
    is_owner: bool | None = None
    """Whether its sender was the last to claim the queue at this broker. None for a broker, which owns no queues."""
    is_seek: bool = False
    """True if the user set the position deliberately."""
    is_reset: bool = False
    """True if an operator sets the group's offset."""
    may_stand_at: float = NO_OFFSET
    """For a reset: where the group may stand if nothing is committed here, because only another broker knows."""


def join_commit(current: Version, commit: Commit) -> tuple[Version, CommitOutcome]:
    """Return the stored version after a commit, and the outcome to report to its sender."""
    requested = _requested_version(current, commit)
    if isinstance(requested, CommitOutcome):
        return current, requested
    return current.join(requested), CommitOutcome.STORED


def _requested_version(current: Version, commit: Commit) -> Version | CommitOutcome:
    """Return the version that a commit asks for, or the reason why it is not accepted."""
    offset, now = commit.offset, current.generation
    is_lower = offset < current.offset
    if commit.is_reset:
        if current.offset == NO_OFFSET:
            is_lower = offset < commit.may_stand_at
        # Running consumers cannot undo a reset that raises the offset, so it needs no stronger generation.
        newest = max(now, commit.generation or FIRST)
        return Version(offset, newest.reset() if is_lower else newest.lowered())
    requested = commit.generation
    if requested is None:  # Apache's rule: the last commit wins.
        return Version(offset, now.lowered() if is_lower else now)
    # An operator has reset the offset since this client got its position: what it read before does not count.
    if requested.resets < now.resets:
        return CommitOutcome.RESET
    if commit.is_owner is None:
        return Version(offset, requested)
    if not commit.is_owner:
        # It may have lost the queue: then it may raise the offset, but neither lower it nor undo a later change.
        if commit.is_seek or requested < now or (requested > now and is_lower):
            return CommitOutcome.UNCLAIMED
        return Version(offset, requested)
    newest = max(now, requested)
    # A seek opens a generation even if it goes forward: at another broker the group may have been further.
    return Version(offset, newest.lowered() if commit.is_seek else newest)
