"""Decides which pulls of one range to send next, and which answers can be handed over. Pure.

A range is divided into slots of as many messages as the broker returns at once, so that several pulls can be under
way. A broker limits its answers whatever is requested (Apache: 32 messages from memory, 8 from disk). The first answer
shows that limit, a short answer makes slots smaller, and full answers make them grow again. With a filter the next
offset is unknown until an answer comes, so one pull follows the other in a single slot that is the whole range.

Invariant: the messages of a range come out in offset order, each offset once.
Invariant: no offset outside the range is requested or handed over.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

import attrs

from rocketrio.spark.reading.offsets import QueueRange
from rocketrio_protocol.frame import Body

FULL_SLOTS_TO_GROW: Final = 8
"""The number of slots in a row, each filled by one pull, after which the next slots are twice as long."""


@attrs.define(eq=False)
class Slot:
    """A part of a range that one pull after the other fills."""

    at: int
    """The next offset to pull."""
    end: int
    pulls: int = 0
    is_out: bool = False
    bodies: list[tuple[int, Body]] = attrs.Factory(list)
    """The rows and records of each answer."""

    @property
    def is_done(self) -> bool:
        return self.at >= self.end


class Pipeline:
    """The pulls of one range."""

    def __init__(
        self, part: QueueRange, *, depth: int, batch_size: int, is_filtered: bool = False
    ) -> None:
        self.part = part
        self._is_filtered = is_filtered
        self._depth = depth
        self._batch_size = batch_size
        self._stride = 0  # unknown until the first answer
        self._full_in_a_row = 0
        self._next = part.start
        self._slots: deque[Slot] = deque()

    @property
    def is_done(self) -> bool:
        """True once nothing is left to pull or to hand over."""
        return not self._slots and self._next >= self.part.end

    def next_pull(self) -> Slot | None:
        """Return the slot to pull now, from `slot.at` to before `slot.end`, or None if no pull may be sent."""
        for slot in self._slots:
            if not slot.is_out and not slot.is_done:
                if self._is_filtered and len(slot.bodies) >= self._depth:
                    return None  # Enough answers wait to be handed over.
                slot.is_out = True
                return slot
        if len(self._slots) >= self._depth or self._next >= self.part.end:
            return None
        if self._is_filtered:
            return self._new_slot(self.part.end)
        if not self._stride and self._slots:
            return None
        return self._new_slot(min(self._next + (self._stride or self._batch_size), self.part.end))

    def _new_slot(self, end: int) -> Slot:
        slot = Slot(self._next, end, is_out=True)
        self._next = end
        self._slots.append(slot)
        return slot

    def answered(
        self, slot: Slot, next_offset: int, body: Body = b"", *, rows: int | None = None
    ) -> None:
        """Record that a pull for `slot` returned the messages up to `next_offset`; `body` may be empty.

        `rows` is their number, if that is less than the number of offsets. If `next_offset` lies beyond the slot, all
        messages up to there are lost, and none of these offsets is pulled any more.
        """
        slot.is_out = False
        slot.pulls += 1
        reached = min(next_offset, slot.end)
        offsets = reached - slot.at
        if len(body):
            slot.bodies.append((offsets if rows is None else rows, body))
            if not self._is_filtered:
                self._learn(slot, offsets)
        slot.at = reached
        if next_offset > slot.end and not len(body):
            self._skip(slot.end, min(next_offset, self.part.end))

    def _skip(self, start: int, end: int) -> None:
        self._next = max(self._next, end)
        for slot in self._slots:
            if slot.at >= start and not slot.is_out:  # Pulls under way bring answers of their own.
                slot.at = max(slot.at, min(end, slot.end))

    def _learn(self, slot: Slot, rows: int) -> None:
        is_first = not self._stride
        if is_first or slot.at + rows < slot.end:
            self._stride = max(1, rows)
            self._full_in_a_row = 0
            if is_first and slot.at + rows < slot.end:
                # The first slot was a guess: the rest of it is divided into slots of the size that is now known.
                slot.end = self._next = slot.at + rows
        elif slot.pulls == 1 and rows == self._stride:
            self._full_in_a_row += 1
            if self._full_in_a_row >= FULL_SLOTS_TO_GROW:
                self._full_in_a_row = 0
                self._stride = min(2 * self._stride, self._batch_size)

    def take_ready(self) -> Iterator[tuple[int, Body]]:
        """Yield the rows and records that are next in order, each once."""
        while self._slots:
            slot = self._slots[0]
            yield from slot.bodies
            slot.bodies.clear()
            if not slot.is_done:
                return
            self._slots.popleft()
