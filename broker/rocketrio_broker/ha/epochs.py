"""Finds up to where two logs are the same, by their epochs, and whether the rest of one may have been acknowledged.

    ours    | 1 a | 2 b          | 4 c ...           the same epoch: number, id and start are equal
    theirs  | 1 a | 2 b    | 3 d ...                 the logs part where epoch 2 ends first

Invariant: everything before the boundary is the same on both sides.
Invariant: a number alone never makes two epochs the same.
Invariant: nothing is given up that enough slaves had acknowledged to this broker, whatever they say now.
Answers to: EpochFileCache.findConsistentPoint.
Unlike Java: bytes beyond the boundary are given up only if it is proven that no producer got PUT_OK for them.
"""

from collections.abc import Mapping, Sequence

import attrs

from rocketrio_broker.store.acknowledged import Acknowledgement
from rocketrio_broker.store.epochs import ANONYMOUS, SYNC
from rocketrio_protocol.ha.exchange import Epoch


@attrs.frozen
class Boundary:
    """The place where two logs part."""

    address: int
    own_count: int
    """The number of this log's epochs up to the last common one."""
    their_count: int
    """The number of the other log's epochs up to the last common one."""


def common_boundary(
    own: Sequence[Epoch], own_end: int, theirs: Sequence[Epoch], their_end: int
) -> Boundary | None:
    """Find the address up to which both logs are the same; None if they have no epoch in common."""
    places = {line.key: place for place, line in enumerate(theirs)}
    first = next((at for at, line in enumerate(own) if line.key in places), None)
    if first is None:
        return None
    count, place = 0, places[own[first].key]
    for mine, other in zip(own[first:], theirs[place:], strict=False):
        # By number, id and start together: two masters that could not reach each other may have opened the same number.
        if mine.key != other.key:
            break
        count += 1
    own_count, their_count = first + count, place + count
    address = min(_end(own, own_count, own_end), _end(theirs, their_count, their_end))
    return Boundary(address, own_count, their_count)


def _end(lines: Sequence[Epoch], count: int, log_end: int) -> int:
    """Return where the last of the first `count` epochs ends."""
    return min(lines[count].start, log_end) if count < len(lines) else log_end


def why_kept(
    own: Sequence[Epoch],
    member: str,
    boundary: int,
    end: int,
    theirs: Sequence[Epoch],
    acknowledged: Mapping[str, Acknowledgement],
    shown: int = 0,
) -> str | None:
    """Return why a message between `boundary` and `end` may have been answered PUT_OK; None if none was.

    `theirs` are the master's epochs beyond the boundary. Only the member that wrote an epoch knows its slaves, and how
    far they `acknowledged` it. Readers were `shown` the log up to there before this broker was started.
    """
    if not own or boundary < own[0].start:
        return (
            "nothing is known of promises in the part of the log that is older than the epoch file"
        )
    ends = [*(line.start for line in own[1:]), end]
    for line, line_end in zip(own, ends, strict=True):
        if line_end <= boundary or line.start >= end:
            continue
        if line.member != member:
            return f"epoch {line.number} was written by another member, {line.member}"
        if line.mode != SYNC:
            return f"epoch {line.number} answered before any slave had a message"
        if line.answered_early:
            return (
                f"in epoch {line.number} something was answered before slaves had it: a send that asked not to wait, "
                "a message handed back, or a topic's deletion"
            )
        # A slave counts against the proof if this broker noted that it had more, if it is unknown here (it may have had
        # everything), or if no opener has said that it got all that the slave had.
        had = [
            slave
            for slave in line.joined
            if slave in acknowledged and acknowledged[slave].address > boundary
        ]
        outside = [
            slave
            for slave in line.joined
            if slave == ANONYMOUS
            or slave in had
            or slave not in acknowledged
            or not _is_covered(line, slave, theirs)
        ]
        # A producer got PUT_OK only with `in_sync_slaves` of them: fewer cannot have released a message.
        if ANONYMOUS in outside or len(outside) >= line.in_sync_slaves:
            return _who_had(line, had, outside, theirs, acknowledged)
    if boundary < shown:
        return f"readers had been shown this log up to {shown} when this broker was last stopped"
    return None


def _who_had(
    line: Epoch,
    had: Sequence[str],
    outside: Sequence[str],
    theirs: Sequence[Epoch],
    acknowledged: Mapping[str, Acknowledgement],
) -> str:
    """Return which slaves had bytes of an epoch beyond the boundary, or may have had some."""
    opener = f", and began epoch {theirs[0].number}: its directory is an older copy"
    reasons = [
        f"{_name(slave, acknowledged)} had acknowledged this log up to"
        f" {acknowledged[slave].address}{opener if slave == theirs[0].member else ''}"
        for slave in had
    ]
    others = [_name(slave, acknowledged) for slave in outside if slave not in had]
    if others:
        reasons.append(
            f"slaves that counted in epoch {line.number} may have had it: {', '.join(others)}"
        )
    return "; ".join(reasons)


def _name(slave: str, acknowledged: Mapping[str, Acknowledgement]) -> str:
    if slave == ANONYMOUS:
        return "a slave that does not identify itself"
    known = acknowledged.get(slave)
    return f"slave {known.broker or slave}" if known is not None else f"slave {slave}"


def _is_covered(line: Epoch, slave: str, theirs: Sequence[Epoch]) -> bool:
    """Return whether an opener had everything that this slave has of epoch `line` of this log, and lost nothing of it.

    That is unknown if the slave already knew the opener's epoch when it connected here: it may have got more
    since.
    """
    return any(
        line.number > opened.covers[slave] and line.joined[slave] < opened.number
        for opened in theirs
        if slave in opened.covers
    )
