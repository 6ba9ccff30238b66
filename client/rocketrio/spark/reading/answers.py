"""Decides what a pull answer means for a reader that planned to read up to a fixed end. Pure.

A slave may be behind its master, so the master is asked for what the slave lacks before anything counts as lost.
Invariant: progress follows the answer's next offset; nothing outside the planned range is read.
Answers to: RocketMQ reference, sections 8.1 and 8.3.
"""

from typing import TypeAlias

import attrs

from rocketrio.consuming.pull_result import PullResult, PullStatus


@attrs.frozen
class Take:
    """Messages up to `next_offset`, or none if the filter dropped all of them."""

    next_offset: int


@attrs.frozen
class Lost:
    """Messages up to `next_offset` no longer exist."""

    next_offset: int


@attrs.frozen
class Again:
    """The answer decides nothing: ask again later; `is_lost_at_last` says whether a last such answer means a loss."""

    is_lost_at_last: bool = True


@attrs.frozen
class AskMaster:
    """The slave does not have the messages; the master may."""


Verdict: TypeAlias = Take | Lost | Again | AskMaster


def judge(
    result: PullResult, *, offset: int, end: int, master_known: bool, is_filtered: bool = False
) -> Verdict:
    """Return what to do after the answer to a pull at `offset`, when messages up to `end` are planned."""
    if result.status is PullStatus.FOUND:
        # Apache's brokers never answer so without progress; accepting it would make an endless loop.
        return Take(result.next_begin_offset) if result.next_begin_offset > offset else Again()
    nothing_matched = (
        result.status is PullStatus.NO_MATCHED_MSG and result.next_begin_offset > offset
    )
    if is_filtered and nothing_matched and result.min_offset <= offset:
        return Take(min(result.next_begin_offset, end))  # A slave has filtered them too.
    if result.is_from_slave:
        return AskMaster() if master_known else Again(is_lost_at_last=False)
    if result.min_offset > offset:
        return Lost(min(result.min_offset, end))
    if nothing_matched:
        return Take(min(result.next_begin_offset, end))
    if result.status is PullStatus.OFFSET_ILLEGAL and result.max_offset <= offset:
        return Lost(end)
    # NO_NEW_MSG before the planned end: the log became shorter, or a broker that has just started has not built its
    # queues up to there yet. Any other status: a queue file that cannot be read now.
    return Again()
