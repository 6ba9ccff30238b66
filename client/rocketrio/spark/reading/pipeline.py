"""Which pulls of one range are to be sent, and which answers can be handed on. Pure.

A range is cut into slots of as many messages as the broker gives at once, so that several pulls can be
under way. A broker caps its answers whatever is asked (Apache: 32 messages from memory, 8 from disk):
the first answer tells, a short one makes slots smaller, full ones make them grow again.
What passes a filter may lie anywhere: there one pull follows the other, in one slot that is the whole range.

Invariant: the messages of a range come out in offset order, each offset once.
Invariant: no offset outside the range is asked for or handed on.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

import attrs

from rocketrio.spark.reading.offsets import QueueRange
from rocketrio_protocol.frame import Body

FULL_SLOTS_TO_GROW: Final = 8
"""Slots in a row that one pull filled, before the next is made twice as long."""


@attrs.define(eq=False)
class Slot:
    """A stretch of offsets that is pulled by one pull after the other."""

    at: int
    """The next offset to pull."""
    end: int
    pulls: int = 0
    is_out: bool = False
    bodies: list[tuple[int, Body]] = attrs.Factory(list)
    """Rows and records of each answer."""

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
        """Nothing is left to pull or to hand on."""
        return not self._slots and self._next >= self.part.end

    def next_pull(self) -> Slot | None:
        """The slot to pull now, from `slot.at` to before `slot.end`; None when nothing more may go out."""
        for slot in self._slots:
            if not slot.is_out and not slot.is_done:
                if self._is_filtered and len(slot.bodies) >= self._depth:
                    return None  # So much waits to be handed on already.
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
        """A pull for `slot` brought the messages up to `next_offset`; `body` may be empty.

        `rows` says how many they are where that is less than the offsets between. Beyond the slot `next_offset` lies
        where all up to there is lost: then nothing of it is pulled any more.
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
            if slot.at >= start and not slot.is_out:  # Those that are out will say for themselves.
                slot.at = max(slot.at, min(end, slot.end))

    def _learn(self, slot: Slot, rows: int) -> None:
        is_first = not self._stride
        if is_first or slot.at + rows < slot.end:
            self._stride = max(1, rows)
            self._full_in_a_row = 0
            if is_first and slot.at + rows < slot.end:
                # The first slot was a guess: the rest of it is cut into slots of the size that is now known.
                slot.end = self._next = slot.at + rows
        elif slot.pulls == 1 and rows == self._stride:
            self._full_in_a_row += 1
            if self._full_in_a_row >= FULL_SLOTS_TO_GROW:
                self._full_in_a_row = 0
                self._stride = min(2 * self._stride, self._batch_size)

    def take_ready(self) -> Iterator[tuple[int, Body]]:
        """Rows and records that are next in order, each once."""
        while self._slots:
            slot = self._slots[0]
            yield from slot.bodies
            slot.bodies.clear()
            if not slot.is_done:
                return
            self._slots.popleft()
