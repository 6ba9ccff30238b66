"""What a pull answer means for a reader that was promised messages up to a planned end. Pure.

A slave may be behind: what it lacks is asked of the master before anything counts as lost.
Invariant: progress follows the answer's next offset; nothing outside the planned range is read.
Answers to: RocketMQ reference, sections 8.1 and 8.3.
"""

from typing import TypeAlias

import attrs

from rocketrio.consuming.pull_result import PullResult, PullStatus


@attrs.frozen
class Take:
    """Messages (or none, where all were filtered) up to `next_offset`."""

    next_offset: int


@attrs.frozen
class Lost:
    """Messages up to `next_offset` are gone."""

    next_offset: int


@attrs.frozen
class Again:
    """Nothing was learnt; ask again a little later, `is_lost_at_last` when it stays so."""

    is_lost_at_last: bool = True


@attrs.frozen
class AskMaster:
    """The slave does not have it; the master may."""


Verdict: TypeAlias = Take | Lost | Again | AskMaster


def judge(
    result: PullResult, *, offset: int, end: int, master_known: bool, is_filtered: bool = False
) -> Verdict:
    """What to do after the answer to a pull at `offset`, when messages are planned up to `end`."""
    if result.status is PullStatus.FOUND:
        # Apache never answers so without progress; anything else would be a loop without end.
        return Take(result.next_begin_offset) if result.next_begin_offset > offset else Again()
    nothing_matched = (
        result.status is PullStatus.NO_MATCHED_MSG and result.next_begin_offset > offset
    )
    if is_filtered and nothing_matched and result.min_offset <= offset:
        return Take(min(result.next_begin_offset, end))  # A slave has looked at them as well.
    if result.is_from_slave:
        return AskMaster() if master_known else Again(is_lost_at_last=False)
    if result.min_offset > offset:
        return Lost(min(result.min_offset, end))
    if nothing_matched:
        return Take(min(result.next_begin_offset, end))
    if result.status is PullStatus.OFFSET_ILLEGAL and result.max_offset <= offset:
        return Lost(end)
    # NO_NEW_MSG before the planned end: the log became shorter, unless a broker that just started has
    # not read all of it yet. Otherwise a queue file that cannot be read now.
    return Again()
