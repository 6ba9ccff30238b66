"""The verdict on a round: what was promised, and is not so.

    lost          an acknowledged message is gone, and no fault took it (`faults.py`)
    undelivered   one that is there never came to a group
    undone        a transaction came that was not committed
    early         a delayed message came before its time
    twice         a message is stored twice, or comes to a group again, though all was well when it was sent, or came
    order         in a queue, or at a group that has its queues in order, a later message of a sender is before an
                  earlier one
    owners        two members of that group have one queue at the same time, or the owners change all the time
    went back     committed offsets fall further than faults explain

Invariant: an excuse is a fault with its time, never a kind of round.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from tests.faults.faults import COPIED, WRITTEN, Faults
from tests.faults.workload import DELAY_MS, ORDERLY, Handling, Record, Sample, Seen

REPEATED: Final = 5.0
"""Seconds for which a message may come again because a queue has another owner: it commits each second."""
CHANGES: Final = 12
"""The most changes of a queue's owner in a round, where two members come once and both lose their broker a few
times."""


def verdict(seen: Seen, stored: Sequence[Record], faults: Faults) -> Iterator[str]:
    """What is wrong, in words; nothing is best."""
    yield from _lost(seen, stored, faults)
    yield from _undelivered(seen, stored)
    yield from _undone(seen, stored)
    yield from _early(seen, stored)
    yield from _stored_twice(seen, stored, faults)
    yield from _order_in_queues(seen, stored)
    for group, handled in seen.handled.items():
        yield from _came_again(group, handled, faults)
        yield from _owners(group, handled)
    yield from _order_at_its_owner(seen, stored)
    yield from _went_back(seen, stored, faults)
    for kind in b"pdt":
        if not any(body[0] == kind for body in seen.promised):
            yield f"nothing was acknowledged of {chr(kind)}"


def gone(seen: Seen, stored: Iterable[Record]) -> set[bytes]:
    """What was acknowledged and is not there."""
    return seen.promised - _bodies(stored)


def _bodies(stored: Iterable[Record]) -> set[bytes]:
    return {record.body for record in stored}


def _some(found: Collection[object]) -> str:
    """How many, and the first few."""
    first = [one.decode() if isinstance(one, bytes) else str(one) for one in found][:5]
    return f"{len(found)} ({', '.join(first)})"


def _lost(seen: Seen, stored: Sequence[Record], faults: Faults) -> Iterator[str]:
    lost = gone(seen, stored)
    without_fault = []
    for body in sorted(lost):
        answered = seen.sent[body].answered
        assert answered is not None
        if not faults.may_lose(answered):
            without_fault.append(f"{body.decode()} {answered - faults.began:+.2f} s")
    if without_fault:
        yield f"acknowledged and gone without a fault that explains it: {_some(without_fault)}"


def _undelivered(seen: Seen, stored: Sequence[Record]) -> Iterator[str]:
    for group, bodies in seen.bodies.items():
        if missing := (seen.promised & _bodies(stored)) - bodies:
            yield f"acknowledged and never delivered to {group}: {_some(sorted(missing))}"


def _undone(seen: Seen, stored: Sequence[Record]) -> Iterator[str]:
    found = _bodies(stored).union(*seen.bodies.values())
    if undone := {body for body in found if seen.is_dropped(body)}:
        yield f"delivered, though their transactions were rolled back: {_some(sorted(undone))}"


def _early(seen: Seen, stored: Sequence[Record]) -> Iterator[str]:
    early = [
        record.body
        for record in stored
        if record.body.startswith(b"d")
        and record.store_ms < seen.sent[record.body].begun_ms + DELAY_MS
    ]
    if early:
        yield f"delivered before their delay was over: {_some(early)}"


def _stored_twice(seen: Seen, stored: Sequence[Record], faults: Faults) -> Iterator[str]:
    places = defaultdict(list)
    for record in stored:
        places[record.body].append(record)
    twice = []
    for body, records in places.items():
        sent = seen.sent[body]
        forgotten_from = faults.began - WRITTEN if body[:1] in b"dt" else faults.forgotten_from
        was_disturbed = sent.begun <= faults.settled and (
            sent.answered is None or sent.answered >= forgotten_from
        )
        if len(records) > 1 and not was_disturbed:
            after = (f"{(one.store_ms - sent.begun_ms) / 1000:.1f} s" for one in records)
            twice.append(f"{body.decode()} after {' and '.join(after)}")
    if twice:
        yield f"stored twice, though nothing was wrong: {_some(twice)}"


def _came_again(group: str, handled: Sequence[Handling], faults: Faults) -> Iterator[str]:
    first: dict[tuple[int, int, bytes], float] = {}
    again = []
    for one in handled:
        begun = first.setdefault((one.queue_id, one.offset, one.body), one.begun)
        was_disturbed = faults.forgotten_from <= begun <= faults.settled
        if one.begun - begun > REPEATED and not was_disturbed:
            again.append(f"{one.body.decode()} after {one.begun - begun:.1f} s")
    if again:
        yield f"came to {group} again, though their offsets were committed: {_some(again)}"


def _number(body: bytes) -> tuple[bytes, int]:
    """The sender and the number of a message."""
    sender, number = body.split(b".")
    return sender, int(number)


def _out_of_order(queues: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """Return what is behind a later message of its sender in the same queue; repetitions do not count."""
    last: dict[tuple[int, bytes], int] = {}
    seen: set[tuple[int, bytes]] = set()
    found = []
    for queue_id, body in queues:
        if (queue_id, body) in seen:
            continue
        seen.add((queue_id, body))
        sender, number = _number(body)
        if number < last.get((queue_id, sender), -1):
            found.append(body)
        else:
            last[queue_id, sender] = number
    return found


def _has_order(seen: Seen, body: bytes) -> bool:
    """Whether the next message of its sender was sent after the answer to this one."""
    return body.startswith(b"p") and seen.sent[body].answered is not None


def _order_in_queues(seen: Seen, stored: Sequence[Record]) -> Iterator[str]:
    queues = ((one.queue_id, one.body) for one in stored if _has_order(seen, one.body))
    if found := _out_of_order(queues):
        yield f"stored behind later ones of their sender: {_some(found)}"


def _order_at_its_owner(seen: Seen, stored: Sequence[Record]) -> Iterator[str]:
    there = _bodies(stored)
    queues = (
        (one.queue_id, one.body)
        for one in sorted(seen.handled[ORDERLY], key=lambda one: one.begun)
        if _has_order(seen, one.body) and one.body in there
    )
    if found := _out_of_order(queues):
        yield f"handled by {ORDERLY} after later ones of their sender: {_some(found)}"


def _owners(group: str, handled: Sequence[Handling]) -> Iterator[str]:
    queues = defaultdict(list)
    for one in sorted(handled, key=lambda one: one.begun):
        queues[one.queue_id].append(one)
    for queue_id, own in sorted(queues.items()):
        changes = [pair for pair in pairwise(own) if pair[0].member != pair[1].member]
        if len(changes) > CHANGES:
            yield f"queue {queue_id} changed its owner in {group} {len(changes)} times"
        at_once = [pair for pair in changes if pair[0].ended > pair[1].begun]
        if group == ORDERLY and at_once:
            bodies = [later.body for _, later in at_once]
            yield f"queue {queue_id} had two owners in {group} at once: {_some(bodies)}"


def _went_back(seen: Seen, stored: Sequence[Record], faults: Faults) -> Iterator[str]:
    # A queue may have as many messages as before again when its shorter progress is seen.
    lost = len(seen.promised.union(*seen.bodies.values()) - _bodies(stored))
    found = [
        f"{key[0]}/{key[1]}: {before} to {now.committed} of {now.end}, {now.at - faults.began:+.1f} s"
        for key, samples in sorted(seen.committed.items())
        for before, now in _steps_back(samples, faults, lost)
    ]
    if found:
        yield f"committed offsets went back: {_some(found)}"


def _steps_back(
    samples: Sequence[Sample], faults: Faults, lost: int
) -> Iterator[tuple[int, Sample]]:
    """Yield what was committed and known to both brokers, and a later sample that is lower.

    Without a master a reader gets a slave's copy, which may lack the commits of the last seconds.
    """
    for place, now in enumerate(samples):
        is_disturbed = faults.began <= now.at <= faults.settled
        until = faults.forgotten_from if is_disturbed else now.at - COPIED
        since = faults.settled if now.at > faults.settled else 0.0
        before = max(
            (one.committed for one in samples[:place] if since <= one.at < until), default=0
        )
        if now.committed < min(before, now.end) - (lost if is_disturbed else 0):
            yield before, now
