"""What makes one committed offset newer than another: a value with a join, and the rules by which a commit becomes one.

    Version = (generation, offset), generation = (resets, lowers)
    join: the greater generation wins; within one generation the greater offset

Whoever may lower an offset opens a generation for it, so within a generation offsets only grow. An operator counts up
`resets`, clients (a seek; a plain commit that is lower) count up `lowers`: an operator's reset is newer than whatever
clients did meanwhile, wherever they did it.

Invariant: what is stored can be parsed: `lowered` and `reset` stay within GENERATION_LIMIT. Commits keep far away from
it, as each may be ahead by LEAD_LIMIT only.
Invariant: every change is a join with what stood before. Join is associative, commutative and idempotent, so brokers
that heard the same commits in any order, however often, agree; and no clock is asked.
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
"""Of both numbers of a generation: one a microsecond lasts for thirty years."""
LEAD_LIMIT: Final = 10**9
"""Generations by which a commit may be ahead of what stands: what another broker opened meanwhile."""


class Generation(NamedTuple):
    """Which of a queue's lowerings an offset comes after; written `resets.lowers`."""

    resets: int = 0
    """By operators: resets, clones, deletions."""
    lowers: int = 0
    """By clients since then: seeks, and plain commits that were lower."""

    def __str__(self) -> str:
        return f"{self.resets}.{self.lowers}"

    @classmethod
    def parse(cls, text: str) -> "Generation":
        """From its text. Raises RemoteProtocolError."""
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
        """The next one that a client opens."""
        if self.lowers == GENERATION_LIMIT:
            return self.reset()
        return Generation(self.resets, self.lowers + 1)

    def reset(self) -> "Generation":
        """The next one that an operator opens; of the very last one itself."""
        return Generation(self.resets + 1, 0) if self.resets < GENERATION_LIMIT else self

    def is_far_ahead_of(self, other: "Generation") -> bool:
        """Return whether no row of lowerings that a broker missed can explain it."""
        lowers = other.lowers if self.resets == other.resets else 0
        return self.resets - other.resets > LEAD_LIMIT or self.lowers - lowers > LEAD_LIMIT


FIRST: Final = Generation()


@attrs.frozen
class Version:
    """One queue's committed offset, with what is needed to tell it from an older or newer one."""

    offset: int
    generation: Generation = FIRST
    lowered_from: int = NO_OFFSET
    """The highest offset of earlier generations: an Apache slave, which keeps no generations, may still show it."""

    def join(self, other: "Version") -> "Version":
        """The newer of both; of one generation the higher offset."""
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
        """Whether a join with it would change the other's offset or generation."""
        return (self.generation, self.offset) > (other.generation, other.offset)


@attrs.frozen
class Commit:
    """A commit as a broker hears it; without a generation it is a plain one, as Apache's clients send."""

    offset: int
    generation: Generation | None = None
    """What its sender was told of the queue."""
    is_owner: bool | None = None
    """Whether its sender was the last to claim the queue at this broker. None: it is a broker, which owns nothing."""
    is_seek: bool = False
    """The user went there on purpose."""
    is_reset: bool = False
    """An operator puts the group there."""


def join_commit(current: Version, commit: Commit) -> tuple[Version, CommitOutcome]:
    """What stands after a commit, and what its sender is told."""
    told = _told(current, commit)
    if isinstance(told, CommitOutcome):
        return current, told
    return current.join(told), CommitOutcome.STORED


def _told(current: Version, commit: Commit) -> Version | CommitOutcome:
    """The version that a commit stands for, or why it stands for none."""
    offset, now = commit.offset, current.generation
    is_lower = offset < current.offset
    if commit.is_reset:
        # Of one that raises nothing is undone if running consumers go on: it needs no stronger generation.
        newest = max(now, commit.generation or FIRST)
        return Version(offset, newest.reset() if is_lower else newest.lowered())
    told = commit.generation
    if told is None:  # Apache's rule: the last commit wins.
        return Version(offset, now.lowered() if is_lower else now)
    if told.resets < now.resets:
        return CommitOutcome.RESET
    if commit.is_owner is None:
        return Version(offset, told)
    if not commit.is_owner:
        # It may have lost the queue: then it may raise, never lower, and not undo what came after it.
        if commit.is_seek or told < now or (told > now and is_lower):
            return CommitOutcome.UNCLAIMED
        return Version(offset, told)
    newest = max(now, told)
    # A seek opens a generation also when it goes forward: elsewhere the group may have been further.
    return Version(offset, newest.lowered() if commit.is_seek else newest)
