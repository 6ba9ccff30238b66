"""The messages of one pull, not yet decoded: only the start of each in the received bytes is known.

Invariant: sizes and magics are checked at creation, so the received bytes cannot turn out to be malformed later.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Self, overload

import attrs

from rocketrio_protocol.frame import Body
from rocketrio_protocol.message import MessageExt

if TYPE_CHECKING:
    from rocketrio_protocol.record.vectors import Int64s


@attrs.define(eq=False)
class PulledMessages(Sequence[MessageExt]):
    """A sequence that decodes a message each time it is accessed."""

    body: Body
    broker_name: str
    starts: "Int64s"
    end: int
    """The end of the last message."""
    has_compressed: bool
    """Whether any body is compressed."""

    @classmethod
    def of(cls, body: Body, broker_name: str) -> Self:
        """Wrap all messages of a pull. Raises RemoteProtocolError if the bytes are not a sequence of messages."""
        # Numpy is a sixth of the start of a program that never pulls: a producer, most commands.
        from rocketrio_protocol.columns.starts import any_compressed, check_magics, record_starts

        starts = record_starts(body)
        # Here the pull can still fail and be repeated; later the user's loop would meet the malformed message.
        check_magics(body, starts)
        return cls(body, broker_name, starts, len(body), any_compressed(body, starts))

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> MessageExt: ...

    @overload
    def __getitem__(self, index: slice) -> "PulledMessages": ...

    def __getitem__(self, index: int | slice) -> "MessageExt | PulledMessages":
        starts = self.starts
        if isinstance(index, slice):
            first, following, _ = index.indices(len(starts))
            end = int(starts[following]) if following < len(starts) else self.end
            return PulledMessages(
                self.body, self.broker_name, starts[first:following], end, self.has_compressed
            )
        at = range(len(starts))[index]
        start = int(starts[at])
        end = int(starts[at + 1]) if at + 1 < len(starts) else self.end
        return MessageExt(self.body, start, end - start, self.broker_name)

    def __iter__(self) -> Iterator[MessageExt]:
        for start, end in pairwise([*self.starts.tolist(), self.end]):
            yield MessageExt(self.body, start, end - start, self.broker_name)

    @property
    def piece(self) -> memoryview:
        """The bytes of all messages; there is at least one."""
        return memoryview(self.body)[int(self.starts[0]) : self.end]
