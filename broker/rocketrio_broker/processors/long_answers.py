"""Long answers, made in steps so that no request holds the event loop for more than a few milliseconds.

An answer with thousands of queues is encoded as the JSON of a few hundred at a time, joined at the end.
"""

from collections.abc import Coroutine, Iterator
from typing import Final

import trio

from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import BrokerSystemError
from rocketrio_protocol.frame import BODY_SIZE_LIMIT
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Answer, Processor

STEP_QUEUES: Final = 256
"""The number of queues of one step: some 3 ms."""


def steps_of(numbers: range) -> Iterator[range]:
    """Split a range of queue numbers into steps; the caller needs a checkpoint between two of them."""
    for start in range(numbers.start, numbers.stop, STEP_QUEUES):
        yield range(start, min(start + STEP_QUEUES, numbers.stop))


def at_most(
    places: trio.Semaphore,
    process: Processor,
) -> Processor:
    """Return the processor with a limit on how many of its requests are processed at once; further requests wait."""

    async def wait_and_process(channel: Channel, request: RemotingCommand) -> Answer:
        async with places:
            answer = process(channel, request)
            return await answer if isinstance(answer, Coroutine) else answer

    return wait_and_process


class JoinedBody:
    """Joins JSON objects that differ in one member, a map or a list, to one object with all its entries."""

    def __init__(self, empty: bytes, member: str) -> None:
        """`empty` is the object without entries."""
        opening = f'"{member}":'.encode()
        self._head_size = empty.index(opening) + len(opening) + 1
        self._head, self._end = empty[: self._head_size], empty[self._head_size :]
        self._parts: list[bytes] = []
        self._size = len(empty)

    def add(self, body: bytes) -> None:
        """Add the entries of an object. Raises BrokerSystemError if no frame could hold the whole."""
        self.add_entries(body[self._head_size : -len(self._end)])

    def add_entries(self, part: bytes) -> None:
        """Add entries, written as JSON with commas between them. Raises BrokerSystemError as `add` does."""
        if part:
            self._parts.append(part)
            self._size += len(part) + 1
        if self._size > BODY_SIZE_LIMIT:
            raise BrokerSystemError(
                f"The answer would have more than {BODY_SIZE_LIMIT} bytes: ask for less, for example for one topic"
            )

    def joined(self, end: bytes | None = None) -> bytes:
        """Return the whole object; `end` replaces what follows the entries if that was not known at first."""
        return self._head + b",".join(self._parts) + (self._end if end is None else end)
