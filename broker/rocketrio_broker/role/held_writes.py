"""Holds requests that write while a hand-over decides which broker answers them.

Once it is decided, they are answered here in the order in which they came: stored if this broker remains the master,
otherwise refused with SERVICE_NOT_AVAILABLE (14); then the client asks for the route and finds the new master.

Invariant: a held request has not been executed yet.
Answers to: nothing of Java's.
"""

from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import trio

from rocketrio_broker.requests.declaration import Handlers
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Answer, Processor, answer_of

HELD_LIMIT: Final = 10_000
"""The most requests held at once, as many as answers may wait (WAITING_ANSWERS_LIMIT); further ones are refused as
busy."""


Processors: TypeAlias = Mapping[int, Processor]


class HeldWrites:
    """The held requests of one broker."""

    def __init__(self) -> None:
        self._tables: list[tuple[dict[int, Processor], Processors, Processors]] = []
        """A server's table, as it is when nothing is held, and what replaces a part of it."""
        self._held: list[tuple[Channel, RemotingCommand, Processor]] = []
        self.is_holding = False
        """True while a hand-over decides, between `hold` and `release`."""
        self._nursery: trio.Nursery

    def __repr__(self) -> str:
        return f"<HeldWrites {len(self)}>"

    def __len__(self) -> int:
        return len(self._held)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run the processors that await, until cancelled; what is still held then gets no answer."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._held.clear()

    def over(self, table: Mapping[int, Processor], handlers: Handlers) -> dict[int, Processor]:
        """Return a copy of the table, in which `hold` replaces the processors of requests that write."""
        own = dict(table)
        held = {
            code: partial(self.keep, processor)
            for code, processor in table.items()
            if code in handlers and handlers[code].declared.held
        }
        self._tables.append((own, table, held))
        return own

    def hold(self) -> None:
        """Hold requests that write from now on."""
        self.is_holding = True
        for own, _, held in self._tables:
            # In place: the server that was given this table finds the change at its next request.
            own |= held

    def release(self) -> None:
        """Execute the held requests, and later ones immediately."""
        self.is_holding = False
        for own, table, _ in self._tables:
            own |= table
        held, self._held = self._held, []
        for channel, request, processor in held:
            answer = answer_of(channel, request, partial(processor, channel, request))  # type: ignore[arg-type]
            if isinstance(answer, Coroutine):
                self._nursery.start_soon(self._finish, channel, request, answer)
            elif answer is not None and not request.is_oneway:
                channel.reply(answer)

    async def _finish(
        self, channel: Channel, request: RemotingCommand, work: Coroutine[Any, Any, Answer]
    ) -> None:
        try:
            answer = await work
        except Exception as fault:
            answer = answer_of(channel, request, partial(_raise, fault))
        if answer is not None and not request.is_oneway:
            channel.reply(answer)

    def keep(self, processor: Processor, channel: Channel, request: RemotingCommand) -> Answer:
        """Hold one request, which has written nothing yet; return a refusal if too many are held."""
        if len(self._held) >= HELD_LIMIT:
            return request.response(
                code=ResponseCode.SYSTEM_BUSY,
                remark=f"[OVERLOAD]{HELD_LIMIT} requests wait for a hand-over already, try later",
            )
        self._held.append((channel, request, processor))
        return None


def _raise(fault: Exception) -> Answer:
    raise fault
